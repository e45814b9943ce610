//! Products of rows with the weights of their experts.
//!
//! Rows are in the order of an [`Alignment`]: each tile of rows has one expert. Operands are rows
//! of tokens, which the tile lists by their indices, or rows of places. Large products on Hopper
//! copy the rows of tokens into the order of places first. The gate is applied to the accumulator.
//! A tile block computes several tiles, up to the last one that has rows: the loads of a tile
//! overlap with the store of the one before.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream, Target};

use super::{Alignment, gather};
use crate::Number;
use crate::check::require;
use crate::launch::{Run, num_multiprocessors, target};
use crate::norms::Gate;
use crate::norms::rows::mode;

/// Rows of the first operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// A row for each token.
    Tokens,
    /// A row for each place of the alignment.
    Places,
}

/// Constants of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    rows: Rows,
    /// Weights are [experts, columns, inner], else [experts, inner, columns].
    transposed: bool,
    gate: Option<Gate>,
    /// Few rows: weights are the left operand, whose tiles have at least 64 rows.
    swapped: bool,
    tile: [usize; 3],
}

/// Operand, and weights with an axis of 2 for a gate.
type Inputs<T> = (Array<T, 2>, Array<T, 4>);

fn kernel<T: Number>(
    (x, w): Inputs<T>,
    (pairs, of_tile, starts): (Array<i32, 1>, Array<i32, 1>, Array<i32, 1>),
    out: ArrayMut<T, 2>,
    taken: Scalar<i32>,
    Form { rows: of, transposed, gate, swapped, tile: [tm, tn, tk] }: Form,
) {
    let (columns, parts) = (out.num_tiles(1, [tm, tn]), if gate.is_some() { 2 } else { 1 });
    // Tiles of rows in front of the end of the last expert.
    let rows = starts.load_scalar(starts.extent(0) - 1) / tm as i32;
    ct::for_each(ct::range(ct::bid(0), rows * columns).step(ct::num_blocks(0)), |index| {
        let [i, j] = ct::swizzle_2d(index, rows, columns, 8);
        let expert = of_tile.load_scalar(i);
        // A free place is after the last token.
        let token = pairs.load(i, [tm]) / taken;
        let shape = if swapped { [parts * tn, tm] } else { [tm, parts * tn] };
        let sums = ct::fold(..x.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>(shape), |sums, k| {
            let x = match of {
                Rows::Tokens => x.load((ct::at(token), k), [tm, tk]),
                Rows::Places => x.load((i, k), [tm, tk]),
            };
            let w = match transposed {
                true => w.load((expert, 0, j, k), [1, parts, tn, tk]).reshape([parts * tn, tk]).transpose(),
                false => w.load((expert, 0, k, j), [1, 1, tk, tn]).reshape([tk, tn]),
            };
            if swapped { ct::mma(w.transpose(), x.transpose(), sums) } else { ct::mma(x, w, sums) }
        });
        let result = gate.map_or(sums, |gate| {
            let [of_gate, of_value] = sums.split(if swapped { 0 } else { 1 });
            mode::<T, _>(|| gate.of(of_gate) * of_value)
        });
        let result = result.cast::<T>();
        out.store((i, j), if swapped { result.transpose() } else { result });
    });
}

/// Tile of a product with this many rows in a tile.
fn tile<T>(rows: usize, columns: usize, gated: bool) -> [usize; 3] {
    let most = match (size_of::<T>(), rows) {
        (2, 65..=128) => 256,
        _ => 128,
    };
    [rows, (if gated { most / 2 } else { most }).min(columns.next_power_of_two().max(16)), 64]
}

/// Returns true if a copy of the rows of tokens in the order of the places, which TMA loads, takes
/// less time than their loads by indices: 674 instead of 472 TFLOP/s for 8 of 64 experts with 2816
/// columns of f16 on an H100.
fn pays_gather<T>(stream: &Stream, alignment: &Alignment, columns: usize) -> bool {
    let [rows, least] = match target(stream) {
        Some(Target::SM_90A) => [128, 1024],
        Some(_) => return false,
        // Small tests take both ways.
        None => [32, 1],
    };
    size_of::<T>() == 2 && alignment.tile() >= rows && columns >= least
}

#[track_caller]
pub(super) fn launch<T: Number>(
    stream: &Stream,
    (x, rows): (DeviceView<T, 2>, Rows),
    (w, transposed): (DeviceView<T, 3>, bool),
    alignment: &Alignment,
    gate: Option<Gate>,
    out: DeviceViewMut<T, 2>,
) -> ct::Result<()> {
    let [experts, a, b] = w.shape();
    let (columns, inner) = if transposed { (a, b) } else { (b, a) };
    let columns = if gate.is_some() { columns / 2 } else { columns };
    let expected = match rows {
        Rows::Tokens => alignment.tokens()[0],
        Rows::Places => alignment.num_places(),
    };
    require(x.shape() == [expected, inner] && experts == alignment.experts(), || {
        format!("{expected} rows of {inner} numbers and {} experts; x of {:?}", alignment.experts(), x.shape())
    })?;
    require(out.shape() == [alignment.num_places(), columns], || {
        format!("a result of {:?}, not {:?}", out.shape(), [alignment.num_places(), columns])
    })?;
    require(gate.is_none() || a.is_multiple_of(2), || format!("a gate with {a} columns"))?;
    if out.is_empty() {
        return Ok(());
    }
    if rows == Rows::Tokens && pays_gather::<T>(stream, alignment, if transposed { a } else { b }) {
        let mut gathered = stream.device().unspecified::<T, 2>([alignment.num_places(), inner])?;
        gather(stream, x, alignment, None, gathered.view_mut())?;
        return launch(stream, (gathered.view(), Rows::Places), (w, transposed), alignment, gate, out);
    }
    let swapped = size_of::<T>() == 2 && alignment.tile() <= 64;
    let form = Form { rows, transposed, gate, swapped, tile: tile::<T>(alignment.tile(), columns, gate.is_some()) };
    let w = match gate {
        Some(_) => w.reshape([experts, 2, columns, inner])?,
        None => w.reshape([experts, 1, a, b])?,
    };
    let tiles = alignment.of_tile().len() * columns.div_ceil(form.tile[1]);
    let grid = num_multiprocessors(stream).min(tiles);
    let lists = (alignment.pairs(), alignment.of_tile(), alignment.starts());
    let arguments = ((x, w), lists, out, alignment.tokens()[1] as i32, ct::Constant(form));
    ct::Launch::new(grid).stream(stream).run(kernel::<T>, arguments)
}

/// Queues the products of rows with the weights of their experts, of shape (experts, columns,
/// inner): a row of the result for each place of the alignment. Rows of free places are zero if `x`
/// has rows of tokens.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::moe::{Alignment, Rows, product};
///
/// let device = ct::Device::cpu();
/// let stream = device.default_stream();
/// let (experts, x) = (device.array(&[1, 0], [2, 1])?, device.array(&[1.0f32, 2.0], [2, 1])?);
/// let weights = device.array(&[10.0f32, 100.0], [2, 1, 1])?;
/// let mut alignment = Alignment::new(&stream, [2, 1], 2, 1)?;
/// alignment.launch(&stream, experts.view())?;
/// let mut out = device.zeros([alignment.num_places(), 1])?;
/// product(&stream, (x.view(), Rows::Tokens), weights.view(), &alignment, out.view_mut())?;
/// assert_eq!(out.to_vec()?[..2], [20.0, 100.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if shapes do not fit; those of the launch.
#[track_caller]
pub fn product<T: Number>(
    stream: &Stream,
    x: (DeviceView<T, 2>, Rows),
    weights: DeviceView<T, 3>,
    alignment: &Alignment,
    out: DeviceViewMut<T, 2>,
) -> ct::Result<()> {
    launch(stream, x, (weights, true), alignment, None, out)
}

/// Queues gate(a) · b of the products a and b with both halves of the weights, of shape (experts, 2
/// · columns, inner).
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::moe::{Alignment, Rows, gated_product};
/// use cutlet_kernels::norms::Gate;
///
/// let device = ct::Device::cpu();
/// let stream = device.default_stream();
/// let (experts, x) = (device.array(&[0], [1, 1])?, device.array(&[1.0f32], [1, 1])?);
/// let weights = device.array(&[1e3f32, 2.0], [1, 2, 1])?;
/// let mut alignment = Alignment::new(&stream, [1, 1], 1, 1)?;
/// alignment.launch(&stream, experts.view())?;
/// let mut out = device.zeros([1, 1])?;
/// gated_product(&stream, (x.view(), Rows::Tokens), weights.view(), &alignment, Gate::Silu, out.view_mut())?;
/// assert_eq!(out.to_vec()?, [2e3]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// Those of [`product`].
#[track_caller]
pub fn gated_product<T: Number>(
    stream: &Stream,
    x: (DeviceView<T, 2>, Rows),
    weights: DeviceView<T, 3>,
    alignment: &Alignment,
    gate: Gate,
    out: DeviceViewMut<T, 2>,
) -> ct::Result<()> {
    launch(stream, x, (weights, true), alignment, Some(gate), out)
}
