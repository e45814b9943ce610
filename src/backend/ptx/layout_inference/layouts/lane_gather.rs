//! Gathers along an axis by exchange between the lanes of a warp.

use super::scan_order::{AxisBit, axis_bits};
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

/// Plan of the exchange between lanes for a gather along an axis.
#[derive(Debug, PartialEq, Eq)]
pub struct LaneGather {
    /// Lane or register bit of each bit of the position, from the lowest on.
    pub bits: Vec<AxisBit>,
    /// For each register of the result, the source register of its line whose position has no
    /// register bits.
    pub lines: Vec<usize>,
}

/// Cost of two barriers and the wait for shared memory, in instructions (estimate).
const SMEM_ROUND_TRIP_COST: usize = 40;

impl LaneGather {
    /// Returns the plan, if each line along the axis is in one warp and the lanes of this line hold
    /// the positions of the result.
    pub fn of(source: &Layout, result: &Layout, axis: usize) -> Option<LaneGather> {
        let bits = axis_bits(source, axis)?;
        let [from, to] = [source, result].map(|layout| AxisLines::of(layout.shape(), axis));
        let is_alike = |own: &[u32], other: &[u32]| own.iter().zip(other).all(|(&a, &b)| from.line(a) == to.line(b));
        let warps = bits.iter().any(|bit| matches!(bit, AxisBit::Warp(_)));
        let fits = !warps
            && is_alike(source.lane_bases(), result.lane_bases())
            && is_alike(source.warp_bases(), result.warp_bases());
        if !fits {
            return None;
        }
        let along = register_bits(&bits).map(|(_, bit)| 1 << bit).sum::<usize>();
        let firsts: Vec<usize> = (0..source.num_registers()).filter(|register| register & along == 0).collect_vec();
        let line = |register| {
            let required = to.line(result.element(register, 0, 0));
            firsts.iter().copied().find(|&first| from.line(source.element(first, 0, 0)) == required)
        };
        let lines = (0..result.num_registers()).map(line).collect::<Option<Vec<usize>>>()?;
        Some(LaneGather { bits, lines })
    }

    /// Returns true if the exchange is cheaper than shared memory, for elements of `words` words.
    pub fn pays(&self, words: usize, source_registers: usize) -> bool {
        let registers = self.lines.len();
        let candidates = 1usize << register_bits(&self.bits).count();
        let exchanges = if self.lanes().next().is_some() { candidates } else { 0 };
        (2 * exchanges + candidates - 1) * words * registers
            <= 2 * words * (registers + source_registers) + SMEM_ROUND_TRIP_COST
    }

    /// Returns the bits of the position that are lane bits, each with its lane bit.
    pub fn lanes(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let lane = |(position, bit): (usize, &AxisBit)| match bit {
            AxisBit::Lane(lane) => Some((position, *lane)),
            _ => None,
        };
        self.bits.iter().enumerate().filter_map(lane)
    }

    /// Returns the bits of the position that are register bits, each with its register bit.
    pub fn registers(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        register_bits(&self.bits)
    }
}

fn register_bits(bits: &[AxisBit]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let register = |(position, bit): (usize, &AxisBit)| match bit {
        AxisBit::Register(register) => Some((position, *register)),
        _ => None,
    };
    bits.iter().enumerate().filter_map(register)
}

/// Lines of a tile along an axis.
#[derive(Clone, Copy, Debug)]
pub struct AxisLines {
    /// Number of elements of the axes after it.
    pub inner: u32,
    extent: u32,
}

impl AxisLines {
    /// Returns the lines of a tile of this shape.
    pub fn of(shape: &[i64], axis: usize) -> AxisLines {
        AxisLines { inner: shape[axis + 1..].iter().product::<i64>() as u32, extent: shape[axis] as u32 }
    }

    /// Returns the index of the line of an element.
    pub fn line(self, flat: u32) -> u32 {
        flat / (self.inner * self.extent) * self.inner + flat % self.inner
    }

    /// Returns the first element of a line.
    pub fn first(self, line: u32) -> u32 {
        line / self.inner * self.inner * self.extent + line % self.inner
    }

    fn position(self, flat: u32) -> u32 {
        flat / self.inner % self.extent
    }
}

/// Returns the layout of a tile of this shape whose lines along the axis have the lanes and warps
/// of the lines of `source`.
pub fn line_aligned_layout(source: &Layout, shape: &[i64], axis: usize) -> Layout {
    let [from, to] = [source.shape(), shape].map(|shape| AxisLines::of(shape, axis));
    let moved = |&basis: &u32| {
        let position = from.position(basis);
        to.first(from.line(basis)) + if position < to.extent { position * to.inner } else { 0 }
    };
    let list = |bases: &[u32]| bases.iter().map(moved).collect::<Vec<u32>>();
    let mut registers = list(source.register_bases());
    registers.retain(|&basis| basis != 0);
    let more = (from.extent.ilog2()..to.extent.ilog2()).map(|bit| to.inner << bit);
    registers.extend(more);
    Layout::new(shape, registers, list(source.lane_bases()), list(source.warp_bases()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_warp_are_handed_over() {
        let rows = Layout::blocked(&[8, 32], &[1, 0], 1, 4);
        let handing = LaneGather::of(&rows, &rows, 1).unwrap();
        assert_eq!(handing.lanes().collect::<Vec<_>>(), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]);
        assert_eq!((handing.registers().count(), &handing.lines[..]), (0, &[0, 1][..]));
        assert!(handing.pays(1, 2));
        assert_eq!(LaneGather::of(&rows, &rows, 0), None, "warps tell rows apart");
        // Shared memory is cheaper than 16 candidates for each element.
        let long = Layout::blocked(&[4, 512], &[1, 0], 16, 4);
        assert!(!LaneGather::of(&long, &long, 1).unwrap().pays(1, 16));
        let columns = Layout::blocked(&[8, 32], &[0, 1], 8, 1);
        let handing = LaneGather::of(&columns, &columns, 0).unwrap();
        assert_eq!((handing.lanes().count(), handing.registers().count()), (0, 3));
    }

    #[test]
    fn results_are_in_the_lanes_of_their_lines() {
        let rows = Layout::blocked(&[8, 32], &[1, 0], 1, 4);
        for extent in [1, 8, 32, 128] {
            let result = line_aligned_layout(&rows, &[8, extent], 1);
            assert!(result.covers() && LaneGather::of(&rows, &result, 1).is_some());
        }
        assert!(line_aligned_layout(&rows, &[8, 32], 1).is_same(&rows));
    }
}
