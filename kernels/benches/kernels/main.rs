//! Times of the kernels: `cargo bench -p cutlet-kernels -- [OPTION]... [ROW]...`.
//!
//! Each row prints its time, its rates, and the least time of the hardware over its time. Without a
//! GPU the times are those of the cost model.

#[path = "../../../benches/forms/assembled.rs"]
mod assembled;
mod attention;
mod batch;
mod filled;
mod images;
mod linalg;
mod losses;
mod moe;
mod norms;
mod numbers;
mod order;
mod products;
mod recurrent;
mod row;

use anyhow::{Context, Result, bail, ensure};
use cutlet::{Backend, Device, Target};

const HELP: &str = "
Words are parts of names of rows; none: all of them.

  --runs N         timed launches of each row (default 12)
  --tune FILE      measure all configurations of the kernels, and write the records to a file
  --model          times of the cost model, although there is a GPU
  --schedules      print the schedules (implies --model)
  --assemble       registers, spills and losses that ptxas names; with CUTLET_LINES=1 the lines of spills
  --target TARGET  target of the cost model and of ptxas (default sm_90a)
  --list           names of the rows";

fn main() -> Result<()> {
    let (mut runs, mut target, mut patterns, mut tune) = (12, Target::SM_90A, Vec::new(), None);
    let [mut model, mut schedules, mut assemble, mut list] = [false; 4];
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match &*word {
            "--runs" => runs = value()?.parse()?,
            "--target" => target = value()?.parse().map_err(anyhow::Error::msg)?,
            "--tune" => tune = Some(value()?),
            "--model" => model = true,
            "--schedules" => schedules = true,
            "--assemble" => assemble = true,
            "--list" => list = true,
            option if option.starts_with('-') => bail!("there is no option {option}; there are{HELP}"),
            _ => patterns.push(word),
        }
    }
    let subjects = [
        products::rows(),
        attention::rows(),
        norms::rows(),
        losses::rows(),
        moe::rows(),
        recurrent::rows(),
        order::rows(),
        images::rows(),
        linalg::rows(),
        numbers::rows(),
        batch::rows(),
    ];
    let device = Device::gpu(0).ok().filter(|device| device.backend() == Backend::Ptx);
    let mut faults = 0;
    for row in subjects.into_iter().flatten() {
        if !patterns.is_empty() && !patterns.iter().any(|part| row.name.contains(&**part)) {
            continue;
        }
        let done = match device {
            _ if list => {
                println!("{}", row.name);
                Ok(())
            }
            Some(device) if tune.is_some() => row.tune(device, tune.as_deref().unwrap_or_default()),
            _ if assemble => row.assemble(target),
            Some(device) if !model && !schedules => row.measure(device, runs),
            _ => row.plan(target, schedules),
        };
        if let Err(fault) = done {
            println!("{}\tFAULT: {fault:#}", row.name);
            faults += 1;
        }
    }
    ensure!(faults == 0, "{faults} rows failed");
    Ok(())
}
