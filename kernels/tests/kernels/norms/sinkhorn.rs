//! Sinkhorn normalization against the same steps in f64.

use cutlet as ct;
use cutlet_kernels::norms::sinkhorn;

use crate::support::{close, device, random};

fn reference(x: &[f64], n: usize, steps: usize, epsilon: f64) -> Vec<f64> {
    let mut y: Vec<f64> = Vec::new();
    for row in x.chunks_exact(n) {
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|x| (x - largest).exp()).sum();
        y.extend(row.iter().map(|x| (x - largest).exp() / sum + epsilon));
    }
    let divide = |y: &mut Vec<f64>, place: fn(usize, usize, usize) -> usize| {
        for i in 0..n {
            let sum: f64 = (0..n).map(|j| y[place(i, j, n)]).sum();
            (0..n).for_each(|j| y[place(i, j, n)] /= sum + epsilon);
        }
    };
    divide(&mut y, |column, row, n| row * n + column);
    for _ in 1..steps {
        divide(&mut y, |row, column, n| row * n + column);
        divide(&mut y, |column, row, n| row * n + column);
    }
    y
}

fn check([count, n]: [usize; 2], steps: usize, scale: f64) -> ct::Result<()> {
    let (x, exact) = random::<f32, 3>(3, [count, n, n], scale)?;
    let mut y = device().full([count, n, n], 9.0f32)?;
    sinkhorn(&device().default_stream(), x.view(), y.view_mut(), steps, 1e-6)?;
    let want: Vec<f64> = exact.chunks_exact(n * n).flat_map(|x| reference(x, n, steps, 1e-6)).collect();
    close(&y, &want, 1e-6, 2e-5);
    Ok(())
}

#[test]
fn matrices_of_all_sizes() -> ct::Result<()> {
    check([300, 4], 10, 2.0)?;
    check([1, 1], 3, 2.0)?;
    check([130, 3], 5, 3.0)?;
    check([20, 16], 2, 1.0)?;
    check([9, 11], 1, 1.0)
}

#[test]
fn magnitudes_beyond_the_range_of_exponentials() -> ct::Result<()> {
    check([40, 4], 10, 300.0)
}

#[test]
fn shapes_that_do_not_fit() -> ct::Result<()> {
    let (x, mut y) = (device().zeros([1, 17, 17])?, device().zeros([1, 17, 17])?);
    let fault = sinkhorn(&device().default_stream(), x.view(), y.view_mut(), 1, 0.0).unwrap_err().to_string();
    assert!(fault.contains("at most 16 rows") && fault.contains("sinkhorn.rs"), "{fault}");
    let (x, mut y) = (device().zeros([1, 4, 4])?, device().zeros([1, 4, 4])?);
    let fault = sinkhorn(&device().default_stream(), x.view(), y.view_mut(), 0, 0.0);
    assert!(fault.unwrap_err().to_string().contains("no step"));
    Ok(())
}
