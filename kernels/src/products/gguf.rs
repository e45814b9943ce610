//! Products with weights in the blocks of GGUF files, as llama.cpp and candle quantise them: q8_0
//! and q4_K.
//!
//! A row of weights (of one output) is a sequence of blocks along the inputs. The bytes of the file
//! are the operand: an array of u8 of shape (outputs, bytes of a row). A tile of weights is
//! unpacked in registers.
//!
//! | | weights of a block | bytes | value |
//! |---|---|---|---|
//! | q8_0 | 32 | 34: d (f16), 32 codes i8 | d · code |
//! | q4_K | 256 | 144: d, dmin (f16), 12 bytes of 8 scales and 8 minima of 6 bits, 128 bytes of codes | d · scale · code - dmin · minimum |

use cutlet as ct;
use cutlet::element::f16;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use crate::Number;
use crate::launch::{Run, of_batch};

/// A form of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blocks {
    /// 32 weights of 8 bits with one scale.
    Q8_0,
    /// 256 weights of 4 bits, in groups of 32 with a scale and a minimum each.
    Q4K,
}

impl Blocks {
    /// Returns the number of weights of a block.
    #[must_use]
    pub const fn weights(self) -> usize {
        match self {
            Blocks::Q8_0 => 32,
            Blocks::Q4K => 256,
        }
    }

    /// Returns the number of bytes of a block.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Blocks::Q8_0 => 34,
            Blocks::Q4K => 144,
        }
    }
}

/// Outputs of a tile.
const OUTPUTS: usize = 64;

/// The bytes of these places as numbers.
fn bytes(weights: Array<u8, 2>, at: (Tile<i32, 3>, Tile<i32, 3>)) -> Tile<i32, 3> {
    weights.gather(at).cast::<i32>()
}

/// The f16 number in two bytes from a place on.
fn half(weights: Array<u8, 2>, row: Tile<i32, 3>, byte: Tile<i32, 3>) -> Tile<f32, 3> {
    let bits = bytes(weights, (row, byte)) | bytes(weights, (row, byte + 1)) << 8;
    bits.cast::<u16>().bitcast::<f16>().cast::<f32>()
}

/// Weights of outputs from `first` on and of block `block`: q8_0, of shape (outputs, 32).
fn q8_0(weights: Array<u8, 2>, first: Scalar<i32>, block: Scalar<i32>) -> Tile<f32, 2> {
    let row = (first + ct::arange(0..OUTPUTS)).reshape([OUTPUTS, 1, 1]);
    let start = block * 34;
    let scale = half(weights, row, ct::full([OUTPUTS, 1, 1], start));
    let inside = ct::arange(0..32).reshape([1, 1, 32]);
    let code =
        bytes(weights, (row.broadcast_to([OUTPUTS, 1, 32]), (inside + (start + 2)).broadcast_to([OUTPUTS, 1, 32])));
    let code = code.cast::<u8>().bitcast::<i8>().cast::<f32>();
    (code * scale).reshape([OUTPUTS, 32])
}

/// Weights of outputs from `first` on and of a quarter of a block, of two groups: q4_K, of shape
/// (outputs, 64).
fn q4_k(weights: Array<u8, 2>, first: Scalar<i32>, quarter: Scalar<i32>) -> Tile<f32, 2> {
    let row = (first + ct::arange(0..OUTPUTS)).reshape([OUTPUTS, 1, 1]);
    let (block, quarter) = (quarter / 4, quarter % 4);
    let start = block * 144;
    let d = half(weights, row, ct::full([OUTPUTS, 1, 1], start));
    let dmin = half(weights, row, ct::full([OUTPUTS, 1, 1], start + 2));
    // Groups 2 q and 2 q + 1. Of the first four, scale and minimum are the low six bits of bytes g
    // and g + 4. Of the others, the low four bits are in byte g + 4, and the high two bits are
    // those of the bytes g - 4 and g.
    let group = (quarter * 2 + ct::arange(0..2)).reshape([1, 2, 1]).broadcast_to([OUTPUTS, 2, 1]);
    let rows = row.broadcast_to([OUTPUTS, 2, 1]);
    let byte = |at: Tile<i32, 3>| bytes(weights, (rows, at + (start + 4)));
    let late = group.ge(4);
    let low = byte(ct::select(late, group + 4, group));
    let high = byte(ct::select(late, group - 4, group));
    let next = byte(ct::select(late, group, group + 4));
    let scale = ct::select(late, low & 15 | (high >> 6) << 4, low & 63);
    let minimum = ct::select(late, low >> 4 | (next >> 6) << 4, next & 63);
    // 32 bytes: the low halves are the codes of the first group, the high halves those of the
    // second.
    let inside = ct::arange(0..32).reshape([1, 1, 32]).broadcast_to([OUTPUTS, 1, 32]);
    let code = bytes(weights, (row.broadcast_to([OUTPUTS, 1, 32]), inside + (start + 16 + quarter * 32)));
    let second = ct::arange(0..2).reshape([1, 2, 1]);
    let code = ct::select(second.eq(1), code >> 4, code & 15).cast::<f32>();
    let weight = code * (d * scale.cast::<f32>()) - dmin * minimum.cast::<f32>();
    weight.reshape([OUTPUTS, 64])
}

/// A tile of the result a block.
fn product<T: Number>(x: Array<T, 2>, weights: Array<u8, 2>, y: ArrayMut<T, 2>, (blocks, rows): (Blocks, usize)) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let step = match blocks {
        Blocks::Q8_0 => 32,
        Blocks::Q4K => 64,
    };
    let sum = ct::fold(..x.num_tiles(1, [rows, step]), ct::zeros::<f32, 2>([rows, OUTPUTS]), |sum, k| {
        let weights = match blocks {
            Blocks::Q8_0 => q8_0(weights, j * OUTPUTS, k),
            Blocks::Q4K => q4_k(weights, j * OUTPUTS, k),
        };
        ct::mma(x.load((i, k), [rows, step]), weights.cast::<T>().transpose(), sum)
    });
    y.store((i, j), sum.cast::<T>());
}

/// Queues the product of activations of shape (rows, inputs) with the transpose of the weights: y
/// of shape (rows, outputs). `weights` are the bytes of the file, of shape (outputs, bytes of a
/// row). Weights are rounded once to the type of the activations; sums are f32.
///
/// # Errors
/// Those of the launch. Shapes are not checked.
#[track_caller]
pub fn product_with<T: Number>(
    stream: &Stream,
    blocks: Blocks,
    x: DeviceView<T, 2>,
    weights: DeviceView<u8, 2>,
    y: DeviceViewMut<T, 2>,
) -> ct::Result<()> {
    let [rows, outputs] = y.shape();
    if y.is_empty() {
        return Ok(());
    }
    let tile = of_batch(rows, 64).next_power_of_two().clamp(16, 64);
    ct::Launch::new([rows.div_ceil(tile), outputs.div_ceil(OUTPUTS)])
        .stream(stream)
        .run(product::<T>, (x, weights, y, ct::Constant((blocks, tile))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutlet::element::bf16;

    /// The weights of a block, as `dequantize_row_q4_K` and `dequantize_row_q8_0` of llama.cpp
    /// compute them.
    fn weights(blocks: Blocks, block: &[u8]) -> Vec<f32> {
        let half = |at: usize| f16::from_bits(u16::from_le_bytes([block[at], block[at + 1]])).to_f32();
        match blocks {
            Blocks::Q8_0 => block[2..].iter().map(|&code| half(0) * f32::from(code as i8)).collect(),
            Blocks::Q4K => {
                let scales = &block[4..16];
                let six = |g: usize| match g {
                    0..4 => (scales[g] & 63, scales[g + 4] & 63),
                    _ => (scales[g + 4] & 15 | (scales[g - 4] >> 6) << 4, scales[g + 4] >> 4 | (scales[g] >> 6) << 4),
                };
                let weight = |i: usize| {
                    let (g, byte) = (i / 32, block[16 + i / 64 * 32 + i % 32]);
                    let code = if g % 2 == 1 { byte >> 4 } else { byte & 15 };
                    half(0) * f32::from(six(g).0) * f32::from(code) - half(2) * f32::from(six(g).1)
                };
                (0..256).map(weight).collect()
            }
        }
    }

    #[test]
    fn products_are_those_of_the_weights() -> ct::Result<()> {
        let device = ct::Device::cpu();
        for (blocks, [rows, inputs, outputs]) in
            [(Blocks::Q8_0, [3, 96, 70]), (Blocks::Q4K, [5, 512, 65]), (Blocks::Q4K, [20, 256, 3])]
        {
            let row = inputs / blocks.weights() * blocks.bytes();
            let mut state = 7u32;
            let bytes: Vec<u8> = (0..outputs * row)
                .map(|at| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    // The high bytes of scales: finite and small.
                    let high = at % blocks.bytes() == 1 || (blocks == Blocks::Q4K && at % blocks.bytes() == 3);
                    if high { 0x24 } else { (state >> 24) as u8 }
                })
                .collect();
            let x = device.from_fn([rows, inputs], |[i, k]| ((i * 5 + k * 3) % 11) as f32 - 5.0)?;
            let codes = device.array(&bytes, [outputs, row])?;
            let mut y = device.zeros([rows, outputs])?;
            product_with(&device.default_stream(), blocks, x.view(), codes.view(), y.view_mut())?;
            let (x, y) = (x.to_vec()?, y.to_vec()?);
            for j in 0..outputs {
                let of_row = bytes[j * row..][..row].chunks(blocks.bytes());
                let of_row: Vec<f32> = of_row.flat_map(|block| weights(blocks, block)).collect();
                for i in 0..rows {
                    let want: f64 = (0..inputs).map(|k| f64::from(x[i * inputs + k]) * f64::from(of_row[k])).sum();
                    let size: f64 = (0..inputs).map(|k| f64::from((x[i * inputs + k] * of_row[k]).abs())).sum();
                    let got = f64::from(y[i * outputs + j]);
                    assert!((got - want).abs() <= 1e-5 * size, "{blocks:?} ({i}, {j}): {got}, not {want}");
                }
            }
        }
        Ok(())
    }

    fn generates<T: Number>() -> ct::Result<()> {
        let (x, y) = (ct::ArraySpec::<T, 2>::new([100, 512]), ct::ArraySpec::<T, 2>::new([100, 384]));
        for (blocks, row) in [(Blocks::Q8_0, 16 * 34), (Blocks::Q4K, 2 * 144)] {
            let weights = ct::ArraySpec::<u8, 2>::new([384, row]);
            for target in [ct::Target::SM_80, ct::Target::SM_90A] {
                let args = (x, weights, y.mutable(), ct::Constant((blocks, 64)));
                ct::inspect(product::<T>, args).target(target).ptx()?;
            }
        }
        Ok(())
    }

    #[test]
    fn there_is_code_for_gpus() -> ct::Result<()> {
        generates::<f32>()?;
        generates::<f16>()?;
        generates::<bf16>()
    }
}
