//! Attention: the form of the textbook against the online kernels, packed against padded sequences,
//! and decoding steps of several page sizes.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet_kernels::attention::{Combine, Decode, Pages, Prefill};

use super::{Results, stream};
use crate::support::{device, random};

const SCALE: f32 = 0.3;
const DIM: usize = 16;

/// softmax(scale · Q Kᵀ) V of a query per tile block, with all keys in one tile and without a
/// maximum.
fn textbook([q, k, v]: [Array<f16, 4>; 3], out: ArrayMut<f16, 4>, scale: Scalar<f32>, (keys, causal): (usize, bool)) {
    let [i, head, batch] = [0, 1, 2].map(ct::bid);
    let query = q.load((batch, head, i, 0), [1, 1, 1, DIM]).cast::<f32>().reshape([1, DIM]);
    let [k_tile, v_tile] =
        [k, v].map(|x| x.load((batch, head, 0, 0), [1, 1, keys, DIM]).cast::<f32>().reshape([keys, DIM]));
    // The same factors as those of the kernels: a product with the scale and log2(e).
    let scores = (query * k_tile).sum(1) * (scale * std::f32::consts::LOG2_E);
    let place = ct::arange(0..keys).unsqueeze(1);
    let seen = if causal { i + 1 + k.extent(2) - q.extent(2) } else { k.extent(2) };
    let weights = place.lt(seen).select(scores.exp2(), 0.0);
    let sum = (weights * v_tile).sum(0) / weights.sum(0);
    out.store((batch, head, i, 0), sum.cast::<f16>().reshape([1, 1, 1, DIM]));
}

#[test]
fn tiles_of_a_prefill() -> ct::Result<()> {
    for (queries, keys, causal) in [(70, 70, false), (70, 100, true), (200, 200, true)] {
        let shape = |rows| [1, 2, rows, DIM];
        let (q, _) = random::<f16, 4>(1, shape(queries), 2.0)?;
        let ((k, _), (v, _)) = (random::<f16, 4>(2, shape(keys), 2.0)?, random::<f16, 4>(3, shape(keys), 2.0)?);
        let mut results = Results::default();
        results.add("textbook", || {
            let mut out = device().zeros(shape(queries))?;
            let form = Constant((keys.next_power_of_two(), causal));
            ct::launch(textbook, [queries, 2, 1], ([&q, &k, &v], &mut out, SCALE, form))?;
            Ok(out)
        })?;
        results.add("kernel", || {
            let mut out = device().zeros(shape(queries))?;
            let prefill = Prefill::new(SCALE).causal(causal);
            prefill.launch(&stream(), [q.view(), k.view(), v.view()], out.view_mut(), None)?;
            Ok(out)
        })?;
        results.agree();
    }
    Ok(())
}

/// Pages of several sizes and orders, and both kernels that add the parts. The number of parts is a
/// part of the formula: their weights are powers of logarithms, which are one-way tags.
#[test]
fn pages_of_a_step() -> ct::Result<()> {
    let ([heads, key_heads, keys], parts) = ([4, 2, 128], 2);
    let (q, _) = random::<f16, 3>(1, [1, heads, DIM], 2.0)?;
    let ((_, k), (_, v)) =
        (random::<f16, 2>(2, [keys, key_heads * DIM], 2.0)?, random::<f16, 2>(3, [keys, key_heads * DIM], 2.0)?);
    let lengths = device().array(&[keys as i32 - 5], [1])?;
    let mut results = Results::default();
    for page in [16, 64] {
        let pages = keys / page;
        let table: Vec<i32> = (0..pages as i32).rev().collect();
        let of_pages = |x: &[f64]| {
            let width = key_heads * DIM;
            let rows = table.iter().flat_map(|&at| x[at as usize * page * width..][..page * width].iter());
            device().array(&rows.map(|&x| f16::from_f64(x)).collect::<Vec<f16>>(), [pages, page, key_heads, DIM])
        };
        let (k, v) = (of_pages(&k)?, of_pages(&v)?);
        let places = device().array(&table, [1, pages])?;
        for combine in [Combine::LastBlock, Combine::SecondKernel] {
            results.add(format!("pages of {page}, {combine:?}"), || {
                let mut out = device().zeros([1, heads, DIM])?;
                let pages = Pages { keys: k.view(), values: v.view(), table: places.view(), lengths: lengths.view() };
                let decode = Decode::new(SCALE).combine(combine).parts(parts);
                let mut scratch = decode.scratch(device(), q.shape(), &pages)?;
                decode.launch(&stream(), q.view(), pages, out.view_mut(), &mut scratch)?;
                Ok(out)
            })?;
        }
    }
    results.agree();
    Ok(())
}
