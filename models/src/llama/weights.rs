//! Weights on a device: plain, or packed codes of 4 bits with a scale for each group of 128 inputs.

use cutlet as ct;
use cutlet::packed::{Narrow, PackedDeviceArray, i4};
use cutlet::prelude::*;
use cutlet::{Device, DeviceArray, DeviceView, Stream};
use cutlet_kernels::numbers::{Distribution, Rounded, Seed, fill_random, quantize_groups};

use super::Real;
use super::config::{Config, Product};
use super::parallel::{Cut, Shard};
pub use super::weight_kind::{GROUP, Kind};

/// Weights of a product, of shape (outputs, inputs).
pub struct Weight<T> {
    pub(super) plain: Option<DeviceArray<T, 2>>,
    /// Codes, and scales of shape (groups of inputs, outputs).
    pub(super) packed: Option<(PackedDeviceArray<i4, 2>, DeviceArray<T, 2>)>,
}
ct::impl_graph_resource!(impl<T: Element> Weight<T> { plain, packed });

/// Weights of a product as an operand of a kernel.
#[derive(Clone, Copy)]
pub(super) enum Operand<'a, T> {
    Plain(DeviceView<'a, T, 2>),
    /// Codes and scales.
    Packed(&'a PackedDeviceArray<i4, 2>, &'a DeviceArray<T, 2>),
    /// No weights.
    None,
}

/// Weights of a layer. The weight of a norm is a factor of the inputs of the product after it.
pub struct Layer<T> {
    /// Queries, keys and values. Elements that are rotated together are adjacent.
    pub(super) qkv: Weight<T>,
    pub(super) out: Weight<T>,
    /// Gates at even outputs, factors at odd ones.
    pub(super) gated: Weight<T>,
    pub(super) down: Weight<T>,
}
ct::impl_graph_resource!(impl<T: Element> Layer<T> { qkv, out, gated, down });

impl<T> Layer<T> {
    /// Returns the weights of a product of a layer.
    pub fn weight(&self, product: Product) -> Option<&Weight<T>> {
        match product {
            Product::Qkv => Some(&self.qkv),
            Product::Out => Some(&self.out),
            Product::Gated => Some(&self.gated),
            Product::Down => Some(&self.down),
            Product::Head => None,
        }
    }
}

/// Stores the scales of groups in the order of products, and in their element type.
fn turn<T: Element>(scales: Array<f32, 2>, turned: ArrayMut<T, 2>, tile: usize) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    turned.store((j, i), scales.load((i, j), [tile, tile]).transpose().cast::<T>());
}

impl<T: Real> Weight<T> {
    /// Returns weights of numbers of shape (outputs, inputs).
    pub(super) fn new(stream: &Stream, numbers: DeviceArray<T, 2>, kind: Kind) -> ct::Result<Weight<T>> {
        if kind == Kind::Plain {
            return Ok(Weight { plain: Some(numbers), packed: None });
        }
        let [outputs, inputs] = numbers.shape();
        let (device, groups) = (numbers.device(), inputs / GROUP);
        let mut codes = device.packed_zeros::<i4, 2>([outputs, inputs])?;
        let (mut scales, mut turned) = (device.unspecified([outputs, groups])?, device.unspecified([groups, outputs])?);
        quantize_groups(stream, numbers.view(), &mut codes, (scales.view_mut(), None), Rounded::Nearest)?;
        let grid = [outputs.div_ceil(32), groups.div_ceil(32)];
        ct::Launch::new(grid).stream(stream).launch(turn::<T>, (&scales, &mut turned, ct::Constant(32)))?;
        Ok(Weight { plain: None, packed: Some((codes, turned)) })
    }

    /// Returns the operand of kernels.
    pub(super) fn operand(&self) -> Operand<'_, T> {
        match (&self.plain, &self.packed) {
            (Some(plain), _) => Operand::Plain(plain.view()),
            (None, Some((codes, scales))) => Operand::Packed(codes, scales),
            (None, None) => Operand::None,
        }
    }

    /// Returns the numbers that products multiply with, of shape (outputs, inputs).
    ///
    /// # Errors
    /// Those of the copies.
    pub fn to_f64(&self) -> ct::Result<Vec<f64>> {
        if let Some(plain) = &self.plain {
            return Ok(plain.to_vec()?.iter().map(|x| x.to_f64()).collect());
        }
        let Some((codes, scales)) = &self.packed else { return Ok(Vec::new()) };
        let ([outputs, inputs], scales) = (codes.shape(), scales.to_vec()?);
        let numbers = codes.to_vec()?.into_iter().enumerate();
        let scale = |at: usize| scales[at % inputs / GROUP * outputs + at / inputs].to_f64();
        Ok(numbers.map(|(at, code)| T::from_f64(code.to_value() * scale(at)).to_f64()).collect())
    }

    /// Returns the bytes on the device.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let plain = self.plain.as_ref().map_or(0, |x| x.len() * size_of::<T>());
        plain + self.packed.as_ref().map_or(0, |(codes, scales)| codes.len() / 2 + scales.len() * size_of::<T>())
    }
}

/// Seeded random weights.
pub(super) struct Random<'a> {
    pub stream: &'a Stream,
    pub device: Device,
    pub seed: u64,
    pub kind: Kind,
    pub count: u64,
}

impl Random<'_> {
    /// Returns normally distributed numbers.
    pub fn numbers<T: Real>(&mut self, shape: [usize; 2], deviation: f64) -> ct::Result<DeviceArray<T, 2>> {
        let mut numbers = self.device.unspecified(shape)?;
        let flat = numbers.view_mut().reshape([shape[0] * shape[1]])?;
        let seed = Seed { seed: self.seed, offset: self.count << 32 };
        self.count += 1;
        fill_random(self.stream, flat, Distribution::Normal(0.0, deviation as f32), seed)?;
        Ok(numbers)
    }

    /// Returns the part of weights of a shape.
    fn weight<T: Real>(&mut self, shape: [usize; 2], gain: f64, cut: &Cut) -> ct::Result<Weight<T>> {
        let numbers = self.numbers(shape, gain / (shape[1] as f64).sqrt())?;
        Weight::new(self.stream, cut.of(self.stream, numbers)?, self.kind)
    }

    /// Returns the weights of a rank of a layer. `config`: the extents of all ranks.
    pub fn layer<T: Real>(&mut self, config: &Config, shard: Shard) -> ct::Result<Layer<T>> {
        let [qkv, out, gated, down, _] = config.products();
        let cuts = shard.cuts(config);
        Ok(Layer {
            qkv: self.weight(qkv, 1.0, &cuts[0])?,
            out: self.weight(out, 0.5, &cuts[1])?,
            gated: self.weight(gated, 1.0, &cuts[2])?,
            down: self.weight(down, 0.5, &cuts[3])?,
        })
    }
}
