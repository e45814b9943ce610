use cutlet as ct;
use cutlet::element::{bf16, f8e4m3fn};
use cutlet_kernels::attention::PrefillF8;

use super::{Rows, attended, close_logs, dot};
use crate::support::{device, random};

/// Batch, heads, key heads, queries, keys, dim.
fn attends([batch, heads, key_heads, queries, keys, dim]: [usize; 6], causal: bool) -> ct::Result<()> {
    let (q, q_of) = random::<f8e4m3fn, 4>(1, [batch, heads, queries, dim], 2.0)?;
    let (k, k_of) = random::<f8e4m3fn, 4>(2, [batch, key_heads, keys, dim], 2.0)?;
    let (v, v_of) = random::<f8e4m3fn, 4>(3, [batch, key_heads, keys, dim], 2.0)?;
    let (of_q, scales_q) = random::<f32, 2>(4, [batch, heads], 1.0)?;
    let (of_k, scales_k) = random::<f32, 2>(5, [batch, key_heads], 1.0)?;
    let mut out = device().zeros::<bf16, 4>([batch, heads, queries, dim])?;
    let mut logs = device().zeros::<f32, 3>([batch, heads, queries])?;
    // Factors are not negative.
    let positive = |x: &[f64]| x.iter().map(|x| x.abs() as f32).collect::<Vec<f32>>();
    let of_q = device().array(&positive(&scales_q), of_q.shape())?;
    let of_k = device().array(&positive(&scales_k), of_k.shape())?;
    let scale = 1.0 / (dim as f64).sqrt();
    PrefillF8 { scale: scale as f32, causal }.launch(
        &device().default_stream(),
        [q.view(), k.view(), v.view()],
        [of_q.view(), of_k.view(), of_k.view()],
        out.view_mut(),
        Some(logs.view_mut()),
    )?;
    let (out, mut want_logs) = (out.to_vec()?, Vec::new());
    let rows = |values, dim| Rows { values, dim };
    for (head, i) in (0..batch * heads).flat_map(|head| (0..queries).map(move |i| (head, i))) {
        let of_keys = head / heads * key_heads + head % heads / (heads / key_heads);
        let factor = scale * scales_q[head].abs() * scales_k[of_keys].abs();
        let x = rows(&q_of, dim).row(head * queries + i);
        let seen = if causal { (i + keys + 1).saturating_sub(queries) } else { keys };
        let row = |j: usize| rows(&v_of, dim).row(of_keys * keys + j);
        let score = |j: usize| dot(x, rows(&k_of, dim).row(of_keys * keys + j)) * factor;
        let scores: Vec<_> = (0..seen).map(|j| (score(j), row(j))).collect();
        let (values, log) = attended(&scores, None, dim);
        want_logs.push(log);
        // Weights have three bits after the binary point: errors are relative to the magnitude of
        // the terms.
        for c in 0..dim {
            let size: f64 = scores.iter().map(|(score, value)| (score - log).exp() * value[c].abs()).sum();
            let (got, of_values) = (out[(head * queries + i) * dim + c].to_f64(), scales_k[of_keys].abs());
            let error = (got - values[c] * of_values).abs();
            assert!(error <= 7e-2 * size * of_values + 1e-3, "head {head}, query {i}, column {c}: {got}");
        }
    }
    close_logs(&logs.to_vec()?, &want_logs, 1e-2);
    Ok(())
}

#[test]
fn full_and_causal() -> ct::Result<()> {
    for causal in [false, true] {
        attends([1, 4, 2, 150, 150, 64], causal)?;
        attends([2, 1, 1, 40, 77, 128], causal)?;
        attends([1, 2, 1, 20, 7, 48], causal)?;
    }
    Ok(())
}
