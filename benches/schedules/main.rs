//! The cost model of schedules (`docs/schedule.md`) beside measurements: `cargo bench --bench schedules -- [OPTION]... [ROW]...`.
//!
//! On a GPU every plan that a row's plain launch leaves open is forced and measured in turns; how alike the model's order is to that of
//! the times, and how much slower than the best the chosen one is, is printed for each row and in total. Without a GPU the
//! model's order is printed, and how alike it is to that of the configurations whose times `benches/compare/h200.tune` has.

mod compared;
mod measured;
mod rank;
mod recorded;

use anyhow::{Result, bail};
use compared::ALL;
use cutlet::{Backend, Device};

const HELP: &str = "
Words are parts of names of rows of benches/compare; none: all rows with products.

  --records   compare the model with recorded times, although there is a GPU
  --verbose   print each configuration";

/// What is asked for.
pub struct Wish {
    patterns: Vec<String>,
    verbose: bool,
}

impl Wish {
    /// Is this row meant?
    fn takes(&self, name: &str) -> bool {
        let multiplies = ["matmul", "attention"].iter().any(|kernel| name.contains(kernel));
        multiplies && (self.patterns.is_empty() || self.patterns.iter().any(|pattern| name.contains(&**pattern)))
    }
}

fn main() -> Result<()> {
    let mut wish = Wish { patterns: Vec::new(), verbose: false };
    let mut records = false;
    for word in std::env::args().skip(1).filter(|word| word != "--bench") {
        match &*word {
            "--records" => records = true,
            "--verbose" => wish.verbose = true,
            "--help" => {
                println!("{HELP}");
                return Ok(());
            }
            option if option.starts_with('-') => bail!("there is no option {option}; there are{HELP}"),
            _ => wish.patterns.push(word),
        }
    }
    let rows = ALL.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": "));
    let rows: Vec<(&str, &str)> = rows.filter(|(name, _)| wish.takes(name)).collect();
    match Device::gpu(0) {
        Ok(device) if !records && device.backend() == Backend::Ptx => measured::all(&rows, device, &wish),
        _ => {
            measured::models(&rows)?;
            recorded::all(&wish)
        }
    }
}
