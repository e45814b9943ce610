//! The product of activations with packed weights: its division into blocks.

use cutlet as ct;
use cutlet::packed::{Narrow, PackedView, i4};
use cutlet::{DeviceView, DeviceViewMut, Stream};

use super::bits::Bits;
use super::kernels::{Extents, numbers, part, sum_of_parts, whole};
use crate::Number;
use crate::check::require;
use crate::launch::{Run, of_batch};

/// Maximum number of parts of a sum.
const MAX_PARTS: usize = 16;

/// Division of a product into blocks.
#[derive(Clone, Copy, Debug)]
pub struct Tiles {
    extents: Extents,
    /// Parts of each sum over the inputs. With few rows there are few tiles of the result, and one
    /// tile block for each would leave most of a GPU without work.
    parts: usize,
}

/// The shape of the parts' sums, if there are several parts.
fn parts_shape(parts: usize, [rows, outputs]: [usize; 2]) -> [usize; 3] {
    if parts > 1 { [parts, rows, outputs] } else { [1, 1, 1] }
}

/// Launches the kernel with the division `tiles`.
fn run<T: Number, F: Narrow>(
    Tiles { extents, parts: count }: Tiles,
    stream: &Stream,
    (x, scales): (DeviceView<T, 2>, DeviceView<T, 2>),
    weights: PackedView<F, 2>,
    mut parts: DeviceViewMut<f32, 3>,
    y: DeviceViewMut<T, 2>,
) -> ct::Result<()> {
    let ([tm, tn, _], _) = extents;
    let [rows, outputs] = y.shape();
    if rows * outputs == 0 {
        return Ok(());
    }
    let grid = [rows.div_ceil(tm), outputs.div_ceil(tn), count];
    // Few rows: a step of a tile block has few bytes, so several of them are on a multiprocessor.
    // More would leave one stage for the activations.
    let most = 4 - u32::from(tm > 32) - u32::from(F::BITS > 4);
    let hints = if tm <= 64 && size_of::<T>() == 2 { ct::Hints::new().occupancy(most) } else { ct::Hints::new() };
    let launch = ct::Launch::new(grid).hints(hints).stream(stream);
    if count == 1 {
        return launch.run(whole::<T, F>, (x, weights, scales, y, ct::Constant(extents)));
    }
    launch.run(part::<T, F>, (x, weights, scales, &mut parts, ct::Constant(extents)))?;
    let tile = [count.next_power_of_two(), of_batch(rows, 16).next_power_of_two().min(16), 64];
    let grid = [rows.div_ceil(tile[1]), outputs.div_ceil(tile[2])];
    ct::Launch::new(grid).stream(stream).run(sum_of_parts::<T>, (parts.as_view(), y, ct::Constant(tile)))
}

/// Launches the conversion of weights to numbers.
#[track_caller]
fn convert<T: Number, F: Narrow>(
    stream: &Stream,
    weights: PackedView<F, 2>,
    scales: DeviceView<T, 2>,
    result: DeviceViewMut<T, 2>,
    group: usize,
) -> ct::Result<()> {
    let [inputs, outputs] = result.shape();
    if inputs * outputs == 0 {
        return Ok(());
    }
    let extents = ([0, 64, 64], group);
    let grid = [outputs.div_ceil(64), inputs.div_ceil(64)];
    ct::Launch::new(grid).stream(stream).run(numbers::<T, F>, (weights, scales, result, ct::Constant(extents)))
}

/// A product of activations of shape (rows, inputs) with packed weights.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// The number of bits of a weight.
    pub bits: Bits,
    /// The number of inputs that share a scale: a power of two from 16 on.
    pub group: usize,
}

impl Tiles {
    /// Returns the shape of the scratch array for a result of this shape: (1, 1, 1) if none is
    /// needed.
    #[must_use]
    pub fn scratch(&self, result: [usize; 2]) -> [usize; 3] {
        parts_shape(self.parts, result)
    }
}

impl Product {
    /// Returns the division of the work on this device, for a result of shape (rows, outputs).
    #[must_use]
    pub fn tiles<T: Number>(&self, device: ct::Device, [rows, outputs]: [usize; 2], inputs: usize) -> Tiles {
        let (group, rows) = (self.group, of_batch(rows, 64));
        let ([tm, tn], depth) = match (rows, size_of::<T>()) {
            (0..=16, _) => ([16, 64], 128),
            (_, 4) => ([64, 64], 64),
            (17..=64, _) => ([64, 64], 128),
            (65..=128, _) => ([128, 128], 64),
            // Each weight is unpacked once for all rows of a tile.
            (_, _) => ([256, 128], 64),
        };
        let blocks = rows.div_ceil(tm) * outputs.div_ceil(tn);
        // Weights arrive faster the more blocks ask for them; a block has four tiles of inputs to
        // have some on their way.
        let wanted = 4 * device.num_multiprocessors() / blocks.max(1);
        let parts = wanted.min(inputs / (4 * depth)).clamp(1, MAX_PARTS);
        // Parts without work are removed.
        let steps = inputs.div_ceil(depth);
        let parts = steps.div_ceil(steps.div_ceil(1 << parts.ilog2()).max(1)).max(1);
        Tiles { extents: ([tm, tn, depth], group), parts }
    }

    /// Queues the product: y = x · (codes · scales). `codes` are of shape (inputs, words of a row
    /// of outputs), `scales` of (groups of inputs, outputs), `scratch` of [`Tiles::scratch`].
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for codes of another shape; those of the launches.
    #[track_caller]
    pub fn launch<T: Number>(
        &self,
        tiles: Tiles,
        stream: &Stream,
        (x, codes, scales): (DeviceView<T, 2>, DeviceView<u32, 2>, DeviceView<T, 2>),
        scratch: DeviceViewMut<f32, 3>,
        y: DeviceViewMut<T, 2>,
    ) -> ct::Result<()> {
        let shape = [x.shape()[1], y.shape()[1]];
        let operands = (x, scales);
        match self.bits {
            Bits::Four => run::<T, i4>(tiles, stream, operands, PackedView::new(codes, shape)?, scratch, y),
            Bits::Eight => run::<T, i8>(tiles, stream, operands, PackedView::new(codes, shape)?, scratch, y),
        }
    }

    /// Queues the weights as numbers, of shape (inputs, outputs): each is its code times its scale,
    /// rounded once. `codes` and `scales` are those of [`Product::launch`].
    ///
    /// ```
    /// # use cutlet as ct;
    /// use cutlet_kernels::quantized::{Bits, Product};
    ///
    /// let device = ct::Device::cpu();
    /// let bits = Bits::Eight;
    /// // Sixteen inputs of one output, with the codes 3 and -1 in turn.
    /// let codes = device.from_fn([16, bits.words(1)], |[i, w]| if w > 0 { 0 } else { [3, 255][i % 2] })?;
    /// let (scales, mut weights) = (device.full([1, 1], 0.5f32)?, device.zeros([16, 1])?);
    /// let product = Product { bits, group: 16 };
    /// product.dequantize(&device.default_stream(), codes.view(), scales.view(), weights.view_mut())?;
    /// assert_eq!(weights.to_vec()?, [1.5, -0.5].repeat(8));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for codes or scales of another shape; those of the launch.
    #[track_caller]
    pub fn dequantize<T: Number>(
        &self,
        stream: &Stream,
        codes: DeviceView<u32, 2>,
        scales: DeviceView<T, 2>,
        result: DeviceViewMut<T, 2>,
    ) -> ct::Result<()> {
        let shape = result.shape();
        let wanted = [shape[0].div_ceil(self.group.max(1)), shape[1]];
        require(scales.shape() == wanted && self.group >= 16 && self.group.is_power_of_two(), || {
            let scales = scales.shape();
            format!(
                "weights of shape {shape:?} in groups of {}, a power of two from 16 on: scales of {scales:?}",
                self.group
            )
        })?;
        match self.bits {
            Bits::Four => convert::<T, i4>(stream, PackedView::new(codes, shape)?, scales, result, self.group),
            Bits::Eight => convert::<T, i8>(stream, PackedView::new(codes, shape)?, scales, result, self.group),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutlet::element::{bf16, f16};
    use cutlet::packed::PackedSpec;

    fn generates<T: Number, F: Narrow>(tile: [usize; 3], group: usize) -> ct::Result<()> {
        let [x, scales, y] = [[100, 640], [640 / group, 384], [100, 384]].map(ct::ArraySpec::<T, 2>::new);
        let weights = PackedSpec::<F, 2>::new([640, 384]);
        let parts = ct::ArraySpec::<f32, 3>::new([4, 100, 384]);
        let extents = ct::Constant((tile, group));
        for target in [ct::Target::SM_80, ct::Target::SM_90A] {
            ct::inspect(part::<T, F>, (x, weights, scales, parts.mutable(), extents)).target(target).ptx()?;
            ct::inspect(whole::<T, F>, (x, weights, scales, y.mutable(), extents)).target(target).ptx()?;
        }
        Ok(())
    }

    #[test]
    fn there_is_code_for_gpus() -> ct::Result<()> {
        generates::<f16, i4>([256, 128, 64], 128)?;
        generates::<f16, i4>([128, 128, 64], 32)?;
        generates::<bf16, i8>([64, 128, 128], 128)?;
        generates::<f16, i4>([16, 128, 128], 32)?;
        generates::<f32, i8>([64, 64, 64], 16)
    }

    /// With every count of parts that the plan may come to, also more than there are tiles of
    /// inputs.
    #[test]
    fn parts_are_summed() -> ct::Result<()> {
        let device = ct::Device::cpu();
        let stream = device.default_stream();
        let [rows, inputs, outputs, group] = [5, 300, 130, 32];
        let x = device.from_fn([rows, inputs], |[i, k]| (i * 31 + k * 17) as f32 % 7.0 - 3.0)?;
        let scales = device.from_fn([10, outputs], |[g, j]| ((g + j) % 5) as f32 * 0.25)?;
        let words = Bits::Four.words(outputs);
        let code = |k: usize, j: usize| (k * 5 + j * 3) as i32 % 15 - 7;
        let word = |[k, w]: [usize; 2]| (0..8).fold(0, |bits, b| bits | ((code(k, 8 * w + b) as u32 & 15) << (4 * b)));
        let codes = device.from_fn([inputs, words], word)?;
        let exact = |i: usize, j: usize| -> f32 {
            let of = |k: usize| (i * 31 + k * 17) as f32 % 7.0 - 3.0;
            (0..inputs).map(|k| of(k) * code(k, j) as f32 * ((k / group + j) % 5) as f32 * 0.25).sum()
        };
        for parts in [1, 2, 3, 4, 16] {
            let tiles = Tiles { extents: ([16, 128, 128], group), parts };
            let mut y = device.zeros([rows, outputs])?;
            let mut sums = device.zeros(parts_shape(parts, [rows, outputs]))?;
            let weights = PackedView::<i4, 2>::new(codes.view(), [inputs, outputs])?;
            run::<f32, i4>(tiles, &stream, (x.view(), scales.view()), weights, sums.view_mut(), y.view_mut())?;
            let y = y.to_vec()?;
            for (at, y) in y.iter().enumerate() {
                assert_eq!(*y, exact(at / outputs, at % outputs), "{parts} parts, element {at}");
            }
        }
        Ok(())
    }
}
