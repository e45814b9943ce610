//! Caches of 4-bit codes: the batch is the sequences, or the stored tokens.

use std::ops::Range;

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::element::{bf16, f16};
use cutlet::packed::{Narrow, PackedView, i4};
use cutlet_kernels::attention::{PackedDecode, PackedPages, store_packed};
use cutlet_kernels::batch_invariant;

use super::code::same_code;
use super::{BATCH, always, bits, part, same_bits};
use crate::support::{Numbers, device, random};

/// Heads of keys, columns, and groups of columns.
const KEY_HEADS: usize = 2;
const DIM: usize = 96;
const GROUPS: usize = 3;
/// Tokens of a page.
const PAGE: usize = 64;

/// Tokens of a sequence. Two of the compared sequences have several parts of 512 keys, and the
/// longest one has more parts.
fn length(sequence: usize) -> usize {
    let most = if device().target().is_some() { 3000 } else { 1300 };
    1 + (sequence * 977 + 555) % most
}

/// Codes and scales of all pages.
struct Cache {
    words: DeviceArray<u32, 4>,
    scales: DeviceArray<f32, 4>,
}

impl Cache {
    fn new(seed: u64, pages: usize) -> ct::Result<Cache> {
        let (shape, mut numbers) = ([pages, KEY_HEADS, PAGE, DIM], Numbers::new(seed));
        let of_words = PackedView::<i4, 4>::words(shape);
        let words: Vec<u32> = (0..of_words.iter().product()).map(|_| numbers.word()).collect();
        let (scales, _) = random(seed + 10, [pages, KEY_HEADS, PAGE, GROUPS], 0.3)?;
        Ok(Cache { words: device().array(&words, of_words)?, scales })
    }

    fn view(&self) -> ct::Result<(PackedView<'_, i4, 4>, ct::DeviceView<'_, f32, 4>)> {
        let [pages, ..] = self.scales.shape();
        Ok((PackedView::new(self.words.view(), [pages, KEY_HEADS, PAGE, DIM])?, self.scales.view()))
    }
}

/// Returns the results of sequences with the pages of one cache. The table has the pages of the
/// longest one.
fn decoded([keys, values]: &[Cache; 2], range: &Range<usize>, length: impl Fn(usize) -> usize) -> ct::Result<Vec<u64>> {
    let each = keys.scales.shape()[0] / BATCH;
    let longest = range.clone().map(&length).max().unwrap_or(1).div_ceil(PAGE);
    let q = part::<f16, 3>(1, [1, 3 * KEY_HEADS, DIM], range);
    let table = device().from_fn([range.len(), longest], |[s, i]| ((range.start + s) * each + i) as i32)?;
    let lengths = device().array(&range.clone().map(|s| length(s) as i32).collect::<Vec<_>>(), [range.len()])?;
    let (table, lengths) = (table.view(), lengths.view());
    let pages = PackedPages { keys: keys.view()?, values: values.view()?, table, lengths };
    let (decode, mut y) = (PackedDecode::new(0.1), device().zeros::<f16, 3>(q.shape())?);
    let mut scratch = decode.scratch(device(), q.shape(), &pages)?;
    decode.launch(&device().default_stream(), q.view(), pages, y.view_mut(), &mut scratch)?;
    bits(&y)
}

/// The code is compared for equal lengths: the parts of the longest sequence are added in a loop.
#[test]
fn decode() -> ct::Result<()> {
    let each = (0..BATCH).map(length).max().unwrap_or(1).div_ceil(PAGE);
    let caches = [Cache::new(2, BATCH * each)?, Cache::new(3, BATCH * each)?];
    batch_invariant(|| {
        same_bits(|range| decoded(&caches, &range, length))?;
        same_code(|range| decoded(&caches, &range, |_| 700))
    })
}

/// The parts of a scratch that was allocated outside of `batch_invariant` depend on the batch.
#[test]
fn scratch_of_another_mode() -> ct::Result<()> {
    let (cache, q) = (Cache::new(2, 1)?, device().zeros::<f16, 3>([1, KEY_HEADS, DIM])?);
    let (table, lengths) = (device().zeros([1, 1])?, device().full([1], 5)?);
    let (keys, table, lengths) = (cache.view()?, table.view(), lengths.view());
    let pages = PackedPages { keys, values: keys, table, lengths };
    let (decode, mut y) = (PackedDecode::new(0.2), device().zeros::<f16, 3>(q.shape())?);
    let mut scratch = decode.scratch(device(), q.shape(), &pages)?;
    let launch = || decode.launch(&device().default_stream(), q.view(), pages, y.view_mut(), &mut scratch);
    let error = batch_invariant(launch).unwrap_err().to_string();
    assert!(error.contains("the parts of this scratch depend on the batch"), "{error}");
    Ok(())
}

/// Tokens have other slots than their numbers.
#[test]
fn stored_tokens() -> ct::Result<()> {
    const TOKENS_OF_PAGE: usize = 16;
    let slot = |token: usize| token * 37 % BATCH;
    always(|range| {
        let x = part::<bf16, 3>(1, [1, KEY_HEADS, DIM], &range);
        let slots =
            device().array(&range.clone().map(|token| slot(token) as i32).collect::<Vec<_>>(), [range.len()])?;
        let pages = [BATCH / TOKENS_OF_PAGE, KEY_HEADS, TOKENS_OF_PAGE];
        let mut codes = device().packed_zeros::<i4, 4>([pages[0], pages[1], pages[2], DIM])?;
        let mut scales = device().zeros([pages[0], pages[1], pages[2], GROUPS])?;
        let stream = device().default_stream();
        store_packed(&stream, x.view(), slots.view(), codes.view_mut(), scales.view_mut())?;
        let (codes, scales) = (codes.to_vec()?, bits(&scales)?);
        let codes: Vec<u64> = codes.into_iter().map(|code| code.code().into()).collect();
        let rows = range.flat_map(|token| {
            let (page, row) = (slot(token) / TOKENS_OF_PAGE, slot(token) % TOKENS_OF_PAGE);
            (0..KEY_HEADS).map(move |head| (page * KEY_HEADS + head) * TOKENS_OF_PAGE + row)
        });
        Ok(rows.flat_map(|row| [&codes[row * DIM..][..DIM], &scales[row * GROUPS..][..GROUPS]].concat()).collect())
    })
}
