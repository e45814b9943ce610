//! Scan orders: the hardware bits along the axis of a scan, and the layouts that a scan supports.

use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

/// A hardware bit, by kind and position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AxisBit {
    /// Bit of the register index.
    Register(usize),
    /// Bit of the lane index.
    Lane(usize),
    /// Bit of the warp index.
    Warp(usize),
}

/// Bits of the coordinate along the axis of a scan, from the lowest to the highest: registers,
/// consecutive lane bits, then warps and further registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanOrder {
    /// Register bits of adjacent elements of a thread.
    pub inner: Vec<usize>,
    /// First lane bit, and number of lane bits.
    pub lanes: (usize, usize),
    /// Bits above the lanes.
    pub outer: Vec<AxisBit>,
}

impl ScanOrder {
    /// Returns the order of the bits along an axis, if it has this form.
    pub fn of(layout: &Layout, axis: usize) -> Option<ScanOrder> {
        let mut bits = axis_bits(layout, axis)?.into_iter().peekable();
        let mut inner = Vec::new();
        while let Some(AxisBit::Register(bit)) = bits.peek().copied() {
            inner.push(bit);
            bits.next();
        }
        let mut lanes = (0, 0);
        while let Some(AxisBit::Lane(bit)) = bits.peek().copied() {
            match lanes.1 {
                0 => lanes = (bit, 1),
                count if lanes.0 + count == bit => lanes.1 += 1,
                _ => return None,
            }
            bits.next();
        }
        let outer: Vec<AxisBit> = bits.collect_vec();
        let mixed = outer.iter().any(|bit| matches!(bit, AxisBit::Lane(_)));
        (!mixed).then_some(ScanOrder { inner, lanes, outer })
    }

    /// Returns true if the axis spans several warps, whose totals are exchanged in shared memory.
    pub fn is_cross_warp(&self) -> bool {
        self.outer.iter().any(|bit| matches!(bit, AxisBit::Warp(_)))
    }

    /// Returns the number of outer bits, from the lowest on, that the lanes of the axis can index.
    pub fn low(&self) -> usize {
        self.outer.len().min(self.lanes.1)
    }

    /// Returns true if the lanes of the axis can combine the totals of the outer bits in at most
    /// 2^`MAX_HIGH` rounds, which register bits distinguish.
    pub fn fits(&self) -> bool {
        let high = &self.outer[self.low()..];
        !self.is_cross_warp() || high.len() <= MAX_HIGH && high.iter().all(|bit| matches!(bit, AxisBit::Register(_)))
    }

    /// Returns the approximate number of instructions of a thread for `registers` elements, without
    /// one combination each.
    pub fn cost(&self, registers: usize) -> usize {
        let again = if self.is_cross_warp() { (1 << (self.outer.len() - self.low())) - 1 } else { 0 };
        ((registers >> self.inner.len()) + again) * (2 * self.lanes.1 + 3)
    }
}

/// Returns the hardware bits along an axis, from the lowest bit of the coordinate to the highest.
/// `None` if a bit of the coordinate has several hardware bits, or one of these has more bits.
pub fn axis_bits(layout: &Layout, axis: usize) -> Option<Vec<AxisBit>> {
    let shape = layout.shape();
    let shift = shape[axis + 1..].iter().product::<i64>().trailing_zeros();
    let count = shape[axis].trailing_zeros();
    let mask = (((1u64 << count) - 1) << shift) as u32;
    let registers = layout.register_bases().iter().enumerate().map(|(i, &basis)| (AxisBit::Register(i), basis));
    let lanes = layout.lane_bases().iter().enumerate().map(|(i, &basis)| (AxisBit::Lane(i), basis));
    let warps = layout.warp_bases().iter().enumerate().map(|(i, &basis)| (AxisBit::Warp(i), basis));
    let mut found: Vec<Option<AxisBit>> = vec![None; count as usize];
    for (bit, basis) in registers.chain(lanes).chain(warps).filter(|(_, basis)| basis & mask != 0) {
        if !basis.is_power_of_two() {
            return None;
        }
        if found[(basis.trailing_zeros() - shift) as usize].replace(bit).is_some() {
            return None;
        }
    }
    found.into_iter().collect()
}

/// Maximum number of outer bits beyond those that lanes index.
const MAX_HIGH: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_read_totals_a_few_times() {
        let order = |extent: i64| ScanOrder::of(&Layout::blocked(&[extent], &[0], 4, 16), 0).unwrap();
        assert_eq!((order(4096).low(), order(8192).low()), (5, 5));
        assert!(order(4096).fits() && order(8192).fits() && order(16384).fits() && !order(32768).fits());
        let warps_above = Layout::new([256], vec![1, 2, 4, 8], vec![16, 16, 16, 16, 16], vec![32, 64, 128]);
        assert!(!ScanOrder::of(&warps_above, 0).is_some_and(|order| order.fits()));
    }

    #[test]
    fn bits_in_the_order_of_the_coordinate() {
        let rows = Layout::blocked(&[2, 4096], &[1, 0], 4, 4);
        let order = ScanOrder::of(&rows, 1).unwrap();
        assert_eq!((order.inner.len(), order.lanes), (2, (0, 5)));
        let outer =
            [AxisBit::Warp(0), AxisBit::Warp(1), AxisBit::Register(2), AxisBit::Register(3), AxisBit::Register(4)];
        assert_eq!(order.outer, outer);
        assert!(order.is_cross_warp() && order.fits());
        let columns = ScanOrder::of(&rows, 0).unwrap();
        assert_eq!(columns, ScanOrder { inner: vec![5], lanes: (0, 0), outer: vec![] });
        let turned = Layout::new([4, 8], vec![], vec![2, 1, 4, 8, 16], vec![]);
        assert_eq!(ScanOrder::of(&turned, 1), None, "lanes in another order");
        assert!(ScanOrder::of(&turned, 0).is_some());
        let swizzled = Layout::new([4, 8], vec![], vec![1, 2, 4, 9, 16], vec![]);
        assert_eq!(ScanOrder::of(&swizzled, 1), None, "a lane bit moves along both axes");
    }
}
