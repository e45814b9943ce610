use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet::packed::i4;
use cutlet_kernels::Number;
use cutlet_kernels::attention::{PackedDecode, PackedPages, store_packed};

use super::decode::table;
use super::{Rows, attended, dot};
use crate::support::{close, device, random};

/// Returns tokens of shape (tokens, heads, dim) as the nearest multiples of the scales of their
/// groups.
fn rounded(x: &[f64], group: usize) -> Vec<f64> {
    let of_group = |x: &[f64]| {
        let largest = x.iter().fold(0.0f64, |largest, x| largest.max(x.abs())) as f32;
        let scale = f64::from(if largest > 0.0 { largest / 7.0 } else { 1.0 });
        x.iter().map(|x| f64::from((*x as f32 / scale as f32).round_ties_even()) * scale).collect::<Vec<_>>()
    };
    x.chunks(group).flat_map(of_group).collect()
}

/// Sequences, heads, key heads, dim; columns of a group; tokens of a page.
fn decodes<T: Number>(
    [batch, heads, key_heads, dim]: [usize; 4],
    group: usize,
    page: usize,
    (lengths, parts): (&[usize], usize),
    tolerance: f64,
) -> ct::Result<()> {
    let wide = lengths.iter().max().unwrap().div_ceil(page) + 1;
    let (numbers, pages) = table(9, lengths, page, wide);
    let tokens: usize = lengths.iter().sum();
    let slot = |sequence: usize, i: usize| numbers[sequence * wide + i / page] * page as i32 + (i % page) as i32;
    let slots: Vec<i32> = lengths
        .iter()
        .enumerate()
        .flat_map(|(s, &length)| (0..length).map(move |i| (s, i)))
        .map(|(s, i)| slot(s, i))
        .collect();
    let slots = device().array(&slots, [tokens])?;
    let stream = device().default_stream();
    let store = |seed| {
        let (x, of_x) = random::<T, 3>(seed, [tokens, key_heads, dim], 2.0)?;
        let shape = [pages, key_heads, page, dim];
        // Rows that belong to no token have scales that are no numbers.
        let mut codes = device().packed_zeros::<i4, 4>(shape)?;
        let mut scales = device().full([pages, key_heads, page, dim / group], f32::NAN)?;
        store_packed(&stream, x.view(), slots.view(), codes.view_mut(), scales.view_mut())?;
        ct::Result::Ok((codes, scales, rounded(&of_x, group)))
    };
    let (keys, values) = (store(1)?, store(2)?);
    let (q, of_q) = random::<T, 3>(3, [batch, heads, dim], 2.0)?;
    let scale = 1.5 / (dim as f64).sqrt();
    let mut want = Vec::new();
    for (sequence, head) in (0..batch).flat_map(|sequence| (0..heads).map(move |head| (sequence, head))) {
        let first: usize = lengths[..sequence].iter().sum();
        let row = |values, token| Rows { values, dim }.row((first + token) * key_heads + head / (heads / key_heads));
        let q = Rows { values: &of_q, dim }.row(sequence * heads + head);
        let scores: Vec<_> =
            (0..lengths[sequence]).map(|j| (dot(q, row(&keys.2, j)) * scale, row(&values.2, j))).collect();
        want.extend(attended(&scores, None, dim).0);
    }
    let of_lengths: Vec<i32> = lengths.iter().map(|&length| length as i32).collect();
    let (table, of_lengths) = (device().array(&numbers, [batch, wide])?, device().array(&of_lengths, [batch])?);
    let of = PackedPages {
        keys: (keys.0.view(), keys.1.view()),
        values: (values.0.view(), values.1.view()),
        table: table.view(),
        lengths: of_lengths.view(),
    };
    let decode = PackedDecode::new(scale as f32).parts(parts);
    let mut scratch = decode.scratch(device(), [batch, heads, dim], &of)?;
    // Twice with one scratch.
    for _ in 0..2 {
        let mut out = device().full([batch, heads, dim], T::from_f64(7.0))?;
        decode.launch(&stream, q.view(), of, out.view_mut(), &mut scratch)?;
        close(&out, &want, tolerance, tolerance);
    }
    Ok(())
}

#[test]
fn pages_groups_and_parts() -> ct::Result<()> {
    let lengths = [150, 0, 1, 77];
    decodes::<bf16>([4, 8, 1, 128], 128, 64, (&lengths, 1), 4e-2)?;
    decodes::<f16>([4, 16, 2, 128], 32, 64, (&lengths, 3), 8e-3)?;
    decodes::<f16>([4, 6, 2, 64], 64, 16, (&lengths, 2), 8e-3)?;
    decodes::<f16>([4, 3, 1, 96], 32, 128, (&lengths, 1), 8e-3)?;
    decodes::<f16>([4, 2, 1, 256], 256, 32, (&lengths, 2), 8e-3)
}

#[test]
fn wrong_shapes_are_errors() -> ct::Result<()> {
    let codes = device().packed_zeros::<i4, 4>([2, 1, 16, 64])?;
    let (scales, few) = (device().zeros([2, 1, 16, 2])?, device().zeros([2, 1, 8, 2])?);
    let (table, lengths) = (device().zeros([1, 2])?, device().zeros([1])?);
    let wide = device().zeros([2, 1, 16, 4])?;
    let strided = wide.view().slice(3, ..2)?;
    let launch = |q: [usize; 3], scales: ct::DeviceView<f32, 4>| {
        let cache = (codes.view(), scales);
        let of = PackedPages { keys: cache, values: cache, table: table.view(), lengths: lengths.view() };
        let (x, mut y) = (device().zeros::<f16, 3>(q)?, device().zeros(q)?);
        let decode = PackedDecode::new(1.0);
        let mut scratch = decode.scratch(device(), q, &of)?;
        decode.launch(&device().default_stream(), x.view(), of, y.view_mut(), &mut scratch)
    };
    let (scales, few) = (scales.view(), few.view());
    launch([1, 4, 64], scales)?;
    for (q, scales) in [([1, 17, 64], scales), ([1, 4, 32], scales), ([1, 4, 64], few), ([1, 4, 64], strided)] {
        let error = launch(q, scales).expect_err("an error");
        assert!(matches!(error, ct::Error::Argument { .. }), "{error}");
    }
    Ok(())
}
