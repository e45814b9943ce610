//! Manifold-constrained hyper-connections (Xie et al., 2025): weights of the residual streams of a
//! token, and the streams after a layer.
//!
//! The weights are a product of all streams with few columns, over the root of their mean square.
//! Blocks divide the terms (split-K); the last block of a tile adds the parts. A column after the
//! product has the sums of squares.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{Device, DeviceArray, DeviceView, DeviceViewMut, Stream};

use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors, of_batch};

/// Tokens of a tile, and terms of a step.
const TILE: [usize; 2] = [64, 128];
/// Columns of a tile of streams.
const COLUMNS: usize = 1024;

/// Constants of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    streams: usize,
    /// Columns of a tile of sums: more than there are weights.
    width: usize,
    parts: usize,
}

/// Returns the sums over a part of the terms: products with the weights, and squares in a column of
/// their own.
fn sums<T: Number>(
    (x, w): (Array<T, 2>, Array<T, 2>),
    [tile, part]: [Scalar<i32>; 2],
    Form { width, parts, .. }: Form,
) -> Tile<f32, 2> {
    let ([tm, tk], steps) = (TILE, x.num_tiles(1, TILE));
    let each = steps.ceil_div(parts as i32);
    let start = (ct::zeros::<f32, 2>([tm, width]), ct::zeros::<f32, 2>([tm, 1]));
    let range = part * each..((part + 1) * each).min(steps);
    let (products, squares) = ct::fold(range, start, |(products, squares), k| {
        let terms = x.load((tile, k), [tm, tk]);
        let exact = terms.cast::<f32>();
        (ct::mma(terms, w.load((k, 0), [tk, width]), products), squares + (exact * exact).sum(1))
    });
    ct::select(ct::indices([1, width], 1).eq(w.extent(1)), squares, products)
}

/// Stores the weights of a tile of tokens from its sums.
fn finish(
    sums: Tile<f32, 2>,
    (terms, tile): (Scalar<i32>, Scalar<i32>),
    bias: Array<f32, 1>,
    factors: [Scalar<f32>; 3],
    out: ArrayMut<f32, 2>,
    Form { streams, width, .. }: Form,
) {
    let (column, n) = (ct::indices([1, width], 1), streams as i32);
    let squares = ct::select(column.eq(bias.extent(0)), sums, 0.0).sum(1);
    let scale = (squares / terms.cast::<f32>()).rsqrt();
    let [before, behind] = [column.lt(n), column.lt(2 * n)];
    let later: Tile<f32, 2> = ct::select(behind, factors[1], factors[2]);
    let factor: Tile<f32, 2> = ct::select(before, factors[0], later);
    let linear = (sums * scale).fma(factor, bias.load(0, [width]).unsqueeze(0));
    let bounded = linear.sigmoid() * ct::select(before, ct::full([1, width], 1.0f32), 2.0);
    out.store((tile, 0), ct::select(behind, bounded, linear));
}

fn weights<T: Number>(
    operands: (Array<T, 2>, Array<T, 2>),
    (bias, factors): (Array<f32, 1>, [Scalar<f32>; 3]),
    (of_parts, tickets): (ArrayMut<f32, 3>, ArrayMut<i32, 1>),
    out: ArrayMut<f32, 2>,
    form: Form,
) {
    let (parts, [tm, width]) = (form.parts, [TILE[0], form.width]);
    let [part, tile] = [ct::bid(0), ct::bid(1)];
    let mine = sums(operands, [tile, part], form);
    let finish = |sums| finish(sums, (operands.0.extent(1), tile), bias, factors, out, form);
    if parts == 1 {
        return finish(mine);
    }
    let first = tile * parts as i32;
    of_parts.store((first + part, 0, 0), mine.reshape([1, tm, width]));
    let ticket = tickets.entry(tile).atomic_add(1);
    ct::if_then(ticket.eq(parts as i32 - 1), || {
        let all = ct::fold(first..first + parts as i32, ct::zeros::<f32, 2>([tm, width]), |all, part| {
            all + of_parts.load((part, 0, 0), [1, tm, width]).reshape([tm, width])
        });
        finish(all);
        tickets.entry(tile).atomic_xchg(0);
    });
}

/// A part of the columns of the streams of a token.
fn apply<T: Number>(
    (x, layer): (Array<T, 3>, Array<T, 2>),
    weights: Array<f32, 2>,
    out: ArrayMut<T, 3>,
    [streams, columns]: [usize; 2],
) {
    let [part, token] = [ct::bid(0), ct::bid(1)];
    let weight = |at: usize| weights.load_scalar((token, at as i32));
    let row = |row: Tile<T, 3>| row.cast::<f32>().reshape([columns]);
    let of_streams: Vec<_> = (0..streams).map(|j| row(x.load((token, j as i32, part), [1, 1, columns]))).collect();
    let layer = row(layer.load((token, part), [1, columns]).unsqueeze(0));
    for i in 0..streams {
        let mixed = of_streams
            .iter()
            .enumerate()
            .fold(layer * weight(streams + i), |sum, (j, stream)| stream.fma(weight((2 + i) * streams + j), sum));
        out.store((token, i as i32, part), mixed.cast::<T>().reshape([1, 1, columns]));
    }
}

/// Sums of parts of the terms, which a program keeps for the next launches.
#[derive(Debug)]
pub struct HyperScratch {
    sums: DeviceArray<f32, 3>,
    tickets: DeviceArray<i32, 1>,
    form: Form,
}

/// Hyper-connections of some residual streams.
///
/// A token with n streams has n² + 2 n weights: n of the streams before a layer, n of the result of
/// the layer, and n x n of the streams after it.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::norms::HyperConnections;
///
/// let device = ct::Device::cpu();
/// let stream = device.default_stream();
/// let connections = HyperConnections { streams: 1, factors: [1.0, 1.0, 1.0] };
/// // A token of 2 numbers with a root mean square of 5.
/// let (x, w) = (device.array(&[1.0f32, 7.0], [1, 2])?, device.array(&[0.0f32, 0.0, 5.0, 0.0, 0.0, 0.0], [2, 3])?);
/// let (bias, mut weights) = (device.zeros([3])?, device.zeros([1, 3])?);
/// let mut scratch = connections.scratch(device, [1, 2])?;
/// connections.weights(&stream, x.view(), w.view(), bias.view(), weights.view_mut(), &mut scratch)?;
/// assert_eq!(weights.to_vec()?, [0.5, 1.0, 1.0]);
/// let (x, layer, mut out) = (x.view().reshape([1, 1, 2])?, device.array(&[10.0f32, 20.0], [1, 2])?, device.zeros([1, 1, 2])?);
/// connections.apply(&stream, x, layer.view(), weights.view(), out.view_mut())?;
/// assert_eq!(out.to_vec()?, [11.0, 27.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HyperConnections {
    /// Residual streams of a token.
    pub streams: usize,
    /// Factors of the three kinds of weights.
    pub factors: [f32; 3],
}

impl HyperConnections {
    fn count(&self) -> usize {
        self.streams * (self.streams + 2)
    }

    /// Allocates the scratch of [`HyperConnections::weights`] for operands of shape (tokens,
    /// terms).
    ///
    /// # Errors
    /// Those of the allocations.
    #[track_caller]
    pub fn scratch(&self, device: Device, [tokens, terms]: [usize; 2]) -> ct::Result<HyperScratch> {
        let (tiles, steps) = (tokens.div_ceil(TILE[0]), terms.div_ceil(TILE[1]));
        let blocks = 2 * num_multiprocessors(&device.default_stream());
        let parts = (blocks / of_batch(tiles.max(1), 1)).clamp(1, steps.clamp(1, 16));
        let form = Form { streams: self.streams, width: (self.count() + 1).next_power_of_two().max(16), parts };
        let stored = if parts == 1 { 0 } else { tiles * parts };
        let sums = device.unspecified([stored, TILE[0], form.width])?;
        Ok(HyperScratch { sums, tickets: device.zeros([tiles])?, form })
    }

    /// Queues the weights of tokens: those of shape (tokens, n² + 2 n) from the streams x of shape
    /// (tokens, n · columns), a matrix of (n · columns, n² + 2 n) and a bias. With the product p
    /// over the root of the mean square of the token, and l = factor · p + bias, they are
    /// sigmoid(l), 2 sigmoid(l), and l.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit; those of the launch.
    #[track_caller]
    pub fn weights<T: Number>(
        &self,
        stream: &Stream,
        x: DeviceView<T, 2>,
        w: DeviceView<T, 2>,
        bias: DeviceView<f32, 1>,
        out: DeviceViewMut<f32, 2>,
        HyperScratch { sums, tickets, form }: &mut HyperScratch,
    ) -> ct::Result<()> {
        let ([tokens, terms], count) = (x.shape(), self.count());
        let fits = w.shape() == [terms, count] && bias.shape() == [count] && out.shape() == [tokens, count];
        require(fits && count > 0, || {
            let shapes = (w.shape(), bias.shape(), out.shape());
            format!("x of {:?} and {} streams; matrix, bias and weights of {shapes:?}", x.shape(), self.streams)
        })?;
        let tiles = tokens.div_ceil(TILE[0]);
        require(form.streams == self.streams && tickets.shape() == [tiles], || {
            format!("the scratch is one for other shapes: {:?}", sums.shape())
        })?;
        if out.is_empty() {
            return Ok(());
        }
        let arguments = ((x, w), (bias, self.factors), (sums, tickets), out, ct::Constant(*form));
        ct::Launch::new([form.parts, tiles]).stream(stream).run(weights::<T>, arguments)
    }

    /// Queues the streams after a layer: those of shape (tokens, n, columns) from the streams
    /// before it, the results of the layer (tokens, columns) and the weights. Stream i is w\[n +
    /// i\] · layer + Σ w\[2 n + n i + j\] · stream j.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit; those of the launch.
    #[track_caller]
    pub fn apply<T: Number>(
        &self,
        stream: &Stream,
        x: DeviceView<T, 3>,
        layer: DeviceView<T, 2>,
        weights: DeviceView<f32, 2>,
        out: DeviceViewMut<T, 3>,
    ) -> ct::Result<()> {
        let [tokens, streams, columns] = x.shape();
        let fits = streams == self.streams && layer.shape() == [tokens, columns] && out.shape() == x.shape();
        require(fits && weights.shape() == [tokens, self.count()], || {
            let shapes = (layer.shape(), weights.shape(), out.shape());
            format!("x of {:?} and {} streams; layer, weights and result of {shapes:?}", x.shape(), self.streams)
        })?;
        if out.is_empty() {
            return Ok(());
        }
        let tile = columns.next_power_of_two().min(COLUMNS);
        let arguments = ((x, layer), weights, out, ct::Constant([streams, tile]));
        ct::Launch::new([columns.div_ceil(tile), tokens]).stream(stream).run(apply::<T>, arguments)
    }
}
