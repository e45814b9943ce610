//! Quantisation of tokens to the 4-bit codes of a paged cache: the scale of a group is the largest
//! magnitude over 7.

use cutlet as ct;
use cutlet::packed::{PackedArrayMut, PackedViewMut, i4};
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, Stream};

use crate::Number;
use crate::check::require;
use crate::launch::Run;

/// Returns the number of groups of a token, from the shapes of codes and scales.
#[track_caller]
pub(super) fn groups(codes: [usize; 4], scales: [usize; 4]) -> ct::Result<usize> {
    let ([dim, groups], fits) = ([codes[3], scales[3]], codes[..3] == scales[..3]);
    let is_divided = groups > 0 && dim.is_multiple_of(groups) && (dim / groups).is_power_of_two();
    require(fits && is_divided && dim / groups >= 8, || {
        format!("scales of shape {scales:?} for codes of {codes:?}: groups have 2ⁿ columns, at least 8")
    })?;
    Ok(groups)
}

fn store<T: Number>(
    x: Array<T, 3>,
    slots: Array<i32, 1>,
    (codes, scales): (PackedArrayMut<i4, 4>, ArrayMut<f32, 4>),
    (group, page): (usize, usize),
) {
    let (g, head, token) = (ct::bid(0), ct::bid(1), ct::bid(2));
    let x = x.load((token, head, g), [1, 1, group]).cast::<f32>().reshape([1, group]);
    let largest = x.abs().reduce_max(1);
    let scale = largest.gt(0.0).select(largest / 7.0, ct::ones(largest.shape()));
    let numbers = (x / scale).round_ties_even().reshape([1, 1, 1, group]).cast_narrow::<i4>();
    let slot = slots.load_scalar(token);
    let at = (ct::at(slot / page), head, ct::at(slot % page), g);
    codes.store(at, numbers);
    scales.store(at, scale.reshape([1, 1, 1, 1]));
}

/// Queues the quantisation of tokens of shape (tokens, key heads, dim) to codes and scales of a
/// paged cache, as [`PackedDecode`](super::PackedDecode) reads them. Token `i` becomes row
/// `slots[i]` of the cache: page · tokens of a page + place in the page. Slots are different.
///
/// # Errors
/// [`ct::Error::Argument`] for shapes that do not fit, and those of the launch. A slot after the
/// last page is not stored.
///
/// The example of [`PackedDecode`](super::PackedDecode) stores two tokens.
#[track_caller]
pub fn store_packed<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 3>,
    slots: DeviceView<i32, 1>,
    codes: PackedViewMut<i4, 4>,
    scales: DeviceViewMut<f32, 4>,
) -> ct::Result<()> {
    let ([tokens, heads, dim], [_, key_heads, page, columns]) = (x.shape(), codes.shape());
    let groups = groups(codes.shape(), scales.shape())?;
    require([heads, dim] == [key_heads, columns] && slots.shape() == [tokens], || {
        let (x, codes) = (x.shape(), codes.shape());
        format!("tokens of shape {x:?}, {} slots, codes of shape {codes:?}", slots.shape()[0])
    })?;
    if x.is_empty() {
        return Ok(());
    }
    let form = ct::Constant((dim / groups, page));
    let launch = ct::Launch::new([groups, heads, tokens]).stream(stream);
    launch.run(store::<T>, (x, slots, (codes, scales), form))
}
