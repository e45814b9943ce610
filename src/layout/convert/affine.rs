//! Layout conversions through shared memory with affine addresses.
//!
//! The offset of an element is the sum of one weight for each bit of its index. Each of these bits
//! may be one bit of registers, lanes or warps on both sides. The contribution of the registers is
//! then an immediate part of the address. A thread computes its own part once for each side; XOR
//! swizzles need one more instruction for most accesses. The weights avoid bank conflicts like
//! padding. Each weight is larger than the sum of those before, so that the offsets of all elements
//! differ.

use super::Layout;
use crate::layout::linear_layout::LANE_BITS;
use crate::layout::shared_layout::{BANK_ROW_BYTES, MAX_VECTOR_BYTES};
use crate::util::collect::CollectVec as _;

/// Conversion through shared memory with affine addresses: each thread stores its registers, a
/// barrier follows, each thread loads.
///
/// ```
/// use cutlet::layout::{Layout, AffinePlan};
///
/// let (rows, columns) = (Layout::blocked(&[64, 64], &[1, 0], 1, 4), Layout::blocked(&[64, 64], &[0, 1], 1, 4));
/// let plan = AffinePlan::new(&rows, &columns, 32, 48 << 10).unwrap();
/// // Lanes read rows from top to bottom: each is one bank further than the one before.
/// assert_eq!(plan.load.thread[..5], [129 * 4, 258 * 4, 516 * 4, 1032 * 4, 2064 * 4]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffinePlan {
    /// Bytes of shared memory.
    pub bytes: usize,
    /// Stores.
    pub store: AffineSide,
    /// Loads.
    pub load: AffineSide,
}

/// Accesses of one side. An offset is the sum of the part of the thread and the offset of the
/// access.
///
/// ```
/// use cutlet::layout::{Layout, AffinePlan};
///
/// let (rows, columns) = (Layout::blocked(&[64, 64], &[1, 0], 1, 4), Layout::blocked(&[64, 64], &[0, 1], 1, 4));
/// assert_eq!(AffinePlan::new(&rows, &columns, 32, 48 << 10).unwrap().store.accesses.len(), 32);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffineSide {
    /// Bytes that each bit of the thread number adds: lane bits, then warp bits.
    pub thread: Vec<u32>,
    /// Registers of each access, in the order of their addresses, and its offset in bytes.
    pub accesses: Vec<(Vec<usize>, u32)>,
}

impl AffinePlan {
    /// Plans the conversion for elements of `element_bits` with at most `budget` bytes. `None` if
    /// an element is replicated, a bit of registers, lanes or warps has several bits of the index,
    /// or elements are narrower than a bank.
    ///
    /// ```
    /// use cutlet::layout::{Layout, AffinePlan};
    ///
    /// let (rows, columns) = (Layout::blocked(&[64, 64], &[1, 0], 1, 4), Layout::blocked(&[64, 64], &[0, 1], 1, 4));
    /// assert!(AffinePlan::new(&rows, &columns, 32, 64 * 64 * 4).is_none()); // no room for what keeps banks apart
    /// ```
    pub fn new(source: &Layout, destination: &Layout, element_bits: u32, budget: usize) -> Option<AffinePlan> {
        let bits = source.num_elements().ilog2() as usize;
        let is_plain = |layout: &Layout| {
            let bases = layout.bases();
            let all = bases.iter().fold(0, |all, &basis| all | basis);
            bases.len() == bits
                && bases.iter().all(|basis| basis.is_power_of_two())
                && all.count_ones() as usize == bits
        };
        if element_bits < 32 || !is_plain(source) || !is_plain(destination) {
            return None;
        }
        let element_bytes = element_bits / 8;
        let max_vector_bits = (MAX_VECTOR_BYTES as u32 / element_bytes).ilog2() as usize;
        let both = source.register_bases().iter().filter(|basis| destination.register_bases().contains(basis));
        let vector: Vec<u32> = both.copied().take(max_vector_bits).collect_vec();
        let unit = element_bytes << vector.len();
        let weights = weights(source, destination, &vector, unit);
        let bytes = unit as usize + weights.iter().filter(|&&weight| weight >= unit).sum::<u32>() as usize;
        let side = |layout: &Layout| AffineSide::new(layout, &vector, &weights);
        let (store, load) = (side(source), side(destination));
        (bytes <= budget).then_some(AffinePlan { bytes, store, load })
    }
}

/// Returns the number of bytes that each bit of the element index adds to the offset.
fn weights(source: &Layout, destination: &Layout, vector: &[u32], unit: u32) -> Vec<u32> {
    let bits = source.num_elements().ilog2();
    let mut weights = vec![0; bits as usize];
    let bit = |basis: u32| basis.trailing_zeros() as usize;
    for (position, &basis) in vector.iter().enumerate() {
        weights[bit(basis)] = (unit >> vector.len()) << position;
    }
    // Lanes of one wavefront. From here on, offsets are in units.
    let banks = BANK_ROW_BYTES as u32 / unit;
    let active = LANE_BITS.min(banks.ilog2() as usize);
    let (from, to) = (&source.lane_bases()[..active], &destination.lane_bases()[..active]);
    let mut end = 1;
    let mut assign = |basis: u32, class: Option<u32>| {
        // The next offset whose bank is that of the class.
        let weight = class.map_or(end, |class| end + ((1 << class) + banks - end % banks) % banks);
        weights[bit(basis)] = weight * unit;
        end += weight;
    };
    for (class, &basis) in (0..).zip(from) {
        assign(basis, Some(class));
    }
    // The bits with padding are last, so that their padding is not doubled by others.
    let only_to: Vec<u32> = to.iter().copied().filter(|basis| !from.contains(basis)).collect_vec();
    let done = [vector, from, &only_to].concat();
    for basis in (0..bits).map(|bit| 1 << bit).filter(|basis| !done.contains(basis)) {
        assign(basis, None);
    }
    let free = (0..).zip(from).filter(|(_, basis)| !to.contains(basis)).map(|(class, _)| class);
    for (&basis, class) in only_to.iter().zip(free) {
        assign(basis, Some(class));
    }
    weights
}

impl AffineSide {
    fn new(layout: &Layout, vector: &[u32], weights: &[u32]) -> AffineSide {
        let weight = |basis: u32| weights[basis.trailing_zeros() as usize];
        let registers = layout.register_bases();
        let offset = |register: usize| -> u32 {
            (0..registers.len()).filter(|bit| register >> bit & 1 == 1).map(|bit| weight(registers[bit])).sum()
        };
        let vector_bits: Vec<usize> =
            vector.iter().filter_map(|basis| registers.iter().position(|own| own == basis)).collect_vec();
        let inside: usize = vector_bits.iter().map(|bit| 1 << bit).sum();
        let step =
            |i: usize| vector_bits.iter().enumerate().map(|(position, bit)| (i >> position & 1) << bit).sum::<usize>();
        let firsts = (0..1usize << registers.len()).filter(|register| register & inside == 0);
        let accesses = firsts
            .map(|first| ((0..1 << vector_bits.len()).map(|i| first | step(i)).collect_vec(), offset(first)))
            .collect_vec();
        let threads = layout.lane_bases().iter().chain(layout.warp_bases());
        AffineSide { thread: threads.map(|&basis| weight(basis)).collect_vec(), accesses }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    fn thread_offset(side: &AffineSide, thread: usize) -> u32 {
        (0..side.thread.len()).filter(|bit| thread >> bit & 1 == 1).map(|bit| side.thread[bit]).sum()
    }

    /// Returns the element at each offset, and checks that no two lanes of a wavefront access one
    /// bank.
    fn check(side: &AffineSide, layout: &Layout, element_bytes: u32, bytes: usize) -> HashMap<u32, u32> {
        let mut contents = HashMap::new();
        for (registers, offset) in &side.accesses {
            let width = element_bytes * registers.len() as u32;
            let at_once = (128 / width).min(32) as usize;
            for first in (0..1usize << side.thread.len()).step_by(at_once) {
                let mut banks = HashSet::new();
                for thread in first..first + at_once {
                    let start = thread_offset(side, thread) + offset;
                    assert_eq!(start % width, 0);
                    assert!((0..width / 4).all(|word| banks.insert((start / 4 + word) % 32)));
                    for (&register, i) in registers.iter().zip(0..) {
                        let element = layout.element(register, thread % 32, thread / 32);
                        assert!(start + width <= bytes as u32);
                        assert_eq!(contents.insert(start + i * element_bytes, element), None);
                    }
                }
            }
        }
        contents
    }

    #[test]
    fn both_sides_agree_without_bank_conflicts() {
        let layout = |registers: &[u32]| {
            let (register, rest): (Vec<u32>, Vec<u32>) = (0..12).partition(|bit| registers.contains(bit));
            let bases = |bits: &[u32]| bits.iter().map(|bit| 1 << bit).collect::<Vec<u32>>();
            Layout::new([4096], bases(&register), bases(&rest[..5]), bases(&rest[5..]))
        };
        let sets: [&[u32]; 5] =
            [&[0, 1, 9, 10, 11], &[0, 1, 2, 3, 4], &[1, 2, 3, 4, 5], &[0, 3, 4, 5, 6], &[7, 8, 9, 10, 11]];
        for (from, to) in sets.iter().flat_map(|from| sets.iter().map(move |to| (from, to))) {
            let (from, to) = (layout(from), layout(to));
            for bits in [32, 64] {
                let plan = AffinePlan::new(&from, &to, bits, 64 << 10).unwrap();
                let [stored, loaded] =
                    [(&plan.store, &from), (&plan.load, &to)].map(|(s, l)| check(s, l, bits / 8, plan.bytes));
                assert_eq!(stored, loaded);
            }
        }
        assert!(AffinePlan::new(&layout(sets[0]), &Layout::replicated(&[4096], 4), 32, 64 << 10).is_none());
    }
}
