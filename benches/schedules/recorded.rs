//! The model beside recorded times of configurations: of a row all of them, and of those that differ in their warps alone which one
//! is chosen.

use anyhow::Result;
use cutlet::tune::{Record, Records, Trial};
use cutlet::backend::PlanWish;
use cutlet::{Backend, Device, Target};

use super::Wish;
use super::compared::configuration::{Place, Row, Step};
use super::compared::{RECORDS, rows};
use super::rank::{Total, median, spearman};

/// A configuration: its name, microseconds as recorded and by the model.
struct Both {
    label: String,
    time: f64,
    model: f64,
}

/// Compares all records of rows that are meant.
pub fn all(wish: &Wish) -> Result<()> {
    let records = Records::parse("h200.tune", RECORDS)?;
    let mut total = Total::default();
    let (mut choices, mut gain) = (0, 0.0);
    for record in records.all().iter().filter(|record| wish.takes(&record.key.name)) {
        let name = &*record.key.name;
        let row = rows::open(name, Place { device: Device::cpu(), sets: 1 })?;
        let mut all = Vec::new();
        for (index, label) in row.labels().into_iter().enumerate() {
            let Some(time) = time_of(record, &label) else { continue };
            let model: f64 = plans(&*row, index, false)?.iter().map(|plan| plan.1).sum();
            all.push(Both { label: label.clone(), time, model });
            let (count, log) = choice(record, &*row, (index, &label), wish.verbose)?;
            choices += count;
            gain += log;
        }
        all.sort_by(|a, b| a.time.total_cmp(&b.time));
        if wish.verbose {
            all.iter().for_each(|both| println!("  {:9.1} us, model {:9.1}  {}", both.time, both.model, both.label));
        }
        let times: Vec<f64> = all.iter().map(|both| both.time).collect();
        let models: Vec<f64> = all.iter().map(|both| both.model).collect();
        let rho = spearman(&models, &times);
        let best = (0..all.len()).min_by(|&a, &b| models[a].total_cmp(&models[b])).unwrap_or(0);
        let regret = times.get(best).map_or(0.0, |time| time / times[0] - 1.0);
        total.add(rho, regret);
        println!(
            "{name}: {} recorded configurations, rank correlation {}, the model's best is {:.1} % slower than the best",
            all.len(),
            rho.map_or("-".to_owned(), |rho| format!("{rho:.2}")),
            100.0 * regret
        );
    }
    println!("records: {total}");
    if choices > 0 {
        let mean = 100.0 * (1.0 - (gain / f64::from(choices)).exp());
        println!("{choices} configurations get other warps than usual, as recorded {mean:.1} % faster on average");
    }
    Ok(())
}

fn time_of(record: &Record, label: &str) -> Option<f64> {
    match record.trial(label) {
        Some(Trial::Times(times)) => Some(median(times.iter().map(|time| time.as_secs_f64() * 1e6))),
        _ => None,
    }
}

/// What plans there are, by the model, and whether one is chosen, of the first kernel of a configuration that is not as usual.
type Plans = Vec<(String, f64, bool)>;

/// Plans of the kernels of a configuration: one each, or all of the first one.
fn plans(row: &dyn Row, index: usize, all: bool) -> Result<Plans> {
    let mut out = Vec::new();
    let step = Step::Plans { target: Target::SM_90A, all, out: &mut out };
    // What was recorded were the usual plans.
    let hints = row.hints(index);
    let hints = if all { hints } else { hints.plan(PlanWish { fixed: true, ..hints.plan }) };
    row.call_with([index, 0], Backend::Ptx, hints, step)?;
    let plan = |(what, _, model, chosen): (String, _, f64, bool)| (what, model, chosen);
    match all {
        true => Ok(out.into_iter().next().unwrap_or_default().into_iter().map(plan).collect()),
        false => Ok(out.into_iter().flatten().map(plan).collect()),
    }
}

/// Where a configuration leaves its warps open and others do not: is the chosen number the better one? How many choices there are,
/// and the sum of their logarithms of times.
fn choice(record: &Record, row: &dyn Row, (index, label): (usize, &str), verbose: bool) -> Result<(i32, f64)> {
    let Some(usual) = time_of(record, label).filter(|_| !label.contains("warps")) else { return Ok((0, 0.0)) };
    let (tile, rest) = label.split_at(label.find([' ', ',']).unwrap_or(label.len()));
    let with = |warps: &str| time_of(record, &format!("{tile} {warps}{rest}"));
    if ["4 warps", "8 warps", "16 warps"].iter().all(|warps| with(warps).is_none()) {
        return Ok((0, 0.0));
    }
    let plans = plans(row, index, true)?;
    let first = plans.iter().find(|(what, ..)| what == "usual").map_or(0.0, |plan| plan.1);
    let (mut count, mut log) = (0, 0.0);
    for (what, model, chosen) in &plans {
        let Some(time) = with(what) else { continue };
        if verbose {
            let (model, time) = (100.0 * (model / first - 1.0), 100.0 * (time / usual - 1.0));
            println!("  {label}: {what}: model {model:+.1} %, recorded {time:+.1} %{}", if *chosen { ", chosen" } else { "" });
        }
        if *chosen {
            count += 1;
            log += (time / usual).ln();
        }
    }
    Ok((count, log))
}
