//! Products: all configurations, batches, groups, steps of a vector, epilogues, and experts against
//! dense products.

use cutlet as ct;
use cutlet::element::CastTo;
use cutlet::prelude::*;
use cutlet_kernels::matmul;
use cutlet_kernels::moe::{Alignment, Rows, combine, product};
use cutlet_kernels::products::{Configuration, Share};

use super::{Results, stream};
use crate::support::{device, random};

/// The product of the textbook: an element of the result per tile block.
fn textbook<T: CastTo<f32>>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<f32, 2>, k: usize) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let [row, column] = [a.load((i, 0), [1, k]).reshape([k]), b.load((0, j), [k, 1]).reshape([k])];
    let sum = (row.cast::<f32>() * column.cast::<f32>()).sum(0);
    c.store((i, j), sum.reshape([1, 1]));
}

const SHAPE: [usize; 3] = [37, 50, 90];

fn configurations() -> Vec<Configuration> {
    let tiles = Configuration::new([32, 32, 16]);
    vec![
        tiles,
        Configuration::new([16, 64, 32]),
        tiles.share(Share::Persistent),
        tiles.share(Share::Split(3)),
        tiles.share(Share::Split(25)),
        tiles.share(Share::Terms),
        Configuration { turned: true, ..tiles },
        Configuration { turned: true, ..tiles.share(Share::Split(2)) },
    ]
}

#[test]
fn tiles_and_splits() -> ct::Result<()> {
    let [m, n, k] = SHAPE;
    let ((a, _), (b, _)) = (random::<f16, 2>(1, [m, k], 1.0)?, random::<f16, 2>(2, [k, n], 1.0)?);
    let mut results = Results::default();
    results.add("textbook", || {
        let mut c = device().zeros::<f32, 2>([m, n])?;
        ct::launch(textbook::<f16>, [m, n], (&a, &b, &mut c, Constant(k.next_power_of_two())))?;
        Ok(c)
    })?;
    for one in configurations() {
        results.add(format!("{one:?}"), || {
            let mut c = device().zeros::<f32, 2>([m, n])?;
            matmul().configuration(one).launch(&stream(), a.view(), b.view(), c.view_mut())?;
            Ok(c)
        })?;
    }
    results.agree();
    Ok(())
}

/// Results of 16 bits: parts are added in 32 bits, and the low bits are stored.
#[test]
fn narrow_results_and_epilogues() -> ct::Result<()> {
    let [m, n, k] = SHAPE;
    let ((a, _), (b, _)) = (random::<bf16, 2>(1, [m, k], 1.0)?, random::<bf16, 2>(2, [k, n], 1.0)?);
    let ((bias, _), (other, _)) = (random::<f32, 1>(3, [n], 1.0)?, random::<f32, 2>(4, [m, n], 1.0)?);
    let mut results = Results::default();
    results.add("separate kernels", || {
        let (mut sums, mut c) = (device().zeros::<f32, 2>([m, n])?, device().zeros::<bf16, 2>([m, n])?);
        ct::launch(textbook::<bf16>, [m, n], (&a, &b, &mut sums, Constant(k.next_power_of_two())))?;
        let finish = |(x, bias, other): (Array<f32, 2>, Array<f32, 1>, Array<f32, 2>), c: ArrayMut<bf16, 2>| {
            let at = (ct::bid(0), ct::bid(1));
            let sum = x.load(at, [8, 64]) + bias.load(at.1, [64]).unsqueeze(0);
            c.store(at, (sum.silu() + other.load(at, [8, 64])).cast::<bf16>());
        };
        ct::launch(finish, [m.div_ceil(8), n.div_ceil(64)], ((&sums, &bias, &other), &mut c))?;
        Ok(c)
    })?;
    for one in configurations() {
        results.add(format!("{one:?}"), || {
            let mut c = device().zeros::<bf16, 2>([m, n])?;
            let product = matmul().configuration(one).bias(bias.view()).silu().residual(other.view());
            product.launch(&stream(), a.view(), b.view(), c.view_mut())?;
            Ok(c)
        })?;
    }
    results.agree();
    Ok(())
}

#[test]
fn batches_and_groups() -> ct::Result<()> {
    let ([m, n, k], groups) = (SHAPE, 3);
    let ((a, _), (b, _)) = (random::<f16, 2>(1, [groups * m, k], 1.0)?, random::<f16, 3>(2, [groups, k, n], 1.0)?);
    let rows = |group: usize| group * m..(group + 1) * m;
    let starts: Vec<i32> = (0..=groups).map(|group| (group * m) as i32).collect();
    let starts = device().array(&starts, [groups + 1])?;
    let mut results = Results::default();
    results.add("one after another", || {
        let mut c = device().zeros::<f32, 2>([groups * m, n])?;
        for group in 0..groups {
            let (left, right) = (a.slice(0, rows(group))?, b.slice(0, group..group + 1)?.reshape([k, n])?);
            matmul().launch(&stream(), left, right, c.view_mut().slice(0, rows(group))?)?;
        }
        Ok(c)
    })?;
    for one in configurations().into_iter().filter(|one| !one.turned) {
        results.add(format!("batch, {one:?}"), || {
            let mut c = device().zeros::<f32, 2>([groups * m, n])?;
            let left = a.view().reshape([groups, m, k])?;
            let of_groups = c.view_mut().reshape([groups, m, n])?;
            matmul().configuration(one).launch_batched(&stream(), left, b.view(), of_groups)?;
            Ok(c)
        })?;
        if matches!(one.share, Share::Tiles | Share::Persistent) {
            results.add(format!("groups, {one:?}"), || {
                let mut c = device().zeros::<f32, 2>([groups * m, n])?;
                let product = matmul().configuration(one);
                product.launch_grouped(&stream(), a.view(), b.view(), starts.view(), c.view_mut())?;
                Ok(c)
            })?;
        }
    }
    results.agree();
    Ok(())
}

/// Sums over experts of weighted products, for tiles of several sizes, against a product of each
/// token.
#[test]
fn experts() -> ct::Result<()> {
    let ([tokens, taken, experts], [n, k]) = ([11, 2, 3], [40, 24]);
    let choice: Vec<i32> = (0..tokens * taken).map(|at| ((at / taken + at % taken) % experts) as i32).collect();
    let ((x, _), (w, _)) = (random::<f32, 2>(1, [tokens, k], 1.0)?, random::<f32, 3>(2, [experts, n, k], 1.0)?);
    let (factors, _) = random::<f32, 2>(3, [tokens, taken], 1.0)?;
    let places = device().array(&choice, [tokens, taken])?;
    let mut results = Results::default();
    results.add("textbook", || {
        let mut y = device().zeros::<f32, 2>([tokens, n])?;
        let kernel = |x: Array<f32, 2>,
                      w: Array<f32, 3>,
                      (experts, factors): (Array<i32, 2>, Array<f32, 2>),
                      y: ArrayMut<f32, 2>| {
            let (token, j) = (ct::bid(0), ct::bid(1));
            let x = x.load((token, 0), [1, 32]).reshape([32]);
            let sum = ct::fold(..factors.extent(1), ct::zeros::<f32, 0>([]), |sum, slot| {
                let weight = w.load((experts.load_scalar((token, slot)), j, 0), [1, 1, 32]).reshape([32]);
                sum + (x * weight).sum(0).squeeze(0) * factors.load_scalar((token, slot))
            });
            y.store((token, j), sum.reshape([1, 1]));
        };
        ct::launch(kernel, [tokens, n], (&x, &w, (&places, &factors), &mut y))?;
        Ok(y)
    })?;
    for tile in [4, 16] {
        results.add(format!("tiles of {tile}"), || {
            let mut alignment = Alignment::new(&stream(), [tokens, taken], experts, tile)?;
            alignment.launch(&stream(), places.view())?;
            let mut out = device().zeros::<f32, 2>([alignment.num_places(), n])?;
            let mut y = device().zeros::<f32, 2>([tokens, n])?;
            product(&stream(), (x.view(), Rows::Tokens), w.view(), &alignment, out.view_mut())?;
            combine(&stream(), out.view(), &alignment, factors.view(), y.view_mut())?;
            Ok(y)
        })?;
    }
    results.agree();
    Ok(())
}
