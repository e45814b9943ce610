//! Floats of 12 bits against a search of the nearest one.

use cutlet as ct;
use cutlet::element::bf16;
use cutlet_kernels::Number;
use cutlet_kernels::numbers::{dequantize_e5m6, quantize_e5m6};

use crate::support::{close, device, random};

/// The number of a code without its sign.
fn number(code: u32) -> f64 {
    let (exponent, mantissa) = (code as i32 >> 6, f64::from(code & 63));
    if exponent == 0 { mantissa * 2f64.powi(-20) } else { (64.0 + mantissa) * 2f64.powi(exponent - 21) }
}

/// The codes of eight numbers in three words, from the highest bits on.
fn codes(words: &[u32]) -> Vec<u32> {
    let all = words.iter().fold(0u128, |all, &word| all << 32 | u128::from(word));
    (0..8).map(|place| (all >> (84 - 12 * place)) as u32 & 0xfff).collect()
}

/// Checks that each code is one of the nearest ones, even at ties, and the numbers of the codes.
fn check<T: Number>(x: &[T], columns: usize) -> ct::Result<()> {
    let (rows, stream) = (x.len() / columns, device().default_stream());
    let array = device().array(x, [rows, columns])?;
    let mut words = device().full([rows, columns / 8, 3], 9u32)?;
    let (mut scales, mut back) = (device().zeros([rows])?, device().zeros::<f32, 2>([rows, columns])?);
    quantize_e5m6(&stream, array.view(), words.view_mut(), scales.view_mut())?;
    dequantize_e5m6(&stream, words.view(), scales.view(), back.view_mut())?;
    let mut want = Vec::new();
    let (words, scales) = (words.to_vec()?, scales.to_vec()?);
    for (row, (x, &scale)) in x.chunks_exact(columns).zip(&scales).enumerate() {
        let largest = x.iter().fold(1e-30f64, |largest, x| largest.max(x.to_f64().abs()));
        assert!((f64::from(scale) * 65024.0 / largest - 1.0).abs() < 1e-6, "row {row}");
        let of_row: Vec<u32> = words[row * columns / 8 * 3..].chunks_exact(3).flat_map(codes).take(columns).collect();
        for (&x, &code) in x.iter().zip(&of_row) {
            let exact = x.to_f64() / f64::from(scale);
            let apart = |code: u32| (number(code) - exact.abs()).abs();
            let magnitude = code & 0x7ff;
            assert!(magnitude <= 0x7bf && (exact == 0.0 || (code >= 0x800) == (exact < 0.0)), "{exact}: {code:x}");
            // The quotient in f32 is not exact.
            let slack = 1e-6 * exact.abs();
            let nearer = [magnitude.saturating_sub(1), magnitude + 1].map(apart).into_iter().fold(f64::MAX, f64::min);
            assert!(apart(magnitude) <= nearer + slack, "{exact}: {code:x}");
            want.push(number(magnitude) * f64::from(scale) * if code >= 0x800 { -1.0 } else { 1.0 });
        }
    }
    close(&back, &want, 0.0, 1e-6);
    Ok(())
}

#[test]
fn rows_of_several_widths() -> ct::Result<()> {
    for (columns, seed) in [(8, 1), (24, 2), (1000, 3), (8192, 4), (8200, 5)] {
        check(&random::<f32, 1>(seed, [3 * columns], 2.0)?.0.to_vec()?, columns)?;
    }
    check(&random::<bf16, 1>(6, [2 * 512], 100.0)?.0.to_vec()?, 512)
}

#[test]
fn all_magnitudes() -> ct::Result<()> {
    // Down to the subnormal numbers and below; ties, since the scale is a power of two.
    let ties: Vec<f32> = (0..4096).map(|i| (1.0 + (i % 128) as f32 / 128.0) * 2f32.powi(-(i / 128))).collect();
    let scaled: Vec<f32> = ties.iter().map(|x| x * 32768.0).chain([65024.0; 8]).collect();
    check(&scaled, scaled.len())?;
    let codes_of_ties = |word: f32| -> ct::Result<u32> {
        let x = [65024.0, word, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let (array, stream) = (device().array(&x, [1, 8])?, device().default_stream());
        let (mut words, mut scales) = (device().zeros([1, 1, 3])?, device().zeros([1])?);
        quantize_e5m6(&stream, array.view(), words.view_mut(), scales.view_mut())?;
        Ok(codes(&words.to_vec()?)[1])
    };
    assert_eq!([codes_of_ties(1.0 + 1.0 / 128.0)?, codes_of_ties(1.0 + 3.0 / 128.0)?], [15 << 6, 15 << 6 | 2]);
    assert_eq!([codes_of_ties(0.5f32.powi(21))?, codes_of_ties(3.0 * 0.5f32.powi(21))?], [0, 2]);
    check(&[0.0f32; 16], 8)
}

#[test]
fn shapes_that_do_not_fit() -> ct::Result<()> {
    let (x, stream) = (device().zeros::<f32, 2>([2, 12])?, device().default_stream());
    let (mut words, mut scales) = (device().zeros([2, 1, 3])?, device().zeros([2])?);
    let fault = quantize_e5m6(&stream, x.view(), words.view_mut(), scales.view_mut()).unwrap_err().to_string();
    assert!(fault.contains("no multiple of 8") && fault.contains("e5m6.rs"), "{fault}");
    Ok(())
}
