//! Convolutions with few channels in each group, as those with fewer and larger groups.
//!
//! Adjacent groups are one group, whose weights are zero between channels of different ones:
//! outside of the diagonal blocks. Products of 64 channels take the time of loading their operands.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, DeviceView, Stream};

use crate::Number;
use crate::launch::Run;

/// Channels of a merged group.
const CHANNELS: usize = 64;

/// Returns how many groups are one: the most for which a group has at most 64 inputs and outputs.
pub fn merged(groups: usize, inputs: usize, outputs: usize) -> usize {
    let most = CHANNELS / inputs.max(outputs).max(1);
    (1..=most.max(1)).rev().find(|&count| groups.is_multiple_of(count)).unwrap_or(1)
}

/// Weights are (tap, input, merged group, group within, output), blocks (tap, group within, input,
/// merged group, group within, output).
fn expand<T: Number>(w: Array<T, 5>, blocks: ArrayMut<T, 6>, [inputs, count, outputs]: [usize; 3]) {
    let (tap, row, group) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let shape = [1, 1, inputs, 1, count, outputs];
    let own = w.load((tap, 0, group, row, 0), [1, inputs, 1, 1, outputs]).reshape([1, 1, inputs, 1, 1, outputs]);
    let is_own = ct::indices(shape, 4).eq(row);
    blocks.store((tap, row, 0, group, 0, 0), is_own.select(own.broadcast_to(shape), ct::zeros(shape)));
}

/// Queues the weights (tap, input, group, output) of merged groups. Returns them.
#[track_caller]
pub fn expanded<T: Number>(stream: &Stream, w: DeviceView<T, 4>, count: usize) -> ct::Result<DeviceArray<T, 4>> {
    let [taps, inputs, groups, outputs] = w.shape();
    let merged = groups / count;
    let mut blocks = stream.device().unspecified::<T, 4>([taps, count * inputs, merged, count * outputs])?;
    let tile = [inputs, count, outputs].map(usize::next_power_of_two);
    let own = blocks.view_mut().reshape([taps, count, inputs, merged, count, outputs])?;
    let w = w.reshape([taps, inputs, merged, count, outputs])?;
    ct::Launch::new([taps, count, merged]).stream(stream).run(expand::<T>, (w, own, ct::Constant(tile)))?;
    Ok(blocks)
}
