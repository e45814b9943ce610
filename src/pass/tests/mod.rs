//! Tests of the passes: random kernels have equal results before and after, and each pass has its
//! effect.

mod kernels;
mod pipeline_dependent_mma;
mod planted;
pub(crate) mod random;
mod thread_local_reduction;

use super::{PIPELINE, optimize};
use crate::ir::{Module, verify};
use crate::util::test_sample::one_in;

/// Returns the ops of the only entry as text, one op per line.
fn body(module: &Module) -> Vec<String> {
    let text = module.to_string();
    let lines: Vec<&str> = text.lines().collect();
    lines[1..lines.len() - 1].iter().map(|line| line.strip_prefix("  ").unwrap_or(line).to_string()).collect()
}

#[track_caller]
fn well_formed(module: &Module, when: &str) {
    if let Err(errors) = verify(module) {
        let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
        panic!("{when}:\n{}\n{module}", all.join("\n"));
    }
}

#[test]
fn random_kernels_keep_their_meaning() {
    for seed in 0..500 / one_in(5) as u64 {
        let module = random::kernel(seed);
        well_formed(&module, &format!("seed {seed}"));
        let expected = random::run(&module);
        // Each pass separately on every fifth kernel; all passes in order on every kernel.
        let alone = if seed % 5 == 0 { PIPELINE } else { &[] };
        for pass in alone {
            let mut changed = module.clone();
            (pass.run)(&mut changed);
            well_formed(&changed, &format!("seed {seed} after {}", pass.name));
            let outcome = random::run(&changed);
            assert_eq!(outcome, expected, "seed {seed}: {}\n{module}\n{changed}", pass.name);
        }
        let mut all = module.clone();
        optimize(&mut all);
        well_formed(&all, &format!("seed {seed} after all passes"));
        assert_eq!(random::run(&all), expected, "seed {seed}: all passes\n{module}\n{all}");
        let mut again = module.clone();
        optimize(&mut again);
        assert_eq!(again.to_string(), all.to_string(), "seed {seed}: not deterministic");
    }
}
