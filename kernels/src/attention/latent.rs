//! Decoding with latent vectors: multi-head latent attention (DeepSeek-V2, 2024) with absorbed
//! projections.
//!
//! All heads share one vector of 576 numbers a token. Its first 512 are the value, too. A block
//! takes a tile of heads past a part of the keys. The 512 columns are loaded in four blocks, each
//! of which is an operand of both products and has an accumulator: the stage of a block is free
//! after its second product.

use std::f32::consts::LOG2_E;

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{Device, DeviceView, DeviceViewMut, FloatMode, Hints, LoadOptions, Stream, Target};

use super::decode::{Scratch, add_parts, parts};
use super::online::{Exponent, Online};
use super::shapes::check_scale;
use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors, target};

/// Places of the vectors of each sequence.
#[derive(Clone, Copy, Debug)]
pub enum Order<'a> {
    /// Each sequence is one page of any length.
    Contiguous,
    /// Numbers of pages, of shape (sequences, pages of the longest one). A page has 2ⁿ tokens.
    /// Entries after the end of a sequence have no meaning.
    Pages(DeviceView<'a, i32, 2>),
    /// Numbers of chosen vectors among those of all pages, of shape (sequences, most vectors):
    /// sparse attention. Pages follow one another without gaps. Entries after the end have no
    /// meaning.
    Chosen(DeviceView<'a, i32, 2>),
}

/// Latent vectors of sequences.
#[derive(Clone, Copy, Debug)]
pub struct Latents<'a, T: Element> {
    /// Vectors, of shape (pages, tokens of a page, latent + rotated). Rows after the end of a
    /// sequence have finite numbers.
    pub vectors: DeviceView<'a, T, 3>,
    /// Places of the vectors of each sequence.
    pub order: Order<'a>,
    /// Vectors of each sequence.
    pub lengths: DeviceView<'a, i32, 1>,
}

/// Blocks of the latent columns.
const BLOCKS: usize = 4;

/// Source of the rows of a tile.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Places {
    Contiguous,
    /// Tokens of a page.
    Pages(usize),
    Chosen,
}

/// Constants of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Form {
    /// Heads and keys of a tile.
    tile: [usize; 2],
    /// Heads that a block computes.
    rows: usize,
    /// Latent and rotated columns.
    columns: [usize; 2],
    places: Places,
    parts: usize,
    /// Tiles of keys of a part, if they are independent of the batch.
    each: Option<usize>,
}

/// The vectors of a sequence.
#[derive(Clone, Copy)]
struct Source<T> {
    vectors: Array<T, 3>,
    table: Option<Array<i32, 2>>,
    places: Places,
    batch: Scalar<i32>,
    length: Scalar<i32>,
    /// Vectors of a tile.
    keys: usize,
}

impl<T: Number> Source<T> {
    /// Loads the numbers of the pages of a tile.
    fn pages(self, j: Scalar<i32>) -> Vec<Scalar<i32>> {
        let (Some(table), Places::Pages(page)) = (self.table, self.places) else { return vec![self.batch] };
        let number = |i: usize| {
            let at = if page < self.keys { j * (self.keys / page) + i } else { j / (page / self.keys) };
            let number = table.load_scalar((self.batch, at.min(table.extent(1) - 1)));
            // No page: it is read as zeros.
            ct::select::<Scalar<i32>>((at * page).lt(self.length), number, -1)
        };
        (0..self.keys.div_ceil(page)).map(number).collect()
    }

    /// Loads columns of a tile from its pages.
    fn load(self, pages: &[Scalar<i32>], j: Scalar<i32>, column: usize, width: usize) -> Tile<T, 2> {
        let Source { vectors, places, batch, length, keys: n, .. } = self;
        if let (Places::Chosen, Some(list)) = (places, self.table) {
            let seen = (j * n + ct::arange(0..n)).lt(length);
            let chosen = ct::select(seen, list.load((batch, j), [1, n]).reshape([n]), -1);
            return vectors.load((0, ct::at(chosen), column / width), [1, n, width]).reshape([n, width]);
        }
        let (rows, at) = match places {
            Places::Pages(page) if page < n => (page, ct::scalar(0)),
            Places::Pages(page) => (n, j % (page / n)),
            _ => (n, j),
        };
        let part = |number: &Scalar<i32>| {
            let options = LoadOptions::new().clipped();
            vectors.load_with((*number, at, column / width), [1, rows, width], options).reshape([rows, width])
        };
        if pages.len() == 1 { part(&pages[0]) } else { ct::cat(pages.iter().map(part), 0) }
    }
}

/// Results and logarithms of the parts.
type Partial = (ArrayMut<f32, 5>, ArrayMut<f32, 4>);

fn decode<T: Number>(
    q: Array<T, 4>,
    vectors: Array<T, 3>,
    (table, lengths): (Option<Array<i32, 2>>, Array<i32, 1>),
    (out, partial): (ArrayMut<T, 4>, Option<Partial>),
    scale: Scalar<f32>,
    Form { tile: [m, n], rows, columns: [latent, rotated], places, parts, each }: Form,
) {
    let (part, batch) = (ct::bid(1), ct::bid(2));
    // Several tiles of heads share a block of the scratch, where a tile has fewer rows.
    let (block, tile) = match rows.div_ceil(m) {
        1 => (ct::bid(0), ct::scalar(0)),
        tiles => (ct::bid(0) / tiles, ct::bid(0) % tiles),
    };
    let width = latent / BLOCKS;
    // Chosen rows have one list, whose layout among threads is that of all loads: the rotated
    // columns are a block of the same width, with zeros after them.
    let rotated = if places == Places::Chosen { width.max(rotated) } else { rotated };
    let load = |at: usize, width: usize| q.load((batch, block, tile, at), [1, 1, m, width]).reshape([m, width]);
    let queries: Vec<Tile<T, 2>> = (0..BLOCKS).map(|i| load(i, width)).collect();
    let (length, narrow) = (lengths.load_scalar(batch), load(latent / rotated, rotated));
    // A computed operand stays in registers: its shared memory is that of a stage.
    let is_stored = places == Places::Chosen;
    let narrow_queries = if is_stored { narrow } else { ct::select(length.gt(0), narrow, ct::zeros([m, rotated])) };
    let tiles = length.ceil_div(n);
    let each = each.map_or(tiles.ceil_div(parts), |each| ct::scalar(each as i32));
    let range = part * each..((part + 1) * each).min(tiles);

    // The numbers of the pages are read one iteration earlier.
    let source = Source { vectors, table, places, batch, length, keys: n };
    let exponent = Exponent::new(scale * LOG2_E);
    let step = |(state, pages): (Online, Vec<Scalar<i32>>), j: Scalar<i32>| {
        let next = if matches!(places, Places::Pages(_)) { source.pages(j + 1) } else { pages.clone() };
        let narrow = source.load(&pages, j, latent, rotated);
        let wide: Vec<Tile<T, 2>> = (0..BLOCKS).map(|i| source.load(&pages, j, i * width, width)).collect();
        let scores = ct::mma(narrow_queries, narrow.transpose(), ct::zeros::<f32, 2>([m, n]));
        let scores = (0..BLOCKS).fold(scores, |sum, i| ct::mma(queries[i], wide[i].transpose(), sum));
        let masked = || {
            let seen = (j * n + ct::arange(0..n)).lt(length).unsqueeze(0);
            ct::select(seen, scores, f32::NEG_INFINITY)
        };
        let scores = ct::if_else(((j + 1) * n).le(length), || scores, masked);
        let state = state.add(scores, exponent, |weights, sum| {
            let weights = weights.cast::<T>();
            (0..BLOCKS).map(|i| ct::mma(weights, wide[i], sum(i))).collect()
        });
        (state, next)
    };
    let start = (Online::new(m, width, BLOCKS), source.pages(part * each));
    let (state, _) = ct::fold(range, start, step);
    let (results, logs) = state.finish(exponent, None);
    for (i, result) in results.into_iter().enumerate() {
        match partial {
            None => out.store((batch, block, tile, i), result.cast::<T>().reshape([1, 1, m, width])),
            Some((of_parts, _)) => of_parts.store((batch, block, part, tile, i), result.reshape([1, 1, 1, m, width])),
        }
    }
    partial.iter().for_each(|(_, of_logs)| of_logs.store((batch, block, part, tile), logs.reshape([1, 1, 1, m])));
}

/// softmax(scale · q Kᵀ) V for one query of each sequence and head, where the vectors of a sequence
/// are its keys and their first columns its values.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::attention::{Latent, Latents, Order};
///
/// let device = ct::Device::cpu();
/// // Vectors of 64 latent and 16 rotated numbers, two sequences of 5 and 2 tokens.
/// let latent = Latent::new(0.1, 64);
/// let vectors = device.from_fn([2, 5, 80], |[_, i, _]| i as f32)?;
/// let lengths = device.array(&[5, 2], [2])?;
/// let latents = Latents { vectors: vectors.view(), order: Order::Contiguous, lengths: lengths.view() };
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
        let longest = match latents.order {
            Order::Contiguous => page,
            Order::Pages(table) => table.shape()[1] * page,
            Order::Chosen(list) => list.shape()[1],
        };
        let rows = Latent::rows(heads);
        let blocks = batch * (heads / rows);
        let of_shape = || parts(longest, blocks, 1, num_multiprocessors(&device.default_stream()));
        let shape = [batch, heads / rows, rows, self.latent];
        Scratch::new(device, shape, longest, || self.parts.unwrap_or_else(of_shape))
    }

    /// Queues the kernels. `q` is of shape (sequences, heads, latent + rotated), the result of
    /// (sequences, heads, latent). The number of latent columns is a multiple of 64 and of the
    /// rotated columns, which are a multiple of 16.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for shapes that do not fit, and those of the launch.
    #[track_caller]
    pub fn launch<T: Number>(
        &self,
        stream: &Stream,
        q: DeviceView<T, 3>,
        Latents { vectors, order, lengths }: Latents<T>,
        out: DeviceViewMut<T, 3>,
        scratch: &mut Scratch,
    ) -> ct::Result<()> {
        let ([batch, heads, dim], [pages, page, key_dim]) = (q.shape(), vectors.shape());
        let latent = self.latent;
        let rotated = dim.saturating_sub(latent);
        check_scale(self.scale)?;
        require(dim == key_dim, || format!("queries of {dim} numbers, keys of {key_dim}: both are equal"))?;
        require((64..=512).contains(&latent) && latent.is_multiple_of(64), || {
            format!("{latent} latent columns: a multiple of 64, at most 512")
        })?;
        require(rotated > 0 && rotated.is_multiple_of(16) && latent.is_multiple_of(rotated), || {
            format!("{rotated} rotated columns behind {latent}: a multiple of 16 that divides the latent columns")
        })?;
        require(out.shape() == [batch, heads, latent], || format!("a result of shape {:?}", out.shape()))?;
        require(lengths.shape() == [batch], || format!("{} lengths for {batch} sequences", lengths.shape()[0]))?;
        let (places, table) = match order {
            Order::Contiguous => (Places::Contiguous, None),
            Order::Pages(table) => (Places::Pages(page), Some(table)),
            Order::Chosen(list) => (Places::Chosen, Some(list)),
        };
        require(table.is_some() || pages == batch, || format!("{pages} pages without a table for {batch} sequences"))?;
        require(table.is_none_or(|table| table.shape()[0] == batch), || {
            format!("a table of shape {:?} for {batch} sequences", table.map(|table| table.shape()))
        })?;
        require(page.is_power_of_two() || !matches!(places, Places::Pages(_)), || {
            format!("pages of {page} tokens: a power of two")
        })?;
        if out.is_empty() {
            return Ok(());
        }
        scratch.check()?;
        let (rows, parts) = (Latent::rows(heads), scratch.parts);
        let (blocks, stored) = (heads / rows, if parts == 1 { 0 } else { parts });
        require(scratch.results.shape() == [batch, blocks, stored, rows, latent], || {
            format!("the scratch is one for other shapes: {:?}", scratch.results.shape())
        })?;
        let hopper = target(stream) == Some(Target::SM_90A) && size_of::<T>() == 2;
        let tile = match (hopper, places) {
            (true, Places::Chosen) => [64, 32],
            (true, _) if rows <= 16 => [64, 64],
            (true, _) => [64, 128],
            (false, _) => [16, 32],
        };
        let each = scratch.keys.map(|keys| keys / tile[1]);
        let form = Form { tile, rows, columns: [latent, rotated], places, parts, each };
        let q = q.reshape([batch, blocks, rows, dim])?;
        let vectors = match places {
            Places::Chosen => vectors.reshape([1, pages * page, dim])?,
            _ => vectors,
        };
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
        let launch = ct::Launch::new([blocks * rows.div_ceil(tile[0]), parts, batch]).stream(stream);
        // Four warps spill registers.
        let launch = if hopper { launch.hints(Hints::new().num_warps(8)) } else { launch };
        launch.run(kernel, arguments)?;
        if parts == 1 {
            return Ok(());
        }
        let tile = ct::Constant(([rows.next_power_of_two(), 64], (parts, each.is_some())));
        let arguments = (scratch.results.view(), scratch.logs.view(), out, tile);
        ct::Launch::new([latent.div_ceil(64), blocks, batch]).stream(stream).run(add_parts::<T>, arguments)
    }
}
