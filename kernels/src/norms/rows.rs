//! Rows of arrays: views with four axes, and the part of a row that a tile block holds.
//!
//! A row that fits in registers is one tile, and short rows share a tile. On Hopper the blocks of a
//! cluster hold parts of a longer row, whose sums they exchange through distributed shared memory.
//! Rows without such a form are read by chunks.

use cutlet as ct;
use cutlet::ops::LoopState;
use cutlet::prelude::*;
use cutlet::{DeviceView, Stream, Target};

use crate::launch::{is_batch_invariant, num_multiprocessors, target};

/// Largest extent of a tile along a row: 32 numbers of f32 in each of 512 threads.
pub const LONGEST_TILE: usize = 16384;
/// Largest cluster of an H100.
pub const LARGEST_CLUSTER: usize = 16;
/// Extent of a chunk of a row.
const CHUNK: usize = 8192;

/// Shape with four axes, whose last axis is the row: one axis of rows, if all arrays permit it.
pub fn four<const R: usize>(shape: [usize; R], collapses: bool) -> [usize; 4] {
    const { assert!(R > 0, "arrays without axes have no rows") };
    let columns = shape[R - 1];
    let rows: usize = shape[..R - 1].iter().product();
    if collapses {
        return [1, 1, rows, columns];
    }
    let axis = |from_last: usize| if R > from_last { shape[R - 1 - from_last] } else { 1 };
    let inner = axis(1) * axis(2);
    [rows / inner.max(1), axis(2), axis(1), columns]
}

/// Returns true if the rows of an array have one stride.
pub fn collapses<T: Element, const R: usize>(x: DeviceView<T, R>) -> bool {
    let columns = x.shape()[R - 1];
    x.reshape([1, 1, x.len() / columns.max(1), columns]).is_ok()
}

/// Runs a part of a kernel whose results have 16 bits with the fast functions of the hardware.
pub fn mode<T, X>(part: impl FnOnce() -> X) -> X {
    if size_of::<T>() == 2 { ct::with_mode(ct::FloatMode::fast(), part) } else { part() }
}

/// Returns true if clusters of up to 16 tile blocks exist: on Hopper, and in the interpreter.
pub fn is_hopper(target: Option<Target>) -> bool {
    target.is_none_or(|target| target.arch / 10 == 9)
}

/// Part of the rows that a tile block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Form {
    /// Rows of a tile.
    pub rows: usize,
    /// Columns of a tile.
    pub tile: usize,
    /// Tile blocks of a cluster that share a row.
    pub parts: usize,
    /// Rows are read by chunks of this extent.
    pub by_chunks: bool,
    /// Rows end before the end of their last tile.
    pub padded: bool,
    /// Warps of a tile block; 0: the compiler selects them.
    pub warps: u32,
}

impl Form {
    /// Form for rows of an array of this shape. `elements` is the least number of elements of a
    /// tile of short rows.
    pub fn new(shape: [usize; 4], elements: usize, stream: &Stream) -> Form {
        let rows = shape[0] * shape[1] * shape[2];
        // Blocks that wait for each other load less than a block that streams a row: 2056 of 3000
        // GB/s for 4096 rows of 65536 columns on an H100.
        let few = is_batch_invariant() || rows < num_multiprocessors(stream);
        let largest = if few && is_hopper(target(stream)) { LARGEST_CLUSTER } else { 1 };
        Form::with_clusters(shape, elements, LONGEST_TILE, largest).with_warps()
    }

    /// As [`Form::new`], for kernels that load `bytes` for each column and keep one tile of f32.
    pub fn of_bytes(shape: [usize; 4], elements: usize, bytes: usize, stream: &Stream) -> Form {
        let columns = shape[3].next_power_of_two();
        if columns == 2 * LONGEST_TILE {
            // 366 us for 4096 rows of f32 on an H100, 528 us by chunks.
            return Form::with_clusters(shape, elements, columns, 1).with_warps();
        }
        // Blocks of a cluster that load 64 KiB each: 393 us for 1024 rows of 131072 columns of f32,
        // 551 us by chunks.
        match bytes >= 4 && is_hopper(target(stream)) {
            true => Form::with_clusters(shape, elements, LONGEST_TILE, LARGEST_CLUSTER).with_warps(),
            false => Form::new(shape, elements, stream),
        }
    }

    /// The form with 32 elements in each thread: more warps wait longer for each other. Layer norm
    /// of 16384 rows of 4096 columns of f16 takes 94 us on an H100, 118 us with 16 elements.
    fn with_warps(self) -> Form {
        let elements = self.rows * self.tile;
        if self.by_chunks || elements < 4096 { self } else { Form { warps: (elements / 1024) as u32, ..self } }
    }

    /// As [`Form::new`], with tiles of at most `longest` columns, and clusters of at most `largest`
    /// tile blocks for all longer rows.
    pub fn with_clusters(shape: [usize; 4], elements: usize, longest: usize, largest: usize) -> Form {
        let columns = shape[3].next_power_of_two();
        let parts = columns.div_ceil(longest).min(largest);
        if columns / parts > longest {
            return Form::chunks(shape);
        }
        let tile = columns / parts;
        // The batch does not select the tile: threads of one row add in one order. An axis of heads
        // may.
        let is_batch = is_batch_invariant() || shape[0] * shape[1] == 1;
        let most = if is_batch { usize::MAX } else { shape[2].next_power_of_two() };
        let rows = (elements / tile).clamp(1, most);
        Form { rows, tile, parts, by_chunks: false, padded: columns != shape[3], warps: 0 }
    }

    /// Form for rows that are read by chunks.
    pub fn chunks(shape: [usize; 4]) -> Form {
        Form { rows: 1, tile: CHUNK, parts: 1, by_chunks: true, padded: !shape[3].is_multiple_of(CHUNK), warps: 0 }
    }

    /// The form with chunks of at most 16 KiB, of which shared memory has four.
    pub fn sized<T>(self, shape: [usize; 4]) -> Form {
        let tile = CHUNK.min(16384 / size_of::<T>());
        match self.by_chunks {
            true => Form { tile, padded: !shape[3].is_multiple_of(tile), ..self },
            false => self,
        }
    }

    /// Launch with a cluster for each tile of rows; rows of the innermost axis are first.
    pub fn launch(self, shape: [usize; 4], stream: &Stream) -> ct::Launch<'_> {
        let grid = [shape[2].div_ceil(self.rows) * self.parts, shape[1], shape[0]];
        // One block loads while another one reduces.
        let hints = if self.tile > 8192 { ct::Hints::new().occupancy(2) } else { ct::Hints::new() };
        let hints = if self.warps > 0 { hints.num_warps(self.warps) } else { hints };
        ct::Launch::new(grid).hints(hints).stream(stream)
    }

    /// Promises that rows are independent of each other, unless tile blocks of a cluster share
    /// them. `constants` have no rows.
    pub fn promise<T: Element>(self, constants: &[Array<T, 1>]) {
        if self.parts == 1 {
            for axis in 0..3 {
                constants.iter().fold(ct::require_rowwise(axis), |promise, &array| promise.constant(array));
            }
        }
    }

    /// Shape of a tile.
    pub fn shape(self) -> [usize; 4] {
        [1, 1, self.rows, self.tile]
    }

    /// Shape of a chunk whose innermost axis has the columns of one access of a thread.
    pub fn groups<T>(self) -> [usize; 4] {
        let adjacent = 16 / size_of::<T>();
        [1, 1, self.tile / adjacent, adjacent]
    }

    /// In a kernel: the rows of this tile block.
    pub fn here(self) -> Rows {
        match self.parts {
            1 => Rows { form: self, cluster: None, row: ct::bid(0) },
            parts => {
                let cluster = ct::cluster(parts);
                Rows { form: self, cluster: Some(cluster), row: cluster.id() }
            }
        }
    }
}

/// The rows of a tile block, in a kernel.
#[derive(Clone, Copy)]
pub struct Rows {
    form: Form,
    cluster: Option<ct::Cluster>,
    /// Index of the tile along the axis of rows.
    pub row: Scalar<i32>,
}

impl Rows {
    /// Index of the part of the block, with the grid of [`Form::launch`].
    pub fn at(self) -> [Scalar<i32>; 4] {
        [ct::bid(2), ct::bid(1), self.row, self.part()]
    }

    /// Index of chunk `j` of the row.
    pub fn chunk(self, j: Scalar<i32>) -> [Scalar<i32>; 4] {
        [ct::bid(2), ct::bid(1), self.row, j]
    }

    /// Index of the part of a row that this block holds.
    pub fn part(self) -> Scalar<i32> {
        self.cluster.map_or(ct::scalar(0), ct::Cluster::rank)
    }

    /// Loop over the chunks of a row. The state depends on the whole row; the flag is true for a
    /// chunk that reaches beyond the end of the row.
    pub fn fold<S: LoopState>(self, columns: Scalar<i32>, start: S, step: impl Fn(S, Scalar<i32>, bool) -> S) -> S {
        let whole = columns / self.form.tile as i32;
        let state = ct::fold(..whole, start, |state, j| step(state, j, false));
        if self.form.padded { step(state, whole, true) } else { state }
    }

    /// Loop over the chunks of a row from the last one on, which the cache still has.
    pub fn each_back(self, columns: Scalar<i32>, work: impl Fn(Scalar<i32>, bool)) {
        let whole = columns / self.form.tile as i32;
        if self.form.padded {
            work(whole, true);
        }
        ct::for_each(..whole, |j| work(whole - 1 - j, false));
    }

    /// Sums along the rows, over all parts.
    pub fn sum(self, x: Tile<f32, 4>) -> Tile<f32, 4> {
        let sum = x.sum(3);
        self.cluster.map_or(sum, |cluster| cluster.sum(sum))
    }

    /// Sums of two tiles along the rows, over all parts, by one exchange.
    pub fn sums(self, x: [Tile<f32, 4>; 2]) -> [Tile<f32, 4>; 2] {
        self.all(ct::reduce(x, 3, [0.0, 0.0], |[a, b], [x, y]| [a + x, b + y]))
    }

    /// Sums of numbers of the rows over all parts, by one exchange.
    pub fn all<const N: usize>(self, sums: [Tile<f32, 4>; N]) -> [Tile<f32, 4>; N] {
        self.cluster.map_or(sums, |cluster| cluster.sum(ct::cat(sums, 3)).split(3))
    }

    /// Largest elements of the rows, over all parts.
    pub fn max(self, x: Tile<f32, 4>) -> Tile<f32, 4> {
        let max = x.reduce_max(3);
        self.cluster.map_or(max, |cluster| cluster.reduce_max(max))
    }

    /// Tile `j` along the row with zeros after the end of the row.
    pub fn inside(self, x: Tile<f32, 4>, j: Scalar<i32>, columns: Scalar<i32>) -> Tile<f32, 4> {
        if !self.form.padded {
            return x;
        }
        let tile = self.form.tile;
        let inside = (j * tile + ct::arange(0..tile)).lt(columns).reshape([1, 1, 1, tile]);
        ct::select(inside, x, 0.0)
    }
}
