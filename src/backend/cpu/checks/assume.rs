//! Checks of assumptions (`assume`), which compilers rely on: a broken assumption is an error.

use crate::backend::cpu::interp::value::Words;
use crate::backend::cpu::ops::int;
use crate::backend::cpu::ops::shape::strides_of;
use crate::dtype::DType;
use crate::ir::{Elem, Op, Opcode, Overflow, Predicate, Sign, violates_assumption};

/// Checks an assumption about a tile.
///
/// # Errors
/// The message names the element that breaks the assumption.
pub(crate) fn check(predicate: &Predicate, elem: Elem, shape: &[usize], words: &Words) -> Result<(), String> {
    match predicate {
        &Predicate::DivBy { divisor, every, along } => {
            let step = match elem {
                Elem::Num(_) => 1,
                Elem::Ptr { pointee, .. } => pointee.storage_bits() as u64 / 8,
            };
            let group = every.zip(along).filter(|&(every, _)| every > 0);
            let stride = group.map_or(1, |(_, along)| strides_of(shape)[along as usize]);
            for i in 0..words.len() {
                let rank = group.map_or(0, |(every, along)| i / stride % shape[along as usize] % every as usize);
                let value = words.get(i);
                let first = words.get(i - rank * stride);
                if rank == 0 && !value.is_multiple_of(divisor) {
                    return Err(format!("{} was assumed to be divisible by {divisor}", shown(elem, words, i)));
                }
                if rank != 0 && low(elem, value) != low(elem, first.wrapping_add(rank as u64 * step)) {
                    return Err(format!("element {i} was assumed to follow its neighbour in steps of {step}"));
                }
            }
            Ok(())
        }
        Predicate::SameElements(groups) => {
            let strides = strides_of(shape);
            for i in 0..words.len() {
                let back = |d: usize| match groups[d] {
                    ..=1 => 0,
                    group => i / strides[d] % shape[d] % group as usize * strides[d],
                };
                let first = i - (0..shape.len()).map(back).sum::<usize>();
                if words.get(i) != words.get(first) {
                    return Err(format!("elements {first} and {i} were assumed to be equal"));
                }
            }
            Ok(())
        }
        &Predicate::Bounded { lower, upper } => {
            let Elem::Num(dtype) = elem else { return Ok(()) };
            for i in 0..words.len() {
                let value = int::read_one(dtype, Sign::Signed, words, i);
                if lower.is_some_and(|bound| value < bound) {
                    return Err(format!("{value} was assumed to be at least {}", lower.unwrap_or(i64::MIN)));
                }
                if upper.is_some_and(|bound| value > bound) {
                    return Err(format!("{value} was assumed to be at most {}", upper.unwrap_or(i64::MAX)));
                }
            }
            Ok(())
        }
    }
}

/// Checks the assumption that integer arithmetic does not overflow.
///
/// # Errors
/// The message names the operands that break the assumption.
pub(crate) fn check_overflow(op: &Op, dtype: DType, [x, y]: [&Words; 2]) -> Result<(), String> {
    let at = |words: &Words, i: usize| words.get(if words.len() == 1 { 0 } else { i });
    let broken = |&i: &usize| violates_assumption(op, dtype.bits(), at(x, i), at(y, i));
    let Some(i) = (0..x.len().max(y.len())).find(broken) else { return Ok(()) };
    let sign = if op.overflow() == Overflow::Nuw { Sign::Unsigned } else { Sign::Signed };
    let shown = |words: &Words| match (int::read_one(dtype, sign, words, if words.len() == 1 { 0 } else { i }), sign) {
        (value, Sign::Signed) => value.to_string(),
        (value, Sign::Unsigned) => (value as u64).to_string(),
    };
    let symbol = match op.code {
        Opcode::AddI => "+",
        Opcode::SubI => "-",
        Opcode::MulI => "*",
        _ => "<<",
    };
    let kind = if sign == Sign::Unsigned { "unsigned" } else { "signed" };
    let (x, y, bits) = (shown(x), shown(y), dtype.bits());
    Err(format!("{x} {symbol} {y} was assumed to fit {bits} bits, {kind}"))
}

/// Returns the significant bits: integers wrap at their width.
fn low(elem: Elem, value: u64) -> u64 {
    let bits = elem.dtype().map_or(64, DType::bits);
    value & (u64::MAX >> (64 - bits))
}

fn shown(elem: Elem, words: &Words, index: usize) -> String {
    match elem {
        Elem::Num(dtype) => int::read_one(dtype, Sign::Signed, words, index).to_string(),
        Elem::Ptr { .. } => format!("address {:#x}", words.get(index)),
    }
}
