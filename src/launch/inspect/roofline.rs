//! Roofline: a lower bound of the time of a device for some work, by memory traffic and by
//! arithmetic.

use std::time::Duration;

use crate::dtype::DType;
use crate::pass::Work;
use crate::runtime::{Device, Gpu};

/// Elementwise operations of a multiprocessor per cycle: one for each of 128 lanes.
const ELEMENTWISE_RATE: f64 = 128.0;

impl Device {
    /// Returns the least time of a GPU for this work, by its clocks and the rates of its units;
    /// `None` on the cpu device. Kernels bound by memory reach 0.85 to 0.92 of this limit.
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

/// Returns the floating-point (or integer) operations of matrix products of a multiprocessor per
/// cycle: the peak rate of the vendor's data sheets (dense, f32 accumulators), divided by
/// multiprocessors and boost clock.
fn product_rate(arch: u32, dtype: DType) -> f64 {
    // The rate for 16-bit elements (twice that for 8 bits, half for tf32), and the rate for f64.
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
