//! Layouts of tiles that are reduced along a strided axis.

use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

/// Lane bits of a warp.
const LANE_BITS: usize = 5;

/// Returns a layout whose lanes access vectors of the contiguous axis, `run` of them side by side.
/// The other lanes have further elements of the reduced axis. Warps divide the contiguous axis
/// first, then other axes, and the reduced axis last. The elements of the reduced axis in one
/// thread are adjacent.
pub fn rows_of_lanes(
    shape: &[i64],
    (contiguous, vector, run): (usize, usize, usize),
    reduced: usize,
    num_warps: usize,
) -> Layout {
    let bits = |axis: usize| {
        let inner = shape[axis + 1..].iter().product::<i64>() as u32;
        (0..shape[axis].ilog2()).map(move |bit| inner << bit).collect::<Vec<u32>>()
    };
    let (mut fast, mut column) = (bits(contiguous), bits(reduced));
    let mut others: Vec<u32> =
        (0..shape.len()).rev().filter(|axis| ![contiguous, reduced].contains(axis)).flat_map(bits).collect_vec();
    let take = |from: &mut Vec<u32>, count: usize| -> Vec<u32> { from.drain(..count.min(from.len())).collect_vec() };
    let last = |from: &mut Vec<u32>, count: usize| from.split_off(from.len() - count.min(from.len()));
    let mut register = take(&mut fast, vector.ilog2() as usize);
    let warp_bits = num_warps.ilog2() as usize;
    let mut lane = take(&mut fast, run.ilog2().min(LANE_BITS as u32) as usize);
    // The highest bits of the reduced axis are those of warps, then of lanes.
    let lanes_of_column = (LANE_BITS - lane.len()).min(column.len());
    let further = LANE_BITS - lane.len() - lanes_of_column;
    let mut further = take(&mut fast, further);
    further.extend(take(&mut others, LANE_BITS - lane.len() - lanes_of_column - further.len()));
    let mut warp = take(&mut fast, warp_bits);
    warp.extend(take(&mut others, warp_bits - warp.len()));
    let warps_of_column = (warp_bits - warp.len()).min(column.len() - lanes_of_column);
    warp.extend(last(&mut column, warps_of_column));
    lane.extend(last(&mut column, lanes_of_column));
    lane.extend(further);
    lane.resize(LANE_BITS, 0);
    warp.resize(warp_bits, 0);
    register.extend([column, fast, others].concat());
    Layout::new(shape, register, lane, warp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warps_divide_the_reduced_axis_last() {
        let layout = rows_of_lanes(&[128, 32], (0, 4, 8), 1, 4);
        assert!(layout.covers() && layout.is_injective());
        assert_eq!((layout.vector_len(0), layout.num_registers()), (4, 32));
        assert!(layout.warp_bases().iter().all(|&basis| layout.coordinates(basis)[1] == 0));
        // Adjacent registers beyond the vector are adjacent along the reduced axis.
        assert_eq!(layout.coordinates(layout.element(4, 0, 0)), [0, 1]);
        let narrow = rows_of_lanes(&[32, 256], (0, 4, 8), 1, 8);
        assert!(narrow.covers() && narrow.is_injective());
        assert_eq!(narrow.coordinates(narrow.element(0, 0, 1)), [0, 32]);
        let few = rows_of_lanes(&[2, 8, 2], (1, 4, 8), 2, 4);
        assert!(few.covers());
    }
}
