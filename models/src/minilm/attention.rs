//! Attention over the tokens of each sentence, with online softmax (Milakov and Gimelshein, 2018).
//! A block has a tile of queries of one head. Keys past the end of a sentence have no weight.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};
use cutlet_kernels::Number;

/// Queries of a block, keys at a time, elements of a head.
fn kernel<T: Number>(
    qkv: Array<T, 5>,
    lengths: Array<i32, 1>,
    y: ArrayMut<T, 4>,
    scale: Scalar<f32>,
    [m, n, dim]: [usize; 3],
) {
    let (tile, head, sentence) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let load = |part: usize, at: Scalar<i32>, rows: usize| {
        qkv.load((sentence, at, part, head, 0), [1, rows, 1, 1, dim]).reshape([rows, dim])
    };
    let length = lengths.load_scalar(sentence);
    let queries = load(0, tile, m);
    let start = (ct::zeros([m, dim]), ct::full([m, 1], f32::MIN), ct::zeros([m, 1]));
    let step = |(acc, max, sum): (Tile<f32, 2>, Tile<f32, 2>, Tile<f32, 2>), j: Scalar<i32>| {
        let scores = ct::mma(queries, load(1, j, n).transpose(), ct::zeros::<f32, 2>([m, n])) * scale;
        let scores = ct::select((j * n + ct::arange(0..n)).lt(length).unsqueeze(0), scores, f32::NEG_INFINITY);
        let above = max.max(scores.reduce_max(1));
        let weights = (scores - above).exp2();
        let fade = (max - above).exp2();
        (ct::mma(weights.cast::<T>(), load(2, j, n), acc * fade), above, sum * fade + weights.sum(1))
    };
    let (acc, _, sum) = ct::fold(..(length + (n - 1)) / n, start, step);
    y.store((sentence, tile, head, 0), (acc / sum).cast::<T>().reshape([1, m, 1, dim]));
}

/// Queues softmax(Q Kᵀ / √dim) V for each head of each sentence. `lengths` are the numbers of
/// tokens, from 1 on.
///
/// `qkv` is of shape (sentences, tokens, 3, heads, dim), `y` of (sentences, tokens, heads, dim).
///
/// # Errors
/// Those of the launch.
#[track_caller]
pub fn attention<T: Number>(
    stream: &Stream,
    qkv: DeviceView<T, 5>,
    lengths: DeviceView<i32, 1>,
    y: DeviceViewMut<T, 4>,
) -> ct::Result<()> {
    let [sentences, tokens, heads, dim] = y.shape();
    let rows = tokens.next_power_of_two().clamp(16, 64);
    let tile = [rows, rows, dim.next_power_of_two().max(16)];
    let scale = std::f32::consts::LOG2_E / (dim as f32).sqrt();
    let args = (qkv, lengths, y, scale, ct::Constant(tile));
    ct::Launch::new([tokens.div_ceil(rows), heads, sentences]).stream(stream).launch(kernel::<T>, args)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cutlet::element::f16;

    fn generates<T: Number>() -> ct::Result<()> {
        let (qkv, y) = (ct::ArraySpec::<T, 5>::new([8, 100, 3, 12, 32]), ct::ArraySpec::<T, 4>::new([8, 100, 12, 32]));
        let lengths = ct::ArraySpec::<i32, 1>::new([8]);
        for target in [ct::Target::SM_80, ct::Target::SM_90A] {
            for rows in [16, 64] {
                let args = (qkv, lengths, y.mutable(), 0.25f32, ct::Constant([rows, rows, 32]));
                ct::inspect(kernel::<T>, args).target(target).ptx()?;
            }
        }
        Ok(())
    }

    #[test]
    fn there_is_code_for_gpus() -> ct::Result<()> {
        generates::<f32>()?;
        generates::<f16>()
    }
}
