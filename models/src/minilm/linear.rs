//! Product of a layer: x · weightᵀ + bias, with GELU or a residual. A block has one tile of the
//! result.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};
use cutlet_kernels::Number;

/// Operation on the sums, in f32.
pub enum Epilogue<'a, T> {
    /// Sum and bias.
    Bias,
    /// Sum and bias, then x (1 + erf(x / √2)) / 2.
    Gelu,
    /// Sum, bias and an array of the shape of the result.
    Residual(DeviceView<'a, T, 2>),
}

/// Constants of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Form {
    /// Rows, columns, and inputs at a time.
    tile: [usize; 3],
    gelu: bool,
}

fn kernel<T: Number>(
    x: Array<T, 2>,
    weight: Array<T, 2>,
    bias: Array<T, 1>,
    residual: Option<Array<T, 2>>,
    y: ArrayMut<T, 2>,
    Form { tile: [m, n, k], gelu }: Form,
) {
    let (i, j) = (ct::bid(1), ct::bid(0));
    let sum = ct::fold(..x.num_tiles(1, [m, k]), ct::zeros::<f32, 2>([m, n]), |sum, at| {
        ct::mma(x.load((i, at), [m, k]), weight.load((j, at), [n, k]).transpose(), sum)
    });
    let mut sum = sum + bias.load(j, [n]).cast::<f32>().unsqueeze(0);
    if gelu {
        sum = sum.gelu();
    }
    if let Some(residual) = residual {
        sum += residual.load((i, j), [m, n]).cast::<f32>();
    }
    y.store((i, j), sum.cast::<T>());
}

/// Returns the tile of a product. Tiles are smaller if the product has fewer large ones than the
/// device multiprocessors.
fn tile<T>(stream: &Stream, [rows, columns]: [usize; 2]) -> [usize; 3] {
    let blocks = |m: usize, n: usize| rows.div_ceil(m) * columns.div_ceil(n);
    match size_of::<T>() {
        // The interpreter has no limit of registers, and large tiles load the operands fewer times.
        _ if stream.device().target().is_none() => [64, 128, 128],
        4 => [64, 64, 32],
        _ if blocks(128, 128) >= stream.device().num_multiprocessors() => [128, 128, 64],
        _ => [64, 64, 64],
    }
}

/// Queues a product with its epilogue.
///
/// `x` is of shape (rows, inputs), `weight` of (outputs, inputs), `bias` of (outputs), `y` of
/// (rows, outputs).
///
/// # Errors
/// Those of the launch.
#[track_caller]
pub fn linear<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 2>,
    weight: DeviceView<T, 2>,
    bias: DeviceView<T, 1>,
    epilogue: Epilogue<T>,
    y: DeviceViewMut<T, 2>,
) -> ct::Result<()> {
    let shape = y.shape();
    let (gelu, residual) = match epilogue {
        Epilogue::Bias => (false, None),
        Epilogue::Gelu => (true, None),
        Epilogue::Residual(of) => (false, Some(of)),
    };
    let form = Form { tile: tile::<T>(stream, shape), gelu };
    let grid = [shape[1].div_ceil(form.tile[1]), shape[0].div_ceil(form.tile[0])];
    let args = (x, weight, bias, residual, y, ct::Constant(form));
    ct::Launch::new(grid).stream(stream).launch(kernel::<T>, args)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutlet::element::f16;

    fn generates<T: Number>(tile: [usize; 3]) -> ct::Result<()> {
        let [x, weight, y] = [[1024, 384], [1536, 384], [1024, 1536]].map(ct::ArraySpec::<T, 2>::new);
        let bias = ct::ArraySpec::<T, 1>::new([1536]);
        for target in [ct::Target::SM_80, ct::Target::SM_90A] {
            for (gelu, residual) in [(true, None), (false, Some(y))] {
                let args = (x, weight, bias, residual, y.mutable(), ct::Constant(Form { tile, gelu }));
                ct::inspect(kernel::<T>, args).target(target).ptx()?;
            }
        }
        Ok(())
    }

    #[test]
    fn there_is_code_for_gpus() -> ct::Result<()> {
        generates::<f32>([64, 64, 32])?;
        generates::<f16>([64, 64, 64])?;
        generates::<f16>([128, 128, 64])
    }
}
