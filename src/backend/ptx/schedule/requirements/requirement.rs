//! The kinds of requirements, and the list of the requirements of an op.

use crate::backend::ptx::layout_inference::{AxisBit, AxisBits, ScanOrder, thread_bases};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::smem::allocation::{run_bytes, shared_type};
use crate::dtype::DType;
use crate::ir::{OpId, Type, Value};
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

/// Maximum number of copies of the counts of a histogram.
const MAX_HISTOGRAM_COPIES: usize = 8;

/// Words between the end of one copy of the counts and the next copy. Equal bins of adjacent copies
/// are thus in different banks.
pub const COPY_PADDING_WORDS: usize = 4;

/// One requirement of an op on its step.
#[derive(Clone, Debug)]
pub enum Requirement {
    /// The registers of a value in a layout.
    Operand(Value, Layout),
    /// The access of the op to global memory begins.
    GlobalAccess,
    /// A barrier, independent of hazards.
    Barrier,
    /// Buffers of these sizes: threads write all of them, then read all of them.
    SmemExchange(Vec<usize>),
    /// A buffer that threads write and read in several rounds.
    Rounds(ScratchRounds),
    /// A buffer of this size that all threads write and the leader, one thread, reads.
    SmemGatherToLeader(usize),
    /// A conversion through shared memory of a value that some of the threads hold.
    Redistribute { value: Value, source_layout: Layout, required: Layout },
}

/// Data that is exchanged through shared memory in the number of rounds that free memory requires.
#[derive(Clone, Copy, Debug)]
pub enum ScratchRounds {
    /// A part of the elements in each round.
    Elements { count: usize, bytes: usize },
    /// A part of the bins of a histogram of `elements` numbers in each round.
    Bins { count: usize, elements: usize },
    /// A part of the bins of each warp in each round.
    WarpBins { count: usize, warps: usize },
}

impl ScratchRounds {
    /// Returns the number of rounds, the number of copies, and the bytes of the buffer.
    pub fn split(self, capacity: usize) -> [usize; 3] {
        match self {
            ScratchRounds::Elements { count, bytes } => {
                let rounds = (count * bytes).div_ceil(capacity.max(bytes)).next_power_of_two().min(count);
                [rounds, 1, count / rounds * bytes]
            }
            ScratchRounds::Bins { count, elements } => {
                let capacity = capacity.max((1 + COPY_PADDING_WORDS) * 4) / 4;
                let mut rounds = 1;
                while count / rounds + COPY_PADDING_WORDS > capacity && rounds < count {
                    rounds *= 2;
                }
                let row = count / rounds + COPY_PADDING_WORDS;
                // Reading the copies costs less than counting.
                let most = (elements / (2 * count)).min(MAX_HISTOGRAM_COPIES).min(capacity / row).max(1);
                let copies = 1 << most.ilog2();
                [rounds, copies, copies * row * 4]
            }
            ScratchRounds::WarpBins { count, warps } => {
                let bytes = count * warps * 4;
                let rounds = bytes.div_ceil(capacity.max(warps * 4)).next_power_of_two().min(count);
                [rounds, warps, bytes / rounds]
            }
        }
    }

    /// Returns the number of writes to the buffer before it is read.
    pub fn writes(self) -> usize {
        match self {
            ScratchRounds::Elements { .. } => 1,
            // Zeros, then counts.
            ScratchRounds::Bins { .. } => 2,
            // Zeros, counts, then sums over the warps.
            ScratchRounds::WarpBins { .. } => 3,
        }
    }
}

/// Rows of adjacent elements that threads exchange: one for each register, and for each combination
/// of the thread bits that distinguish rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeRows {
    /// The row of a thread: the sum of these over the set bits of the thread number.
    pub thread: Vec<u32>,
    /// The warp bits that distinguish elements of a row, each with the bit of the index in the row.
    pub warps: Vec<(usize, usize)>,
    /// Number of elements of a row.
    pub len: usize,
    pub registers: usize,
    rows_per_register: usize,
}

impl ExchangeRows {
    /// Returns the rows. `is_row`: true for each bit of the thread number that distinguishes rows.
    pub fn new(
        is_row: impl Iterator<Item = bool>,
        warps: Vec<(usize, usize)>,
        [len, registers]: [usize; 2],
    ) -> ExchangeRows {
        let mut rows = 1;
        let mut thread = Vec::new();
        for is_row in is_row {
            thread.push(if is_row { rows } else { 0 });
            rows <<= u32::from(is_row);
        }
        ExchangeRows { thread, warps, len, registers, rows_per_register: rows as usize }
    }

    /// Returns the rows of a scan, whose elements are the totals of chains.
    pub fn of_scan(layout: &Layout, axis: AxisBits, order: &ScanOrder) -> ExchangeRows {
        let bits = order.outer.iter().enumerate();
        let warps = bits.filter_map(|(position, bit)| match bit {
            AxisBit::Warp(warp) => Some((*warp, position)),
            AxisBit::Register(_) | AxisBit::Lane(_) => None,
        });
        let is_off = |basis: u32| axis.coordinate(basis) == 0;
        let is_row = thread_bases(layout).into_iter().map(|basis| basis != 0 && is_off(basis));
        let registers = layout.register_bases().iter().filter(|&&basis| is_off(basis)).count();
        ExchangeRows::new(is_row, warps.collect_vec(), [1 << order.outer.len(), 1 << registers])
    }

    /// Returns the bytes of a row.
    pub fn row_bytes(&self, dtype: DType) -> usize {
        smem_element_bytes(dtype) * self.len
    }

    /// Returns the bytes of the rows of a register.
    pub fn register_bytes(&self, dtype: DType) -> usize {
        self.row_bytes(dtype) * self.rows_per_register
    }
}

/// The list of the requirements of an op.
pub struct OpRequirements<'a, 'm> {
    pub info: &'a KernelInfo<'m>,
    pub id: OpId,
    pub list: Vec<Requirement>,
}

impl<'a, 'm> OpRequirements<'a, 'm> {
    /// Returns an empty list.
    pub fn new(info: &'a KernelInfo<'m>, id: OpId) -> OpRequirements<'a, 'm> {
        OpRequirements { info, id, list: Vec::new() }
    }

    /// Adds an operand in a layout.
    pub fn operand(&mut self, value: Value, layout: &Layout) {
        self.list.push(Requirement::Operand(value, layout.clone()));
    }

    /// Adds operands in one layout.
    pub fn operands(&mut self, values: &[Value], layout: &Layout) {
        values.iter().for_each(|&value| self.operand(value, layout));
    }

    /// Adds values that become carried values or results, each in the layout of its target.
    pub fn assignments(&mut self, targets: &[Value], values: &[Value]) {
        let info = self.info;
        for (&target, &value) in targets.iter().zip(values) {
            let is_tile = matches!(info.module.ty(target), Type::Tile { .. });
            if is_tile && !info.is_accumulated_in_place(target, value) {
                self.operand(value, &info.inference.own_layout(target));
            }
        }
    }
}

/// Bytes of an element in shared memory.
pub fn smem_element_bytes(dtype: DType) -> usize {
    run_bytes(shared_type(dtype), 1) as usize
}
