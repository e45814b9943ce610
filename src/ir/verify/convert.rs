//! Rules of conversions between number types, pointers and packed bytes.

use super::rule::{OpRule, Rule, demand};
use crate::dtype::DType;
use crate::ir::{Opcode, Rounding};
use crate::util::collect::CollectVec as _;

/// Checks an op of class `Cast`: one operand and one result of equal shape.
pub(super) fn cast(rule: &OpRule) -> Rule {
    let (from, to) = (rule.op.operands[0], rule.result());
    rule.same_shape(from, to)?;
    match rule.op.code {
        Opcode::Bitcast => {
            let (a, b) = (rule.numbers(from)?.0, rule.numbers(to)?.0);
            demand(a.bits() == b.bits(), || widths(rule, "of one width"))
        }
        Opcode::ExtI => {
            let (a, b) = (int_or_i4(rule, from)?, int_or_i4(rule, to)?);
            demand(a.bits() < b.bits(), || widths(rule, "a widening"))
        }
        Opcode::TruncI => {
            let (a, b) = (int_or_i4(rule, from)?, int_or_i4(rule, to)?);
            demand(a.bits() > b.bits(), || widths(rule, "a narrowing"))
        }
        Opcode::IToF => {
            rule.ints(from)?;
            let to_type = rule.numbers(to)?.0;
            demand(to_type.is_float() && to_type != DType::F8E8M0FNU, || {
                rule.expected(to, "a tile of floats other than f8E8M0FNU")
            })?;
            rounding(rule, &[Rounding::NearestEven])
        }
        Opcode::FToI => {
            demand(rule.numbers(from)?.0.is_float(), || rule.expected(from, "a tile of floats"))?;
            rule.ints(to)?;
            rounding(rule, &[Rounding::IntToZero])
        }
        Opcode::FToF => {
            let (a, b) = (rule.numbers(from)?.0, rule.numbers(to)?.0);
            demand(a.is_float() && b.is_float() && a != b, || widths(rule, "between two different float types"))?;
            rounding(rule, float_roundings(a, b))
        }
        Opcode::PtrToInt => {
            rule.pointers(from)?;
            demand(rule.ints(to)?.0 == DType::I64, || rule.expected(to, "a tile of i64"))
        }
        Opcode::IntToPtr => {
            rule.pointers(to)?;
            demand(rule.ints(from)?.0 == DType::I64, || rule.expected(from, "a tile of i64"))
        }
        Opcode::PtrToPtr => rule.pointers(from).and(rule.pointers(to)).map(|_| ()),
        code => unreachable!("{} is not a cast", code.spec().name),
    }
}

/// Returns an integer type, including i4. Only data movement and these conversions accept i4.
fn int_or_i4(rule: &OpRule, value: crate::ir::Value) -> Result<DType, String> {
    let dtype = rule.tile(value)?.0.dtype().filter(|d| d.is_int());
    dtype.ok_or_else(|| rule.expected(value, "a tile of integers"))
}

fn widths(rule: &OpRule, what: &str) -> String {
    let (from, to) = (rule.text(rule.op.operands[0]), rule.text(rule.result()));
    format!("{from} to {to}, but the conversion must be {what}")
}

fn rounding(rule: &OpRule, allowed: &[Rounding]) -> Rule {
    let mode = rule.op.rounding();
    demand(allowed.contains(&mode), || {
        let names: Vec<_> = allowed.iter().map(|r| r.name()).collect_vec();
        let (from, to) = (rule.text(rule.op.operands[0]), rule.text(rule.result()));
        format!("rounding {} from {from} to {to}, but it must be {}", mode.name(), names.join(" or "))
    })
}

/// Returns precision in bits, largest exponent, and exponent of the smallest subnormal.
const fn format_of(dtype: DType) -> (i32, i32, i32) {
    match dtype {
        DType::F16 => (11, 15, -24),
        DType::BF16 => (8, 127, -133),
        DType::F32 => (24, 127, -149),
        DType::TF32 => (11, 127, -136),
        DType::F64 => (53, 1023, -1074),
        DType::F8E4M3FN => (4, 8, -9),
        DType::F8E5M2 => (3, 15, -16),
        DType::F8E8M0FNU => (1, 127, -127),
        DType::F4E2M1FN => (2, 2, -1),
        DType::F8E5M3FNU => (4, 16, -17),
        DType::I1 | DType::I4 | DType::I8 | DType::I16 | DType::I32 | DType::I64 => (0, 0, 0),
    }
}

/// Returns the roundings that the Tile IR verifier accepts for `ftof`.
fn float_roundings(from: DType, to: DType) -> &'static [Rounding] {
    use Rounding::{NearestAway, NearestEven, NegInf, PosInf, Zero};
    let (source, target) = (format_of(from), format_of(to));
    let contained = source.0 <= target.0 && source.1 <= target.1 && source.2 >= target.2;
    match (from, to) {
        (_, DType::F8E8M0FNU) => &[Zero, PosInf],
        (_, to) if to.bits() <= 8 => &[NearestEven],
        (DType::F8E8M0FNU, to) if to != DType::F64 => &[NearestEven, Zero],
        _ if contained => &[NearestEven, Zero, NegInf, PosInf, NearestAway],
        (DType::F64, DType::F32) => &[NearestEven, Zero, NegInf, PosInf],
        (DType::F32, DType::TF32) => &[NearestEven, Zero, NearestAway],
        _ => &[NearestEven, Zero],
    }
}

/// Checks `pack` to bytes and `unpack` from bytes: rank 1, equal numbers of bits, whole bytes.
pub(super) fn repack(rule: &OpRule) -> Rule {
    let (source, result) = (rule.op.operands[0], rule.result());
    let (wide, bytes) = if rule.op.code == Opcode::Pack { (source, result) } else { (result, source) };
    // A tf32 has its storage width, a bool one bit.
    let width = |dtype: DType| if dtype == DType::TF32 { 32 } else { u64::from(dtype.bits()) };
    let shape_of = |value| match rule.tile(value)? {
        (elem, &[extent]) if elem.dtype().is_some() => Ok((elem.dtype().unwrap_or(DType::I8), extent as u64)),
        _ => Err(rule.expected(value, "a tile of numbers of rank 1")),
    };
    let (dtype, count) = shape_of(wide)?;
    let (byte, byte_count) = shape_of(bytes)?;
    demand(byte == DType::I8, || rule.expected(bytes, "a tile of i8"))?;
    demand(width(dtype) != 8, || rule.expected(wide, "a tile of elements that are not 8 bits wide"))?;
    demand(count * width(dtype) == byte_count * 8, || widths(rule, "between equally many bits"))
}
