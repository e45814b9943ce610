//! Attention of one query of each sequence with a paged cache of 4-bit codes (KIVI, Liu et al.,
//! 2024, with groups along the columns of a token).
//!
//! The kernel is the one of `decode.rs`, with these differences:
//! 1. scales multiply scores and weights, which are fewer than codes;
//! 2. codes are converted in registers to operands of `mma.m16n8k16`: a thread loads the codes of
//!    its fragments, in an order of columns that both operands share;
//! 3. the bits of a code are the mantissa of the number c + z, and the sums of products subtract
//!    the offset: Σ x c = Σ x (c + z) - z Σ x;
//! 4. values are the left operand, so that up to 8 queries fill an instruction;
//! 5. each warp has 32 keys of a tile, and an online softmax of its own.

use std::any::TypeId;
use std::f32::consts::LOG2_E;

use cutlet as ct;
use cutlet::element::{bf16, f16};
use cutlet::layout::{column_spatial, local, spatial};
use cutlet::packed::{NarrowTile, PackedArray, PackedView, i4};
use cutlet::prelude::*;
use cutlet::{Device, DeviceView, DeviceViewMut, FloatMode, Hints, Stream};

use super::decode::{Scratch, parts, sum_of_groups, sum_of_parts};
use super::online::{Exponent, Online};
use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors};

/// Keys and values in pages of 4-bit codes with scales, and the pages of each sequence.
///
/// Codes have the shape (pages, key heads, tokens of a page, dim), and scales (pages, key heads,
/// tokens of a page, groups). A number is code · scale. Groups of adjacent columns share a scale.
/// [`store_packed`](super::store_packed) writes both. The table is that of [`Pages`](super::Pages).
#[derive(Clone, Copy, Debug)]
pub struct PackedPages<'a> {
    /// Codes and scales of keys. A page has 2ⁿ tokens, at least 16. Its scales are contiguous.
    pub keys: (PackedView<'a, i4, 4>, DeviceView<'a, f32, 4>),
    /// Codes and scales of values, of the same shapes.
    pub values: (PackedView<'a, i4, 4>, DeviceView<'a, f32, 4>),
    /// Numbers of pages, of shape (sequences, pages of the longest one).
    pub table: DeviceView<'a, i32, 2>,
    /// Tokens of each sequence.
    pub lengths: DeviceView<'a, i32, 1>,
}

/// Keys of a warp in a tile, at most: more of them share one scaling of the sums.
const KEYS_OF_WARP: usize = 32;
/// Maximum number of query heads of a key head.
const ROWS: usize = 16;
/// Blocks of a multiprocessor.
const OCCUPANCY: u32 = 6;
/// Stages of tiles that `cp.async` prefetches. More stages are 1 % slower.
const STAGES: u32 = 2;

/// Constants of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Form {
    /// Rows of queries: 8 or 16.
    rows: usize,
    /// Keys of a tile.
    keys: usize,
    /// Columns of a group, and groups.
    group: usize,
    groups: usize,
    /// Tokens of a page.
    page: usize,
    parts: usize,
    /// Tiles of keys of a part, if they are independent of the batch.
    each: Option<usize>,
}

/// Codes, and scales with those of a page along one axis.
type Codes = (PackedArray<i4, 4>, Array<f32, 3>);
/// Results, logarithms and tickets of the parts.
type Partial = (ArrayMut<f32, 5>, ArrayMut<f32, 4>, ArrayMut<i32, 2>);

/// Returns codes plus an offset, and the offset.
///
/// The bits of a code are those of the mantissa whose lowest one counts 1, with the sign flipped.
fn with_offset<T: Number>(codes: NarrowTile<i4, 4>) -> (Tile<T, 4>, f32) {
    let bits = || codes.codes().cast::<u16>();
    match TypeId::of::<T>() {
        // 128 and 64 are the exponents.
        id if id == TypeId::of::<bf16>() => ((bits() ^ (0x4300 | 8)).bitcast::<bf16>().cast(), 136.0),
        id if id == TypeId::of::<f16>() => (((bits() << 4) ^ (0x5400 | 0x80)).bitcast::<f16>().cast(), 72.0),
        _ => (codes.cast(), 0.0),
    }
}

/// Returns rows of keys or queries for each warp in the order of [`in_order`]: a thread has
/// adjacent columns of each eighth row.
fn of_keys<T: Number>(tile: Tile<T, 2>, warps: usize) -> Tile<T, 3> {
    let [rows, columns] = tile.shape();
    let each = (columns / 4).min(32);
    let of_registers = local([(rows / warps / 8) as i64, (columns / (4 * each)) as i64]);
    let inner = of_registers * spatial([8, 4]) * local([1, each as i64]);
    let tile = in_order(tile.with_layout(spatial([warps as i64, 1]) * inner));
    tile.reshape([warps, rows / warps, columns])
}

/// Returns a tile of (rows, columns) with columns in the order of a product's depth, in which
/// adjacent columns are those of one thread. Columns with a distance of four are pairs: their codes
/// are 16 bits apart.
fn in_order<T: Element>(tile: Tile<T, 2>) -> Tile<T, 2> {
    let [rows, columns] = tile.shape();
    let each = (columns / 4).min(32);
    let apart = tile.reshape([rows, columns / (4 * each), 4, each / 8, 2, 2, 2]);
    apart.permute([0, 1, 3, 5, 6, 2, 4]).reshape([rows, columns])
}

/// Returns values in the order that [`of_results`] reverts: a thread has adjacent columns of two of
/// eight keys.
fn of_values<T: Number>(tile: Tile<T, 2>, warps: usize) -> Tile<T, 3> {
    let [keys, columns] = tile.shape();
    let inner = local([(keys / warps / 8) as i64, 1]) * column_spatial([4, 8]) * local([2, (columns / 8) as i64]);
    let tile = tile.with_layout(spatial([warps as i64, 1]) * inner);
    let tile = tile.reshape([keys, 8, columns / 8]).permute([0, 2, 1]);
    tile.reshape([warps, keys / warps, columns])
}

/// Returns columns in the order of memory.
fn of_results(tile: Tile<f32, 2>) -> Tile<f32, 2> {
    let [rows, columns] = tile.shape();
    tile.reshape([rows, columns / 8, 8]).permute([0, 2, 1]).reshape([rows, columns])
}

fn decode<T: Number>(
    q: Array<T, 4>,
    [keys, values]: [Codes; 2],
    (table, lengths): (Array<i32, 2>, Array<i32, 1>),
    (out, partial): (ArrayMut<T, 4>, Option<Partial>),
    scale: Scalar<f32>,
    Form { rows: m, keys: n, group, groups, page, parts, each }: Form,
) {
    let is_invariant = each.is_some();
    let (part, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let of_warp = n.min(KEYS_OF_WARP);
    let warps = n / of_warp;
    // Tiles are inside of their pages, so that no row of the loop has a bounds check.
    for (codes, scales) in [keys, values] {
        ct::require!(
            codes.extent(1).eq(ct::num_blocks(1)) & codes.extent(2).eq(page) & codes.extent(3).eq(group * groups)
        );
        ct::require!(scales.extent(1).eq(ct::num_blocks(1)) & scales.extent(2).eq(page * groups));
    }
    // Each warp has all queries: fragments outside of the loop instead of a copy in shared memory.
    let queries: Vec<Tile<T, 3>> = (0..groups)
        .map(|g| q.load((batch, head, 0, g), [1, 1, m, group]).reshape([1, m, group]))
        .map(|q| of_keys(q.broadcast_to([warps, m, group]).reshape([warps * m, group]), warps))
        .collect();
    let sums_of_queries: Vec<Tile<f32, 3>> = queries.iter().map(|q| q.cast::<f32>().sum(2)).collect();
    let length = lengths.load_scalar(batch);
    let each = each.map_or_else(|| length.ceil_div(n).ceil_div(parts), |each| ct::scalar(each as i32));
    let end = ((part + 1) * each).min(length.ceil_div(n));
    let exponent = Exponent::new(scale * LOG2_E);
    let step = |state: Online, j: Scalar<i32>| {
        let of_page = page / n;
        let (number, tile) = (table.load_scalar((batch, j / of_page)), j % of_page);
        let seen = (j * n + ct::arange(0..n)).lt(length);
        // The scales of a key are adjacent.
        let [keys, values] = [keys, values]
            .map(|(codes, scales)| (codes, scales.load((number, head, tile), [1, 1, n * groups]).reshape([n, groups])));
        let load = |(codes, scales): (PackedArray<i4, 4>, Tile<f32, 2>), g: usize| {
            let (codes, offset) = with_offset::<T>(codes.load((number, head, tile, g), [1, 1, n, group]));
            let scales = scales.extract((0, g), [n, 1]).reshape([warps, 1, of_warp]);
            (codes.reshape([n, group]), offset, scales)
        };
        let scores = (0..groups).map(|g| {
            let (codes, offset, scales) = load(keys, g);
            let start = (sums_of_queries[g] * -offset).broadcast_to([warps, m, of_warp]);
            ct::mma(queries[g], of_keys(codes, warps).permute([0, 2, 1]), start) * scales
        });
        let scores = scores.reduce(|sum, scores| sum + scores).expect("a group");
        let scores = ct::select(seen.reshape([warps, 1, of_warp]), scores, f32::NEG_INFINITY);
        state.add(scores.reshape([warps * m, of_warp]), exponent, |weights, sum| {
            let weights = weights.reshape([warps, m, of_warp]);
            let block = |g| {
                let (codes, offset, scales) = load(values, g);
                // Scales after the end of a sequence may be no numbers.
                let scales = ct::select(seen.reshape([warps, 1, of_warp]), scales, 0.0);
                let weights = (weights * scales).cast::<T>().permute([0, 2, 1]);
                let ones = ct::ones::<T, 3>([warps, 1, of_warp]);
                let total = ct::mma(ones, weights, ct::zeros::<f32, 3>([warps, 1, m]));
                let sum = (sum(g) - (total * offset).reshape([warps * m, 1])).reshape([warps, m, group]);
                let sum = ct::mma(of_values(codes, warps).permute([0, 2, 1]), weights, sum.permute([0, 2, 1]));
                sum.permute([0, 2, 1]).reshape([warps * m, group])
            };
            (0..groups).map(block).collect()
        })
    };
    let state = ct::fold(part * each..end, Online::new(warps * m, group, groups), step);
    let (results, logs) = state.finish(exponent, None);
    let of_warps: Vec<_> = results.into_iter().map(|result| sum_of_groups(result, logs, warps)).collect();
    let store = |g: usize, x: Tile<f32, 2>| {
        out.store((batch, head, 0, g), x.cast::<T>().reshape([1, 1, m, group]));
    };
    let Some((of_parts, of_logs, tickets)) = partial else {
        return of_warps.iter().enumerate().for_each(|(g, &(result, _))| store(g, of_results(result)));
    };
    for (g, &(result, _)) in of_warps.iter().enumerate() {
        of_parts.store((batch, head, part, 0, g), of_results(result).reshape([1, 1, 1, m, group]));
    }
    of_logs.store((batch, head, part, 0), of_warps[0].1.reshape([1, 1, 1, m]));
    let ticket = tickets.entry((batch, head)).atomic_add(1);
    ct::if_then(ticket.eq(parts - 1), || {
        for g in 0..groups {
            let place = [batch, head, ct::scalar(g as i32)];
            store(g, sum_of_parts((of_parts.as_array(), of_logs.as_array()), place, [m, group], (parts, is_invariant)));
        }
        tickets.entry((batch, head)).atomic_xchg(0);
    });
}

/// softmax(scale · q Kᵀ) V for one query of each sequence and a paged cache of 4-bit codes.
///
/// ```
/// # use cutlet as ct;
/// use cutlet::packed::i4;
/// use cutlet_kernels::attention::{PackedDecode, PackedPages, store_packed};
///
/// let device = ct::Device::cpu();
/// let stream = device.default_stream();
/// // A sequence of two tokens, in the second one of two pages.
/// let (shape, slots) = ([2, 1, 16, 32], device.array(&[16, 17], [2])?);
/// let x = device.from_fn([2, 1, 32], |[token, _, _]| [1.0f32, 3.0][token])?;
/// let (mut codes, mut scales) = (device.packed_zeros::<i4, 4>(shape)?, device.zeros([2, 1, 16, 1])?);
/// store_packed(&stream, x.view(), slots.view(), codes.view_mut(), scales.view_mut())?;
/// let (table, lengths) = (device.array(&[1], [1, 1])?, device.array(&[2], [1])?);
/// let cache = (codes.view(), scales.view());
/// let pages = PackedPages { keys: cache, values: cache, table: table.view(), lengths: lengths.view() };
/// let (q, mut y) = (device.zeros::<f32, 3>([1, 4, 32])?, device.zeros([1, 4, 32])?);
/// let decode = PackedDecode::new(0.25);
/// let mut scratch = decode.scratch(device, q.shape(), &pages)?;
/// decode.launch(&stream, q.view(), pages, y.view_mut(), &mut scratch)?;
/// assert!((y.to_vec()?[0] - 2.0).abs() < 1e-4);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct PackedDecode {
    scale: f32,
    parts: Option<usize>,
}

impl PackedDecode {
    /// Attention with a factor of the scores, above 0; 1 / √dim as a rule.
    pub fn new(scale: f32) -> PackedDecode {
        PackedDecode { scale, parts: None }
    }

    /// Sets the number of parts of the keys, which otherwise follows from the shapes.
    pub fn parts(self, parts: usize) -> PackedDecode {
        PackedDecode { parts: Some(parts.max(1)), ..self }
    }

    /// Allocates the scratch of a step with queries of this shape.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit, and those of the allocations.
    #[track_caller]
    pub fn scratch(&self, device: Device, q: [usize; 3], pages: &PackedPages) -> ct::Result<Scratch> {
        let ([batch, heads, dim], [_, key_heads, page, _]) = (q, pages.keys.0.shape());
        require(key_heads > 0 && heads.is_multiple_of(key_heads), || {
            format!("{heads} heads of queries, {key_heads} of keys")
        })?;
        let longest = pages.table.shape()[1] * page;
        let blocks = batch * key_heads;
        let of_shape = || parts(longest, blocks, OCCUPANCY as usize, num_multiprocessors(&device.default_stream()));
        let shape = [batch, key_heads, heads / key_heads, dim];
        Scratch::new(device, shape, longest, || self.parts.unwrap_or_else(of_shape))
    }

    /// Queues the kernel. `q` and the result are of shape (sequences, heads, dim). Key heads divide
    /// heads; a head of keys has at most 16 heads of queries.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit, and for scales of a page that are not
    /// contiguous; those of the launch. A page of the table that does not exist reads as zeros.
    #[track_caller]
    pub fn launch<T: Number>(
        &self,
        stream: &Stream,
        q: DeviceView<T, 3>,
        pages: PackedPages,
        out: DeviceViewMut<T, 3>,
        scratch: &mut Scratch,
    ) -> ct::Result<()> {
        let PackedPages { keys, values, table, lengths } = pages;
        let ([batch, heads, dim], [_, key_heads, page, _]) = (q.shape(), keys.0.shape());
        let groups = check(&pages, self.scale, q.shape(), out.shape())?;
        if out.is_empty() {
            return Ok(());
        }
        scratch.check()?;
        let rows = heads / key_heads;
        let parts = scratch.parts;
        let stored = if parts == 1 { 0 } else { parts };
        require(scratch.results.shape() == [batch, key_heads, stored, rows, dim], || {
            format!("the scratch is one for other shapes: {:?}", scratch.results.shape())
        })?;
        let keys_of_tile = page.min(64);
        let form = Form {
            rows: if rows <= ROWS / 2 { ROWS / 2 } else { ROWS },
            keys: keys_of_tile,
            group: dim / groups,
            groups,
            page,
            parts,
            each: scratch.keys.map(|keys| keys / keys_of_tile),
        };
        let of_pages = [keys.1.shape()[0], key_heads, page * groups];
        let [keys, values] = [(keys.0, keys.1.reshape(of_pages)?), (values.0, values.1.reshape(of_pages)?)];
        let q = q.reshape([batch, key_heads, rows, dim])?;
        let out = out.reshape([batch, key_heads, rows, dim])?;
        let Scratch { results, logs, tickets, .. } = scratch;
        let partial = (parts > 1).then_some((results.view_mut(), logs.view_mut(), tickets.view_mut()));
        let warps = (keys_of_tile / keys_of_tile.min(KEYS_OF_WARP)) as u32;
        let hints = Hints::new().num_warps(warps).num_stages(STAGES).occupancy(OCCUPANCY);
        let kernel = |q: Array<T, 4>,
                      cache: [Codes; 2],
                      tables: (Array<i32, 2>, Array<i32, 1>),
                      out: (ArrayMut<T, 4>, Option<Partial>),
                      scale: Scalar<f32>,
                      form: Form| {
            ct::with_mode(FloatMode::fast(), || decode(q, cache, tables, out, scale, form));
        };
        let arguments = (q, [keys, values], (table, lengths), (out, partial), self.scale, ct::Constant(form));
        ct::Launch::new([parts, key_heads, batch]).hints(hints).stream(stream).run(kernel, arguments)
    }
}

/// Checks shapes. Returns the number of groups of a token.
#[track_caller]
fn check(pages: &PackedPages, scale: f32, q: [usize; 3], out: [usize; 3]) -> ct::Result<usize> {
    let PackedPages { keys, values, table, lengths } = pages;
    let ([batch, heads, dim], [_, key_heads, page, key_dim]) = (q, keys.0.shape());
    require(scale > 0.0 && scale.is_finite(), || format!("scores times {scale}: a number above 0"))?;
    require(key_heads > 0 && heads.is_multiple_of(key_heads) && heads / key_heads <= ROWS, || {
        format!("{heads} heads of queries, {key_heads} of keys: 1 to {ROWS} for each head of keys")
    })?;
    require(dim == key_dim && values.0.shape() == keys.0.shape(), || {
        let [keys, values] = [keys.0.shape(), values.0.shape()];
        format!("queries of shape {q:?}, keys of {keys:?}, values of {values:?}")
    })?;
    require(page.is_power_of_two() && page >= 16, || format!("pages of {page} tokens: a power of two from 16 on"))?;
    let groups = super::store_packed::groups(keys.0.shape(), keys.1.shape())?;
    require(dim / groups >= 32 && dim <= 256, || {
        format!("{dim} columns in {groups} groups: at most 256, at least 32 in a group")
    })?;
    require(values.1.shape() == keys.1.shape(), || {
        format!("scales of keys of shape {:?}, of values of {:?}", keys.1.shape(), values.1.shape())
    })?;
    require(table.shape()[0] == batch && lengths.shape() == [batch], || {
        format!("a table of shape {:?}, {} lengths for {batch} sequences", table.shape(), lengths.shape()[0])
    })?;
    require(out == q, || format!("a result of shape {out:?} for queries of {q:?}"))?;
    Ok(groups)
}
