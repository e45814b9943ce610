//! Order of sums in the code of an H100: without a GPU, the code for one row is compared with that
//! for a batch.

use std::collections::BTreeMap;
use std::ops::Range;

use cutlet as ct;
use cutlet::Target;
use cutlet_kernels::inspect::{Subject, inspect};

use super::{BATCH, device};

/// Returns true for instructions that fix the order of a sum: those of floats, exchanges of
/// threads, and products.
fn is_counted(name: &str) -> bool {
    let is_sum = ["add", "sub", "fma", "mul", "max", "ex2"].iter().any(|start| name.starts_with(start));
    (is_sum && [".f32", ".f16", ".bf16", ".f64"].iter().any(|end| name.contains(end)))
        || ["shfl", "wgmma.mma", "mma"].iter().any(|start| name.starts_with(start))
}

/// Returns threads and numbers of counted instructions of each kernel that a call launches.
fn counts(launch: impl FnOnce() -> ct::Result<()>) -> ct::Result<Vec<(u32, BTreeMap<String, usize>)>> {
    let kernels = inspect(Target::SM_90A, Subject::Code, launch)?;
    let count = |ptx: &[u8]| {
        let mut counts = BTreeMap::new();
        for line in String::from_utf8_lossy(ptx).lines() {
            let mut words = line.split_whitespace().skip_while(|word| word.starts_with(['@', '{']));
            if let Some(name) = words.next().filter(|name| is_counted(name)) {
                *counts.entry(name.to_owned()).or_insert(0) += 1;
            }
        }
        counts
    };
    Ok(kernels.iter().map(|kernel| (kernel.threads, count(&kernel.ptx))).collect())
}

/// Compares the code of a launch for one row with that for all rows, on the CPU device.
#[track_caller]
pub fn same_code(launch: impl Fn(Range<usize>) -> ct::Result<Vec<u64>>) -> ct::Result<()> {
    if device().target().is_some() {
        return Ok(());
    }
    let [one, all] = [0..1, 0..BATCH].map(|range| counts(|| launch(range).map(drop)));
    let (one, all) = (one?, all?);
    assert!(!one.is_empty());
    assert_eq!(one, all);
    Ok(())
}
