//! Structure of the loops of random kernels.

use super::super::program::{Op, Step};

/// Structure of a loop.
#[derive(Clone, Copy)]
pub struct Plan {
    /// Operands before the state: single i32.
    pub leading: usize,
    /// Conditions that each region returns: values of which any element is true.
    pub conditions: &'static [usize],
}

/// The plan of a form.
pub fn plan(op: &Op) -> Plan {
    let (leading, conditions): (usize, &[usize]) = match op.name {
        "fold range" => (2, &[0]),
        "fold_while" => (2, &[1]),
        // The condition first, which returns no state.
        "while_loop" => (0, &[1, 0]),
        // Break, continue, neither.
        "fold_with_control" => (0, &[2, 0]),
        "loop_with_control" => (0, &[1, 0]),
        _ => (0, &[0]),
    };
    Plan { leading, conditions }
}

/// Returns true if this region returns a state.
pub fn returns_state(op: &Op, region: usize) -> bool {
    !(op.name == "while_loop" && region == 0)
}

const MAX: i64 = i32::MAX as i64;
const MIN: i64 = i32::MIN as i64;

/// Start, end and step of a range of i32, before the operands change them.
pub fn ends(step: &Step) -> (i64, i64, i64) {
    let start = [0, -2, 5, MAX - 4, MAX - 1, MIN, MIN + 3][step.numbers[0] as usize];
    let by = [1, 1, 2, 3, 1 << 30, MAX - 1, 0, -1, -2, -5][step.numbers[1] as usize];
    let turns = step.numbers[2];
    if by < 0 {
        return (start, (start + turns * by).max(MIN + 8), by);
    }
    (start, (start + turns * by.max(1)).max(start + 4).min(MAX), by)
}
