use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::Number;
use cutlet_kernels::attention::{Gradients, Prefill};

use super::{Rows, attended, dot};
use crate::support::{close, device, random};

/// Batch, heads, key heads, queries, keys, dim, dim of values.
#[derive(Clone, Copy)]
struct Case {
    extents: [usize; 7],
    causal: bool,
    window: Option<usize>,
    softcap: Option<f64>,
    deterministic: bool,
}

const PLAIN: Case = Case { extents: [0; 7], causal: false, window: None, softcap: None, deterministic: false };

fn gradients<T: Number>(case: Case, tolerance: f64) -> ct::Result<()> {
    let Case { extents: [batch, heads, key_heads, queries, keys, dim, values], causal, window, softcap, .. } = case;
    let scale = 1.0 / (dim as f64).sqrt();
    let (q, q_of) = random::<T, 4>(1, [batch, heads, queries, dim], 1.0)?;
    let (k, k_of) = random::<T, 4>(2, [batch, key_heads, keys, dim], 1.0)?;
    let (v, v_of) = random::<T, 4>(3, [batch, key_heads, keys, values], 1.0)?;
    let (dy, dy_of) = random::<T, 4>(4, [batch, heads, queries, values], 1.0)?;
    let mut y = device().zeros::<T, 4>([batch, heads, queries, values])?;
    let mut logs = device().zeros::<f32, 3>([batch, heads, queries])?;
    let stream = device().default_stream();
    let prefill = Prefill::new(scale as f32).causal(causal);
    let prefill = window.map_or(prefill, |window| prefill.window(window));
    let prefill = softcap.map_or(prefill, |cap| prefill.softcap(cap as f32));
    prefill.launch(&stream, [q.view(), k.view(), v.view()], y.view_mut(), Some(logs.view_mut()))?;
    let backward = Gradients::new(scale as f32).causal(causal).deterministic(case.deterministic);
    let backward = window.map_or(backward, |window| backward.window(window));
    let backward = softcap.map_or(backward, |cap| backward.softcap(cap as f32));
    let (mut dq, mut dk, mut dv) = (device().zeros(q.shape())?, device().zeros(k.shape())?, device().zeros(v.shape())?);
    let inputs = [q.view(), k.view(), v.view(), y.view(), dy.view()];
    backward.launch(&stream, inputs, logs.view(), [dq.view_mut(), dk.view_mut(), dv.view_mut()])?;

    let mut want = [vec![0.0; q_of.len()], vec![0.0; k_of.len()], vec![0.0; v_of.len()]];
    let rows = |values, dim| Rows { values, dim };
    for head in 0..batch * heads {
        let of_keys = head / heads * key_heads + head % heads / (heads / key_heads);
        for i in 0..queries {
            let (x, g) = (rows(&q_of, dim).row(head * queries + i), rows(&dy_of, values).row(head * queries + i));
            let at = (i + keys) as i64 - queries as i64;
            let seen = |j: &usize| {
                let distance = at - *j as i64;
                (!causal || distance >= 0) && window.is_none_or(|window| distance.abs() < window as i64)
            };
            let key = |j: usize| rows(&k_of, dim).row(of_keys * keys + j);
            let value = |j: usize| rows(&v_of, values).row(of_keys * keys + j);
            let bound = |j: usize| {
                let score = dot(x, key(j)) * scale;
                softcap.map_or((score, 1.0), |cap| (cap * (score / cap).tanh(), 1.0 - (score / cap).tanh().powi(2)))
            };
            let scores: Vec<_> = (0..keys).filter(seen).map(|j| (bound(j).0, value(j))).collect();
            let (result, log) = attended(&scores, None, values);
            let level = dot(&result, g);
            for j in (0..keys).filter(seen) {
                let (score, slope) = bound(j);
                let weight = (score - log).exp();
                let step = weight * (dot(g, value(j)) - level) * slope * scale;
                for c in 0..dim {
                    want[0][(head * queries + i) * dim + c] += step * key(j)[c];
                    want[1][(of_keys * keys + j) * dim + c] += step * x[c];
                }
                (0..values).for_each(|c| want[2][(of_keys * keys + j) * values + c] += weight * g[c]);
            }
        }
    }
    close(&dq, &want[0], tolerance, tolerance);
    close(&dk, &want[1], tolerance, tolerance);
    close(&dv, &want[2], tolerance, tolerance);
    Ok(())
}

#[test]
fn both_orders() -> ct::Result<()> {
    for (causal, deterministic) in [(false, false), (true, false), (false, true), (true, true)] {
        let case = Case { causal, deterministic, ..PLAIN };
        gradients::<f16>(Case { extents: [1, 4, 2, 70, 70, 64, 64], ..case }, 4e-3)?;
        gradients::<bf16>(Case { extents: [2, 1, 1, 33, 150, 96, 80], ..case }, 3e-2)?;
        gradients::<f32>(Case { extents: [1, 3, 1, 19, 40, 24, 16], ..case }, 2e-4)?;
    }
    Ok(())
}

#[test]
fn more_queries_than_keys() -> ct::Result<()> {
    gradients::<f16>(Case { extents: [1, 2, 1, 90, 40, 32, 32], causal: true, ..PLAIN }, 4e-3)?;
    gradients::<f16>(Case { extents: [1, 2, 1, 9, 0, 32, 32], ..PLAIN }, 4e-3)
}

#[test]
fn windows_and_softcap() -> ct::Result<()> {
    for (causal, deterministic) in [(true, false), (false, true)] {
        let case = Case { extents: [1, 2, 1, 130, 150, 32, 32], causal, deterministic, ..PLAIN };
        gradients::<f16>(Case { window: Some(1), ..case }, 4e-3)?;
        gradients::<f16>(Case { window: Some(40), softcap: Some(2.0), ..case }, 1e-2)?;
    }
    Ok(())
}
