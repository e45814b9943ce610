//! Tests of the typing rules of ops, except views: a rejected and an accepted case for each.

use super::*;

fn unary(code: Opcode, attrs: Vec<Attr>, from: Type, to: Type) -> String {
    run(&[from], code, &[&[0]], attrs, &[to])
}

fn binary(code: Opcode, attrs: Vec<Attr>, a: Type, b: Type, to: Type) -> String {
    run(&[a, b], code, &[&[0], &[1]], attrs, &[to])
}

fn round(mode: Rounding) -> Attr {
    Attr::Rounding(mode)
}

const SIGNED: Attr = Attr::Sign(Sign::Signed);
const UNSIGNED: Attr = Attr::Sign(Sign::Unsigned);
const NEAR: Attr = Attr::Rounding(Rounding::NearestEven);

#[test]
fn float_arithmetic() {
    let add = |attrs, dtype| binary(Opcode::AddF, attrs, t(dtype, &[4]), t(dtype, &[4]), t(dtype, &[4]));
    fine(&add(vec![NEAR], F16));
    fine(&add(vec![round(Rounding::PosInf)], BF16));
    refused(&add(vec![NEAR], TF32), "f16, bf16, f32 or f64");
    refused(&add(vec![NEAR], I32), "f16, bf16, f32 or f64");
    refused(&add(vec![round(Rounding::Approx)], F32), "rounding approx");
    refused(&add(vec![NEAR, Attr::Flag(Flag::FlushToZero)], F64), "flush_to_zero is for f32 only");
    refused(&add(vec![], F32), "lacks attribute `rounding_mode`");
    refused(&add(vec![NEAR, SIGNED], F32), "does not know");
    refused(&add(vec![NEAR, NEAR], F32), "two attributes");
    let mixed = binary(Opcode::AddF, vec![NEAR], t(F32, &[4]), t(F32, &[8]), t(F32, &[4]));
    assert_eq!(mixed, "`addf`: lhs is tile<4xf32> and rhs is tile<8xf32>, but they must be of one type");
    refused(&binary(Opcode::PowF, vec![], t(F32, &[4]), t(F32, &[4]), t(F64, &[4])), "must be of one type");
    let one = |code, mode, dtype| unary(code, vec![round(mode)], t(dtype, &[]), t(dtype, &[]));
    fine(&one(Opcode::Sqrt, Rounding::Approx, F32));
    refused(&one(Opcode::Sqrt, Rounding::Approx, F16), "rounding approx");
    refused(&one(Opcode::Sqrt, Rounding::Full, F32), "rounding full");
    for code in [Opcode::Sin, Opcode::Cos, Opcode::Log, Opcode::Log2] {
        fine(&one(code, Rounding::Approx, F32));
        refused(&one(code, Rounding::Approx, F16), "rounding approx");
        refused(&one(code, Rounding::Full, F32), "rounding full");
    }
    fine(&one(Opcode::Exp, Rounding::Full, F64));
    refused(&one(Opcode::Exp, Rounding::NearestEven, F32), "rounding nearest_even");
    refused(&one(Opcode::Tanh, Rounding::Approx, BF16), "rounding approx");
    let div = |mode, dtype| binary(Opcode::DivF, vec![round(mode)], t(dtype, &[]), t(dtype, &[]), t(dtype, &[]));
    fine(&div(Rounding::Full, F32));
    refused(&div(Rounding::Full, F64), "rounding full");
    let powi = |exponent| binary(Opcode::PowI, vec![], t(F32, &[4]), exponent, t(F32, &[4]));
    fine(&powi(t(I16, &[4])));
    refused(&powi(t(I64, &[4])), "i1, i8, i16 or i32");
    refused(&powi(t(I32, &[8])), "one shape");
}

#[test]
fn integer_arithmetic() {
    let same = |code, attrs, dtype| binary(code, attrs, t(dtype, &[2]), t(dtype, &[2]), t(dtype, &[2]));
    fine(&same(Opcode::AddI, vec![Attr::Overflow(Overflow::Nw)], I1));
    refused(&same(Opcode::AndI, vec![], I4), "a tile of integers");
    refused(&same(Opcode::XorI, vec![], F32), "a tile of integers");
    fine(&same(Opcode::DivI, vec![SIGNED, round(Rounding::NegInf)], I32));
    refused(&same(Opcode::DivI, vec![UNSIGNED, round(Rounding::NegInf)], I32), "unsigned division");
    refused(&same(Opcode::DivI, vec![SIGNED, NEAR], I32), "rounding nearest_even of an integer division");
    let neg = |promise| unary(Opcode::NegI, vec![Attr::Overflow(promise)], t(I32, &[]), t(I32, &[]));
    fine(&neg(Overflow::Nw));
    refused(&neg(Overflow::Nuw), "no_unsigned_wrap is refused");
    let compare = |a, to| binary(Opcode::CmpI, vec![Attr::CmpPred(CmpPred::Lt), SIGNED], t(a, &[2]), t(a, &[2]), to);
    fine(&compare(I1, t(I1, &[2])));
    refused(&compare(I32, t(I1, &[4])), "must be tile<2xi1>");
    refused(&compare(F32, t(I1, &[2])), "a tile of integers");
    let order = vec![Attr::CmpPred(CmpPred::Lt), Attr::CmpOrder(CmpOrder::Ordered)];
    refused(&binary(Opcode::CmpF, order, t(TF32, &[2]), t(TF32, &[2]), t(I1, &[2])), "f16, bf16, f32 or f64");
}

#[test]
fn select_and_offset() {
    let select = |cond, dtype| {
        let params = [cond, t(dtype, &[4]), t(dtype, &[4])];
        run(&params, Opcode::Select, &[&[0], &[1], &[2]], vec![], &[t(dtype, &[4])])
    };
    fine(&select(t(I1, &[4]), I4));
    refused(&select(t(I1, &[]), F32), "must be tile<4xi1>");
    refused(&select(t(I1, &[4]), F4E2M1FN), "anything but f4E2M1FN");
    let tokens =
        run(&[t(I1, &[]), Type::Token, Type::Token], Opcode::Select, &[&[0], &[1], &[2]], vec![], &[Type::Token]);
    refused(&tokens, "must be a tile");
    let p = || ptrs(F32, None, &[8]);
    fine(&binary(Opcode::Offset, vec![], p(), t(I8, &[8]), p()));
    refused(&binary(Opcode::Offset, vec![], p(), t(I32, &[4]), p()), "one shape");
    refused(&binary(Opcode::Offset, vec![], p(), t(F32, &[8]), p()), "a tile of integers");
    refused(&binary(Opcode::Offset, vec![], t(I64, &[8]), t(I32, &[8]), p()), "a tile of pointers");
    refused(&binary(Opcode::Offset, vec![], p(), t(I32, &[8]), ptrs(I32, None, &[8])), "one type");
}

#[test]
fn integer_conversions() {
    let cast = |code, attrs, a, b| unary(code, attrs, t(a, &[8]), t(b, &[8]));
    fine(&cast(Opcode::Bitcast, vec![], F32, I32));
    refused(&cast(Opcode::Bitcast, vec![], TF32, F32), "of one width");
    refused(&cast(Opcode::Bitcast, vec![], I1, I8), "of one width");
    fine(&cast(Opcode::ExtI, vec![SIGNED], I4, I8));
    refused(&cast(Opcode::ExtI, vec![SIGNED], I8, I8), "a widening");
    refused(&cast(Opcode::ExtI, vec![SIGNED], F16, I32), "a tile of integers");
    fine(&cast(Opcode::TruncI, vec![Attr::Overflow(Overflow::None)], I32, I4));
    refused(&cast(Opcode::TruncI, vec![Attr::Overflow(Overflow::None)], I8, I32), "a narrowing");
    let to_float = |dtype, mode| cast(Opcode::IToF, vec![SIGNED, round(mode)], I32, dtype);
    fine(&to_float(F8E5M2, Rounding::NearestEven));
    refused(&to_float(F8E8M0FNU, Rounding::NearestEven), "other than f8E8M0FNU");
    refused(&to_float(F32, Rounding::Zero), "must be nearest_even");
    let to_int = |dtype, mode| cast(Opcode::FToI, vec![SIGNED, round(mode)], dtype, I32);
    fine(&to_int(F4E2M1FN, Rounding::IntToZero));
    refused(&to_int(F32, Rounding::Zero), "must be nearest_int_to_zero");
    refused(&to_int(I32, Rounding::IntToZero), "a tile of floats");
    refused(&unary(Opcode::Bitcast, vec![], t(F32, &[4]), t(I32, &[8])), "one shape");
    fine(&unary(Opcode::PtrToInt, vec![], ptrs(F32, None, &[8]), t(I64, &[8])));
    refused(&unary(Opcode::PtrToInt, vec![], ptrs(F32, None, &[8]), t(I32, &[8])), "a tile of i64");
    refused(&unary(Opcode::IntToPtr, vec![], t(I32, &[8]), ptrs(F32, None, &[8])), "a tile of i64");
    refused(&unary(Opcode::PtrToPtr, vec![], t(I64, &[8]), ptrs(F32, None, &[8])), "a tile of pointers");
}

#[test]
fn float_conversions_take_the_documented_roundings() {
    use Rounding::*;
    // (source, target, accepted): each class of the table of the reference.
    let rows: &[(DType, DType, &[Rounding])] = &[
        (F32, F8E8M0FNU, &[Zero, PosInf]),
        (F32, F8E4M3FN, &[NearestEven]),
        (F8E8M0FNU, F4E2M1FN, &[NearestEven]),
        (F16, F32, &[NearestEven, Zero, NegInf, PosInf, NearestAway]),
        (F16, TF32, &[NearestEven, Zero, NegInf, PosInf, NearestAway]),
        (BF16, TF32, &[NearestEven, Zero, NegInf, PosInf, NearestAway]),
        (TF32, F32, &[NearestEven, Zero, NegInf, PosInf, NearestAway]),
        (F8E5M2, F16, &[NearestEven, Zero, NegInf, PosInf, NearestAway]),
        (F8E8M0FNU, F64, &[NearestEven, Zero, NegInf, PosInf, NearestAway]),
        (F64, F32, &[NearestEven, Zero, NegInf, PosInf]),
        (F32, TF32, &[NearestEven, Zero, NearestAway]),
        (F32, F16, &[NearestEven, Zero]),
        (F32, BF16, &[NearestEven, Zero]),
        (F64, TF32, &[NearestEven, Zero]),
        (F16, BF16, &[NearestEven, Zero]),
        (BF16, F16, &[NearestEven, Zero]),
        (TF32, BF16, &[NearestEven, Zero]),
        (F8E8M0FNU, BF16, &[NearestEven, Zero]),
        (F8E8M0FNU, F32, &[NearestEven, Zero]),
        (F8E5M3FNU, F16, &[NearestEven, Zero]),
        (F8E5M3FNU, BF16, &[NearestEven, Zero, NegInf, PosInf, NearestAway]),
    ];
    for &(from, to, accepted) in rows {
        for &mode in Rounding::ALL {
            let complaint = unary(Opcode::FToF, vec![round(mode)], t(from, &[8]), t(to, &[8]));
            assert_eq!(complaint.is_empty(), accepted.contains(&mode), "{from} to {to}, {}: {complaint}", mode.name());
        }
    }
    refused(&unary(Opcode::FToF, vec![NEAR], t(F32, &[8]), t(F32, &[8])), "two different float types");
    refused(&unary(Opcode::FToF, vec![NEAR], t(I32, &[8]), t(F32, &[8])), "two different float types");
}

#[test]
fn packing() {
    fine(&unary(Opcode::Pack, vec![], t(TF32, &[4]), t(I8, &[16])));
    fine(&unary(Opcode::Unpack, vec![], t(I8, &[4]), t(I4, &[8])));
    refused(&unary(Opcode::Pack, vec![], t(F8E5M2, &[4]), t(I8, &[4])), "not 8 bits wide");
    refused(&unary(Opcode::Pack, vec![], t(I1, &[4]), t(I8, &[1])), "equally many bits");
    refused(&unary(Opcode::Pack, vec![], t(F32, &[2, 2]), t(I8, &[16])), "rank 1");
    refused(&unary(Opcode::Pack, vec![], t(F32, &[4]), t(I16, &[8])), "a tile of i8");
}

#[test]
fn shapes() {
    fine(&unary(Opcode::Broadcast, vec![], t(F32, &[1, 4]), t(F32, &[8, 4])));
    refused(&unary(Opcode::Broadcast, vec![], t(F32, &[2, 4]), t(F32, &[8, 4])), "ranks must be equal");
    refused(&unary(Opcode::Broadcast, vec![], t(F32, &[]), t(F32, &[4])), "ranks must be equal");
    refused(&unary(Opcode::Broadcast, vec![], t(F32, &[1]), t(I32, &[4])), "one element type");
    fine(&unary(Opcode::Reshape, vec![], t(I4, &[]), t(I4, &[1, 1])));
    refused(&unary(Opcode::Reshape, vec![], t(F32, &[8]), t(F32, &[4])), "number of elements");
    let permute = |p: &[i32], from: &[i64], to: &[i64]| {
        unary(Opcode::Permute, vec![Attr::Permutation(p.to_vec())], t(F32, from), t(F32, to))
    };
    fine(&permute(&[2, 0, 1], &[2, 4, 8], &[8, 2, 4]));
    refused(&permute(&[2, 0, 1], &[2, 4, 8], &[4, 8, 2]), "gives extents");
    refused(&permute(&[0, 0], &[2, 2], &[2, 2]), "not a permutation");
    refused(&permute(&[-1, 0], &[2, 2], &[2, 2]), "not a permutation");
    refused(&permute(&[0], &[2], &[2]), "rank 2 or more");
    let cat = |dim, to: &[i64]| binary(Opcode::Cat, vec![Attr::Dim(dim)], t(F32, &[2, 4]), t(F32, &[2, 4]), t(F32, to));
    fine(&cat(1, &[2, 8]));
    refused(&cat(0, &[2, 8]), "add up");
    refused(&cat(2, &[2, 8]), "dimension 2");
    let gather =
        |dim, at: Type, to: &[i64]| binary(Opcode::Gather, vec![Attr::Dim(dim)], t(F32, &[2, 4]), at, t(F32, to));
    fine(&gather(1, t(I32, &[2, 16]), &[2, 16]));
    refused(&gather(0, t(I32, &[2, 16]), &[2, 16]), "along dimension 0 alone");
    refused(&gather(1, t(I32, &[2, 16]), &[2, 8]), "as the positions");
    refused(&gather(1, t(I64, &[2, 4]), &[2, 4]), "must be tile<2x4xi32>");
    refused(&gather(2, t(I32, &[2, 4]), &[2, 4]), "dimension 2");
    fine(&unary(Opcode::Histogram, vec![], t(I32, &[2, 4]), t(I32, &[16])));
    refused(&unary(Opcode::Histogram, vec![], t(I8, &[4]), t(I32, &[16])), "must be tile<4xi32>");
    refused(&unary(Opcode::Histogram, vec![], t(I32, &[4]), t(I32, &[4, 4])), "rank 1");
    let ranks = |bins, from: Type, to: Type| unary(Opcode::Ranks, vec![Attr::NumElem(bins)], from, to);
    fine(&ranks(4, t(I32, &[16]), t(I32, &[16])));
    refused(&ranks(4, t(I32, &[16]), t(I32, &[8])), "must be tile<16xi32>");
    refused(&ranks(4, t(I32, &[4, 4]), t(I32, &[4, 4])), "rank 1");
    refused(&ranks(0, t(I32, &[16]), t(I32, &[16])), "no bins");
    let held = |slots: &[u32], threads: &[u32], from: Type, to: Type| {
        let layout = Distribution { slots: slots.into(), threads: threads.into() };
        unary(Opcode::WithLayout, vec![Attr::Distribution(layout)], from, to)
    };
    let (tile, warp) = (|| t(F32, &[4, 16]), [4, 8, 16, 32, 0]);
    fine(&held(&[1, 2], &warp, tile(), tile()));
    fine(&held(&[], &[1, 2, 4, 8, 16, 32], tile(), tile()));
    fine(&held(&[2, 8], &[], tile(), tile()));
    refused(&held(&[2, 2], &[], tile(), tile()), "and not different bits of an element");
    refused(&held(&[64], &[], tile(), tile()), "and not different bits of an element");
    refused(&held(&[1, 2], &warp, tile(), t(F32, &[64])), "must be of one type");
    refused(&held(&[1, 2], &warp[..4], tile(), tile()), "a layout for 16 threads");
    refused(&held(&[1, 2], &[0; 70], tile(), tile()), "and not for 32 to 1024");
    refused(&held(&[1, 2, 0], &warp, tile(), tile()), "an element in two slots");
    refused(&held(&[1], &warp, tile(), tile()), "those of an element are [1, 2, 4, 8, 16, 32]");
    refused(&held(&[1, 3], &warp, tile(), tile()), "slots and threads add [1, 3, 4, 8, 16, 32]");
    refused(&held(&[1, 2], &[4, 8, 16, 32, 32], tile(), tile()), "add [1, 2, 4, 8, 16, 32, 32]");
    refused(&held(&[1], &[2, 4, 8, 16, 32], t(F32, &[4, 12]), t(F32, &[4, 12])), "extents are powers of two");
    let iota = |ty| run(&[], Opcode::Iota, &[], vec![], &[ty]);
    fine(&iota(t(I8, &[256])));
    refused(&iota(t(I8, &[512])), "do not fit i8");
    refused(&iota(t(I1, &[4])), "do not fit i1");
    refused(&iota(t(F32, &[4])), "integers of rank 1");
    refused(&iota(t(I32, &[2, 2])), "integers of rank 1");
}

#[test]
fn blocks_of_tiles() {
    let extract = |index: Type, to: &[i64]| {
        run(&[t(F32, &[4, 8]), index], Opcode::Extract, &[&[0], &[1, 1]], vec![], &[t(F32, to)])
    };
    fine(&extract(t(I32, &[]), &[2, 4]));
    refused(&extract(t(I64, &[]), &[2, 4]), "must be tile<i32>");
    fine(&extract(t(I32, &[]), &[3, 4]));
    refused(&extract(t(I32, &[]), &[2]), "must be at most");
    refused(&extract(t(I32, &[]), &[8, 8]), "must be at most");
    let few = run(&[t(F32, &[4, 8]), t(I32, &[])], Opcode::Extract, &[&[0], &[1]], vec![], &[t(F32, &[2, 4])]);
    refused(&few, "1 indices for a tile of rank 2");
    let insert = |part: &[i64], to: &[i64]| {
        let params = [t(F32, part), t(F32, &[4]), t(I32, &[])];
        run(&params, Opcode::Insert, &[&[0], &[1], &[2]], vec![], &[t(F32, to)])
    };
    fine(&insert(&[2], &[4]));
    refused(&insert(&[8], &[4]), "must divide");
    refused(&insert(&[2], &[2]), "one type");
}

#[test]
fn matrix_products() {
    let mma = |code, attrs, a: Type, b: Type, c: Type| run(&[a, b, c.clone()], code, &[&[0], &[1], &[2]], attrs, &[c]);
    let f = |a, c| mma(Opcode::MmaF, vec![], t(a, &[4, 8]), t(a, &[8, 2]), t(c, &[4, 2]));
    for (a, c) in [(F16, F16), (F16, F32), (BF16, F32), (TF32, F32), (F64, F64), (F8E5M2, F16)] {
        fine(&f(a, c));
    }
    for (a, c) in [(BF16, BF16), (F64, F32), (F4E2M1FN, F32), (I8, I32)] {
        refused(&f(a, c), "no such product");
    }
    let shapes = |a: &[i64], b: &[i64], c: &[i64]| mma(Opcode::MmaF, vec![], t(F16, a), t(F16, b), t(F32, c));
    fine(&shapes(&[2, 4, 8], &[2, 8, 4], &[2, 4, 4]));
    refused(&shapes(&[4, 8], &[4, 8], &[4, 8]), "shapes must be");
    refused(&shapes(&[2, 4, 8], &[8, 4], &[2, 4, 4]), "shapes must be");
    refused(&shapes(&[1, 2, 4, 8], &[1, 2, 8, 4], &[1, 2, 4, 4]), "shapes must be");
    let signs = vec![Attr::SignLhs(Sign::Signed), Attr::SignRhs(Sign::Unsigned)];
    fine(&mma(Opcode::MmaI, signs.clone(), t(I8, &[4, 8]), t(I8, &[8, 4]), t(I32, &[4, 4])));
    refused(&mma(Opcode::MmaI, signs, t(I16, &[4, 8]), t(I16, &[8, 4]), t(I32, &[4, 4])), "no such product");
    let of_two = |a, b, s, k: i64, blocks: i64| {
        let params = [t(a, &[16, k]), t(b, &[k, 16]), t(F32, &[16, 16]), t(s, &[16, blocks]), t(s, &[blocks, 16])];
        run(&params, Opcode::MmaFScaled, &[&[0], &[1], &[2], &[3], &[4]], vec![], &[t(F32, &[16, 16])])
    };
    let scaled = |a, s, k: i64, blocks: i64| of_two(a, a, s, k, blocks);
    fine(&of_two(F8E4M3FN, F4E2M1FN, F8E8M0FNU, 64, 2));
    refused(&of_two(F8E4M3FN, F4E2M1FN, F8E8M0FNU, 64, 4), "blocks of 16");
    refused(&of_two(F4E2M1FN, F8E5M2, F8E4M3FN, 64, 4), "blocks of 16");
    fine(&scaled(F8E4M3FN, F8E8M0FNU, 64, 2));
    fine(&scaled(F4E2M1FN, F8E4M3FN, 64, 4));
    refused(&scaled(F8E4M3FN, F8E8M0FNU, 64, 4), "blocks of 16");
    refused(&scaled(F4E2M1FN, F8E4M3FN, 64, 2), "blocks of 32");
    refused(&scaled(F8E4M3FN, F8E8M0FNU, 16, 32), "scales must be");
}

#[test]
fn assumptions() {
    let assume = |predicate, ty: Type| unary(Opcode::Assume, vec![Attr::Predicate(predicate)], ty.clone(), ty);
    let div = |divisor, every, along| Predicate::DivBy { divisor, every, along };
    fine(&assume(div(1 << 62, None, None), ptrs(F32, None, &[])));
    fine(&assume(div(4, Some(4), Some(0)), t(I32, &[16])));
    refused(&assume(div(12, None, None), t(I32, &[])), "power of two");
    refused(&assume(div(0, None, None), t(I32, &[])), "power of two");
    refused(&assume(div(1 << 63, None, None), t(I32, &[])), "power of two");
    refused(&assume(div(4, None, None), t(F32, &[])), "integers or pointers");
    refused(&assume(div(4, Some(4), None), t(I32, &[16])), "go together");
    refused(&assume(div(4, Some(32), Some(0)), t(I32, &[16])), "does not fit");
    refused(&assume(div(4, Some(4), Some(1)), t(I32, &[16])), "does not fit");
    refused(&assume(div(4, Some(0), Some(0)), t(I32, &[])), "does not fit");
    fine(&assume(Predicate::SameElements(vec![2, 0]), t(I32, &[4, 4])));
    refused(&assume(Predicate::SameElements(vec![2]), t(I32, &[4, 4])), "one count per dimension");
    refused(&assume(Predicate::SameElements(vec![8]), t(I32, &[4])), "one count per dimension");
    let bounds = |lower, upper| Predicate::Bounded { lower, upper };
    fine(&assume(bounds(Some(-128), Some(127)), t(I8, &[4])));
    refused(&assume(bounds(None, Some(128)), t(I8, &[4])), "not a value of i8");
    refused(&assume(bounds(Some(1), Some(0)), t(I8, &[4])), "exceeds");
    refused(&assume(bounds(None, None), ptrs(F32, None, &[])), "a tile of integers");
    let mut case = Case::new();
    let view = case.tensor(F32, &[None], &[Some(1)]);
    let ty = case.builder.module.type_of(view).clone();
    let attrs = vec![Attr::Predicate(div(16, Some(1), Some(0)))];
    let types = [ty];
    refused(&case.run(&types, Opcode::Assume, &[&[0]], attrs, &types), "no meaning");
}

#[test]
fn constants_queries_and_output() {
    let constant = |data, ty| run(&[], Opcode::Constant, &[], vec![Attr::Value(data)], &[ty]);
    fine(&constant(ConstData::Dense([1, 0].into()), t(I1, &[2])));
    fine(&constant(ConstData::Splat(0x3F80_2000), t(TF32, &[2])));
    fine(&constant(ConstData::Splat(u64::MAX), t(F64, &[2])));
    for (bits, dtype) in [
        (2, I1),
        (256, I8),
        (0x1_0000, BF16),
        (1 << 32, I32),
        (1 << 32, F32),
        (1, TF32),
        (0x1_3F80_2000, TF32),
        (16, F4E2M1FN),
        (0x1FF, F8E8M0FNU),
    ] {
        refused(&constant(ConstData::Splat(bits), t(dtype, &[2])), &format!("are no pattern of {dtype}"));
        refused(&constant(ConstData::Dense([0, bits].into()), t(dtype, &[2])), &format!("are no pattern of {dtype}"));
    }
    refused(&constant(ConstData::Dense([1, 2, 3].into()), t(I32, &[4])), "3 values for a tile of 4");
    refused(&constant(ConstData::Splat(0), t(I4, &[4])), "a tile of numbers");
    refused(&constant(ConstData::Splat(0), ptrs(F32, None, &[])), "a tile of numbers");
    let three = |ty: Type| run(&[], Opcode::GetTileBlockId, &[], vec![], &[ty.clone(), ty.clone(), ty]);
    fine(&three(t(I32, &[])));
    refused(&three(t(I64, &[])), "must be tile<i32>");
    let alloca =
        |alignment, ty| run(&[], Opcode::Alloca, &[], vec![Attr::NumElem(4), Attr::Alignment(alignment)], &[ty]);
    fine(&alloca(4, ptrs(F32, None, &[])));
    refused(&alloca(2, ptrs(F32, None, &[])), "at least 4");
    refused(&alloca(12, ptrs(F32, None, &[])), "power of two");
    refused(&alloca(4, t(I64, &[])), "a pointer of rank 0");
    let message = || Attr::Text("no".into());
    fine(&run(&[t(I1, &[4])], Opcode::Assert, &[&[0], &[]], vec![message()], &[]));
    refused(&run(&[t(I8, &[4])], Opcode::Assert, &[&[0], &[]], vec![message()], &[]), "a tile of i1");
    let print = |format: &str, args: &[usize]| {
        let attrs = vec![Attr::Text(format.into())];
        run(&[t(I32, &[]), Type::Token], Opcode::Print, &[args, &[1]], attrs, &[Type::Token])
    };
    fine(&print("100%% of %5.3lld\n", &[0]));
    refused(&print("%d %d", &[0]), "2 conversions in the format, but 1 values");
    refused(&print("%", &[]), "ends within a conversion");
    refused(&print("%d", &[1]), "must be a tile");
    let join = |count: &[usize]| run(&[Type::Token], Opcode::JoinTokens, &[count], vec![], &[Type::Token]);
    fine(&join(&[0, 0]));
    refused(&join(&[0]), "at least 2");
    refused(&run(&[], Opcode::MakeToken, &[], vec![], &[t(I32, &[])]), "must be token");
    refused(&run(&[], Opcode::GetGlobal, &[], vec![Attr::Text("g".into())], &[ptrs(F32, None, &[])]), "no global `g`");
}

#[test]
fn pointer_accesses() {
    let order = |order| Attr::MemOrder(order);
    let scope = || Attr::MemScope(MemScope::Device);
    let params = [ptrs(F32, None, &[4]), t(I1, &[4]), t(F32, &[4]), t(I1, &[])];
    let load = |attrs, mask: &[usize], padding: &[usize], to| {
        run(&params, Opcode::LoadPtr, &[&[0], mask, padding, &[]], attrs, &[to, Type::Token])
    };
    let weak = || vec![order(MemOrder::Weak)];
    fine(&load(weak(), &[1], &[2], t(F32, &[4])));
    refused(&load(weak(), &[], &[2], t(F32, &[4])), "without a mask");
    refused(&load(weak(), &[3], &[], t(F32, &[4])), "must be tile<4xi1>");
    refused(&load(weak(), &[], &[], t(F16, &[4])), "must be tile<4xf32>");
    refused(&load(vec![order(MemOrder::Weak), scope()], &[], &[], t(F32, &[4])), "takes no scope");
    refused(&load(vec![order(MemOrder::Acquire)], &[], &[], t(F32, &[4])), "needs a scope");
    refused(&load(vec![order(MemOrder::Release), scope()], &[], &[], t(F32, &[4])), "not allowed here");
    let store = |attrs, value| run(&params, Opcode::StorePtr, &[&[0], value, &[], &[]], attrs, &[Type::Token]);
    fine(&store(vec![order(MemOrder::Release), scope()], &[2]));
    refused(&store(vec![order(MemOrder::Acquire), scope()], &[2]), "not allowed here");
    refused(&store(weak(), &[1]), "must be tile<4xf32>");
    let token = run(&params, Opcode::StorePtr, &[&[0], &[2], &[], &[3]], weak(), &[Type::Token]);
    refused(&token, "must be token");
}

#[test]
fn pointer_atomics() {
    let attrs = |order, mode| vec![Attr::MemOrder(order), Attr::MemScope(MemScope::Device), Attr::AtomicMode(mode)];
    let rmw = |attrs, attr, dtype| {
        let params = [ptrs(dtype, attr, &[4]), t(dtype, &[4])];
        run(&params, Opcode::AtomicRmw, &[&[0], &[1], &[], &[]], attrs, &[t(dtype, &[4]), Type::Token])
    };
    fine(&rmw(attrs(MemOrder::AcqRel, AtomicMode::UMax), None, I64));
    fine(&rmw(attrs(MemOrder::Relaxed, AtomicMode::AddF), None, BF16));
    refused(&rmw(attrs(MemOrder::Relaxed, AtomicMode::Add), None, F32), "it takes i32, i64");
    refused(&rmw(attrs(MemOrder::Relaxed, AtomicMode::Xchg), None, F16), "it takes i32, i64, f32, f64");
    refused(&rmw(attrs(MemOrder::Weak, AtomicMode::Add), None, I32), "not allowed here");
    refused(&rmw(attrs(MemOrder::Relaxed, AtomicMode::Add), Some(PtrAttr::Multicast), I32), "not multicast");
    let cas = |dtype, value: Type| {
        let attrs = vec![Attr::MemOrder(MemOrder::Relaxed), Attr::MemScope(MemScope::System)];
        let params = [ptrs(dtype, None, &[4]), t(dtype, &[4]), value];
        run(&params, Opcode::AtomicCas, &[&[0], &[1], &[2], &[], &[]], attrs, &[t(dtype, &[4]), Type::Token])
    };
    fine(&cas(F64, t(F64, &[4])));
    fine(&cas(I16, t(I16, &[4])));
    refused(&cas(F16, t(F16, &[4])), "it takes");
    refused(&cas(I32, t(I32, &[2])), "must be tile<4xi32>");
}
