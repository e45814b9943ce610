//! Mean over the tokens of a sentence, divided by its Euclidean norm. A block has one sentence.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};
use cutlet_kernels::Number;

/// Norms below this one count as this one, as in torch's `normalize`.
const MIN_NORM: f32 = 1e-12;

fn kernel<T: Number>(x: Array<T, 3>, lengths: Array<i32, 1>, y: ArrayMut<f32, 2>, [rows, columns]: [usize; 2]) {
    let sentence = ct::bid(0);
    let length = lengths.load_scalar(sentence);
    let sum = ct::fold(..(length + (rows - 1)) / rows, ct::zeros::<f32, 2>([1, columns]), |sum, i| {
        let x = x.load((sentence, i, 0), [1, rows, columns]).reshape([rows, columns]).cast::<f32>();
        let inside = (i * rows + ct::arange(0..rows)).lt(length).unsqueeze(1);
        sum + ct::select(inside, x, 0.0).sum(0)
    });
    let mean = sum / length.cast::<f32>();
    let norm = (mean * mean).sum(1).sqrt().max(MIN_NORM);
    y.store((sentence, 0), mean / norm);
}

/// Queues the embeddings of sentences whose tokens are rows of `x`. `lengths` are the numbers of
/// tokens, from 1 on.
///
/// `x` is of shape (sentences, tokens, width), `y` of (sentences, width).
///
/// # Errors
/// Those of the launch.
#[track_caller]
pub fn pool<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 3>,
    lengths: DeviceView<i32, 1>,
    y: DeviceViewMut<f32, 2>,
) -> ct::Result<()> {
    let [sentences, _, width] = x.shape();
    let tile = ct::Constant([16, width.next_power_of_two()]);
    ct::Launch::new(sentences).stream(stream).launch(kernel::<T>, (x, lengths, y, tile))
}
