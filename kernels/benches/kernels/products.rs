//! Rows of `cutlet_kernels::products`.

use cutlet::element::{Element, bf16, f8e4m3fn, f16};
use cutlet::packed::{Narrow, PackedView, i4, u4};
use cutlet::{Device, DeviceArray};
use cutlet_kernels::matmul;
use cutlet_kernels::products::packed::{Order, PackedWeights};
use cutlet_kernels::products::{Factor, Precision, Workspace};
use cutlet_kernels::quantized::{self, Bits};

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
        let operands = (numbers::<T, 2>(device, [m, k])?, numbers::<T, 2>(device, b)?);
        Ok((operands, device.zeros::<O, 2>([m, n])?, Workspace::new(device)?))
    };
    let type_name = if T::NAME == "f32" && precision == Precision::Fast { "tf32" } else { T::NAME };
    Row::new(
        format!("matmul {type_name} {m} {n} {k}"),
        work(extents, [size_of::<T>(), size_of::<O>()], peak),
        open,
        move |((a, b), c, workspace)| {
            let b = if is_transposed { b.view().transpose()? } else { b.view() };
            matmul().precision(precision).workspace(workspace).launch(
                &a.device().default_stream(),
                a.view(),
                b,
                c.view_mut(),
            )
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

/// A product of each matrix of a batch.
fn batched([batch, m, n, k]: [usize; 4]) -> Row {
    let bytes = 2 * batch * (m * k + k * n + m * n);
    let flops = 2.0 * (batch * m * n * k) as f64;
    Row::new(
        format!("batched_matmul f16 {batch} {m} {n} {k}"),
        Work { bytes: bytes as f64, flops, peak: Peak::F16 },
        move |device| {
            let operands = (numbers::<f16, 3>(device, [batch, m, k])?, numbers::<f16, 3>(device, [batch, k, n])?);
            Ok((operands, device.zeros::<f16, 3>([batch, m, n])?))
        },
        |((a, b), c)| matmul().launch_batched(&a.device().default_stream(), a.view(), b.view(), c.view_mut()),
    )
}

/// Products of groups of rows that begin anywhere, with the transpose of a matrix of (n, k) for
/// each group.
fn grouped([groups, m, n, k]: [usize; 4]) -> Row {
    let bytes = 2 * (m * k + groups * k * n + m * n);
    let flops = 2.0 * (m * n * k) as f64;
    Row::new(
        format!("grouped_matmul bf16 {groups} {m} {n} {k}"),
        Work { bytes: bytes as f64, flops, peak: Peak::F16 },
        move |device| {
            // Each second group has half as many rows as the others, and one row more.
            let even = m * 4 / (3 * groups);
            let begin = |group: usize| match group == groups {
                true => m as i32,
                false => (group / 2 * (even + even / 2 + 1) + group % 2 * even).min(m) as i32,
            };
            let offsets: Vec<i32> = (0..=groups).map(begin).collect();
            let operands = (numbers::<bf16, 2>(device, [m, k])?, numbers::<bf16, 3>(device, [groups, n, k])?);
            Ok((operands, device.array(&offsets, [groups + 1])?, device.zeros::<bf16, 2>([m, n])?))
        },
        |((a, b), offsets, c)| {
            let b = b.view().permute([0, 2, 1])?;
            matmul().launch_grouped(&a.device().default_stream(), a.view(), b, offsets.view(), c.view_mut())
        },
    )
}

/// A product of e4m3 with scales of 1 x 128 and of 128 x 128 elements.
fn scaled([m, n, k]: [usize; 3]) -> Row {
    let mut work = work([m, n, k], [1, 2], Peak::F8);
    work.bytes += (k / 128 * (m + n / 128) * 4) as f64;
    Row::new(
        format!("scaled_matmul e4m3 {m} {n} {k}"),
        work,
        move |device| {
            let operands = (numbers::<f8e4m3fn, 2>(device, [m, k])?, numbers::<f8e4m3fn, 2>(device, [n, k])?);
            let scales = (device.full([k / 128, m], 0.5f32)?, device.full([k / 128, n / 128], 0.25f32)?);
            Ok((operands, scales, device.zeros::<bf16, 2>([m, n])?))
        },
        |((a, b), (rows, columns), c)| {
            let (left, right) = ((a.view(), rows.view()), (b.view().transpose()?, columns.view()));
            matmul().launch_scaled(&a.device().default_stream(), left, right, c.view_mut())
        },
    )
}

/// Products of groups of rows of e4m3 with scales, and with a matrix for each group.
fn scaled_groups([groups, each, n, k]: [usize; 4]) -> Row {
    let m = groups * each;
    let mut work = work([m, n, k], [1, 2], Peak::F8);
    work.bytes += ((groups - 1) * n * k) as f64;
    Row::new(
        format!("scaled_grouped_matmul e4m3 {groups} {m} {n} {k}"),
        work,
        move |device| {
            let operands = (numbers::<f8e4m3fn, 2>(device, [m, k])?, numbers::<f8e4m3fn, 3>(device, [groups, n, k])?);
            let scales = (device.full([k / 128, m], 0.5f32)?, device.full([groups, k / 128, n / 128], 0.25f32)?);
            // Each second group is longer by some rows.
            let begin = |group: usize| (group * each + if group % 2 == 1 { group % each } else { 0 }) as i32;
            let offsets: Vec<i32> = (0..=groups).map(begin).collect();
            Ok((operands, scales, device.array(&offsets, [groups + 1])?, device.zeros::<bf16, 2>([m, n])?))
        },
        |((a, b), (rows, columns), offsets, c)| {
            let (left, right) = ((a.view(), rows.view()), (b.view().permute([0, 2, 1])?, columns.view()));
            let stream = a.device().default_stream();
            matmul().launch_scaled_grouped(&stream, left, right, offsets.view(), c.view_mut())
        },
    )
}

/// A product with packed weights, of which 128 share a scale.
fn packed<F: Narrow>(m: usize, order: Order) -> Row {
    let (n, k, group) = (8192, 8192, 128);
    let bytes = n * k * F::BITS as usize / 8 + 2 * (n * k / group + m * k + m * n);
    let layout = if order == Order::OutputsInputs { " by outputs" } else { "" };
    Row::new(
        format!("packed_matmul {} f16 {m} {n} {k}{layout}", F::NAME),
        Work { bytes: bytes as f64, flops: 2.0 * (m * n * k) as f64, peak: Peak::F16 },
        move |device| {
            let codes = device.full(PackedView::<F, 2>::words([n, k]), 0x5a3c_9617u32)?;
            let inputs = (numbers::<f16, 2>(device, [m, k])?, numbers::<f16, 2>(device, [k / group, n])?);
            Ok((codes, inputs, device.zeros::<f16, 2>([m, n])?, Workspace::new(device)?))
        },
        move |(codes, (x, scales), y, workspace)| {
            let codes = PackedView::<F, 2>::new(codes.view(), [n, k])?;
            let weights = PackedWeights::new(codes, scales.view(), group, order)?;
            let product = matmul().workspace(workspace);
            product.launch_packed(&x.device().default_stream(), x.view(), weights, y.view_mut())
        },
    )
}

/// A product with weights of 4 bits by [`quantized`], of which 128 share a scale.
fn of_quantized(m: usize) -> Row {
    let (n, k, group) = (8192, 8192, 128);
    let bytes = n * k / 2 + 2 * (n * k / group + m * k + m * n);
    Row::new(
        format!("quantized_matmul i4 f16 {m} {n} {k}"),
        Work { bytes: bytes as f64, flops: 2.0 * (m * n * k) as f64, peak: Peak::F16 },
        move |device| {
            let product = quantized::Product { bits: Bits::Four, group };
            let tiles = product.tiles::<f16>(device, [m, n], k);
            let codes = device.full([k, Bits::Four.words(n)], 0x5a3c_9617u32)?;
            let inputs = (numbers::<f16, 2>(device, [m, k])?, codes, numbers::<f16, 2>(device, [k / group, n])?);
            Ok(((product, tiles), inputs, device.zeros(tiles.scratch([m, n]))?, device.zeros::<f16, 2>([m, n])?))
        },
        |((product, tiles), (x, codes, scales), scratch, y)| {
            let inputs = (x.view(), codes.view(), scales.view());
            product.launch(*tiles, &x.device().default_stream(), inputs, scratch.view_mut(), y.view_mut())
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
        batched([8, 1024, 2048, 512]),
        batched([32, 2048, 2048, 128]),
        grouped([8, 8192, 4096, 4096]),
        grouped([64, 16384, 2048, 4096]),
        scaled([8192; 3]),
        scaled([64, 8192, 8192]),
        scaled_groups([32, 512, 4096, 2048]),
        packed::<i4>(1, Order::InputsOutputs),
        packed::<i4>(16, Order::InputsOutputs),
        packed::<i4>(64, Order::InputsOutputs),
        packed::<i8>(1, Order::InputsOutputs),
        packed::<i8>(16, Order::InputsOutputs),
        packed::<i8>(64, Order::InputsOutputs),
        packed::<u4>(1, Order::OutputsInputs),
        packed::<u4>(16, Order::OutputsInputs),
        packed::<i4>(4096, Order::InputsOutputs),
        of_quantized(1),
        of_quantized(64),
    ]
}
