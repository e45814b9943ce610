//! MMAs by `wgmma` (sm_90a): a warp group multiplies 64 rows at a time, with operands in shared
//! memory.
//!
//! Warp groups share the rows of the accumulator, then its columns. The right operand is in shared
//! memory (`smem_descriptor`), the left one there or in registers (`wgmma_a_registers`). Operands
//! of other than 16-bit elements that are not contiguous along k pass through registers; if that is
//! the right operand, the transposed MMA is computed. Instructions are asynchronous:
//! [`lower_together`] commits their group, and the caller waits before it reads the accumulator or
//! reuses shared memory.
//!
//! An instruction has any multiple of eight columns up to 256. Its results are those of narrower
//! instructions side by side. MMAs of one left operand with adjacent right operands are therefore
//! one wide instruction.
//!
//! 8-bit float sums keep 13 bits after the leading one of their largest term. Unless that is
//! allowed, sums over at most [`SEPARATE_SUM_BYTES`] of k are computed separately and added to the
//! accumulator in f32. The groups are then waited for here.

use super::super::hardware::MAX_WGMMA_COLUMNS;
use super::super::isa::builder::Builder;
use super::super::isa::inst::*;
use super::request::{Effort, MmaPart, MmaRequest, OperandPlan, OperandSource, OperandSpec, Planned, of_rank};
use super::smem_descriptor::{STEP_BYTES, SmemMatrix};
use super::wgmma_a_registers::{Gather, Left, ROWS, Rows, Strides};
use crate::dtype::DType;
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

const MAX_COLUMNS: i64 = MAX_WGMMA_COLUMNS as i64;
/// The maximum number of accumulator registers per thread without serialised instructions.
const MAX_ACCUMULATOR_REGISTERS: i64 = 160;
/// The maximum extent of k that is summed with fewer bits than f32 has.
pub(super) const SEPARATE_SUM_BYTES: i64 = 128;
/// Columns that are summed separately at a time; fewer if the left operand also needs registers.
const SEPARATE_SUM_COLUMNS: [i64; 2] = [128, 64];

/// An MMA by `wgmma`. Left, right, rows and columns are those of the instruction.
#[derive(Clone, Debug)]
pub(super) struct WgmmaPlan {
    types: MmaTypes,
    /// Element type of the left operand.
    dtype: DType,
    /// The transposed MMA: the instruction's rows are the accumulator's columns, its left operand
    /// is the right one of the MMA.
    swap_ab: bool,
    left: Left,
    /// Layouts of the operands in shared memory.
    matrices: [SmemMatrix; 2],
    /// Bytes of one matrix of the batch.
    matrix_bytes: [i64; 2],
    /// Warp groups along rows and columns.
    groups: [i64; 2],
    batch: i64,
    /// Instructions of a warp group along rows, columns and k.
    counts: [i64; 3],
    /// Columns of one instruction.
    columns: i64,
    /// Columns that are summed separately at a time.
    separate_columns: Option<i64>,
    /// For each register bit of the accumulator, the bit of the instructions' results (elements of
    /// one, then columns, rows, batch).
    order: Vec<usize>,
}

fn types(request: &MmaRequest) -> Result<MmaTypes, Rejection> {
    let operand = |spec: &OperandSpec| match spec.dtype {
        DType::F16 => Some(Ty::F16),
        DType::BF16 => Some(Ty::BF16),
        DType::TF32 => Some(Ty::TF32),
        DType::F8E4M3FN => Some(Ty::E4M3),
        DType::F8E5M2 => Some(Ty::E5M2),
        DType::I8 => Some(if spec.signed { Ty::S8 } else { Ty::U8 }),
        _ => None,
    };
    let rejection = "it does not multiply these element types";
    let (a, b) = (operand(&request.a).ok_or(rejection)?, operand(&request.b).ok_or(rejection)?);
    let d = match request.acc {
        DType::F32 => Ty::F32,
        DType::I32 => Ty::S32,
        _ => return Err("its accumulator is of another type"),
    };
    let integer = |ty: Ty| matches!(ty, Ty::S8 | Ty::U8);
    let fits = match d {
        Ty::S32 => integer(a) && integer(b),
        _ => !integer(a) && (a == b || is_f8(a) && is_f8(b)),
    };
    fits.then_some(MmaTypes { d, a, b, c: d }).ok_or(rejection)
}

fn is_f8(ty: Ty) -> bool {
    matches!(ty, Ty::E4M3 | Ty::E5M2)
}

/// The reason against operands whose rows or columns are few.
const SHORT_OPERAND: Rejection = "an operand in shared memory needs rows of 32 bytes, and 8 of them";

/// The reason against `wgmma`: a clause about the instruction.
pub(super) type Rejection = &'static str;

/// Returns the plan of an MMA, or the first reason why `wgmma` does not support it. The target has
/// the instruction.
pub(super) fn plan(request: &MmaRequest) -> Result<Planned<WgmmaPlan>, Rejection> {
    if !request.num_warps.is_multiple_of(4) {
        return Err("it needs groups of four warps");
    }
    let types = types(request)?;
    let direct = |spec: &OperandSpec| spec.k_contiguous || spec.dtype.storage_bits() == 16;
    let swap_ab = direct(&request.a) && !direct(&request.b);
    let a_from_registers = swap_ab || !direct(&request.a);
    // Fallback: operands with elements of other than 16 bits are required to be contiguous along k.
    attempt(request, types, swap_ab, a_from_registers).or_else(|_| attempt(request, types, false, false))
}

fn attempt(
    request: &MmaRequest,
    types: MmaTypes,
    swap_ab: bool,
    a_from_registers: bool,
) -> Result<Planned<WgmmaPlan>, Rejection> {
    let [batch, m, n, k] = request.extents;
    let [rows, columns] = if swap_ab { [n, m] } else { [m, n] };
    let specs = if swap_ab { [&request.b, &request.a] } else { [&request.a, &request.b] };
    let along_k = |spec: &OperandSpec| spec.k_contiguous || spec.dtype.storage_bits() != 16;
    let left = SmemMatrix::new(specs[0], !a_from_registers && along_k(specs[0]), rows, k).ok_or(SHORT_OPERAND)?;
    let right = SmemMatrix::new(specs[1], along_k(specs[1]), columns, k).ok_or(SHORT_OPERAND)?;
    let step = STEP_BYTES / left.size;

    let all = request.num_warps as i64 / 4;
    let least = if a_from_registers && left.size == 1 { 2 * ROWS } else { ROWS };
    let along_rows = all.min(rows / least);
    if along_rows == 0 {
        return Err("it multiplies 64 rows, or 128 of 8-bit elements that are not contiguous along k");
    }
    if k % step != 0 {
        return Err("the extent of k is no multiple of 32 bytes");
    }
    let groups = [along_rows, all / along_rows];
    let width = (columns / groups[1]).min(MAX_COLUMNS);
    if width < 8 {
        return Err("each group of four warps needs 8 columns or more");
    }
    let counts = [rows / ROWS / groups[0], columns / groups[1] / width, k / step];
    let accumulators = batch * counts[0] * counts[1] * width / 2;
    if accumulators > MAX_ACCUMULATOR_REGISTERS {
        return Err("a thread has too few registers for its accumulators: use more warps or smaller tiles");
    }
    if !(a_from_registers || left.divides(ROWS)) || !right.divides(width) {
        return Err("the rows of an operand in shared memory do not divide its tile");
    }
    let arrangement = if a_from_registers {
        let rows = || Rows::for_a_from_registers(left.size, groups[0], counts[0]);
        let rows = if left.swizzle_bytes == 128 { rows() } else { None };
        rows.ok_or("its left operand in registers needs rows of 128 bytes")?
    } else {
        Rows::plain(groups[0], counts[0])
    };

    let rank = request.rank;
    let shapes = [of_rank([batch, m, k], rank), of_rank([batch, k, n], rank)];
    let [left_shape, right_shape] = if swap_ab { [&shapes[1], &shapes[0]] } else { [&shapes[0], &shapes[1]] };
    let [row, along] = if swap_ab { [1, n] } else { [k, 1] };
    let strides = Strides { row: row as u32, k: along as u32, batch: (rows * k) as u32 };
    let shared = left.layout(left_shape, !swap_ab);
    let left_plan = Left::new(&left, &arrangement, strides, &shared, groups[1], [batch, counts[0], counts[2]]);
    let separate_columns =
        (!request.fast && is_f8(types.a)).then(|| width.min(SEPARATE_SUM_COLUMNS[usize::from(a_from_registers)]));
    let mut plan = WgmmaPlan {
        types: if swap_ab { MmaTypes { a: types.b, b: types.a, ..types } } else { types },
        dtype: specs[0].dtype,
        swap_ab,
        matrices: [left, right],
        matrix_bytes: [rows * k * left.size, columns * k * right.size],
        left: left_plan,
        groups,
        batch,
        counts,
        columns: width,
        separate_columns,
        order: Vec::new(),
    };
    let acc = plan.arrange(&arrangement, [m, n]).reshape(&of_rank([batch, m, n], rank));
    let whole = |panels| (batch == 1).then_some(panels);
    let left_operand = OperandPlan {
        dtype: specs[0].dtype,
        shared,
        align: left.pattern_bytes(),
        registers: Some(plan.left.layout.clone()),
        panels: whole(left.panels(rows, k)),
        may_be_unrounded: a_from_registers,
    };
    let right_operand = OperandPlan {
        dtype: specs[1].dtype,
        shared: right.layout(right_shape, swap_ab),
        align: right.pattern_bytes(),
        registers: None,
        panels: whole(right.panels(columns, k)),
        may_be_unrounded: false,
    };
    let [a, b] = if swap_ab { [right_operand, left_operand] } else { [left_operand, right_operand] };
    Ok(Planned { a, b, acc, plan })
}

impl WgmmaPlan {
    /// Returns the accumulator's layout, of shape (batch, m, n), and sets the order of its
    /// registers.
    fn arrange(&mut self, rows: &Rows, [m, n]: [i64; 2]) -> Layout {
        let (row, column) = if self.swap_ab { (1, n as u32) } else { (n as u32, 1) };
        let doubling = |first: i64, count: i64| (0..count.ilog2()).map(move |bit| (first as u32) << bit);
        let columns = self.columns * self.counts[1];
        let mut bases = vec![column, rows.half * row];
        bases.extend(doubling(8, columns / 8).map(|basis| basis * column));
        let blocks = bases.len();
        bases.extend(rows.block.iter().map(|basis| basis * row));
        bases.extend(doubling(m * n, self.batch));
        self.order = (0..bases.len()).collect_vec();
        if self.swap_ab {
            // Adjacent elements along n first.
            let neighbours: Vec<usize> = (0..bases.len()).filter(|&bit| matches!(bases[bit], 1 | 2)).collect_vec();
            debug_assert!(neighbours.iter().all(|&bit| bit == 1 || bit == blocks));
            self.order.retain(|bit| !neighbours.contains(bit));
            self.order.splice(0..0, neighbours);
        }
        let register = self.order.iter().map(|&bit| bases[bit]).collect_vec();
        let mut lane = vec![2 * column, 4 * column];
        lane.extend(rows.lane.map(|basis| basis * row));
        let mut warp: Vec<u32> = rows.warp.iter().chain(&rows.group).map(|basis| basis * row).collect_vec();
        warp.extend(doubling(columns, self.groups[1]).map(|basis| basis * column));
        Layout::new(vec![self.batch, m, n], register, lane, warp)
    }

    /// Returns the registers of `width` columns from `first` on of an instruction's result.
    fn results(&self, acc: &[Reg], [batch, i, j]: [i64; 3], first: i64, width: i64) -> Vec<Reg> {
        let each = self.columns / 2;
        let start = ((batch * self.counts[0] + i) * self.counts[1] + j) * each + first / 2;
        let accumulator = |index: i64| -> usize {
            self.order.iter().enumerate().map(|(to, &from)| ((index >> from & 1) as usize) << to).sum()
        };
        (start..start + width / 2).map(|index| acc[accumulator(index)]).collect_vec()
    }

    /// Returns true if [`lower_together`] waits for its instructions.
    pub fn is_complete(&self) -> bool {
        self.separate_columns.is_some()
    }

    /// See [`super::MmaPlan::effort`].
    pub fn effort(&self) -> Effort {
        let [rows, columns, steps] = self.counts;
        // Four words per thread are the 64 rows of an instruction.
        let words = if self.left.a_from_registers { 4 * self.batch * rows * steps } else { 0 };
        let parts = (steps * STEP_BYTES + SEPARATE_SUM_BYTES - 1) / SEPARATE_SUM_BYTES;
        let additions = self.separate_columns.map_or(0, |_| self.batch * rows * columns * self.columns / 2 * parts);
        Effort { columns: self.columns, words, additions }
    }

    /// Returns batches and steps in order.
    fn order(&self) -> Vec<(i64, i64)> {
        (0..self.batch).flat_map(|batch| (0..self.counts[2]).map(move |step| (batch, step))).collect_vec()
    }

    /// See [`super::MmaPlan::widened_by`].
    pub fn widened_by(&self, other: &WgmmaPlan, rows: i64) -> Option<i64> {
        let form = |plan: &WgmmaPlan| {
            let [left, right] = plan.matrices;
            let has_own_form =
                plan.swap_ab || plan.left.a_from_registers || plan.separate_columns.is_some() || plan.batch > 1;
            let one = !has_own_form && plan.groups[1] == 1 && plan.counts[1] == 1;
            one.then_some((plan.types, plan.groups, plan.counts, left, (right.along_k, right.swizzle_bytes)))
        };
        let right = SmemMatrix { rows, ..self.matrices[1] };
        let whole = right.divides(self.columns) && self.columns + other.columns <= MAX_COLUMNS;
        (whole && form(self)? == form(other)?).then(|| right.mn_offset(self.columns))
    }

    fn run<'a>(
        &'a self,
        b: &mut Builder,
        (thread, group): (Reg, Operand),
        part: &MmaPart<'a, WgmmaPlan>,
    ) -> WgmmaIssue<'a> {
        let along_rows = b.and(Ty::B32, group, (self.groups[0] - 1) as u32);
        // ptxas cannot fold this shift: the number of groups is unknown to it.
        let along_columns = match self.groups[1] {
            1 => Operand::Imm(0),
            _ => b.shr(Ty::U32, group, self.groups[0].ilog2()),
        };
        let (left, right) = if self.swap_ab { (part.right, part.left) } else { (part.left, part.right) };
        let mut matrices = self.matrices;
        for (matrix, source) in matrices.iter_mut().zip([left, right]) {
            if let OperandSource::Panels(_, rows) = source {
                matrix.rows = rows;
            }
        }
        let feed = match left {
            OperandSource::Shared(address) | OperandSource::Panels(address, _) if !self.left.a_from_registers => {
                LeftOperand::Descriptor(matrices[0].descriptor_low_word(b, address, along_rows, ROWS))
            }
            OperandSource::Shared(address) => LeftOperand::Gather(Gather::new(b, &self.left, address, thread, false)),
            OperandSource::Unrounded(address) => LeftOperand::Gather(Gather::new(b, &self.left, address, thread, true)),
            OperandSource::Registers(slots) => LeftOperand::Slots(slots),
            OperandSource::Panels(..) => unreachable!("an operand in registers has no panels"),
        };
        let right = right.address().expect("the right operand of wgmma is in shared memory");
        let right = matrices[1].descriptor_low_word(b, right, along_columns, self.columns * self.counts[1]);
        WgmmaIssue { plan: self, matrices, feed, right, accs: vec![(self, part.acc)], accumulate: part.accumulate }
    }

    /// Returns one line of text.
    pub fn describe(&self) -> String {
        let [rows, columns, k] = self.counts;
        let types = self.types;
        format!(
            "wgmma m64n{}{}{}{}, {} x {} warp groups, {rows} x {columns} x {k} each{}{}{}",
            self.columns,
            types.d,
            types.a,
            types.b,
            self.groups[0],
            self.groups[1],
            if self.swap_ab { ", transposed" } else { "" },
            if self.left.a_from_registers { ", left operand through registers" } else { "" },
            if self.separate_columns.is_some() { ", with separate sums" } else { "" },
        )
    }
}

/// Issues MMAs; see [`super::MmaPlan::lower_together`]. Commits their groups without a wait.
pub(super) fn lower_together<'a>(b: &mut Builder, at: (Reg, Operand), parts: &[MmaPart<'a, WgmmaPlan>]) {
    let mut runs: Vec<WgmmaIssue<'a>> = Vec::new();
    for part in parts {
        let plan = part.plan;
        let columns = |run: &WgmmaIssue<'_>| run.accs.iter().map(|(plan, _)| plan.columns).sum::<i64>();
        match runs.last_mut() {
            Some(run) if part.widens && columns(run) + plan.columns <= MAX_COLUMNS => run.accs.push((plan, part.acc)),
            _ => runs.push(plan.run(b, at, part)),
        }
    }
    if runs.iter().any(WgmmaIssue::is_alone) {
        for mut run in runs {
            match run.plan.separate_columns {
                Some(width) => run.separate_sums(b, width),
                None => run.through(b),
            }
        }
        return;
    }
    // Operands in registers are packed before the first instruction, since these registers must not
    // be written between the instructions.
    let words: Vec<Vec<_>> = runs.iter_mut().map(|run| run.packed(b)).collect_vec();
    b.wgmma_fence();
    for (run, words) in runs.iter_mut().zip(words) {
        let mut words = words.into_iter();
        for (batch, step) in run.plan.order() {
            let left = words.next().unwrap_or_else(|| run.left(b, batch, step));
            run.issue_step(b, &left, (batch, step));
        }
    }
    b.wgmma_commit_group();
}

/// Source of the left operand.
enum LeftOperand<'a> {
    /// Low word of the matrix descriptor.
    Descriptor(Operand),
    Gather(Gather<'a>),
    Slots(&'a [Operand]),
}

/// An MMA during emission.
struct WgmmaIssue<'a> {
    plan: &'a WgmmaPlan,
    /// The layouts of the operands in shared memory.
    matrices: [SmemMatrix; 2],
    feed: LeftOperand<'a>,
    /// Low word of the right operand's matrix descriptor.
    right: Operand,
    /// The accumulators in the order of their columns: that of the plan, and those of the MMAs that
    /// widen it.
    accs: Vec<(&'a WgmmaPlan, &'a [Reg])>,
    accumulate: bool,
}

impl WgmmaIssue<'_> {
    /// Returns the left operand of each instruction along the rows: a descriptor or four words.
    fn left(&mut self, b: &mut Builder, batch: i64, step: i64) -> Vec<Vec<Reg>> {
        let plan = self.plan;
        let matrix = self.matrices[0];
        let blocks = 0..plan.counts[0];
        match &mut self.feed {
            LeftOperand::Descriptor(low) => {
                let start = batch * plan.matrix_bytes[0] + matrix.step(step);
                let bytes = |i: i64| start + matrix.mn_offset(i * ROWS * plan.groups[0]);
                blocks.map(|i| vec![matrix.matrix_descriptor(b, *low, bytes(i))]).collect_vec()
            }
            LeftOperand::Gather(gather) => {
                gather.step(b, batch as usize, step as usize).iter().map(|words| words.to_vec()).collect_vec()
            }
            LeftOperand::Slots(slots) => blocks
                .map(|i| plan.left.pack(b, plan.dtype, slots, [batch, i, step].map(|x| x as usize)).to_vec())
                .collect_vec(),
        }
    }

    /// Emits one instruction of a batch and step: `d` has the columns from `first` on.
    fn issue(&self, b: &mut Builder, left: &[Reg], (batch, step): (i64, i64), first: i64, d: &[Reg], add: bool) {
        let plan = self.plan;
        let matrix = self.matrices[1];
        let offset = batch * plan.matrix_bytes[1] + matrix.step(step) + matrix.mn_offset(first);
        let right = matrix.matrix_descriptor(b, self.right, offset);
        let trans = (!self.matrices[0].along_k, !matrix.along_k);
        b.wgmma(2 * d.len() as u32, plan.types, d, left, right, Operand::from(add), trans);
    }

    /// Returns true if the emission contains its own waits, and therefore is not combined with
    /// others.
    fn is_alone(&self) -> bool {
        self.plan.separate_columns.is_some() || matches!(self.feed, LeftOperand::Gather(_))
    }

    /// Returns the left operands of all steps, if they are in registers.
    fn packed(&mut self, b: &mut Builder) -> Vec<Vec<Vec<Reg>>> {
        match self.feed {
            LeftOperand::Slots(_) => {
                self.plan.order().into_iter().map(|(batch, step)| self.left(b, batch, step)).collect_vec()
            }
            _ => Vec::new(),
        }
    }

    /// Emits the instructions of a batch and step, which add directly to the accumulator.
    fn issue_step(&self, b: &mut Builder, left: &[Vec<Reg>], (batch, step): (i64, i64)) {
        let plan = self.plan;
        for i in 0..plan.counts[0] {
            for j in 0..plan.counts[1] {
                let results = |(plan, acc): &(&WgmmaPlan, &[Reg])| plan.results(acc, [batch, i, j], 0, plan.columns);
                let d: Vec<Reg> = self.accs.iter().flat_map(results).collect_vec();
                let add = self.accumulate || step > 0;
                self.issue(b, &left[i as usize], (batch, step), j * plan.columns, &d, add);
            }
        }
    }

    /// Emits instructions that add directly to the accumulator, with words that the threads load
    /// from shared memory. The loads of a step overlap with the MMAs of the previous step.
    ///
    /// Words of consecutive steps alternate between two sets of registers. A load of words follows
    /// a wait for the MMAs that read the same set, also those of the previous iteration of a loop.
    fn through(&mut self, b: &mut Builder) {
        let order = self.plan.order();
        // With an even number of steps, the last MMAs in flight read the other set.
        b.wgmma_wait_group(if order.len() % 2 == 1 { 0 } else { 1 });
        let mut ready = Some(self.left(b, order[0].0, order[0].1));
        for (position, &at) in order.iter().enumerate() {
            let left = ready.take().expect("words for each step");
            b.wgmma_fence();
            self.issue_step(b, &left, at);
            b.wgmma_commit_group();
            if let Some(&(batch, step)) = order.get(position + 1) {
                b.wgmma_wait_group(1);
                ready = Some(self.left(b, batch, step));
            }
        }
    }

    /// Emits sums over chunks of k separate from the accumulator, `width` columns at a time.
    fn separate_sums(&mut self, b: &mut Builder, width: i64) {
        let plan = self.plan;
        let [blocks, across, steps] = plan.counts;
        let (run, acc) = (SEPARATE_SUM_BYTES * plan.matrices[0].size / STEP_BYTES, self.accs[0].1);
        let sums = b.fresh_vec(RegClass::F32, width as usize / 2);
        for batch in 0..plan.batch {
            for first in (0..steps).step_by(run as usize) {
                let steps: Vec<i64> = (first..steps.min(first + run)).collect_vec();
                let left: Vec<Vec<Vec<Reg>>> = steps.iter().map(|&step| self.left(b, batch, step)).collect_vec();
                for i in 0..blocks {
                    for column in (0..across * plan.columns).step_by(width as usize) {
                        let at = [batch, i, column / plan.columns];
                        let acc = plan.results(acc, at, column % plan.columns, width);
                        // The first chunk of an MMA from zero is written to the accumulator.
                        let fresh = !self.accumulate && first == 0;
                        let d = if fresh { &acc } else { &sums };
                        b.wgmma_fence();
                        for (position, &step) in steps.iter().enumerate() {
                            let words = &left[position][i as usize];
                            self.issue(b, words, (batch, step), column, d, position > 0);
                        }
                        b.wgmma_commit_group();
                        b.wgmma_wait_group(0);
                        if !fresh {
                            for (&acc, &sum) in acc.iter().zip(&sums) {
                                let operands = [acc.into(), sum.into()];
                                b.float_to(acc, FloatOp::Add, Ty::F32, FloatMods::RN, &operands);
                            }
                        }
                    }
                }
            }
        }
    }
}
