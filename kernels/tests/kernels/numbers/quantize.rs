//! Quantisation against the rounding of each number on the host.

use cutlet as ct;
use cutlet::element::{Element, bf16, f8e4m3fn, f8e5m2};
use cutlet::packed::{Narrow, NarrowFormat, f4e2m1fn, f8e8m0fnu, i2, i3, i4, i7, u1, u4, u5};
use cutlet_kernels::numbers::{
    Code, Float8, Rounded, Scales, Seed, dequantize_blocks, dequantize_groups, dequantize_nvfp4, nvfp4_tensor_scale,
    quantize_blocks, quantize_groups, quantize_nvfp4, quantize_rows,
};

use crate::support::{device, random};

/// Numbers of different magnitudes, and a row of zeros.
fn numbers([rows, columns]: [usize; 2]) -> ct::Result<Vec<f32>> {
    let (_, exact) = random::<bf16, 2>(columns as u64, [rows, columns], 4.0)?;
    Ok(exact.iter().enumerate().map(|(at, x)| (x * f64::powi(1.7, (at / columns) as i32 - 3)) as f32).collect())
}

fn scale_of(largest: f32, of_code: f32) -> f32 {
    if largest > 0.0 { largest / of_code } else { 1.0 }
}

fn check_groups<F: Code>(shape @ [rows, columns]: [usize; 2], group: usize) -> ct::Result<()> {
    let device = device();
    let stream = device.default_stream();
    let mut host = numbers(shape)?;
    host[..columns].fill(0.0);
    let of_scales = [rows, columns / group];
    let (x, mut codes) = (device.array(&host, shape)?, device.packed_zeros::<F, 2>(shape)?);
    let (mut scales, mut zeros) = (device.zeros(of_scales)?, device.zeros(of_scales)?);
    let has_zeros = matches!(F::FORMAT, NarrowFormat::UInt(_));
    let both = (scales.view_mut(), has_zeros.then(|| zeros.view_mut()));
    quantize_groups(&stream, x.view(), &mut codes, both, Rounded::Nearest)?;
    let mut y = device.zeros::<f32, 2>(shape)?;
    dequantize_groups(&stream, &codes, (scales.view(), has_zeros.then(|| zeros.view())), y.view_mut())?;
    let (codes, scales, zeros, y) = (codes.to_vec()?, scales.to_vec()?, zeros.to_vec()?, y.to_vec()?);
    for (g, of_group) in host.chunks(group).enumerate() {
        let most = of_group.iter().fold(f32::MIN, |a, &b| a.max(b));
        let least = of_group.iter().fold(f32::MAX, |a, &b| a.min(b));
        let (scale, zero) = match F::FORMAT {
            NarrowFormat::UInt(bits) => (scale_of(most - least, ((1u32 << bits) - 1) as f32), least),
            NarrowFormat::Int(bits) => (scale_of(most.max(-least), ((1u32 << (bits - 1)) - 1) as f32), 0.0),
            _ => (scale_of(most.max(-least), 6.0), 0.0),
        };
        assert_eq!((scales[g], zeros[g]), (scale, zero), "{} group {g}", F::NAME);
        for (i, &x) in of_group.iter().enumerate() {
            let (at, code) = (g * group + i, f64::from((x - zero) * (1.0 / scale)));
            let code = if F::FORMAT == <f4e2m1fn as Narrow>::FORMAT { code } else { code.round_ties_even() };
            assert_eq!(codes[at].code(), F::from_value(code).code(), "{} number {at}: {x}", F::NAME);
            let value = codes[at].to_value() as f32 * scale;
            assert_eq!(y[at], if has_zeros { value + zero } else { value }, "{} number {at}", F::NAME);
        }
    }
    Ok(())
}

#[test]
fn groups_of_each_width() -> ct::Result<()> {
    check_groups::<u1>([3, 64], 32)?;
    check_groups::<i2>([2, 128], 64)?;
    check_groups::<i3>([3, 96], 32)?;
    check_groups::<i4>([11, 640], 128)?;
    check_groups::<u4>([9, 256], 64)?;
    check_groups::<u5>([1, 64], 64)?;
    check_groups::<i7>([2, 64], 16)?;
    check_groups::<i8>([5, 1024], 1024)?;
    check_groups::<u8>([5, 96], 32)?;
    check_groups::<f4e2m1fn>([3, 64], 32)
}

fn check_blocks<F: Float8>(shape @ [rows, columns]: [usize; 2], blocks: Scales) -> ct::Result<()> {
    let device = device();
    let stream = device.default_stream();
    let mut host = numbers(shape)?;
    host[..columns].fill(0.0);
    let x = device.array(&host, shape)?;
    let (mut codes, mut scales) = (device.zeros::<F, 2>(shape)?, device.zeros::<f32, 2>(blocks.shape(shape))?);
    let mut powers = device.zeros::<f8e8m0fnu, 2>(blocks.shape(shape))?;
    let mut of_powers = device.zeros::<F, 2>(shape)?;
    quantize_blocks(&stream, x.view(), (codes.view_mut(), scales.view_mut()), blocks, Rounded::Nearest)?;
    quantize_blocks(&stream, x.view(), (of_powers.view_mut(), powers.view_mut()), blocks, Rounded::Nearest)?;
    let mut y = device.zeros::<f32, 2>(shape)?;
    dequantize_blocks(&stream, (codes.view(), scales.view()), y.view_mut(), blocks)?;
    let (codes, scales, y) = (codes.to_vec()?, scales.to_vec()?, y.to_vec()?);
    let (of_powers, powers) = (of_powers.to_vec()?, powers.to_vec()?);
    let [r, c] = blocks.block();
    let mut largest = vec![0f32; scales.len()];
    let of_scale = |at: usize| at / columns / r * columns.div_ceil(c) + at % columns / c;
    host.iter().enumerate().for_each(|(at, x)| largest[of_scale(at)] = largest[of_scale(at)].max(x.abs()));
    for row in 0..rows {
        for column in 0..columns {
            let at = row * columns + column;
            let (at_scale, scale) = (of_scale(at), scale_of(largest[of_scale(at)], F::LARGEST));
            assert_eq!(scales[at_scale], scale);
            let want = F::from_f64(f64::from(host[at] * (1.0 / scale)));
            assert_eq!(codes[at].to_bits(), want.to_bits(), "number {at}: {} over {scale}", host[at]);
            assert_eq!(y[at], want.to_f64() as f32 * scale);
            let power = f64::from(scale).log2().ceil().exp2();
            assert_eq!(powers[at_scale].to_f64(), power, "scale of {scale}");
            let want = F::from_f64(f64::from(host[at]) / power);
            assert_eq!(of_powers[at].to_bits(), want.to_bits(), "number {at}: {} over {power}", host[at]);
        }
    }
    Ok(())
}

#[test]
fn blocks_of_e4m3_and_e5m2() -> ct::Result<()> {
    check_blocks::<f8e4m3fn>([9, 700], Scales::Block1x128)?;
    check_blocks::<f8e5m2>([3, 96], Scales::Block1x32)?;
    check_blocks::<f8e4m3fn>([130, 140], Scales::Block128x128)
}

#[test]
fn rows_of_e4m3() -> ct::Result<()> {
    let device = device();
    for shape @ [rows, columns] in [[1, 1], [5, 200], [2, 9000]] {
        let host = numbers(shape)?;
        let x = device.array(&host, shape)?;
        let (mut codes, mut scales) = (device.zeros::<f8e4m3fn, 2>(shape)?, device.zeros([rows, 1])?);
        let results = (codes.view_mut(), scales.view_mut());
        quantize_rows(&device.default_stream(), x.view(), results, Rounded::Nearest)?;
        let (codes, scales) = (codes.to_vec()?, scales.to_vec()?);
        for (row, of_row) in host.chunks(columns).enumerate() {
            let scale = scale_of(of_row.iter().fold(0f32, |a, b| a.max(b.abs())), 448.0);
            assert_eq!(scales[row], scale);
            for (column, x) in of_row.iter().enumerate() {
                assert_eq!(codes[row * columns + column].to_bits(), f8e4m3fn::from_f32(x * (1.0 / scale)).to_bits());
            }
        }
    }
    Ok(())
}

#[test]
fn nvfp4() -> ct::Result<()> {
    let device = device();
    let stream = device.default_stream();
    let shape @ [rows, columns] = [11, 160];
    let mut host = numbers(shape)?;
    host[..40].fill(0.0);
    let (x, mut of_tensor) = (device.array(&host, shape)?, device.full([1], 99.0f32)?);
    let (mut codes, mut scales) = (device.packed_zeros(shape)?, device.zeros([rows, columns / 16])?);
    nvfp4_tensor_scale(&stream, x.view(), of_tensor.view_mut())?;
    let largest = host.iter().fold(0f32, |a, b| a.max(b.abs()));
    assert_eq!(of_tensor.to_vec()?, [largest / (6.0 * 448.0)]);
    let from = (x.view(), of_tensor.view());
    quantize_nvfp4(&stream, from, (&mut codes, scales.view_mut()), Rounded::Nearest)?;
    let mut y = device.zeros::<f32, 2>(shape)?;
    dequantize_nvfp4(&stream, &codes, (scales.view(), of_tensor.view()), y.view_mut())?;
    let (scales, of_tensor, y) = (scales.to_vec()?, of_tensor.to_vec()?[0], y.to_vec()?);
    for (block, of_block) in host.chunks(16).enumerate() {
        let largest = of_block.iter().fold(0f32, |a, b| a.max(b.abs()));
        let scale = scales[block].to_f32();
        // e4m3 has 3 bits of mantissa, and subnormal numbers below 2^-6.
        let exact = largest / 6.0 / of_tensor;
        assert!((scale - exact).abs() <= 2f32.powi(-10) + exact / 16.0, "block {block}: scale {scale} of {exact}");
        for (i, x) in of_block.iter().enumerate() {
            // Half of the largest step of f4e2m1 is 1; the scale may be too small by a sixteenth.
            let step = scale * of_tensor;
            let error = (y[block * 16 + i] - x).abs();
            assert!(
                error <= step * 1.001 + largest / 16.0,
                "number {i} of block {block}: {x} became {}",
                y[block * 16 + i]
            );
        }
    }
    Ok(())
}

#[test]
fn stochastic_rounding_has_the_mean() -> ct::Result<()> {
    let device = device();
    let stream = device.default_stream();
    let shape = [16, 512];
    // Codes 7 and 1 / 4 in each group of 16.
    let host: Vec<f32> = (0..16 * 512).map(|at| if at % 16 == 0 { 7.0 } else { 0.25 }).collect();
    let (x, mut codes, mut scales) =
        (device.array(&host, shape)?, device.packed_zeros::<i4, 2>(shape)?, device.zeros([16, 32])?);
    let rounded = Rounded::Stochastic(Seed { seed: 3, offset: 4 });
    quantize_groups(&stream, x.view(), &mut codes, (scales.view_mut(), None), rounded)?;
    let ones = codes.to_vec()?.iter().filter(|code| code.to_value() == 1.0).count();
    assert!((1750..2100).contains(&ones), "{ones} of 7680");
    let (mut codes, mut scales) = (device.zeros::<f8e5m2, 2>(shape)?, device.zeros::<f32, 2>([16, 4])?);
    let host: Vec<f32> = (0..16 * 512).map(|at| if at % 128 == 0 { 57344.0 } else { 1.0625 }).collect();
    let x = device.array(&host, shape)?;
    quantize_blocks(&stream, x.view(), (codes.view_mut(), scales.view_mut()), Scales::Block1x128, rounded)?;
    let ones = codes.to_vec()?.iter().filter(|code| code.to_f32() == 1.0).count();
    let more = codes.to_vec()?.iter().filter(|code| code.to_f32() == 1.25).count();
    assert!(ones + more == 16 * 508 && (1850..2250).contains(&more), "{ones} and {more}");
    Ok(())
}
