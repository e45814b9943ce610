//! Matrix products against f64 sums, and a whole matmul kernel.

use super::*;

fn small_floats(random: &mut Random, dtype: DType, count: usize) -> Vec<u64> {
    (0..count).map(|_| float_codec::encode(dtype, random.unit() * 2.0, Rounding::NearestEven)).collect()
}

fn decode(dtype: DType, bits: &[u64]) -> Vec<f64> {
    bits.iter().map(|&b| float_codec::decode(dtype, b)).collect()
}

/// `acc + lhs · rhs` in f64, for one batch.
fn product(a: &[f64], b: &[f64], acc: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    (0..m * n).map(|at| acc[at] + (0..k).map(|p| a[at / n * k + p] * b[p * n + at % n]).sum::<f64>()).collect()
}

#[test]
fn float_products() {
    let mut random = Random(1);
    let types = [
        (DType::F16, DType::F32, 2e-6),
        (DType::F16, DType::F16, 2e-3),
        (DType::BF16, DType::F32, 2e-6),
        (DType::TF32, DType::F32, 2e-6),
        (DType::F32, DType::F32, 2e-6),
        (DType::F64, DType::F64, 1e-14),
        (DType::F8E4M3FN, DType::F32, 2e-6),
        (DType::F8E4M3FN, DType::F16, 2e-3),
        (DType::F8E5M2, DType::F32, 2e-6),
    ];
    for (input, output, tolerance) in types {
        for (batch, [m, n, k]) in [(1, [16, 32, 8]), (1, [1, 2, 64]), (2, [4, 16, 16]), (4, [2, 1, 4]), (1, [8, 8, 1])]
        {
            let a = small_floats(&mut random, input, batch * m * k);
            let b = small_floats(&mut random, input, batch * k * n);
            let c = small_floats(&mut random, output, batch * m * n);
            let shape = |x: usize, y: usize| match batch {
                1 => vec![x as i64, y as i64],
                _ => vec![batch as i64, x as i64, y as i64],
            };
            let ours = eval(|builder| {
                let a = tile(builder, input, &shape(m, k), &a);
                let b = tile(builder, input, &shape(k, n), &b);
                let c = tile(builder, output, &shape(m, n), &c);
                op(builder, Opcode::MmaF, &[a, b, c], vec![], output, &shape(m, n))
            });
            let (a, b, c) = (decode(input, &a), decode(input, &b), decode(output, &c));
            let ours = decode(output, &ours);
            for i in 0..batch {
                let (a, b, c) = (&a[i * m * k..], &b[i * k * n..], &c[i * m * n..]);
                for (at, expected) in product(a, b, c, [m, n, k]).into_iter().enumerate() {
                    let error = (ours[i * m * n + at] - expected).abs();
                    assert!(error <= tolerance * (k as f64).max(4.0), "{input} to {output}, {m}x{n}x{k}: {error:e}");
                }
            }
        }
    }
}

#[test]
fn blocked_and_plain_loops_agree() {
    let mut random = Random(2);
    let [m, n, k] = [4, 16, 64];
    let (a, b) = (small_floats(&mut random, DType::F32, m * k), small_floats(&mut random, DType::F32, k * n));
    let ours = eval(|builder| {
        let a = tile(builder, DType::F32, &[m as i64, k as i64], &a);
        let b = tile(builder, DType::F32, &[k as i64, n as i64], &b);
        let c = builder.splat(DType::F32, 0, &[m as i64, n as i64]);
        op(builder, Opcode::MmaF, &[a, b, c], vec![], DType::F32, &[m as i64, n as i64])
    });
    for at in 0..m * n {
        let single = |bits: u64| f32::from_bits(bits as u32);
        let step = |sum: f32, p: usize| single(a[at / n * k + p]).mul_add(single(b[p * n + at % n]), sum);
        assert_eq!(ours[at], (0..k).fold(0.0, step).to_bits() as u64);
    }
}

#[test]
fn integer_products_wrap() {
    let mut random = Random(3);
    let [m, n, k] = [4, 16, 32];
    for left in [Sign::Signed, Sign::Unsigned] {
        for right in [Sign::Signed, Sign::Unsigned] {
            let (a, b) = (random.ints(DType::I8, m * k), random.ints(DType::I8, k * n));
            let c = random.ints(DType::I32, m * n);
            let ours = eval(|builder| {
                let p = tile(builder, DType::I8, &[m as i64, k as i64], &a);
                let q = tile(builder, DType::I8, &[k as i64, n as i64], &b);
                let r = tile(builder, DType::I32, &[m as i64, n as i64], &c);
                let attrs = vec![Attr::SignLhs(left), Attr::SignRhs(right)];
                op(builder, Opcode::MmaI, &[p, q, r], attrs, DType::I32, &[m as i64, n as i64])
            });
            let value = |sign, bits: u64| if sign == Sign::Signed { bits as i8 as i64 } else { bits as i64 };
            for at in 0..m * n {
                let term = |p: usize| value(left, a[at / n * k + p]) * value(right, b[p * n + at % n]);
                let expected = c[at] as i64 + (0..k).map(term).sum::<i64>();
                assert_eq!(ours[at], expected as u32 as u64);
            }
        }
    }
}

#[test]
fn scaled_products() {
    let mut random = Random(4);
    let [m, n, k] = [8, 16, 64];
    let types = [
        (DType::F8E4M3FN, DType::F8E8M0FNU, 32),
        (DType::F8E5M2, DType::F8E8M0FNU, 32),
        (DType::F4E2M1FN, DType::F8E8M0FNU, 16),
        (DType::F4E2M1FN, DType::F8E4M3FN, 16),
        (DType::F4E2M1FN, DType::F8E5M3FNU, 32),
    ];
    for (input, scale, run) in types {
        let (a, b) = (small_floats(&mut random, input, m * k), small_floats(&mut random, input, k * n));
        let mut scales = |count: usize| -> Vec<u64> {
            (0..count).map(|_| float_codec::encode(scale, 1.0 + random.unit().abs() * 3.0, Rounding::Zero)).collect()
        };
        let (sa, sb) = (scales(m * k / run), scales(k / run * n));
        let ours = eval(|builder| {
            let blocks = (k / run) as i64;
            let (m, n, k) = (m as i64, n as i64, k as i64);
            let operands = [
                tile(builder, input, &[m, k], &a),
                tile(builder, input, &[k, n], &b),
                builder.splat(DType::F32, 1f32.to_bits() as u64, &[m, n]),
                tile(builder, scale, &[m, blocks], &sa),
                tile(builder, scale, &[blocks, n], &sb),
            ];
            op(builder, Opcode::MmaFScaled, &operands, vec![], DType::F32, &[m, n])
        });
        let (a, b, sa, sb) = (decode(input, &a), decode(input, &b), decode(scale, &sa), decode(scale, &sb));
        let a: Vec<f64> = a.iter().enumerate().map(|(i, v)| v * sa[i / k * (k / run) + i % k / run]).collect();
        let b: Vec<f64> = b.iter().enumerate().map(|(i, v)| v * sb[i / n / run * n + i % n]).collect();
        for (ours, expected) in decode(DType::F32, &ours).iter().zip(product(&a, &b, &vec![1.0; m * n], [m, n, k])) {
            assert!((ours - expected).abs() < 1e-3 * expected.abs().max(1.0), "{input}: {ours} {expected}");
        }
    }
}

/// `c = a · b` for square matrices: one tile of `c` per block, a loop over k.
fn matmul(size: i64, [tm, tn, tk]: [i64; 3]) -> Module {
    let mut b = Builder::new();
    let pointer = Type::ptr(DType::F32);
    let [pa, pb, pc]: [Value; 3] =
        b.begin_entry("matmul", &[pointer.clone(), pointer.clone(), pointer]).try_into().unwrap();
    let array = |b: &mut Builder, base, tile: [i64; 2]| {
        partition(b, base, DType::F32, &[size, size], &[size, 1], &tile.map(|n| n as i32))
    };
    let (va, vb, vc) = (array(&mut b, pa, [tm, tk]), array(&mut b, pb, [tk, tn]), array(&mut b, pc, [tm, tn]));
    let i32_type = b.module.intern(Type::scalar(DType::I32));
    let id = b.op(Opcode::GetTileBlockId, &[], vec![], vec![], &[i32_type; 3]);
    let [i, j, _]: [Value; 3] = b.module.op(id).results.clone().try_into().unwrap();
    let (zero, one, steps) = (int(&mut b, 0), int(&mut b, 1), int(&mut b, (size + tk - 1) / tk));
    let start = b.splat(DType::F32, 0, &[tm, tn]);
    let acc_type = b.module.ty_id(start);
    let body = b.begin_block(&[i32_type, acc_type]);
    let [k, acc]: [Value; 2] = b.module.block(body).args.clone().try_into().unwrap();
    let left = load(&mut b, va, &[i, k], DType::F32, &[tm, tk]);
    let right = load(&mut b, vb, &[k, j], DType::F32, &[tk, tn]);
    let next = op(&mut b, Opcode::MmaF, &[left, right, acc], vec![], DType::F32, &[tm, tn]);
    b.op(Opcode::Continue, &[&[next]], vec![], vec![], &[]);
    b.end_block();
    let id = b.op(Opcode::For, &[&[zero], &[steps], &[one], &[start]], vec![], vec![body], &[acc_type]);
    let sum = b.module.op(id).results[0];
    store(&mut b, sum, vc, &[i, j]);
    finish(&mut b);
    b.module
}

fn run_matmul(size: usize, tile: [i64; 3]) -> std::time::Duration {
    let mut random = Random(5);
    let [a, b] = [0, 1].map(|_| small_floats(&mut random, DType::F32, size * size));
    let [mut pa, mut pb] = [&a, &b].map(|v| Buffer::new(DType::F32, v));
    let mut pc = Buffer::zeros(DType::F32, size * size);
    let module = matmul(size as i64, tile);
    let grid = [size.div_ceil(tile[0] as usize) as u32, size.div_ceil(tile[1] as usize) as u32, 1];
    let start = std::time::Instant::now();
    launch(&module, grid, &mut [&mut pa, &mut pb, &mut pc]).unwrap();
    let time = start.elapsed();
    let (a, b) = (decode(DType::F32, &a), decode(DType::F32, &b));
    for _ in 0..200 {
        let (i, j) = (random.next() as usize % size, random.next() as usize % size);
        let expected: f64 = (0..size).map(|k| a[i * size + k] * b[k * size + j]).sum();
        let ours = float_codec::decode(DType::F32, pc.get(DType::F32, i * size + j));
        assert!((ours - expected).abs() < 1e-4 * (size as f64), "({i}, {j}): {ours} {expected}");
    }
    time
}

#[test]
fn matmul_of_odd_size() {
    for size in [1, 7, 33, 100] {
        run_matmul(size, [16, 32, 8]);
    }
}

/// Run with `cargo test --release --lib matmul_speed -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement, for release builds"]
fn matmul_speed() {
    let time = run_matmul(1024, [64, 64, 32]);
    println!("1024^3 f32 in {time:?}");
    assert!(time.as_secs_f64() < 3.0);
}
