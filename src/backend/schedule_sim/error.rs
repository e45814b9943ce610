//! What is wrong with a schedule.

pub(super) use crate::backend::cpu::Fault;

/// Something that no run of a schedule may come to.
pub fn broken(what: impl std::fmt::Display) -> Fault {
    Fault { loc: None, message: format!("the schedule is broken: {what}") }
}
