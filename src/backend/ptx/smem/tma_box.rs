//! TMA boxes in shared memory: the layout of a tile as boxes, and the writes from registers.
//!
//! A box has rows of at most 128 bytes along the contiguous dimension, with the swizzle of the
//! tensor map. A tile is one or several boxes, each a block of memory. Writes use `stmatrix` if the
//! layout is that of an MMA accumulator with 16-bit elements, in either orientation, else vector
//! stores.
//!
//! The file depends on layouts and offsets, not on ops or instructions.

use super::super::hardware::{MAX_TMA_BOX, SWIZZLE_ATOM_ROWS, SWIZZLE_ROW_BYTES, WARP_SIZE};
use super::super::tensor_map::Swizzle;
use crate::layout::{Access, Layout, SharedLayout, Side};
use crate::util::collect::CollectVec as _;
use crate::util::sort;

const ROW_BYTES: usize = SWIZZLE_ROW_BYTES as usize;
/// Minimum bytes of a row: the smallest swizzle span.
const MIN_ROW_BYTES: usize = 32;

/// The layout of a tile as boxes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TmaBoxLayout {
    /// The offset of each element.
    pub shared: SharedLayout,
    /// Extents of a box, in the order of the tile's dimensions.
    pub boxes: Vec<i64>,
    /// Order of the 16-byte chunks of a box.
    pub swizzle: Swizzle,
    /// The number of top bits of an offset that depend on registers and on no thread: the tile can
    /// be written in 2^n consecutive parts, each by all threads.
    pub split_bits: u32,
    /// For each bit of an offset before the swizzle, the bit of the element's index.
    pub order: Vec<u32>,
}

/// The writes of a tile by the threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmemWrites {
    /// Byte offset of each thread bit (lane bits, then warp bits), by XOR.
    pub thread: Vec<u32>,
    /// The instruction.
    pub kind: WriteKind,
    /// All writes of a thread in ascending order of their parts.
    pub list: Vec<SmemWrite>,
    /// The exchange of writes by half of the threads.
    pub swap: Option<BankConflictSwap>,
}

/// An exchange of the writes of two registers, in the threads with one bit set. Without it, the
/// lanes of a warp would write the same register at once and access the same banks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BankConflictSwap {
    /// The number of the thread bit.
    pub thread: usize,
    /// The number of the register bit in which the two registers differ.
    pub register: usize,
}

/// An instruction that writes to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// `st.shared` of the registers as a vector.
    Vector,
    /// `stmatrix`: a matrix per pair of registers; with `trans` the pair is in two of its rows.
    Matrices {
        /// Transposes each matrix.
        trans: bool,
    },
}

/// One write of each thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SmemWrite {
    /// The address is the thread's part XOR this offset.
    pub offset: u32,
    /// Registers in order.
    pub registers: Vec<usize>,
}

/// Returns the bits of the flat row-major index along an axis.
fn axis_bits(shape: &[i64], axis: usize) -> impl Iterator<Item = u32> {
    let inner: i64 = shape[axis + 1..].iter().product();
    (0..shape[axis].trailing_zeros()).map(move |bit| (inner as u32) << bit)
}

impl TmaBoxLayout {
    /// Returns the tile of this layout as boxes. `axes`: its dimensions in the order of a box,
    /// innermost first. `None` if rows or boxes would be too short.
    pub fn new(layout: &Layout, axes: &[usize], element_bytes: usize) -> Option<TmaBoxLayout> {
        TmaBoxLayout::without_bits(layout, axes, element_bytes, &[])
    }

    /// Returns the part of the tile of each warp as separate boxes, with the same arrangement for
    /// all warps. `None` also unless each bit of the warp number is one bit of the element's index.
    pub fn per_warp(layout: &Layout, axes: &[usize], element_bytes: usize) -> Option<TmaBoxLayout> {
        let warps = layout.warp_bases();
        warps
            .iter()
            .all(|&basis| is_of_warps(layout, basis))
            .then(|| TmaBoxLayout::without_bits(layout, axes, element_bytes, warps))?
    }

    /// Returns the tile without the bits `warps` of the element's index, which select the warp.
    fn without_bits(layout: &Layout, axes: &[usize], element_bytes: usize, warps: &[u32]) -> Option<TmaBoxLayout> {
        let shape = layout.shape();
        let (&fastest, rest) = axes.split_first()?;
        let row: Vec<u32> = axis_bits(shape, fastest).collect_vec();
        let (near, panels) = row.split_at(row.len().min((ROW_BYTES / element_bytes).ilog2() as usize));
        let row_bytes = element_bytes << near.len();
        if row_bytes < MIN_ROW_BYTES || near.iter().any(|bit| warps.contains(bit)) {
            return None;
        }
        let mut boxes = vec![1; shape.len()];
        boxes[fastest] = 1 << near.len();
        let (mut order, mut outside, mut open) = (near.to_vec(), Vec::new(), true);
        for &axis in rest {
            let bits: Vec<u32> = axis_bits(shape, axis).collect_vec();
            let most = if open { bits.len().min(MAX_TMA_BOX.ilog2() as usize) } else { 0 };
            let inside = bits[..most].iter().take_while(|bit| !warps.contains(bit)).count();
            boxes[axis] = 1 << inside;
            open &= inside == bits.len();
            order.extend(&bits[..inside]);
            outside.extend(&bits[inside..]);
        }
        let (parts, shared): (Vec<u32>, Vec<u32>) = panels.iter().partition(|&&bit| is_of_registers(layout, bit));
        order.extend(outside.iter().chain(&shared).filter(|bit| !warps.contains(bit)));
        order.extend(&parts);
        let tile = TmaBoxLayout::from_bit_order(shape, element_bytes, boxes, order, parts.len() as u32)?;
        (tile.box_bytes() as usize >= SWIZZLE_ATOM_ROWS as usize * row_bytes).then_some(tile)
    }

    /// Returns the tile of this shape in boxes of these extents, with `order` as the bits of an
    /// element's index at the bits of its offset. `None` if rows of this size have no swizzle.
    pub fn from_bit_order(
        shape: &[i64],
        element_bytes: usize,
        boxes: Vec<i64>,
        order: Vec<u32>,
        split_bits: u32,
    ) -> Option<TmaBoxLayout> {
        let fastest = (0..shape.len()).find(|&axis| axis_bits(shape, axis).next().as_ref() == order.first())?;
        let swizzle = Swizzle::from_span(u32::try_from(boxes.get(fastest)? * element_bytes as i64).ok()?)?;
        // Bits of warps have no offset.
        let mut offset_bases = vec![0; shape.iter().map(|extent| extent.trailing_zeros() as usize).sum()];
        for (offset_bit, &bit) in order.iter().enumerate() {
            *offset_bases.get_mut(bit.trailing_zeros() as usize)? = swizzle.apply((element_bytes as u32) << offset_bit);
        }
        let shared = SharedLayout { shape: shape.to_vec(), element_bytes, offset_bases };
        Some(TmaBoxLayout { shared, boxes, swizzle, split_bits, order })
    }

    /// Returns true if exactly these bits of an element's index select the warp.
    pub fn selects_warps(&self, layout: &Layout, warps: &[u32]) -> bool {
        warps.iter().all(|&basis| is_of_warps(layout, basis))
    }

    /// Returns true if the lowest offsets are one box. `axes`: the dimensions in the order of a
    /// box, innermost first.
    pub fn begins_with_boxes(&self, axes: &[usize]) -> bool {
        let shape = &self.shared.shape;
        let mut extents = self.boxes.iter().zip(shape);
        if self.boxes.len() != shape.len()
            || !extents.all(|(&boxed, &extent)| boxed.count_ones() == 1 && boxed <= extent)
        {
            return false;
        }
        let count = |axis: usize| self.boxes[axis].trailing_zeros() as usize;
        let inside: Vec<u32> = axes.iter().flat_map(|&axis| axis_bits(shape, axis).take(count(axis))).collect_vec();
        self.order.starts_with(&inside)
    }

    /// Returns true if the parts are whole boxes, each with registers of every thread.
    pub fn is_cut_by_registers(&self, layout: &Layout) -> bool {
        let whole = self.order.len().saturating_sub(self.split_bits as usize);
        self.box_bytes() <= (self.shared.element_bytes as u32) << whole
            && self.order[whole..].iter().all(|&bit| is_of_registers(layout, bit))
    }

    /// Returns the bytes of the tile, or of a warp's part of it.
    pub fn bytes(&self) -> u32 {
        (self.shared.element_bytes as u32) << self.order.len()
    }

    /// Returns the bytes of a part if `bits` of the part bits are used.
    pub fn part_bytes(&self, bits: u32) -> u32 {
        self.bytes() >> bits
    }

    /// Returns the bytes of a row of a box.
    pub fn row_bytes(&self) -> usize {
        self.swizzle.span().map_or(0, |span| span as usize)
    }

    /// Returns the bytes of one box.
    pub fn box_bytes(&self) -> u32 {
        self.boxes.iter().product::<i64>() as u32 * self.shared.element_bytes as u32
    }

    /// Returns the coordinates in the tile of the box that starts at this offset.
    pub fn origin(&self, offset: u32) -> Vec<i64> {
        let bits = offset / self.shared.element_bytes as u32;
        let element = (0..self.order.len()).filter(|i| bits >> i & 1 == 1).fold(0, |all, i| all | self.order[i]);
        let mut rest = i64::from(element);
        let mut coordinates: Vec<i64> = self
            .shared
            .shape
            .iter()
            .rev()
            .map(|extent| {
                let coordinate = rest % extent;
                rest /= extent;
                coordinate
            })
            .collect_vec();
        coordinates.reverse();
        coordinates
    }

    /// Returns the writes of the tile by the threads of its layout. `None` if they would need more
    /// than four times the minimum for their bytes.
    pub fn writes(&self, layout: &Layout) -> Option<SmemWrites> {
        if layout.replication() > 1 {
            return None;
        }
        self.matrices(layout).or_else(|| self.vectors(layout))
    }

    fn vectors(&self, layout: &Layout) -> Option<SmemWrites> {
        let mut side = self.shared.accesses(layout);
        let wavefronts = (side.accesses.len() << layout.warp_bases().len())
            * (self.shared.element_bytes * side.accesses[0].registers.len() * WARP_SIZE as usize).div_ceil(ROW_BYTES)
            + side.bank_conflicts(self.shared.element_bytes);
        if wavefronts > 4 * self.shared.bytes() / ROW_BYTES {
            return None;
        }
        let swap = self.swapped(layout, &mut side);
        let write = |access: Access| SmemWrite { offset: access.xor | access.offset, registers: access.registers };
        let list: Vec<SmemWrite> = side.accesses.into_iter().map(write).collect_vec();
        let writes = SmemWrites { thread: side.thread, kind: WriteKind::Vector, list, swap };
        Some(writes.sorted(self.part_bytes(self.split_bits)))
    }

    /// Exchanges registers in half of the threads if that reduces bank conflicts. Example: each
    /// lane of an accumulator has two adjacent elements of a row, and two rows are at the same
    /// banks.
    fn swapped(&self, layout: &Layout, side: &mut Side) -> Option<BankConflictSwap> {
        // All writes of a warp have the same cost: their addresses are those of the first one XOR a
        // constant.
        let first = Access { xor: 0, offset: 0, ..side.accesses.first()?.clone() };
        let (all, vector) = (Side { accesses: Vec::new(), ..side.clone() }, &first.registers);
        let lanes = side.thread.get(..layout.lane_bases().len())?.to_vec();
        let conflicts = |lanes: Vec<u32>| {
            Side { thread: lanes, accesses: vec![first.clone()], ..all.clone() }
                .bank_conflicts(self.shared.element_bytes)
        };
        let (mut least, part) = (conflicts(lanes.clone()), self.part_bytes(self.split_bits));
        let mut found = None;
        for (register, &basis) in layout.register_bases().iter().enumerate() {
            let register_offset = self.shared.offset(basis);
            if least == 0 || register_offset >= part || vector.contains(&(vector[0] ^ 1 << register)) {
                continue;
            }
            for thread in 0..lanes.len() {
                let mut turned = lanes.clone();
                turned[thread] ^= register_offset;
                let conflicts = conflicts(turned);
                if conflicts < least {
                    (least, found) = (conflicts, Some((BankConflictSwap { thread, register }, register_offset)));
                }
            }
        }
        let (swap, register_offset) = found?;
        side.thread[swap.thread] ^= register_offset;
        for access in &mut side.accesses {
            (access.xor, access.offset) = (access.xor | access.offset, 0);
        }
        Some(swap)
    }

    /// Returns the writes by `stmatrix`. Each lane has two adjacent elements of 16 bits, and four
    /// lanes the 16 bytes of a row of a matrix. Alternatively, four lanes have pairs of rows, and
    /// eight lanes their 16 bytes.
    fn matrices(&self, layout: &Layout) -> Option<SmemWrites> {
        if self.shared.element_bytes != 2 {
            return None;
        }
        let lanes: Vec<u32> = layout.lane_bases().iter().map(|&basis| self.shared.offset(basis)).collect_vec();
        let offsets: Vec<u32> = layout.register_bases().iter().map(|&basis| self.shared.offset(basis)).collect_vec();
        let pair_at = |offset: u32| offsets.iter().position(|&other| other == offset);
        let (trans, pair, rows) = if lanes[..2] == [4, 8] {
            (false, pair_at(2)?, lanes[2..].to_vec())
        } else if lanes[2..] == [2, 4, 8] {
            // Two rows of a matrix: any register bit that selects different banks.
            let pair = (0..offsets.len()).find(|&bit| on_different_banks(&[offsets[bit], lanes[0], lanes[1]]))?;
            (true, pair, vec![offsets[pair], lanes[0], lanes[1]])
        } else {
            return None;
        };
        let part = self.part_bytes(self.split_bits);
        let mut others: Vec<usize> = (0..offsets.len()).filter(|&bit| bit != pair && offsets[bit] < part).collect_vec();
        sort::by_key(&mut others, |&bit| offsets[bit]);
        others.truncate(2);
        if !on_different_banks(&rows) || rows.iter().any(|row| row & 15 != 0) {
            return None;
        }
        // Lane i provides the address of row i mod 8 of matrix i / 8.
        let mut thread = rows;
        thread.extend((0..2).map(|i| others.get(i).map_or(0, |&bit| offsets[bit])));
        thread.extend(layout.warp_bases().iter().map(|&basis| self.shared.offset(basis)));
        let taken = others.iter().fold(1 << pair, |all, bit| all | 1usize << bit);
        let list = (0..layout.num_registers())
            .filter(|register| register & taken == 0)
            .map(|first| {
                let matrix =
                    |j: usize| (0..others.len()).filter(|i| j >> i & 1 == 1).map(|i| 1 << others[i]).sum::<usize>();
                let pairs = (0..1 << others.len()).flat_map(|j| [first | matrix(j), first | matrix(j) | 1 << pair]);
                SmemWrite { offset: self.shared.offset(layout.element(first, 0, 0)), registers: pairs.collect_vec() }
            })
            .collect_vec();
        Some(SmemWrites { thread, kind: WriteKind::Matrices { trans }, list, swap: None }.sorted(part))
    }
}

impl SmemWrites {
    fn sorted(mut self, part_bytes: u32) -> SmemWrites {
        sort::by_key(&mut self.list, |write| write.offset / part_bytes);
        self
    }
}

impl Swizzle {
    /// Returns the swizzled offset of a byte.
    pub fn apply(self, offset: u32) -> u32 {
        let chunks = match self {
            Swizzle::None => 0,
            Swizzle::B32 => 0x10,
            Swizzle::B64 => 0x30,
            Swizzle::B128 => 0x70,
        };
        offset ^ (offset >> 3 & chunks)
    }
}

/// Returns true if exactly one register bit determines this bit of the element's index.
fn is_of_registers(layout: &Layout, bit: u32) -> bool {
    let others = layout.bases().into_iter().filter(|basis| basis & bit != 0);
    layout.register_bases().contains(&bit) && others.count() == 1
}

/// Returns true if exactly one bit of the warp number determines this bit of the element's index.
fn is_of_warps(layout: &Layout, bit: u32) -> bool {
    bit.is_power_of_two() && layout.bases().into_iter().filter(|basis| basis & bit != 0).count() == 1
}

/// Returns true if eight rows of 16 bytes at the XORs of these offsets are on different banks.
fn on_different_banks(rows: &[u32]) -> bool {
    let mut chunks: Vec<u32> = (0..8u32)
        .map(|row| (0..3).filter(|i| row >> i & 1 == 1).fold(0, |all, i: usize| all ^ rows[i]) & 0x70)
        .collect_vec();
    sort::natural(&mut chunks);
    chunks.dedup();
    chunks.len() == 8
}

#[cfg(test)]
mod tests;
