//! Packing: layouts of elements that share a byte or a wider element (`pack`, `unpack`).

use crate::dtype::DType;
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

/// Returns the number of bits of an element in packed bytes: 1 for bool, 32 for tf32.
pub fn packed_bits(dtype: DType) -> u32 {
    if dtype == DType::TF32 { 32 } else { dtype.bits() }
}

/// Returns the register bits of the `count` adjacent elements of each group, lowest first, if
/// registers alone distinguish them.
pub fn group_bits(layout: &Layout, count: u32) -> Option<Vec<usize>> {
    let registers = layout.register_bases();
    let bits: Vec<usize> = (0..count.trailing_zeros())
        .map(|bit| registers.iter().position(|&basis| basis == 1 << bit))
        .collect::<Option<_>>()?;
    let touches = layout.bases().iter().filter(|&&basis| basis & (count - 1) != 0).count();
    (touches == bits.len()).then_some(bits)
}

/// Returns the layout of groups of elements, each as one element. `bits` are their register bits.
pub fn grouped(layout: &Layout, bits: &[usize]) -> Layout {
    let shift = |bases: &[u32]| bases.iter().map(|basis| basis >> bits.len()).collect::<Vec<u32>>();
    let registers = layout.register_bases().iter().enumerate().filter(|(bit, _)| !bits.contains(bit));
    let registers: Vec<u32> = registers.map(|(_, &basis)| basis).collect_vec();
    let count = layout.shape()[0] >> bits.len();
    Layout::new([count], shift(&registers), shift(layout.lane_bases()), shift(layout.warp_bases()))
}

/// Returns the layout of elements that become `count` parts each. The parts have the lowest
/// register bits.
pub fn parted(layout: &Layout, count: u32) -> Layout {
    let moved = |bases: &[u32]| bases.iter().map(|basis| basis * count).collect::<Vec<u32>>();
    let low = (0..count.trailing_zeros()).map(|bit| 1 << bit);
    let registers = low.chain(moved(layout.register_bases())).collect_vec();
    let shape = [layout.shape()[0] * i64::from(count)];
    Layout::new(shape, registers, moved(layout.lane_bases()), moved(layout.warp_bases()))
}

/// Returns the number of source elements of one result element, and the number of result elements
/// of one source element.
pub fn ratio(from: DType, to: DType) -> (u32, u32) {
    let (from, to) = (packed_bits(from), packed_bits(to));
    ((to / from).max(1), (from / to).max(1))
}
