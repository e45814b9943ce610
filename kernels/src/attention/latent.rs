//! Decoding with latent vectors: multi-head latent attention (DeepSeek-V2, 2024) with absorbed projections.
//!
//! All heads share one vector of 576 numbers a token. Its first 512 are the value, too. A block takes a tile of heads past a part
//! of the keys. The 512 columns are loaded in four blocks, each of which is an operand of both products and has an accumulator:
//! the stage of a block is free after its second product.

use std::f32::consts::LOG2_E;

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{Device, DeviceView, DeviceViewMut, FloatMode, LoadOptions, Stream, Target};

use super::decode::{Scratch, add_parts, parts};
use super::online::Online;
use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors, target};

/// Latent vectors of sequences.
#[derive(Clone, Copy, Debug)]
pub struct Latents<'a, T: Element> {
    /// Vectors, of shape (pages, tokens of a page, latent + rotated). A page has 2ⁿ tokens. Without a table, each sequence is one page of any length.
    /// Rows behind the end of a sequence have finite numbers.
    pub vectors: DeviceView<'a, T, 3>,
    /// Numbers of pages, of shape (sequences, pages of the longest one). Entries behind the end of a sequence have no meaning.
    pub table: Option<DeviceView<'a, i32, 2>>,
    /// Tokens of each sequence.
    pub lengths: DeviceView<'a, i32, 1>,
}

/// Blocks of the latent columns.
const BLOCKS: usize = 4;

/// Constants of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Form {
    /// Heads and keys of a tile.
    tile: [usize; 2],
    /// Heads that a block computes.
    rows: usize,
    /// Latent and rotated columns.
    columns: [usize; 2],
    /// Tokens of a page; `None`: all of a sequence.
    page: Option<usize>,
    parts: usize,
}

/// Results and logarithms of the parts.
type Partial = (ArrayMut<f32, 5>, ArrayMut<f32, 4>);

fn decode<T: Number>(
    q: Array<T, 4>,
    vectors: Array<T, 3>,
    (table, lengths): (Option<Array<i32, 2>>, Array<i32, 1>),
    (out, partial): (ArrayMut<T, 4>, Option<Partial>),
    scale: Scalar<f32>,
    Form { tile: [m, n], rows, columns: [latent, rotated], page, parts }: Form,
) {
    let (part, batch) = (ct::bid(1), ct::bid(2));
    // Several tiles of heads share a block of the scratch, where a tile has fewer rows.
    let (block, tile) = match rows.div_ceil(m) {
        1 => (ct::bid(0), ct::scalar(0)),
        tiles => (ct::bid(0) / tiles, ct::bid(0) % tiles),
    };
    let width = latent / BLOCKS;
    let queries = |column: usize, width: usize| {
        q.load((batch, block, tile, column / width), [1, 1, m, width]).reshape([m, width])
    };
    let queries: Vec<Tile<T, 2>> = (0..BLOCKS).map(|i| queries(i * width, width)).collect();
    let length = lengths.load_scalar(batch);
    // A computed operand stays in registers: its shared memory is that of a stage.
    let narrow: Tile<T, 2> = q.load((batch, block, tile, latent / rotated), [1, 1, m, rotated]).reshape([m, rotated]);
    let rotated_queries: Tile<T, 2> = ct::select(length.gt(0), narrow, ct::zeros::<T, 2>([m, rotated]));
    let each = length.ceil_div(n).ceil_div(parts);
    let end = ((part + 1) * each).min(length.ceil_div(n));

    // A tile of keys is one box of a page, or the boxes of several pages.
    let load = |j: Scalar<i32>, column: usize, width: usize| {
        let column = (column / width) as i32;
        match (table, page) {
            (Some(table), Some(page)) if page < n => {
                let boxes = (0..n / page).map(|i| {
                    let at = j * (n / page) + i;
                    let number = table.load_scalar((batch, at.min(table.extent(1) - 1)));
                    let number: Scalar<i32> = ct::select((at * page).lt(length), number, -1);
                    let options = LoadOptions::new().clipped();
                    vectors.load_with((number, 0, column), [1, page, width], options).reshape([page, width])
                });
                ct::cat(boxes, 0)
            }
            (Some(table), Some(page)) => {
                let number = table.load_scalar((batch, j / (page / n)));
                vectors.load((number, j % (page / n), column), [1, n, width]).reshape([n, width])
            }
            _ => vectors.load((batch, j, column), [1, n, width]).reshape([n, width]),
        }
    };
    let factor = scale * LOG2_E;
    let step = |state: Online, j: Scalar<i32>| {
        let narrow = load(j, latent, rotated);
        let wide: Vec<Tile<T, 2>> = (0..BLOCKS).map(|i| load(j, i * width, width)).collect();
        let scores = ct::mma(rotated_queries, narrow.transpose(), ct::zeros::<f32, 2>([m, n]));
        // One call for each block: products of one call would keep the stages of all blocks until the last product.
        let scores = ct::mma(queries[0], wide[0].transpose(), scores);
        let scores = ct::mma(queries[1], wide[1].transpose(), scores);
        let scores = ct::mma(queries[2], wide[2].transpose(), scores);
        let scores = ct::mma(queries[3], wide[3].transpose(), scores);
        let seen = (j * n + ct::arange(0..n)).lt(length).unsqueeze(0);
        state.add(ct::select(seen, scores, f32::NEG_INFINITY), factor, |weights, sum| {
            let weights = weights.cast::<T>();
            vec![
                ct::mma(weights, wide[0], sum(0)),
                ct::mma(weights, wide[1], sum(1)),
                ct::mma(weights, wide[2], sum(2)),
                ct::mma(weights, wide[3], sum(3)),
            ]
        })
    };
    let state = ct::fold(part * each..end, Online::new(m, width, BLOCKS), step);
    let (results, logs) = state.finish(factor, None);
    for (i, result) in results.into_iter().enumerate() {
        match partial {
            None => out.store((batch, block, tile, i), result.cast::<T>().reshape([1, 1, m, width])),
            Some((of_parts, _)) => of_parts.store((batch, block, part, tile, i), result.reshape([1, 1, 1, m, width])),
        }
    }
    partial.iter().for_each(|(_, of_logs)| of_logs.store((batch, block, part, tile), logs.reshape([1, 1, 1, m])));
}

/// softmax(scale · q Kᵀ) V for one query of each sequence and head, where the vectors of a sequence are its keys and their first
/// columns its values.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::attention::{Latent, Latents};
///
/// let device = ct::Device::cpu();
/// // Vectors of 64 latent and 16 rotated numbers, two sequences of 5 and 2 tokens.
/// let latent = Latent::new(0.1, 64);
/// let vectors = device.from_fn([2, 5, 80], |[_, i, _]| i as f32)?;
/// let lengths = device.array(&[5, 2], [2])?;
/// let latents = Latents { vectors: vectors.view(), table: None, lengths: lengths.view() };
/// let (q, mut y) = (device.zeros([2, 3, 80])?, device.zeros([2, 3, 64])?);
/// let mut scratch = latent.scratch(device, q.shape(), &latents)?;
/// latent.launch(&device.default_stream(), q.view(), latents, y.view_mut(), &mut scratch)?;
/// assert_eq!((y.to_vec()?[0], y.to_vec()?[3 * 64]), (2.0, 0.5));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Latent {
    scale: f32,
    latent: usize,
    parts: Option<usize>,
}

impl Latent {
    /// Attention with a factor of the scores, above 0, and a number of latent columns.
    pub fn new(scale: f32, latent: usize) -> Latent {
        Latent { scale, latent, parts: None }
    }

    /// Sets the number of parts of the keys, which otherwise follows from the shapes.
    pub fn parts(self, parts: usize) -> Latent {
        Latent { parts: Some(parts.max(1)), ..self }
    }

    /// Heads of a block: the largest divisor up to 64.
    fn rows(heads: usize) -> usize {
        (1..=heads.clamp(1, 64)).rev().find(|rows| heads.is_multiple_of(*rows)).unwrap_or(1)
    }

    /// Allocates the scratch of a step with queries of this shape.
    ///
    /// # Errors
    /// Those of the allocations.
    #[track_caller]
    pub fn scratch<T: Number>(&self, device: Device, q: [usize; 3], latents: &Latents<T>) -> ct::Result<Scratch> {
        let [batch, heads, _] = q;
        let [_, page, _] = latents.vectors.shape();
        let longest = latents.table.map_or(page, |table| table.shape()[1] * page);
        let rows = Latent::rows(heads);
        let blocks = batch * (heads / rows);
        let parts =
            self.parts.unwrap_or_else(|| parts(longest, blocks, 1, num_multiprocessors(&device.default_stream())));
        Scratch::new(device, [batch, heads / rows, parts, rows, self.latent])
    }

    /// Queues the kernels. `q` is of shape (sequences, heads, latent + rotated), the result of (sequences, heads, latent). The number
    /// of latent columns is a multiple of 64 and of the rotated columns, which are a multiple of 16.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit, and those of the launch.
    #[track_caller]
    pub fn launch<T: Number>(
        &self,
        stream: &Stream,
        q: DeviceView<T, 3>,
        Latents { vectors, table, lengths }: Latents<T>,
        out: DeviceViewMut<T, 3>,
        scratch: &mut Scratch,
    ) -> ct::Result<()> {
        let ([batch, heads, dim], [pages, page, key_dim]) = (q.shape(), vectors.shape());
        let latent = self.latent;
        let rotated = dim.saturating_sub(latent);
        require(self.scale > 0.0 && self.scale.is_finite(), || {
            format!("scores times {}: a number above 0", self.scale)
        })?;
        require(dim == key_dim, || format!("queries of {dim} numbers, keys of {key_dim}: both are equal"))?;
        require((64..=512).contains(&latent) && latent.is_multiple_of(64), || {
            format!("{latent} latent columns: a multiple of 64, at most 512")
        })?;
        require(rotated > 0 && rotated.is_multiple_of(16) && latent.is_multiple_of(rotated), || {
            format!("{rotated} rotated columns behind {latent}: a multiple of 16 that divides the latent columns")
        })?;
        require(out.shape() == [batch, heads, latent], || format!("a result of shape {:?}", out.shape()))?;
        require(lengths.shape() == [batch], || format!("{} lengths for {batch} sequences", lengths.shape()[0]))?;
        match table {
            Some(table) => require(table.shape()[0] == batch && page.is_power_of_two(), || {
                format!(
                    "a table of shape {:?} for {batch} sequences, pages of {page} tokens: a power of two",
                    table.shape()
                )
            })?,
            None => require(pages == batch, || format!("{pages} pages without a table for {batch} sequences"))?,
        }
        if out.is_empty() {
            return Ok(());
        }
        let (rows, parts) = (Latent::rows(heads), scratch.parts);
        let (blocks, stored) = (heads / rows, if parts == 1 { 0 } else { parts });
        require(scratch.results.shape() == [batch, blocks, stored, rows, latent], || {
            format!("the scratch is one for other shapes: {:?}", scratch.results.shape())
        })?;
        let hopper = target(stream) == Some(Target::SM_90A) && size_of::<T>() == 2;
        let tile = match hopper {
            true => [64, 128],
            false => [16, 32],
        };
        let form = Form { tile, rows, columns: [latent, rotated], page: table.map(|_| page), parts };
        let q = q.reshape([batch, blocks, rows, dim])?;
        let mut out = out.reshape([batch, blocks, rows, latent])?;
        let partial = (parts > 1).then_some((scratch.results.view_mut(), scratch.logs.view_mut()));
        let kernel = |q: Array<T, 4>,
                      vectors: Array<T, 3>,
                      tables: (Option<Array<i32, 2>>, Array<i32, 1>),
                      out: (ArrayMut<T, 4>, Option<Partial>),
                      scale: Scalar<f32>,
                      form: Form| {
            ct::with_mode(FloatMode::fast(), || decode(q, vectors, tables, out, scale, form));
        };
        let arguments = (q, vectors, (table, lengths), (out.reborrow(), partial), self.scale, ct::Constant(form));
        ct::Launch::new([blocks * rows.div_ceil(tile[0]), parts, batch]).stream(stream).run(kernel, arguments)?;
        if parts == 1 {
            return Ok(());
        }
        let tile = ct::Constant([rows.next_power_of_two(), 64, parts]);
        let arguments = (scratch.results.view(), scratch.logs.view(), out, tile);
        ct::Launch::new([latent.div_ceil(64), blocks, batch]).stream(stream).run(add_parts::<T>, arguments)
    }
}
