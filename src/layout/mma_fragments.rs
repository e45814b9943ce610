//! Fragments of the matrix instructions as layouts, and their tiling over a tile and its warps.
//!
//! Source: PTX ISA, `mma.sync` fragments of m16n8 (also m8n8 for f64) and register fragments of
//! `wgmma`. Left operands are tiles (m, k), right operands (k, n), accumulators (m, n). A thread
//! packs elements of less than 32 bits into words in register order, low bits first.

use super::Layout;
use super::linear_layout::LANE_BITS;
use crate::util::collect::CollectVec as _;

/// Shape of one `mma.sync` instruction and the width of the elements of its operands.
///
/// ```
/// use cutlet::layout::Instruction;
///
/// let mma = Instruction { m: 16, n: 8, k: 16, bits: 16 };
/// let a = mma.left();
/// // Element 6 of lane 5: row 5/4 + 8, column 2 * (5 % 4) + 8.
/// assert_eq!(a.coordinates(a.element(6, 5, 0)), [9, 10]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// Rows of the accumulator: 16; for f64 also 8.
    pub m: i64,
    /// Columns of the accumulator: 8.
    pub n: i64,
    /// Depth of the product.
    pub k: i64,
    /// Bits of an element of an operand.
    pub bits: u32,
}

/// Dimension of a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    Batch,
    M,
    N,
    K,
}

/// Bit of a coordinate along an axis.
type Bit = (Axis, u32);

impl Instruction {
    /// Returns the fragment of the left operand, a tile (m, k).
    ///
    /// ```
    /// let mma = cutlet::layout::Instruction { m: 16, n: 8, k: 16, bits: 16 };
    /// assert_eq!((mma.left().shape(), mma.left().num_registers()), (&[16, 16][..], 8));
    /// ```
    pub fn left(self) -> Layout {
        Tiling::new(self, [1, self.m, self.n, self.k], 1).left().reshape(&[self.m, self.k])
    }

    /// Returns the fragment of the right operand, a tile (k, n).
    ///
    /// ```
    /// let mma = cutlet::layout::Instruction { m: 16, n: 8, k: 16, bits: 16 };
    /// assert_eq!((mma.right().shape(), mma.right().num_registers()), (&[16, 8][..], 4));
    /// ```
    pub fn right(self) -> Layout {
        Tiling::new(self, [1, self.m, self.n, self.k], 1).right().reshape(&[self.k, self.n])
    }

    /// Returns the fragment of the accumulator, a tile (m, n).
    ///
    /// ```
    /// use cutlet::layout::{Instruction, local, spatial};
    ///
    /// let accumulator = Instruction { m: 16, n: 8, k: 16, bits: 16 }.accumulator();
    /// assert_eq!(accumulator, (local([2, 1]) * spatial([8, 4]) * local([1, 2])).to_layout(1).unwrap());
    /// ```
    pub fn accumulator(self) -> Layout {
        Tiling::new(self, [1, self.m, self.n, self.k], 1).accumulator().reshape(&[self.m, self.n])
    }

    /// Returns log2 of the number of elements in one operand word.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Instruction { m: 16, n: 8, k: 16, bits: 16 }.word_bits(), 1); // two in a word
    /// ```
    pub fn word_bits(self) -> u32 {
        (32 / self.bits).max(1).ilog2()
    }

    /// Returns the number of register words of the left operand.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Instruction { m: 16, n: 8, k: 16, bits: 16 }.left_words(), 4);
    /// ```
    pub fn left_words(self) -> usize {
        self.left().num_registers() >> self.word_bits()
    }

    /// Returns the number of register words of the right operand.
    ///
    /// ```
    /// assert_eq!(cutlet::layout::Instruction { m: 16, n: 8, k: 16, bits: 16 }.right_words(), 2);
    /// ```
    pub fn right_words(self) -> usize {
        self.right().num_registers() >> self.word_bits()
    }
}

/// Tiling of an instruction over whole tiles and the warps of a tile block.
///
/// Warp tiles are as square as possible. Warps beyond the number of instructions have replicas. If
/// an extent is smaller than that of the instruction, elements are repeated along m and n, so that
/// the surplus rows and columns compute copies. Along k the loader must set the surplus to zero.
/// Shapes are (batch, m, k), (batch, k, n) and (batch, m, n). The layouts keep register bits of
/// basis 0, so that each instruction has `count` consecutive registers, beginning at a multiple of
/// `count`.
///
/// ```
/// use cutlet::layout::{Instruction, Tiling};
///
/// let tiling = Tiling::new(Instruction { m: 16, n: 8, k: 16, bits: 16 }, [1, 64, 64, 32], 4);
/// assert_eq!((tiling.warps, tiling.repeats(), tiling.steps()), ([0, 1, 1], [0, 1, 2], 1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tiling {
    /// Instruction.
    pub instruction: Instruction,
    /// Extents: batch, m, n, k.
    pub extents: [i64; 4],
    /// log2 of the warps along batch, m and n.
    pub warps: [u32; 3],
    /// log2 of the number of replicas of warps.
    pub replicas: u32,
    /// By rows and columns: the first 32 are interleaved. See [`Tiling::interleave`].
    pub interleaved: [bool; 2],
}

impl Tiling {
    /// Makes the tiling for a product of these extents (batch, m, n, k).
    ///
    /// # Panics
    /// If an extent or the number of warps is no power of two.
    ///
    /// ```
    /// use cutlet::layout::{Instruction, Tiling};
    ///
    /// // One tile for two warps: one of them holds a replica.
    /// let tiling = Tiling::new(Instruction { m: 16, n: 8, k: 16, bits: 16 }, [1, 16, 8, 16], 2);
    /// assert_eq!(tiling.replicas, 1);
    /// ```
    pub fn new(instruction: Instruction, extents: [i64; 4], num_warps: usize) -> Tiling {
        assert!(extents.iter().all(|n| *n > 0 && n.count_ones() == 1), "{extents:?} are not powers of two");
        assert!(num_warps.is_power_of_two(), "{num_warps} warps");
        let mut tiling = Tiling { instruction, extents, warps: [0; 3], replicas: 0, interleaved: [false; 2] };
        for _ in 0..num_warps.ilog2() {
            let [batch, m, n] = tiling.repeats();
            // Whole matrices are divided among the warps first, which keeps the warp tiles large.
            let warp_tile = (instruction.m << m, instruction.n << n);
            match () {
                () if batch > 0 => tiling.warps[0] += 1,
                () if m > 0 && (n == 0 || warp_tile.0 >= warp_tile.1) => tiling.warps[1] += 1,
                () if n > 0 => tiling.warps[2] += 1,
                () => tiling.replicas += 1,
            }
        }
        tiling
    }

    /// Permutes each 32 rows (along m) or columns (along n) so that a thread has four adjacent
    /// ones. Bits 3 and 4 of the row number of the fragment become bits 0 and 1 of that of the
    /// tile. No change if a warp has fewer than 32.
    ///
    /// ```
    /// use cutlet::layout::{Instruction, Tiling};
    ///
    /// let mut tiling = Tiling::new(Instruction { m: 16, n: 8, k: 16, bits: 16 }, [1, 16, 32, 16], 1);
    /// tiling.interleave(false, true);
    /// assert_eq!(tiling.interleaved, [false, true]);
    /// ```
    pub fn interleave(&mut self, rows: bool, columns: bool) {
        let [_, m, n] = self.repeats();
        let (m, n) = (self.instruction.m.ilog2() + m, self.instruction.n.ilog2() + n);
        let whole = |extent: i64, bits: u32| extent >= 32 && bits >= 5;
        self.interleaved = [rows && whole(self.extents[1], m), columns && whole(self.extents[2], n)];
    }

    /// Returns the bit of the tile coordinate that corresponds to a bit of the fragment coordinate.
    fn interleaved_bit(&self, axis: Axis, bit: u32) -> u32 {
        let permuted = match axis {
            Axis::M => self.interleaved[0],
            Axis::N => self.interleaved[1],
            Axis::Batch | Axis::K => false,
        };
        if permuted && bit < 5 { (bit + 2) % 5 } else { bit }
    }

    /// Returns log2 of the number of instructions of each warp along batch, m and n.
    ///
    /// ```
    /// use cutlet::layout::{Instruction, Tiling};
    /// let tiling = Tiling::new(Instruction { m: 16, n: 8, k: 16, bits: 16 }, [1, 32, 32, 16], 1);
    /// assert_eq!(tiling.repeats(), [0, 1, 2]); // 2 times 4
    /// ```
    pub fn repeats(&self) -> [u32; 3] {
        let Instruction { m, n, .. } = self.instruction;
        let [batch, rows, columns, _] = self.extents;
        let count = |extent: i64, step: i64, warps: u32| (extent / step).max(1).ilog2() - warps;
        [count(batch, 1, self.warps[0]), count(rows, m, self.warps[1]), count(columns, n, self.warps[2])]
    }

    /// Returns log2 of the number of instructions along k.
    ///
    /// ```
    /// use cutlet::layout::{Instruction, Tiling};
    /// let tiling = Tiling::new(Instruction { m: 16, n: 8, k: 16, bits: 16 }, [1, 16, 8, 64], 1);
    /// assert_eq!(tiling.steps(), 2); // 4 of them
    /// ```
    pub fn steps(&self) -> u32 {
        (self.extents[3] / self.instruction.k).max(1).ilog2()
    }

    /// Returns the layout of the left operand. Registers count the fragment, steps along k, repeats
    /// along m, batch.
    ///
    /// ```
    /// use cutlet::layout::{Instruction, Tiling};
    /// let tiling = Tiling::new(Instruction { m: 16, n: 8, k: 16, bits: 16 }, [1, 32, 32, 64], 1);
    /// assert_eq!(tiling.left().shape(), [1, 32, 64]);
    /// ```
    pub fn left(&self) -> Layout {
        let word = self.instruction.word_bits();
        let mut register: Vec<Bit> = (0..word).map(|bit| (Axis::K, bit)).collect_vec();
        register.extend(self.upper_rows());
        register.extend(self.fragment_depth().map(|bit| (Axis::K, bit)));
        register.extend(self.step_bits());
        register.extend(self.repeat_bits(Axis::M));
        register.extend(self.repeat_bits(Axis::Batch));
        let lane = [(Axis::K, word), (Axis::K, word + 1), (Axis::M, 0), (Axis::M, 1), (Axis::M, 2)];
        self.layout([Axis::Batch, Axis::M, Axis::K], &register, &lane)
    }

    /// Returns the layout of the right operand. Registers count the fragment, steps along k,
    /// repeats along n, batch.
    ///
    /// ```
    /// use cutlet::layout::{Instruction, Tiling};
    /// let tiling = Tiling::new(Instruction { m: 16, n: 8, k: 16, bits: 16 }, [1, 32, 32, 64], 1);
    /// assert_eq!(tiling.right().shape(), [1, 64, 32]);
    /// ```
    pub fn right(&self) -> Layout {
        let word = self.instruction.word_bits();
        let mut register: Vec<Bit> = (0..word).map(|bit| (Axis::K, bit)).collect_vec();
        register.extend(self.fragment_depth().map(|bit| (Axis::K, bit)));
        register.extend(self.step_bits());
        register.extend(self.repeat_bits(Axis::N));
        register.extend(self.repeat_bits(Axis::Batch));
        let lane = [(Axis::K, word), (Axis::K, word + 1), (Axis::N, 0), (Axis::N, 1), (Axis::N, 2)];
        self.layout([Axis::Batch, Axis::K, Axis::N], &register, &lane)
    }

    /// Returns the layout of the accumulator. Registers count the fragment, repeats along n,
    /// repeats along m, batch.
    ///
    /// ```
    /// use cutlet::layout::{Instruction, Tiling};
    /// let tiling = Tiling::new(Instruction { m: 16, n: 8, k: 16, bits: 16 }, [1, 32, 32, 64], 1);
    /// assert_eq!((tiling.accumulator().shape(), tiling.accumulator().num_registers()), (&[1, 32, 32][..], 32));
    /// ```
    pub fn accumulator(&self) -> Layout {
        let mut register: Vec<Bit> = vec![(Axis::N, 0)];
        register.extend(self.upper_rows());
        register.extend(self.repeat_bits(Axis::N));
        register.extend(self.repeat_bits(Axis::M));
        register.extend(self.repeat_bits(Axis::Batch));
        let lane = [(Axis::N, 1), (Axis::N, 2), (Axis::M, 0), (Axis::M, 1), (Axis::M, 2)];
        self.layout([Axis::Batch, Axis::M, Axis::N], &register, &lane)
    }

    /// Returns the register bits and lane bits (as masks) of the left operand that exceed its
    /// extent along k. If one of them is set, the element must be zero.
    ///
    /// ```
    /// use cutlet::layout::{Instruction, Tiling};
    /// // Depth 8 of 16: the upper half of a thread's registers.
    /// let tiling = Tiling::new(Instruction { m: 16, n: 8, k: 16, bits: 16 }, [1, 16, 8, 8], 1);
    /// assert_eq!(tiling.left_surplus(), (0b100, 0));
    /// ```
    pub fn left_surplus(&self) -> (u32, u32) {
        let word = self.instruction.word_bits();
        let first = word + self.instruction.m.ilog2() - 3;
        self.surplus(first)
    }

    /// Returns the surplus bits of the right operand, as [`Tiling::left_surplus`].
    ///
    /// ```
    /// use cutlet::layout::{Instruction, Tiling};
    /// let tiling = Tiling::new(Instruction { m: 16, n: 8, k: 16, bits: 16 }, [1, 16, 8, 8], 1);
    /// assert_eq!(tiling.right_surplus(), (0b10, 0));
    /// ```
    pub fn right_surplus(&self) -> (u32, u32) {
        self.surplus(self.instruction.word_bits())
    }

    /// Returns the surplus bits. `first`: first register bit of the upper bits of k in the
    /// fragment.
    fn surplus(&self, first: u32) -> (u32, u32) {
        let (word, depth) = (self.instruction.word_bits(), self.extents[3].ilog2());
        let beyond = |bit: u32| bit >= depth;
        let in_word = (0..word).filter(|&bit| beyond(bit)).map(|bit| 1 << bit).sum::<u32>();
        let above = self.fragment_depth().enumerate().filter(|(_, bit)| beyond(*bit));
        let above = above.map(|(i, _)| 1 << (first + i as u32)).sum::<u32>();
        let lanes = (0..2).filter(|&bit| beyond(word + bit)).map(|bit| 1 << bit).sum();
        (in_word | above, lanes)
    }

    /// Returns the bits of the rows of the fragment from row 8 on.
    fn upper_rows(&self) -> impl Iterator<Item = Bit> {
        (3..self.instruction.m.ilog2()).map(|bit| (Axis::M, bit))
    }

    /// Returns the bits of k above those of words and lanes.
    fn fragment_depth(&self) -> std::ops::Range<u32> {
        self.instruction.word_bits() + 2..self.instruction.k.ilog2()
    }

    fn step_bits(&self) -> impl Iterator<Item = Bit> {
        let first = self.instruction.k.ilog2();
        (first..first + self.steps()).map(|bit| (Axis::K, bit))
    }

    fn repeat_bits(&self, axis: Axis) -> impl Iterator<Item = Bit> + use<> {
        let (first, count) = self.repeat_range(axis);
        (first..first + count).map(move |bit| (axis, bit))
    }

    /// Returns the first bit, and the number of bits, of the repeats of a warp along an axis.
    fn repeat_range(&self, axis: Axis) -> (u32, u32) {
        let [batch, m, n] = self.repeats();
        match axis {
            Axis::Batch => (0, batch),
            Axis::M => (self.instruction.m.ilog2(), m),
            Axis::N => (self.instruction.n.ilog2(), n),
            Axis::K => (self.instruction.k.ilog2(), 0),
        }
    }

    fn layout(&self, axes: [Axis; 3], register: &[Bit], lane: &[Bit; LANE_BITS]) -> Layout {
        let shape: Vec<i64> = axes.iter().map(|&axis| self.extents[axis as usize]).collect_vec();
        let basis = |&(axis, bit): &Bit| -> u32 {
            let Some(position) = axes.iter().position(|&other| other == axis) else { return 0 };
            if bit >= shape[position].ilog2() {
                return 0;
            }
            1 << (shape[position + 1..].iter().product::<i64>().ilog2() + self.interleaved_bit(axis, bit))
        };
        let mut warp: Vec<u32> = Vec::new();
        for (axis, count) in [(Axis::N, self.warps[2]), (Axis::M, self.warps[1]), (Axis::Batch, self.warps[0])] {
            let (first, repeats) = self.repeat_range(axis);
            let first = first + repeats;
            warp.extend((first..first + count).map(|bit| basis(&(axis, bit))));
        }
        warp.extend(vec![0; self.replicas as usize]);
        let bases = |bits: &[Bit]| bits.iter().map(basis).collect_vec();
        let (register, lane) = (bases(register), bases(lane));
        Layout::new(shape, register, lane, warp)
    }
}

/// Returns the layout of the accumulator of one `wgmma` of m64: a tile (64, n) over the four warps
/// of a warp group.
///
/// # Panics
/// If `n` is no power of two from 8 to 256.
///
/// ```
/// let layout = cutlet::layout::wgmma_accumulator(128);
/// assert_eq!((layout.shape(), layout.num_registers(), layout.num_warps()), (&[64, 128][..], 64, 4));
/// ```
pub fn wgmma_accumulator(n: i64) -> Layout {
    assert!((8..=256).contains(&n) && n.count_ones() == 1, "wgmma of n = {n}");
    let mut register = vec![1, 8 * n as u32];
    register.extend((3..n.ilog2()).map(|bit| 1 << bit));
    rows_of_warpgroup([64, n], register, [2, 4])
}

/// Returns the layout of the left operand of `wgmma` in registers, with elements of `bits` (8, 16
/// or 32): a tile (64, 256 / bits) over the four warps of a warp group.
///
/// ```
/// let layout = cutlet::layout::wgmma_left(16);
/// assert_eq!((layout.shape(), layout.num_registers(), layout.num_warps()), (&[64, 16][..], 8, 4));
/// ```
pub fn wgmma_left(bits: u32) -> Layout {
    let (k, word) = (256 / bits, 32 / bits);
    let mut register: Vec<u32> = (0..word.ilog2()).map(|bit| 1 << bit).collect_vec();
    register.extend([8 * k, 4 * word]);
    rows_of_warpgroup([64, i64::from(k)], register, [word, 2 * word])
}

/// Makes a layout with the lanes of all fragments: two bits inside of a row, three of the row. Each
/// warp has 16 rows.
fn rows_of_warpgroup(shape: [i64; 2], register: Vec<u32>, low: [u32; 2]) -> Layout {
    let row = shape[1] as u32;
    Layout::new(shape, register, vec![low[0], low[1], row, 2 * row, 4 * row], vec![16 * row, 32 * row])
}

#[cfg(test)]
mod tests {
    use super::*;

    const MMA16: Instruction = Instruction { m: 16, n: 8, k: 16, bits: 16 };

    type Formula = fn(i64, i64, i64) -> (i64, i64);

    /// (m, k, bits, left (m, k), right (n, k)) as functions of g, q, e in the PTX manual.
    const TABLE: [(i64, i64, u32, Formula, Formula); 11] = [
        (16, 8, 16, |g, q, e| (g + 8 * (e >> 1), 2 * q + (e & 1)), |g, q, e| (g, 2 * q + e)),
        (
            16,
            16,
            16,
            |g, q, e| (g + 8 * (e >> 1 & 1), 2 * q + (e & 1) + 8 * (e >> 2)),
            |g, q, e| (g, 2 * q + (e & 1) + 8 * (e >> 1)),
        ),
        (16, 4, 32, |g, q, e| (g + 8 * e, q), |g, q, _| (g, q)),
        (16, 8, 32, |g, q, e| (g + 8 * (e & 1), q + 4 * (e >> 1)), |g, q, e| (g, q + 4 * e)),
        (16, 16, 8, |g, q, e| (g + 8 * (e >> 2), 4 * q + (e & 3)), |g, q, e| (g, 4 * q + e)),
        (
            16,
            32,
            8,
            |g, q, e| (g + 8 * (e >> 2 & 1), 4 * q + (e & 3) + 16 * (e >> 3)),
            |g, q, e| (g, 4 * q + (e & 3) + 16 * (e >> 2)),
        ),
        (
            16,
            64,
            4,
            |g, q, e| (g + 8 * (e >> 3 & 1), 8 * q + (e & 7) + 32 * (e >> 4)),
            |g, q, e| (g, 8 * q + (e & 7) + 32 * (e >> 3)),
        ),
        (8, 4, 64, |g, q, _| (g, q), |g, q, _| (g, q)),
        (16, 4, 64, |g, q, e| (g + 8 * e, q), |g, q, _| (g, q)),
        (16, 8, 64, |g, q, e| (g + 8 * (e & 1), q + 4 * (e >> 1)), |g, q, e| (g, q + 4 * e)),
        (16, 16, 64, |g, q, e| (g + 8 * (e & 1), q + 4 * (e >> 1)), |g, q, e| (g, q + 4 * e)),
    ];

    #[test]
    fn fragments_follow_the_manual() {
        for (m, k, bits, left, right) in TABLE {
            let mma = Instruction { m, n: 8, k, bits };
            let (a, b, c) = (mma.left(), mma.right(), mma.accumulator());
            assert_eq!((a.shape(), b.shape(), c.shape()), (&[m, k][..], &[k, 8][..], &[m, 8][..]));
            for layout in [&a, &b, &c] {
                assert!(layout.is_injective() && layout.covers());
            }
            for lane in 0..32 {
                let (g, q) = (lane as i64 >> 2, lane as i64 & 3);
                let at = |layout: &Layout, e: usize| layout.coordinates(layout.element(e, lane, 0));
                for e in 0..a.num_registers() {
                    let (row, column) = left(g, q, e as i64);
                    assert_eq!(at(&a, e), [row, column], "left of {mma:?}");
                }
                for e in 0..b.num_registers() {
                    let (column, row) = right(g, q, e as i64);
                    assert_eq!(at(&b, e), [row, column], "right of {mma:?}");
                }
                for e in 0..c.num_registers() {
                    assert_eq!(at(&c, e), [g + 8 * (e as i64 >> 1), 2 * q + (e as i64 & 1)]);
                }
            }
        }
    }

    #[test]
    fn wgmma_fragments_follow_the_manual() {
        for thread in 0..128i64 {
            let (w, t) = (thread >> 5, thread & 31);
            let (g, q) = (t >> 2, t & 3);
            let at = |layout: &Layout, e: i64| layout.coordinates(layout.element(e as usize, t as usize, w as usize));
            for n in [8, 16, 64, 256] {
                let c = wgmma_accumulator(n);
                assert!(c.is_injective() && c.covers());
                for e in 0..n / 2 {
                    let want = [16 * w + g + 8 * (e >> 1 & 1), 8 * (e >> 2) + 2 * q + (e & 1)];
                    assert_eq!(at(&c, e), want);
                }
            }
            for e in 0..8 {
                let want = [16 * w + g + 8 * (e >> 1 & 1), 2 * q + (e & 1) + 8 * (e >> 2)];
                assert_eq!(at(&wgmma_left(16), e), want);
            }
            for e in 0..16 {
                let want = [16 * w + g + 8 * (e >> 2 & 1), 4 * q + (e & 3) + 16 * (e >> 3)];
                assert_eq!(at(&wgmma_left(8), e), want);
            }
            for e in 0..4 {
                assert_eq!(at(&wgmma_left(32), e), [16 * w + g + 8 * (e & 1), q + 4 * (e >> 1)]);
            }
        }
    }

    #[test]
    fn warp_tiles_are_square() {
        let split = |m, n, warps| Tiling::new(MMA16, [1, m, n, 32], warps).warps;
        assert_eq!(split(128, 128, 8), [0, 2, 1]);
        assert_eq!(split(128, 128, 4), [0, 1, 1]);
        assert_eq!(split(256, 16, 8), [0, 3, 0]);
        assert_eq!(split(16, 64, 8), [0, 0, 3]);
        let tiny = Tiling::new(MMA16, [1, 16, 8, 16], 4);
        assert_eq!((tiny.warps, tiny.replicas), ([0; 3], 2));
        assert_eq!(Tiling::new(MMA16, [4, 32, 32, 16], 8).warps, [2, 1, 0]);
    }

    /// The instructions of all warps form each product (batch, m, n, k) once for each replica of
    /// its accumulator.
    #[test]
    fn every_product_is_formed_once() {
        let cases = [
            (MMA16, [1, 64, 64, 32], 4),
            (MMA16, [2, 32, 16, 16], 8),
            (MMA16, [1, 4, 2, 32], 1),
            (Instruction { m: 16, n: 8, k: 8, bits: 32 }, [1, 16, 64, 16], 4),
            (Instruction { m: 16, n: 8, k: 32, bits: 8 }, [1, 32, 32, 64], 2),
            (Instruction { m: 8, n: 8, k: 4, bits: 64 }, [2, 16, 16, 8], 2),
            (Instruction { m: 16, n: 8, k: 8, bits: 64 }, [1, 32, 32, 32], 4),
        ];
        for (instruction, extents, num_warps) in cases {
            let tiling = Tiling::new(instruction, extents, num_warps);
            let (a, b, c) = (tiling.left(), tiling.right(), tiling.accumulator());
            let (ra, rb, rc) = (
                instruction.left().num_registers(),
                instruction.right().num_registers(),
                instruction.accumulator().num_registers(),
            );
            let ([batches, rows, columns], steps) = (tiling.repeats().map(|bits| 1 << bits), 1 << tiling.steps());
            for warp in 0..num_warps {
                for (batch, i, j, step) in combinations([batches, rows, columns, steps]) {
                    let a_first = ((batch * rows + i) * steps + step) * ra;
                    let b_first = ((batch * columns + j) * steps + step) * rb;
                    let c_first = ((batch * rows + i) * columns + j) * rc;
                    // The rows, columns and depths of the fragments agree.
                    let at = |l: &Layout, r: usize, lane: usize| l.coordinates(l.element(r, lane, warp));
                    for lane in 0..32 {
                        let (lane_a, lane_b) = ((lane >> 2) << 2, (lane & 3) << 3);
                        for e in 0..rc {
                            let element = at(&c, c_first + e, lane);
                            let row = at(&a, a_first + ((e >> 1) << instruction.word_bits()), lane_a);
                            assert_eq!((element[0], element[1]), (row[0], row[1]));
                            let column = at(&b, b_first, lane_b + 4 * (e & 1));
                            assert_eq!((element[0], element[2]), (column[0], column[2]));
                        }
                        let depth = |l: &Layout, first: usize, count: usize, axis: usize| {
                            (0..count).map(|r| at(l, first + r, lane & 3)[axis]).min()
                        };
                        assert_eq!(depth(&a, a_first, ra, 2), depth(&b, b_first, rb, 1));
                    }
                }
            }
            // The accumulators cover the tile evenly, and the steps cover the depth.
            assert!(c.covers() && a.covers() && b.covers());
            assert_eq!(steps as i64 * instruction.k, extents[3].max(instruction.k));
        }
    }

    fn combinations(counts: [usize; 4]) -> impl Iterator<Item = (usize, usize, usize, usize)> {
        let [a, b, c, d] = counts;
        (0..a * b * c * d).map(move |i| (i / (b * c * d), i / (c * d) % b, i / d % c, i % d))
    }
}
