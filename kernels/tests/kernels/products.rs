//! Tests of `cutlet_kernels::products`.

mod batches;
mod code;
mod matmul;
mod packed;
mod scaled;
mod stages;
mod steps;

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, Stream};

use crate::support::device;

/// Returns the stream of the tests.
fn stream() -> Stream {
    device().default_stream()
}

/// Returns the product of matrices in f64, and the sums of the magnitudes of its terms.
fn product([m, n, k]: [usize; 3], a: impl Fn(usize, usize) -> f64, b: impl Fn(usize, usize) -> f64) -> [Vec<f64>; 2] {
    let (mut sums, mut sizes) = (vec![0.0; m * n], vec![0.0; m * n]);
    for i in 0..m {
        for l in 0..k {
            let x = a(i, l);
            for j in 0..n {
                let term = x * b(l, j);
                sums[i * n + j] += term;
                sizes[i * n + j] += term.abs();
            }
        }
    }
    [sums, sizes]
}

/// Panics at an element whose error is above a fraction of the magnitude of its terms.
#[track_caller]
fn near<T: Element, const R: usize>(result: &DeviceArray<T, R>, [want, sizes]: [&[f64]; 2], tolerance: f64) {
    let result = result.to_vec().expect("the result");
    assert_eq!(result.len(), want.len(), "number of elements");
    for (at, x) in result.iter().enumerate() {
        let error = (x.to_f64() - want[at]).abs();
        assert!(error <= tolerance * (sizes[at] + want[at].abs()), "element {at} is {x:?}, the reference {}", want[at]);
    }
}

/// Returns an array of zeros.
fn zeros<T: Element, const R: usize>(shape: [usize; R]) -> ct::Result<DeviceArray<T, R>> {
    device().zeros(shape)
}
