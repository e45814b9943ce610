//! Faults of a schedule.

pub(super) use crate::backend::cpu::Fault;

/// Returns a fault of the schedule.
pub fn broken(what: impl std::fmt::Display) -> Fault {
    Fault { loc: None, message: format!("the schedule is broken: {what}") }
}
