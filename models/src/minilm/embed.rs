//! Sum of two embeddings, and its layer norm. A block has one token.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};
use cutlet_kernels::Number;

#[allow(clippy::too_many_arguments, reason = "a kernel with its tables")]
fn kernel<T: Number>(
    ids: Array<i32, 2>,
    words: Array<T, 2>,
    places: Array<T, 2>,
    weight: Array<T, 1>,
    bias: Array<T, 1>,
    y: ArrayMut<T, 2>,
    epsilon: Scalar<f32>,
    tile: usize,
) {
    let (place, sentence) = (ct::bid(0), ct::bid(1));
    let (id, shape) = (ids.load_scalar((sentence, place)), [1, tile]);
    let x = words.load((id, 0), shape).cast::<f32>() + places.load((place, 0), shape).cast::<f32>();
    let count = y.extent(1).cast::<f32>();
    let inside = ct::arange(0..tile).lt(y.extent(1)).unsqueeze(0);
    let centered = ct::select(inside, x - x.sum(1) / count, 0.0);
    let scale = ((centered * centered).sum(1) / count + epsilon).rsqrt();
    let [weight, bias] = [weight, bias].map(|a| a.load(0, [tile]).cast::<f32>().unsqueeze(0));
    y.store((sentence * ct::num_blocks(0) + place, 0), (centered * scale).fma(weight, bias).cast::<T>());
}

/// Queues the layer norm of `words[id] + places[place]` for the tokens of all sentences.
///
/// `ids` is of shape (sentences, tokens), `y` of (sentences · tokens, width).
///
/// # Errors
/// Those of the launch.
#[track_caller]
pub fn embed<T: Number>(
    stream: &Stream,
    ids: DeviceView<i32, 2>,
    [words, places]: [DeviceView<T, 2>; 2],
    [weight, bias]: [DeviceView<T, 1>; 2],
    epsilon: f32,
    y: DeviceViewMut<T, 2>,
) -> ct::Result<()> {
    let [sentences, tokens] = ids.shape();
    let tile = ct::Constant(words.shape()[1].next_power_of_two());
    let args = (ids, words, places, weight, bias, y, epsilon, tile);
    ct::Launch::new([tokens, sentences]).stream(stream).launch(kernel::<T>, args)
}
