//! What steps do within: changes that the checker has to refuse.

use crate::backend::ptx::schedule::{Bring, Schedule, Step, Within};
use crate::backend::ptx::shared::Buffer;

/// Schedules whose steps do something else within, each with what was changed.
pub fn mutants(schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
    let mut mutants = Vec::new();
    for body in 0..schedule.bodies.len() {
        for at in 0..schedule.bodies[body].len() {
            let Step::Within(within) = schedule.bodies[body][at] else { continue };
            let mut change = |what, change: &dyn Fn(&mut Vec<Step>)| {
                let mut changed = schedule.clone();
                change(&mut changed.bodies[body]);
                mutants.push((what, changed));
            };
            let [dropped, doubled] = match within {
                Within::Meet { .. } => ["a meeting is left out", "threads meet twice"],
                Within::Land => ["products do not land before threads meet", "products land twice"],
                Within::Drain { .. } => ["the copy engine is not waited for", "the copy engine is waited for twice"],
                Within::Bring(_) => ["a change of layout is left out", "a layout is changed twice"],
                Within::Write(_) | Within::Read(_) => ["a place is not used", "a place is used twice"],
                _ => ["a part of a step is left out", "a part of a step is there twice"],
            };
            change(dropped, &|steps| drop(steps.remove(at)));
            change(doubled, &|steps| steps.insert(at, steps[at].clone()));
            let next = &schedule.bodies[body][at + 1];
            let before = at.checked_sub(1).map(|before| &schedule.bodies[body][before]);
            let meets = |step: &Step| matches!(step, Step::Within(Within::Meet { .. }));
            if matches!(within, Within::Meet { .. } | Within::Land) && next != &Step::Within(within) {
                change("a meeting, or what comes before it, is too late", &|steps| steps.swap(at, at + 1));
            }
            if let Within::Meet { .. } = within
                && before.is_some_and(|before| !meets(before))
            {
                change("a meeting is too early", &|steps| steps.swap(at - 1, at));
            }
            for (what, other) in instead(schedule, within) {
                change(what, &|steps| steps[at] = Step::Within(other));
            }
        }
    }
    mutants
}

/// What is wrong in place of a part of a step.
fn instead(schedule: &Schedule, within: Within) -> Vec<(&'static str, Within)> {
    let moved = |place: Buffer, by: u32| Buffer { offset: place.offset + by, ..place };
    match within {
        Within::Write(place) => vec![
            ("a place is written that nobody reads", Within::Write(moved(place, place.bytes))),
            ("there is no memory where a step writes", Within::Write(moved(place, schedule.memory.budget()))),
            ("a place is too small", Within::Write(Buffer { bytes: place.bytes - 128, ..place })),
        ],
        Within::Read(place) => vec![("a place is read that nobody has written", Within::Read(moved(place, 128)))],
        Within::Bring(bring) => vec![
            ("another value is brought", Within::Bring(Bring { value: crate::ir::Value(0), ..bring })),
            ("another plan of a change", Within::Bring(Bring { plan: u32::MAX, ..bring })),
        ],
        Within::Meet { always } => vec![("a meeting is for another reason", Within::Meet { always: !always })],
        Within::Drain { written } => vec![("the copy engine does another thing", Within::Drain { written: !written })],
        Within::Parts { count, beside } => vec![
            ("other parts", Within::Parts { count: 2 * count, beside }),
            ("other parts", Within::Parts { count, beside: beside + 1 }),
        ],
        Within::Access(_) | Within::Land | Within::NoRoom { .. } => Vec::new(),
    }
}
