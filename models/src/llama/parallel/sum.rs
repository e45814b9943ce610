//! Residual and sums of squares after a sum over ranks, which the epilogue of the product has on
//! one device.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};
use cutlet_kernels::Number;

use crate::llama::layers::Early;

/// Columns of a tile at most.
const TILE: usize = 2048;

/// Constants of the kernels of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub rank: usize,
    pub ranks: usize,
    /// Columns of a tile.
    pub tile: usize,
    /// Columns of a group of the sums of squares.
    pub group: usize,
    /// The kernel starts while the preceding one is in progress.
    pub early: bool,
    pub phase: Phase,
}

/// The parts of an exchange that a kernel has. On the cpu device, where kernels of ranks follow one
/// another, all ranks send before one of them receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Both,
    Send,
    Receive,
}

impl Phase {
    pub fn sends(self) -> bool {
        self != Phase::Receive
    }

    pub fn receives(self) -> bool {
        self != Phase::Send
    }
}

/// Returns the columns of a tile: a power of two that divides all columns.
pub(super) fn columns_of_tile(columns: usize, most: usize) -> usize {
    (1 << columns.trailing_zeros()).min(most)
}

/// Residual and result of a sum, of shape (rows, columns).
pub(super) struct Target<'a, T> {
    pub residual: DeviceView<'a, T, 2>,
    pub y: DeviceViewMut<'a, T, 2>,
    /// Sums of squares, of shape (groups, rows).
    pub squares: DeviceViewMut<'a, f32, 2>,
    /// Weight of the norm after the last layer: factors of the stored columns.
    pub end: Option<DeviceView<'a, T, 1>>,
}

/// The arrays of a target in a launch.
pub(super) type TargetArg<'a, T> =
    (DeviceView<'a, T, 2>, DeviceViewMut<'a, T, 2>, DeviceViewMut<'a, f32, 2>, Option<DeviceView<'a, T, 1>>);
/// The arrays of a target in a kernel.
pub(super) type TargetArrays<T> = (Array<T, 2>, ArrayMut<T, 2>, ArrayMut<f32, 2>, Option<Array<T, 1>>);

impl<'a, T: Number> Target<'a, T> {
    /// Returns the extents of the result.
    pub fn shape(&self) -> [usize; 2] {
        self.y.shape()
    }

    /// Returns the columns of a group of the sums of squares.
    pub fn group(&self) -> usize {
        self.y.shape()[1] / self.squares.shape()[0]
    }

    pub fn arg(self) -> TargetArg<'a, T> {
        (self.residual, self.y, self.squares, self.end)
    }
}

/// The residual, and the weight of the norm after the last layer. A kernel loads both before the
/// sum arrives.
pub(super) type State = (Tile<f32, 2>, Option<Tile<f32, 2>>);

/// Loads the state before a sum. `at`: indices of a tile of one row.
pub(super) fn load_state<T: Number>(
    (residual, _, _, end): TargetArrays<T>,
    [row, column]: [Scalar<i32>; 2],
    Form { tile, .. }: Form,
) -> State {
    let end = end.map(|end| end.load(column, [tile]).cast::<f32>().unsqueeze(0));
    (residual.load([row, column], [1, tile]).cast::<f32>(), end)
}

/// Stores the state after a sum, and its sums of squares.
pub(super) fn store_state<T: Number>(
    sum: Tile<f32, 2>,
    (residual, end): State,
    (_, y, squares, _): TargetArrays<T>,
    [row, column]: [Scalar<i32>; 2],
    Form { tile, group, .. }: Form,
) {
    let x = sum + residual;
    squares.store((column, row), (x * x).reshape([tile / group, group]).sum(1));
    let x = end.map_or(x, |end| x * end);
    y.store([row, column], x.cast::<T>());
}

/// Calls of a kernel that waits for the preceding one, at its start.
pub(super) fn wait_for_preceding(form: Form) {
    if form.early {
        ct::grid_dependency_control_launch_dependents();
        ct::grid_dependency_control_wait();
    }
}

/// Returns a launch on a stream. `early`: the kernel may start while the preceding one is in
/// progress.
#[allow(unsafe_code, reason = "the kernels wait")]
pub(super) fn launch(grid: [usize; 2], stream: &Stream, early: bool) -> ct::Launch<'_> {
    let launch = ct::Launch::new(grid).stream(stream);
    // SAFETY: kernels with `wait_for_preceding` access no memory before it.
    if early { unsafe { launch.programmatic_dependent_launch() } } else { launch }
}

/// Returns true if kernels start while the preceding one is in progress.
pub(super) fn is_early(early: Early) -> bool {
    early != Early::After
}

fn kernel<T: Number>(sum: Array<T, 2>, target: TargetArrays<T>, form: Form) {
    wait_for_preceding(form);
    let [column, row] = [ct::bid(0), ct::bid(1)];
    let sum = sum.load([row, column], [1, form.tile]).cast::<f32>();
    let state = load_state(target, [row, column], form);
    store_state(sum, state, target, [row, column], form);
}

/// Queues residual and sums of squares of a sum over ranks.
pub(super) fn add<T: Number>(stream: &Stream, sum: DeviceView<T, 2>, target: Target<T>, early: bool) -> ct::Result<()> {
    let [rows, columns] = target.shape();
    let tile = columns_of_tile(columns, TILE);
    let form = Form { rank: 0, ranks: 1, tile, group: target.group(), early, phase: Phase::Both };
    launch([columns / tile, rows], stream, early).launch(kernel::<T>, (sum, target.arg(), ct::Constant(form)))
}
