//! Every op, element type and attribute through ptxas.

use super::super::{ScalarTypes, f16x2, lower, repr};
use super::{Builder, op};
use crate::backend::ptx::isa::emit::{self, Function};
use crate::backend::ptx::isa::inst::*;
use crate::backend::ptx::ptxas_test::assemble;
use crate::dtype::DType;
use crate::ir::{Attr, CmpOrder, CmpPred, Flag, Op, Opcode, Rounding, Sign};
use crate::target::Target;

const BASE: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];
const INTS: [DType; 5] = [DType::I1, DType::I8, DType::I16, DType::I32, DType::I64];

/// Returns a kernel that loads the operands and stores the result. Elements are 8 bytes apart.
fn kernel(target: Target, name: &str, op: &Op, operands: &[DType], result: DType) -> Option<Function> {
    let mut b = Builder::new(target, name, 32);
    let base = b.param_value(Ty::U64);
    let tid = b.special(Special::TidX);
    let base = b.mad_wide(Ty::U32, tid, 64i64, base);
    let weak = MemMods::default();
    let mut values: Vec<Operand> = Vec::new();
    for (i, &dtype) in (0i64..).zip(operands) {
        let addr = Addr::new(base, 8 * i);
        let raw: Operand = b.ld(Space::Global, repr::memory_ty(dtype), &addr, weak).into();
        let value = if dtype == DType::I1 { b.setp(Cmp::Ne, Ty::B32, raw, 0i64).into() } else { raw };
        values.push(value);
    }
    let value = lower(&mut b, op, ScalarTypes { operands, result }, &values).ok()?;
    let value = if result == DType::I1 { b.pred_to_int(value) } else { value };
    b.st(Space::Global, repr::memory_ty(result), &Addr::new(base, 56), value, weak);
    b.ret();
    Some(b.finish())
}

/// Returns ops with the attribute sets that the verifier accepts, operand and result types.
fn cases() -> Vec<(Op, Vec<DType>, DType)> {
    let mut list = Vec::new();
    let mut add =
        |code, attrs: &[Attr], operands: &[DType], result| list.push((op(code, attrs), operands.to_vec(), result));
    use Opcode::*;
    let directions = [Rounding::NearestEven, Rounding::Zero, Rounding::NegInf, Rounding::PosInf];
    for dtype in BASE {
        for (code, count) in [(AddF, 2), (SubF, 2), (MulF, 2), (DivF, 2), (Fma, 3), (Sqrt, 1)] {
            for rounding in directions {
                add(code, &[Attr::Rounding(rounding)], &vec![dtype; count], dtype);
                if dtype == DType::F32 {
                    add(code, &[Attr::Rounding(rounding), Attr::Flag(Flag::FlushToZero)], &vec![dtype; count], dtype);
                }
            }
        }
        for code in [AbsF, NegF, Floor, Ceil, Rsqrt, Exp, Exp2, Log, Log2, Sin, Cos, Tan, Sinh, Cosh, Tanh] {
            add(code, &[], &[dtype], dtype);
        }
        for code in [MaxF, MinF] {
            add(code, &[], &[dtype; 2], dtype);
            add(code, &[Attr::Flag(Flag::PropagateNan)], &[dtype; 2], dtype);
        }
        for code in [RemF, Atan2, PowF] {
            add(code, &[], &[dtype; 2], dtype);
        }
        for exponent in [DType::I1, DType::I8, DType::I16, DType::I32] {
            add(PowI, &[], &[dtype, exponent], dtype);
        }
        for &pred in CmpPred::ALL {
            for &order in CmpOrder::ALL {
                add(CmpF, &[Attr::CmpPred(pred), Attr::CmpOrder(order)], &[dtype; 2], DType::I1);
            }
        }
    }
    let single = [DType::F32];
    for code in [DivF, Exp, Sqrt, Tanh, Log, Log2, Sin, Cos] {
        let operands = vec![DType::F32; code.spec().operands.len()];
        add(code, &[Attr::Rounding(Rounding::Approx)], &operands, DType::F32);
    }
    add(DivF, &[Attr::Rounding(Rounding::Full)], &[DType::F32; 2], DType::F32);
    add(DivF, &[Attr::Rounding(Rounding::Approx), Attr::Flag(Flag::FlushToZero)], &[DType::F32; 2], DType::F32);
    for code in [Rsqrt, Exp2, Sqrt] {
        add(code, &[Attr::Flag(Flag::FlushToZero)], &single, DType::F32);
    }
    for code in [MaxF, MinF] {
        add(code, &[Attr::Flag(Flag::PropagateNan), Attr::Flag(Flag::FlushToZero)], &[DType::F32; 2], DType::F32);
    }
    for dtype in INTS {
        for sign in [Sign::Signed, Sign::Unsigned] {
            for code in [AddI, SubI, MulI, AndI, OrI, XorI, MaxI, MinI, MulHiI, ShlI, ShrI, RemI, DivI] {
                add(code, &[Attr::Sign(sign), Attr::Rounding(Rounding::Zero)], &[dtype; 2], dtype);
            }
            add(DivI, &[Attr::Sign(sign), Attr::Rounding(Rounding::PosInf)], &[dtype; 2], dtype);
            for &pred in CmpPred::ALL {
                add(CmpI, &[Attr::CmpPred(pred), Attr::Sign(sign)], &[dtype; 2], DType::I1);
            }
            for to in INTS {
                let code = if to.bits() > dtype.bits() { ExtI } else { TruncI };
                if to != dtype {
                    add(code, &[Attr::Sign(sign)], &[dtype], to);
                }
            }
            for to in DType::ALL.into_iter().filter(|t| t.is_float() && t.storage_bits() >= 8) {
                add(IToF, &[Attr::Sign(sign)], &[dtype], to);
                add(FToI, &[Attr::Sign(sign), Attr::Rounding(Rounding::IntToZero)], &[to], dtype);
            }
        }
        add(DivI, &[Attr::Rounding(Rounding::NegInf)], &[dtype; 2], dtype);
        add(NegI, &[], &[dtype], dtype);
        add(AbsI, &[], &[dtype], dtype);
        add(Select, &[], &[DType::I1, dtype, dtype], dtype);
    }
    for from in DType::ALL.into_iter().filter(|t| t.storage_bits() >= 8) {
        if from.is_float() {
            add(Select, &[], &[DType::I1, from, from], from);
        }
        for to in DType::ALL.into_iter().filter(|t| t.storage_bits() >= 8 && *t != from) {
            if from.bits() == to.bits() {
                add(Bitcast, &[], &[from], to);
            }
            if from.is_float() && to.is_float() {
                for &rounding in Rounding::ALL {
                    add(FToF, &[Attr::Rounding(rounding)], &[from], to);
                }
            }
        }
    }
    list
}

#[test]
fn every_op_assembles() {
    for target in [Target::SM_80, Target::SM_90A] {
        let mut functions = Vec::new();
        let mut refused = 0;
        for (i, (op, operands, result)) in cases().iter().enumerate() {
            let name = format!("{}_{i}", op.code.spec().name);
            match kernel(target, &name, op, operands, *result) {
                Some(function) => functions.push(function),
                // Undefined roundings of conversions, and integers to scales.
                None => {
                    assert!(matches!(op.code, Opcode::FToF | Opcode::IToF), "{:?} {operands:?}", op.code);
                    refused += 1;
                }
            }
        }
        assert!(functions.len() > 1000 && refused < 300, "{} kernels, {refused} refused", functions.len());
        assemble(target, &emit::module(target, &[], &functions));
    }
}

/// Wrong derivations of ptxas, which hold for all operands but some: `abs` is not negative,
/// comparisons of magnitudes hold for NaN, negated selections have no signed zero.
#[test]
fn nothing_is_emitted_that_ptxas_misreads() {
    for target in [Target::SM_80, Target::SM_90A] {
        let mut functions = Vec::new();
        for (i, (op, operands, result)) in cases().iter().enumerate() {
            functions.extend(kernel(target, &format!("op_{i}"), op, operands, *result));
        }
        for pred in [CmpPred::Lt, CmpPred::Le, CmpPred::Gt, CmpPred::Ge] {
            let attrs = [Attr::CmpPred(pred), Attr::CmpOrder(CmpOrder::Ordered)];
            let name = format!("compare_{pred:?}");
            functions.extend(kernel(target, &name, &op(Opcode::CmpF, &attrs), &[DType::F32; 2], DType::I1));
        }
        for function in functions {
            let name = function.name.clone();
            let text = emit::module(target, &[], &[function]);
            for word in ["abs.s64", "neg.f16", "neg.bf16", "setp.lt.f32", "setp.le.f32", "setp.gt.f32", "setp.ge.f32"] {
                assert!(!text.contains(word), "{word} in {name}:\n{text}");
            }
        }
        let magnitude = kernel(target, "magnitude", &op(Opcode::AbsI, &[]), &[DType::I32], DType::I32);
        let text = emit::module(target, &[], &[magnitude.expect("magnitudes of integers")]);
        assert!(!text.contains("abs."), "{text}");
    }
}

#[test]
fn pairs_assemble() {
    for target in [Target::SM_80, Target::SM_90A] {
        let mut b = Builder::new(target, "pairs", 32);
        let base = b.param_value(Ty::U64);
        let words = b.ld_vec(Space::Global, Ty::B32, 4, &base.into(), MemMods::default());
        let mut results = Vec::new();
        for dtype in [DType::F16, DType::BF16] {
            use Opcode::*;
            for code in [AddF, SubF, MulF, Fma, MaxF, MinF, AbsF, NegF] {
                let count = code.spec().operands.len();
                let x: Vec<Operand> = words[..count].iter().map(|&w| w.into()).collect();
                results.push(f16x2::lower(&mut b, &op(code, &[]), dtype, &x).expect("a packed form"));
            }
            let [low, high] = [words[3], words[2]].map(|word| b.bitcast(word, RegClass::F32));
            results.push(f16x2::narrow(&mut b, dtype, high, low).expect("halves"));
            let lanes = repr::unpack_word(&mut b, dtype, words[2].into());
            results.push(repr::pack_word(&mut b, dtype, &lanes));
        }
        for dtype in [DType::I8, DType::F4E2M1FN, DType::I16] {
            let lanes = repr::unpack_word(&mut b, dtype, words[2].into());
            results.push(repr::pack_word(&mut b, dtype, &lanes));
        }
        for (i, &value) in (1i64..).zip(&results) {
            b.st(Space::Global, Ty::B32, &Addr::new(base, 16 * i), value, MemMods::default());
        }
        b.ret();
        assemble(target, &emit::module(target, &[], &[b.finish()]));
    }
}
