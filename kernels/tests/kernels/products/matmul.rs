//! Products of two matrices, of all element types and configurations.

use cutlet as ct;
use cutlet::element::Element;
use cutlet::prelude::*;
use cutlet_kernels::matmul;
use cutlet_kernels::products::{Configuration, Factor, Precision, Share, Workspace};

use super::{near, product, stream, zeros};
use crate::support::{device, random};

const SHAPES: [[usize; 3]; 4] = [[1, 1, 1], [70, 50, 40], [33, 130, 77], [5, 64, 200]];

fn check<T: Factor, O: Element>(precision: Precision, scale: f64, tolerance: f64) -> ct::Result<()> {
    for (seed, [m, n, k]) in SHAPES.into_iter().enumerate() {
        let (a, x) = random::<T, 2>(2 * seed as u64, [m, k], scale)?;
        let (b, y) = random::<T, 2>(2 * seed as u64 + 1, [n, k], scale)?;
        let mut c = zeros::<O, 2>([m, n])?;
        matmul().precision(precision).launch(&stream(), a.view(), b.view().transpose()?, c.view_mut())?;
        let [want, sizes] = product([m, n, k], |i, l| x[i * k + l], |l, j| y[j * k + l]);
        near(&c, [&want, &sizes], tolerance);
    }
    Ok(())
}

#[test]
fn all_element_types_are_multiplied() -> ct::Result<()> {
    check::<f16, f16>(Precision::Full, 1.0, 1e-3)?;
    check::<f16, f32>(Precision::Full, 1.0, 2e-6)?;
    check::<bf16, bf16>(Precision::Full, 1.0, 5e-3)?;
    check::<f32, f32>(Precision::Full, 1.0, 1e-6)?;
    check::<f32, f32>(Precision::Fast, 1.0, 1e-3)?;
    check::<f64, f64>(Precision::Full, 1.0, 1e-14)?;
    check::<f8e4m3fn, f16>(Precision::Full, 1.0, 1e-3)?;
    check::<f8e5m2, bf16>(Precision::Full, 1.0, 5e-3)?;
    check::<f8e4m3fn, f32>(Precision::Fast, 1.0, 2e-3)?;
    check::<i8, i32>(Precision::Full, 127.0, 0.0)
}

#[test]
fn all_configurations_have_the_same_result() -> ct::Result<()> {
    let [m, n, k] = [100, 150, 300];
    let ((a, x), (b, y)) = (random::<f16, 2>(1, [m, k], 1.0)?, random::<f16, 2>(2, [k, n], 1.0)?);
    let [want, sizes] = product([m, n, k], |i, l| x[i * k + l], |l, j| y[l * n + j]);
    let tiles = Configuration::new([32, 64, 16]);
    for one in [
        tiles,
        tiles.share(Share::Persistent),
        tiles.share(Share::Split(1)),
        tiles.share(Share::Split(3)),
        // More parts than steps.
        tiles.share(Share::Split(25)),
        tiles.share(Share::Terms),
        Configuration { turned: true, ..tiles },
        Configuration { turned: true, ..tiles.share(Share::Split(2)) },
    ] {
        let mut c = zeros::<f32, 2>([m, n])?;
        for _ in 0..2 {
            matmul().configuration(one).launch(&stream(), a.view(), b.view(), c.view_mut())?;
        }
        near(&c, [&want, &sizes], 2e-6);
    }
    Ok(())
}

#[test]
fn a_workspace_serves_products_of_all_types() -> ct::Result<()> {
    let mut workspace = Workspace::new(device())?;
    for (seed, [m, n, k]) in [[20, 30, 100], [70, 90, 300], [10, 20, 50]].into_iter().enumerate() {
        let one = Configuration::new([32, 32, 16]).share(Share::Split(3));
        let ((a, x), (b, y)) = (random::<i8, 2>(seed as u64, [m, k], 9.0)?, random::<i8, 2>(5, [k, n], 9.0)?);
        let (mut c, mut d) = (zeros::<i32, 2>([m, n])?, zeros::<f32, 2>([m, n])?);
        matmul().configuration(one).workspace(&mut workspace).launch(&stream(), a.view(), b.view(), c.view_mut())?;
        let [want, sizes] = product([m, n, k], |i, l| x[i * k + l], |l, j| y[l * n + j]);
        near(&c, [&want, &sizes], 0.0);
        let (a, b) = (numbers(&x, [m, k])?, numbers(&y, [k, n])?);
        for share in [Share::Split(4), Share::Terms, Share::Split(2)] {
            let product = matmul().configuration(one.share(share)).workspace(&mut workspace);
            product.launch(&stream(), a.view(), b.view(), d.view_mut())?;
            near(&d, [&want, &sizes], 0.0);
        }
    }
    Ok(())
}

/// Returns an array of f16 of these values.
fn numbers(values: &[f64], shape: [usize; 2]) -> ct::Result<ct::DeviceArray<f16, 2>> {
    device().array(&values.iter().map(|&x| f16::from_f64(x)).collect::<Vec<_>>(), shape)
}

#[test]
fn views_are_operands() -> ct::Result<()> {
    let [m, n, k] = [40, 30, 20];
    let ((a, x), (b, y)) = (random::<f32, 2>(1, [k, 2 * m], 1.0)?, random::<f32, 2>(2, [k + 3, n], 1.0)?);
    let mut c = zeros::<f32, 2>([n + 1, m])?;
    let left = a.view().step(1, 2)?.transpose()?;
    let result = c.view_mut().slice(0, 1..)?.transpose()?;
    matmul().launch(&stream(), left, b.view().slice(0, 3..)?, result)?;
    let [want, sizes] = product([n, m, k], |j, l| y[(l + 3) * n + j], |l, i| x[l * 2 * m + 2 * i]);
    let (mut all, mut all_sizes) = (vec![0.0; m], vec![0.0; m]);
    all.extend(want);
    all_sizes.extend(sizes);
    near(&c, [&all, &all_sizes], 1e-6);
    Ok(())
}

#[test]
fn empty_operands_are_products() -> ct::Result<()> {
    for [m, n, k] in [[0, 4, 4], [4, 0, 4], [4, 4, 0]] {
        let (a, b) = (zeros::<f16, 2>([m, k])?, zeros::<f16, 2>([k, n])?);
        let bias = stream().device().full([n], f16::from_f32(2.0))?;
        let mut c = zeros::<f16, 2>([m, n])?;
        matmul().bias(bias.view()).launch(&stream(), a.view(), b.view(), c.view_mut())?;
        assert!(c.to_vec()?.iter().all(|x| x.to_f32() == 2.0));
    }
    Ok(())
}

#[test]
fn other_shapes_are_refused() -> ct::Result<()> {
    let (a, b, mut c) = (zeros::<f16, 2>([4, 5])?, zeros::<f16, 2>([6, 7])?, zeros::<f16, 2>([4, 7])?);
    let error = matmul().launch(&stream(), a.view(), b.view(), c.view_mut()).unwrap_err().to_string();
    assert!(error.contains("operands of shapes [4, 5] and [6, 7]"), "{error}");
    let b = zeros::<f16, 2>([5, 8])?;
    let error = matmul().launch(&stream(), a.view(), b.view(), c.view_mut()).unwrap_err().to_string();
    assert!(error.contains("a result of shape [4, 7], not [4, 8]"), "{error}");
    let bias = zeros::<f16, 1>([7])?;
    let error = matmul().bias(bias.view()).launch(&stream(), a.view(), b.view(), c.view_mut()).unwrap_err().to_string();
    assert!(error.contains("a bias of shape [7] for a result of shape [4, 8]"), "{error}");
    Ok(())
}
