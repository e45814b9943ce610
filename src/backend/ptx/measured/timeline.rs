//! Pictures of a measured trace: the measured steps above those of the cost model.
//!
//! The lanes are the warps of a CTA and of the CTAs that ran on its multiprocessor at the same
//! time. The first two panels show the median iteration of the main loop, on axes of equal length.
//! The other two show the whole CTA. The main loop is found by its step with the most executions.

use crate::util::collect::CollectVec as _;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::measured_trace::{MeasuredEvent, MeasuredTrace};
use crate::backend::ptx::cost::timeline_svg::{Bar, BarKind, Lane, Panel, draw, group_colour};

/// Fraction of an iteration that is drawn before and after it.
const MARGIN: f64 = 0.04;
/// Minimum number of executions of a step of a loop.
const MIN_ITERATIONS: usize = 3;

/// Key of a step: true for an MMA, then CTA, warp and position in the schedule.
type StepKey = (bool, [u32; 3], u32, u32);
/// CTA, number and role of a warp.
type WarpKey<'a> = ([u32; 3], u32, &'a str);

impl MeasuredTrace {
    /// Draws the measured steps above those of the cost model, as an SVG image.
    ///
    /// Each warp role has a row, and the unit of time is a nanosecond. The first panels are one
    /// iteration of the main loop, with axes of equal length. The panels after them are the whole
    /// tile block. A bar is labelled by kind and line of its step.
    ///
    /// ```
    /// use cutlet::inspect::MeasuredTrace;
    ///
    /// let text = "# kernel\tadd\n# target\tsm_90a\n# dropped\t0\n\
    ///     block\tmultiprocessor\trole\twarp\tstep\tkind\top\tline\tstart_ns\tend_ns\n\
    ///     0,0,0\t7\tall\t0\t2\tcopy\t4\tsrc/add.rs:9:13\t0\t600\n\
    ///     model\t0\tall\t0\t2\tcopy\t4\tsrc/add.rs:9:13\t0\t400\n";
    /// let picture = MeasuredTrace::from_tsv(text)?.timeline_svg();
    /// assert!(picture.starts_with("<svg") && picture.contains("copy add.rs:9"));
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn timeline_svg(&self) -> String {
        let title = format!("{}, {}, measured and by the cost model", self.kernel, self.target);
        let sources = [("measured", shown(&self.events)), ("cost model", shown(&self.modelled))];
        let iterations = sources.each_ref().map(|(_, events)| iteration(events));
        let longest = iterations.iter().flatten().map(|(start, end)| end - start).max().unwrap_or(0) as f64;
        let mut panels = Vec::new();
        for ((name, events), marks) in sources.iter().zip(iterations) {
            if let Some((start, end)) = marks.map(|(start, end)| (start as f64, end as f64)) {
                let title = format!("{name}: one iteration, {:.0} ns", end - start);
                let (from, to) = (start - MARGIN * longest, start + (1.0 + MARGIN) * longest);
                panels.push(panel(title, events, (from, to), Some((start, end))));
            }
        }
        for (name, events) in &sources {
            let Some(from) = events.iter().map(|event| event.start).min() else { continue };
            let to = events.iter().map(|event| event.end).max().unwrap_or(from);
            let title = format!("{name}: a tile block, {} ns", to - from);
            panels.push(panel(title, events, (from as f64, to as f64), None));
        }
        draw(&title, &panels)
    }
}

/// Returns the events of the CTA with the most events, and of the CTAs on its multiprocessor at the
/// same time.
fn shown(events: &[MeasuredEvent]) -> Vec<&MeasuredEvent> {
    let mut blocks: BTreeMap<(u32, [u32; 3]), Vec<&MeasuredEvent>> = BTreeMap::new();
    for event in events {
        blocks.entry((event.multiprocessor, event.block)).or_default().push(event);
    }
    // The first of several.
    let Some((&(multiprocessor, _), largest)) = blocks.iter().rev().max_by_key(|(_, events)| events.len()) else {
        return Vec::new();
    };
    let from = largest.iter().map(|event| event.start).min();
    let to = largest.iter().map(|event| event.end).max();
    let is_shown = |event: &&MeasuredEvent| {
        event.multiprocessor == multiprocessor && Some(event.start) < to && Some(event.end) > from
    };
    let mut shown: Vec<&MeasuredEvent> = events.iter().filter(is_shown).collect_vec();
    // A step covers the steps inside of it, which are drawn later.
    crate::util::sort::by_key(&mut shown, |event| (event.start, Reverse(event.end)));
    shown
}

/// Returns the median iteration of the main loop: the time from one execution to the next one of
/// the step with the most executions, of MMAs if there are any.
fn iteration(events: &[&MeasuredEvent]) -> Option<(u64, u64)> {
    let mut steps: BTreeMap<StepKey, Vec<u64>> = BTreeMap::new();
    for event in events.iter().filter(|event| event.role != "producer") {
        let key = (event.kind == "mma", event.block, event.warp, event.step);
        steps.entry(key).or_default().push(event.start);
    }
    let (_, starts) = steps.iter().max_by_key(|((is_mma, ..), starts)| (*is_mma, starts.len()))?;
    let mut spans: Vec<(u64, u64)> = starts.windows(2).map(|pair| (pair[0], pair[1])).collect_vec();
    crate::util::sort::by_key(&mut spans, |(start, end)| end - start);
    (starts.len() >= MIN_ITERATIONS).then(|| spans[spans.len() / 2])
}

fn panel(title: String, events: &[&MeasuredEvent], (from, to): (f64, f64), marks: Option<(f64, f64)>) -> Panel {
    let mut warps: BTreeMap<WarpKey<'_>, Vec<Bar>> = BTreeMap::new();
    for event in events {
        warps.entry((event.block, event.warp, &event.role)).or_default().push(bar(event));
    }
    let several = warps.keys().any(|(block, ..)| warps.keys().any(|(other, ..)| other != block));
    let lane = |(number, (key, bars)): (usize, (WarpKey<'_>, Vec<Bar>))| {
        let ([x, y, z], warp, role) = key;
        let cta = if several { format!("({x}, {y}, {z}) ") } else { String::new() };
        Lane { name: format!("{cta}{role}, warp {warp}"), group: Some(group_colour(number)), bars }
    };
    let lanes = warps.into_iter().enumerate().map(lane).collect_vec();
    Panel { title, from, to, marks, unit: "ns", lanes }
}

fn bar(event: &MeasuredEvent) -> Bar {
    let kind = match &*event.kind {
        "wait" => BarKind::Wait,
        "arrive" => BarKind::Pipeline,
        "mma" => BarKind::Mma,
        "copy" => BarKind::Load,
        "store" => BarKind::Store,
        _ => BarKind::Instructions,
    };
    let label = match event.line.as_deref() {
        Some(line) => format!("{} {}", event.kind, short(line)),
        None => event.kind.clone(),
    };
    Bar { label, start: event.start as f64, end: event.end as f64, fill: kind.legend().0 }
}

/// Returns file name and line of a `file:line:column`.
fn short(line: &str) -> &str {
    let name = line.rsplit(['/', '\\']).next().unwrap_or(line);
    match name.rsplit_once(':') {
        Some((rest, _)) if rest.contains(':') => rest,
        _ => name,
    }
}
