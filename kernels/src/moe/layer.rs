//! A layer of experts: router weights, gated products, and their gradients.
//!
//! The rows of tokens are gathered in the order of experts, so that TMA loads them for the
//! products. The backward pass computes the gate again from its stored operands. Gradients of
//! weights are products over the rows of each expert.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, DeviceView, DeviceViewMut, Stream};

use super::product::{Rows, launch};
use super::{Alignment, combine, gather};
use crate::Number;
use crate::check::require;
use crate::launch::Run;
use crate::norms::{Gate, gated, gated_backward};

/// dw = aᵀ b of the rows of each expert.
fn of_weights<T: Number>(
    (a, b): (Array<T, 2>, Array<T, 2>),
    starts: Array<i32, 1>,
    dw: ArrayMut<T, 3>,
    [tm, tn, tk]: [usize; 3],
) {
    let [rows, columns] = [dw.num_tiles(1, [1, tm, tn]), dw.num_tiles(2, [1, tm, tn])];
    let (expert, [i, j]) = (ct::bid(1), ct::swizzle_2d(ct::bid(0), rows, columns, 8));
    // Experts begin at multiples of the rows of a tile.
    let [begin, end] = [0, 1].map(|next| starts.load_scalar(expert + next) / tk as i32);
    let acc = ct::fold(begin..end, ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
        ct::mma(a.load((k, i), [tk, tm]).transpose(), b.load((k, j), [tk, tn]), acc)
    });
    dw.store((expert, i, j), acc.cast::<T>().reshape([1, tm, tn]));
}

#[track_caller]
fn gradient_of_weights<T: Number>(
    stream: &Stream,
    [a, b]: [DeviceView<T, 2>; 2],
    alignment: &Alignment,
    dw: DeviceViewMut<T, 3>,
) -> ct::Result<()> {
    let [experts, rows, columns] = dw.shape();
    let most = if size_of::<T>() == 2 { [128, 256, 64] } else { [128, 128, 32] };
    let extent = |extent: usize, most: usize| extent.next_power_of_two().clamp(16, most);
    let tile = [extent(rows, most[0]), extent(columns, most[1]), alignment.tile().min(most[2])];
    let grid = [rows.div_ceil(tile[0]) * columns.div_ceil(tile[1]), experts];
    let arguments = ((a, b), alignment.starts(), dw, ct::Constant(tile));
    ct::Launch::new(grid).stream(stream).run(of_weights::<T>, arguments)
}

/// Gradients of the weights of pairs: products of the gradients of tokens with the rows of their
/// experts.
fn of_pairs<T: Number>(
    dy: Array<T, 2>,
    x: Array<T, 2>,
    places: Array<i32, 2>,
    dweights: ArrayMut<f32, 2>,
    columns: usize,
) {
    let [token, slot] = [ct::bid(0) / places.extent(1), ct::bid(0) % places.extent(1)];
    let place = places.load_scalar((token, slot));
    let sums = ct::fold(..dy.num_tiles(1, [1, columns]), ct::zeros::<f32, 2>([1, columns]), |sum, j| {
        let [dy, x] = [dy.load((token, j), [1, columns]), x.load((place, j), [1, columns])];
        dy.cast::<f32>().fma(x.cast::<f32>(), sum)
    });
    dweights.store((token, slot), sums.sum(1));
}

/// Arrays of a forward pass in the order of an alignment: rows of tokens, or results of the
/// experts, and results of the gate.
#[derive(Debug)]
pub struct Workspace<T: Number> {
    out: DeviceArray<T, 2>,
    h: DeviceArray<T, 2>,
}

impl<T: Number> Workspace<T> {
    /// Allocates the arrays for an alignment, and experts with these hidden numbers and numbers
    /// between the products.
    ///
    /// # Errors
    /// Those of the allocation.
    #[track_caller]
    pub fn new(stream: &Stream, alignment: &Alignment, [hidden, between]: [usize; 2]) -> ct::Result<Workspace<T>> {
        let (device, rows) = (stream.device(), alignment.num_places());
        Ok(Workspace { out: device.zeros([rows, hidden])?, h: device.zeros([rows, between])? })
    }
}

/// Arrays of a forward pass that the backward pass reads and overwrites.
#[derive(Debug)]
pub struct Saved<T: Number> {
    x: DeviceArray<T, 2>,
    gate: DeviceArray<T, 2>,
    dgate: DeviceArray<T, 2>,
    work: Workspace<T>,
}

impl<T: Number> Saved<T> {
    /// Allocates the arrays, as [`Workspace::new`].
    ///
    /// # Errors
    /// Those of the allocation.
    #[track_caller]
    pub fn new(stream: &Stream, alignment: &Alignment, [hidden, between]: [usize; 2]) -> ct::Result<Saved<T>> {
        let array = |columns: usize| stream.device().zeros::<T, 2>([alignment.num_places(), columns]);
        Ok(Saved {
            x: array(hidden)?,
            gate: array(2 * between)?,
            dgate: array(2 * between)?,
            work: Workspace::new(stream, alignment, [hidden, between])?,
        })
    }
}

/// A layer of experts: y = Σ weight · W₂ (gate(W₁ x) · W₁' x).
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::moe::{Alignment, Experts, Workspace};
/// use cutlet_kernels::norms::Gate;
///
/// let device = ct::Device::cpu();
/// let stream = device.default_stream();
/// let (x, choice, weights) = (device.full([1, 1], 1.0f32)?, device.zeros([1, 1])?, device.full([1, 1], 0.5)?);
/// let (first, second) = (device.array(&[1e3f32, 2.0], [1, 2, 1])?, device.array(&[3.0f32], [1, 1, 1])?);
/// let mut alignment = Alignment::new(&stream, [1, 1], 1, 16)?;
/// alignment.launch(&stream, choice.view())?;
/// let layer = Experts { gate: Gate::Silu, weights: [first.view(), second.view()] };
/// let (mut work, mut y) = (Workspace::new(&stream, &alignment, [1, 1])?, device.zeros([1, 1])?);
/// layer.forward(&stream, x.view(), &alignment, weights.view(), &mut work, y.view_mut())?;
/// assert_eq!(y.to_vec()?, [3e3]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Experts<'a, T: Number> {
    /// Activation of the first half of the first products.
    pub gate: Gate,
    /// Weights of shape (experts, 2 · between, hidden) and (experts, hidden, between).
    pub weights: [DeviceView<'a, T, 3>; 2],
}

/// Gradients of a layer.
pub struct Gradients<'a, T> {
    /// Gradient of the tokens.
    pub dx: DeviceViewMut<'a, T, 2>,
    /// Gradient of the weights of the pairs.
    pub dweights: DeviceViewMut<'a, f32, 2>,
    /// Gradients of the weights of the experts.
    pub of_experts: [DeviceViewMut<'a, T, 3>; 2],
}

impl<T: Number> Experts<'_, T> {
    /// Hidden numbers, and numbers between the products.
    #[track_caller]
    fn extents(&self) -> ct::Result<[usize; 2]> {
        let [[experts, both, hidden], second] = [self.weights[0].shape(), self.weights[1].shape()];
        require(second == [experts, hidden, both / 2] && both.is_multiple_of(2), || {
            format!("weights of experts of {:?} and {second:?}", self.weights[0].shape())
        })?;
        Ok([hidden, both / 2])
    }

    /// Queues the layer for tokens of shape (tokens, hidden), whose experts `alignment` has, and
    /// `weights` of shape (tokens, experts of a token). Nothing is allocated.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] if shapes do not fit; those of the launches.
    #[track_caller]
    pub fn forward(
        &self,
        stream: &Stream,
        x: DeviceView<T, 2>,
        alignment: &Alignment,
        weights: DeviceView<f32, 2>,
        Workspace { out, h }: &mut Workspace<T>,
        y: DeviceViewMut<T, 2>,
    ) -> ct::Result<()> {
        self.extents()?;
        gather(stream, x, alignment, None, out.view_mut())?;
        let first = (self.weights[0], true);
        launch(stream, (out.view(), Rows::Places), first, alignment, Some(self.gate), h.view_mut())?;
        launch(stream, (h.view(), Rows::Places), (self.weights[1], true), alignment, None, out.view_mut())?;
        combine(stream, out.view(), alignment, weights, y)
    }

    /// As [`Experts::forward`], and fills the arrays of the backward pass.
    ///
    /// # Errors
    /// Those of [`Experts::forward`].
    #[track_caller]
    pub fn forward_saved(
        &self,
        stream: &Stream,
        x: DeviceView<T, 2>,
        alignment: &Alignment,
        weights: DeviceView<f32, 2>,
        saved: &mut Saved<T>,
        y: DeviceViewMut<T, 2>,
    ) -> ct::Result<()> {
        let [_, between] = self.extents()?;
        gather(stream, x, alignment, None, saved.x.view_mut())?;
        let operand = (saved.x.view(), Rows::Places);
        launch(stream, operand, (self.weights[0], true), alignment, None, saved.gate.view_mut())?;
        let (a, b) = saved.gate.view().split_at(1, between)?;
        let Workspace { out, h } = &mut saved.work;
        gated(stream, [a, b], h.view_mut(), self.gate)?;
        launch(stream, (h.view(), Rows::Places), (self.weights[1], true), alignment, None, out.view_mut())?;
        combine(stream, out.view(), alignment, weights, y)
    }

    /// Queues the gradients from that of the result. The arrays of the forward pass are overwritten.
    ///
    /// # Errors
    /// Those of [`Experts::forward`].
    #[track_caller]
    pub fn backward(
        &self,
        stream: &Stream,
        saved: &mut Saved<T>,
        dy: DeviceView<T, 2>,
        alignment: &Alignment,
        weights: DeviceView<f32, 2>,
        gradients: Gradients<T>,
    ) -> ct::Result<()> {
        let ([hidden, between], rows) = (self.extents()?, alignment.num_places());
        let Gradients { dx, dweights, of_experts: [of_first, of_second] } = gradients;
        let Saved { x, gate, dgate, work: Workspace { out, h } } = saved;
        let [tokens, taken] = alignment.tokens();
        require(
            dy.shape() == [tokens, hidden] && dx.shape() == dy.shape() && dweights.shape() == [tokens, taken],
            || {
                format!(
                    "gradients of {tokens} tokens of {hidden} numbers; dy of {:?}, dx of {:?}",
                    dy.shape(),
                    dx.shape()
                )
            },
        )?;
        let shapes = [of_first.shape(), of_second.shape()];
        require(shapes == self.weights.map(|w| w.shape()) && out.shape() == [rows, hidden], || {
            format!("gradients of weights of {shapes:?}, or arrays of another forward pass")
        })?;
        if !dweights.is_empty() {
            let tile = hidden.next_power_of_two().min(2048);
            let places = alignment.places().reshape([tokens, taken])?;
            let arguments = (dy, &*out, places, dweights, ct::Constant(tile));
            ct::Launch::new(tokens * taken).stream(stream).run(of_pairs::<T>, arguments)?;
        }
        // From here on `out` and `h` are the gradients of themselves.
        gather(stream, dy, alignment, Some(weights), out.view_mut())?;
        gradient_of_weights(stream, [out.view(), h.view()], alignment, of_second)?;
        let second = (self.weights[1], false);
        launch(stream, (out.view(), Rows::Places), second, alignment, None, h.view_mut())?;
        {
            let ((a, b), (da, db)) = (gate.view().split_at(1, between)?, dgate.view_mut().split_at_mut(1, between)?);
            gated_backward(stream, [a, b, h.view()], [da, db], self.gate)?;
        }
        gradient_of_weights(stream, [dgate.view(), x.view()], alignment, of_first)?;
        // The gradients of the rows of tokens.
        let first = (self.weights[0], false);
        launch(stream, (dgate.view(), Rows::Places), first, alignment, None, out.view_mut())?;
        super::combine::launch(stream, out.view(), alignment, None, dx)
    }
}
