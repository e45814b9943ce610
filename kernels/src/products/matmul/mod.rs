//! Matrix products with a prologue and an epilogue: c = epilogue(prologue(a) · b), in one kernel.
//!
//! On Hopper, a producer warp prefetches tiles of the operands by TMA, several steps early, and
//! warp groups multiply them by `wgmma`. A tile block computes one tile after another. Few tiles
//! are divided along the terms (split-K, Stream-K). The results are the same in each launch of a
//! configuration.

mod configuration;
mod factor;
mod groups;
mod kernel;
mod launch;
mod operands;
mod precision;
mod tile_order;
mod weight_prefetch;
mod workspace;

pub use configuration::{Configuration, Share};
pub use factor::Factor;
pub(crate) use groups::{num_row_tiles, place as group_place};
pub(crate) use launch::Work;
pub(crate) use operands::{Left, Right, Target};
pub use precision::Precision;
pub use workspace::Workspace;

use cutlet::element::Element;

use super::epilogue::{
    Activate, Activation, Apply, Argument, Bias, ColumnSums, Function, Gate, GatePairs, HeadColumns, Heads, Largest,
    NormalizeRows, Plain, QuantizeBlocks, Residual, Rotate, RotateCached, Rotation, Round, RowSums, Scale,
    ScaleColumns, ScaleRows, SquareSums, Then,
};
use super::prologue::{Cast, Normalize, Same};
use crate::Pairs;

/// A matrix product: its prologue, its epilogue and its options. Stages of the epilogue run in the
/// order of their methods.
#[derive(Debug)]
pub struct Matmul<'w, P = Same, E = Plain> {
    pub(crate) prologue: P,
    pub(crate) epilogue: E,
    pub(crate) precision: Precision,
    pub(crate) configuration: Option<Configuration>,
    pub(crate) workspace: Option<&'w mut Workspace>,
    /// Weights are loaded before the wait for the preceding kernel.
    pub(crate) preloaded: bool,
}

/// Returns a matrix product without prologue and epilogue.
///
/// ```
/// use cutlet as ct;
/// use cutlet_kernels::matmul;
///
/// let device = ct::Device::cpu();
/// let a = device.from_fn([2, 3], |[i, k]| (i + k) as f32)?;
/// let b = device.from_fn([3, 4], |[k, j]| (k * j) as f32)?;
/// let bias = device.full([4], -6.0f32)?;
/// let mut c = device.zeros::<f32, 2>([2, 4])?;
/// matmul().bias(bias.view()).relu().launch(&device.default_stream(), a.view(), b.view(), c.view_mut())?;
/// assert_eq!(c.to_vec()?, [0.0, 0.0, 4.0, 9.0, 0.0, 2.0, 10.0, 18.0]);
/// # Ok::<(), ct::Error>(())
/// ```
#[must_use]
pub fn matmul() -> Matmul<'static> {
    Matmul {
        prologue: Same,
        epilogue: Plain,
        precision: Precision::Full,
        configuration: None,
        workspace: None,
        preloaded: false,
    }
}

impl<'w, P, E> Matmul<'w, P, E> {
    /// Selects the accuracy of f32 operands and of sums of 8-bit floats.
    #[must_use]
    pub fn precision(self, precision: Precision) -> Self {
        Matmul { precision, ..self }
    }

    /// Selects a configuration in place of the choice by shape.
    #[must_use]
    pub fn configuration(self, configuration: Configuration) -> Self {
        Matmul { configuration: Some(configuration), ..self }
    }

    /// Uses memory of the caller for sums that tile blocks share, so that the launch does not
    /// allocate: for graphs, and for products of few rows.
    #[must_use]
    pub fn workspace<'x>(self, workspace: &'x mut Workspace) -> Matmul<'x, P, E> {
        let Matmul { prologue, epilogue, precision, configuration, preloaded, .. } = self;
        Matmul { prologue, epilogue, precision, configuration, workspace: Some(workspace), preloaded }
    }

    /// Loads weights before the kernel waits for the preceding one, in calls of
    /// [`overlapped`](fn@crate::overlapped): to registers in [`Matmul::launch_vector`], the first
    /// ones to the L2 cache in [`Matmul::launch`] of up to 64 rows.
    ///
    /// # Safety
    /// No kernel of the stream that may be in progress writes the weights.
    #[must_use]
    #[allow(unsafe_code, reason = "the caller orders reads and writes of the weights")]
    pub unsafe fn preloaded(self) -> Self {
        Matmul { preloaded: true, ..self }
    }

    /// Adds a stage to the epilogue.
    #[must_use]
    pub fn then<N>(self, stage: N) -> Matmul<'w, P, Then<E, N>> {
        let Matmul { prologue, epilogue, precision, configuration, workspace, preloaded } = self;
        let epilogue = Then { first: epilogue, second: stage };
        Matmul { prologue, epilogue, precision, configuration, workspace, preloaded }
    }

    fn after<N>(self, prologue: N) -> Matmul<'w, N, E> {
        let Matmul { epilogue, precision, configuration, workspace, preloaded, .. } = self;
        Matmul { prologue, epilogue, precision, configuration, workspace, preloaded }
    }

    /// Converts the elements of the left operand to the type of the right one, before the
    /// multiplication.
    #[must_use]
    pub fn cast_left(self) -> Matmul<'w, Cast, E> {
        self.after(Cast)
    }

    /// Multiplies the left operand with a factor for each row and a weight for each column, before
    /// the multiplication.
    #[must_use]
    pub fn normalize_left<R, W>(self, rows: R, weight: W) -> Matmul<'w, Normalize<R, W>, E> {
        self.after(Normalize { rows, weight })
    }

    /// Adds a number for each column: a view of (columns) or of (batches or groups, columns).
    #[must_use]
    pub fn bias<A>(self, bias: A) -> Matmul<'w, P, Then<E, Bias<A>>> {
        self.then(Bias { array: bias })
    }

    /// Adds a matrix.
    #[must_use]
    pub fn residual<A>(self, residual: A) -> Matmul<'w, P, Then<E, Residual<A>>> {
        self.then(Residual { array: residual })
    }

    /// Multiplies with a matrix.
    #[must_use]
    pub fn gate<A>(self, gate: A) -> Matmul<'w, P, Then<E, Gate<A>>> {
        self.then(Gate { array: gate })
    }

    /// Multiplies with a number.
    #[must_use]
    pub fn scale(self, factor: f32) -> Matmul<'w, P, Then<E, Scale<f32>>> {
        self.then(Scale { factor })
    }

    /// Multiplies with a number for each row: a view of (rows) or of (batches, rows).
    #[must_use]
    pub fn scale_rows<A>(self, scales: A) -> Matmul<'w, P, Then<E, ScaleRows<A>>> {
        self.then(ScaleRows { array: scales })
    }

    /// Multiplies with a number for each column: a view of (columns) or of (batches or groups,
    /// columns).
    #[must_use]
    pub fn scale_columns<A>(self, scales: A) -> Matmul<'w, P, Then<E, ScaleColumns<A>>> {
        self.then(ScaleColumns { array: scales })
    }

    /// Applies an activation.
    #[must_use]
    pub fn activate(self, activation: Activation) -> Matmul<'w, P, Then<E, Activate>> {
        self.then(Activate(activation))
    }

    /// Applies [`Activation::Relu`].
    #[must_use]
    pub fn relu(self) -> Matmul<'w, P, Then<E, Activate>> {
        self.activate(Activation::Relu)
    }

    /// Applies [`Activation::Gelu`].
    #[must_use]
    pub fn gelu(self) -> Matmul<'w, P, Then<E, Activate>> {
        self.activate(Activation::Gelu)
    }

    /// Applies [`Activation::Silu`].
    #[must_use]
    pub fn silu(self) -> Matmul<'w, P, Then<E, Activate>> {
        self.activate(Activation::Silu)
    }

    /// Applies [`Activation::Tanh`].
    #[must_use]
    pub fn tanh(self) -> Matmul<'w, P, Then<E, Activate>> {
        self.activate(Activation::Tanh)
    }

    /// Multiplies the activation of each even column with the odd column on its right: half as many
    /// columns.
    #[must_use]
    pub fn gate_pairs(self, activation: Activation) -> Matmul<'w, P, Then<E, GatePairs>> {
        self.then(GatePairs(activation))
    }

    /// Rotates heads of `dim` columns, up to column `end`, by angles of shape (rows, dim / 2).
    #[must_use]
    pub fn rotate<A>(
        self,
        cos: A,
        sin: A,
        [dim, end]: [usize; 2],
        pairs: Pairs,
    ) -> Matmul<'w, P, Then<E, Rotation<A>>> {
        self.then(Rotate { angles: (cos, sin), heads: Heads { dim, end, pairs } })
    }

    /// Rounds the values to an element type, as a separate kernel would.
    #[must_use]
    pub fn round<T: Element>(self) -> Matmul<'w, P, Then<E, Round<T>>> {
        self.then(Round::new())
    }

    /// Adds the sums of the rows to a mutable view of f32, of shape (rows).
    #[must_use]
    pub fn row_sums<A>(self, sums: A) -> Matmul<'w, P, Then<E, RowSums<A>>> {
        self.then(RowSums { array: sums })
    }

    /// Adds the sums of the columns to a mutable view of f32, of shape (columns).
    #[must_use]
    pub fn column_sums<A>(self, sums: A) -> Matmul<'w, P, Then<E, ColumnSums<A>>> {
        self.then(ColumnSums { array: sums })
    }

    /// Divides 128 columns of a row by a scale, so that their largest magnitude is `largest` (448
    /// for e4m3, 127 for i8). Stores the scales in a mutable view of f32, of shape (blocks of
    /// columns, rows).
    #[must_use]
    pub fn quantize_blocks<A>(self, scales: A, largest: f32) -> Matmul<'w, P, Then<E, QuantizeBlocks<(A, f32)>>> {
        self.then(QuantizeBlocks { arguments: (scales, largest) })
    }

    /// Stores the sums of squares of groups of adjacent columns in a mutable view of f32, of shape
    /// (groups, rows).
    #[must_use]
    pub fn square_sums<A>(self, sums: A, group: usize) -> Matmul<'w, P, Then<E, SquareSums<A, usize>>> {
        self.then(SquareSums { array: sums, group })
    }

    /// Divides each row by √(mean of squares + epsilon). `sums` are sums of squares of shape
    /// (groups, rows) by [`Matmul::square_sums`] of `columns` columns: an RMS norm of the left
    /// operand, without its weight.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet_kernels::matmul;
    ///
    /// let device = ct::Device::cpu();
    /// let stream = device.default_stream();
    /// let (x, w) = (device.full([1, 2], 1.5f32)?, device.full([2, 4], 1.0f32)?);
    /// let (mut y, mut squares) = (device.zeros::<f32, 2>([1, 4])?, device.zeros::<f32, 2>([2, 1])?);
    /// matmul().square_sums(squares.view_mut(), 2).launch(&stream, x.view(), w.view(), y.view_mut())?;
    /// assert_eq!((y.to_vec()?, squares.to_vec()?), (vec![3.0; 4], vec![18.0; 2]));
    /// let (v, mut z) = (device.full([4, 1], 1.0f32)?, device.zeros::<f32, 2>([1, 1])?);
    /// matmul().normalize_rows(squares.view(), 4, 0.0).launch(&stream, y.view(), v.view(), z.view_mut())?;
    /// assert!((z.to_vec()?[0] - 4.0).abs() < 1e-5);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    #[allow(clippy::type_complexity, reason = "a stage with its arrays")]
    pub fn normalize_rows<A: Argument>(
        self,
        sums: A,
        columns: usize,
        epsilon: f32,
    ) -> Matmul<'w, P, Then<E, NormalizeRows<A, (f32, f32), usize>>> {
        let groups = sums.extents().first().map_or(1, |groups| groups.next_power_of_two());
        self.then(NormalizeRows { array: sums, numbers: (1.0 / columns as f32, epsilon), groups })
    }

    /// Stores the largest value of each group of adjacent columns and its first column: mutable
    /// views of f32 and i32, of shape (groups, rows).
    /// [`largest_of_groups`](crate::order::largest_of_groups) reduces them to a column for each
    /// row.
    #[must_use]
    #[allow(clippy::type_complexity, reason = "a stage with its arrays")]
    pub fn largest<A, B>(self, values: A, columns: B, group: usize) -> Matmul<'w, P, Then<E, Largest<(A, B), usize>>> {
        self.then(Largest { arrays: (values, columns), group })
    }

    /// Rotates heads of queries and keys by the angles of the positions of the rows, and stores
    /// keys and values in the rows of a cache: [`RotateCached`] has the shapes.
    #[must_use]
    #[allow(clippy::type_complexity, reason = "a stage with its arrays")]
    pub fn rotate_cached<G, R, C>(
        self,
        [cos, sin]: [G; 2],
        [positions, rows]: [R; 2],
        [keys, values]: [C; 2],
        heads: HeadColumns,
    ) -> Matmul<'w, P, Then<E, RotateCached<(G, G), (R, R), (C, C), HeadColumns>>> {
        self.then(RotateCached { angles: (cos, sin), rows: (positions, rows), cache: (keys, values), heads })
    }

    /// Applies a function of a tile, of further arguments and of the position. The function
    /// captures nothing.
    ///
    /// ```
    /// use cutlet as ct;
    /// use cutlet::prelude::*;
    /// use cutlet_kernels::matmul;
    ///
    /// let device = ct::Device::cpu();
    /// let (a, b) = (device.full([2, 3], 1.0f32)?, device.full([3, 2], 2.0f32)?);
    /// let mut c = device.zeros::<f32, 2>([2, 2])?;
    /// let clipped = matmul().apply((4.0f32,), |x: Tile<f32, 2>, (limit,): (Scalar<f32>,), _| x.min(limit));
    /// clipped.launch(&device.default_stream(), a.view(), b.view(), c.view_mut())?;
    /// assert_eq!(c.to_vec()?, [4.0; 4]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn apply<A, F>(self, arguments: A, function: F) -> Matmul<'w, P, Then<E, Apply<Function<F>, A>>> {
        self.then(Apply { function: Function::new(function), arguments })
    }
}
