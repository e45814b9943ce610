//! Comparison of kernels of cuTile Python's library TileGym with the functions of this crate, on
//! the same arrays in one process: `cargo bench -p cutlet-kernels --bench ports -- FOLDER
//! [ROW]...`.
//!
//! `cargo test -p cutlet-kernels --bench ports` compares the functions of this crate with the
//! references at small sizes on the CPU.
//!
//! `cutile/export.py` writes the originals to FOLDER, as cubins. The result of each configuration
//! is compared with a reference in f64 at some places. The best configurations of the original and
//! the function of this crate are measured alternately.

mod case;
mod driver;
mod jit;
mod rows;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cutlet::{Bench, Device, Stream};

use case::{Case, Open};
use driver::Driver;
use driver::call::Call;
use jit::stages::{Choice, Chosen, Stages};

/// Launches of the original of a row in the manifest, by configuration.
#[derive(Default)]
struct Original {
    configurations: Vec<Configuration>,
    stages: Stages,
}

struct Configuration {
    label: String,
    lines: usize,
    /// Cubin, grid and arguments.
    launches: Vec<[String; 3]>,
}

/// Queues one launch of the original.
type Queue = Box<dyn Fn(&Stream) -> cutlet::Result<()>>;

fn manifest(folder: &Path) -> Result<HashMap<String, Original>> {
    let text = std::fs::read_to_string(folder.join("manifest.tsv")).context("export.py writes the manifest")?;
    let mut rows = HashMap::<String, Original>::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        match fields[..] {
            ["row", row] => _ = rows.entry(row.to_owned()).or_default(),
            ["launch", row, label, lines, cubin, grid, arguments] => {
                let configurations = &mut rows.entry(row.to_owned()).or_default().configurations;
                if configurations.last().is_none_or(|last| last.label != label) {
                    configurations.push(Configuration {
                        label: label.to_owned(),
                        lines: lines.parse()?,
                        launches: vec![],
                    });
                }
                let launch = [cubin, grid, arguments].map(str::to_owned);
                configurations.last_mut().expect("a configuration").launches.push(launch);
            }
            ["stage", row, stage, label, lines, cubin, grid, arguments] => {
                let launch = [cubin, grid, arguments].map(str::to_owned);
                let choice = Choice { label: label.to_owned(), lines: lines.parse()?, launch };
                let stages = &mut rows.entry(row.to_owned()).or_default().stages;
                stages.entry(stage.parse()?).or_default().push(choice);
            }
            _ => anyhow::bail!("a line of the manifest: {line}"),
        }
    }
    Ok(rows)
}

fn compare(
    case: &Case,
    original: &Original,
    folder: &Path,
    driver: &Driver,
    device: Device,
    runs: usize,
) -> Result<()> {
    let stream = device.default_stream();
    let Open { arrays, ours, reset, error } = (case.open)(device)?;
    let check = |label: &str, launch: &dyn Fn() -> cutlet::Result<()>| -> Result<Option<f64>> {
        reset()?;
        launch()?;
        stream.synchronize()?;
        let found = error()?;
        let right = found <= case.tolerance;
        if !right {
            println!("{}\tWRONG: {label}: error {found:.1e}", case.name);
        }
        Ok(right.then_some(found))
    };
    let Some(our_error) = check("cutlet", &*ours)? else { return Ok(()) };
    let mut found = Vec::new();
    let open = |[cubin, grid, arguments]: &[String; 3]| -> Result<Queue> {
        if cubin == "clear" {
            let clear = driver.clear(arguments, &arrays)?;
            return Ok(Box::new(move |stream| clear.queue(stream)));
        }
        let call = Call::new(driver, driver.kernel(folder, cubin)?, grid, arguments, &arrays)?;
        Ok(Box::new(move |stream| call.queue(stream)))
    };
    let whole = |Configuration { label, lines, launches }: &Configuration| {
        let calls: Result<Vec<Queue>> = launches.iter().map(open).collect();
        Ok((label.clone(), *lines, calls.with_context(|| label.clone())?))
    };
    let mut candidates: Vec<Result<Chosen>> = original.configurations.iter().map(whole).collect();
    if !original.stages.is_empty() {
        candidates.push(jit::stages::fastest(&original.stages, &stream, open));
    }
    for candidate in candidates {
        let (label, lines, calls) = match candidate {
            Ok(candidate) => candidate,
            Err(fault) => {
                println!("{}\tREFUSED: {fault:#}", case.name);
                continue;
            }
        };
        let launch = move || calls.iter().try_for_each(|call| call(&device.default_stream()));
        match check(&label, &launch) {
            Ok(Some(error)) => {
                let time = Bench::new().runs(5).run(&stream, &launch)?.median();
                found.push((time, label, lines, error, launch));
            }
            Ok(None) => {}
            Err(fault) => println!("{}\tREFUSED: {label}: {fault:#}", case.name),
        }
    }
    if original.configurations.is_empty() && original.stages.is_empty() {
        let time = Bench::new().runs(runs).run(&stream, &ours)?.median().as_secs_f64();
        let (micros, rates) = (time * 1e6, case.rates(time));
        println!("{}\t{micros:.1} us\t-\t-\t-\t{rates}\t{our_error:.1e}\t-\tnot compiled", case.name);
        return Ok(());
    }
    ensure!(!found.is_empty(), "no configuration of the original is right");
    found.sort_by_key(|one| one.0);
    let (_, label, lines, error, launch) = &found[0];
    let compared = Bench::new().runs(runs).compare(&stream, &mut (), &[&|()| ours(), &|()| launch()])?;
    let [time, theirs] = [0, 1].map(|at| compared.times()[at].median().as_secs_f64());
    println!(
        "{}\t{:.1} us\t{:.1} us\t{:.3}\t{lines}\t{}\t{our_error:.1e}\t{error:.1e}\t{label}",
        case.name,
        time * 1e6,
        theirs * 1e6,
        theirs / time,
        case.rates(time),
    );
    Ok(())
}

/// Compares the functions of this crate with the references at small sizes.
fn check_on_cpu() -> Result<()> {
    for case in rows::small().into_iter().chain(jit::small()) {
        let open = (case.open)(Device::cpu())?;
        (open.reset)()?;
        (open.ours)()?;
        let error = (open.error)()?;
        println!("{}: error {error:.1e}", case.name);
        ensure!(error <= case.tolerance, "{}: error {error:.1e}", case.name);
    }
    Ok(())
}

fn main() -> Result<()> {
    // Only `cargo bench` passes this word.
    if !std::env::args().any(|word| word == "--bench") {
        return check_on_cpu();
    }
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    let folder = PathBuf::from(words.next().context("the first argument is the folder that export.py writes")?);
    let patterns: Vec<String> = words.collect();
    let originals = manifest(&folder)?;
    let (driver, device) = (Driver::new()?, Device::gpu(0)?);
    println!("{}", device.name());
    println!("row\tcutlet\toriginal\tratio\tlines of the original\trates\terror\terror of the original\tconfiguration");
    for case in rows::cases().into_iter().chain(jit::cases()) {
        if !patterns.is_empty() && !patterns.iter().any(|part| case.name.contains(&**part)) {
            continue;
        }
        let Some(original) = originals.get(&case.name) else {
            println!("{}\tnot exported", case.name);
            continue;
        };
        let compare = || compare(&case, original, &folder, &driver, device, 20);
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(compare)) {
            Ok(Ok(())) => {}
            Ok(Err(fault)) => println!("{}\tFAULT: {fault:#}", case.name),
            Err(_) => println!("{}\tFAULT: a panic", case.name),
        }
    }
    Ok(())
}
