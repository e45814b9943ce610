//! Steps of a simulated CTA as spans of time, in the terms of a recorded trace.

use super::discrete_event::EventReplay;
use super::events::{Event, EventKind, EventPrograms};
use crate::backend::ptx::schedule::WarpRole;
use crate::ir::{Module, OpId, Opcode};

/// Kind of a step in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StepKind {
    Wait,
    Arrive,
    Mma,
    Copy,
    Store,
    Compute,
}

/// Execution of a step by a warp group, in cycles.
#[derive(Clone, Copy, Debug)]
pub struct StepSpan {
    pub role: WarpRole,
    /// First warp of the group.
    pub warp: u32,
    pub kind: StepKind,
    pub op: Option<OpId>,
    pub start: f64,
    pub end: f64,
}

/// Returns the steps of the first resident CTA. Quanta of one execution are one span.
pub fn step_spans(module: &Module, programs: &EventPrograms, replay: &EventReplay) -> Vec<StepSpan> {
    let mut spans: Vec<StepSpan> = Vec::new();
    for group in replay.warp_groups.iter().filter(|group| group.block == 0) {
        let plan = &programs.partitions[group.partition];
        let index = group.pingpong_group as u32 * plan.groups + group.group as u32;
        let warp = plan.first_warp + index * plan.warps;
        let mut last: Option<((usize, usize), StepKind)> = None;
        for span in replay.spans.iter().filter(|span| span.warp_group == group.number) {
            let Some(event) = programs.lists[span.event.0].get(span.event.1) else { continue };
            let kind = kind(module, event, span.waits);
            match spans.last_mut() {
                Some(before) if last == Some((span.event, kind)) && span.start - before.end < 1.0 => {
                    before.end = span.end;
                }
                _ => {
                    let (op, start, end) = (event.op, span.start, span.end);
                    spans.push(StepSpan { role: plan.role, warp, kind, op, start, end });
                }
            }
            last = Some((span.event, kind));
        }
    }
    spans
}

/// Returns the kind of an event, which waits or is executed.
fn kind(module: &Module, event: &Event, waits: bool) -> StepKind {
    let code = event.op.map(|op| module.op(op).code);
    match &event.what {
        _ if waits => StepKind::Wait,
        EventKind::ConsumerWait(_) | EventKind::MmaWait { .. } | EventKind::OrderWait(_) => StepKind::Wait,
        EventKind::ConsumerRelease(_) | EventKind::OrderArrive(_) => StepKind::Arrive,
        EventKind::Mma { .. } => StepKind::Mma,
        EventKind::Produce(_) => StepKind::Copy,
        EventKind::TmaStore { .. } => StepKind::Store,
        EventKind::Work(work) => match code {
            Some(code) if code.is_mma() => StepKind::Mma,
            Some(Opcode::LoadView | Opcode::LoadPtr) => StepKind::Copy,
            _ if work.stores && work.background.alone() > 0.0 => StepKind::Store,
            _ => StepKind::Compute,
        },
        EventKind::Advance(_) | EventKind::Loop(_) => StepKind::Compute,
    }
}
