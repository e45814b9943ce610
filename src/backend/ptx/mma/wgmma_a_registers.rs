//! Left operand of `wgmma` in registers: the rows of each thread, and its loads from shared memory.
//!
//! `wgmma` reads shared memory along k only, unless elements have 16 bits. Another operand that is
//! contiguous along its rows passes through registers: a thread loads the adjacent rows of one k
//! that its fragment has. This permutes the rows of the hardware relative to the
//! operand. The accumulator has the same permutation, so a thread has adjacent rows of it.

use super::super::hardware::WGMMA_ROWS;
use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::fragment::transpose_bytes;
use super::smem_descriptor::SmemMatrix;
use super::smem_operand::{SmemReader, round_to_tf32};
use crate::dtype::DType;
use crate::layout::{Layout, SharedLayout};
use crate::util::collect::CollectVec as _;

/// Rows of one instruction.
pub(super) const ROWS: i64 = WGMMA_ROWS as i64;

/// The row of the operand for each bit of the hardware row.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// Upper eight of the sixteen rows of a warp.
    pub half: u32,
    /// Bits 2 to 4 of the lane.
    pub lane: [u32; 3],
    /// Warps of a warp group.
    pub warp: [u32; 2],
    /// Warp groups, and instructions of one warp group.
    pub group: Vec<u32>,
    pub block: Vec<u32>,
}

fn doubling(first: i64, count: i64) -> Vec<u32> {
    (0..count.ilog2()).map(|bit| (first as u32) << bit).collect_vec()
}

impl Rows {
    /// Returns the rows in the order of the hardware.
    pub fn plain(groups: i64, blocks: i64) -> Rows {
        Rows {
            half: 8,
            lane: [1, 2, 4],
            warp: [16, 32],
            group: doubling(ROWS, groups),
            block: doubling(ROWS * groups, blocks),
        }
    }

    /// Returns rows of which each thread has adjacent ones, loaded together from rows of 128 bytes
    /// with elements of `size` bytes: four of two instructions, or two of one. Lanes that load at
    /// the same time access different banks.
    pub fn for_a_from_registers(size: i64, groups: i64, blocks: i64) -> Option<Rows> {
        let lane = match (size, blocks) {
            (4, 1) => {
                let group = doubling(ROWS, groups);
                return Some(Rows { half: 1, lane: [2, 16, 4], warp: [8, 32], group, block: Vec::new() });
            }
            (4, _) => [16, 4, 8],
            (1, 2..) => [4, 8, 16],
            _ => return None,
        };
        let mut block = vec![2];
        block.extend(doubling(2 * ROWS * groups, blocks / 2));
        Some(Rows { half: 1, lane, warp: [32, 64], group: doubling(2 * ROWS, groups), block })
    }
}

/// Strides of an operand of the instruction in its tile: elements between adjacent rows, between
/// adjacent k, and between matrices of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strides {
    pub row: u32,
    pub k: u32,
    pub batch: u32,
}

/// The words of the left operand in one thread: registers and loads.
#[derive(Clone, Debug)]
pub(super) struct Left {
    /// The element of each register: elements of a word, upper rows, upper half of the step's k,
    /// steps, instructions, batch.
    pub layout: Layout,
    shared: SharedLayout,
    /// Bytes of an element.
    size: i64,
    steps: usize,
    blocks: usize,
    /// Distance of elements that are adjacent along k, by flat index.
    k: u32,
    /// Threads load adjacent rows from shared memory; otherwise the instruction reads them.
    pub a_from_registers: bool,
}

impl Left {
    /// Plans the words; `columns`: warp groups along the accumulator's columns; `counts`: batch,
    /// instructions, steps along k.
    pub fn new(
        matrix: &SmemMatrix,
        rows: &Rows,
        strides: Strides,
        shared: &SharedLayout,
        columns: i64,
        counts: [i64; 3],
    ) -> Left {
        let [batch, blocks, steps] = counts;
        let word = 4 / matrix.size as u32;
        let Strides { row, k, .. } = strides;
        let mut register: Vec<u32> = (0..word.ilog2()).map(|bit| k << bit).collect_vec();
        register.extend([rows.half * row, 4 * word * k]);
        register.extend(doubling(i64::from(8 * word * k), steps));
        register.extend(rows.block.iter().map(|basis| basis * row));
        register.extend(doubling(i64::from(strides.batch), batch));
        let mut lane = vec![word * k, 2 * word * k];
        lane.extend(rows.lane.map(|basis| basis * row));
        let mut warp: Vec<u32> = rows.warp.iter().chain(&rows.group).map(|basis| basis * row).collect_vec();
        warp.extend((0..columns.ilog2()).map(|_| 0));
        Left {
            layout: Layout::new(shared.shape.clone(), register, lane, warp),
            shared: shared.clone(),
            size: matrix.size,
            steps: steps as usize,
            blocks: blocks as usize,
            k,
            a_from_registers: !matrix.is_direct(),
        }
    }

    /// Returns the first register of a word: 4 words per instruction.
    fn register(&self, [batch, block, step, word]: [usize; 4]) -> usize {
        let words = ((batch * self.blocks + block) * self.steps + step) * 4 + word;
        words * (4 / self.size as usize)
    }

    fn smem_offset(&self, register: usize) -> u32 {
        self.shared.offset(self.layout.element(register, 0, 0))
    }

    /// Packs registers of the operand into words, four per instruction.
    pub fn pack(&self, b: &mut Builder, dtype: DType, slots: &[Operand], at: [usize; 3]) -> [Reg; 4] {
        let [batch, block, step] = at;
        let each = 4 / self.size as usize;
        let dtype = if each == 4 { DType::I8 } else { dtype };
        std::array::from_fn(|word| {
            let first = self.register([batch, block, step, word]);
            let word = super::super::scalar::repr::pack_word(b, dtype, &slots[first..first + each]);
            b.reg(word, RegClass::B32)
        })
    }
}

/// A left operand in registers during emission.
pub(super) struct Gather<'a> {
    left: &'a Left,
    reader: SmemReader,
    unrounded: bool,
    /// Selectors that combine the bytes of two pairs of rows; different between threads.
    joins: [Operand; 2],
}

impl<'a> Gather<'a> {
    /// Makes the operand; `unrounded`: elements are f32 and are rounded to tf32.
    pub fn new(b: &mut Builder, left: &'a Left, address: Operand, thread: Reg, unrounded: bool) -> Gather<'a> {
        let bases = [left.layout.lane_bases(), left.layout.warp_bases()].concat();
        let mut offsets: Vec<u32> = bases.into_iter().map(|basis| left.shared.offset(basis)).collect_vec();
        let mut joins = [0x5410u32, 0x7632].map(Operand::from);
        if left.size == 1 {
            // Rows at a distance of 8 have the same swizzle, so half of the lanes load their four
            // rows in another order.
            offsets[1] ^= left.shared.offset(2 * left.k);
            let second = b.bfe(Ty::U32, thread, 1u32, 1u32);
            let swapped = b.mul(Ty::U32, second, 0x4444u32);
            joins = joins.map(|join| b.xor(Ty::B32, swapped, join));
        }
        Gather { left, reader: SmemReader::new(b, address, thread, &offsets), unrounded, joins }
    }

    /// Returns the words of all instructions of a step.
    pub fn step(&mut self, b: &mut Builder, batch: usize, step: usize) -> Vec<[Reg; 4]> {
        let left = self.left;
        let mut words = vec![[None; 4]; left.blocks];
        let pair = left.blocks.min(2);
        for first in (0..left.blocks).step_by(pair) {
            for upper in 0..2 {
                let register = left.register([batch, first, step, 2 * upper]);
                let rows = match left.size {
                    1 => self.bytes(b, register),
                    _ => self.numbers(b, register, 2 * pair),
                };
                for (row, value) in rows.into_iter().enumerate() {
                    words[first + row / 2][2 * upper + row % 2] = Some(value);
                }
            }
        }
        words.into_iter().map(|words| words.map(|word| word.expect("each word is read"))).collect_vec()
    }

    /// Loads `count` adjacent rows of one k.
    fn numbers(&mut self, b: &mut Builder, register: usize, count: usize) -> Vec<Reg> {
        let addr = self.reader.at(b, self.left.smem_offset(register));
        if self.unrounded {
            let values = b.ld_vec(Space::Shared, Ty::F32, count, &addr, MemMods::default());
            return values.into_iter().map(|value| round_to_tf32(b, value.into())).collect_vec();
        }
        b.ld_vec(Space::Shared, Ty::B32, count, &addr, MemMods::default())
    }

    /// Loads four adjacent k of four adjacent rows.
    fn bytes(&mut self, b: &mut Builder, register: usize) -> Vec<Reg> {
        let rows = [0, 1, 2, 3].map(|k| {
            let addr = self.reader.at(b, self.left.smem_offset(register + k));
            b.ld(Space::Shared, Ty::B32, &addr, MemMods::default())
        });
        transpose_bytes(b, rows, self.joins).map(|word| b.reg(word, RegClass::B32)).to_vec()
    }
}
