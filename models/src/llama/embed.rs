//! First and last kernel of a pass: rows of the embeddings, and the states of the last tokens.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};
use cutlet_kernels::Number;

use super::cache::PAGE;

/// Constants of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Form {
    /// Elements of a tile.
    tile: usize,
    /// Elements of a group of the sums of squares.
    group: usize,
}

/// Stores the sums of squares of the groups of a row.
fn store_squares<T: Number>(x: Tile<T, 2>, squares: ArrayMut<f32, 2>, row: Scalar<i32>, Form { tile, group }: Form) {
    let wide = x.cast::<f32>();
    squares.store((0, row), (wide * wide).reshape([tile / group, group]).sum(1));
}

/// The arrays of [`Step`] in the kernel.
type Updated =
    (ArrayMut<i32, 1>, Array<i32, 2>, ArrayMut<i32, 2>, [ArrayMut<i32, 1>; 2], (ArrayMut<f32, 1>, Scalar<u64>));

fn kernel<T: Number>(
    (tokens, words): (Array<i32, 1>, Array<T, 2>),
    (y, squares): (ArrayMut<T, 2>, ArrayMut<f32, 2>),
    step: Option<Updated>,
    form: Form,
) {
    ct::grid_dependency_control_launch_dependents();
    let row = ct::bid(0);
    let token = tokens.load_scalar(row);
    if let Some((lengths, table, history, [positions, rows], (draws, seed))) = step {
        let position = lengths.load_scalar(row);
        let page = table.load_scalar((row, position / PAGE as i32));
        let is_inside = position.lt(table.extent(1) * PAGE as i32);
        positions.store_scalar(row, position);
        rows.store_scalar(row, is_inside.select(page * PAGE as i32 + position % PAGE as i32, -1));
        lengths.store_scalar(row, position + 1);
        history.store_scalar((row, position), token);
        let numbers = ct::random::Philox::new(seed, position.cast::<u64>());
        draws.store_scalar(row, numbers.uniform::<f32, 1>(ct::at(row), [1]).item());
    }
    let x = words.load((token, 0), [1, form.tile]);
    store_squares(x, squares, row, form);
    y.store((row, 0), x);
}

/// Arrays of a decode step that its first kernel updates.
pub struct Step<'a> {
    /// Tokens of each sequence in the cache: one more after the step.
    pub lengths: DeviceViewMut<'a, i32, 1>,
    /// Pages of sequences.
    pub table: DeviceView<'a, i32, 2>,
    /// Ids of the tokens of each sequence, of shape (sequences, tokens).
    pub history: DeviceViewMut<'a, i32, 2>,
    /// Position of each row, and its row of the cache: -1 after the last page.
    pub rows: [DeviceViewMut<'a, i32, 1>; 2],
    /// Uniform numbers of the position and the row.
    pub draws: DeviceViewMut<'a, f32, 1>,
    /// Seed of these numbers.
    pub seed: u64,
}

/// Queues the embeddings of tokens and the sums of squares of `group` adjacent elements, of shape
/// (groups, tokens). In a step, positions and rows of the cache follow from the lengths.
///
/// # Errors
/// Those of the launch.
#[track_caller]
pub fn embed<T: Number>(
    stream: &Stream,
    (tokens, words): (DeviceView<i32, 1>, DeviceView<T, 2>),
    (x, squares): (DeviceViewMut<T, 2>, DeviceViewMut<f32, 2>),
    step: Option<Step>,
) -> ct::Result<()> {
    let ([rows], [_, hidden]) = (tokens.shape(), words.shape());
    let form = Form { tile: hidden.next_power_of_two(), group: hidden / squares.shape()[0] };
    let step = step.map(|of| (of.lengths, of.table, of.history, of.rows, (of.draws, of.seed)));
    let args = ((tokens, words), (x, squares), step, ct::Constant(form));
    ct::Launch::new(rows).stream(stream).launch(kernel::<T>, args)
}

fn pick_kernel<T: Number>(
    (x, weight): (Array<T, 2>, Array<T, 1>),
    ends: Array<i32, 1>,
    (y, squares): (ArrayMut<T, 2>, ArrayMut<f32, 2>),
    form: Form,
) {
    let row = ct::bid(0);
    let x = x.load((ends.load_scalar(row + 1) - 1, 0), [1, form.tile]);
    store_squares(x, squares, row, form);
    y.store((row, 0), x * weight.load(0, [form.tile]).unsqueeze(0));
}

/// Queues the last rows of sequences times the weight of a norm, and the sums of squares of the
/// rows. `starts` has the first row of each sequence, and the end of the last one.
///
/// # Errors
/// Those of the launch.
#[track_caller]
pub fn pick<T: Number>(
    stream: &Stream,
    (x, weight): (DeviceView<T, 2>, DeviceView<T, 1>),
    starts: DeviceView<i32, 1>,
    (y, squares): (DeviceViewMut<T, 2>, DeviceViewMut<f32, 2>),
) -> ct::Result<()> {
    let [rows, hidden] = y.shape();
    let form = Form { tile: hidden.next_power_of_two(), group: hidden / squares.shape()[0] };
    let args = ((x, weight), starts, (y, squares), ct::Constant(form));
    ct::Launch::new(rows).stream(stream).launch(pick_kernel::<T>, args)
}
