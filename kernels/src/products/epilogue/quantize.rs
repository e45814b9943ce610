//! Quantized results with a scale for each block of 128 columns of a row.

use cutlet as ct;
use cutlet::element::Float;
use cutlet::prelude::*;

use super::argument::text;
use super::{Argument, Epilogue, Extents, Place, Stage};
use crate::check::require;

/// Columns that share a scale.
const BLOCK: usize = 128;

/// Divides 128 columns of a row by their scale, which is their largest magnitude over a number.
/// Stores the scales: an array of shape (blocks of columns, rows).
#[derive(Clone, Copy, Debug)]
pub struct QuantizeBlocks<A> {
    pub(crate) arguments: A,
}
ct::impl_kernel_args!(QuantizeBlocks<A> { arguments });

impl<S: Float> Stage<S> for QuantizeBlocks<(ArrayMut<f32, 2>, Scalar<f32>)> {
    fn apply(&self, sums: Tile<S, 2>, place: Place) -> Tile<S, 2> {
        let (scales, largest) = self.arguments;
        let [m, n] = sums.shape();
        let blocks = n / BLOCK;
        let values = sums.cast::<f32>().reshape([m, blocks, BLOCK]);
        // Blocks of zeros have a scale of one.
        let magnitude = values.abs().reduce_max(2);
        let scale = ct::select(magnitude.gt(0.0), magnitude / largest, 1.0);
        let scales = place.group.map_or(scales, |[begin, end]| scales.slice(1, begin..end));
        scales.store((place.column, place.row), scale.reshape([m, blocks]).transpose());
        (values / scale).reshape([m, n]).cast::<S>()
    }
}

impl<S: Float, A: Argument<Kernel = ArrayMut<f32, 2>>> Epilogue<S> for QuantizeBlocks<(A, f32)> {
    type Kernel = QuantizeBlocks<(ArrayMut<f32, 2>, Scalar<f32>)>;
    type Arg<'x>
        = QuantizeBlocks<(A::Arg<'x>, f32)>
    where
        Self: 'x;

    fn arg(&mut self) -> Self::Arg<'_> {
        let (scales, largest) = &mut self.arguments;
        QuantizeBlocks { arguments: (scales.arg(), *largest) }
    }

    fn check(&self, extents: Extents) -> ct::Result<Extents> {
        let shape = self.arguments.0.extents();
        let fits =
            shape == [extents.columns.div_ceil(BLOCK), extents.rows] && (extents.batches == 1 || extents.is_grouped);
        require(fits, || format!("scales of blocks of shape {shape:?} for {}", text(extents)))?;
        Ok(extents)
    }

    fn width(&self) -> usize {
        BLOCK
    }
}
