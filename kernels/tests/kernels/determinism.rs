//! Bits of several launches: kernels without float atomics have one order of sums, independently of
//! the schedule of the tile blocks.
//!
//! On a GPU the launches run at the same time as products of another stream, which occupy a part of
//! the multiprocessors. The orders of the interpreter are those of `properties`.

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::element::{bf16, f16};
use cutlet_kernels::attention::{Decode, Gradients, Pages};
use cutlet_kernels::images::Convolution;
use cutlet_kernels::losses::CrossEntropy;
use cutlet_kernels::norms::{group_norm_backward, layer_norm_backward};
use cutlet_kernels::order::{Combine, Prefix, prefix};
use cutlet_kernels::products::{Configuration, Share, matmul};

use crate::batch::bits;
use crate::support::{device, random};

/// Launches that are compared.
const LAUNCHES: usize = 6;

/// Operands and result of the products that run at the same time as a launch.
fn operands() -> ct::Result<[DeviceArray<f16, 2>; 3]> {
    let n = if device().target().is_some() { 1024 } else { 16 };
    Ok([device().zeros([n, n])?, device().zeros([n, n])?, device().zeros([n, n])?])
}

/// Compares the bits of launches, each with another amount of work at the same time.
#[track_caller]
fn repeats(launch: impl Fn() -> ct::Result<Vec<u64>>) -> ct::Result<()> {
    let (stream, [a, b, mut c]) = (device().stream()?, operands()?);
    let first = launch()?;
    for number in 1..LAUNCHES {
        for _ in 0..if device().target().is_some() { 3 * number } else { 0 } {
            matmul().launch(&stream, a.view(), b.view(), c.view_mut())?;
        }
        let again = launch()?;
        let differing = first.iter().zip(&again).filter(|(a, b)| a != b).count();
        assert!(differing == 0 && first.len() == again.len(), "launch {number}: {differing} results differ");
    }
    stream.synchronize()
}

#[test]
fn split_products() -> ct::Result<()> {
    let [m, n, k] = if device().target().is_some() { [300, 2000, 4000] } else { [40, 70, 300] };
    let (a, b) = (random::<f16, 2>(1, [m, k], 1.0)?.0, random::<f16, 2>(2, [k, n], 1.0)?.0);
    let tile = if device().target().is_some() { [128, 128, 64] } else { [32, 32, 32] };
    for share in [Share::Tiles, Share::Persistent, Share::Split(3), Share::Parts(3), Share::Terms] {
        repeats(|| {
            let mut c = device().zeros::<f16, 2>([m, n])?;
            let product = matmul().configuration(Configuration::new(tile).share(share));
            product.launch(&device().default_stream(), a.view(), b.view(), c.view_mut())?;
            bits(&c)
        })?;
    }
    Ok(())
}

#[test]
fn gradients_of_norms() -> ct::Result<()> {
    let rows = if device().target().is_some() { 3000 } else { 30 };
    for columns in [300, 3000] {
        let (x, (weight, _)) = (random::<bf16, 2>(1, [rows, columns], 1.0)?.0, random::<bf16, 1>(2, [columns], 1.0)?);
        repeats(|| {
            let mut dx = device().zeros::<bf16, 2>([rows, columns])?;
            let (mut dweight, mut dbias) = (device().zeros([columns])?, device().zeros([columns])?);
            let results = (dx.view_mut(), [dweight.view_mut(), dbias.view_mut()]);
            let inputs = [x.view(), x.view()];
            layer_norm_backward(&device().default_stream(), inputs, None, weight.view(), results, 1e-5)?;
            Ok([bits(&dx)?, bits(&dweight)?, bits(&dbias)?].concat())
        })?;
    }
    let (x, (weight, _)) = (random::<f32, 4>(1, [7, 24, 9, 9], 1.0)?.0, random::<f32, 1>(2, [24], 1.0)?);
    repeats(|| {
        let mut dx = device().zeros::<f32, 4>(x.shape())?;
        let (mut dweight, mut dbias) = (device().zeros([24])?, device().zeros([24])?);
        let results = (dx.view_mut(), [dweight.view_mut(), dbias.view_mut()]);
        group_norm_backward(&device().default_stream(), [x.view(), x.view()], 4, weight.view(), results, 1e-5)?;
        Ok([bits(&dx)?, bits(&dweight)?, bits(&dbias)?].concat())
    })
}

#[test]
fn losses_sums_and_images() -> ct::Result<()> {
    let tokens = if device().target().is_some() { 500 } else { 20 };
    let (x, (w, _)) = (random::<f16, 2>(1, [tokens, 64], 1.0)?.0, random::<f16, 2>(2, [300, 64], 1.0)?);
    let (labels, dloss) = (device().full([tokens], 3)?, device().full([tokens], 0.5f32)?);
    repeats(|| {
        let stream = device().default_stream();
        let (mut loss, mut logs) = (device().zeros([tokens])?, device().zeros([tokens])?);
        let results = (loss.view_mut(), logs.view_mut());
        CrossEntropy::new().linear_forward(&stream, (x.view(), w.view()), labels.view(), results)?;
        let (mut dx, mut dw) = (device().zeros::<f16, 2>(x.shape())?, device().zeros::<f16, 2>(w.shape())?);
        let (saved, gradients) = ((labels.view(), logs.view()), (dx.view_mut(), dw.view_mut()));
        CrossEntropy::new().linear_backward(
            &stream,
            (x.view(), w.view()),
            saved,
            dloss.view(),
            Some(128),
            gradients,
        )?;
        Ok([bits(&loss)?, bits(&dx)?, bits(&dw)?].concat())
    })?;
    let n = if device().target().is_some() { 1 << 20 } else { 5000 };
    let x = device().from_fn([n], |[i]| (i % 1000) as i32)?;
    repeats(|| {
        let mut y = device().zeros::<i32, 1>([n])?;
        prefix(&device().default_stream(), x.view(), y.view_mut(), (Combine::Sum, Prefix::Inclusive))?;
        bits(&y)
    })?;
    let (x, (dy, _)) = (random::<f16, 4>(1, [5, 9, 9, 32], 1.0)?.0, random::<f16, 4>(2, [5, 9, 9, 48], 1.0)?);
    repeats(|| {
        let mut dw = device().zeros::<f16, 4>([3, 3, 32, 48])?;
        let convolution = Convolution { padding: [1, 1], ..Convolution::default() };
        convolution.weight_gradient(&device().default_stream(), x.view(), dy.view(), dw.view_mut())?;
        bits(&dw)
    })
}

#[test]
fn attention() -> ct::Result<()> {
    let tokens = if device().target().is_some() { 500 } else { 40 };
    let all = [1, 2, 3, 4, 5].map(|seed| random::<f16, 4>(seed, [2, 2, tokens, 32], 1.0).expect("an array").0);
    let logs = device().full([2, 2, tokens], 4.0f32)?;
    repeats(|| {
        let [mut dq, mut dk, mut dv] =
            [(); 3].map(|()| device().zeros::<f16, 4>([2, 2, tokens, 32]).expect("an array"));
        let gradients = Gradients::new(0.2).causal(true).deterministic(true);
        let results = [dq.view_mut(), dk.view_mut(), dv.view_mut()];
        gradients.launch(&device().default_stream(), all.each_ref().map(|x| x.view()), logs.view(), results)?;
        Ok([bits(&dq)?, bits(&dk)?, bits(&dv)?].concat())
    })?;
    let keys = if device().target().is_some() { 4096 } else { 600 };
    let (q, k, v) = (
        random::<f16, 3>(1, [2, 4, 32], 1.0)?.0,
        random::<f16, 4>(2, [2, keys, 1, 32], 1.0)?.0,
        random::<f16, 4>(3, [2, keys, 1, 32], 1.0)?.0,
    );
    let k = k.reshape([2 * keys, 1, 1, 32])?;
    let v = v.reshape([2 * keys, 1, 1, 32])?;
    let table = device().from_fn([2, keys], |[s, i]| (s * keys + i) as i32)?;
    let lengths = device().array(&[keys as i32, keys as i32 / 3], [2])?;
    let pages = Pages { keys: k, values: v, table: table.view(), lengths: lengths.view() };
    let decode = Decode::new(0.2).parts(8);
    repeats(|| {
        let (mut y, mut scratch) =
            (device().zeros::<f16, 3>([2, 4, 32])?, decode.scratch(device(), q.shape(), &pages)?);
        decode.launch(&device().default_stream(), q.view(), pages, y.view_mut(), &mut scratch)?;
        bits(&y)
    })
}

/// The comparison fails for a result of another launch.
#[test]
fn another_result_is_found() {
    let calls = std::cell::Cell::new(0);
    let counted = || Ok(vec![calls.replace(calls.get() + 1) / 3]);
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| repeats(counted))).unwrap_err();
    assert!(found.downcast_ref::<String>().is_some_and(|text| text.contains("launch 3: 1 results differ")));
}
