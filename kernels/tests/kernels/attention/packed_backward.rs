use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::Number;
use cutlet_kernels::attention::{Gradients, Prefill};

use super::{Rows, attended, dot};
use crate::support::{close, device, random};

#[derive(Clone, Copy)]
struct Case {
    causal: bool,
    window: Option<usize>,
    softcap: Option<f64>,
    deterministic: bool,
}

const PLAIN: Case = Case { causal: false, window: None, softcap: None, deterministic: false };
const HEADS: usize = 4;
const KEY_HEADS: usize = 2;

fn starts(lengths: &[usize]) -> Vec<i32> {
    let mut starts = vec![0i32];
    lengths.iter().for_each(|&length| starts.push(starts[starts.len() - 1] + length as i32));
    starts
}

/// Compares the gradients of sequences with a sink for each head.
fn gradients<T: Number>(case: Case, lengths: [&[usize]; 2], dims: [usize; 2], tolerance: f64) -> ct::Result<()> {
    let Case { causal, window, softcap, deterministic } = case;
    let [dim, values] = dims;
    let scale = 1.0 / (dim as f64).sqrt();
    let [first, first_key] = lengths.map(starts);
    let [rows, keys] = [&first, &first_key].map(|starts| starts[starts.len() - 1] as usize);
    let longest = lengths.map(|lengths| lengths.iter().copied().max().unwrap_or(0));
    let (q, q_of) = random::<T, 3>(1, [rows, HEADS, dim], 1.0)?;
    let (k, k_of) = random::<T, 3>(2, [keys, KEY_HEADS, dim], 1.0)?;
    let (v, v_of) = random::<T, 3>(3, [keys, KEY_HEADS, values], 1.0)?;
    let (dy, dy_of) = random::<T, 3>(4, [rows, HEADS, values], 1.0)?;
    let (sinks, sinks_of) = random::<f32, 1>(5, [HEADS], 1.0)?;
    let (mut y, mut logs) = (device().zeros::<T, 3>([rows, HEADS, values])?, device().zeros::<f32, 2>([HEADS, rows])?);
    let tables = [device().array(&first, [first.len()])?, device().array(&first_key, [first_key.len()])?];
    let (stream, tables) = (device().default_stream(), tables.each_ref().map(|table| table.view()));

    let prefill = Prefill::new(scale as f32).causal(causal).sinks(sinks.view());
    let prefill = window.map_or(prefill, |window| prefill.window(window));
    let prefill = softcap.map_or(prefill, |cap| prefill.softcap(cap as f32));
    let qkv = [q.view(), k.view(), v.view()];
    prefill.launch_packed(&stream, qkv, tables, longest[0], y.view_mut(), Some(logs.view_mut()))?;
    let backward = Gradients::new(scale as f32).causal(causal).deterministic(deterministic);
    let backward = window.map_or(backward, |window| backward.window(window));
    let backward = softcap.map_or(backward, |cap| backward.softcap(cap as f32));
    let nine = |shape| device().full::<T, 3>(shape, T::from_f64(9.0));
    let (mut dq, mut dk, mut dv) = (nine(q.shape())?, nine(k.shape())?, nine(v.shape())?);
    let inputs = [q.view(), k.view(), v.view(), y.view(), dy.view()];
    let results = [dq.view_mut(), dk.view_mut(), dv.view_mut()];
    backward.launch_packed(&stream, inputs, logs.view(), tables, longest, results)?;
    let mut dsinks = device().full([HEADS], 9.0f32)?;
    let rows_of = |x: ct::DeviceView<'_, T, 3>| -> ct::Result<Vec<f64>> {
        Ok(x.to_vec()?.into_iter().map(|x| x.to_f64()).collect())
    };
    let y_of = rows_of(y.view())?;
    let four = |x: ct::DeviceArray<T, 3>| device().array(&x.to_vec()?, [1, rows, HEADS, values]);
    let (y, dy) = (four(y)?, four(dy)?);
    let by_heads = [y.view().permute([0, 2, 1, 3])?, dy.view().permute([0, 2, 1, 3])?];
    let logs_of = logs.view().reshape([1, HEADS, rows])?;
    backward.launch_sinks(&stream, sinks.view(), by_heads, logs_of, dsinks.view_mut())?;

    let mut want = [vec![0.0; q_of.len()], vec![0.0; k_of.len()], vec![0.0; v_of.len()], vec![0.0; HEADS]];
    let table = |values, dim| Rows { values, dim };
    for (sequence, head) in (0..first.len() - 1).flat_map(|sequence| (0..HEADS).map(move |head| (sequence, head))) {
        let ([queries, keys], of_keys) = (lengths.map(|lengths| lengths[sequence]), head / (HEADS / KEY_HEADS));
        let row = |i: usize| (first[sequence] as usize + i) * HEADS + head;
        let key_row = |j: usize| (first_key[sequence] as usize + j) * KEY_HEADS + of_keys;
        for i in 0..queries {
            let (x, g) = (table(&q_of, dim).row(row(i)), table(&dy_of, values).row(row(i)));
            let at = (i + keys) as i64 - queries as i64;
            let seen = |j: &usize| {
                let distance = at - *j as i64;
                (!causal || distance >= 0) && window.is_none_or(|window| distance.abs() < window as i64)
            };
            let (keys_of, values_of) = (table(&k_of, dim), table(&v_of, values));
            let (key, value) = (|j: usize| keys_of.row(key_row(j)), |j: usize| values_of.row(key_row(j)));
            let bound = |j: usize| {
                let score = dot(x, key(j)) * scale;
                softcap.map_or((score, 1.0), |cap| (cap * (score / cap).tanh(), 1.0 - (score / cap).tanh().powi(2)))
            };
            let scores: Vec<_> = (0..keys).filter(seen).map(|j| (bound(j).0, value(j))).collect();
            let (result, log) = attended(&scores, Some(sinks_of[head]), values);
            let level = dot(&result, g);
            want[3][head] -= (sinks_of[head] - log).exp() * dot(table(&y_of, values).row(row(i)), g);
            for j in (0..keys).filter(seen) {
                let (score, slope) = bound(j);
                let weight = (score - log).exp();
                let step = weight * (dot(g, value(j)) - level) * slope * scale;
                for c in 0..dim {
                    want[0][row(i) * dim + c] += step * key(j)[c];
                    want[1][key_row(j) * dim + c] += step * x[c];
                }
                (0..values).for_each(|c| want[2][key_row(j) * values + c] += weight * g[c]);
            }
        }
    }
    close(&dq, &want[0], tolerance, tolerance);
    close(&dk, &want[1], tolerance, tolerance);
    close(&dv, &want[2], tolerance, tolerance);
    close(&dsinks, &want[3], tolerance, tolerance);
    Ok(())
}

#[test]
fn packed_sequences() -> ct::Result<()> {
    // Sequences without queries or keys, and ends inside of tiles.
    let lengths: [&[usize]; 2] = [&[70, 0, 3, 41], &[70, 5, 0, 90]];
    for (causal, deterministic) in [(false, false), (true, false), (false, true), (true, true)] {
        let case = Case { causal, deterministic, ..PLAIN };
        gradients::<f16>(case, lengths, [64, 64], 4e-3)?;
        gradients::<f32>(case, [&[19, 33], &[40, 21]], [24, 16], 2e-4)?;
    }
    gradients::<bf16>(Case { causal: true, ..PLAIN }, lengths, [96, 80], 3e-2)
}

#[test]
fn packed_windows_and_softcap() -> ct::Result<()> {
    let lengths: [&[usize]; 2] = [&[90, 30], &[100, 30]];
    for (causal, deterministic) in [(true, false), (false, true)] {
        let case = Case { causal, deterministic, window: Some(20), softcap: Some(2.0) };
        gradients::<f16>(case, lengths, [32, 32], 1e-2)?;
    }
    Ok(())
}

#[test]
fn wrong_shapes_are_errors() -> ct::Result<()> {
    let stream = device().default_stream();
    let (x, y) = (device().zeros::<f32, 3>([5, 2, 8])?, device().zeros::<f32, 3>([4, 2, 8])?);
    let (logs, starts) = (device().zeros::<f32, 2>([2, 5])?, device().array(&[0, 5], [2])?);
    let [mut dq, mut dk, mut dv] = [device().zeros([5, 2, 8])?, device().zeros([5, 2, 8])?, device().zeros([5, 2, 8])?];
    let results = [dq.view_mut(), dk.view_mut(), dv.view_mut()];
    let inputs = [x.view(), x.view(), x.view(), x.view(), y.view()];
    let starts = [starts.view(); 2];
    let fault = Gradients::new(1.0).launch_packed(&stream, inputs, logs.view(), starts, [5, 5], results).unwrap_err();
    assert!(fault.to_string().contains("a result of shape [5, 2, 8], and its gradient of [4, 2, 8]"), "{fault}");
    Ok(())
}
