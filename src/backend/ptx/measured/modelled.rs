//! Steps of the cost model as events.

use super::measured_trace::MeasuredEvent;
use crate::backend::ptx::cost::{CostInput, MachineModel};

/// Returns the steps of a CTA by the cost model; none if the schedule has a deadlock.
pub fn modelled_events(input: &CostInput<'_, '_>, machine: &'static MachineModel) -> Vec<MeasuredEvent> {
    let (module, schedule) = (input.context.module, input.schedule);
    let lines = schedule.step_lines(module, input.body);
    let spans = input.step_spans(machine).unwrap_or_default();
    let nanos = |cycles: f64| (cycles / machine.clock).round() as u64;
    let mut events: Vec<MeasuredEvent> = Vec::with_capacity(spans.len());
    for span in spans {
        let location = span.op.and_then(|op| module.location(module.op(op).loc));
        events.push(MeasuredEvent {
            role: span.role.to_string(),
            warp: span.warp,
            step: lines.get(&span.position).copied().unwrap_or(0),
            kind: span.kind.to_owned(),
            op: span.op.map(|op| op.index() as u32),
            line: location.map(ToString::to_string),
            start: nanos(span.start),
            end: nanos(span.end),
            ..MeasuredEvent::default()
        });
    }
    crate::util::sort::by_key(&mut events, |event| event.start);
    events
}
