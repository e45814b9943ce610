use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet::prelude::*;
use cutlet_kernels::Number;
use cutlet_kernels::attention::{Attention, Place, Prefill};

use super::{Rows, attended, close_logs, dot};
use crate::support::{close, device, random};

/// A case: batch, heads, key heads, queries, keys, dim, dim of values.
#[derive(Clone, Copy)]
struct Case {
    extents: [usize; 7],
    causal: bool,
    window: Option<usize>,
    softcap: Option<f64>,
    sinks: bool,
}

const PLAIN: Case = Case { extents: [0; 7], causal: false, window: None, softcap: None, sinks: false };

/// Result and logarithms of a sequence, whose first rows of queries and keys are given, by heads.
fn expected<'a>(
    case: Case,
    scale: f64,
    [q, k, v]: [&dyn Fn(usize) -> &'a [f64]; 3],
    sink: Option<f64>,
    function: &dyn Fn(f64, usize, usize) -> f64,
) -> impl Fn(usize) -> (Vec<f64>, f64) + use<> {
    let [_, _, _, queries, keys, _, values] = case.extents;
    let mut rows = Vec::new();
    for i in 0..queries {
        let at = (i + keys) as i64 - queries as i64;
        let seen = |j: usize| {
            let distance = at - j as i64;
            (!case.causal || distance >= 0) && case.window.is_none_or(|window| distance.abs() < window as i64)
        };
        let score = |j: usize| {
            let score = dot(q(i), k(j)) * scale;
            let score = case.softcap.map_or(score, |cap| cap * (score / cap).tanh());
            function(score, at as usize, j)
        };
        let scores: Vec<(f64, &[f64])> = (0..keys).filter(|&j| seen(j)).map(|j| (score(j), v(j))).collect();
        let scores: Vec<_> = scores.into_iter().filter(|(score, _)| *score > f64::NEG_INFINITY).collect();
        rows.push(attended(&scores, sink, values));
    }
    move |i| rows[i].clone()
}

fn contiguous<T: Number>(case: Case, tolerance: f64) -> ct::Result<()> {
    let [batch, heads, key_heads, queries, keys, dim, values] = case.extents;
    let scale = 1.5 / (dim as f64).sqrt();
    let (q, q_of) = random::<T, 4>(1, [batch, heads, queries, dim], 2.0)?;
    let (k, k_of) = random::<T, 4>(2, [batch, key_heads, keys, dim], 2.0)?;
    let (v, v_of) = random::<T, 4>(3, [batch, key_heads, keys, values], 2.0)?;
    let (sinks, sinks_of) = random::<f32, 1>(4, [heads], 2.0)?;
    let (mut out, mut logs) =
        (device().full([batch, heads, queries, values], T::from_f64(7.0))?, device().zeros([batch, heads, queries])?);
    let mut prefill = Prefill::new(scale as f32).causal(case.causal);
    prefill = case.window.map_or(prefill, |window| prefill.window(window));
    prefill = case.softcap.map_or(prefill, |cap| prefill.softcap(cap as f32));
    prefill = if case.sinks { prefill.sinks(sinks.view()) } else { prefill };
    let stream = device().default_stream();
    prefill.launch(&stream, [q.view(), k.view(), v.view()], out.view_mut(), Some(logs.view_mut()))?;
    let (mut want, mut want_logs) = (Vec::new(), Vec::new());
    for head in 0..batch * heads {
        let of_keys = head / heads * key_heads + head % heads / (heads / key_heads);
        let rows = |values, dim| Rows { values, dim };
        let (q, k, v) = (rows(&q_of, dim), rows(&k_of, dim), rows(&v_of, values));
        let q = |i: usize| q.row(head * queries + i);
        let (k, v) = (|j: usize| k.row(of_keys * keys + j), |j: usize| v.row(of_keys * keys + j));
        let sink = case.sinks.then(|| sinks_of[head % heads]);
        let row = expected(case, scale, [&q, &k, &v], sink, &|score, _, _| score);
        for i in 0..queries {
            let (values, log) = row(i);
            want.extend(values);
            want_logs.push(log);
        }
    }
    close(&out, &want, tolerance, tolerance);
    close_logs(&logs.to_vec()?, &want_logs, if case.softcap.is_some() { 2e-2 } else { 1e-4 });
    Ok(())
}

#[test]
fn full_and_causal() -> ct::Result<()> {
    for causal in [false, true] {
        contiguous::<f32>(Case { extents: [2, 4, 2, 37, 53, 24, 24], causal, ..PLAIN }, 1e-4)?;
        contiguous::<f16>(Case { extents: [1, 2, 1, 150, 150, 64, 64], causal, ..PLAIN }, 4e-3)?;
        contiguous::<bf16>(Case { extents: [1, 3, 3, 70, 201, 96, 80], causal, ..PLAIN }, 3e-2)?;
        contiguous::<f16>(Case { extents: [1, 1, 1, 33, 65, 192, 128], causal, ..PLAIN }, 4e-3)?;
        contiguous::<f16>(Case { extents: [1, 1, 1, 40, 90, 500, 500], causal, ..PLAIN }, 4e-3)?;
    }
    Ok(())
}

#[test]
fn one_query() -> ct::Result<()> {
    for causal in [false, true] {
        let case = Case { extents: [2, 8, 2, 1, 77, 40, 48], causal, ..PLAIN };
        contiguous::<f16>(case, 4e-3)?;
        contiguous::<f16>(Case { sinks: true, window: Some(30), ..case }, 4e-3)?;
        contiguous::<f16>(Case { softcap: Some(3.0), ..case }, 1e-2)?;
    }
    Ok(())
}

#[test]
fn more_queries_than_keys() -> ct::Result<()> {
    contiguous::<f16>(Case { extents: [1, 2, 2, 90, 40, 32, 32], causal: true, ..PLAIN }, 4e-3)?;
    contiguous::<f16>(Case { extents: [1, 2, 2, 9, 0, 32, 32], causal: false, ..PLAIN }, 4e-3)
}

#[test]
fn windows() -> ct::Result<()> {
    for causal in [false, true] {
        for window in [1, 7, 64, 130, 5000] {
            let case = Case { extents: [1, 2, 1, 201, 230, 32, 32], causal, window: Some(window), ..PLAIN };
            contiguous::<f16>(case, 4e-3)?;
        }
    }
    Ok(())
}

#[test]
fn softcap_and_sinks() -> ct::Result<()> {
    let case = Case { extents: [1, 4, 2, 70, 133, 64, 64], causal: true, ..PLAIN };
    contiguous::<f16>(Case { softcap: Some(3.0), ..case }, 1e-2)?;
    contiguous::<f16>(Case { sinks: true, ..case }, 4e-3)?;
    contiguous::<bf16>(Case { softcap: Some(2.0), sinks: true, window: Some(40), ..case }, 3e-2)?;
    // A sink alone: its weight is 1.
    contiguous::<f16>(Case { sinks: true, extents: [1, 4, 2, 80, 20, 64, 64], ..case }, 4e-3)
}

#[test]
fn score_and_mask_functions() -> ct::Result<()> {
    let [heads, tokens, dim] = [2, 130, 32];
    let shape = [1, heads, tokens, dim];
    let (q, q_of) = random::<f16, 4>(1, shape, 2.0)?;
    let (k, k_of) = random::<f16, 4>(2, shape, 2.0)?;
    let (v, v_of) = random::<f16, 4>(3, shape, 2.0)?;
    let (slopes, slopes_of) = random::<f32, 1>(4, [heads], 0.1)?;
    let documents: Vec<i32> = (0..tokens as i32).map(|i| i / 50).collect();
    let numbers = device().array(&documents, [tokens])?;
    let scale = 1.0 / (dim as f64).sqrt();
    for softcap in [None, Some(4.0)] {
        let case = Case { extents: [1, heads, heads, tokens, tokens, dim, dim], causal: true, softcap, ..PLAIN };
        let prefill = Prefill::new(scale as f32).causal(true);
        let prefill = softcap.map_or(prefill, |cap| prefill.softcap(cap as f32));
        let with_scores = prefill.scores(&slopes, |scores: Tile<f32, 2>, at: Place, slopes: Array<f32, 1>| {
            scores + (at.key - at.query).cast::<f32>() * slopes.load_scalar(at.head)
        });
        let alike = |at: Place, numbers: Array<i32, 1>| numbers.gather(at.key).eq(numbers.gather(at.query));
        let qkv = [q.view(), k.view(), v.view()];
        let stream = device().default_stream();
        let [mut both, mut mask] = [device().zeros::<f16, 4>(shape)?, device().zeros::<f16, 4>(shape)?];
        with_scores.mask(&numbers, alike).launch(&stream, qkv, both.view_mut(), None)?;
        prefill.mask(&numbers, alike).launch(&stream, qkv, mask.view_mut(), None)?;
        for (out, biased) in [(both, true), (mask, false)] {
            let mut want = Vec::new();
            for (head, slope) in slopes_of.iter().enumerate() {
                let of = |values| Rows { values, dim };
                let (q, k, v) = (of(&q_of), of(&k_of), of(&v_of));
                let [q, k, v] = [&q, &k, &v].map(|x| |i: usize| x.row(head * tokens + i));
                let function = |score: f64, i: usize, j: usize| {
                    let bias = if biased { (j as f64 - i as f64) * slope } else { 0.0 };
                    if documents[i] == documents[j] { score + bias } else { f64::NEG_INFINITY }
                };
                let row = expected(case, scale, [&q, &k, &v], None, &function);
                (0..tokens).for_each(|i| want.extend(row(i).0));
            }
            close(&out, &want, 1e-2, 1e-2);
        }
    }
    Ok(())
}

#[test]
fn packed_sequences() -> ct::Result<()> {
    let [heads, key_heads, dim] = [4, 2, 64];
    let (queries, keys) = ([130, 0, 3, 70], [130, 5, 40, 90]);
    let starts = |lengths: [usize; 4]| {
        let mut starts = vec![0i32];
        lengths.iter().for_each(|&length| starts.push(starts[starts.len() - 1] + length as i32));
        starts
    };
    let (rows, of_keys) = (starts(queries), starts(keys));
    let (all, all_keys) = (rows[4] as usize, of_keys[4] as usize);
    let (q, q_of) = random::<bf16, 3>(1, [all, heads, dim], 2.0)?;
    let (k, k_of) = random::<bf16, 3>(2, [all_keys, key_heads, dim], 2.0)?;
    let (v, v_of) = random::<bf16, 3>(3, [all_keys, key_heads, dim], 2.0)?;
    let [at, at_keys] = [&rows, &of_keys].map(|starts| device().array(starts, [5]));
    let (at, at_keys) = (at?, at_keys?);
    let scale = 1.0 / (dim as f64).sqrt();
    for (causal, window) in [(true, None), (false, None), (true, Some(20))] {
        let (mut out, mut logs) = (device().zeros::<bf16, 3>([all, heads, dim])?, device().zeros([heads, all])?);
        let prefill = Prefill::new(scale as f32).causal(causal);
        let prefill = window.map_or(prefill, |window| prefill.window(window));
        prefill.launch_packed(
            &device().default_stream(),
            [q.view(), k.view(), v.view()],
            [at.view(), at_keys.view()],
            130,
            out.view_mut(),
            Some(logs.view_mut()),
        )?;
        let (mut want, mut want_logs) = (vec![0.0; all * heads * dim], vec![0.0; heads * all]);
        for (sequence, head) in (0..4).flat_map(|sequence| (0..heads).map(move |head| (sequence, head))) {
            let (first, first_key) = (rows[sequence] as usize, of_keys[sequence] as usize);
            let of = |values| Rows { values, dim };
            let (q, k, v) = (of(&q_of), of(&k_of), of(&v_of));
            let q = |i: usize| q.row((first + i) * heads + head);
            let [k, v] = [&k, &v].map(|x| move |j: usize| x.row((first_key + j) * key_heads + head / 2));
            let extents = [1, heads, key_heads, queries[sequence], keys[sequence], dim, dim];
            let row = expected(Case { extents, causal, window, ..PLAIN }, scale, [&q, &k, &v], None, &|s, _, _| s);
            for i in 0..queries[sequence] {
                let (values, log) = row(i);
                want[((first + i) * heads + head) * dim..][..dim].copy_from_slice(&values);
                want_logs[head * all + first + i] = log;
            }
        }
        close(&out, &want, 2e-2, 2e-2);
        close_logs(&logs.to_vec()?, &want_logs, 1e-4);
    }
    Ok(())
}

#[test]
fn views_of_any_strides() -> ct::Result<()> {
    // Heads inside of tokens, and a result in every second row.
    let [tokens, heads, dim] = [67, 3, 32];
    let (x, x_of) = random::<f16, 4>(1, [1, tokens, 3 * heads, dim], 2.0)?;
    let mut out = device().zeros::<f16, 4>([1, heads, 2 * tokens, dim])?;
    let part = |which: usize| x.slice(2, which * heads..(which + 1) * heads)?.permute([0, 2, 1, 3]);
    let qkv = [part(0)?, part(1)?, part(2)?];
    let attention = Attention { scale: 0.2, causal: true };
    attention.launch(&device().default_stream(), qkv, out.view_mut().step(2, 2)?)?;
    let rows = Rows { values: &x_of, dim };
    let mut want = vec![0.0; heads * 2 * tokens * dim];
    for head in 0..heads {
        let row = |which: usize| {
            let rows = &rows;
            move |i: usize| rows.row((i * 3 + which) * heads + head)
        };
        let case = Case { extents: [1, heads, heads, tokens, tokens, dim, dim], causal: true, ..PLAIN };
        let result = expected(case, 0.2, [&row(0), &row(1), &row(2)], None, &|score, _, _| score);
        for i in 0..tokens {
            want[(head * 2 * tokens + 2 * i) * dim..][..dim].copy_from_slice(&result(i).0);
        }
    }
    close(&out, &want, 4e-3, 4e-3);
    Ok(())
}

#[test]
fn wrong_arguments_are_errors() -> ct::Result<()> {
    let stream = device().default_stream();
    let array = |shape: [usize; 4]| device().zeros::<f16, 4>(shape);
    let (q, k, small) = (array([1, 4, 8, 16])?, array([1, 3, 8, 16])?, array([1, 4, 8, 8])?);
    let mut out = array([1, 4, 8, 16])?;
    let mut launch = |attention: Prefill, qkv| {
        let done = attention.launch(&stream, qkv, out.view_mut(), None);
        done.map_err(|e| e.to_string())
    };
    let text = launch(Prefill::new(1.0), [q.view(), k.view(), k.view()]).unwrap_err();
    assert!(text.contains("4 heads of queries, 3 of keys"), "{text}");
    let text = launch(Prefill::new(1.0), [q.view(), small.view(), q.view()]).unwrap_err();
    assert!(text.contains("queries of 16 numbers, keys of 8"), "{text}");
    let text = launch(Prefill::new(1.0).window(0), [q.view(); 3]).unwrap_err();
    assert!(text.contains("a window of 0 keys"), "{text}");
    let text = launch(Prefill::new(-1.0), [q.view(); 3]).unwrap_err();
    assert!(text.contains("scores times -1"), "{text}");
    let text = launch(Prefill::new(1.0), [q.view(), q.view(), small.view()]).unwrap_err();
    assert!(text.contains("a result of shape [1, 4, 8, 16]"), "{text}");
    // Empty arrays are fine.
    let mut none = array([0, 4, 8, 16])?;
    let empty = array([0, 4, 8, 16])?;
    Prefill::new(1.0).launch(&stream, [empty.view(); 3], none.view_mut(), None)
}
