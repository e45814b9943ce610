//! Products of 8-bit operands with scales.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet_kernels::matmul;
use cutlet_kernels::products::Float8;

use super::{near, product, stream, zeros};
use crate::support::{device, random};

fn check<T: Float8>([m, n, k]: [usize; 3], by_column: bool) -> ct::Result<()> {
    let blocks = k.div_ceil(128);
    let ((a, x), (b, y)) = (random::<T, 2>(1, [m, k], 4.0)?, random::<T, 2>(2, [n, k], 4.0)?);
    let (rows, r) = random::<f32, 2>(3, [blocks, m], 1.0)?;
    let scales = if by_column { n } else { n.div_ceil(128) };
    let (columns, s) = random::<f32, 2>(4, [blocks, scales], 1.0)?;
    let (bias, u) = random::<f32, 1>(5, [n], 1.0)?;
    let scale = |l: usize, j: usize| s[l / 128 * scales + if by_column { j } else { j / 128 }];
    let left = |i: usize, l: usize| x[i * k + l] * r[l / 128 * m + i];
    let [want, sizes] = product([m, n, k], left, |l, j| y[j * k + l] * scale(l, j));
    let want: Vec<f64> = want.iter().enumerate().map(|(at, x)| x + u[at % n]).collect();
    let mut c = zeros::<f32, 2>([m, n])?;
    let operands = ((a.view(), rows.view()), (b.view().transpose()?, columns.view()));
    matmul().bias(bias.view()).launch_scaled(&stream(), operands.0, operands.1, c.view_mut())?;
    // Tensor cores keep about 13 bits of a sum of products.
    near(&c, [&want, &sizes], 2e-4);
    Ok(())
}

#[test]
fn blocks_have_scales() -> ct::Result<()> {
    check::<f8e4m3fn>([40, 300, 200], false)?;
    check::<f8e4m3fn>([33, 130, 256], true)?;
    check::<f8e5m2>([150, 260, 100], false)?;
    let (a, b) = (zeros::<f8e4m3fn, 2>([4, 256])?, zeros::<f8e4m3fn, 2>([256, 300])?);
    let (rows, columns, mut c) = (zeros::<f32, 2>([2, 4])?, zeros::<f32, 2>([2, 2])?, zeros::<f32, 2>([4, 300])?);
    let error = matmul().launch_scaled(&stream(), (a.view(), rows.view()), (b.view(), columns.view()), c.view_mut());
    assert!(error.unwrap_err().to_string().contains("scales of shape [2, 2], not [2, 3] or [2, 300]"));
    Ok(())
}

/// Rows of the groups, columns and terms.
fn check_groups(sizes: &[usize], [n, k]: [usize; 2], by_column: bool) -> ct::Result<()> {
    let (m, groups, blocks) = (sizes.iter().sum(), sizes.len(), k.div_ceil(128));
    let starts: Vec<usize> = (0..=groups).map(|group| sizes[..group].iter().sum()).collect();
    let ((a, x), (b, y)) = (random::<f8e4m3fn, 2>(1, [m, k], 4.0)?, random::<f8e4m3fn, 3>(2, [groups, n, k], 4.0)?);
    let (rows, r) = random::<f32, 2>(3, [blocks, m], 1.0)?;
    let scales = if by_column { n } else { n.div_ceil(128) };
    let (columns, s) = random::<f32, 3>(4, [groups, blocks, scales], 1.0)?;
    let mut c = zeros::<f32, 2>([m, n])?;
    let of_device: Vec<i32> = starts.iter().map(|&start| start as i32).collect();
    let offsets = device().array(&of_device, [groups + 1])?;
    let (left, right) = ((a.view(), rows.view()), (b.view().permute([0, 2, 1])?, columns.view()));
    matmul().launch_scaled_grouped(&stream(), left, right, offsets.view(), c.view_mut())?;
    let (mut want, mut all) = (Vec::new(), Vec::new());
    for (group, &size) in sizes.iter().enumerate() {
        let left = |i: usize, l: usize| x[(starts[group] + i) * k + l] * r[l / 128 * m + starts[group] + i];
        let right = |l: usize, j: usize| {
            let column = if by_column { j } else { j / 128 };
            y[(group * n + j) * k + l] * s[(group * blocks + l / 128) * scales + column]
        };
        let [of_group, sizes] = product([size, n, k], left, right);
        want.extend(of_group);
        all.extend(sizes);
    }
    near(&c, [&want, &all], 2e-4);
    Ok(())
}

#[test]
fn groups_have_scales() -> ct::Result<()> {
    check_groups(&[33, 0, 1, 70], [200, 200], false)?;
    check_groups(&[5, 40], [130, 256], true)?;
    let (a, b) = (zeros::<f8e4m3fn, 2>([4, 256])?, zeros::<f8e4m3fn, 3>([2, 256, 300])?);
    let (rows, columns, mut c) = (zeros::<f32, 2>([2, 4])?, zeros::<f32, 3>([2, 2, 2])?, zeros::<f32, 2>([4, 300])?);
    let offsets = device().array(&[0, 2, 4], [3])?;
    let (left, right) = ((a.view(), rows.view()), (b.view(), columns.view()));
    let error = matmul().launch_scaled_grouped(&stream(), left, right, offsets.view(), c.view_mut()).unwrap_err();
    assert!(error.to_string().contains("scales of shape [2, 2, 2], not [2, 2, 3] or [2, 2, 300]"));
    Ok(())
}

#[test]
fn integers_have_scales_of_rows_and_columns() -> ct::Result<()> {
    let [m, n, k] = [35, 70, 130];
    let ((a, x), (b, y)) = (random::<i8, 2>(1, [m, k], 127.0)?, random::<i8, 2>(2, [n, k], 127.0)?);
    let ((rows, r), (columns, s)) = (random::<f32, 1>(3, [m], 0.01)?, random::<f32, 1>(4, [n], 0.01)?);
    let [want, sizes] = product([m, n, k], |i, l| x[i * k + l] * r[i], |l, j| y[j * k + l] * s[j]);
    let mut c = zeros::<f32, 2>([m, n])?;
    let product = matmul().scale_rows(rows.view()).scale_columns(columns.view());
    product.launch(&stream(), a.view(), b.view().transpose()?, c.view_mut())?;
    near(&c, [&want, &sizes], 1e-6);
    Ok(())
}
