//! Steps of a simulated CTA as spans of time, in the terms of a measured trace.

use super::discrete_event::EventReplay;
use super::events::{Event, EventKind, EventPart, EventPrograms};
use crate::backend::ptx::schedule::{SeqId, WarpRole};
use crate::ir::op_table::Effect;
use crate::ir::{Module, OpId};

/// Execution of a step by a warp group, in cycles.
#[derive(Clone, Copy, Debug)]
pub struct StepSpan {
    pub role: WarpRole,
    /// First warp of the group.
    pub warp: u32,
    /// Sequence of the step, and its position there.
    pub position: (SeqId, usize),
    /// Kind, as in a measured event.
    pub kind: &'static str,
    pub op: Option<OpId>,
    pub start: f64,
    pub end: f64,
}

/// An execution of an event, whose quanta are consecutive.
struct Run<'a> {
    event: &'a Event,
    waits: bool,
    start: f64,
    end: f64,
}

/// Returns the steps of the first resident CTA. Merged steps share the time of their event in
/// proportion to their cycles without contention.
pub fn step_spans(module: &Module, programs: &EventPrograms, replay: &EventReplay) -> Vec<StepSpan> {
    let mut steps: Vec<StepSpan> = Vec::new();
    for group in replay.warp_groups.iter().filter(|group| group.cta == 0) {
        let plan = &programs.partitions[group.partition];
        let index = group.pingpong_group as u32 * plan.groups + group.group as u32;
        let warp = plan.first_warp + index * plan.warps;
        for run in runs(programs, replay, group.number) {
            let all: f64 = run.event.parts.iter().map(|part| part.cycles).sum();
            let mut start = run.start;
            for part in &run.event.parts {
                let share = if all > 0.0 { part.cycles / all } else { 1.0 / run.event.parts.len() as f64 };
                let end = start + share * (run.end - run.start);
                let &EventPart { position, op, .. } = part;
                let kind = if run.waits { "wait" } else { kind(module, &run.event.what, op) };
                match steps.last_mut() {
                    // The instructions of an MMA and its issue are one execution.
                    Some(last)
                        if (last.warp, last.position, last.kind) == (warp, position, kind)
                            && start - last.end < 1.0 =>
                    {
                        last.end = end;
                    }
                    _ => steps.push(StepSpan { role: plan.role, warp, position, kind, op, start, end }),
                }
                start = end;
            }
        }
    }
    steps
}

/// Returns the executed events of a warp group.
fn runs<'a>(programs: &'a EventPrograms, replay: &EventReplay, warp_group: usize) -> Vec<Run<'a>> {
    let mut runs: Vec<Run<'a>> = Vec::new();
    for span in replay.spans.iter().filter(|span| span.warp_group == warp_group) {
        let Some(event) = programs.lists[span.event.0].get(span.event.1) else { continue };
        match runs.last_mut() {
            Some(run) if std::ptr::eq(run.event, event) && run.waits == span.waits && span.start - run.end < 1.0 => {
                run.end = span.end;
            }
            _ => runs.push(Run { event, waits: span.waits, start: span.start, end: span.end }),
        }
    }
    runs
}

/// Returns the kind of a step that is executed.
fn kind(module: &Module, what: &EventKind, op: Option<OpId>) -> &'static str {
    let code = op.map(|op| module.op(op).code);
    match what {
        EventKind::ConsumerWait(_) | EventKind::MmaWait { .. } | EventKind::OrderWait(_) => "wait",
        EventKind::ConsumerRelease(_) | EventKind::OrderArrive(_) => "arrive",
        EventKind::Mma { .. } => "mma",
        EventKind::Produce(_) => "copy",
        EventKind::TmaStore { .. } => "store",
        EventKind::Work(_) => match code.map(|code| (code.is_mma(), code.spec().effect)) {
            Some((true, _)) => "mma",
            Some((_, Effect::Read)) => "copy",
            Some((_, Effect::Write | Effect::ReadWrite)) => "store",
            _ => "compute",
        },
        EventKind::Advance(_) | EventKind::Loop(_) => "compute",
    }
}
