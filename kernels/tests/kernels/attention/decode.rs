use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet_kernels::Number;
use cutlet_kernels::attention::{Combine, Decode, Pages};

use super::{Rows, attended, dot};
use crate::support::{Numbers, close, device, random};

/// Sequences, heads, key heads, dim, dim of values; tokens of a page.
#[derive(Clone, Copy)]
struct Case {
    extents: [usize; 5],
    page: usize,
    softcap: Option<f64>,
    window: Option<usize>,
    sinks: bool,
    combine: Combine,
}

/// Returns a table of pages in random order, with entries after the ends that name no page.
pub fn table(seed: u64, lengths: &[usize], page: usize, wide: usize) -> (Vec<i32>, usize) {
    let mut numbers = Numbers::new(seed);
    let needed: Vec<usize> = lengths.iter().map(|length| length.div_ceil(page)).collect();
    let pages: usize = needed.iter().sum::<usize>() + 3;
    let mut free: Vec<i32> = (0..pages as i32).collect();
    let mut table = Vec::new();
    for needed in needed {
        (0..wide).for_each(|i| {
            let at = numbers.below(free.len());
            table.push(if i < needed { free.swap_remove(at) } else { 1_000_000 });
        });
    }
    (table, pages)
}

fn decodes<T: Number>(case: Case, lengths: &[usize], wide: usize, tolerance: f64) -> ct::Result<()> {
    let Case { extents: [batch, heads, key_heads, dim, values], page, softcap, window, sinks, combine } = case;
    assert_eq!(lengths.len(), batch);
    let (numbers, pages) = table(9, lengths, page, wide);
    let (q, q_of) = random::<T, 3>(1, [batch, heads, dim], 2.0)?;
    let (_, mut k_of) = random::<T, 4>(2, [pages, page, key_heads, dim], 2.0)?;
    let (_, mut v_of) = random::<T, 4>(3, [pages, page, key_heads, values], 2.0)?;
    // Rows that belong to no token are no numbers.
    let mut used = vec![false; pages * page];
    for (sequence, &length) in lengths.iter().enumerate() {
        (0..length).for_each(|i| used[numbers[sequence * wide + i / page] as usize * page + i % page] = true);
    }
    for (row, _) in used.iter().enumerate().filter(|(_, used)| !**used) {
        k_of[row * key_heads * dim..][..key_heads * dim].fill(f64::NAN);
        v_of[row * key_heads * values..][..key_heads * values].fill(f64::NAN);
    }
    let narrow = |x: &[f64]| x.iter().map(|&x| T::from_f64(x)).collect::<Vec<T>>();
    let k = device().array(&narrow(&k_of), [pages, page, key_heads, dim])?;
    let v = device().array(&narrow(&v_of), [pages, page, key_heads, values])?;
    let of_device: Vec<i32> = lengths.iter().map(|&length| length as i32).collect();
    let (table, of_device) = (device().array(&numbers, [batch, wide])?, device().array(&of_device, [batch])?);
    let scale = 1.5 / (dim as f64).sqrt();
    let decode = Decode::new(scale as f32).combine(combine);
    let decode = softcap.map_or(decode, |cap| decode.softcap(cap as f32));
    let decode = window.map_or(decode, |window| decode.window(window));
    let (of_heads, sinks_of) = random::<f32, 1>(4, [heads], 4.0)?;
    let decode = if sinks { decode.sinks(of_heads.view()) } else { decode };
    let cache = Pages { keys: k.view(), values: v.view(), table: table.view(), lengths: of_device.view() };
    let mut scratch = decode.scratch(device(), [batch, heads, dim], &cache)?;
    let mut want = Vec::new();
    for (sequence, head) in (0..batch).flat_map(|sequence| (0..heads).map(move |head| (sequence, head))) {
        let row = |values, dim, token: usize| {
            let row = numbers[sequence * wide + token / page] as usize * page + token % page;
            Rows { values, dim }.row(row * key_heads + head / (heads / key_heads))
        };
        let q = Rows { values: &q_of, dim }.row(sequence * heads + head);
        let first = lengths[sequence].saturating_sub(window.unwrap_or(usize::MAX));
        let score = |token| {
            let score = dot(q, row(&k_of, dim, token)) * scale;
            softcap.map_or(score, |cap| cap * (score / cap).tanh())
        };
        let scores: Vec<_> = (first..lengths[sequence]).map(|j| (score(j), row(&v_of, values, j))).collect();
        want.extend(attended(&scores, sinks.then(|| sinks_of[head]), values).0);
    }
    // Twice with one scratch.
    for _ in 0..2 {
        let mut out = device().full([batch, heads, values], T::from_f64(7.0))?;
        decode.launch(&device().default_stream(), q.view(), cache, out.view_mut(), &mut scratch)?;
        close(&out, &want, tolerance, tolerance);
    }
    Ok(())
}

const PLAIN: Case = Case {
    extents: [4, 8, 2, 64, 64],
    page: 16,
    softcap: None,
    window: None,
    sinks: false,
    combine: Combine::LastBlock,
};

#[test]
fn pages_and_groups() -> ct::Result<()> {
    let lengths = [300, 0, 1, 77];
    for (page, wide) in [(16, 20), (64, 5), (128, 4), (512, 1), (1, 300)] {
        decodes::<f16>(Case { page, ..PLAIN }, &lengths, wide, 4e-3)?;
    }
    decodes::<bf16>(Case { extents: [4, 3, 3, 128, 96], ..PLAIN }, &lengths, 19, 3e-2)?;
    decodes::<f16>(Case { extents: [4, 20, 1, 40, 40], ..PLAIN }, &lengths, 19, 4e-3)?;
    decodes::<f32>(Case { extents: [4, 4, 2, 16, 24], page: 32, ..PLAIN }, &lengths, 10, 1e-4)
}

#[test]
fn split_keys() -> ct::Result<()> {
    let lengths = [1100, 300];
    for combine in [Combine::LastBlock, Combine::SecondKernel] {
        let case = Case { extents: [2, 4, 1, 64, 32], combine, ..PLAIN };
        decodes::<f16>(case, &lengths, 80, 4e-3)?;
        decodes::<f16>(Case { window: Some(700), softcap: Some(3.0), page: 64, ..case }, &lengths, 20, 1e-2)?;
        decodes::<f16>(Case { sinks: true, page: 64, ..case }, &lengths, 20, 4e-3)?;
    }
    Ok(())
}

#[test]
fn sinks() -> ct::Result<()> {
    let case = Case { sinks: true, ..PLAIN };
    decodes::<f16>(case, &[300, 0, 1, 77], 20, 4e-3)?;
    decodes::<f32>(Case { extents: [4, 6, 2, 16, 24], window: Some(40), ..case }, &[200, 0, 1, 77], 13, 1e-4)
}

#[test]
fn wrong_arguments_are_errors() -> ct::Result<()> {
    let (x, cache) = (device().zeros::<f16, 3>([2, 4, 16])?, device().zeros::<f16, 4>([3, 16, 2, 16])?);
    let (table, lengths) = (device().zeros([2, 2])?, device().zeros([2])?);
    let pages = Pages { keys: cache.view(), values: cache.view(), table: table.view(), lengths: lengths.view() };
    let (decode, mut out) = (Decode::new(1.0), device().zeros([2, 4, 16])?);
    let stream = device().default_stream();
    let mut other = decode.scratch(device(), [2, 2, 16], &pages)?;
    let text = decode.launch(&stream, x.view(), pages, out.view_mut(), &mut other).unwrap_err().to_string();
    assert!(text.contains("the scratch is one for other shapes"), "{text}");
    let few = device().zeros::<f32, 1>([3])?;
    let text =
        decode.sinks(few.view()).launch(&stream, x.view(), pages, out.view_mut(), &mut other).unwrap_err().to_string();
    assert!(text.contains("Some(3) sinks for 4 heads"), "{text}");
    let odd = device().zeros::<f16, 4>([3, 12, 2, 16])?;
    let pages = Pages { keys: odd.view(), values: odd.view(), ..pages };
    let text = decode.launch(&stream, x.view(), pages, out.view_mut(), &mut other).unwrap_err().to_string();
    assert!(text.contains("pages of 12 tokens: a power of two"), "{text}");
    Ok(())
}
