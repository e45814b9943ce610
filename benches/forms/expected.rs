//! Comparison of the estimates of the cost model with those of a file.
//!
//! A line of the file is `FAMILY: FORM: RATIO: PLAN`, where the ratio is the smallest time of the
//! family divided by the time of the form, `-` without an estimate. A planted fault shows that the
//! comparison has an effect; this command fails: `CUTLET_DISABLE=thread_local_reduction cargo bench
//! --bench forms -- --check benches/forms/expected.txt`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use cutlet::Target;

use super::family::{AnyFamily, Selection};

/// Largest decrease of a ratio that is taken for rounding.
const ROUNDING: f64 = 0.001;
/// Largest increase of a ratio without a change of the file.
const BETTER: f64 = 0.02;

const HEAD: &str = "\
# Estimates of the cost model for the forms of kernels (sm_90a): family, form, smallest time of the
# family divided by the time of the form (-: no estimate), warps of the roles, stages x bytes of each
# pipeline, and for each loop with MMAs (without one: each loop) the barriers, the MMA groups that
# stay in flight after each wait, and the order barriers.
# `CUTLET_BLESS=1 cargo bench --bench forms -- --check benches/forms/expected.txt` writes this file.
";

/// Ratio and plan of a form.
struct Row {
    ratio: Option<f64>,
    plan: String,
}

/// Compares the estimates of families with those of a file, or writes the file.
///
/// # Errors
/// A ratio that is worse than that of the file, or better by more than 2 %. Another plan, a form
/// that the file does not have, or a form of the file that does not exist.
pub fn check(families: &[Box<dyn AnyFamily>], target: Target, selection: &Selection, file: &Path) -> Result<()> {
    let write = std::env::var_os("CUTLET_BLESS").is_some();
    let mut expected = if write {
        BTreeMap::new()
    } else {
        parse(&std::fs::read_to_string(file).with_context(|| file.display().to_string())?)?
    };
    let (mut text, mut worse, mut stale) = (HEAD.to_owned(), Vec::new(), Vec::new());
    for family in families {
        let estimates = family.estimates(target, selection)?;
        println!("{}: {} forms", family.name(), estimates.len());
        let best = estimates.iter().filter_map(|estimate| estimate.time).fold(f64::INFINITY, f64::min);
        for estimate in estimates {
            let (name, ratio) =
                (format!("{}: {}", family.name(), estimate.form), estimate.time.map(|time| best / time));
            writeln!(text, "{name}: {}: {}", shown(ratio), estimate.plan)?;
            let Some(old) = expected.remove(&name) else {
                stale.push(format!("{name}: {} is new", shown(ratio)));
                continue;
            };
            match (ratio, old.ratio) {
                (Some(ratio), Some(old)) if ratio < old - ROUNDING => {
                    worse.push(format!("{name}: {ratio:.3}, expected {old:.3}"));
                }
                (Some(ratio), Some(old)) if ratio <= old * (1.0 + BETTER) => {}
                (None, None) => {}
                (ratio, old) => stale.push(format!("{name}: {}, not {}", shown(ratio), shown(old))),
            }
            if estimate.plan != old.plan {
                stale.push(format!("{name}: {}\n  not {}", estimate.plan, old.plan));
            }
        }
    }
    if write {
        std::fs::write(file, text)?;
        return Ok(());
    }
    if selection.patterns.is_empty() {
        let has_family = |name: &str| families.iter().any(|family| name.starts_with(&format!("{}: ", family.name())));
        stale.extend(expected.into_keys().filter(|name| has_family(name)).map(|name| format!("{name} does not exist")));
    }
    if !worse.is_empty() {
        bail!(
            "beside the best form of their family {} forms are slower than expected:\n{}",
            worse.len(),
            worse.join("\n")
        );
    }
    if !stale.is_empty() {
        bail!("{} is to be renewed (CUTLET_BLESS=1 writes it):\n{}", file.display(), stale.join("\n"));
    }
    Ok(())
}

fn shown(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"))
}

/// Returns the row of each `FAMILY: FORM`.
fn parse(text: &str) -> Result<BTreeMap<String, Row>> {
    let row = |line: &str| {
        let fault = || format!("not FAMILY: FORM: RATIO: PLAN: {line:?}");
        let (rest, plan) = line.rsplit_once(": ").with_context(fault)?;
        let (name, ratio) = rest.rsplit_once(": ").with_context(fault)?;
        let ratio = if ratio == "-" { None } else { Some(ratio.parse().with_context(fault)?) };
        Ok((name.to_owned(), Row { ratio, plan: plan.to_owned() }))
    };
    text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(row).collect()
}
