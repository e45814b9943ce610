//! Loops, branches, `map` and composite integer operations: values on the cpu back end.

use cutlet as ct;
use cutlet::prelude::*;

fn collatz_steps(n: i64) -> i32 {
    std::iter::successors(Some(n), |&n| (n > 1).then_some(if n % 2 == 0 { n / 2 } else { 3 * n + 1 })).count() as i32
        - 1
}

#[test]
fn while_loop_runs_until_the_condition_fails() -> ct::Result<()> {
    let mut out = ct::Device::cpu().zeros::<i32, 1>([100])?;
    let kernel = |out: ArrayMut<i32, 1>| {
        let start = (ct::bid(0).cast::<i64>() + 1, ct::scalar(0));
        let (_, steps) =
            ct::while_loop(start, |(n, _)| n.gt(1), |(n, steps)| ((n % 2).eq(0).select(n / 2, 3 * n + 1), steps + 1));
        out.store_scalar(ct::bid(0), steps);
    };
    ct::launch(kernel, 100, (&mut out,))?;
    let want: Vec<i32> = (1..=100).map(collatz_steps).collect();
    assert_eq!(out.to_vec()?, want);
    Ok(())
}

#[test]
fn loops_stop_early_and_not_at_all_when_empty() -> ct::Result<()> {
    let mut out = ct::Device::cpu().zeros::<i32, 2>([40, 3])?;
    let kernel = |out: ArrayMut<i32, 2>| {
        let b = ct::bid(0);
        // Smallest square above b, but at most 25.
        let square = ct::fold_while(..6, ct::scalar(-1), |_, i| ((i * i).le(b), i * i));
        out.store_scalar((b, 0), square);
        let none = ct::fold(ct::range(b, 3), ct::scalar(7), |s, i| s * 10 + i);
        out.store_scalar((b, 1), none);
        let strided = ct::fold(ct::range(1, b).step(b.max(3)), ct::scalar(0), |s, i| s + i);
        out.store_scalar((b, 2), strided);
    };
    ct::launch(kernel, 40, (&mut out,))?;
    let mut want = Vec::new();
    for b in 0..40 {
        want.push((0..6).map(|i| i * i).find(|square| *square > b).unwrap_or(25));
        want.push((b..3).fold(7, |s, i| s * 10 + i));
        want.push((1..b).step_by(b.max(3) as usize).sum());
    }
    assert_eq!(out.to_vec()?, want);
    Ok(())
}

#[test]
fn branches_run_one_side() -> ct::Result<()> {
    let mut out = ct::Device::cpu().zeros::<f32, 1>([64])?;
    let kernel = |out: ArrayMut<f32, 1>| {
        let b = ct::bid(0);
        let tile = ct::if_else(
            (b % 2).eq(0),
            || ct::if_else(b.gt(1), || ct::full([16], 2.0f32), || ct::zeros([16])),
            || ct::arange_from(16, 0.0, 0.5),
        );
        out.store(b, tile);
        ct::if_then(b.eq(3), || out.store(b, tile + 100.0));
    };
    ct::launch(kernel, 4, (&mut out,))?;
    let got = out.to_vec()?;
    for i in 0..16 {
        let half = i as f32 * 0.5;
        assert_eq!([got[i], got[16 + i], got[32 + i], got[48 + i]], [0.0, half, 2.0, half + 100.0]);
    }
    Ok(())
}

/// -128 to 127 in pairs with a divisor, against i32 arithmetic.
#[test]
fn signed_division_and_products() -> ct::Result<()> {
    let a: Vec<i8> = (-128..=127).collect();
    for divisor in [-128i8, -7, -3, -1, 1, 2, 5, 127] {
        let cpu = ct::Device::cpu();
        let x = cpu.array(&a, [256])?;
        let mut out = cpu.zeros::<i8, 2>([4, 256])?;
        let kernel = |x: Array<i8, 1>, d: Scalar<i8>, out: ArrayMut<i8, 2>| {
            let x = x.load(0, [256]);
            for (row, y) in [x.floor_div(d), x.ceil_div(d), x.modulo(d), x.mul_hi(d)].into_iter().enumerate() {
                out.store((row, 0), y.unsqueeze(0));
            }
        };
        ct::launch(kernel, 1, (&x, divisor, &mut out))?;
        let got = out.to_vec()?;
        for (i, &a) in a.iter().enumerate() {
            let (n, d) = (i32::from(a), i32::from(divisor));
            let exact = f64::from(n) / f64::from(d);
            let modulo = n - d * exact.floor() as i32;
            let have = [got[i], got[256 + i], got[512 + i], got[768 + i]];
            // -128 / -1 has no quotient in i8.
            let quotients = exact != 128.0;
            assert!(!quotients || have[..2] == [exact.floor() as i8, exact.ceil() as i8], "{n} / {d}: {have:?}");
            assert_eq!(have[2..], [modulo as i8, ((n * d) >> 8) as i8], "{n}, {d}");
        }
    }
    Ok(())
}

#[test]
fn map_equals_the_tile_form() -> ct::Result<()> {
    fn gelu(x: Scalar<f32>) -> Scalar<f32> {
        0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh())
    }
    let host: Vec<f32> = (0..128).map(|i| (i as f32 - 64.0) / 16.0).collect();
    let cpu = ct::Device::cpu();
    let x = cpu.array(&host, [128])?;
    let mut out = cpu.zeros::<f32, 1>([128])?;
    let kernel = |x: Array<f32, 1>, out: ArrayMut<f32, 1>| out.store(0, x.load(0, [128]).map(gelu));
    ct::launch(kernel, 1, (&x, &mut out))?;
    for (x, y) in host.iter().zip(out.to_vec()?) {
        let x = f64::from(*x);
        let want = 0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044_715 * x.powi(3))).tanh());
        assert!((f64::from(y) - want).abs() <= 1e-6, "{y} instead of {want}");
    }
    Ok(())
}

/// The checks of a range with a run-time step are removed if the step is known to be positive.
#[test]
fn a_step_that_is_positive_costs_nothing() -> ct::Result<()> {
    let sum = |step: fn() -> Scalar<i32>| {
        move |y: ArrayMut<i32, 1>, n: Scalar<i32>| {
            let sum = ct::fold(ct::range(ct::bid(0), n).step(step()), ct::scalar(0), |sum, i| sum + i);
            y.store_scalar(ct::bid(0), sum);
        }
    };
    let y = ct::ArraySpec::<i32, 1>::new([64]);
    let ir = ct::inspect(sum(|| ct::num_blocks(0)), (y.mutable(), 9)).ir()?;
    assert!(!ir.contains("select") && !ir.contains("divi"), "{ir}");
    let ir = ct::inspect(sum(|| ct::bid(0)), (y.mutable(), 9)).ir()?;
    assert!(ir.contains("select") && ir.contains("divi"), "{ir}");
    Ok(())
}

/// Bounds and steps of the host beyond i32, in ranges that count in u32 and u64.
#[test]
fn host_numbers_fit_the_type_that_a_range_counts_in() -> ct::Result<()> {
    fn kernel(y: ArrayMut<i32, 1>, zero: Scalar<u32>, most: Scalar<u32>, long: Scalar<u64>) {
        let rounds = |n: usize, range: ct::StepRange<u32>| {
            y.store_scalar(n, ct::fold(range, ct::scalar(0), |n, _| n + 1));
        };
        rounds(0, ct::range(zero, 3_000_000_000usize).step(1 << 30));
        rounds(1, ct::range(0i32, most).step(3_000_000_000u32));
        rounds(2, ct::range(most, 0).step(-3_000_000_000i64));
        rounds(3, ct::range(zero, u32::MAX).step(u32::MAX as usize - 1).rev());
        y.store_scalar(4, ct::fold(ct::range(0, long).step(usize::MAX), ct::scalar(0), |n, _| n + 1));
        let early =
            ct::fold_with_control(ct::range(zero, u32::MAX).step(3_000_000_000u32), ct::scalar(0), |n, _, flow| {
                flow.break_if(n.ge(7), n);
                n + 1
            });
        y.store_scalar(5, early);
        let last = ct::fold(ct::range(zero, u32::MAX).step(3_000_000_000u32), ct::scalar(0u32), |_, k| k);
        y.store_scalar(6, last.eq(3_000_000_000).cast::<i32>());
    }
    fn part(x: Array<i32, 1>, y: ArrayMut<i32, 1>, start: Scalar<u32>) {
        y.store(0, x.slice(0, ct::range(start, 3_000_000_000u32)).load(0, [4]));
    }
    let device = ct::Device::cpu();
    let mut y = device.zeros([7])?;
    ct::launch(kernel, 1, (&mut y, 0u32, u32::MAX, u64::MAX - 1))?;
    assert_eq!(y.to_vec()?, [3, 2, 2, 2, 1, 2, 1]);
    let mut y = device.zeros([4])?;
    ct::launch(part, 1, (&device.array(&[1, 2, 3], [3])?, &mut y, 1u32))?;
    assert_eq!(y.to_vec()?, [2, 3, 0, 0]);
    Ok(())
}

/// A scalar condition selects between tiles, scalars and host values, in any combination on which
/// side.
#[test]
fn a_scalar_selects_between_tiles() -> ct::Result<()> {
    fn kernel(y: ArrayMut<f32, 2>, h: ArrayMut<f16, 1>, s: Scalar<f32>) {
        let block = ct::bid(0);
        let (first, tile) = (block.eq(0), ct::arange_from(4, 1.0f32, 1.0));
        let rows = [
            first.select(tile, tile * 10.0),
            first.select(tile, s),
            first.select(s, tile),
            first.select(0.5, tile),
            first.select(tile, 0.5),
            ct::full([4], first.select(s, 0.5)),
            ct::full([4], first.select(0.25, s)),
            ct::full([4], first.select(1.0, 2.0)),
        ];
        for (i, row) in rows.into_iter().enumerate() {
            y.store((block * 8 + i, 0), row.unsqueeze(0));
        }
        h.store(block, first.select(tile.cast::<f16>(), 0.5));
    }
    let (mut y, mut h) = (ct::Device::cpu().zeros([16, 4])?, ct::Device::cpu().zeros([8])?);
    ct::launch(kernel, 2, (&mut y, &mut h, 7.0f32))?;
    let (tile, all) = ([1.0, 2.0, 3.0, 4.0], |x: f32| [x; 4]);
    let first = [tile, tile, all(7.0), all(0.5), tile, all(7.0), all(0.25), all(1.0)];
    let other = [tile.map(|x| 10.0 * x), all(7.0), tile, tile, all(0.5), all(0.5), all(7.0), all(2.0)];
    assert_eq!(y.to_vec()?, [first, other].concat().concat());
    assert_eq!(h.to_vec()?.into_iter().map(f16::to_f32).collect::<Vec<_>>(), [tile, all(0.5)].concat());
    Ok(())
}
