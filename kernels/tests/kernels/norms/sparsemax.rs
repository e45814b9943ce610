//! Sparsemax against the definition by a sort (Martins and Astudillo, 2016, algorithm 1).

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::Number;
use cutlet_kernels::norms::{sparsemax, sparsemax_backward};

use crate::support::{close, device, random};

fn reference(row: &[f64]) -> Vec<f64> {
    let mut sorted = row.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let (mut sum, mut limit) = (0.0, 0.0);
    for (j, z) in sorted.iter().enumerate() {
        if 1.0 + (j + 1) as f64 * z <= sum + z {
            break;
        }
        sum += z;
        limit = (sum - 1.0) / (j + 1) as f64;
    }
    row.iter().map(|x| (x - limit).max(0.0)).collect()
}

fn compare<T: Number>(shape: [usize; 3], scale: f64, tolerance: f64) -> ct::Result<()> {
    let (x, exact) = random::<T, 3>(7, shape, scale)?;
    let (stream, columns) = (device().default_stream(), shape[2]);
    let mut y = device().zeros::<T, 3>(shape)?;
    sparsemax(&stream, x.view(), y.view_mut())?;
    let want: Vec<f64> = exact.chunks_exact(columns).flat_map(reference).collect();
    close(&y, &want, tolerance, tolerance);

    let (dy, gradient) = random::<T, 3>(8, shape, 1.0)?;
    let mut dx = device().zeros::<T, 3>(shape)?;
    sparsemax_backward(&stream, [y.view(), dy.view()], dx.view_mut())?;
    let y: Vec<f64> = y.to_vec()?.into_iter().map(|y| y.to_f64()).collect();
    let want = y.chunks_exact(columns).zip(gradient.chunks_exact(columns)).flat_map(|(y, dy)| {
        let inside = || y.iter().zip(dy).filter(|(y, _)| **y > 0.0).map(|(_, dy)| *dy);
        let mean = inside().sum::<f64>() / inside().count() as f64;
        y.iter().zip(dy).map(move |(y, dy)| if *y > 0.0 { dy - mean } else { 0.0 })
    });
    close(&dx, &want.collect::<Vec<_>>(), 2.0 * tolerance, tolerance);
    Ok(())
}

#[test]
fn rows_have_few_or_many_elements_above_zero() -> ct::Result<()> {
    compare::<f32>([2, 3, 100], 4.0, 2e-6)?;
    compare::<f32>([1, 2, 1000], 0.001, 2e-6)?;
    compare::<f16>([3, 2, 77], 3.0, 2e-3)?;
    compare::<bf16>([1, 3, 128], 1.0, 1e-2)?;
    compare::<f32>([1, 2, 1], 1.0, 1e-6)?;
    compare::<f32>([0, 2, 5], 1.0, 1e-6)
}

/// Parts of a row in the blocks of a cluster.
#[test]
fn rows_are_longer_than_a_tile() -> ct::Result<()> {
    compare::<f32>([1, 2, 20_000], 3.0, 2e-6)
}

#[test]
fn equal_and_extreme_elements_are_shared() -> ct::Result<()> {
    let x = device().array(&[5.0f32, 5.0, 5.0, 5.0, 1e30, -1e30, 0.0, f32::NEG_INFINITY], [2, 4])?;
    let mut y = device().zeros([2, 4])?;
    sparsemax(&device().default_stream(), x.view(), y.view_mut())?;
    assert_eq!(y.to_vec()?, [0.25, 0.25, 0.25, 0.25, 1.0, 0.0, 0.0, 0.0]);
    Ok(())
}

#[test]
fn shapes_are_checked() -> ct::Result<()> {
    let (x, mut y) = (device().zeros::<f32, 2>([2, 4])?, device().zeros([2, 5])?);
    let fault = sparsemax(&device().default_stream(), x.view(), y.view_mut()).err().map(|fault| fault.to_string());
    assert!(fault.is_some_and(|fault| fault.contains("sparsemax of an array of [2, 4] into one of [2, 5]")));
    Ok(())
}
