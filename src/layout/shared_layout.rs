//! Layouts of tiles in shared memory, and the accesses that transfer registers.
//!
//! The byte offset of an element in its buffer is an F2-linear function of its flat index: a
//! permutation of the index bits with XOR swizzles of the bank bits. The callers choose the lanes:
//! `mma/smem_descriptor` (wgmma), `mma/fragment` (mma.sync) and `mma/fma`. TMA boxes have the
//! swizzle of the hardware (`smem/tma_box`).

use super::Layout;
use super::f2_matrix;
use super::f2_matrix::Span;
use super::linear_layout::axis_bits;
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// Widest access of one thread in bytes (PTX ISA, `.v4.b32`).
pub(super) const MAX_VECTOR_BYTES: usize = 16;
/// Bytes of one row of the 32 banks of shared memory.
pub(super) const BANK_ROW_BYTES: usize = 128;

/// Layout of a tile in shared memory.
///
/// ```
/// use cutlet::layout::SharedLayout;
///
/// // 64 x 64 elements of 2 bytes; eight rows read at once, 16 bytes each: the 128-byte swizzle,
/// // chunk c of row r stands at chunk c ^ (r & 7).
/// let rows = [64, 128, 256];
/// let shared = SharedLayout::swizzled(&[64, 64], &[1, 0], 2, 16, &rows);
/// for (row, column) in [(0, 9), (5, 8), (63, 63)] {
///     let chunk = (column / 8) ^ (row & 7);
///     assert_eq!(shared.offset(row * 64 + column), row * 128 + chunk * 16 + column % 8 * 2);
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SharedLayout {
    /// Extents of the tile.
    pub shape: Vec<i64>,
    /// Bytes of one element.
    pub element_bytes: usize,
    /// Byte offset of each bit of the flat row-major element index. Offsets of several bits are
    /// combined by exclusive or.
    pub offset_bases: Vec<u32>,
}

impl SharedLayout {
    /// Makes a swizzled layout. Elements along `order[0]` are adjacent, in rows of at most 128
    /// bytes. The elements along `order[1]` follow, then the further rows (panels) of `order[0]`,
    /// then the other axes in order.
    ///
    /// `lanes` are the element index bits in which the lanes of one wavefront of the reader differ,
    /// each of which reads `vector_bytes`. Those that would map to the same banks are combined with
    /// free bank bits by exclusive or.
    ///
    /// # Panics
    /// If an extent or `element_bytes` is no power of two, or an entry of `lanes` is no single bit.
    ///
    /// ```
    /// // No lanes to keep apart: rows as they are.
    /// let plain = cutlet::layout::SharedLayout::swizzled(&[4, 32], &[1, 0], 4, 16, &[]);
    /// assert_eq!(plain.offset(33), 33 * 4);
    /// ```
    pub fn swizzled(
        shape: &[i64],
        order: &[usize],
        element_bytes: usize,
        vector_bytes: usize,
        lanes: &[u32],
    ) -> SharedLayout {
        assert!(element_bytes.is_power_of_two(), "elements of {element_bytes} bytes");
        let mut bits: Vec<u32> = Vec::new();
        if let [fastest, rest @ ..] = order {
            let row: Vec<u32> = axis_bits(shape, *fastest).collect_vec();
            let (near, panels) = row.split_at(row.len().min((BANK_ROW_BYTES / element_bytes).ilog2() as usize));
            bits.extend(near);
            bits.extend(rest.first().into_iter().flat_map(|&axis| axis_bits(shape, axis)));
            bits.extend(panels);
            bits.extend(rest.iter().skip(1).flat_map(|&axis| axis_bits(shape, axis)));
        }
        let mut offset_bases = vec![0; bits.len()];
        for (place, &bit) in bits.iter().enumerate() {
            offset_bases[bit as usize] = (element_bytes as u32) << place;
        }
        let mut layout = SharedLayout { shape: shape.to_vec(), element_bytes, offset_bases };
        layout.swizzle(vector_bytes as u32, lanes);
        layout
    }

    fn swizzle(&mut self, vector_bytes: u32, lanes: &[u32]) {
        let banks = BANK_ROW_BYTES as u32 - vector_bytes.max(4);
        let taken: u32 = lanes.iter().map(|&lane| self.offset(lane) & banks).fold(0, |all, bit| all | bit);
        // Bits from 16 bytes up first, which keep vectors contiguous.
        let free = (4..7).chain(2..4).map(|bit| 1 << bit).filter(|bit| banks & !taken & bit != 0);
        let far = lanes.iter().filter(|lane| self.offset(**lane) >= BANK_ROW_BYTES as u32);
        let pairs: Vec<(usize, u32)> = far.map(|lane| lane.trailing_zeros() as usize).zip(free).collect_vec();
        for (index_bit, bank) in pairs {
            self.offset_bases[index_bit] |= bank;
        }
    }

    /// Returns the size of the tile in bytes.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::SharedLayout::swizzled(&[64, 64], &[1, 0], 2, 16, &[]).bytes(), 8192);
    /// ```
    pub fn bytes(&self) -> usize {
        self.element_bytes << self.offset_bases.len()
    }

    /// Returns the byte offset of the element with this flat index.
    ///
    /// ```
    /// // A row of 128 bytes, then the next one; panels of 64 columns follow each other.
    /// let shared = cutlet::layout::SharedLayout::swizzled(&[8, 128], &[1, 0], 2, 16, &[]);
    /// assert_eq!((shared.offset(1), shared.offset(128), shared.offset(64)), (2, 128, 1024));
    /// ```
    pub fn offset(&self, flat: u32) -> u32 {
        f2_matrix::apply(&self.offset_bases, flat)
    }

    /// Returns the accesses by which the threads of a register layout store or load the tile, with
    /// the longest vectors that are contiguous on both sides.
    ///
    /// # Panics
    /// If the shapes differ.
    ///
    /// ```
    /// use cutlet::layout::{Layout, SharedLayout};
    ///
    /// let shared = SharedLayout::swizzled(&[32, 32], &[1, 0], 4, 16, &[]);
    /// let side = shared.accesses(&Layout::blocked(&[32, 32], &[1, 0], 4, 1));
    /// assert_eq!((side.accesses.len(), side.accesses[0].registers.len()), (8, 4)); // 16 bytes each
    /// ```
    pub fn accesses(&self, layout: &Layout) -> Side {
        assert_eq!(self.shape, layout.shape(), "shapes of the two layouts");
        let span = Span::new(&self.offset_bases);
        let registers = Span::new(layout.register_bases());
        let threads = [layout.lane_bases(), layout.warp_bases()].concat();
        let longest = (MAX_VECTOR_BYTES / self.element_bytes).ilog2();
        let vector: Vec<u32> = (0..longest)
            .map_while(|bit| {
                let place = (self.element_bytes as u32) << bit;
                let element = span.solve(place)? as u32;
                let aligned = threads.iter().all(|&basis| self.offset(basis) & place == 0);
                (aligned && registers.contains(element)).then_some(element)
            })
            .collect_vec();
        let rounds = vec![0; self.offset_bases.len()];
        Side::new(layout, &vector, self.element_bytes, &self.offset_bases, &rounds)
    }
}

/// Accesses of all threads that transfer the registers of a layout to or from shared memory.
///
/// ```
/// use cutlet::layout::{Layout, SharedLayout};
///
/// let shared = SharedLayout::swizzled(&[128], &[0], 4, 16, &[]);
/// assert_eq!(shared.accesses(&Layout::blocked(&[128], &[0], 4, 1)).thread, [16, 32, 64, 128, 256]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Byte offset of each thread bit (lane bits, then warp bits), combined by exclusive or: the
    /// part of each address that depends on the thread.
    pub thread: Vec<u32>,
    /// Contribution of each thread bit to the round of an access. All zero unless the tile is
    /// divided along elements in which only warps differ.
    pub round: Vec<u32>,
    /// Thread bits along which the layout has replicas. Stores may be restricted to the threads
    /// that have none of them set. Otherwise several threads store equal values.
    pub replicated: u32,
    /// All accesses of a thread, ordered by round.
    pub accesses: Vec<Access>,
}

/// Vector access of each thread.
///
/// ```
/// use cutlet::layout::{Layout, SharedLayout};
///
/// let shared = SharedLayout::swizzled(&[256], &[0], 4, 16, &[]);
/// let side = shared.accesses(&Layout::blocked(&[256], &[0], 4, 1));
/// assert_eq!((&side.accesses[1].registers[..], side.accesses[1].offset), (&[4, 5, 6, 7][..], 512));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Round of the access, combined with the [`Side::round`] of the thread by exclusive or.
    pub round: usize,
    /// Registers of the vector in the order of the addresses. For loads, each of them represents
    /// all registers with the same element: see [`Access::copies`].
    pub registers: Vec<usize>,
    /// The address is `(t ^ xor) + offset`. t is the part that depends on the thread.
    pub xor: u32,
    /// Immediate part of the address. Its bits are not part of that of a thread.
    pub offset: u32,
    /// Pairs of registers (source, copy): replicas inside of the thread, to be copied after the
    /// load.
    pub copies: Vec<(usize, usize)>,
}

impl Side {
    /// Makes the accesses. `vector` has the elements that differ in one bit of the offset inside of
    /// a vector.
    pub(super) fn new(
        layout: &Layout,
        vector: &[u32],
        element_bytes: usize,
        offset_bases: &[u32],
        round_bases: &[u32],
    ) -> Side {
        let bases = [layout.lane_bases(), layout.warp_bases()].concat();
        let thread: Vec<u32> = bases.iter().map(|&basis| f2_matrix::apply(offset_bases, basis)).collect_vec();
        let round = bases.iter().map(|&basis| f2_matrix::apply(round_bases, basis)).collect_vec();
        let replicated = bases.iter().enumerate().filter(|(_, basis)| **basis == 0).map(|(bit, _)| 1 << bit).sum();
        let in_thread = thread.iter().fold(0, |all, basis| all | basis);

        let registers = Span::new(layout.register_bases());
        let steps: Vec<u64> = vector.iter().filter_map(|&basis| registers.solve(basis)).collect_vec();
        let step =
            |i: usize| (steps.iter().enumerate()).filter(|(bit, _)| i >> bit & 1 == 1).fold(0, |r, (_, s)| r ^ s);
        let vector_bytes = element_bytes << vector.len();
        let (firsts, kernel) = split_registers(layout.register_bases(), vector);
        let mut accesses: Vec<Access> = combinations(&firsts)
            .into_iter()
            .map(|first| {
                let inner = f2_matrix::apply(offset_bases, layout.element(first, 0, 0)) as usize % vector_bytes;
                let first = first ^ step(inner / element_bytes) as usize;
                let element = layout.element(first, 0, 0);
                let place = f2_matrix::apply(offset_bases, element);
                let registers: Vec<usize> = (0..1 << vector.len()).map(|i| first ^ step(i) as usize).collect_vec();
                let replicas = combinations(&kernel).into_iter().filter(|&replica| replica != 0);
                Access {
                    round: f2_matrix::apply(round_bases, element) as usize,
                    xor: place & in_thread,
                    offset: place & !in_thread,
                    copies: replicas.flat_map(|replica| registers.iter().map(move |&r| (r, r ^ replica))).collect_vec(),
                    registers,
                }
            })
            .collect_vec();
        sort::by_key(&mut accesses, |access| access.round);
        Side { thread, round, replicated, accesses }
    }

    /// Returns the accesses by which the threads of a layout store or load a tile in the order of
    /// its elements. There are `rounds` rounds, a power of two, for consecutive parts of the tile.
    pub(crate) fn in_order(layout: &Layout, element_bytes: usize, rounds: usize) -> Side {
        let bits = layout.num_elements().ilog2();
        let offset_bits = bits - rounds.ilog2();
        let bases = |of: &dyn Fn(u32) -> u32| (0..bits).map(of).collect::<Vec<u32>>();
        let offset_bases = bases(&|bit| if bit < offset_bits { (element_bytes as u32) << bit } else { 0 });
        let round_bases = bases(&|bit| if bit < offset_bits { 0 } else { 1 << (bit - offset_bits) });
        let registers = Span::new(layout.register_bases());
        let threads = [layout.lane_bases(), layout.warp_bases()].concat();
        let longest = (MAX_VECTOR_BYTES / element_bytes).ilog2().min(offset_bits);
        let is_shared = |basis: &u32| registers.contains(*basis) && threads.iter().all(|thread| thread & basis == 0);
        let vector: Vec<u32> = (0..longest).map(|bit| 1 << bit).take_while(is_shared).collect_vec();
        Side::new(layout, &vector, element_bytes, &offset_bases, &round_bases)
    }

    /// Returns the number of wavefronts of all accesses in excess of the minimum, which is one for
    /// each 128 bytes of an access of a warp. Elements have `element_bytes`.
    ///
    /// ```
    /// use cutlet::layout::{Layout, SharedLayout};
    ///
    /// // Lanes that read 16 bytes of different rows meet in the same banks, unless rows are swizzled.
    /// let columns = Layout::blocked(&[32, 32], &[0, 1], 1, 1);
    /// let plain = SharedLayout::swizzled(&[32, 32], &[1, 0], 4, 16, &[]);
    /// assert_eq!(plain.accesses(&columns).bank_conflicts(4), 8 * 28);
    /// let swizzled = SharedLayout::swizzled(&[32, 32], &[1, 0], 4, 16, &[32, 64, 128]);
    /// assert_eq!(swizzled.accesses(&columns).bank_conflicts(4), 0);
    /// ```
    pub fn bank_conflicts(&self, element_bytes: usize) -> usize {
        let mut extra = 0;
        for access in &self.accesses {
            let vector_bytes = element_bytes * access.registers.len();
            let lanes_at_once = 32 / (vector_bytes / 4).max(1);
            for first in (0..1usize << self.thread.len()).step_by(lanes_at_once) {
                let addresses = (first..first + lanes_at_once)
                    .map(|thread| (f2_matrix::apply(&self.thread, thread as u32) ^ access.xor) + access.offset);
                let mut words: Vec<u32> = addresses
                    .flat_map(|address| (address / 4..=(address + vector_bytes as u32 - 1) / 4).collect_vec())
                    .collect_vec();
                words.sort_unstable();
                words.dedup();
                let mut load = [0; 32];
                words.iter().for_each(|word| load[*word as usize % 32] += 1);
                extra += load.iter().max().map_or(0, |most| most - 1);
            }
        }
        extra
    }
}

/// Returns the register sets whose sums are the first registers of vectors, and the sets that have
/// element 0.
fn split_registers(bases: &[u32], vector: &[u32]) -> (Vec<usize>, Vec<usize>) {
    let (mut span, mut all) = (Span::new(vector), Span::default());
    let (mut firsts, mut kernel) = (Vec::new(), Vec::new());
    for (bit, &basis) in bases.iter().enumerate() {
        if let Some(set) = all.solve(basis) {
            kernel.push(set as usize | 1 << bit);
        } else if span.insert(basis) {
            firsts.push(1 << bit);
        }
        all.insert(basis);
    }
    (firsts, kernel)
}

/// Returns the exclusive or of each subset.
fn combinations(generators: &[usize]) -> Vec<usize> {
    (0..1usize << generators.len())
        .map(|set| generators.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1).fold(0, |sum, (_, g)| sum ^ g))
        .collect_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_swizzles() {
        // (row bytes, mask of the published address formula a ^ ((a >> 3) & mask))
        for (row, mask) in [(128, 0x70), (64, 0x30), (32, 0x10), (16, 0)] {
            let columns = row / 2;
            let rows: Vec<u32> = (0..3).map(|bit| columns << bit).collect();
            let shared = SharedLayout::swizzled(&[32, i64::from(columns)], &[1, 0], 2, 16, &rows);
            for element in 0..32 * columns {
                let plain = element * 2;
                assert_eq!(shared.offset(element), plain ^ (plain >> 3 & mask), "row of {row} bytes");
            }
        }
    }

    #[test]
    fn wide_rows_become_panels() {
        let shared = SharedLayout::swizzled(&[2, 16, 256], &[2, 1, 0], 2, 16, &[256, 512, 1024]);
        for (batch, row, column) in [(0, 0, 64), (1, 3, 200), (1, 15, 255)] {
            let (panel, inner) = (column / 64, column % 64);
            let chunk = (inner / 8) ^ (row & 7);
            let want = ((batch * 4 + panel) * 16 + row) * 128 + chunk * 16 + inner % 8 * 2;
            assert_eq!(shared.offset((batch * 16 + row) * 256 + column), want);
        }
        assert_eq!(shared.bytes(), 2 * 16 * 256 * 2);
    }

    #[test]
    fn tiles_in_order_in_rounds() {
        let columns = Layout::blocked(&[16, 64], &[0, 1], 2, 4);
        for (layout, vector) in [(Layout::blocked(&[16, 64], &[1, 0], 8, 2), 4), (columns, 1)] {
            for rounds in [1, 4] {
                let side = Side::in_order(&layout, 4, rounds);
                assert!(side.accesses.iter().all(|access| access.registers.len() == vector));
                let mut places = std::collections::BTreeSet::new();
                for thread in 0..1u32 << side.thread.len() {
                    for access in &side.accesses {
                        let place = (f2_matrix::apply(&side.thread, thread) ^ access.xor) + access.offset;
                        let round = f2_matrix::apply(&side.round, thread) as usize ^ access.round;
                        for (i, &register) in access.registers.iter().enumerate() {
                            let flat = layout.element(register, thread as usize & 31, thread as usize >> 5) as usize;
                            assert_eq!(flat * 4, round * (4096 / rounds) + place as usize + i * 4);
                            places.insert(flat);
                        }
                    }
                }
                assert_eq!(places.len(), 1024);
            }
        }
    }

    #[test]
    fn coalesced_registers_are_stored_in_whole_vectors() {
        for (shape, order) in [([64, 64], [1, 0]), ([64, 64], [0, 1]), ([16, 256], [1, 0])] {
            let rows: Vec<u32> = (0..3).map(|bit| 1 << (axis_bits(&shape, order[1]).start + bit)).collect();
            let shared = SharedLayout::swizzled(&shape, &order, 2, 16, &rows);
            let side = shared.accesses(&Layout::blocked(&shape, &order, 8, 4));
            assert!(side.accesses.iter().all(|access| access.registers.len() == 8));
            assert_eq!(side.bank_conflicts(2), 0);
        }
    }
}
