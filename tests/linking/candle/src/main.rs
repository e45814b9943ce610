//! An operation of candle that is a kernel of cutlet: on the CPU by the interpreter, on a GPU in
//! candle's memory.

use candle_core::{CpuStorage, CudaStorage, CustomOp1, Device, Layout, Result, Shape, Tensor};
use cutlet as ct;
use cutlet::foreign::cudarc::{read_strided, with, write};
use cutlet::prelude::*;

struct Softmax;

/// Each row of a matrix: exponentials over their sum. `x` may have any strides.
fn softmax(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize) {
    let row = ct::bid(0);
    let x = x.load_with((row, 0), [1, tile], ct::LoadOptions::new().padding(Padding::NegInf));
    let e = (x - x.reduce_max(1)).exp();
    y.store((row, 0), e / e.sum(1));
}

fn failed(error: impl std::error::Error + Send + Sync + 'static) -> candle_core::Error {
    candle_core::Error::wrap(error)
}

impl Softmax {
    fn on_the_cpu(x: &[f32], layout: &Layout) -> ct::Result<Vec<f32>> {
        let (rows, columns) = layout.shape().dims2().expect("a matrix");
        let device = ct::Device::cpu();
        let (start, strides) = (layout.start_offset(), layout.stride());
        let x = device.from_fn([rows, columns], |[i, j]| x[start + i * strides[0] + j * strides[1]])?;
        let mut y = device.zeros([rows, columns])?;
        ct::launch(softmax, rows, (&x, &mut y, ct::Constant(columns.next_power_of_two())))?;
        y.to_vec()
    }
}

impl CustomOp1 for Softmax {
    fn name(&self) -> &'static str {
        "cutlet-softmax"
    }

    fn cpu_fwd(&self, storage: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let y = Self::on_the_cpu(storage.as_slice::<f32>()?, layout).map_err(failed)?;
        Ok((CpuStorage::F32(y), layout.shape().clone()))
    }

    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let (rows, columns) = layout.shape().dims2()?;
        let x = storage.as_cuda_slice::<f32>()?.slice(layout.start_offset()..);
        let mut y = storage.device.alloc_zeros::<f32>(rows * columns)?;
        let x = read_strided(x, [rows, columns], [layout.stride()[0], layout.stride()[1]]).map_err(failed)?;
        let operands = (x, write(&mut y, [rows, columns]).map_err(failed)?);
        with(&storage.device.cuda_stream(), operands, |stream, (x, y)| {
            let tile = ct::Constant(columns.next_power_of_two());
            ct::Launch::new(rows).stream(stream).launch(softmax, (x, y, tile))
        })
        .map_err(failed)?;
        Ok((CudaStorage::wrap_cuda_slice(y, storage.device.clone()), layout.shape().clone()))
    }
}

fn main() -> Result<()> {
    let device = Device::cuda_if_available(0)?;
    let x = Tensor::randn(0f32, 1.0, (50, 300), &device)?.t()?;
    let sums = x.apply_op1(Softmax)?.sum(1)?.to_vec1::<f32>()?;
    assert!(sums.len() == 300 && sums.iter().all(|sum| (sum - 1.0).abs() < 1e-4));
    Ok(())
}
