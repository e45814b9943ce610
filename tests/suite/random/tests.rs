//! Tests of the generator itself: every form is drawn, programs are reduced to their core, and
//! printed programs are Rust.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::draw::{generate, of_every_form};
use super::kind::Number;
use super::ops::all;
use super::print::whole;
use super::program::{Program, Step};
use super::shrink::reduced;
use super::{printed, reference};
use crate::runner::{Completion, Trial};

/// Returns the tests of the random programs themselves.
pub fn trials() -> Vec<Trial> {
    let trial = |name: &str, test: fn() -> Result<()>| {
        Trial::new(format!("random::{name}"), move || test().map(|()| Completion::Completed))
    };
    vec![
        trial("every_form_is_drawn", every_form_is_drawn),
        trial("programs_are_well_typed", programs_are_well_typed),
        trial("a_made_up_defect_is_reduced", a_made_up_defect_is_reduced),
        trial("printed_programs_compile", printed_programs_compile),
    ]
}

const SEEDS: u64 = 2000;

/// A form that no program draws tests nothing.
fn every_form_is_drawn() -> Result<()> {
    let mut drawn: BTreeMap<&str, u64> =
        all().iter().filter(|op| op.weight > 0 || op.name == "with_layout").map(|op| (op.name, 0)).collect();
    for seed in 1..=SEEDS {
        for name in generate(seed).names() {
            *drawn.entry(name).or_default() += 1;
        }
    }
    ensure!(drawn.len() <= all().len(), "two forms have one name");
    let never: Vec<_> = drawn.iter().filter(|(_, count)| **count == 0).map(|(name, _)| *name).collect();
    ensure!(never.is_empty(), "no program of {SEEDS} draws {never:?}");
    let families: std::collections::BTreeSet<_> = all().iter().map(|op| op.family).collect();
    for family in FAMILIES {
        ensure!(families.contains(family), "no form is of the family {family}");
    }
    Ok(())
}

/// `printed.rs` is a printed program with every form, so the test shows that it compiles. Its
/// results are checked, too.
fn printed_programs_compile() -> Result<()> {
    let (program, missing) = of_every_form();
    ensure!(missing.is_empty(), "no operands fit {missing:?}");
    let (contents, codes) = (super::contents(SEED, &program), super::codes(SEED, &program));
    let text = format!("{HEADER}{}", whole(&program, &contents, &codes, ""));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/random/printed.rs");
    if std::env::var_os("CUTLET_BLESS").is_some() {
        return Ok(std::fs::write(path, text)?);
    }
    ensure!(
        std::fs::read_to_string(path)? == text,
        "forms have changed: CUTLET_BLESS=1 cargo test --test suite -- random::printed_programs writes printed.rs anew"
    );
    let shape = program.shape;
    let [given, mut wanted] = [0, 1].map(|n| super::values(&contents[n], &codes[n], shape));
    reference::run(&program, &given, &mut wanted);
    let mut all = printed::run(cutlet::Device::cpu())?.into_iter();
    for (content, got) in contents[1].iter().zip(&mut all) {
        let wanted = wanted[content.kind as usize].as_ref().expect("an array of this kind");
        for (place, (&got, &want)) in got.iter().zip(&wanted.data).enumerate() {
            let both_nan = |a: Number, b: Number| matches!((a, b), (Number::Float(a), Number::Float(b)) if a.is_nan() && b.is_nan());
            let number = content.kind.of_bits(got);
            ensure!(
                content.kind.to_bits(want) == got || both_nan(number, want),
                "{} at {place}: {number:?} instead of {want:?}",
                content.kind.name()
            );
        }
    }
    for (codes, got) in codes[1].iter().zip(all) {
        let wanted = wanted[codes.packed.place()].as_ref().expect("an array of this type");
        let want: Vec<u64> = wanted.data.iter().map(|code| code.int() as u64).collect();
        ensure!(got == want, "codes of {}: {got:?} instead of {want:?}", codes.packed.name());
    }
    Ok(())
}

const SEED: u64 = 4;
const HEADER: &str =
    "//! A printed program with every form of random kernels: `tests.rs` describes how it is written\n//! anew.\n\n";

/// The parts of the front end that random kernels have to know.
const FAMILIES: &[&str] = &[
    "floats",
    "integers",
    "comparisons",
    "conversions",
    "narrow",
    "packed",
    "made",
    "shapes",
    "pieces",
    "reductions",
    "closures",
    "scans",
    "products",
    "loads",
    "gathers",
    "views",
    "parts",
    "stores",
    "scatters",
    "atomics",
    "orders",
    "branches",
    "loops",
];

fn programs_are_well_typed() -> Result<()> {
    for seed in 1..=200 {
        ensure!(generate(seed).forms().is_some(), "program {seed}");
        ensure!(generate(seed) == generate(seed), "program {seed} is another one each time");
    }
    Ok(())
}

fn is_exclusive_scan(step: &Step) -> bool {
    step.op.name == "cumsum" && step.numbers[1] >= 2
}

/// Returns true for programs with an exclusive scan and a flip: the condition of an invented
/// defect.
fn has_made_up_defect(program: &Program) -> bool {
    let (mut scan, mut flip) = (false, false);
    program.each(&mut |step| {
        scan |= is_exclusive_scan(step);
        flip |= step.op.name == "flip";
    });
    scan && flip
}

fn a_made_up_defect_is_reduced() -> Result<()> {
    let mut found = 0;
    for seed in (1..).take(4000) {
        let program = generate(seed);
        if !has_made_up_defect(&program) {
            continue;
        }
        let core = reduced(&program, Duration::from_secs(20), &mut has_made_up_defect);
        let mut steps = 0;
        core.each(&mut |_| steps += 1);
        // The two steps, and an operand for each.
        ensure!(steps <= 4, "program {seed} was only reduced to {core:#?}");
        ensure!(core.tile == [1, 4] && core.shape == [1, 1], "program {seed} still has {:?}", core.tile);
        found += 1;
        if found == 5 {
            break;
        }
    }
    ensure!(found > 0, "no program has what is looked for");
    Ok(())
}
