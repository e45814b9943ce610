//! Rows of `cutlet_kernels::products`.

use cutlet::element::{Element, bf16, f8e4m3fn, f16};
use cutlet::{Device, DeviceArray};
use cutlet_kernels::matmul;
use cutlet_kernels::products::{Factor, Precision};

use crate::row::{Peak, Row, Work};

/// Work of a product.
fn work([m, n, k]: [usize; 3], [operand, result]: [usize; 2], peak: Peak) -> Work {
    let bytes = operand * (m * k + k * n) + result * m * n;
    Work { bytes: bytes as f64, flops: 2.0 * (m * n * k) as f64, peak }
}

/// Pseudorandom numbers from -1 to 1: zeros would not heat the multiprocessors.
fn numbers<T: Element, const R: usize>(device: Device, shape: [usize; R]) -> cutlet::Result<DeviceArray<T, R>> {
    if device == Device::cpu() {
        return device.zeros(shape);
    }
    let mut state = 1u64;
    let pool: Vec<T> = (0..1 << 16)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            T::from_f64((state >> 40) as f64 / (1u64 << 23) as f64 - 1.0)
        })
        .collect();
    let count = shape.iter().product();
    let values: Vec<T> = pool.iter().copied().cycle().take(count).collect();
    device.array(&values, shape)
}

/// The product of matrices: both operands are contiguous along the terms if `is_transposed`.
fn plain<T: Factor, O: Element>(extents: [usize; 3], is_transposed: bool, precision: Precision, peak: Peak) -> Row {
    let [m, n, k] = extents;
    let open = move |device| {
        let b = if is_transposed { [n, k] } else { [k, n] };
        Ok((numbers::<T, 2>(device, [m, k])?, numbers::<T, 2>(device, b)?, device.zeros::<O, 2>([m, n])?))
    };
    let type_name = if T::NAME == "f32" && precision == Precision::Fast { "tf32" } else { T::NAME };
    Row::new(
        format!("matmul {type_name} {m} {n} {k}"),
        work(extents, [size_of::<T>(), size_of::<O>()], peak),
        open,
        move |(a, b, c)| {
            let b = if is_transposed { b.view().transpose()? } else { b.view() };
            matmul().precision(precision).launch(&a.device().default_stream(), a.view(), b, c.view_mut())
        },
    )
}

/// A product with bias, activation and residual.
fn fused(extents: [usize; 3]) -> Row {
    let [m, n, k] = extents;
    let mut work = work(extents, [2, 2], Peak::F16);
    work.bytes += 2.0 * (m * n) as f64;
    Row::new(
        format!("matmul_bias_gelu_residual f16 {m} {n} {k}"),
        work,
        move |device| {
            let operands = (numbers::<f16, 2>(device, [m, k])?, numbers::<f16, 2>(device, [k, n])?);
            let added = (numbers::<f16, 1>(device, [n])?, numbers::<f16, 2>(device, [m, n])?);
            Ok((operands, added, device.zeros::<f16, 2>([m, n])?))
        },
        |((a, b), (bias, residual), c)| {
            let product = matmul().bias(bias.view()).gelu().residual(residual.view());
            product.launch(&a.device().default_stream(), a.view(), b.view(), c.view_mut())
        },
    )
}

/// Returns the rows.
pub fn rows() -> Vec<Row> {
    use Precision::{Fast, Full};
    vec![
        plain::<f16, f16>([4096; 3], false, Full, Peak::F16),
        plain::<f16, f16>([8192; 3], false, Full, Peak::F16),
        plain::<bf16, bf16>([8192; 3], true, Full, Peak::F16),
        plain::<f16, f16>([65536, 1024, 1024], false, Full, Peak::F16),
        plain::<f16, f16>([128, 4096, 14336], false, Full, Peak::F16),
        plain::<f16, f16>([1536, 4096, 4096], false, Full, Peak::F16),
        plain::<f16, f16>([16, 8192, 8192], true, Full, Peak::F16),
        plain::<f32, f32>([4096; 3], false, Fast, Peak::Tf32),
        plain::<f32, f32>([4096; 3], false, Full, Peak::F32),
        plain::<f64, f64>([4096; 3], false, Full, Peak::F64Tensor),
        plain::<f8e4m3fn, f16>([8192; 3], true, Full, Peak::F8),
        plain::<f8e4m3fn, f16>([8192; 3], true, Fast, Peak::F8),
        plain::<i8, i32>([8192; 3], true, Full, Peak::I8),
        fused([8192; 3]),
    ]
}
