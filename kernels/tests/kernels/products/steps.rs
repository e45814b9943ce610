//! Products of decode steps: of one row, and with epilogues that contain norms, rotation, cache and
//! choice.

use cutlet as ct;
use cutlet::packed::{Narrow, PackedView, i4, u4};
use cutlet::prelude::*;
use cutlet_kernels::order::largest_of_groups;
use cutlet_kernels::products::epilogue::{Activation, HeadColumns};
use cutlet_kernels::products::packed::{Order, PackedWeights};
use cutlet_kernels::products::{Columns, Configuration, Share, Workspace};
use cutlet_kernels::{matmul, overlapped};

use super::packed::packed;
use super::{near, product, stream, zeros};
use crate::support::{close, device, random};

fn vector<T: cutlet_kernels::Number>([n, k]: [usize; 2], columns: Option<Columns>, tolerance: f64) -> ct::Result<()> {
    let ((x, a), (w, b)) = (random::<T, 2>(1, [1, k], 1.0)?, random::<T, 2>(2, [n, k], 1.0)?);
    let (residual, r) = random::<T, 2>(3, [1, n], 1.0)?;
    let mut y = zeros::<f32, 2>([1, n])?;
    let by = matmul().residual(residual.view());
    by.launch_vector(&stream(), x.view(), w.view(), y.view_mut(), columns)?;
    let [want, sizes] = product([1, n, k], |_, l| a[l], |l, j| b[j * k + l]);
    let want: Vec<f64> = want.iter().zip(&r).map(|(x, r)| x + r).collect();
    near(&y, [&want, &sizes], tolerance);
    Ok(())
}

#[test]
fn one_row_is_multiplied() -> ct::Result<()> {
    vector::<f32>([37, 300], None, 1e-6)?;
    vector::<bf16>([5, 16], Some(Columns { outputs: 8, warps: 0 }), 1e-6)?;
    // Two tiles of inputs.
    vector::<f16>([3, 8200], None, 1e-6)
}

#[test]
fn one_row_is_multiplied_with_packed_weights() -> ct::Result<()> {
    let [n, k, group] = [22, 200, 32];
    let (x, a) = random::<f16, 2>(1, [1, k], 1.0)?;
    let codes: Vec<u4> = (0..n * k).map(|at| u4::from_code((at * 7 % 16) as u8)).collect();
    let words = packed(&codes, [n, k])?;
    let shape = [k.div_ceil(group), n];
    let ((scales, s), (offsets, z)) = (random::<f16, 2>(2, shape, 1.0)?, random::<f16, 2>(3, shape, 8.0)?);
    let weight = |zero: &dyn Fn(usize) -> f64, l: usize, j: usize| {
        let at = l / group * n + j;
        (codes[j * k + l].to_value() - zero(at)) * s[at]
    };
    let mut y = zeros::<f32, 2>([1, n])?;
    let view = PackedView::<u4, 2>::new(words.view(), [n, k])?;
    let weights = PackedWeights::new(view, scales.view(), group, Order::OutputsInputs)?;
    matmul().launch_vector(&stream(), x.view(), weights.centered(), y.view_mut(), None)?;
    let [want, sizes] = product([1, n, k], |_, l| a[l], |l, j| weight(&|_| 7.5, l, j));
    near(&y, [&want, &sizes], 2e-6);
    matmul().launch_vector(&stream(), x.view(), weights.zeros(offsets.view())?, y.view_mut(), None)?;
    let [want, sizes] = product([1, n, k], |_, l| a[l], |l, j| weight(&|at| z[at], l, j));
    near(&y, [&want, &sizes], 2e-5);
    // Gates at even outputs.
    let signed: Vec<i4> = (0..n * k).map(|at| i4::from_value((at * 5 % 15) as f64 - 7.0)).collect();
    let words = packed(&signed, [n, k])?;
    let view = PackedView::<i4, 2>::new(words.view(), [n, k])?;
    let weights = PackedWeights::new(view, scales.view(), group, Order::OutputsInputs)?;
    let mut y = zeros::<f32, 2>([1, n / 2])?;
    let gated = matmul().scale(0.01).gate_pairs(Activation::Silu);
    gated.launch_vector(&stream(), x.view(), weights, y.view_mut(), None)?;
    let at = |l: usize, j: usize| signed[j * k + l].to_value() * s[l / group * n + j];
    let [sums, _] = product([1, n, k], |_, l| a[l], at);
    let pairs = sums.chunks(2).map(|pair| (pair[0] * 0.01, pair[1] * 0.01));
    let want: Vec<f64> = pairs.map(|(gate, x)| gate / (1.0 + (-gate).exp()) * x).collect();
    close(&y, &want, 1e-4, 1e-4);
    Ok(())
}

/// Groups of 128 and 256 inputs of 16 bits: tensor cores multiply codes, and sums of groups have
/// the scales.
#[test]
fn one_row_is_multiplied_with_packed_weights_on_tensor_cores() -> ct::Result<()> {
    for ([n, k], group) in [([37, 1024], 128), ([16, 2048], 256), ([5, 8192], 128)] {
        let (x, a) = random::<bf16, 2>(1, [1, k], 1.0)?;
        let codes: Vec<i4> = (0..n * k).map(|at| i4::from_value((at * at % 16) as f64 - 8.0)).collect();
        let words = packed(&codes, [n, k])?;
        let (scales, s) = random::<bf16, 2>(2, [k / group, n], 1.0)?;
        let (residual, r) = random::<bf16, 2>(3, [1, n], 1.0)?;
        let view = PackedView::<i4, 2>::new(words.view(), [n, k])?;
        let weights = PackedWeights::new(view, scales.view(), group, Order::OutputsInputs)?;
        let by = |columns, y: &mut ct::DeviceArray<f32, 2>| {
            let by = matmul().residual(residual.view());
            overlapped(|| by.launch_vector(&stream(), x.view(), weights, y.view_mut(), columns))
        };
        let [want, sizes] = product([1, n, k], |_, l| a[l], |l, j| codes[j * k + l].to_value() * s[l / group * n + j]);
        let want: Vec<f64> = want.iter().zip(&r).map(|(x, r)| x + r).collect();
        // Two forms of tensor cores, and multiply-add of threads, which is the default of few
        // weights. Four warps have no registers for 8192 inputs of 16 outputs.
        for columns in [[16, 8], [16, if k > 2048 { 8 } else { 4 }], [8, 4], [0, 0]] {
            let columns = (columns[0] > 0).then_some(Columns { outputs: columns[0], warps: columns[1] as u32 });
            let mut y = zeros::<f32, 2>([1, n])?;
            by(columns, &mut y)?;
            near(&y, [&want, &sizes], 2e-6);
        }
    }
    Ok(())
}

/// Up to 16 rows, with two and four tiles of inputs of a tile block.
#[test]
fn some_rows_are_multiplied_with_packed_weights() -> ct::Result<()> {
    for ([m, n, k], columns) in [([3, 37, 1024], None), ([16, 40, 2048], Some(Columns { outputs: 32, warps: 4 }))] {
        let (x, a) = random::<f16, 2>(1, [m, k], 1.0)?;
        let codes: Vec<u4> = (0..n * k).map(|at| u4::from_code((at * at % 16) as u8)).collect();
        let words = packed(&codes, [n, k])?;
        let (scales, s) = random::<f16, 2>(2, [k / 128, n], 1.0)?;
        let (residual, r) = random::<f16, 2>(3, [m, n], 1.0)?;
        let view = PackedView::<u4, 2>::new(words.view(), [n, k])?;
        let weights = PackedWeights::new(view, scales.view(), 128, Order::OutputsInputs)?;
        let mut y = zeros::<f32, 2>([m, n])?;
        matmul().residual(residual.view()).launch_vector(&stream(), x.view(), weights, y.view_mut(), columns)?;
        let weight = |l: usize, j: usize| codes[j * k + l].to_value() * s[l / 128 * n + j];
        let [want, sizes] = product([m, n, k], |i, l| a[i * k + l], weight);
        let want: Vec<f64> = want.iter().zip(&r).map(|(x, r)| x + r).collect();
        near(&y, [&want, &sizes], 2e-6);
        let narrow = Some(Columns { outputs: 8, warps: 4 });
        let error = matmul().launch_vector(&stream(), x.view(), weights, y.view_mut(), narrow).unwrap_err();
        assert!(error.to_string().contains("at least 16 outputs"), "{error}");
    }
    Ok(())
}

/// A launch with a workspace makes no array in a graph.
#[test]
fn products_with_a_workspace_are_captured() -> ct::Result<()> {
    let [n, k] = [70, 64];
    for m in [1, 3] {
        let ((x, a), (w, b)) = (random::<bf16, 2>(1, [m, k], 1.0)?, random::<bf16, 2>(2, [n, k], 1.0)?);
        let mut space = Workspace::new(device())?;
        let mut y = zeros::<f32, 2>([m, n])?;
        let split = Configuration::new([16, 32, 16]).share(Share::Split(2));
        let run = |space: &mut Workspace, y: &mut ct::DeviceArray<f32, 2>| match m {
            1 => matmul().launch_vector(&stream(), x.view(), w.view(), y.view_mut(), None),
            _ => {
                let by = matmul().workspace(space).configuration(split);
                by.launch(&stream(), x.view(), w.view().transpose()?, y.view_mut())
            }
        };
        run(&mut space, &mut y)?;
        let [want, sizes] = product([m, n, k], |i, l| a[i * k + l], |l, j| b[j * k + l]);
        near(&y, [&want, &sizes], 1e-6);
        let zero = zeros::<f32, 2>([m, n])?;
        let mut graph = ct::Graph::capture((space, zero, &x, &w), |(space, y, ..)| run(space, y))?;
        graph.replay()?;
        near(&graph.state().1, [&want, &sizes], 1e-6);
    }
    Ok(())
}

#[test]
fn operands_of_one_row_are_checked() -> ct::Result<()> {
    let (x, w) = (zeros::<f32, 2>([2, 32])?, zeros::<f32, 2>([8, 32])?);
    let mut y = zeros::<f32, 2>([2, 8])?;
    let error = matmul().launch_vector(&stream(), x.view(), w.view(), y.view_mut(), None).unwrap_err();
    assert!(error.to_string().contains("[2, 32]") && error.to_string().contains("one row"), "{error}");
    let x = zeros::<f32, 2>([1, 32])?;
    let mut y = zeros::<f32, 2>([1, 7])?;
    let error = matmul().launch_vector(&stream(), x.view(), w.view(), y.view_mut(), None).unwrap_err();
    assert!(error.to_string().contains("[1, 7], not [1, 8]"), "{error}");
    let mut y = zeros::<f32, 2>([1, 8])?;
    let odd = Some(Columns { outputs: 3, warps: 0 });
    let error = matmul().launch_vector(&stream(), x.view(), w.view(), y.view_mut(), odd).unwrap_err();
    assert!(error.to_string().contains("3 outputs of a tile block: a power of two"), "{error}");
    Ok(())
}

/// A product whose rows are normalized by the next one, of one row and of several.
#[test]
fn norms_are_in_epilogues() -> ct::Result<()> {
    let [n, k, l] = [48, 20, 30];
    for m in [1, 37] {
        let ((x, a), (w, b)) = (random::<f32, 2>(1, [m, k], 1.0)?, random::<f32, 2>(2, [n, k], 1.0)?);
        let (v, c) = random::<f32, 2>(3, [l, n], 1.0)?;
        let (mut y, mut z, mut squares) = (zeros::<f32, 2>([m, n])?, zeros::<f32, 2>([m, l])?, zeros([n / 8, m])?);
        let sums = matmul().square_sums(squares.view_mut(), 8);
        match m {
            1 => sums.launch_vector(&stream(), x.view(), w.view(), y.view_mut(), None)?,
            _ => sums.launch(&stream(), x.view(), w.view().transpose()?, y.view_mut())?,
        }
        let [states, _] = product([m, n, k], |i, t| a[i * k + t], |t, j| b[j * k + t]);
        close(&y, &states, 1e-5, 0.0);
        let of_group = |at: usize| (0..8).map(|j| states[at % m * n + at / m * 8 + j].powi(2)).sum();
        close(&squares, &(0..n / 8 * m).map(of_group).collect::<Vec<f64>>(), 1e-4, 1e-5);
        let normal = matmul().normalize_rows(squares.view(), n, 0.25);
        match m {
            1 => normal.launch_vector(&stream(), y.view(), v.view(), z.view_mut(), None)?,
            _ => normal.launch(&stream(), y.view(), v.view().transpose()?, z.view_mut())?,
        }
        let root = |i: usize| (states[i * n..][..n].iter().map(|x| x * x).sum::<f64>() / n as f64 + 0.25).sqrt();
        let [want, sizes] = product([m, l, n], |i, t| states[i * n + t] / root(i), |t, j| c[j * n + t]);
        near(&z, [&want, &sizes], 1e-5);
    }
    let mut squares = zeros::<f32, 2>([6, 2])?;
    let (x, w, mut y) = (zeros::<f32, 2>([2, 4])?, zeros::<f32, 2>([4, 50])?, zeros::<f32, 2>([2, 50])?);
    let by = matmul().square_sums(squares.view_mut(), 8);
    let error = by.launch(&stream(), x.view(), w.view(), y.view_mut()).unwrap_err().to_string();
    assert!(error.contains("groups of 8 columns"), "{error}");
    Ok(())
}

/// Rotation by positions, and rows of a cache of which one is absent.
#[test]
fn keys_and_values_are_stored_in_the_cache() -> ct::Result<()> {
    let heads = HeadColumns { dim: 8, queries: 3, keys: 1 };
    let ([n, k], [positions, slots]) = ([heads.columns(), 16], [9, 50]);
    for m in [1, 35] {
        let ((x, a), (w, b)) = (random::<f32, 2>(1, [m, k], 1.0)?, random::<f32, 2>(2, [n, k], 1.0)?);
        let ((cos, c), (sin, s)) =
            (random::<f32, 2>(3, [positions, 4], 1.0)?, random::<f32, 2>(4, [positions, 4], 1.0)?);
        let (of_row, slot) =
            (|i: usize| (i * 5 + 3) % positions, |i: usize| if i == 7 { -1 } else { (i as i32 * 3 + 2) % 50 });
        let at = device().from_fn([m], |[i]| of_row(i) as i32)?;
        let rows = device().from_fn([m], |[i]| slot(i))?;
        let (mut keys, mut values) = (device().full([slots, 8], 9.0f32)?, device().full([slots, 8], 9.0f32)?);
        let mut y = zeros::<f32, 2>([m, n])?;
        let by = matmul().rotate_cached(
            [cos.view(), sin.view()],
            [at.view(), rows.view()],
            [keys.view_mut(), values.view_mut()],
            heads,
        );
        match m {
            // A part of a head in a tile block.
            1 => {
                by.launch_vector(&stream(), x.view(), w.view(), y.view_mut(), Some(Columns { outputs: 4, warps: 0 }))?
            }
            _ => by.launch(&stream(), x.view(), w.view().transpose()?, y.view_mut())?,
        }
        let [sums, _] = product([m, n, k], |i, t| a[i * k + t], |t, j| b[j * k + t]);
        let turned = |i: usize, j: usize| {
            let (pair, even) = (of_row(i) * 4 + j % 8 / 2, i * n + j / 2 * 2);
            match j {
                _ if j >= 32 => sums[i * n + j],
                _ if j.is_multiple_of(2) => sums[even] * c[pair] - sums[even + 1] * s[pair],
                _ => sums[even + 1] * c[pair] + sums[even] * s[pair],
            }
        };
        close(&y, &(0..m * n).map(|at| turned(at / n, at % n)).collect::<Vec<_>>(), 1e-5, 0.0);
        let stored = |first: usize| {
            let mut want = vec![9.0; slots * 8];
            for i in (0..m).filter(|&i| slot(i) >= 0) {
                (0..8).for_each(|j| want[slot(i) as usize * 8 + j] = turned(i, first + j));
            }
            want
        };
        close(&keys, &stored(24), 1e-5, 0.0);
        close(&values, &stored(32), 1e-5, 0.0);
    }
    Ok(())
}

/// The choice of the largest of all columns, of which several are equal, without a second read.
#[test]
fn the_largest_column_is_found() -> ct::Result<()> {
    let [n, k] = [91, 8];
    for m in [1, 34] {
        // Small integers: sums are exact, and many are equal. All of the first row are negative.
        let a = |i: usize, t: usize| if i == 0 { -1.0 } else { ((i * 7 + t * 3) % 5) as f64 - 2.0 };
        let b = |t: usize, j: usize| ((j * 11 + t * 5) % 4) as f64 + 1.0;
        let x = device().from_fn([m, k], |[i, t]| a(i, t) as f32)?;
        let w = device().from_fn([n, k], |[j, t]| b(t, j) as f32)?;
        let groups = n.div_ceil(16);
        let (mut y, mut tokens) = (zeros::<f32, 2>([m, n])?, zeros::<i32, 1>([m])?);
        let (mut values, mut columns) = (zeros::<f32, 2>([groups, m])?, zeros::<i32, 2>([groups, m])?);
        overlapped(|| {
            let by = matmul().largest(values.view_mut(), columns.view_mut(), 16);
            match m {
                1 => by.launch_vector(&stream(), x.view(), w.view(), y.view_mut(), None)?,
                _ => by.launch(&stream(), x.view(), w.view().transpose()?, y.view_mut())?,
            }
            largest_of_groups(&stream(), values.view(), columns.view(), tokens.view_mut())
        })?;
        let [sums, _] = product([m, n, k], a, b);
        let first = |row: &[f64]| {
            let largest = row.iter().copied().fold(f64::MIN, f64::max);
            row.iter().position(|&x| x == largest).expect("a column") as i32
        };
        assert_eq!(tokens.to_vec()?, sums.chunks(n).map(first).collect::<Vec<_>>());
    }
    Ok(())
}
