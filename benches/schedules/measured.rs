//! Plans that the plain launches of rows leave open: their costs by the model, and on a GPU how
//! long they take.

use std::time::Instant;

use anyhow::{Context, Result};
use cutlet as ct;
use cutlet::aot::Format;
use cutlet::backend::PlanOverride;
use cutlet::{Backend, Bench, Device, Hints, Target};

use super::Selection;
use super::compared::configuration::{Place, PlanOfKernel, Row, Step};
use super::compared::rank::{Total, median, spearman};
use super::compared::rows;

/// Repetitions of the measurement of each plan, and the runs of one.
const ROUNDS: usize = 5;
const RUNS: usize = 3;
/// Ratio to the time of the fastest plan above which a plan is not measured again.
const HOPELESS: f64 = 4.0;

/// A plan of a row.
struct Plan {
    what: String,
    hints: Hints,
    model: f64,
    chosen: bool,
    times: Vec<f64>,
}

/// Returns the measured configurations of each row: its plain launch, and for products the
/// persistent kernel.
fn configurations(row: &dyn Row, plain: &str) -> Vec<(usize, String)> {
    let labels = row.labels();
    let is_plain = |label: &str| label == plain || label.strip_prefix(plain).is_some_and(|rest| rest.starts_with(','));
    let first = labels.iter().position(|label| is_plain(label));
    // For products also tiles of two ping-pong groups.
    let persistent = labels.iter().position(|label| {
        label.starts_with("128x128")
            && label.contains("persistent")
            && !label.contains("warps")
            && !label.contains("cluster")
    });
    let chosen = first.into_iter().chain(persistent);
    chosen.map(|index| (index, labels[index].clone())).collect()
}

/// Returns the plans of a launch: hints for all of its kernels, with the sum of their times by the
/// model. Plans of equal schedules are one plan.
fn plans(row: &dyn Row, index: usize, target: Target) -> Result<Vec<Plan>> {
    let of_kernels = |hints: Hints, all: bool| -> Result<Vec<Vec<PlanOfKernel>>> {
        let mut out = Vec::new();
        row.call_with([index, 0], Backend::Ptx, hints, Step::Plans { target, all, out: &mut out })?;
        Ok(out)
    };
    let schedules = |kernels: &[Vec<PlanOfKernel>]| -> Vec<String> {
        kernels.iter().flatten().map(|plan| plan.schedule.clone()).collect()
    };
    let selected = schedules(&of_kernels(row.hints(index), false)?);
    let mut plans: Vec<(Plan, Vec<String>)> = Vec::new();
    for candidate in of_kernels(row.hints(index), true)?.into_iter().flatten() {
        // A plan that a kernel does not have is no plan of the launch.
        let Ok(kernels) = of_kernels(candidate.hints, false) else { continue };
        let all = schedules(&kernels);
        if plans.iter().any(|(_, known)| *known == all) {
            continue;
        }
        let model = kernels.iter().flatten().map(|plan| plan.model).sum();
        let (what, hints, chosen) = (candidate.what, candidate.hints, all == selected);
        plans.push((Plan { what, hints, model, chosen, times: Vec::new() }, all));
    }
    let mut plans: Vec<Plan> = plans.into_iter().map(|(plan, _)| plan).collect();
    plans.sort_by(|a, b| a.model.total_cmp(&b.model));
    Ok(plans)
}

/// Milliseconds that it takes to make code of a configuration, in the middle of some;
/// `disable_search`: nothing is chosen.
fn generation(row: &dyn Row, index: usize, disable_search: bool) -> Result<f64> {
    let hints = row.hints(index);
    let hints = hints.plan(PlanOverride { disable_search, ..hints.plan });
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let (target, mut out) = (Target::SM_90A, Vec::new());
        let step = Step::Export { target, format: Format::Ptx, out: &mut out };
        row.call_with([index, 0], Backend::Ptx, hints, step)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(times.into_iter()))
}

/// Times of plans on an H200: `ROW: CONFIGURATION`, then a line `MICROSECONDS PLAN` for each plan.
const RECORDED: &str = include_str!("h200.plans");

/// Returns the recorded time of a plan in microseconds.
fn recorded_time(title: &str, what: &str) -> Option<f64> {
    let mut plans = RECORDED.lines().skip_while(|&line| line != title).skip(1).take_while(|line| line.starts_with(' '));
    plans.find_map(|line| line.trim().split_once(' ').filter(|plan| plan.1 == what)?.0.parse().ok())
}

/// Prints the costs of the model, with recorded times.
pub fn models(rows: &[(&str, &str)]) -> Result<()> {
    let mut total = Total::default();
    for (name, plain) in rows {
        let row = rows::open(name, Place { device: Device::cpu(), sets: 1 })?;
        for (index, label) in configurations(&*row, plain) {
            let title = format!("{name}: {label}");
            let all = plans(&*row, index, Target::SM_90A)?.into_iter();
            let (mut known, unknown): (Vec<Plan>, Vec<Plan>) =
                all.partition(|plan| recorded_time(&title, &plan.what).is_some());
            known.iter_mut().for_each(|plan| plan.times.extend(recorded_time(&title, &plan.what)));
            report(&title, &known, (true, "recorded"), &mut total);
            for Plan { what, model, chosen, .. } in unknown {
                println!("  model {model:9.1} us  {what}{}", if chosen { ", chosen" } else { "" });
            }
            let [usual, chosen] = [true, false].map(|disable_search| generation(&*row, index, disable_search));
            println!("  code in {:.1} ms, with the choice of a plan in {:.1} ms", usual?, chosen?);
        }
    }
    println!("plans: {total}");
    Ok(())
}

/// Measures all rows.
pub fn all(rows: &[(&str, &str)], device: Device, selection: &Selection) -> Result<()> {
    let target = device.target().context("the device has no target")?;
    let (start, mut total) = (Instant::now(), Total::default());
    let mut saved =
        format!("# Plans that the plain launches of rows leave open: microseconds on a GPU `{}`.\n", device.name());
    for (name, plain) in rows {
        let row = rows::open(name, Place { device, sets: 1 })?;
        row.fill(0)?;
        for (index, label) in configurations(&*row, plain) {
            let mut plans = plans(&*row, index, target)?;
            measure(&*row, index, device, &mut plans)?;
            let title = format!("{name}: {label}");
            report(&title, &plans, (selection.verbose, "measured"), &mut total);
            saved += &format!("{title}\n");
            for plan in &plans {
                saved += &format!("  {:.1} {}\n", median(plan.times.iter().copied()), plan.what);
            }
        }
    }
    if let Some(path) = &selection.save {
        std::fs::write(path, saved)?;
    }
    println!("measured on {} in {:.0} s: {total}", device.name(), start.elapsed().as_secs_f64());
    Ok(())
}

/// Measures all plans alternately. Plans that fail, or spill where others do not, are skipped.
fn measure(row: &dyn Row, index: usize, device: Device, plans: &mut Vec<Plan>) -> Result<()> {
    let launch = |plan: &Plan| row.call_with([index, 0], Backend::Ptx, plan.hints, Step::Launch);
    plans.retain(|plan| launch(plan).is_ok());
    device.synchronize()?;
    let stream = device.default_stream();
    for round in 0..ROUNDS {
        let least = plans.iter().flat_map(|plan| &plan.times).copied().fold(f64::INFINITY, f64::min);
        for plan in plans.iter_mut() {
            if round > 0 && plan.times.iter().all(|&time| time > HOPELESS * least) {
                continue;
            }
            let hints = plan.hints;
            let run = || -> ct::Result<()> { row.call_with([index, 0], Backend::Ptx, hints, Step::Launch) };
            let times = Bench::new().warm_up(1).runs(RUNS).run(&stream, run)?;
            plan.times.push(times.median().as_secs_f64() * 1e6);
        }
    }
    Ok(())
}

/// Prints the plans of a configuration, and counts it. `origin`: of the times.
fn report(what: &str, plans: &[Plan], (verbose, origin): (bool, &str), total: &mut Total) {
    if plans.is_empty() {
        println!("{what}");
        return;
    }
    let times: Vec<f64> = plans.iter().map(|plan| median(plan.times.iter().copied())).collect();
    let models: Vec<f64> = plans.iter().map(|plan| plan.model).collect();
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let rho = spearman(&models, &times);
    let chosen = plans.iter().position(|plan| plan.chosen).map_or(f64::NAN, |chosen| times[chosen]);
    let regret = chosen / least - 1.0;
    total.add(rho, regret);
    let rho = rho.map_or("-".to_owned(), |rho| format!("{rho:.2}"));
    println!("{what}: {} plans, rank correlation {rho}, regret {:.1} %", plans.len(), 100.0 * regret);
    for (plan, time) in plans.iter().zip(&times) {
        if verbose || plan.chosen || *time == least {
            let chosen = if plan.chosen { ", chosen" } else { "" };
            println!("  model {:9.1} us, {origin} {time:9.1} us  {}{chosen}", plan.model, plan.what);
        }
    }
}
