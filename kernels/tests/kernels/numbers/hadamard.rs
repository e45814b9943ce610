//! Hadamard transforms against sums with the signs of the matrix.

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::Number;
use cutlet_kernels::numbers::hadamard;

use crate::support::{close, device, random};

/// Element (i, j) of the matrix is -1 for an odd number of common bits, which halves of the vector
/// follow.
fn reference(x: &[f64]) -> Vec<f64> {
    if x.len() == 1 {
        return x.to_vec();
    }
    let (upper, lower) = x.split_at(x.len() / 2);
    let (a, b) = (reference(upper), reference(lower));
    let sums = a.iter().zip(&b).map(|(a, b)| a + b);
    sums.chain(a.iter().zip(&b).map(|(a, b)| a - b)).collect()
}

fn check<T: Number>(shape @ [_, n]: [usize; 2], relative: f64) -> ct::Result<()> {
    let device = device();
    let (x, exact) = random::<T, 2>(n as u64, shape, 1.0)?;
    let mut y = device.zeros::<T, 2>(shape)?;
    let factor = 1.0 / (n as f64).sqrt();
    hadamard(&device.default_stream(), x.view(), y.view_mut(), factor as f32)?;
    let want: Vec<f64> = exact.chunks(n).flat_map(reference).map(|x| x * factor).collect();
    close(&y, &want, 1e-5, relative);
    Ok(())
}

#[test]
fn rows_of_all_lengths() -> ct::Result<()> {
    for log in 5..=15 {
        check::<f32>([(1 << 11 >> log) + 1, 1 << log], 1e-5)?;
    }
    check::<bf16>([3, 512], 5e-3)?;
    // Products with exact matrices.
    check::<bf16>([3, 1 << 14], 5e-3)?;
    check::<f16>([2, 1 << 15], 1e-3)?;
    let device = device();
    let (x, mut y) = (device.zeros::<f32, 2>([2, 48])?, device.zeros([2, 48])?);
    let error = hadamard(&device.default_stream(), x.view(), y.view_mut(), 1.0).expect_err("48 columns");
    assert!(error.to_string().contains("48 columns"), "{error}");
    Ok(())
}
