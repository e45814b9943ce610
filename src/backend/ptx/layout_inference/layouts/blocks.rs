//! Block layouts: layouts of blocks of a tile (`extract`), and of concatenated tiles (`cat`).

use crate::layout::Layout;
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// Returns the layout of one block of extents `part`: each element at its position in its block.
/// Bases that distinguish blocks become zero (replication).
pub fn block_layout(layout: &Layout, part: &[i64]) -> Layout {
    let within = |bases: &[u32]| bases.iter().map(|&basis| index_in_block(layout, part, basis)).collect::<Vec<u32>>();
    Layout::new(part, within(layout.register_bases()), within(layout.lane_bases()), within(layout.warp_bases()))
}

fn index_in_block(layout: &Layout, part: &[i64], basis: u32) -> u32 {
    layout
        .coordinates(basis)
        .iter()
        .zip(part)
        .fold(0, |flat, (c, extent)| flat * *extent as u32 + (c & (extent - 1)) as u32)
}

/// Returns the index along an axis of the block that contains an element.
pub fn block_number(layout: &Layout, part: &[i64], basis: u32, axis: usize) -> u32 {
    (layout.coordinates(basis)[axis] >> part[axis].trailing_zeros()) as u32
}

/// Returns true if each basis has at most one bit.
pub fn moves_single_bits(layout: &Layout) -> bool {
    layout.bases().iter().all(|basis| basis.count_ones() <= 1)
}

/// Returns the layout of two such tiles concatenated along an axis, and the bit of the thread index
/// that distinguishes them. If the layout has no replication, there is no such bit and each thread
/// holds both tiles.
pub fn doubled(layout: &Layout, axis: usize) -> (Layout, Option<usize>) {
    let both = doubled_in_registers(layout, axis);
    let (mut lane, mut warp) = (both.lane_bases().to_vec(), both.warp_bases().to_vec());
    let Some((&top, register)) = both.register_bases().split_last() else { return (both, None) };
    let free = lane.iter().position(|&basis| basis == 0);
    let free_warp = warp.iter().position(|&basis| basis == 0);
    let bit = match (free, free_warp) {
        (Some(bit), _) => {
            lane[bit] = top;
            bit
        }
        (None, Some(bit)) => {
            warp[bit] = top;
            lane.len() + bit
        }
        (None, None) => return (both, None),
    };
    (Layout::new(both.shape(), register.to_vec(), lane, warp), Some(bit))
}

/// Returns the layout of two concatenated tiles in which each thread holds both.
pub fn doubled_in_registers(layout: &Layout, axis: usize) -> Layout {
    let mut shape = layout.shape().to_vec();
    let top = (shape[axis + 1..].iter().product::<i64>() * shape[axis]) as u32;
    shape[axis] *= 2;
    let [mut register, lane, warp] = [layout.register_bases(), layout.lane_bases(), layout.warp_bases()]
        .map(|bases| bases.iter().map(|&basis| moved(basis, top)).collect::<Vec<u32>>());
    register.push(top);
    Layout::new(shape, register, lane, warp)
}

/// Returns the layout of each half of a tile along an axis, if each thread has the same elements of
/// both: the inverse of [`doubled_in_registers`].
pub fn halved_in_registers(layout: &Layout, axis: usize) -> Option<Layout> {
    let mut shape = layout.shape().to_vec();
    let top = (shape[axis + 1..].iter().product::<i64>() * shape[axis] / 2) as u32;
    shape[axis] /= 2;
    let mut register = layout.register_bases().to_vec();
    register.remove(register.iter().position(|&basis| basis == top)?);
    let rest = [&register[..], layout.lane_bases(), layout.warp_bases()];
    if rest.iter().copied().flatten().any(|basis| basis & top != 0) {
        return None;
    }
    let [register, lane, warp] = rest.map(|bases| bases.iter().map(|&basis| restored(basis, top)).collect_vec());
    Some(Layout::new(shape, register, lane, warp))
}

/// Returns the layout of a tile that has `extent` elements along an axis of extent 1. All of them
/// are in the registers of each thread, as the lowest bits.
pub fn in_registers(layout: &Layout, axis: usize, extent: i64) -> Layout {
    let mut all = layout.clone();
    for _ in 0..extent.ilog2() {
        all = doubled_in_registers(&all, axis);
    }
    let count = layout.register_bases().len();
    let mut register = all.register_bases().to_vec();
    register.rotate_left(count);
    Layout::new(all.shape(), register, all.lane_bases().to_vec(), all.warp_bases().to_vec())
}

/// Returns the basis with the bits from `top` on shifted up by one.
fn moved(basis: u32, top: u32) -> u32 {
    (basis & (top - 1)) | ((basis & !(top - 1)) << 1)
}

/// Returns the basis with the bits above `top`, which is not set, shifted down by one.
fn restored(basis: u32, top: u32) -> u32 {
    (basis & (top - 1)) | ((basis >> 1) & !(top - 1))
}

/// Returns the layout with registers in the order of their elements, and for each of its registers
/// that of the given layout.
pub fn in_order(layout: &Layout) -> (Layout, Vec<usize>) {
    let bases = layout.register_bases();
    let mut bits: Vec<usize> = (0..bases.len()).collect_vec();
    sort::by_key(&mut bits, |&bit| bases[bit]);
    let sorted: Vec<u32> = bits.iter().map(|&bit| bases[bit]).collect_vec();
    let old = |register: usize| bits.iter().enumerate().map(|(new, &old)| (register >> new & 1) << old).sum();
    let sources = (0..1 << bits.len()).map(old).collect_vec();
    let (lane, warp) = (layout.lane_bases().to_vec(), layout.warp_bases().to_vec());
    (Layout::new(layout.shape(), sorted, lane, warp), sources)
}

/// Returns the layout of a tile that is a grid of blocks in the given layout. A thread holds the
/// same positions of all blocks.
pub fn block_grid_layout(block: &Layout, shape: &[i64]) -> Layout {
    let flat =
        |coordinates: &[i64]| coordinates.iter().zip(shape).fold(0, |flat, (c, extent)| flat * extent + c) as u32;
    let lifted = |bases: &[u32]| bases.iter().map(|&basis| flat(&block.coordinates(basis))).collect::<Vec<u32>>();
    let mut register = lifted(block.register_bases());
    for axis in (0..shape.len()).rev() {
        let mut coordinates = vec![0; shape.len()];
        coordinates[axis] = block.shape()[axis];
        while coordinates[axis] < shape[axis] {
            register.push(flat(&coordinates));
            coordinates[axis] *= 2;
        }
    }
    Layout::new(shape, register, lifted(block.lane_bases()), lifted(block.warp_bases()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_as_long() {
        let tile = Layout::blocked(&[4, 64], &[1, 0], 2, 2);
        let (joined, bit) = doubled(&tile, 1);
        assert_eq!((joined.shape(), bit), (&[4, 128][..], None));
        for (register, lane, warp) in [(0, 5, 1), (1, 31, 0), (3, 7, 1)] {
            let [row, column] = tile.coordinates(tile.element(register, lane, warp))[..] else { panic!() };
            let first = joined.coordinates(joined.element(register, lane, warp));
            let second = joined.coordinates(joined.element(register | tile.num_registers(), lane, warp));
            assert_eq!((first, second), (vec![row, column], vec![row, column + 64]));
        }
        let (joined, bit) = doubled(&Layout::replicated(&[1], 4), 0);
        assert_eq!((joined.shape(), joined.lane_bases()[0], bit), (&[2][..], 1, Some(0)));
        let columns = Layout::blocked(&[32, 4], &[0, 1], 1, 4);
        let (joined, bit) = doubled(&columns, 0);
        assert_eq!((joined.covers(), bit), (true, None));
    }

    #[test]
    fn an_axis_in_registers() {
        let all = in_registers(&Layout::blocked(&[1, 8, 16], &[2, 1, 0], 4, 1), 0, 4);
        assert!(all.covers() && all.is_injective());
        assert_eq!(all.coordinates(all.element(3, 0, 0)), [3, 0, 0]);
        assert_eq!(all.coordinates(all.element(4, 1, 0)), [0, 0, 5]);
    }

    #[test]
    fn registers_in_the_order_of_elements() {
        let tile = Layout::blocked(&[4, 64], &[1, 0], 2, 2).reshape(&[4, 64, 1]);
        let (joined, _) = doubled(&tile, 2);
        let (ordered, sources) = in_order(&joined);
        assert_eq!((ordered.vector_len(2), joined.vector_len(2)), (2, 1));
        for (register, &source) in sources.iter().enumerate() {
            assert_eq!(ordered.element(register, 5, 1), joined.element(source, 5, 1));
        }
    }

    #[test]
    fn adjacent_blocks() {
        for (part, shape, warps) in
            [([8, 1, 16], [8, 16, 16], 4), ([1, 1, 8], [2, 4, 8], 2), ([4, 32, 2], [4, 128, 8], 1)]
        {
            let block = Layout::blocked(&part, &[2, 1, 0], 2, warps).canonical();
            let all = block_grid_layout(&block, &shape);
            assert!(all.covers() && block_layout(&all, &part).canonical().is_same(&block));
            // Registers alone distinguish blocks.
            let threads = [all.lane_bases(), all.warp_bases()].concat();
            assert!(threads.iter().all(|&basis| (0..3).all(|axis| block_number(&all, &part, basis, axis) == 0)));
        }
    }

    #[test]
    fn a_block_of_a_layout() {
        let tile = Layout::blocked(&[8, 64], &[1, 0], 2, 4);
        let block = block_layout(&tile, &[8, 16]);
        for (register, lane, warp) in [(0, 5, 1), (1, 31, 3), (1, 7, 2)] {
            let whole = tile.coordinates(tile.element(register, lane, warp));
            let within = block.coordinates(block.element(register, lane, warp));
            assert_eq!(within, [whole[0], whole[1] % 16]);
            let number = block_number(&tile, &[8, 16], tile.element(register, lane, warp), 1);
            assert_eq!(i64::from(number), whole[1] / 16);
        }
    }
}
