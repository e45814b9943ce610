//! Sinkhorn normalization of many small matrices (Sinkhorn and Knopp, 1967).
//!
//! A thread has whole matrices in its registers, so that no sum of a row or of a column is
//! exchanged between threads.

use cutlet as ct;
use cutlet::layout::{local, spatial};
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Hints, Stream};

use crate::check::require;
use crate::launch::{Run, target};

/// Most rows of a matrix.
const LARGEST: usize = 16;
/// Warps of a tile block.
const WARPS: usize = 4;

/// Constants of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// Matrices of a tile, and rows of a matrix of the tile.
    batch: usize,
    n: usize,
    /// The matrices have fewer rows than the tile.
    is_padded: bool,
    /// Normalizations of the rows and of the columns.
    steps: usize,
    has_layout: bool,
}

fn kernel(x: Array<f32, 3>, y: ArrayMut<f32, 3>, epsilon: Scalar<f32>, form: Form) {
    ct::require_rowwise(0);
    let Form { batch, n, is_padded, steps, has_layout } = form;
    let mut x_tile = x.load((ct::bid(0), 0, 0), [batch, n, n]);
    if has_layout {
        let threads = 32 * WARPS as i64;
        let one = local([1, n as i64, n as i64]);
        x_tile = x_tile.with_layout(local([batch as i64 / threads, 1, 1]) * spatial([threads, 1, 1]) * one);
    }
    let [rows, columns] = [1, 2].map(|axis| ct::indices([1, n, n], axis).lt(x.extent(1)));
    let inside = |tile: Tile<f32, 3>, other: f32| {
        if is_padded { (rows & columns).broadcast_to(tile.shape()).select(tile, other) } else { tile }
    };
    let result = ct::with_mode(ct::FloatMode::fast(), || {
        let normalized = |tile: Tile<f32, 3>, axis: usize| tile * (tile.sum(axis) + epsilon).recip();
        let x = inside(x_tile, f32::NEG_INFINITY);
        // A row outside of the matrix has no largest element.
        let largest = x.reduce_max(2).max(f32::MIN);
        let e = (x - largest).exp();
        let start = inside(e * e.sum(2).max(f32::MIN_POSITIVE).recip() + epsilon, 0.0);
        ct::fold(..ct::scalar(steps as i32 - 1), normalized(start, 1), |y, _| normalized(normalized(y, 2), 1))
    });
    y.store((ct::bid(0), 0, 0), result);
}

/// Queues the Sinkhorn normalization of matrices (batch, n, n) of at most 16 rows: positive
/// matrices whose rows and columns have the sum 1, nearly.
///
/// The softmax of the rows plus `epsilon` is divided by the sums of its columns plus `epsilon`.
/// This is step 1. Each of the other steps divides by the sums of the rows plus `epsilon`, then by
/// those of the columns.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.zeros([1, 4, 4])?, device.zeros([1, 4, 4])?);
/// cutlet_kernels::norms::sinkhorn(&device.default_stream(), x.view(), y.view_mut(), 10, 1e-6)?;
/// assert!(y.to_vec()?.iter().all(|y| (y - 0.25).abs() < 1e-5));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] for other shapes or no step, and those of the launch.
#[track_caller]
pub fn sinkhorn(
    stream: &Stream,
    x: DeviceView<f32, 3>,
    y: DeviceViewMut<f32, 3>,
    steps: usize,
    epsilon: f32,
) -> ct::Result<()> {
    let [count, n, columns] = x.shape();
    require(n == columns && n <= LARGEST && y.shape() == x.shape(), || {
        format!("sinkhorn: matrices {:?} and results {:?}: squares of at most {LARGEST} rows", x.shape(), y.shape())
    })?;
    require(steps > 0, || "sinkhorn: no step: the first one is the softmax".to_owned())?;
    if x.is_empty() {
        return Ok(());
    }
    let extent = n.next_power_of_two();
    let form =
        Form { batch: 32 * WARPS, n: extent, is_padded: extent != n, steps, has_layout: target(stream).is_some() };
    // Registers of a matrix of 4 x 4 and of its sums: without the limit, ptxas has 32 and spills.
    let hints = Hints::new().num_warps(WARPS as u32).occupancy(8);
    let launch = ct::Launch::new(count.div_ceil(form.batch)).hints(hints).stream(stream);
    launch.run(kernel, (x, y, epsilon, ct::Constant(form)))
}
