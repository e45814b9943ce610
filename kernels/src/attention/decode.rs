//! Attention of one query of each sequence with the keys of a paged cache: split keys
//! (Flash-Decoding, Dao et al., 2023) and block tables (PagedAttention, Kwon et al., 2023).
//!
//! A block takes the queries that share a head of keys as rows of one tile, past a part of the
//! keys:
//! 1. the rows of a block of keys are listed by the table, with no row after the end of the
//!    sequence;
//! 2. the online softmax of `online.rs`;
//! 3. with more than one part, the block stores its result and log₂ of its sum of exponentials;
//! 4. the last block of a head adds the parts, or a second kernel does.

use std::f32::consts::LOG2_E;

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{Device, DeviceArray, DeviceView, DeviceViewMut, FloatMode, Hints, LoadOptions, Stream};

use super::online::{Exponent, MIN_SCORE, Online};
use super::tiles;
use crate::Number;
use crate::check::require;
use crate::launch::{Run, is_batch_invariant, is_overlapped, num_multiprocessors};

/// Keys and values in pages, and the pages of each sequence.
///
/// Sequence `s` has its tokens `page · i` to `page · (i + 1) - 1` in page `table[s, i]`. Entries
/// after the end of a sequence have no meaning, as have the rows of a page after the end. A
/// contiguous cache of 2ⁿ tokens has one page for each sequence.
#[derive(Clone, Copy, Debug)]
pub struct Pages<'a, T: Element> {
    /// Keys, of shape (pages, tokens of a page, key heads, dim). A page has 2ⁿ tokens. Pages follow
    /// one another without gaps.
    pub keys: DeviceView<'a, T, 4>,
    /// Values, of the same shape, or of another dim.
    pub values: DeviceView<'a, T, 4>,
    /// Numbers of pages, of shape (sequences, pages of the longest one).
    pub table: DeviceView<'a, i32, 2>,
    /// Tokens of each sequence.
    pub lengths: DeviceView<'a, i32, 1>,
}

/// Kernel that adds the parts of the keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Combine {
    /// The last block of a head, by an atomic counter.
    #[default]
    LastBlock,
    /// A second kernel.
    SecondKernel,
}

/// Partial results of a decode step, which a program keeps for the next steps.
#[derive(Debug)]
pub struct Scratch {
    /// Parts of the keys.
    pub(super) parts: usize,
    /// Keys of a part, if they are independent of the batch.
    pub(super) keys: Option<usize>,
    /// Partial results, of shape (sequences, heads of keys, parts, rows, dim).
    pub(super) results: DeviceArray<f32, 5>,
    /// log₂ of sums of exponentials, of shape (sequences, heads of keys, parts, rows).
    pub(super) logs: DeviceArray<f32, 4>,
    /// Finished parts of each head. They are zero between two launches.
    pub(super) tickets: DeviceArray<i32, 2>,
}

ct::impl_graph_resource!(Scratch { results, logs, tickets });

impl Scratch {
    /// Allocates the scratch of [`INVARIANT_KEYS`], or of the number of parts.
    pub(super) fn new(
        device: Device,
        [batch, blocks, rows, dim]: [usize; 4],
        longest: usize,
        parts: impl FnOnce() -> usize,
    ) -> ct::Result<Scratch> {
        let (keys, parts) = match is_batch_invariant() {
            true => (Some(INVARIANT_KEYS), longest.div_ceil(INVARIANT_KEYS).max(1)),
            false => (None, parts()),
        };
        let stored = if parts == 1 { 0 } else { parts };
        Ok(Scratch {
            parts,
            keys,
            results: device.zeros([batch, blocks, stored, rows, dim])?,
            logs: device.zeros([batch, blocks, stored, rows])?,
            tickets: device.zeros([batch, blocks])?,
        })
    }

    /// Checks that the parts are independent of the batch, if the call is one of `batch_invariant`.
    #[track_caller]
    pub(super) fn check(&self) -> ct::Result<()> {
        require(self.keys.is_some() || !is_batch_invariant(), || {
            "the parts of this scratch depend on the batch: allocate it inside of `batch_invariant`, too".into()
        })
    }
}

/// Keys of a part that is independent of the batch: eight tiles of 64.
pub(super) const INVARIANT_KEYS: usize = 512;

/// Returns the number of parts of `keys` keys: the least one whose blocks leave at most 5 % of the
/// multiprocessors idle, if `of_each` blocks run on each of them. A part has at least 256 keys.
pub(super) fn parts(keys: usize, blocks: usize, of_each: usize, multiprocessors: usize) -> usize {
    let slots = (of_each * multiprocessors).max(1);
    let most = keys.div_ceil(256).clamp(1, 128);
    let used = |parts: usize| {
        let blocks = blocks.max(1) * parts;
        blocks as f64 / blocks.next_multiple_of(slots) as f64
    };
    let best = (1..=most).map(used).fold(0.0, f64::max);
    (1..=most).find(|&parts| used(parts) >= 0.95 || used(parts) >= best).unwrap_or(1)
}

/// Returns the number of blocks of a multiprocessor for columns of keys and values: shared memory
/// has two stages of 64 keys and values in each.
fn blocks_of_multiprocessor([d, e]: [usize; 2]) -> u32 {
    if d.max(e) <= 64 { 4 } else { 2 }
}

/// Constants of the kernels.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Form {
    /// Rows, keys, columns of keys and of values of a tile.
    tile: [usize; 4],
    /// Groups of keys of a tile, each of which has an online softmax of its own.
    groups: usize,
    /// Tokens of a page.
    page: usize,
    parts: usize,
    /// Tiles of keys of a part, if they are independent of the batch.
    each: Option<usize>,
    combine: Combine,
    /// The next kernel of the stream may start during this one.
    overlapped: bool,
}

/// Results, logarithms and tickets of the parts.
type Partial = (ArrayMut<f32, 5>, ArrayMut<f32, 4>, ArrayMut<i32, 2>);
/// Scale, softcap, window, and sinks of shape (heads of keys, rows).
type Parameters = (Scalar<f32>, Option<Scalar<f32>>, Option<Scalar<i32>>, Option<Array<f32, 2>>);

fn decode<T: Number>(
    q: Array<T, 4>,
    cache: [Array<T, 3>; 2],
    (table, lengths): (Array<i32, 2>, Array<i32, 1>),
    (out, partial): (ArrayMut<T, 4>, Option<Partial>),
    (scale, softcap, window, sinks): Parameters,
    Form { tile: [m, n, d, e], groups, page, parts, each, combine, overlapped }: Form,
) {
    if overlapped {
        ct::grid_dependency_control_launch_dependents();
    }
    let is_invariant = each.is_some();
    let (part, head, batch) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let queries = q.load((batch, head, 0, 0), [1, 1, m, d]).reshape([1, m, d]);
    let length = lengths.load_scalar(batch);
    let first = window.map_or(ct::scalar(0), |window| (length - window).max(0));
    let begin = first / n;
    let each = match each {
        Some(each) => ct::scalar(each as i32),
        None => (length.ceil_div(n) - begin).ceil_div(parts),
    };
    let begin_part = begin + part * each;
    let end_part = (begin_part + each).min(length.ceil_div(n));

    let exponent = Exponent::new(if softcap.is_some() { ct::scalar(LOG2_E) } else { scale * LOG2_E });
    let step = |state: Online, j: Scalar<i32>| {
        let key = j * n + ct::arange(0..n);
        let pages = match n > page {
            true => {
                let pages = table.load((batch, j), [1, n / page]).reshape([n / page, 1]);
                (pages * page + ct::arange(0..page).unsqueeze(0)).reshape([n])
            }
            false => table.load_scalar((batch, j / (page / n))) * page + (j % (page / n)) * n + ct::arange(0..n),
        };
        // No row: it is read as zeros.
        let rows = ct::select(key.lt(length), pages, -1);
        let each = n / groups;
        let [keys, values] = [(cache[0], d), (cache[1], e)]
            .map(|(x, columns)| x.load((ct::at(rows), head, 0), [n, 1, columns]).reshape([groups, each, columns]));
        let scores = ct::mma(queries, keys.permute([0, 2, 1]), ct::zeros::<f32, 3>([groups, m, each]));
        let scores = softcap.map_or(scores, |cap| (scores * (scale / cap)).tanh_approx() * cap);
        let seen = key.lt(length);
        let seen = if window.is_some() { seen & key.ge(first) } else { seen };
        let scores = ct::select(seen.reshape([groups, 1, each]), scores, f32::NEG_INFINITY);
        state.add(scores.reshape([groups * m, each]), exponent, |weights, sum| {
            let weights = weights.cast::<T>().reshape([groups, m, each]);
            vec![ct::mma(weights, values, sum(0).reshape([groups, m, e])).reshape([groups * m, e])]
        })
    };
    let state = ct::fold(begin_part..end_part, Online::new(groups * m, e, 1), step);
    // The sink is a key of the first group of the first part.
    let sink = sinks.map(|sinks| {
        let scores = sinks.load((head, 0), [1, m]) * LOG2_E;
        let is_first = (ct::arange(0..groups) + part).reshape([groups, 1]).eq(0);
        ct::select(is_first, scores, f32::NEG_INFINITY).reshape([groups * m, 1])
    });
    let (results, logs) = state.finish(exponent, sink);
    let (result, logs) = sum_of_groups(results[0], logs, groups);
    let store = |x: Tile<f32, 2>| out.store((batch, head, 0, 0), x.cast::<T>().reshape([1, 1, m, e]));
    let Some((of_parts, of_logs, tickets)) = partial else { return store(result) };
    of_parts.store((batch, head, part, 0, 0), result.reshape([1, 1, 1, m, e]));
    of_logs.store((batch, head, part, 0), logs.reshape([1, 1, 1, m]));
    if combine == Combine::LastBlock {
        let ticket = tickets.entry((batch, head)).atomic_add(1);
        ct::if_then(ticket.eq(parts - 1), || {
            let place = [batch, head, ct::scalar(0)];
            store(sum_of_parts((of_parts.as_array(), of_logs.as_array()), place, [m, e], (parts, is_invariant)));
            tickets.entry((batch, head)).atomic_xchg(0);
        });
    }
}

/// Returns the result and log₂ of the sums of exponentials of rows, from those of groups of keys.
pub(super) fn sum_of_groups(results: Tile<f32, 2>, logs: Tile<f32, 2>, groups: usize) -> (Tile<f32, 2>, Tile<f32, 2>) {
    if groups == 1 {
        return (results, logs);
    }
    let [rows, e] = results.shape();
    let m = rows / groups;
    let logs = logs.reshape([groups, m]);
    let max = logs.reduce_max(0).max(MIN_SCORE);
    let weights = (logs - max).exp2();
    let total = weights.sum(0).max(f32::MIN_POSITIVE);
    let sum = (results.reshape([groups, m, e]) * (weights / total).reshape([groups, m, 1])).sum(0);
    (sum.reshape([m, e]), (max + total.log2()).reshape([m, 1]))
}

/// Returns the result of the rows and columns of a tile from its parts. `place`: sequence, block of
/// rows, block of columns.
pub(super) fn sum_of_parts(
    (results, logs): (Array<f32, 5>, Array<f32, 4>),
    [batch, block, column]: [Scalar<i32>; 3],
    [m, e]: [usize; 2],
    (parts, is_invariant): (usize, bool),
) -> Tile<f32, 2> {
    // The weights of the parts do not depend on one another: several loads are in flight.
    let options = LoadOptions::new().padding(Padding::NegInf);
    let all = logs.load_with((batch, block, 0, 0), [1, 1, parts.next_power_of_two(), m], options);
    let all = all.reshape([parts.next_power_of_two(), m]);
    let max = all.reduce_max(0).max(MIN_SCORE);
    if is_invariant {
        // In the order of the parts: parts without keys, whose number the batch decides, add zeros.
        let start = (ct::zeros::<f32, 2>([m, e]), ct::zeros::<f32, 2>([m, 1]));
        let (sum, total) = ct::fold(ct::range(0, parts).unroll(4), start, |(sum, total), part| {
            let result = results.load((batch, block, part, 0, column), [1, 1, 1, m, e]).reshape([m, e]);
            let log = logs.load((batch, block, part, 0), [1, 1, 1, m]).reshape([1, m]);
            let weight = (log - max).exp2().reshape([m, 1]);
            (sum + result * weight, total + weight)
        });
        return sum / total.max(f32::MIN_POSITIVE);
    }
    let total = (all - max).exp2().sum(0).max(f32::MIN_POSITIVE);
    ct::fold(ct::range(0, parts).unroll(4), ct::zeros::<f32, 2>([m, e]), |sum, part| {
        let result = results.load((batch, block, part, 0, column), [1, 1, 1, m, e]).reshape([m, e]);
        let log = logs.load((batch, block, part, 0), [1, 1, 1, m]).reshape([1, m]);
        sum + result * ((log - max).exp2() / total).reshape([m, 1])
    })
}

/// Adds the parts: a block for a head of keys and a block of columns.
pub(super) fn add_parts<T: Number>(
    results: Array<f32, 5>,
    logs: Array<f32, 4>,
    out: ArrayMut<T, 4>,
    ([m, e], parts): ([usize; 2], (usize, bool)),
) {
    let place = [ct::bid(2), ct::bid(1), ct::bid(0)];
    let sum = sum_of_parts((results, logs), place, [m, e], parts);
    out.store((place[0], place[1], 0, place[2]), sum.cast::<T>().reshape([1, 1, m, e]));
}

/// softmax(scale · q Kᵀ) V for one query of each sequence and a paged cache.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::attention::{Decode, Pages};
///
/// let device = ct::Device::cpu();
/// let decode = Decode::new(0.25);
/// // Two sequences of 20 and 3 tokens in pages of 16, two heads of queries for a head of keys.
/// let q = device.full([2, 2, 8], 1.0f32)?;
/// let keys = device.full([4, 16, 1, 8], 1.0f32)?;
/// let values = device.from_fn([4, 16, 1, 8], |[page, i, _, _]| (16 * page + i) as f32)?;
/// let (table, lengths) = (device.array(&[3, 1, 0, 0], [2, 2])?, device.array(&[20, 3], [2])?);
/// let pages = Pages { keys: keys.view(), values: values.view(), table: table.view(), lengths: lengths.view() };
/// let (mut y, mut scratch) = (device.zeros([2, 2, 8])?, decode.scratch(device, q.shape(), &pages)?);
/// decode.launch(&device.default_stream(), q.view(), pages, y.view_mut(), &mut scratch)?;
/// let first = ((48..64).sum::<i32>() + (16..20).sum::<i32>()) as f32 / 20.0;
/// assert!((y.to_vec()?[0] - first).abs() < 1e-4 && (y.to_vec()?[16] - 1.0).abs() < 1e-5);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Decode<'a> {
    scale: f32,
    softcap: Option<f32>,
    window: Option<usize>,
    sinks: Option<DeviceView<'a, f32, 1>>,
    combine: Combine,
    parts: Option<usize>,
}

impl<'a> Decode<'a> {
    /// Attention with a factor of the scores, above 0; 1 / √dim as a rule.
    pub fn new(scale: f32) -> Decode<'a> {
        Decode { scale, softcap: None, window: None, sinks: None, combine: Combine::LastBlock, parts: None }
    }

    /// Bounds scores by `cap · tanh(score / cap)`, with an approximate tangent.
    pub fn softcap(self, cap: f32) -> Decode<'a> {
        Decode { softcap: Some(cap), ..self }
    }

    /// Shows a query the last `window` keys, which are at least 1.
    pub fn window(self, window: usize) -> Decode<'a> {
        Decode { window: Some(window), ..self }
    }

    /// Adds a key to each head of queries, with a score of this array and without a value.
    pub fn sinks<'b>(self, sinks: DeviceView<'b, f32, 1>) -> Decode<'b> {
        let Decode { scale, softcap, window, combine, parts, .. } = self;
        Decode { scale, softcap, window, sinks: Some(sinks), combine, parts }
    }

    /// Selects the kernel that adds the parts of the keys.
    pub fn combine(self, combine: Combine) -> Decode<'a> {
        Decode { combine, ..self }
    }

    /// Sets the number of parts of the keys, which otherwise follows from the shapes.
    pub fn parts(self, parts: usize) -> Decode<'a> {
        Decode { parts: Some(parts.max(1)), ..self }
    }

    /// Allocates the scratch of a step with queries of this shape.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit, and those of the allocations.
    #[track_caller]
    pub fn scratch<T: Number>(&self, device: Device, q: [usize; 3], pages: &Pages<T>) -> ct::Result<Scratch> {
        let [batch, heads, _] = q;
        let [_, page, key_heads, _] = pages.keys.shape();
        require(key_heads > 0 && heads.is_multiple_of(key_heads), || {
            format!("{heads} heads of queries, {key_heads} of keys")
        })?;
        let longest = pages.table.shape()[1] * page;
        let longest = self.window.map_or(longest, |window| longest.min(window.saturating_add(64)));
        let of_each = blocks_of_multiprocessor([q[2], pages.values.shape()[3]]) as usize;
        let of_shape = || parts(longest, batch * key_heads, of_each, num_multiprocessors(&device.default_stream()));
        let rows = heads / key_heads;
        let shape = [batch, key_heads, rows, pages.values.shape()[3]];
        Scratch::new(device, shape, longest, || self.parts.unwrap_or_else(of_shape))
    }

    /// Queues the kernels. `q` and the result are of shape (sequences, heads, dim), where key heads
    /// divide heads.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit, and those of the launch. A page of the
    /// table that does not exist reads as zeros.
    #[track_caller]
    pub fn launch<T: Number>(
        &self,
        stream: &Stream,
        q: DeviceView<T, 3>,
        Pages { keys, values, table, lengths }: Pages<T>,
        out: DeviceViewMut<T, 3>,
        scratch: &mut Scratch,
    ) -> ct::Result<()> {
        let ([batch, heads, dim], [pages, page, key_heads, key_dim]) = (q.shape(), keys.shape());
        let of_values = values.shape()[3];
        require(self.scale > 0.0 && self.scale.is_finite(), || {
            format!("scores times {}: a number above 0", self.scale)
        })?;
        require(self.window != Some(0), || "a window of 0 keys: at least 1".into())?;
        require(key_heads > 0 && heads.is_multiple_of(key_heads), || {
            format!("{heads} heads of queries, {key_heads} of keys")
        })?;
        require(values.shape() == [pages, page, key_heads, of_values] && dim == key_dim, || {
            format!("queries of shape {:?}, keys of {:?}, values of {:?}", q.shape(), keys.shape(), values.shape())
        })?;
        require(page.is_power_of_two(), || format!("pages of {page} tokens: a power of two"))?;
        require(dim > 0 && dim.max(of_values) <= 512, || {
            format!("queries of {dim} numbers, values of {of_values}: 1 to 512")
        })?;
        require(table.shape()[0] == batch && lengths.shape() == [batch], || {
            format!("a table of shape {:?}, {} lengths for {batch} sequences", table.shape(), lengths.shape()[0])
        })?;
        require(out.shape() == [batch, heads, of_values], || format!("a result of shape {:?}", out.shape()))?;
        if out.is_empty() {
            return Ok(());
        }
        let sinks = self.sinks.map(|sinks| sinks.shape()[0]);
        require(sinks.is_none_or(|sinks| sinks == heads), || {
            format!("{sinks:?} sinks for {heads} heads: one for each")
        })?;
        scratch.check()?;
        let (group, parts) = (heads / key_heads, scratch.parts);
        let stored = if parts == 1 { 0 } else { parts };
        require(scratch.results.shape() == [batch, key_heads, stored, group, of_values], || {
            format!("the scratch is one for other shapes: {:?}", scratch.results.shape())
        })?;
        let [m, d, e] = [group.next_power_of_two().max(16), tiles::columns(dim), tiles::columns(of_values)];
        require(m <= 128, || format!("{group} heads of queries for a head of keys: at most 128"))?;
        let keys_of_tile = if d.max(e) > 128 || size_of::<T>() == 4 { 32 } else { 64 };
        let (combine, overlapped) = (self.combine, is_overlapped());
        // A warp has keys of its own, so that warps exchange nothing in the loop.
        let groups = if m * d.max(e) <= 2048 && size_of::<T>() == 2 { 4 } else { 1 };
        let hints = if groups > 1 { Hints::new().occupancy(blocks_of_multiprocessor([d, e])) } else { Hints::new() };
        let each = scratch.keys.map(|keys| keys / keys_of_tile);
        let form = Form { tile: [m, keys_of_tile, d, e], groups, page, parts, each, combine, overlapped };
        let q = q.reshape([batch, key_heads, group, dim])?;
        let mut out = out.reshape([batch, key_heads, group, of_values])?;
        let keys = keys.reshape([pages * page, key_heads, dim])?;
        let values = values.reshape([pages * page, key_heads, of_values])?;
        let Scratch { results, logs, tickets, .. } = scratch;
        let partial = (parts > 1).then_some((results.view_mut(), logs.view_mut(), tickets.view_mut()));
        let window = self.window.map(|window| i32::try_from(window).unwrap_or(i32::MAX));
        let sinks = self.sinks.map(|sinks| sinks.reshape([key_heads, group])).transpose()?;
        let kernel = |q: Array<T, 4>,
                      cache: [Array<T, 3>; 2],
                      tables: (Array<i32, 2>, Array<i32, 1>),
                      out: (ArrayMut<T, 4>, Option<Partial>),
                      parameters: Parameters,
                      form: Form| {
            ct::with_mode(FloatMode::fast(), || decode(q, cache, tables, out, parameters, form));
        };
        let arguments = (
            q,
            [keys, values],
            (table, lengths),
            (out.reborrow(), partial),
            (self.scale, self.softcap, window, sinks),
            ct::Constant(form),
        );
        ct::Launch::new([parts, key_heads, batch]).hints(hints).stream(stream).run(kernel, arguments)?;
        if parts == 1 || self.combine == Combine::LastBlock {
            return Ok(());
        }
        let tile = ct::Constant(([m, e], (parts, each.is_some())));
        let arguments = (results.view(), logs.view(), out, tile);
        ct::Launch::new([1, key_heads, batch]).stream(stream).run(add_parts::<T>, arguments)
    }
}
