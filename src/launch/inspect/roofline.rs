//! The time below which a device cannot do some work: the larger of moving its bytes and doing its arithmetic.

use std::time::Duration;

use crate::dtype::DType;
use crate::pass::Work;
use crate::runtime::{Device, Gpu};

/// Elementwise operations of a multiprocessor in a cycle: one a lane.
const ELEMENTWISE_RATE: f64 = 128.0;

impl Device {
    /// The time below which a GPU cannot do this work, by its clocks and the rates of its units; `None` on the
    /// cpu device. Real kernels reach 0.85 to 0.92 of it where memory decides.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// let mut x = ct::Device::cpu().zeros::<i32, 1>([4])?;
    /// let work = ct::Launch::new(1).work(|x: ct::ArrayMut<i32, 1>| x.store(0, ct::ones([4])), (&mut x,))?;
    /// assert_eq!(ct::Device::cpu().least_time(&work), None);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn least_time(&self, work: &Work) -> Option<Duration> {
        self.as_gpu().map(|gpu| least_time(gpu, work))
    }
}

fn least_time(gpu: &Gpu, work: &Work) -> Duration {
    let products = work.products.iter().map(|&(dtype, flops)| flops / product_rate(gpu.target().arch, dtype));
    let arithmetic = products.sum::<f64>().max(work.elementwise / ELEMENTWISE_RATE) / gpu.cycle_rate();
    Duration::from_secs_f64(arithmetic.max(work.bytes() / gpu.memory_rate()))
}

/// Floating-point (or integer) operations of matrix products that a multiprocessor does in a cycle: the peak rate
/// of the vendor's data sheets (dense, f32 accumulators) over multiprocessors and boost clock.
fn product_rate(arch: u32, dtype: DType) -> f64 {
    // For 16-bit elements; double for 8 bits, half for tf32.
    let (half, double) = match arch {
        80 => (2048.0, 128.0),
        86 | 87 | 89 | 120 | 121 => (1024.0, 4.0),
        90 => (4096.0, 256.0),
        _ => (8192.0, 128.0),
    };
    match (dtype, dtype.storage_bits()) {
        (DType::F32, _) => 2.0 * ELEMENTWISE_RATE,
        (DType::F64, _) => double,
        (_, 32..) => half / 2.0,
        (_, 16) => half,
        _ => 2.0 * half,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_h200_has_the_rates_of_its_data_sheet() {
        let cycles = 132.0 * 1.83e9;
        for (dtype, tera) in [
            (DType::BF16, 989.0),
            (DType::TF32, 495.0),
            (DType::F8E4M3FN, 1979.0),
            (DType::F64, 67.0),
            (DType::F32, 67.0),
        ] {
            let rate = product_rate(90, dtype) * cycles / 1e12;
            assert!((rate / tera - 1.0).abs() < 0.1, "{dtype}: {rate}");
        }
    }
}
