//! No-wrap flags: marks integer arithmetic that provably does not wrap.
//!
//! The ranges follow from constants and from the launch (extents and strides, the grid). Negation
//! is not marked: its flag needs a later version of the bytecode.

use super::grid;
use crate::ir::{Attr, Entry, Module, Op, Opcode, Overflow};
use crate::pass::{IntRange, IntRanges};

/// Sets the flags of additions, subtractions, multiplications and left shifts of all entries.
pub(super) fn mark(module: &mut Module) {
    for entry in module.entries.clone() {
        mark_entry(module, &entry);
    }
}

fn mark_entry(module: &mut Module, entry: &Entry) {
    let facts = grid::facts(module, entry);
    let mut proven = Vec::new();
    module.walk(entry.body, &mut |id| {
        let op = module.op(id);
        if let Some(overflow) = overflow(module, &facts, op).filter(|&proven| proven != op.overflow()) {
            proven.push((id, overflow));
        }
    });
    for (id, overflow) in proven {
        module.op_mut(id).set_attr(Attr::Overflow(overflow));
    }
}

/// Returns the proven flags of an op; `None` if nothing is proven, or for another kind of op.
fn overflow(module: &Module, facts: &IntRanges, op: &Op) -> Option<Overflow> {
    let apply: fn(i128, i128) -> i128 = match op.code {
        Opcode::AddI => |a, b| a + b,
        Opcode::SubI => |a, b| a - b,
        Opcode::MulI => |a, b| a * b,
        Opcode::ShlI => |a, b| a << b,
        _ => return None,
    };
    let width = module.dtype(op.operands[0]).bits();
    let (a, b) = (facts.range(op.operands[0])?, facts.range(op.operands[1])?);
    if op.code == Opcode::ShlI && (b.lo < 0 || b.hi >= i64::from(width)) {
        return None;
    }
    let ends = |range: IntRange| [i128::from(range.lo), i128::from(range.hi)];
    // Each op is monotonic in either operand if the other one is fixed.
    let corners = ends(a).into_iter().flat_map(|x| ends(b).map(|y| apply(x, y)));
    let (lo, hi) = corners.fold((i128::MAX, i128::MIN), |(lo, hi), value| (lo.min(value), hi.max(value)));
    let signed = lo >= -(1 << (width - 1)) && hi < 1 << (width - 1);
    // Numbers that are not negative have the same unsigned value.
    let unsigned = a.lo >= 0 && b.lo >= 0 && lo >= 0 && hi < 1 << width;
    let before = op.overflow();
    let (signed, unsigned) = (
        signed || matches!(before, Overflow::Nsw | Overflow::Nw),
        unsigned || matches!(before, Overflow::Nuw | Overflow::Nw),
    );
    match (signed, unsigned) {
        (true, true) => Some(Overflow::Nw),
        (true, false) => Some(Overflow::Nsw),
        (false, true) => Some(Overflow::Nuw),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::ir::{Builder, Predicate, Type, Value, verify};

    /// Returns the flags of one op on two i32 parameters of these ranges.
    fn marked(code: Opcode, a: (i64, i64), b: (i64, i64)) -> Overflow {
        let mut builder = Builder::new();
        let ty = Type::scalar(DType::I32);
        let params = builder.begin_entry("k", &[ty.clone(), ty.clone()]);
        let ty = builder.module.intern(ty);
        let mut bounded = |value: Value, (lower, upper): (i64, i64)| {
            let predicate = Predicate::Bounded { lower: Some(lower), upper: Some(upper) };
            builder.simple(Opcode::Assume, &[value], vec![Attr::Predicate(predicate)], ty)
        };
        let operands = [bounded(params[0], a), bounded(params[1], b)];
        let result = builder.simple(code, &operands, vec![Attr::Overflow(Overflow::None)], ty);
        builder.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
        let mut module = builder.module;
        mark(&mut module);
        verify(&module).expect("a well-formed kernel");
        module.op(module.defining_op(result).expect("an op")).overflow()
    }

    #[test]
    fn flags_end_where_a_value_wraps() {
        const MAX: i64 = i32::MAX as i64;
        const MIN: i64 = i32::MIN as i64;
        use Opcode::{AddI, MulI, ShlI, SubI};
        use Overflow::{None, Nsw, Nuw, Nw};
        for (code, a, b, want) in [
            (AddI, (0, MAX - 5), (0, 5), Nw),
            (AddI, (0, MAX - 4), (0, 5), Nuw),
            (AddI, (0, MAX), (0, MAX), Nuw),
            (AddI, (-1, MAX - 5), (0, 5), Nsw),
            (AddI, (-1, MAX - 4), (0, 5), None),
            (AddI, (MIN, 0), (MIN, 0), None),
            (SubI, (5, 9), (0, 5), Nw),
            (SubI, (4, 9), (0, 5), Nsw),
            (SubI, (MIN, 0), (0, 1), None),
            (MulI, (0, 1 << 15), (0, (1 << 16) - 1), Nw),
            (MulI, (0, 1 << 15), (0, 1 << 16), Nuw),
            (MulI, (0, 1 << 16), (0, 1 << 16), None),
            (MulI, (-(1 << 15), 0), (0, 1 << 16), Nsw),
            (MulI, (MIN, -1), (-1, -1), None),
            (ShlI, (0, 1), (0, 30), Nw),
            (ShlI, (0, 1), (0, 31), Nuw),
            (ShlI, (0, 1), (0, 32), None),
            (ShlI, (-1, 0), (0, 31), Nsw),
        ] {
            assert_eq!(marked(code, a, b), want, "{code:?} of {a:?} and {b:?}");
        }
    }
}
