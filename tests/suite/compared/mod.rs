//! The PTX of every configuration of the comparison's rows, for sums of it.

#[path = "../../../benches/compare/ours/attention_f8.rs"]
mod attention_f8;
#[path = "../../../benches/compare/ours/backward.rs"]
mod backward;
#[path = "../../../benches/compare/ours/configuration.rs"]
#[allow(dead_code, reason = "nothing is launched")]
mod configuration;
#[path = "../../../benches/compare/ours/fill.rs"]
#[allow(dead_code, reason = "nothing is launched")]
mod fill;
#[path = "../../../benches/compare/ours/kernels.rs"]
mod kernels;
#[path = "../../../benches/compare/ours/movement.rs"]
mod movement;
#[path = "../../../benches/compare/ours/narrow.rs"]
mod narrow;
#[path = "../../../benches/compare/ours/numbers.rs"]
mod numbers;
#[path = "../../../benches/compare/ours/order.rs"]
mod order;
#[path = "../../../benches/compare/ours/rows.rs"]
mod rows;
#[path = "../../../benches/compare/ours/scaled.rs"]
mod scaled;
#[path = "../../../benches/compare/ours/tuning.rs"]
#[allow(dead_code, reason = "nothing is launched")]
mod tuning;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use cutlet::{Backend, Device, Format};

use self::configuration::{Place, Step};
use self::rows::open;
use crate::harness::{Session, Suite};
use crate::measure::{attention_order, examples};
use crate::ptxas;
use crate::sums;

/// Adds a test for each row of the comparison, if sums are wanted.
pub fn register(suite: &mut Suite) {
    if !sums::wanted() {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/compare/rows.txt");
    let text = std::fs::read_to_string(path).expect("the rows of the comparison");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    for name in lines.filter_map(|line| line.split(':').next()).map(str::to_owned) {
        suite.test(format!("row/{name}"), move |session| row(session, &name));
    }
}

fn row(session: Session, name: &str) -> Result<()> {
    let Session::Assemble(target, demand) = session else { return Ok(()) };
    let row = open(name, Place { device: Device::cpu(), sets: 1 })?;
    let labels = row.labels();
    ensure!(!labels.is_empty(), "no configurations");
    for (configuration, label) in labels.iter().enumerate() {
        let mut out = Vec::new();
        let exported =
            row.call(configuration, 0, Backend::Ptx, Step::Export { target, format: Format::Ptx, out: &mut out });
        let text = match exported {
            Ok(()) => out.into_iter().map(|file| String::from_utf8_lossy(&file.bytes).into_owned()).collect(),
            // A target may lack what a configuration needs.
            Err(error) => format!("{label}: {error}"),
        };
        ptxas::assemble(&text, &target.to_string(), demand).with_context(|| label.clone())?;
    }
    Ok(())
}
