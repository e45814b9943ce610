//! Layouts of tiles. They are no rows to draw from: programs that have them get them in the end
//! (`layouts`), all for the same number of threads.

use super::row::*;
use super::{Forms, Step, Typing};

fn held(_: &mut Typing, _: &Step, args: &[Form]) -> Forms {
    can_have_layout(args[0]).then(|| vec![args[0]])
}

/// Extents are powers of two, and elements have places of their own.
pub fn can_have_layout(form: Form) -> bool {
    whole(form.kind) && form.shape.iter().all(|extent| extent.is_power_of_two())
}

pub const OPS: &[Op] = &[op! { "with_layout" in "shapes", 0; args [Of(whole)];
numbers [(5, 9), (1, 12), (0, 12), (0, 1)]; held;
[T: arrays] |x: Tile<T, 2>; threads: usize, stride: u32, turn: u32, more: usize; shape: Shape| {
    let bits = (shape[0] * shape[1]).ilog2();
    let mut slots: Vec<u32> = (0..bits).map(|bit| 1 << bit).collect();
    slots.sort_by_key(|basis| (basis.trailing_zeros() * stride + turn) % 13);
    let count = ((bits as usize).saturating_sub(threads) + more).min(bits as usize);
    let mut lanes = slots.split_off(count);
    lanes.resize(threads, 0);
    lanes.rotate_left(turn as usize % threads);
    let warps = lanes.split_off(5);
    x.with_layout(ct::layout::Layout::new(shape.map(|extent| extent as i64), slots, lanes, warps))
}
|e| {
    let a = e.arg(0);
    e.build(|i, j| a.at(i, j))
} }];
