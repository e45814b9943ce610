//! Comparison of the cost model (`docs/schedule_passes.md`) with measurements: `cargo bench
//! --bench schedules -- [OPTION]... [ROW]...`.
//!
//! On a GPU every plan that a row's plain launch leaves open is forced and measured alternately.
//! For each row and in total, it prints the correlation of the model's order with that of the
//! times, and the slowdown of the selected plan relative to the best. Without a GPU it prints the
//! model's order, and its correlation with recorded times: of plans in
//! `benches/schedules/h200.plans`, and of configurations in `benches/compare/h200.tune`.

mod compared;
mod measured;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use compared::configuration::Place;
use compared::rank::Total;
use compared::{ALL, RECORDS, recorded, rows};
use cutlet::tune::Records;
use cutlet::{Backend, Device};

const HELP: &str = "
Words are parts of names of rows of benches/compare; none: all rows with products.

  --records   compare the model with recorded times, although there is a GPU
  --save FILE write the times of the plans, as benches/schedules/h200.plans has them
  --verbose   print each configuration";

/// Options of the command line.
pub struct Selection {
    patterns: Vec<String>,
    verbose: bool,
    save: Option<PathBuf>,
}

impl Selection {
    /// Returns true if this row is selected.
    fn takes(&self, name: &str) -> bool {
        let multiplies = ["matmul", "attention"].iter().any(|kernel| name.contains(kernel));
        multiplies && (self.patterns.is_empty() || self.patterns.iter().any(|pattern| name.contains(&**pattern)))
    }
}

fn main() -> Result<()> {
    let mut selection = Selection { patterns: Vec::new(), verbose: false, save: None };
    let mut records = false;
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        match &*word {
            "--records" => records = true,
            "--verbose" => selection.verbose = true,
            "--save" => selection.save = Some(words.next().context("--save: a file is missing")?.into()),
            "--help" => {
                println!("{HELP}");
                return Ok(());
            }
            option if option.starts_with('-') => bail!("there is no option {option}; there are{HELP}"),
            _ => selection.patterns.push(word),
        }
    }
    let rows = ALL.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": "));
    let rows: Vec<(&str, &str)> = rows.filter(|(name, _)| selection.takes(name)).collect();
    match Device::gpu(0) {
        Ok(device) if !records && device.backend() == Backend::Ptx => measured::all(&rows, device, &selection),
        _ if selection.save.is_some() => bail!("--save: there is no GPU to measure on"),
        _ => {
            measured::models(&rows)?;
            records_of(&selection)
        }
    }
}

/// Compares the model with all records of the selected rows.
fn records_of(selection: &Selection) -> Result<()> {
    let records = Records::parse("h200.tune", RECORDS)?;
    let mut total = Total::default();
    let mut choices: Vec<f64> = Vec::new();
    for record in records.all().iter().filter(|record| selection.takes(&record.key.name)) {
        let name = &*record.key.name;
        let row = rows::open(name, Place { device: Device::cpu(), sets: 1 })?;
        let all = recorded::configurations(record, &*row)?;
        let (rho, regret) = recorded::agreement(&all);
        total.add(rho, regret);
        let rho = rho.map_or("-".to_owned(), |rho| format!("{rho:.2}"));
        let (count, regret) = (all.len(), 100.0 * regret);
        println!(
            "{name}: {count} recorded configurations, rank correlation {rho}, the model's best is {regret:.1} % slower than the best"
        );
        if selection.verbose {
            all.iter().for_each(|both| println!("  {:9.1} us, model {:9.1}  {}", both.time, both.model, both.label));
        }
        for (index, label) in row.labels().iter().enumerate() {
            for other in recorded::warps(record, &*row, (index, label))? {
                let [model, time] = [other.model, other.recorded].map(|ratio| 100.0 * (ratio - 1.0));
                let chosen = if other.chosen { ", chosen" } else { "" };
                if selection.verbose || other.chosen {
                    println!("  {label}: {}: model {model:+.1} %, recorded {time:+.1} %{chosen}", other.what);
                }
                choices.extend(other.chosen.then(|| other.recorded.ln()));
            }
        }
    }
    println!("records: {total}");
    let mean = (choices.iter().sum::<f64>() / choices.len().max(1) as f64).exp();
    println!("{} configurations get other warps than usual, in {mean:.3} times the recorded time", choices.len());
    Ok(())
}
