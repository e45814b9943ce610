//! Comparison of a measured trace with the cost model, step by step.
//!
//! A step has the mean duration of its executions, without the steps that are recorded inside of
//! it. Its contribution is the difference of the means, times its executions by a warp of a CTA:
//! the time by which the model errs there.
//!
//! A run of computations has one measured duration. Its modelled duration is the sum of the steps
//! of the run without a measured duration of their own.

use crate::util::collect::CollectVec as _;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::measured_trace::{MeasuredEvent, MeasuredTrace};

/// Measured and modelled durations of the steps of a kernel, the largest difference first.
///
/// [`MeasuredTrace::compare`] makes it. `Display` writes a table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TraceComparison {
    pub kernel: String,
    pub target: String,
    /// Number of measured tile blocks.
    pub blocks: usize,
    /// Mean nanoseconds from the first to the last event of a tile block.
    pub measured: f64,
    pub modelled: f64,
    /// Number of events that were not recorded.
    pub dropped: u64,
    pub steps: Vec<StepComparison>,
}

/// A step of a schedule: durations of one execution by the measurement and by the cost model.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct StepComparison {
    /// Warp role: `all`, `consumer` or `producer`.
    pub role: String,
    /// Line of the step in the full schedule, from 1.
    pub step: u32,
    /// Kind of the step, as in [`MeasuredEvent::kind`].
    pub kind: String,
    /// Number of the op in the schedule.
    pub op: Option<u32>,
    /// The user's line.
    pub line: Option<String>,
    /// Mean number of executions by a warp of a tile block.
    pub executions: f64,
    /// Mean nanoseconds of a measured execution; `None` if none is recorded.
    pub measured: Option<f64>,
    /// Mean nanoseconds of an execution by the cost model; `None` if the model has no such step.
    pub modelled: Option<f64>,
}

impl StepComparison {
    /// Returns the measured duration over the modelled one.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.measured? / self.modelled.filter(|&modelled| modelled > 0.0)?)
    }

    /// Returns the nanoseconds that a warp of a tile block needs in addition to those of the model;
    /// 0 for a step without a measured execution.
    pub fn contribution(&self) -> f64 {
        let Some(measured) = self.measured else { return 0.0 };
        self.executions * (measured - self.modelled.unwrap_or(0.0))
    }
}

/// Role, position and kind of a step.
type StepKey<'a> = (&'a str, u32, &'a str);

/// A warp of a CTA.
type WarpKey = (u32, [u32; 3], u32);

/// Executions of a step.
#[derive(Default)]
struct StepTimes<'a> {
    first: Option<&'a MeasuredEvent>,
    count: u64,
    nanos: u64,
    warps: BTreeSet<WarpKey>,
}

impl StepTimes<'_> {
    fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.nanos as f64 / self.count as f64)
    }

    fn executions(&self) -> f64 {
        self.count as f64 / self.warps.len().max(1) as f64
    }
}

impl MeasuredTrace {
    /// Compares the mean duration of each step with that of the cost model.
    ///
    /// ```
    /// use cutlet::inspect::MeasuredTrace;
    ///
    /// let text = "# kernel\tadd\n# target\tsm_90a\n# dropped\t0\n\
    ///     block\tmultiprocessor\trole\twarp\tstep\tkind\top\tline\tstart_ns\tend_ns\n\
    ///     0,0,0\t7\tall\t0\t2\tcopy\t4\tsrc/add.rs:9:13\t0\t600\n\
    ///     model\t0\tall\t0\t2\tcopy\t4\tsrc/add.rs:9:13\t0\t400\n";
    /// let comparison = MeasuredTrace::from_tsv(text)?.compare();
    /// assert_eq!(comparison.steps[0].ratio(), Some(1.5));
    /// assert!(comparison.to_string().contains("src/add.rs:9:13"));
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn compare(&self) -> TraceComparison {
        let (measured_steps, mut modelled_steps) = (steps(&self.events), steps(&self.modelled));
        join_runs(&measured_steps, &mut modelled_steps);
        let keys: BTreeSet<StepKey<'_>> = measured_steps.keys().chain(modelled_steps.keys()).copied().collect();
        let absent = StepTimes::default();
        let row = |key: StepKey<'_>| {
            let [measured, modelled] = [&measured_steps, &modelled_steps].map(|all| all.get(&key).unwrap_or(&absent));
            let first = measured.first.or(modelled.first)?;
            let executions = if measured.count > 0 { measured.executions() } else { modelled.executions() };
            Some(StepComparison {
                role: first.role.clone(),
                step: first.step,
                kind: first.kind.clone(),
                op: first.op,
                line: first.line.clone(),
                executions,
                measured: measured.mean(),
                modelled: modelled.mean(),
            })
        };
        let mut rows: Vec<StepComparison> = keys.into_iter().filter_map(row).collect_vec();
        crate::util::sort::by(&mut rows, |a, b| {
            b.contribution().abs().total_cmp(&a.contribution().abs()).then(a.step.cmp(&b.step))
        });
        TraceComparison {
            kernel: self.kernel.clone(),
            target: self.target.clone(),
            blocks: spans(&self.events).len(),
            measured: mean_span(&self.events),
            modelled: mean_span(&self.modelled),
            dropped: self.dropped,
            steps: rows,
        }
    }
}

/// Replaces the modelled steps of each measured run by one, the largest computation of the run.
fn join_runs<'a>(measured: &BTreeMap<StepKey<'a>, StepTimes<'a>>, modelled: &mut BTreeMap<StepKey<'a>, StepTimes<'a>>) {
    for (&key, times) in measured {
        let (role, ..) = key;
        let Some([first, last]) = times.first.and_then(|event| event.run) else { continue };
        let is_inside = |other: &&StepKey<'a>| **other == key || !measured.contains_key(*other);
        let steps = modelled.range((role, first, "")..(role, last + 1, "")).map(|(other, _)| other);
        let inside: Vec<StepKey<'a>> = steps.filter(is_inside).copied().collect_vec();
        let mut joined = StepTimes::default();
        for step in inside.iter().filter_map(|step| modelled.remove(step)) {
            joined.first = joined.first.or(step.first);
            joined.count = joined.count.max(step.count);
            joined.nanos += step.nanos;
            joined.warps.extend(step.warps);
        }
        if joined.count > 0 {
            modelled.insert(key, joined);
        }
    }
}

/// Returns the executions of each step.
fn steps(events: &[MeasuredEvent]) -> BTreeMap<StepKey<'_>, StepTimes<'_>> {
    let mut warps: BTreeMap<WarpKey, Vec<&MeasuredEvent>> = BTreeMap::new();
    for event in events {
        warps.entry((event.multiprocessor, event.block, event.warp)).or_default().push(event);
    }
    let mut steps: BTreeMap<StepKey<'_>, StepTimes<'_>> = BTreeMap::new();
    for (warp, mut events) in warps {
        crate::util::sort::by_key(&mut events, |event| (event.start, Reverse(event.end)));
        for (event, nanos) in events.iter().zip(own_nanos(&events)) {
            let times = steps.entry((&event.role, event.step, &event.kind)).or_default();
            times.first = times.first.or(Some(event));
            times.count += 1;
            times.nanos += nanos;
            times.warps.insert(warp);
        }
    }
    steps
}

/// Returns the duration of each event without the events inside of it. `events` are in the order of
/// their start, longer ones first.
fn own_nanos(events: &[&MeasuredEvent]) -> Vec<u64> {
    let mut own: Vec<u64> = events.iter().map(|event| event.end - event.start).collect_vec();
    let mut open: Vec<usize> = Vec::new();
    for (index, event) in events.iter().enumerate() {
        while open.pop_if(|outer| events[*outer].end <= event.start).is_some() {}
        if let Some(&outer) = open.last() {
            own[outer] = own[outer].saturating_sub(event.end.min(events[outer].end) - event.start);
        }
        open.push(index);
    }
    own
}

/// Returns the first start and the last end of each tile block.
fn spans(events: &[MeasuredEvent]) -> BTreeMap<[u32; 3], (u64, u64)> {
    let mut spans: BTreeMap<[u32; 3], (u64, u64)> = BTreeMap::new();
    for event in events {
        let (start, end) = spans.entry(event.block).or_insert((event.start, event.end));
        (*start, *end) = ((*start).min(event.start), (*end).max(event.end));
    }
    spans
}

fn mean_span(events: &[MeasuredEvent]) -> f64 {
    let spans = spans(events);
    spans.values().map(|(start, end)| (end - start) as f64).sum::<f64>() / spans.len().max(1) as f64
}

impl fmt::Display for TraceComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceComparison { kernel, target, blocks, measured, modelled, dropped, steps } = self;
        writeln!(f, "# kernel {kernel}, {target}: {blocks} tile blocks, {dropped} events not recorded")?;
        writeln!(
            f,
            "# tile block, as far as recorded and simulated: measured {measured:.0} ns, cost model {modelled:.0} ns"
        )?;
        writeln!(f, "# contribution: executions by a warp of a tile block x (measured - modelled)")?;
        let number = |value: Option<f64>, digits: usize| match value {
            Some(value) => format!("{value:.digits$}"),
            None => "-".to_owned(),
        };
        let mut rows = vec![
            ["step", "role", "kind", "op", "line", "executions", "modelled ns", "measured ns", "ratio", "contribution"]
                .map(str::to_owned),
        ];
        rows.extend(steps.iter().map(|step| {
            [
                step.step.to_string(),
                step.role.clone(),
                step.kind.clone(),
                step.op.map_or("-".to_owned(), |op| op.to_string()),
                step.line.clone().unwrap_or("-".to_owned()).replace(['\n', '\r', '\t'], " "),
                format!("{:.1}", step.executions),
                number(step.modelled, 1),
                number(step.measured, 1),
                number(step.ratio(), 2),
                number(step.measured.map(|_| step.contribution()), 0),
            ]
        }));
        let widths: [usize; 10] =
            std::array::from_fn(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
        for row in rows {
            let cells: Vec<String> = row
                .iter()
                .zip(widths)
                .enumerate()
                // Texts are left-aligned, numbers right-aligned.
                .map(|(column, (cell, width))| match column {
                    1 | 2 | 4 => format!("{cell:<width$}"),
                    _ => format!("{cell:>width$}"),
                })
                .collect_vec();
            writeln!(f, "{}", cells.join("  ").trim_end())?;
        }
        Ok(())
    }
}
