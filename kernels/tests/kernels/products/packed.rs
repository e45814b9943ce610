//! Products with packed weights.

use cutlet as ct;
use cutlet::packed::{Narrow, PackedView, f6e3m2, i2, i3, i4, u1, u4, u5, u7};
use cutlet::prelude::*;
use cutlet_kernels::matmul;
use cutlet_kernels::products::packed::{Order, PackedWeights};
use cutlet_kernels::products::{Configuration, Factor, Share};

use super::{near, product, stream, zeros};
use crate::support::{Numbers, device, random};

/// Weights as codes, and the zero of codes.
#[derive(Clone, Copy, PartialEq)]
enum Zero {
    None,
    Center,
    Array,
}

/// Returns packed codes as words on the device.
pub(super) fn packed<F: Narrow>(codes: &[F], shape: [usize; 2]) -> ct::Result<ct::DeviceArray<u32, 2>> {
    let bytes = device().packed(codes, shape)?.to_bytes()?;
    let padded = PackedView::<F, 2>::words(shape);
    let row = |row: &[u8]| {
        let byte = |at: usize| row.get(at).map_or(0, |&byte| u32::from(byte));
        (0..padded[1])
            .map(|word| (0..4).fold(0, |bits, at| bits | byte(4 * word + at) << (8 * at)))
            .collect::<Vec<u32>>()
    };
    let words: Vec<u32> = bytes.chunks(bytes.len() / shape[0]).flat_map(row).collect();
    device().array(&words, padded)
}

fn check<F: Narrow, T: Factor + Float>(
    [m, n, k]: [usize; 3],
    group: usize,
    (order, zero): (Order, Zero),
    tolerance: f64,
) -> ct::Result<()> {
    let mut numbers = Numbers::new(7);
    let largest = F::from_value(1e9).to_value();
    let values: Vec<F> = (0..n * k).map(|_| F::from_value((numbers.number() * 1.2 * largest).round())).collect();
    let groups = k.div_ceil(group);
    let by = if order == Order::InputsOutputs { [k, n] } else { [n, k] };
    let shape = [groups, n];
    // Powers of two: a weight has the bits of its code.
    let factor = |at: usize| [0.25, 0.5, 1.0, 2.0][at * 7 % 4];
    let scales = device().from_fn(shape, |[i, j]| T::from_f64(factor(i * shape[1] + j)))?;
    let offsets = device().from_fn(shape, |[i, j]| T::from_f64(((i + 2 * j) % 3) as f64))?;
    let codes = packed(&values, by)?;
    let (x, a) = random::<T, 2>(1, [m, k], 1.0)?;
    let weight = |l: usize, j: usize| {
        let code = values[if order == Order::InputsOutputs { l * n + j } else { j * k + l }];
        let at = [l / group, j];
        let zero = match zero {
            Zero::None => 0.0,
            Zero::Center => f64::from((1 << F::BITS) - 1) / 2.0,
            Zero::Array => ((at[0] + 2 * at[1]) % 3) as f64,
        };
        (code.to_value() - zero) * factor(at[0] * shape[1] + at[1])
    };
    let [want, sizes] = product([m, n, k], |i, l| a[i * k + l], weight);
    let tiles = Configuration::new([32, 64, 32]);
    for one in [None, Some(Configuration { turned: true, ..tiles.share(Share::Split(3)) })] {
        let weights = PackedWeights::new(PackedView::<F, 2>::new(codes.view(), by)?, scales.view(), group, order)?;
        let weights = match zero {
            Zero::None => weights,
            Zero::Center => weights.centered(),
            Zero::Array => weights.zeros(offsets.view())?,
        };
        let product = one.map_or(matmul(), |one| matmul().configuration(one));
        let mut y = zeros::<f32, 2>([m, n])?;
        product.launch_packed(&stream(), x.view(), weights, y.view_mut())?;
        near(&y, [&want, &sizes], tolerance);
    }
    Ok(())
}

#[test]
fn weights_of_one_to_eight_bits_are_multiplied() -> ct::Result<()> {
    use Order::{InputsOutputs, OutputsInputs};
    let shape = [5, 70, 100];
    check::<u1, f16>(shape, 32, (InputsOutputs, Zero::Center), 2e-6)?;
    check::<i2, f16>(shape, 16, (OutputsInputs, Zero::None), 2e-6)?;
    check::<i3, bf16>(shape, 32, (InputsOutputs, Zero::None), 2e-6)?;
    check::<u4, f16>(shape, 32, (InputsOutputs, Zero::Center), 2e-6)?;
    check::<u4, f16>(shape, 128, (OutputsInputs, Zero::Array), 2e-6)?;
    check::<i4, bf16>([33, 130, 64], 64, (OutputsInputs, Zero::None), 2e-6)?;
    check::<u5, f16>(shape, 32, (InputsOutputs, Zero::Array), 2e-6)?;
    check::<f6e3m2, f32>(shape, 64, (InputsOutputs, Zero::None), 2e-6)?;
    check::<u7, f16>(shape, 32, (OutputsInputs, Zero::None), 2e-6)?;
    check::<i8, bf16>([40, 50, 256], 16, (InputsOutputs, Zero::None), 2e-6)
}

#[test]
fn epilogues_follow_packed_weights() -> ct::Result<()> {
    let [m, n, k] = [4, 40, 64];
    let codes: Vec<i4> = (0..n * k).map(|at| i4::from_value((at * 5 % 15) as f64 - 7.0)).collect();
    let words = packed(&codes, [k, n])?;
    let weights = PackedView::<i4, 2>::new(words.view(), [k, n])?;
    let scales = device().full([2, n], f16::ONE)?;
    let ((x, a), (bias, u)) = (random::<f16, 2>(1, [m, k], 1.0)?, random::<f16, 1>(2, [n], 1.0)?);
    let mut y = zeros::<f32, 2>([m, n])?;
    let weights = PackedWeights::new(weights, scales.view(), 32, Order::InputsOutputs)?;
    matmul().bias(bias.view()).relu().launch_packed(&stream(), x.view(), weights, y.view_mut())?;
    let [want, sizes] = product([m, n, k], |i, l| a[i * k + l], |l, j| codes[l * n + j].to_value());
    let want: Vec<f64> = want.iter().enumerate().map(|(at, x)| (x + u[at % n]).max(0.0)).collect();
    near(&y, [&want, &sizes], 2e-6);
    let error =
        PackedWeights::new(PackedView::<i4, 2>::new(words.view(), [k, n])?, scales.view(), 64, Order::InputsOutputs);
    assert!(error.unwrap_err().to_string().contains("scales of shape [2, 40], not [1, 40]"));
    Ok(())
}

#[test]
fn groups_of_rows_have_packed_weights() -> ct::Result<()> {
    let ([groups, m, n, k], offsets) = ([3usize, 50usize, 40usize, 64usize], [2, 20, 20, 47]);
    let (x, a) = random::<f16, 2>(1, [m, k], 1.0)?;
    let starts = device().array(&offsets, [groups + 1])?;
    let code = |at: usize| i4::from_value((at * 7 % 15) as f64 - 7.0);
    let (scale, zero) = (|at: usize| [0.5, 1.0, 2.0][at % 3], |at: usize| (at % 4) as f64);
    let scales = device().from_fn([groups, 2, n], |[g, l, j]| f16::from_f64(scale((g * 2 + l) * n + j)))?;
    let zeros = device().from_fn([groups, 2, n], |[g, l, j]| f16::from_f64(zero((g * 2 + l) * n + j)))?;
    for order in [Order::InputsOutputs, Order::OutputsInputs] {
        let shape = if order == Order::InputsOutputs { [k, n] } else { [n, k] };
        let codes: Vec<i4> = (0..groups * n * k).map(code).collect();
        let words = packed(&codes, [groups * shape[0], shape[1]])?;
        let [_, row] = words.shape();
        let words = words.view().reshape([groups, shape[0], row])?;
        let view = PackedView::<i4, 3>::new(words, [groups, shape[0], shape[1]])?;
        let weights = PackedWeights::new(view, scales.view(), 32, order)?.zeros(zeros.view())?;
        let mut y = device().full([m, n], 7.0f32)?;
        matmul().relu().launch_grouped_packed(&stream(), x.view(), weights, starts.view(), y.view_mut())?;
        let (mut want, mut sizes) = (vec![7.0; m * n], vec![0.0; m * n]);
        for (g, bounds) in offsets.windows(2).enumerate() {
            for at in bounds[0] as usize * n..bounds[1] as usize * n {
                let (i, j) = (at / n, at % n);
                let weight = |l: usize| {
                    let code = codes[g * n * k + if order == Order::InputsOutputs { l * n + j } else { j * k + l }];
                    let vector = (g * 2 + l / 32) * n + j;
                    (code.to_value() - zero(vector)) * scale(vector)
                };
                let terms = || (0..k).map(|l| a[i * k + l] * weight(l));
                (want[at], sizes[at]) = (terms().sum::<f64>().max(0.0), terms().map(f64::abs).sum());
            }
        }
        near(&y, [&want, &sizes], 2e-6);
    }
    Ok(())
}
