//! f32 MMAs by fused multiply-add: one outer product of rows and columns in registers for each k.

use super::super::hardware::SWIZZLE_ROW_BYTES;
use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::request::{MmaRequest, OperandPlan, OperandSource, Planned, of_rank};
use super::smem_operand::{KLoop, SmemReader};
use crate::dtype::DType;
use crate::layout::{Layout, SharedLayout};
use crate::util::collect::CollectVec as _;

/// log2 of the longest vector of f32.
const VECTOR: u32 = 2;

/// One operand: its rows (or columns) in one thread.
#[derive(Clone, Debug)]
struct Side {
    /// Bits of m (or n) in registers.
    register: Vec<u32>,
    /// Element index of each bit of the thread number.
    thread: Vec<u32>,
    /// Flat index bit of the start of k, and of the start of m (or n).
    first: [u32; 2],
    /// Flat index bit of the start of the batch.
    batch: u32,
    k_contiguous: bool,
    /// log2 of the elements of one load.
    vector: u32,
    shared: SharedLayout,
}

/// An MMA by FMA.
#[derive(Clone, Debug)]
pub(super) struct FmaPlan {
    left: Side,
    right: Side,
    /// Bits of the batch in registers.
    batch: Vec<u32>,
    /// log2 of k.
    depth: u32,
}

/// Numbers of bits of one dimension that are in registers, lanes and warps, from low to high.
#[derive(Clone, Debug, Default)]
struct BitSplit {
    vector: u32,
    lanes: u32,
    registers: u32,
    warps: u32,
}

impl BitSplit {
    /// Returns the bit numbers: registers (vector first), lanes, warps.
    fn bits(&self) -> [Vec<u32>; 3] {
        let lanes = self.vector..self.vector + self.lanes;
        let registers = lanes.end..lanes.end + self.registers - self.vector;
        let warps = registers.end..registers.end + self.warps;
        [(0..self.vector).chain(registers).collect_vec(), lanes.collect_vec(), warps.collect_vec()]
    }
}

/// Splits batch, m and n over threads.
fn split(request: &MmaRequest) -> (BitSplit, BitSplit, BitSplit, u32) {
    let [batch, m, n, _] = request.extents.map(i64::ilog2);
    let mut warps = request.num_warps.ilog2();
    let batches = BitSplit { warps: batch.min(warps), registers: batch - batch.min(warps), ..BitSplit::default() };
    warps -= batches.warps;
    let lanes_m = m.min(5 - n.min(3));
    let lanes_n = n.min(5 - lanes_m);
    let mut rows = BitSplit { lanes: lanes_m, registers: m - lanes_m, ..BitSplit::default() };
    let mut columns = BitSplit { lanes: lanes_n, registers: n - lanes_n, ..BitSplit::default() };
    while warps > 0 && rows.registers + columns.registers > 0 {
        let larger = if rows.registers > columns.registers { &mut rows } else { &mut columns };
        larger.registers -= 1;
        larger.warps += 1;
        warps -= 1;
    }
    if !request.a.k_contiguous {
        rows.vector = rows.registers.min(VECTOR);
    }
    if !request.b.k_contiguous {
        columns.vector = columns.registers.min(VECTOR);
    }
    (batches, rows, columns, warps)
}

/// Returns the lane bits of rows and columns alternately: a row, two columns, a row, the others.
///
/// Lanes whose numbers differ in bit 0 have the same columns, and those that differ in bit 1 the
/// same rows. Shared memory serves two quarters of a warp at once if the addresses of 16-byte loads
/// are equal for one of these bits.
fn alternating(rows: Vec<u32>, columns: Vec<u32>) -> Vec<u32> {
    let (mut rows, mut columns) = (rows.into_iter(), columns.into_iter());
    let mut lanes: Vec<u32> = rows.next().into_iter().collect_vec();
    lanes.extend(columns.by_ref().take(2));
    lanes.extend(rows);
    lanes.extend(columns);
    lanes
}

pub(super) fn plan(request: &MmaRequest) -> Planned<FmaPlan> {
    let [batch, m, n, k] = request.extents;
    let (batches, rows, columns, replicas) = split(request);
    let (batch_bits, row_bits, column_bits) = (batches.bits(), rows.bits(), columns.bits());
    let bases_of = |bits: &[u32], first: Option<u32>| -> Vec<u32> {
        bits.iter().map(|bit| first.map_or(0, |first| 1 << (first + bit))).collect_vec()
    };
    // Bases of all thread bits, if m, n and the batch start at these flat index bits.
    let threads = |m_at: Option<u32>, n_at: Option<u32>, batch_at: u32| -> (Vec<u32>, Vec<u32>) {
        let mut lane = alternating(bases_of(&row_bits[1], m_at), bases_of(&column_bits[1], n_at));
        lane.resize(5, 0);
        let warp = [
            bases_of(&column_bits[2], n_at),
            bases_of(&row_bits[2], m_at),
            bases_of(&batch_bits[2], Some(batch_at)),
            vec![0; replicas as usize],
        ];
        (lane, warp.concat())
    };
    let [log_m, log_n, log_k] = [m, n, k].map(i64::ilog2);
    let batch_registers = |first: u32| bases_of(&batch_bits[0], Some(first));

    let (lane, warp) = threads(Some(log_n), Some(0), log_m + log_n);
    let register =
        [bases_of(&column_bits[0], Some(0)), bases_of(&row_bits[0], Some(log_n)), batch_registers(log_m + log_n)];
    let acc = Layout::new(of_rank([batch, m, n], request.rank), register.concat(), lane, warp);

    let (lane, warp) = threads(Some(log_k), None, log_m + log_k);
    let left =
        OperandShape { shape: [batch, m, k], k_first: 0, outer_first: log_k, k_contiguous: request.a.k_contiguous };
    let left = side(request, left, &rows, &row_bits[0], &batch_bits[0], lane, warp);
    let (lane, warp) = threads(None, Some(0), log_k + log_n);
    let right =
        OperandShape { shape: [batch, k, n], k_first: log_n, outer_first: 0, k_contiguous: request.b.k_contiguous };
    let right = side(request, right, &columns, &column_bits[0], &batch_bits[0], lane, warp);
    let plan = FmaPlan { left: left.0, right: right.0, batch: batch_bits[0].clone(), depth: log_k };
    Planned { a: left.1, b: right.1, acc, plan }
}

/// The axes of an operand in its tile.
struct OperandShape {
    shape: [i64; 3],
    k_first: u32,
    outer_first: u32,
    k_contiguous: bool,
}

fn side(
    request: &MmaRequest,
    operand: OperandShape,
    split: &BitSplit,
    register: &[u32],
    batch: &[u32],
    lane: Vec<u32>,
    warp: Vec<u32>,
) -> (Side, OperandPlan) {
    let OperandShape { shape, k_first, outer_first, k_contiguous } = operand;
    let depth = request.extents[3].ilog2();
    let vector = if k_contiguous { depth.min(VECTOR) } else { split.vector };
    let batch_first = shape[1].ilog2() + shape[2].ilog2();
    let flat = of_rank(shape, request.rank);
    let (fast, slow) = if k_contiguous == (k_first == 0) { (2, 1) } else { (1, 2) };
    let order: Vec<usize> =
        [fast, slow, 0].into_iter().filter_map(|axis: usize| axis.checked_sub(3 - request.rank)).collect_vec();
    // The lanes that shared memory serves at once: half a warp with vectors of 16 bytes.
    let active = &lane[..(6 - vector as usize).min(5)];
    let distinct_lanes: Vec<u32> = active.iter().copied().filter(|&basis| basis != 0).collect_vec();
    let shared = SharedLayout::swizzled(&flat, &order, 4, 4 << vector, &distinct_lanes);
    let registers = (0..depth)
        .map(|bit| k_first + bit)
        .chain(register.iter().map(|bit| outer_first + bit))
        .chain(batch.iter().map(|bit| batch_first + bit))
        .map(|bit| 1 << bit)
        .collect_vec();
    let thread = [&lane[..], &warp].concat();
    let side = Side {
        register: register.to_vec(),
        thread,
        first: [k_first, outer_first],
        batch: batch_first,
        k_contiguous,
        vector,
        shared: shared.clone(),
    };
    let registers = Layout::new(flat, registers, lane, warp);
    let registers = Some(registers);
    (
        side,
        OperandPlan {
            dtype: DType::F32,
            shared,
            align: SWIZZLE_ROW_BYTES,
            registers,
            panels: None,
            may_be_unrounded: false,
        },
    )
}

/// Returns the number whose bit `bits[i]` is bit `i` of `number`.
fn spread(number: usize, bits: &[u32]) -> u32 {
    bits.iter().enumerate().map(|(i, bit)| (number as u32 >> i & 1) << bit).sum()
}

impl Side {
    fn count(&self) -> usize {
        1 << self.register.len()
    }

    fn smem_offset(&self, batch: u32, outer: usize, k: u32) -> u32 {
        let element = batch << self.batch | spread(outer, &self.register) << self.first[1] | k << self.first[0];
        self.shared.offset(element)
    }

    fn thread_offsets(&self) -> Vec<u32> {
        self.thread.iter().map(|&basis| self.shared.offset(basis)).collect_vec()
    }

    /// Returns the byte offset of a bit of k.
    fn k_offset(&self, bit: u32) -> u32 {
        self.shared.offset(1 << (self.first[0] + bit))
    }

    /// Loads the values of all rows at `count` steps from `k` on: `values[step][row]`.
    fn load(&self, b: &mut Builder, reader: &mut SmemReader, batch: u32, k: u32, count: usize) -> Vec<Vec<Operand>> {
        let mut values = vec![vec![Operand::Imm(0); self.count()]; count];
        let vector = 1usize << self.vector;
        let (row_step, k_step) = if self.k_contiguous { (1, vector) } else { (vector, 1) };
        for step in (0..count).step_by(k_step) {
            for row in (0..self.count()).step_by(row_step) {
                let addr = reader.at(b, self.smem_offset(batch, row, k + step as u32));
                let loaded = b.ld_vec(Space::Shared, Ty::F32, vector, &addr, MemMods::default());
                for (i, value) in loaded.into_iter().enumerate() {
                    let (step, row) = if self.k_contiguous { (step + i, row) } else { (step, row + i) };
                    values[step][row] = value.into();
                }
            }
        }
        values
    }
}

/// An operand during emission.
enum FmaOperand<'a> {
    Shared(SmemReader),
    Registers(&'a [Operand]),
}

impl FmaPlan {
    pub(super) fn describe(&self) -> String {
        format!("fma.f32, {} x {} a thread, k {}", self.left.count(), self.right.count(), 1 << self.depth)
    }

    pub(super) fn lower(
        &self,
        b: &mut Builder,
        thread: Reg,
        left: OperandSource<'_>,
        right: OperandSource<'_>,
        acc: &[Reg],
    ) {
        let slice = self.depth.min(VECTOR);
        for batch in 0..1usize << self.batch.len() {
            let bits: Vec<[u32; 2]> =
                (slice..self.depth).map(|bit| [self.left.k_offset(bit), self.right.k_offset(bit)]).collect_vec();
            let masks = [&self.left, &self.right].map(|side| side.thread_offsets().iter().fold(0, |all, x| all | x));
            let body = (self.left.count() * self.right.count()) << slice;
            let (trips, bases) = match (left.address(), right.address()) {
                (Some(a), Some(c)) => (KLoop::new(&bits, masks, body), [a, c]),
                // Registers cannot be indexed at run time.
                (Some(a), None) | (None, Some(a)) => (KLoop { trips: 0, strides: [0, 0] }, [a, a]),
                (None, None) => (KLoop { trips: 0, strides: [0, 0] }, [Operand::Imm(0), Operand::Imm(0)]),
            };
            trips.emit(b, bases, |b, [base_a, base_b]| {
                let mut feeds = [(left, base_a, &self.left), (right, base_b, &self.right)].map(
                    |(source, base, side)| match source {
                        OperandSource::Panels(..) => unreachable!("panels are for descriptors"),
                        OperandSource::Shared(_) | OperandSource::Unrounded(_) => {
                            FmaOperand::Shared(SmemReader::new(b, base, thread, &side.thread_offsets()))
                        }
                        OperandSource::Registers(values) => FmaOperand::Registers(values),
                    },
                );
                for first in (0..1u32 << (self.depth - trips.trips)).step_by(1 << slice) {
                    self.slice(b, &mut feeds, batch, first, 1 << slice, acc);
                }
            });
        }
    }

    /// Emits `count` steps of k from `first` on.
    fn slice(
        &self,
        b: &mut Builder,
        feeds: &mut [FmaOperand<'_>; 2],
        batch: usize,
        first: u32,
        count: usize,
        acc: &[Reg],
    ) {
        let [left, right] = feeds;
        let a = self.values(b, &self.left, left, batch, first, count);
        let c = self.values(b, &self.right, right, batch, first, count);
        let (rows, columns) = (self.left.count(), self.right.count());
        for step in 0..count {
            for row in 0..rows {
                for column in 0..columns {
                    let sum = acc[(batch * rows + row) * columns + column];
                    let operands = [a[step][row], c[step][column], sum.into()];
                    b.float_to(sum, FloatOp::Fma, Ty::F32, FloatMods::RN, &operands);
                }
            }
        }
    }

    fn values(
        &self,
        b: &mut Builder,
        side: &Side,
        feed: &mut FmaOperand<'_>,
        batch: usize,
        first: u32,
        count: usize,
    ) -> Vec<Vec<Operand>> {
        match feed {
            FmaOperand::Shared(reader) => side.load(b, reader, spread(batch, &self.batch), first, count),
            FmaOperand::Registers(values) => {
                let slot = |row: usize, k: usize| ((batch * side.count() + row) << self.depth) | k;
                (0..count)
                    .map(|step| (0..side.count()).map(|row| values[slot(row, first as usize + step)]).collect_vec())
                    .collect_vec()
            }
        }
    }
}
