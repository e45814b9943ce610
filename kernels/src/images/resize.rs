//! Bilinear interpolation.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Positions and weights along an axis: centers of places correspond (half-pixel centers), and ends
/// are repeated.
struct Positions {
    low: Tile<i32, 1>,
    high: Tile<i32, 1>,
    weight: Tile<f32, 1>,
}

impl Positions {
    fn new(first: Scalar<i32>, count: usize, extent: Scalar<i32>, scale: Scalar<f32>) -> Positions {
        let place = (first + ct::indices([count], 0)).cast::<f32>();
        let last = extent - 1;
        let position = ((place + 0.5) * scale - 0.5).max(0.0);
        let low = position.floor().cast::<i32>().min(last);
        Positions { low, high: (low + 1).min(last), weight: position - low.cast::<f32>() }
    }
}

/// A tile of a row of the result, with some channels.
fn resize<T: Number>(x: Array<T, 4>, y: ArrayMut<T, 4>, scale: [Scalar<f32>; 2], tile: [usize; 2]) {
    let [wide, channels] = tile;
    let tiles = y.num_tiles(2, [1, 1, wide, channels]);
    let (j, place, n) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let (r, c) = (place / tiles, place % tiles);
    let rows = Positions::new(r, 1, x.extent(1), scale[0]);
    let columns = Positions::new(c * wide, wide, x.extent(2), scale[1]);
    let load = |row: Tile<i32, 1>, column: Tile<i32, 1>| {
        let own = x.index_axis(0, n).index_axis(0, row.item());
        own.gather((column.unsqueeze(1), ct::span(j * channels as i32, channels))).cast::<f32>()
    };
    // Four weights for each place: one fused multiplication and addition for each element.
    let (right, below) = (columns.weight.unsqueeze(1), rows.weight.item());
    let (left, above) = (1.0 - right, 1.0 - below);
    let above = load(rows.low, columns.high).fma(right * above, load(rows.low, columns.low) * (left * above));
    let below = load(rows.high, columns.low).fma(left * below, load(rows.high, columns.high) * (right * below));
    let result = above + below;
    y.store((n, r, c, j), result.cast::<T>().reshape([1, 1, wide, channels]));
}

/// Queues images (batch, rows, columns, channels) of another size, by bilinear interpolation
/// between the centers of places, as `align_corners=False` of torch.
///
/// ```
/// # use cutlet as ct;
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.array(&[0.0f32, 4.0], [1, 1, 2, 1])?, device.zeros([1, 1, 4, 1])?);
/// cutlet_kernels::images::resize_bilinear(&device.default_stream(), x.view(), y.view_mut())?;
/// assert_eq!(y.to_vec()?, [0.0, 1.0, 3.0, 4.0]);
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`ct::Error::Argument`] if batch or channels differ, or if the images have no places and the
/// results do; those of the launch.
#[track_caller]
pub fn resize_bilinear<T: Number>(stream: &Stream, x: DeviceView<T, 4>, y: DeviceViewMut<T, 4>) -> ct::Result<()> {
    let ([n, rows, columns, channels], [m, high, wide, others]) = (x.shape(), y.shape());
    require(n == m && channels == others, || {
        format!("resize_bilinear: images {:?} and results {:?} differ in batch or channels", x.shape(), y.shape())
    })?;
    if y.is_empty() {
        return Ok(());
    }
    require(!x.is_empty(), || format!("resize_bilinear: images {:?} have no places", x.shape()))?;
    let tile = [wide.next_power_of_two().min(32), channels.next_power_of_two().min(64)];
    let grid = [channels.div_ceil(tile[1]), high * wide.div_ceil(tile[0]), n];
    let scale = [rows as f32 / high as f32, columns as f32 / wide as f32];
    ct::Launch::new(grid).stream(stream).run(resize::<T>, (x, y, scale, ct::Constant(tile)))
}
