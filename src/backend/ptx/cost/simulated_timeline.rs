//! Panels of a simulation: the warp groups and the resources over cycles.
//!
//! The first panel is one steady iteration of the first innermost loop with MMAs, or the CTA
//! if no loop has MMAs. With ping-pong, a second panel shows the whole CTA.

use crate::util::collect::CollectVec as _;
use std::fmt::Write;

use super::discrete_event::EventReplay;
use super::events::{Event, EventKind, EventPrograms};
use super::resource_use::Resource;
use super::timeline_svg::{Bar, BarKind, Lane, Panel, group_colour};
use super::warp_walk::IterationTiming;

/// Fraction of an iteration that is drawn before and after it.
const MARGIN: f64 = 0.04;

/// A span of time that a panel shows.
struct TimeWindow {
    title: String,
    from: f64,
    to: f64,
    /// Start and end of the iteration.
    marks: Option<(f64, f64)>,
}

/// Returns the panels of a simulation.
pub fn panels(programs: &EventPrograms, replay: &EventReplay) -> Vec<Panel> {
    let windows = windows(programs, replay).into_iter();
    windows.map(|window| Panels { programs, replay, window: &window }.panel()).collect_vec()
}

/// Returns start and end of an iteration in the steady part of a loop.
fn middle(timings: &IterationTiming) -> Option<(f64, f64)> {
    let count = timings.starts.len();
    let at = (count * 3 / 4).min(count.checked_sub(1)?);
    let end = timings.starts.get(at + 1).map_or(timings.end, |&(_, start)| start);
    Some((timings.starts[at].1, end))
}

fn windows(programs: &EventPrograms, replay: &EventReplay) -> Vec<TimeWindow> {
    let mut windows = Vec::new();
    let of_first = |timings: &&IterationTiming| {
        let warp_group = &replay.warp_groups[timings.warp_group];
        warp_group.cta == 0 && warp_group.group == 0 && !warp_group.loads(programs)
    };
    let inner = programs.loops.iter().position(|timing| timing.has_mma && !timing.outer);
    let iteration_timings = || replay.iteration_timings.iter().filter(of_first);
    let whole = |windows: &mut Vec<TimeWindow>| {
        let title = "a tile block, as far as it was simulated".to_owned();
        windows.push(TimeWindow { title, from: 0.0, to: replay.end, marks: None });
    };
    let Some((from, to)) = inner.and_then(|inner| {
        let iteration_timings: Vec<&IterationTiming> =
            iteration_timings().filter(|timings| timings.loop_index == inner).collect_vec();
        middle(iteration_timings.get(iteration_timings.len() / 2)?)
    }) else {
        whole(&mut windows);
        return windows;
    };
    let source = inner.map_or("", |inner| &programs.loops[inner].source);
    let margin = (to - from) * MARGIN;
    let title = format!("one iteration of the loop at {source}: {:.0} cycles", to - from);
    windows.push(TimeWindow { title, from: from - margin, to: to + margin, marks: Some((from, to)) });
    if programs.loops.iter().any(|timing| timing.pingpong.is_some()) {
        whole(&mut windows);
    }
    windows
}

struct Panels<'a> {
    programs: &'a EventPrograms,
    replay: &'a EventReplay,
    window: &'a TimeWindow,
}

impl Panels<'_> {
    fn shows(&self, start: f64, end: f64) -> bool {
        end > self.window.from && start < self.window.to
    }

    fn panel(&self) -> Panel {
        let groups = (0..self.replay.warp_groups.len()).map(|number| self.warp_group(number));
        let lanes = groups.chain(Resource::ALL.map(|resource| self.resource(resource))).collect_vec();
        let &TimeWindow { ref title, from, to, marks } = self.window;
        Panel { title: title.clone(), from, to, marks, unit: "cycles", lanes }
    }

    fn warp_group(&self, number: usize) -> Lane {
        let mut runs: Vec<((usize, usize), bool, f64, f64)> = Vec::new();
        for span in
            self.replay.spans.iter().filter(|span| span.warp_group == number && self.shows(span.start, span.end))
        {
            match runs.last_mut() {
                Some((event, waits, _, end))
                    if (*event, *waits) == (span.event, span.waits) && span.start - *end < 1.0 =>
                {
                    *end = span.end;
                }
                _ => runs.push((span.event, span.waits, span.start, span.end)),
            }
        }
        let bar = |(event, waits, start, end): ((usize, usize), bool, f64, f64)| {
            let event = self.programs.lists[event.0].get(event.1);
            let label = event.map_or_else(|| "stores".to_owned(), named);
            let kind = event.map_or(BarKind::Loop, |event| bar_kind(&event.what));
            let fill = if waits { BarKind::Wait } else { kind }.legend().0;
            Bar { label: if waits { format!("wait: {label}") } else { label }, start, end, fill }
        };
        let bars = runs.into_iter().map(bar).collect_vec();
        Lane { name: group_name(self.programs, self.replay, number), group: Some(group_colour(number)), bars }
    }

    fn resource(&self, resource: Resource) -> Lane {
        let (from, to) = self.window.marks.unwrap_or((self.window.from, self.window.to));
        let mut busy = 0.0;
        let mut runs: Vec<(usize, (usize, usize), f64, f64)> = Vec::new();
        for used in self
            .replay
            .resource_spans
            .iter()
            .filter(|used| used.resource == resource && self.shows(used.start, used.end))
        {
            busy += (used.end.min(to) - used.start.max(from)).max(0.0);
            match runs.last_mut() {
                Some((warp_group, event, _, end))
                    if (*warp_group, *event) == (used.warp_group, used.event) && used.start - *end < 1.0 =>
                {
                    *end = used.end;
                }
                _ => runs.push((used.warp_group, used.event, used.start, used.end)),
            }
        }
        let share = (100.0 * busy / (to - from).max(1.0)).round();
        let bar = |(warp_group, event, start, end): (usize, (usize, usize), f64, f64)| {
            let event = self.programs.lists[event.0].get(event.1);
            let label = event.map_or_else(|| "stores".to_owned(), named);
            Bar { label, start, end, fill: group_colour(warp_group) }
        };
        let bars = runs.into_iter().map(bar).collect_vec();
        Lane { name: format!("{} {share} %", resource.name()), group: None, bars }
    }
}

/// Returns the name of a warp group.
pub fn group_name(programs: &EventPrograms, replay: &EventReplay, number: usize) -> String {
    let warp_group = &replay.warp_groups[number];
    let plan = &programs.partitions[warp_group.partition];
    let mut name = plan.role.to_string();
    if plan.pingpong_groups > 1 {
        let _ = write!(name, ", ping-pong group {}", warp_group.pingpong_group);
    }
    if plan.groups > 1 {
        let _ = write!(name, ", warps {}", warp_group.group as u32 * plan.warps);
        let _ = write!(name, "..{}", (warp_group.group as u32 + 1) * plan.warps);
    }
    if replay.warp_groups.iter().any(|other| other.cta > 0) {
        name = format!("block {}, {name}", warp_group.cta);
    }
    name
}

fn bar_kind(what: &EventKind) -> BarKind {
    match what {
        EventKind::Work(_) => BarKind::Instructions,
        EventKind::Mma { .. } => BarKind::Mma,
        EventKind::Produce(_) => BarKind::Load,
        EventKind::TmaStore { .. } => BarKind::Store,
        EventKind::Advance(_)
        | EventKind::ConsumerWait(_)
        | EventKind::MmaWait { .. }
        | EventKind::ConsumerRelease(_) => BarKind::Pipeline,
        EventKind::OrderWait(_) | EventKind::OrderArrive(_) => BarKind::Order,
        EventKind::Loop(_) => BarKind::Loop,
    }
}

/// Returns the label of an event. Merged events have the label of the longest one.
fn named(event: &Event) -> String {
    match event.count {
        1 => event.label.clone(),
        count => format!("{} and {} more", event.label, count - 1),
    }
}
