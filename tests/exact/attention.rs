//! Attention: the textbook form against the online forms of several tiles, and the example.

use cutlet as ct;
use cutlet::prelude::*;

use super::{assert_equal, bits, exact, noise, places};

#[path = "../../examples/attention.rs"]
#[allow(dead_code)]
mod example;

const QUERIES: usize = 24;
const KEYS: usize = 40;
const DIM: usize = 16;

/// softmax(Q K^T) V with all keys in one tile, and weights that are divided before the product.
fn textbook(
    (q, k, v): (Array<f16, 2>, Array<f16, 2>, Array<f16, 2>),
    out: ArrayMut<f32, 2>,
    scale: Scalar<f32>,
    causal: bool,
) {
    let (m, n, d) = (32, 64, DIM);
    let [queries, keys, values] = [(q, m), (k, n), (v, n)].map(|(x, rows)| x.load((0, 0), [rows, d]).cast::<f32>());
    let scores = (queries.unsqueeze(1) * keys.unsqueeze(0)).sum(2).squeeze(2) * scale;
    let place = ct::arange(0..n).unsqueeze(0).broadcast_to([m, n]);
    let visible = place.lt(if causal { ct::arange(1..m + 1).unsqueeze(1) } else { ct::full([m, 1], KEYS as i32) });
    let scores = ct::select(visible, scores, f32::NEG_INFINITY);
    let weights = (scores - scores.reduce_max(1)).exp();
    let weights = weights / weights.sum(1);
    out.store((0, 0), (weights.unsqueeze(2) * values.unsqueeze(0)).sum(1).squeeze(1));
}

/// The online form (Milakov and Gimelshein, 2018): a tile of keys at a time, the sums rescaled by
/// each new maximum.
fn online(
    (q, k, v): (Array<f16, 2>, Array<f16, 2>, Array<f16, 2>),
    out: ArrayMut<f32, 2>,
    scale: Scalar<f32>,
    (m, n, causal): (usize, usize, bool),
) {
    let tile = ct::bid(0);
    let queries = q.load((tile, 0), [m, DIM]);
    let row = tile * m + ct::arange_from(m, 1, 1);
    let (seen, most) = match causal {
        true => (row, (tile * m + m).min(k.extent(0))),
        false => (ct::full([m], k.extent(0)), k.extent(0)),
    };
    let start = (ct::zeros::<f32, 2>([m, DIM]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros([m, 1]));
    let (sums, _, total) = ct::fold(..most.ceil_div(n), start, |(sums, max, total), j| {
        let [keys, values] = [k, v].map(|x| x.load((j, 0), [n, DIM]));
        let scores = ct::mma(queries, keys.transpose(), ct::zeros::<f32, 2>([m, n])) * scale;
        let visible = (j * n + ct::arange(0..n)).unsqueeze(0).lt(seen.unsqueeze(1));
        let scores = ct::select(visible, scores, f32::NEG_INFINITY);
        let new = max.max(scores.reduce_max(1));
        let (weights, decay) = ((scores - new).exp(), (max - new).exp());
        (ct::mma(weights.cast::<f16>(), values, sums * decay), new, total * decay + weights.sum(1))
    });
    out.store((tile, 0), sums / total);
}

#[test]
fn textbook_and_online_forms_are_equal() -> ct::Result<()> {
    for causal in [false, true] {
        let mut results = Vec::new();
        for (device, backend) in places() {
            let array = |rows, way| device.from_fn([rows, DIM], |[i, j]| f16::from_f32(noise(i * DIM + j, way)));
            let (q, k, v) = (array(QUERIES, 1)?, array(KEYS, 2)?, array(KEYS, 3)?);
            let scale = 0.3f32;
            let mut out = device.zeros([QUERIES, DIM])?;
            exact(1, backend).launch(textbook, ((&q, &k, &v), &mut out, scale, Constant(causal)))?;
            results.push((format!("textbook, causal {causal}, on {backend}"), bits(&out)?));
            for (m, n) in [(16, 16), (16, 64), (32, 32)] {
                let mut out = device.zeros([QUERIES, DIM])?;
                let form = Constant((m, n, causal));
                exact(QUERIES.div_ceil(m), backend).launch(online, ((&q, &k, &v), &mut out, scale, form))?;
                results.push((format!("{m} x {n}, causal {causal}, on {backend}"), bits(&out)?));
            }
        }
        assert_equal(&results);
    }
    Ok(())
}

#[test]
fn the_example_is_equal_for_all_tiles() -> ct::Result<()> {
    let mut results = Vec::new();
    for (device, backend) in places() {
        let array =
            |way| device.from_fn([1, 2, KEYS, DIM], |[_, h, i, j]| f16::from_f32(noise((h * KEYS + i) * DIM + j, way)));
        let (q, k, v) = (array(4)?, array(5)?, array(6)?);
        for (m, n) in [(16, 16), (32, 64)] {
            let mut out = device.zeros([1, 2, KEYS, DIM])?;
            let form = Constant(example::Form { tile: [m, n, DIM], group: 1, causal: true });
            let args = ((&q, &k, &v), (&mut out, example::NO_LOGS), 0.3f32, form);
            exact([KEYS.div_ceil(m), 2, 1], backend).launch(example::attention::<f16>, args)?;
            results.push((format!("{m} x {n} on {backend}"), bits(&out)?));
        }
    }
    assert_equal(&results);
    Ok(())
}
