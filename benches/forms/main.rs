//! Comparison of forms of kernels: `cargo bench --bench forms -- [OPTION]... [FAMILY]...`.
//!
//! A family is one computation, written in the ways that users write it. On a GPU the forms are
//! verified against each other and timed alternately. Without a GPU the times are those of the cost
//! model.

mod assembled;
mod attention;
#[path = "../../examples/attention.rs"]
#[allow(dead_code, reason = "an example is a program; only its kernel is used here")]
mod attention_example;
mod expected;
mod family;
mod gated;
mod layernorm;
mod linalg;
mod numbers;
mod operand_conversion;
mod operands;
mod ported;
mod product;
mod ragged;
mod samples;
mod softmax;

use anyhow::{Context, Result, bail, ensure};
use cutlet::{Backend, Device, Target};
use family::{AnyFamily, Selection, Size};

const HELP: &str = "
Words are parts of names of families; none: all of them.

  --form TEXT      only forms whose name contains the text (several times: any of them)
  --runs N         timed launches of each form (default 12)
  --model          times of the cost model, although there is a GPU
  --schedules      print the schedules (implies --model)
  --assemble       registers, spills and losses that ptxas names; with CUTLET_LINES=1 the lines of spills
  --target TARGET  target of the cost model and of ptxas (default sm_90a)
  --verify         results at small sizes on the cpu device, without times
  --check FILE     compare the ratios of the cost model with a file (CUTLET_BLESS=1: write it)";

fn main() -> Result<()> {
    let mut selection = Selection { patterns: Vec::new(), runs: 12, schedules: false };
    let [mut model, mut verify, mut assemble] = [false; 3];
    let (mut families, mut target, mut file) = (Vec::new(), Target::SM_90A, None);
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match &*word {
            "--form" => selection.patterns.push(value()?),
            "--runs" => selection.runs = value()?.parse()?,
            "--model" => model = true,
            "--schedules" => selection.schedules = true,
            "--target" => target = value()?.parse().map_err(anyhow::Error::msg)?,
            "--verify" => verify = true,
            "--assemble" => assemble = true,
            "--check" => file = Some(value()?),
            "--help" => {
                println!("{HELP}");
                return Ok(());
            }
            option if option.starts_with('-') => bail!("there is no option {option}; there are{HELP}"),
            _ => families.push(word),
        }
    }
    let size = if verify { Size::Small } else { Size::Full };
    let mut all: Vec<Box<dyn AnyFamily>> = [
        attention::families(size),
        product::families(size),
        ragged::families(size),
        gated::families(size),
        softmax::families(size),
        layernorm::families(size),
        operands::families(size),
        samples::families(size),
        linalg::families(size),
        numbers::families(size),
        operand_conversion::families(size),
        ported::families(size),
    ]
    .into_iter()
    .flatten()
    .collect();
    all.retain(|one| families.is_empty() || families.iter().any(|part| one.name().contains(&**part)));
    if let Some(file) = file {
        return expected::check(&all, target, &selection, file.as_ref());
    }
    let device = Device::gpu(0).ok().filter(|device| device.backend() == Backend::Ptx);
    let mut faults = 0;
    for family in all {
        let done = match device {
            _ if verify => family.verify(Device::cpu(), &selection),
            _ if assemble => family.assemble(target, &selection),
            Some(device) if !model && !selection.schedules => family.measure(device, &selection),
            _ => family.plan(target, &selection),
        };
        if let Err(fault) = done {
            println!("FAULT: {fault:#}");
            faults += 1;
        }
    }
    ensure!(faults == 0, "{faults} families have faults");
    Ok(())
}
