//! Bits of a row: each kernel of rows runs for one row, and inside of a batch of 64 rows. The table of
//! `kernels/README.md` lists the kernels. On a GPU, softmax, norms and losses select tiles by the number of
//! rows, so that their rows are compared on the CPU alone.

use cutlet as ct;
use cutlet::element::f16;
use cutlet::{DeviceArray, DeviceView, DeviceViewMut, Element, Stream};
use cutlet_kernels::images::{Window, average_pool, max_pool};
use cutlet_kernels::losses::CrossEntropy;
use cutlet_kernels::moe::{Router, Scores};
use cutlet_kernels::norms::{Gate, add_layer_norm, add_rms_norm, gated, log_softmax, sparsemax};
use cutlet_kernels::numbers::hadamard;
use cutlet_kernels::order::{Selected, greedy, top_k};
use cutlet_kernels::products::matmul;
use cutlet_kernels::{layer_norm, rms_norm, softmax};

use crate::support::{device, random};

const BATCH: usize = 64;

/// Rows that are compared.
const ROWS: [usize; 3] = [0, 17, BATCH - 1];

fn bits<T: Element, const R: usize>(array: &DeviceArray<T, R>) -> ct::Result<Vec<u64>> {
    Ok(array.to_vec()?.into_iter().map(Element::to_bits).collect())
}

/// Compares the results of rows along axis 0, of shape `result` each, with those of the same rows alone.
#[track_caller]
fn agree<T: Element, O: Element, const R: usize, const S: usize>(
    (row, result): ([usize; R], [usize; S]),
    launch: impl Fn(&Stream, DeviceView<T, R>, DeviceViewMut<O, S>) -> ct::Result<()>,
) -> ct::Result<()> {
    let stream = device().default_stream();
    let rows = |shape: [usize; R], n: usize| {
        let mut shape = shape;
        shape[0] = n;
        shape
    };
    let (x, _) = random::<T, R>(7, rows(row, BATCH), 2.0)?;
    let of = |n: usize| {
        let mut shape = result;
        shape[0] = n;
        device().zeros::<O, S>(shape)
    };
    let mut all = of(BATCH)?;
    launch(&stream, x.view(), all.view_mut())?;
    let all = bits(&all)?;
    let len = all.len() / BATCH;
    for number in ROWS {
        let mut one = of(1)?;
        launch(&stream, x.slice(0, number..number + 1)?, one.view_mut())?;
        assert_eq!(bits(&one)?, all[number * len..][..len], "row {number}");
    }
    Ok(())
}

#[test]
fn softmaxes() -> ct::Result<()> {
    if device().target().is_some() {
        return Ok(());
    }
    for columns in [100, 1000] {
        let shape = ([1, columns], [1, columns]);
        agree::<f32, f32, 2, 2>(shape, softmax)?;
        agree::<f16, f16, 2, 2>(shape, softmax)?;
        agree::<f32, f32, 2, 2>(shape, log_softmax)?;
    }
    agree::<f32, f32, 2, 2>(([1, 100], [1, 100]), sparsemax)
}

#[test]
fn norms() -> ct::Result<()> {
    if device().target().is_some() {
        return Ok(());
    }
    for columns in [96, 1000] {
        let (weight, _) = random::<f32, 1>(1, [columns], 1.0)?;
        let shape = ([1, columns], [1, columns]);
        agree::<f32, f32, 2, 2>(shape, |stream, x, y| rms_norm(stream, x, weight.view(), y, 1e-5))?;
        agree::<f32, f32, 2, 2>(shape, |stream, x, y| layer_norm(stream, x, [weight.view(), weight.view()], y, 1e-5))?;
        agree::<f32, f32, 2, 2>(shape, |stream, x, y| {
            let mut sum = device().zeros::<f32, 2>(x.shape())?;
            add_rms_norm(stream, [x, x], weight.view(), [sum.view_mut(), y], 1e-5)
        })?;
        agree::<f32, f32, 2, 2>(shape, |stream, x, y| {
            let mut sum = device().zeros::<f32, 2>(x.shape())?;
            add_layer_norm(stream, [x, x], [weight.view(), weight.view()], [sum.view_mut(), y], 1e-5)
        })?;
        agree::<f32, f32, 2, 2>(shape, |stream, x, y| gated(stream, [x, x], y, Gate::Silu))?;
    }
    agree::<f32, f32, 2, 2>(([1, 256], [1, 256]), |stream, x, y| hadamard(stream, x, y, 1.0))
}

#[test]
fn losses_and_choices() -> ct::Result<()> {
    if device().target().is_some() {
        return Ok(());
    }
    agree::<f32, f32, 2, 1>(([1, 1000], [1]), |stream, x, loss| {
        let labels = device().full([x.shape()[0]], 3)?;
        CrossEntropy::new().forward(stream, x, labels.view(), loss)
    })?;
    agree::<f32, i32, 2, 1>(([1, 1000], [1]), greedy)?;
    agree::<f32, f32, 2, 2>(([1, 1000], [1, 10]), |stream, x, values| {
        let mut positions = device().zeros::<i32, 2>(values.shape())?;
        top_k(stream, x, (values, positions.view_mut()), Selected::Sorted)
    })?;
    agree::<f32, f32, 2, 2>(([1, 64], [1, 4]), |stream, x, weights| {
        let mut experts = device().zeros::<i32, 2>(weights.shape())?;
        let router = Router { scores: Scores::Softmax, normalised: true, scale: 1.0 };
        router.launch(stream, x, None, (experts.view_mut(), weights))
    })
}

#[test]
fn pooling() -> ct::Result<()> {
    let window = Window { size: [2, 2], stride: [2, 2], padding: [0, 0] };
    let shape = ([1, 8, 8, 16], [1, 4, 4, 16]);
    agree::<f32, f32, 4, 4>(shape, |stream, x, y| max_pool(stream, window, x, y))?;
    agree::<f32, f32, 4, 4>(shape, |stream, x, y| average_pool(stream, window, x, y))
}

#[test]
fn products() -> ct::Result<()> {
    let (weights, _) = random::<f16, 2>(3, [64, 48], 1.0)?;
    agree::<f16, f16, 2, 2>(([1, 64], [1, 48]), |stream, x, y| matmul().launch(stream, x, weights.view(), y))
}
