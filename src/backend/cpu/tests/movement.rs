//! Shape ops, constants, reductions and scans.

use super::*;

const WORDS: [DType; 4] = [DType::I8, DType::BF16, DType::F32, DType::I64];

fn numbers(dtype: DType, count: usize) -> Vec<u64> {
    (0..count as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - dtype.bits())).collect()
}

#[test]
fn broadcast_reshape_permute() {
    for dtype in WORDS {
        let x = numbers(dtype, 8);
        let ours = eval(|b| {
            let t = tile(b, dtype, &[2, 1, 4], &x);
            op(b, Opcode::Broadcast, &[t], vec![], dtype, &[2, 8, 4])
        });
        for (at, &word) in ours.iter().enumerate() {
            assert_eq!(word, x[at / 32 * 4 + at % 4]);
        }
        let x = numbers(dtype, 64);
        for permutation in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let shape = [2i64, 4, 8];
            let to = permutation.map(|p| shape[p as usize]);
            let ours = eval(|b| {
                let t = tile(b, dtype, &[8, 8], &x);
                let t = op(b, Opcode::Reshape, &[t], vec![], dtype, &shape);
                op(b, Opcode::Permute, &[t], vec![Attr::Permutation(permutation.to_vec())], dtype, &to)
            });
            for (at, &word) in ours.iter().enumerate() {
                let index = [at / (to[1] * to[2]) as usize, at / to[2] as usize % to[1] as usize, at % to[2] as usize];
                let mut source = [0; 3];
                for k in 0..3 {
                    source[permutation[k] as usize] = index[k];
                }
                assert_eq!(word, x[source[0] * 32 + source[1] * 8 + source[2]], "{permutation:?}");
            }
        }
    }
}

#[test]
fn cat_extract_insert() {
    for dtype in WORDS {
        let (x, y) = (numbers(dtype, 32), numbers(dtype, 64)[32..].to_vec());
        for dim in 0..2u32 {
            let to = if dim == 0 { [8, 8] } else { [4, 16] };
            let ours = eval(|b| {
                let (p, q) = (tile(b, dtype, &[4, 8], &x), tile(b, dtype, &[4, 8], &y));
                op(b, Opcode::Cat, &[p, q], vec![Attr::Dim(dim)], dtype, &to)
            });
            for (at, &word) in ours.iter().enumerate() {
                let (i, j) = (at / to[1] as usize, at % to[1] as usize);
                let expected = if dim == 0 && i >= 4 {
                    y[(i - 4) * 8 + j]
                } else if dim == 1 && j >= 8 {
                    y[i * 8 + j - 8]
                } else {
                    x[i * 8 + j]
                };
                assert_eq!(word, expected);
            }
        }
        let results = try_eval(|b| {
            let t = tile(b, dtype, &[4, 8], &x);
            let ty = b.module.intern(Type::tile(dtype, [2, 4]));
            let (one, zero) = (int(b, 1), int(b, 0));
            let id = b.op(Opcode::Extract, &[&[t], &[one, zero]], vec![], vec![], &[ty]);
            let part = b.module.op(id).results[0];
            let to = b.module.ty_id(t);
            let id = b.op(Opcode::Insert, &[&[part], &[t], &[zero, one]], vec![], vec![], &[to]);
            vec![part, b.module.op(id).results[0], t]
        })
        .unwrap();
        for at in 0..8 {
            assert_eq!(results[0][at], x[(2 + at / 4) * 8 + at % 4]);
        }
        for at in 0..32 {
            let (i, j) = (at / 8, at % 8);
            assert_eq!(results[1][at], if i < 2 && j >= 4 { x[(i + 2) * 8 + j - 4] } else { x[at] });
        }
        assert_eq!(results[2], x, "insert leaves its operand alone");
    }
    let outside = fault(try_eval(|b| {
        let t = b.splat(DType::I32, 0, &[8]);
        let ty = b.module.intern(Type::tile(DType::I32, [4]));
        let index = int(b, 2);
        let id = b.op(Opcode::Extract, &[&[t], &[index]], vec![], vec![], &[ty]);
        vec![b.module.op(id).results[0]]
    }));
    assert!(outside.contains("block index [2] is out of range"), "{outside}");
}

#[test]
fn constants_and_iota() {
    for dtype in [DType::I1, DType::I8, DType::I16, DType::I32, DType::I64] {
        let count = if dtype == DType::I1 { 2 } else { 64 };
        let ours = eval(|b| op(b, Opcode::Iota, &[], vec![], dtype, &[count]));
        assert_eq!(ours, (0..count as u64).collect::<Vec<_>>());
    }
    assert_eq!(eval(|b| b.splat(DType::F8E4M3FN, 0x3c, &[2, 2])), [0x3c; 4]);
    assert_eq!(eval(|b| tile(b, DType::TF32, &[2], &[0x3f80_0000, 0x4000_2000])), [0x3f80_0000, 0x4000_2000]);
}

/// A reduction or scan of one tile by one op.
fn fold(
    b: &mut Builder,
    code: Opcode,
    source: Value,
    dim: u32,
    reverse: bool,
    identity: u64,
    body: impl FnOnce(&mut Builder, Value, Value) -> Value,
) -> Value {
    let dtype = b.module.dtype(source);
    let scalar = b.module.intern(Type::scalar(dtype));
    let region = b.begin_block(&[scalar, scalar]);
    let [element, accumulator]: [Value; 2] = b.module.block(region).args.clone().try_into().unwrap();
    let result = body(b, element, accumulator);
    b.op(Opcode::Yield, &[&[result]], vec![], vec![], &[]);
    b.end_block();
    let mut shape = b.module.shape(source).to_vec();
    let mut attrs = vec![Attr::Dim(dim)];
    if code == Opcode::Scan {
        attrs.push(Attr::Reverse(reverse));
    } else {
        shape.remove(dim as usize);
    }
    attrs.push(Attr::Identities(vec![Literal { dtype, bits: identity }]));
    let ty = b.module.intern(Type::tile(dtype, shape));
    let id = b.op(code, &[&[source]], attrs, vec![region], &[ty]);
    b.module.op(id).results[0]
}

#[test]
fn sums_along_every_axis() {
    let x: Vec<u64> = numbers(DType::I32, 64);
    let add = |b: &mut Builder, e, a| op(b, Opcode::AddI, &[e, a], vec![], DType::I32, &[]);
    for (dim, shape) in [(0, [4, 2, 8]), (1, [4, 2, 8]), (2, [4, 2, 8]), (1, [8, 1, 8]), (0, [64, 1, 1])] {
        let strides = [shape[1] * shape[2], shape[2], 1];
        let results = try_eval(|b| {
            let t = tile(b, DType::I32, &shape, &x);
            let sum = fold(b, Opcode::Reduce, t, dim, false, 0, add);
            let up = fold(b, Opcode::Scan, t, dim, false, 0, add);
            vec![sum, up, fold(b, Opcode::Scan, t, dim, true, 0, add)]
        })
        .unwrap();
        let (n, stride) = (shape[dim as usize] as usize, strides[dim as usize] as usize);
        let total = |from: usize, count: usize| {
            (0..count).fold(0u32, |sum, i| sum.wrapping_add(x[from + i * stride] as u32)) as u64
        };
        let starts: Vec<usize> = (0..64).filter(|at| at / stride % n == 0).collect();
        for (out, &start) in starts.iter().enumerate() {
            assert_eq!(results[0][out], total(start, n), "reduce {dim} of {shape:?}");
            for i in 0..n {
                assert_eq!(results[1][start + i * stride], total(start, i + 1), "scan {dim} of {shape:?}");
                assert_eq!(results[2][start + i * stride], total(start + i * stride, n - i));
            }
        }
    }
}

/// Composition of maps x → a·x + b modulo 2^16, packed as a << 16 | b: associative, not
/// commutative.
fn compose(b: &mut Builder, element: Value, accumulator: Value) -> Value {
    let mut word = |code, operands: &[Value], attrs| op(b, code, operands, attrs, DType::I32, &[]);
    let sixteen = word(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(16))]);
    let mask = word(Opcode::Constant, &[], vec![Attr::Value(ConstData::Splat(0xffff))]);
    let unsigned = || vec![Attr::Sign(Sign::Unsigned)];
    let (ea, eb) = (word(Opcode::ShrI, &[element, sixteen], unsigned()), word(Opcode::AndI, &[element, mask], vec![]));
    let (aa, ab) =
        (word(Opcode::ShrI, &[accumulator, sixteen], unsigned()), word(Opcode::AndI, &[accumulator, mask], vec![]));
    // Accumulator first, then the element: ea·(aa·x + ab) + eb.
    let a = word(Opcode::MulI, &[ea, aa], vec![]);
    let c = word(Opcode::MulI, &[ea, ab], vec![]);
    let c = word(Opcode::AddI, &[c, eb], vec![]);
    let c = word(Opcode::AndI, &[c, mask], vec![]);
    let a = word(Opcode::ShlI, &[a, sixteen], vec![]);
    word(Opcode::OrI, &[a, c], vec![])
}

#[test]
fn order_is_kept() {
    let mut random = Random(1);
    let x: Vec<u64> = (0..32).map(|_| random.next() as u32 as u64).collect();
    let results = try_eval(|b| {
        let t = tile(b, DType::I32, &[32], &x);
        let all = fold(b, Opcode::Reduce, t, 0, false, 0x10000, compose);
        let up = fold(b, Opcode::Scan, t, 0, false, 0x10000, compose);
        vec![all, up, fold(b, Opcode::Scan, t, 0, true, 0x10000, compose)]
    })
    .unwrap();
    let after = |acc: u64, e: u64| {
        let (ea, eb, aa, ab) = (e >> 16, e & 0xffff, acc >> 16, acc & 0xffff);
        ((ea * aa) & 0xffff) << 16 | ((ea * ab + eb) & 0xffff)
    };
    let mut acc = 0x10000;
    for i in 0..32 {
        acc = after(acc, x[i]);
        assert_eq!(results[1][i], acc);
    }
    assert_eq!(results[0][0], acc);
    let mut acc = 0x10000;
    for i in (0..32).rev() {
        acc = after(acc, x[i]);
        assert_eq!(results[2][i], acc, "reverse");
    }
}

#[test]
fn reduction_of_pairs_and_captured_values() {
    // argmax: (value, index), ties to the smaller index; the body also uses a value from outside.
    let values = [3.0f32, 7.0, -1.0, 7.0, 2.0, 6.0, 7.0, 0.0];
    let bits: Vec<u64> = values.iter().map(|v| v.to_bits() as u64).collect();
    let results = try_eval(|b| {
        let t = tile(b, DType::F32, &[8], &bits);
        let index = op(b, Opcode::Iota, &[], vec![], DType::I32, &[8]);
        let outside = int(b, 0);
        let (float, integer) = (b.module.intern(Type::scalar(DType::F32)), b.module.intern(Type::scalar(DType::I32)));
        let region = b.begin_block(&[float, float, integer, integer]);
        let [e, a, ei, ai]: [Value; 4] = b.module.block(region).args.clone().try_into().unwrap();
        let attrs = vec![Attr::CmpPred(CmpPred::Gt), Attr::CmpOrder(CmpOrder::Ordered)];
        let better = op(b, Opcode::CmpF, &[e, a], attrs, DType::I1, &[]);
        let value = op(b, Opcode::Select, &[better, e, a], vec![], DType::F32, &[]);
        let place = op(b, Opcode::Select, &[better, ei, ai], vec![], DType::I32, &[]);
        let place = op(b, Opcode::AddI, &[place, outside], vec![], DType::I32, &[]);
        b.op(Opcode::Yield, &[&[value, place]], vec![], vec![], &[]);
        b.end_block();
        let identities = vec![
            Literal { dtype: DType::F32, bits: f32::NEG_INFINITY.to_bits() as u64 },
            Literal { dtype: DType::I32, bits: 0 },
        ];
        let attrs = vec![Attr::Dim(0), Attr::Identities(identities)];
        let id = b.op(Opcode::Reduce, &[&[t, index]], attrs, vec![region], &[float, integer]);
        b.module.op(id).results.clone()
    })
    .unwrap();
    assert_eq!(results, [vec![7f32.to_bits() as u64], vec![1]]);
}

#[test]
fn bodies_with_branches_run_lane_by_lane() {
    let x = numbers(DType::I32, 32);
    let ours = eval(|b| {
        let t = tile(b, DType::I32, &[4, 8], &x);
        fold(b, Opcode::Reduce, t, 1, false, 0, |b, e, a| {
            let attrs = vec![Attr::CmpPred(CmpPred::Gt), Attr::Sign(Sign::Unsigned)];
            let larger = op(b, Opcode::CmpI, &[e, a], attrs, DType::I1, &[]);
            let branches = [e, a].map(|v| {
                let block = b.begin_block(&[]);
                b.op(Opcode::Yield, &[&[v]], vec![], vec![], &[]);
                b.end_block();
                block
            });
            let ty = b.module.ty_id(e);
            let id = b.op(Opcode::If, &[&[larger]], vec![], branches.to_vec(), &[ty]);
            b.module.op(id).results[0]
        })
    });
    let expected: Vec<u64> = x.chunks(8).map(|row| *row.iter().max().unwrap()).collect();
    assert_eq!(ours, expected);
}

#[test]
fn half_sums_round_at_each_step() {
    // 1 + 2^-11 is a tie in f16 and rounds to 1; so does every later step of the balanced tree.
    let one = 0x3c00;
    let small = 0x1000; // 2^-11
    let ours = eval(|b| {
        let t = tile(b, DType::F16, &[4], &[one, small, one, small]);
        fold(b, Opcode::Reduce, t, 0, false, 0, |b, e, a| {
            op(b, Opcode::AddF, &[e, a], vec![Attr::Rounding(Rounding::NearestEven)], DType::F16, &[])
        })
    });
    assert_eq!(ours, [0x4000]);
}
