//! Products of batches, and of groups of rows.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet_kernels::matmul;
use cutlet_kernels::products::{Configuration, Share};

use super::{near, product, stream, zeros};
use crate::support::{close, device, random};

#[test]
fn batches_are_multiplied() -> ct::Result<()> {
    let [batch, m, n, k] = [3, 40, 50, 35];
    let (a, x) = random::<bf16, 3>(1, [batch, k, m], 1.0)?;
    let (b, y) = random::<bf16, 3>(2, [batch, k, n], 1.0)?;
    let left = a.view().permute([0, 2, 1])?;
    let one = |h: usize| product([m, n, k], |i, l| x[(h * k + l) * m + i], |l, j| y[(h * k + l) * n + j]);
    let all: Vec<[Vec<f64>; 2]> = (0..batch).map(one).collect();
    let [want, sizes] = [0, 1].map(|part| all.iter().flat_map(|one| one[part].clone()).collect::<Vec<f64>>());
    let mut c = zeros::<f32, 3>([batch, m, n])?;
    matmul().launch_batched(&stream(), left, b.view(), c.view_mut())?;
    near(&c, [&want, &sizes], 2e-6);
    for share in [Share::Persistent, Share::Split(2), Share::Terms] {
        let one = Configuration::new([32, 32, 16]).share(share);
        matmul().configuration(one).launch_batched(&stream(), left, b.view(), c.view_mut())?;
        near(&c, [&want, &sizes], 2e-6);
    }

    let ((bias, u), (rows, v)) = (random::<f32, 2>(3, [batch, n], 1.0)?, random::<f32, 2>(4, [batch, m], 1.0)?);
    let (other, w) = random::<f32, 3>(5, [batch, m, n], 1.0)?;
    let product = matmul().bias(bias.view()).scale_rows(rows.view()).residual(other.view());
    product.launch_batched(&stream(), left, b.view(), c.view_mut())?;
    let values = want.iter().enumerate().map(|(at, x)| {
        let (row, j) = (at / n, at % n);
        (x + u[row / m * n + j]) * v[row] + w[at]
    });
    close(&c, &values.collect::<Vec<_>>(), 1e-5, 0.0);
    let short = zeros::<bf16, 3>([2, k, n])?;
    let error = matmul().launch_batched(&stream(), left, short.view(), c.view_mut()).unwrap_err().to_string();
    assert!(error.contains("operands of shapes [3, 40, 35] and [2, 35, 50]"), "{error}");
    Ok(())
}

#[test]
fn groups_begin_anywhere() -> ct::Result<()> {
    let (n, k) = (70, 40);
    for offsets in [vec![0, 5, 5, 6, 75, 80], vec![3, 40, 70], vec![0, 0, 0], vec![0, 33]] {
        let (groups, m) = (offsets.len() - 1, 90);
        let (a, x) = random::<f16, 2>(1, [m, k], 1.0)?;
        let (b, y) = random::<f16, 3>(2, [groups, k, n], 1.0)?;
        let ((bias, u), (rows, v)) = (random::<f32, 2>(3, [groups, n], 1.0)?, random::<f32, 1>(4, [m], 1.0)?);
        let (other, w) = random::<f32, 2>(5, [m, n], 1.0)?;
        let starts = device().array(&offsets, [groups + 1])?;
        let mut want = vec![7.0; m * n];
        for (group, bounds) in offsets.windows(2).enumerate() {
            for i in bounds[0] as usize..bounds[1] as usize {
                for j in 0..n {
                    let sum: f64 = (0..k).map(|l| x[i * k + l] * y[(group * k + l) * n + j]).sum();
                    want[i * n + j] = (sum + u[group * n + j]) * v[i] + w[i * n + j];
                }
            }
        }
        for one in [
            None,
            Some(Configuration::new([16, 64, 16])),
            Some(Configuration::new([64, 32, 16]).share(Share::Persistent)),
        ] {
            let mut c = device().full([m, n], 7.0f32)?;
            let mut product = matmul();
            if let Some(one) = one {
                product = product.configuration(one);
            }
            let product = product.bias(bias.view()).scale_rows(rows.view()).residual(other.view());
            product.launch_grouped(&stream(), a.view(), b.view(), starts.view(), c.view_mut())?;
            close(&c, &want, 1e-5, 0.0);
        }
    }
    Ok(())
}
