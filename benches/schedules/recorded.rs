//! Comparison of the model with recorded times of configurations: of all configurations of a row,
//! and of the choice among those that differ in their warps alone.

use anyhow::Result;
use cutlet::backend::PlanOverride;
use cutlet::backend::ptx::{Optimization, OptimizationSet};
use cutlet::tune::{Record, Trial};
use cutlet::{Backend, Target};

use super::configuration::{PlanOfKernel, Row, Step};
use super::rank::{median, spearman};

/// A configuration: its name, microseconds as recorded and by the model.
pub struct Both {
    pub label: String,
    pub time: f64,
    pub model: f64,
}

/// A plan of a configuration with other warps.
pub struct Warps {
    pub what: String,
    /// Times over those of the usual plan, by the model and as recorded.
    pub model: f64,
    pub recorded: f64,
    pub chosen: bool,
}

/// Optimizations that the kernels of some rows gained after their times were recorded, by a part of
/// the name. The times are of schedules without them. A new record of a row removes its line.
const LATER: [(&str, Optimization); 1] = [("quantized_matmul", Optimization::ThreadPrivateCopies)];

/// The optimizations of the kernels whose times a record has.
fn at_the_time(record: &Record) -> OptimizationSet {
    let later = LATER.iter().filter(|(part, _)| record.key.name.contains(part));
    later.fold(OptimizationSet::ALL, |set, &(_, optimization)| set.without(optimization))
}

/// The recorded configurations of a row, the fastest first.
pub fn configurations(record: &Record, row: &dyn Row) -> Result<Vec<Both>> {
    let mut all = Vec::new();
    let optimizations = at_the_time(record);
    for (index, label) in row.labels().into_iter().enumerate() {
        let Some(time) = time_of(record, &label) else { continue };
        let model = plans_of(row, index, (false, optimizations))?.iter().map(|plan| plan.1).sum();
        all.push(Both { label, time, model });
    }
    all.sort_by(|a, b| a.time.total_cmp(&b.time));
    Ok(all)
}

/// The rank correlation of model and times, and by how much the model's best is slower than the
/// best.
pub fn agreement(all: &[Both]) -> (Option<f64>, f64) {
    let times: Vec<f64> = all.iter().map(|both| both.time).collect();
    let models: Vec<f64> = all.iter().map(|both| both.model).collect();
    let best = all.iter().min_by(|a, b| a.model.total_cmp(&b.model));
    let regret = best.zip(all.first()).map_or(0.0, |(best, first)| best.time / first.time - 1.0);
    (spearman(&models, &times), regret)
}

fn time_of(record: &Record, label: &str) -> Option<f64> {
    match record.trial(label) {
        Some(Trial::Times(times)) => Some(median(times.iter().map(|time| time.as_secs_f64() * 1e6))),
        _ => None,
    }
}

/// Plans of the kernels of a configuration, with microseconds by the model, and whether one is
/// selected: the default plan of each kernel, as recorded, or all plans of the first kernel.
pub fn plans(row: &dyn Row, index: usize, all: bool) -> Result<Vec<(String, f64, bool)>> {
    plans_of(row, index, (all, OptimizationSet::ALL))
}

/// As [`plans`], with these optimizations.
fn plans_of(
    row: &dyn Row,
    index: usize,
    (all, optimizations): (bool, OptimizationSet),
) -> Result<Vec<(String, f64, bool)>> {
    let mut out = Vec::new();
    let step = Step::Plans { target: Target::SM_90A, all, out: &mut out };
    let hints = row.hints(index);
    let hints = hints.plan(PlanOverride { optimizations, disable_search: !all, ..hints.plan });
    row.call_with([index, 0], Backend::Ptx, hints, step)?;
    let plan = |plan: PlanOfKernel| (plan.what, plan.model, plan.chosen);
    match all {
        true => Ok(out.into_iter().next().unwrap_or_default().into_iter().map(plan).collect()),
        false => Ok(out.into_iter().flatten().map(plan).collect()),
    }
}

/// Returns the costs and recorded times of configurations that only differ in their warps, if one
/// of them leaves the warps to the compiler.
pub fn warps(record: &Record, row: &dyn Row, (index, label): (usize, &str)) -> Result<Vec<Warps>> {
    let Some(usual) = time_of(record, label).filter(|_| !label.contains("warps")) else { return Ok(Vec::new()) };
    let (tile, rest) = label.split_at(label.find([' ', ',']).unwrap_or(label.len()));
    let with = |warps: &str| time_of(record, &format!("{tile} {warps}{rest}"));
    if ["4 warps", "8 warps", "16 warps"].iter().all(|warps| with(warps).is_none()) {
        return Ok(Vec::new());
    }
    let plans = plans(row, index, true)?;
    let first = plans.iter().find(|(what, ..)| what == "usual").map_or(0.0, |plan| plan.1);
    let others = plans.into_iter().filter_map(|(what, model, chosen)| {
        let recorded = with(&what)? / usual;
        Some(Warps { what, model: model / first, recorded, chosen })
    });
    Ok(others.collect())
}
