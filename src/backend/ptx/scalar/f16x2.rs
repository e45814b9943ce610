//! Packed halves: f16x2 and bf16x2, with the first element in the low half of a B32.

use super::super::isa::builder::{Builder, FewValues};
use super::super::isa::inst::*;
use super::repr;
use crate::dtype::DType;
use crate::ir::{Flag, Op, Opcode, Rounding};
use crate::types::float_codec;

/// Returns true if `op` has a packed form.
pub fn exists(op: &Op, dtype: DType) -> bool {
    use Opcode::*;
    matches!(dtype, DType::F16 | DType::BF16)
        && op.rounding() == Rounding::NearestEven
        && matches!(op.code, AddF | SubF | MulF | Fma | MaxF | MinF | AbsF | NegF)
}

/// Returns the packed form of `op` on pairs of f16 or bf16: sums, differences, products,
/// multiply-adds, minima, maxima, signs, all rounded to nearest. `None` for other ops, whose
/// elements are lowered separately.
pub fn lower(b: &mut Builder, op: &Op, dtype: DType, x: &[Operand]) -> Option<Operand> {
    let ty = match dtype {
        DType::F16 => Ty::F16x2,
        DType::BF16 => Ty::BF16x2,
        _ => return None,
    };
    if op.rounding() != Rounding::NearestEven {
        return None;
    }
    if let (Opcode::AddF | Opcode::SubF, Some(number)) = (op.code, x.get(1).and_then(|x| x.as_imm())) {
        let sign = if op.code == Opcode::AddF { -1.0 } else { 1.0 };
        let less = halves(dtype, number as u32).map(|half| sign * half);
        return Some(less_constant(b, (dtype, ty), x, less, op.code));
    }
    let nan = op.flag(Flag::PropagateNan);
    let mods = FloatMods { nan, ..FloatMods::NONE };
    Some(match op.code {
        Opcode::AddF => arithmetic(b, FloatOp::Add, ty, x),
        Opcode::SubF => arithmetic(b, FloatOp::Sub, ty, x),
        Opcode::MulF => arithmetic(b, FloatOp::Mul, ty, x),
        Opcode::Fma => b.fma(ty, x[0], x[1], x[2]),
        Opcode::MaxF => b.float(FloatOp::Max, ty, mods, x),
        Opcode::MinF => b.float(FloatOp::Min, ty, mods, x),
        Opcode::AbsF => b.fabs(ty, x[0]),
        Opcode::NegF => repr::negate_halves(b, Ty::B32, x[0]),
        _ => return None,
    })
}

/// Returns the values of a pair of halves.
fn halves(dtype: DType, word: u32) -> [f64; 2] {
    [word & 0xffff, word >> 16].map(|half| float_codec::decode(dtype, half.into()))
}

/// Emits the sum or difference of a pair and a constant, which is subtracted in both cases. A
/// second constant is merged with the first one, if the first difference is exact for all values of
/// the pair: the result is then rounded once in both forms.
fn less_constant(b: &mut Builder, (dtype, ty): (DType, Ty), x: &[Operand], less: [f64; 2], code: Opcode) -> Operand {
    let Some(known) = b.few_values(x[0]) else {
        let op = if code == Opcode::AddF { FloatOp::Add } else { FloatOp::Sub };
        return arithmetic(b, op, ty, x);
    };
    let total = [known.less[0] + less[0], known.less[1] + less[1]];
    let is_merged = known.less != [0.0; 2] && total.iter().all(|&number| is_exact(dtype, number));
    let result = match is_merged {
        true => {
            let [low, high] = total.map(|number| float_codec::encode(dtype, number, Rounding::NearestEven) as u32);
            arithmetic(b, FloatOp::Sub, ty, &[known.register.into(), Operand::from(low | high << 16)])
        }
        false => arithmetic(b, if code == Opcode::AddF { FloatOp::Add } else { FloatOp::Sub }, ty, x),
    };
    if let Operand::Reg(register) = result {
        let values = FewValues { less: total, ..known };
        if (is_merged || known.less == [0.0; 2]) && has_exact_differences(dtype, &values) {
            b.note_few_values(register, values);
        }
    }
    result
}

/// Returns true if a number is an element.
fn is_exact(dtype: DType, number: f64) -> bool {
    float_codec::decode(dtype, float_codec::encode(dtype, number, Rounding::NearestEven)) == number
}

/// Returns true if the differences of all values of a pair, at most 256 of each half, are elements.
fn has_exact_differences(dtype: DType, values: &FewValues) -> bool {
    let parts = [(values.mask & 0xffff, values.flip & 0xffff), (values.mask >> 16, values.flip >> 16)];
    parts.into_iter().zip(values.less).all(|((mask, flip), less)| {
        let mut code = mask;
        mask.count_ones() <= 8
            && std::iter::once(0)
                .chain(std::iter::from_fn(|| {
                    let next = code;
                    code = code.wrapping_sub(1) & mask;
                    (next != 0).then_some(next)
                }))
                .all(|bits| {
                    let value = float_codec::decode(dtype, u64::from(bits ^ flip));
                    is_exact(dtype, value - less)
                })
    })
}

/// Emits arithmetic as [`super::float::native_half`]: bf16 has only `fma` before sm_90.
fn arithmetic(b: &mut Builder, op: FloatOp, ty: Ty, x: &[Operand]) -> Operand {
    if ty == Ty::F16x2 || b.target.arch >= 90 {
        return b.float(op, ty, FloatMods::RN, &x[..2]);
    }
    const ONES: u32 = 0x3f80_3f80;
    const MINUS_ONES: u32 = 0xbf80_bf80;
    const MINUS_ZEROS: u32 = 0x8000_8000;
    match op {
        FloatOp::Add => b.fma(ty, x[0], ONES, x[1]),
        FloatOp::Sub => b.fma(ty, x[1], MINUS_ONES, x[0]),
        _ => b.fma(ty, x[0], x[1], MINUS_ZEROS),
    }
}

/// Rounds two f32 to a pair of halves, to nearest even, by one instruction.
pub fn narrow(b: &mut Builder, dtype: DType, low: Operand, high: Operand) -> Option<Operand> {
    match dtype {
        DType::F16 => Some(b.cvt_pack(Ty::F16x2, CvtRound::Rn, low, high)),
        DType::BF16 => Some(b.cvt_pack(Ty::BF16x2, CvtRound::Rn, low, high)),
        _ => None,
    }
}
