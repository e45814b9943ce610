//! Pooling: the largest element, or the mean, of windows of images.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, LoadOptions, Stream};

use super::taps::{Geometry, Taps};
use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// A window that moves over images. Pairs are of rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Rows and columns of the window.
    pub size: [usize; 2],
    /// Rows and columns from a window to the next one.
    pub stride: [usize; 2],
    /// Places before the first and after the last row and column. They do not count: less than the
    /// size of the window.
    pub padding: [usize; 2],
}

impl Window {
    fn geometry(self) -> Geometry {
        Geometry { taps: self.size, stride: self.stride, padding: self.padding, dilation: [1, 1] }
    }

    /// Returns the shape of the result for images of this shape: batch, rows, columns, channels.
    pub fn output_shape(self, [batch, rows, columns, channels]: [usize; 4]) -> [usize; 4] {
        let [rows, columns] = self.geometry().results([rows, columns]);
        [batch, rows, columns, channels]
    }
}

/// Reduction of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Reduction {
    Max,
    Mean,
}

/// Constants of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Form {
    /// Rows, columns and channels of a tile.
    tile: [usize; 3],
    taps: Vec<Taps>,
    window: Window,
    reduction: Reduction,
}

fn pool<T: Number>(images: Vec<Array<T, 4>>, y: ArrayMut<T, 4>, [rows, columns]: [Scalar<i32>; 2], form: Form) {
    let Form { tile: [high, wide, channels], taps, window, reduction } = form;
    ct::require_rowwise(0);
    let tile = [1, high, wide, channels];
    let tiles = y.num_tiles(2, tile);
    let (j, place, n) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let (r, c) = (place / tiles, place % tiles);
    let (start, padding) = match reduction {
        Reduction::Max => (f32::NEG_INFINITY, Padding::NegInf),
        Reduction::Mean => (0.0, Padding::Zero),
    };
    let options = LoadOptions::new().padding(padding);
    let mut result = ct::full(tile, start);
    for taps in taps {
        result = taps.fold(result, |result: Tile<f32, 4>, tap| {
            let at = (n, ct::at(r * high + tap.offset[0]), ct::at(c * wide + tap.offset[1]), j);
            let x = images[taps.phase].load_with(at, tile, options.clone()).cast::<f32>();
            match reduction {
                Reduction::Max => result.max_nan(x),
                Reduction::Mean => result + x,
            }
        });
    }
    if reduction == Reduction::Mean {
        // Places of the window inside of the image, along each axis.
        let inside = |axis: usize, first: Scalar<i32>, extent: Scalar<i32>| {
            let tile = [1, high, wide, 1];
            let (stride, padding) = (window.stride[axis] as i32, window.padding[axis] as i32);
            let begin = (first + ct::indices(tile, axis + 1)) * stride - padding;
            let end = (begin + window.size[axis] as i32).min(extent);
            (end - begin.max(0)).cast::<f32>()
        };
        result /= inside(0, r * high, rows) * inside(1, c * wide, columns);
    }
    y.store((n, r, c, j), result.cast::<T>());
}

#[track_caller]
fn queue<T: Number>(
    stream: &Stream,
    window: Window,
    x: DeviceView<T, 4>,
    y: DeviceViewMut<T, 4>,
    reduction: Reduction,
) -> ct::Result<()> {
    let Window { size, stride, padding } = window;
    require((0..2).all(|axis| stride[axis] > 0 && padding[axis] < size[axis]), || {
        format!("pooling: windows of {size:?} with stride {stride:?} and padding {padding:?}")
    })?;
    let wanted = window.output_shape(x.shape());
    require(y.shape() == wanted, || format!("pooling: the result is of shape {:?}, not {wanted:?}", y.shape()))?;
    if y.is_empty() {
        return Ok(());
    }
    let ([batch, rows, columns, channels], [_, high, wide, _]) = (y.shape(), x.shape());
    let tile = [4, 8, 64];
    let tile = [0, 1, 2].map(|axis| tile[axis].min([rows, columns, channels][axis].next_power_of_two()));
    let grid = [channels.div_ceil(tile[2]), rows.div_ceil(tile[0]) * columns.div_ceil(tile[1]), batch];
    let form = Form { tile, taps: window.geometry().of_results(), window, reduction };
    let arguments = (window.geometry().views(x)?, y, [high as i32, wide as i32], ct::Constant(form));
    ct::Launch::new(grid).stream(stream).run(pool::<T>, arguments)
}

/// Queues the largest elements of windows of images (batch, rows, columns, channels). A window with
/// a NaN has a NaN.
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::images::{Window, max_pool};
///
/// let device = ct::Device::cpu();
/// let x = device.from_fn([1, 2, 4, 1], |[_, i, j, _]| (i * 4 + j) as f32)?;
/// let mut y = device.zeros([1, 1, 2, 1])?;
/// let window = Window { size: [2, 2], stride: [2, 2], padding: [0, 0] };
/// max_pool(&device.default_stream(), window, x.view(), y.view_mut())?;
/// assert_eq!(y.to_vec()?, [5.0, 7.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if the shapes do not fit, and those of the launch.
#[track_caller]
pub fn max_pool<T: Number>(
    stream: &Stream,
    window: Window,
    x: DeviceView<T, 4>,
    y: DeviceViewMut<T, 4>,
) -> ct::Result<()> {
    queue(stream, window, x, y, Reduction::Max)
}

/// Queues the means of the elements of windows that are inside of images (batch, rows, columns,
/// channels).
///
/// ```
/// # use cutlet as ct;
/// use cutlet_kernels::images::{Window, average_pool};
///
/// let device = ct::Device::cpu();
/// let x = device.from_fn([1, 2, 4, 1], |[_, i, j, _]| (i * 4 + j) as f32)?;
/// let mut y = device.zeros([1, 1, 2, 1])?;
/// let window = Window { size: [2, 2], stride: [2, 2], padding: [0, 0] };
/// average_pool(&device.default_stream(), window, x.view(), y.view_mut())?;
/// assert_eq!(y.to_vec()?, [2.5, 4.5]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if the shapes do not fit, and those of the launch.
#[track_caller]
pub fn average_pool<T: Number>(
    stream: &Stream,
    window: Window,
    x: DeviceView<T, 4>,
    y: DeviceViewMut<T, 4>,
) -> ct::Result<()> {
    queue(stream, window, x, y, Reduction::Mean)
}
