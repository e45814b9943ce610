//! Packing: layouts of elements that share a byte or a wider element.

use crate::dtype::DType;
use crate::layout::Layout;

/// Bits of an element among bytes: bool counts as one, tf32 with its storage.
pub fn packed_bits(dtype: DType) -> u32 {
    if dtype == DType::TF32 { 32 } else { dtype.bits() }
}

/// The register bits that tell apart the `count` neighbours of each group, lowest first, if
/// registers do.
pub fn group_bits(layout: &Layout, count: u32) -> Option<Vec<usize>> {
    let registers = layout.register_images();
    let bits: Vec<usize> = (0..count.trailing_zeros())
        .map(|bit| registers.iter().position(|&image| image == 1 << bit))
        .collect::<Option<_>>()?;
    let touches = layout.images().iter().filter(|&&image| image & (count - 1) != 0).count();
    (touches == bits.len()).then_some(bits)
}

/// The layout of groups of `count` elements, each as one.
pub fn grouped(layout: &Layout, bits: &[usize]) -> Layout {
    let shift = |images: &[u32]| images.iter().map(|image| image >> bits.len()).collect::<Vec<u32>>();
    let registers = layout.register_images().iter().enumerate().filter(|(bit, _)| !bits.contains(bit));
    let registers: Vec<u32> = registers.map(|(_, &image)| image).collect();
    let count = layout.shape()[0] >> bits.len();
    Layout::new([count], shift(&registers), shift(layout.lane_images()), shift(layout.warp_images()))
}

/// The layout of elements that become `count` parts each: the parts in the lowest registers.
pub fn parted(layout: &Layout, count: u32) -> Layout {
    let moved = |images: &[u32]| images.iter().map(|image| image * count).collect::<Vec<u32>>();
    let low = (0..count.trailing_zeros()).map(|bit| 1 << bit);
    let registers = low.chain(moved(layout.register_images())).collect();
    let shape = [layout.shape()[0] * i64::from(count)];
    Layout::new(shape, registers, moved(layout.lane_images()), moved(layout.warp_images()))
}

/// Elements of the source that make one of the result, and elements of the result that come from
/// one of the source.
pub fn ratio(from: DType, to: DType) -> (u32, u32) {
    let (from, to) = (packed_bits(from), packed_bits(to));
    ((to / from).max(1), (from / to).max(1))
}
