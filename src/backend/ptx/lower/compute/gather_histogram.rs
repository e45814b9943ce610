//! `gather` along an axis, and `histogram`.
//!
//! * If a line along the axis belongs to one warp, lanes exchange elements: one shuffle for each
//!   register that may contain the element, then selects.
//! * Otherwise the tile is stored to shared memory in row-major order, and each thread loads its
//!   elements.
//! * A histogram is computed in shared memory by atomics. Several copies of the bins reduce
//!   conflicts of lanes with equal numbers.

use crate::backend::ptx::isa::inst::{AtomOp, Cmp, Operand, RegClass, Scope, Sem, ShflMode, Space, Special, Ty};
use crate::backend::ptx::layout_inference::{AxisLines, LaneGather, replica_bits, thread_bases};
use crate::backend::ptx::lower::state::core::SCHEDULE_MISMATCH;
use crate::backend::ptx::lower::state::vector_access;
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::schedule::COPY_PADDING_WORDS;
use crate::backend::ptx::smem::allocation::Buffer;
use crate::dtype::DType;
use crate::ir::{OpId, Value};
use crate::layout::{Layout, Side};
use crate::util::collect::CollectVec as _;

impl Lowering<'_> {
    /// Lowers `gather`.
    pub fn gather(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let (source, positions, result) = (op.operands[0], op.operands[1], op.results[0]);
        let axis = op.dim() as usize;
        let Tile { layout: source_layout, regs } = self.operand()?;
        let Tile { layout, regs: at } = self.operand()?;
        let at = self.clamp_positions(positions, at.to_vec(), self.module.shape(source)[axis]);
        let dtype = self.info.element_type(source);
        let values = match self.smem.split() {
            Some([rounds, _]) => {
                self.gather_by_smem(dtype, &regs, [&source_layout, &layout], (axis, rounds as usize), &at)?
            }
            None => {
                let handing = LaneGather::of(&source_layout, &layout, axis).ok_or("no lane has what is looked up")?;
                self.gather_by_shuffle(dtype, &regs, &handing, &at)
            }
        };
        self.values.define(result, Tile { layout, regs: values.into() });
        Ok(())
    }

    /// Clamps positions to the range from 0 to `extent` - 1.
    fn clamp_positions(&mut self, positions: Value, at: Vec<Operand>, extent: i64) -> Vec<Operand> {
        let range = self.info.inference.int_ranges.range(positions);
        if range.is_some_and(|range| range.lo >= 0 && range.hi < extent) {
            return at;
        }
        let clamp = |at| {
            let from = self.b.max(Ty::S32, at, 0);
            self.b.min(Ty::S32, from, extent - 1)
        };
        at.into_iter().map(clamp).collect_vec()
    }

    /// Loads the elements at positions from other lanes of the warp.
    fn gather_by_shuffle(
        &mut self,
        dtype: DType,
        regs: &[Operand],
        handing: &LaneGather,
        at: &[Operand],
    ) -> Vec<Operand> {
        let words: Vec<Vec<Operand>> = regs.iter().map(|&register| self.pack_words(dtype, &[register])).collect_vec();
        let registers: Vec<(usize, usize)> = handing.registers().collect_vec();
        let mut values = Vec::with_capacity(at.len());
        for (&at, &line) in at.iter().zip(&handing.lines) {
            let lane = self.source_lane(handing, at);
            let candidate = |number: usize| {
                let bits = registers.iter().enumerate().filter(|(i, _)| number >> i & 1 == 1);
                line | bits.map(|(_, (_, bit))| 1 << bit).sum::<usize>()
            };
            let mut left: Vec<Vec<Operand>> =
                (0..1 << registers.len()).map(|number| words[candidate(number)].clone()).collect_vec();
            if let Some(lane) = lane {
                let all = left
                    .into_iter()
                    .map(|words| words.into_iter().map(|word| self.b.shfl(ShflMode::Idx, word, lane)).collect_vec());
                left = all.collect_vec();
                self.report.remarks.shuffle_conversions += 1;
            }
            // Each bit of the position halves the candidates.
            for &(position, _) in &registers {
                let bit = self.b.and(Ty::B32, at, 1i64 << position);
                let is_second = self.b.setp(Cmp::Ne, Ty::B32, bit, 0);
                let pick = |pair: &[Vec<Operand>]| {
                    let words = pair[0].iter().zip(&pair[1]);
                    words.map(|(&a, &b)| self.b.select(RegClass::B32, is_second, b, a)).collect_vec()
                };
                left = left.chunks(2).map(pick).collect_vec();
            }
            values.extend(self.unpack_words(dtype, &left[0], 1));
        }
        values
    }

    /// Returns the lane that has the element at a position; `None` if it is in the same lane.
    fn source_lane(&mut self, handing: &LaneGather, at: Operand) -> Option<Operand> {
        let lanes: Vec<(usize, usize)> = handing.lanes().collect_vec();
        let mask = lanes.iter().map(|(_, lane)| 1u32 << lane).sum::<u32>();
        if mask == 0 {
            return None;
        }
        let own = self.lane();
        let mut lane = self.b.and(Ty::B32, own, 31 & !mask);
        // Adjacent bits are moved together.
        for run in lanes.chunk_by(|(p, l), (q, m)| (p + 1, l + 1) == (*q, *m)) {
            let (position, first) = run[0];
            let bits = self.b.and(Ty::B32, at, ((1i64 << run.len()) - 1) << position);
            let field = match first.checked_sub(position) {
                Some(up) => self.b.shl(Ty::B32, bits, up as u32),
                None => self.b.shr(Ty::U32, bits, (position - first) as u32),
            };
            lane = self.b.or(Ty::B32, lane, field);
        }
        Some(lane)
    }

    /// Loads the elements at positions from a copy of the tile in shared memory.
    fn gather_by_smem(
        &mut self,
        dtype: DType,
        regs: &[Operand],
        [source_layout, layout]: [&Layout; 2],
        (axis, rounds): (usize, usize),
        at: &[Operand],
    ) -> Lowered<Vec<Operand>> {
        self.report.remarks.smem_conversions += 1;
        let size = vector_access::run_bytes(vector_access::shared_type(dtype), 1);
        let side = Side::in_order(source_layout, size as usize, rounds);
        let owner = self.owner_of(side.replicated);
        let [from, to] = [source_layout, layout].map(|layout| AxisLines::of(layout.shape(), axis));
        let first = |basis: u32| from.first(to.line(basis));
        let bases: Vec<u32> = thread_bases(layout).into_iter().map(first).collect_vec();
        let in_thread = bases.iter().fold(0, |all, basis| all | basis);
        let thread = self.linear_in_thread(&bases);
        let part = (source_layout.num_elements() / rounds) as u32;
        let smem = self.b.reg(Operand::Smem, RegClass::B32);
        let mut values = vec![Operand::Imm(0); at.len()];
        for round in 0..rounds {
            let buffer = self.next_write_buffer()?;
            self.store_side(buffer, dtype, regs, &side, round, owner);
            self.begin_read(buffer)?;
            for (register, &at) in at.iter().enumerate() {
                let line = first(layout.element(register, 0, 0));
                let own = self.b.xor(Ty::B32, thread, line & in_thread);
                let rest = line & !in_thread;
                let old = [values[register]];
                let (addr, guard) = if rounds == 1 {
                    let bytes = self.b.mul(Ty::U32, own, size);
                    let own = self.b.add(Ty::S32, smem, bytes);
                    let base = self.b.mad(Ty::S32, at, from.inner * size, own);
                    (self.b.address(base, 0).plus(i64::from(buffer.offset + rest * size)), None)
                } else {
                    let own = self.b.add(Ty::U32, own, rest);
                    let element = self.b.mad(Ty::S32, at, from.inner, own);
                    let number = self.b.shr(Ty::U32, element, part.trailing_zeros());
                    let within = self.b.and(Ty::B32, element, part - 1);
                    let offset = self.b.mul(Ty::U32, within, size);
                    let is_now = self.b.setp(Cmp::Eq, Ty::B32, number, round as u32);
                    (self.shared_address(buffer, offset, 0, 0), Some(is_now))
                };
                values[register] = self.loaded(Space::Shared, vector_access::shared_type(dtype), &addr, guard, &old)[0];
            }
        }
        Ok(values)
    }

    /// Lowers `histogram`.
    pub fn histogram(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let (source, result) = (op.operands[0], op.results[0]);
        let Tile { layout: source_layout, regs: numbers } = self.operand()?;
        let layout = self.info.inference.layout(result).cloned().ok_or("a result without a layout")?;
        let [rounds, copies] = self.smem.split().ok_or(SCHEDULE_MISMATCH)?.map(|number| number as usize);
        let part = layout.num_elements() / rounds;
        let row = (part + COPY_PADDING_WORDS) * 4;
        let side = Side::in_order(&layout, 4, rounds);
        let owner = self.owner_of(replica_bits(&source_layout));
        let tid = self.b.special(Special::TidX);
        let copy = self.b.and(Ty::B32, tid, copies as u32 - 1);
        let copy = self.b.mul(Ty::U32, copy, row as u32);
        let is_inside =
            self.info.inference.int_ranges.range(source).is_some_and(|range| range.lo >= 0 && range.hi < part as i64);
        let mut counts = vec![Operand::Imm(0); layout.num_registers()];
        for round in 0..rounds {
            let buffer = self.next_write_buffer()?;
            self.clear(buffer);
            self.begin_rewrite(buffer)?;
            for &number in numbers.iter() {
                let number = self.b.sub(Ty::S32, number, (round * part) as i64);
                let mut guard = owner;
                if !(is_inside && rounds == 1) {
                    let counts = self.b.setp(Cmp::Lt, Ty::U32, number, part as u32);
                    guard = Some(owner.map_or(counts, |owner| self.b.and(Ty::Pred, owner, counts).reg()));
                }
                let offset = self.b.mad(Ty::S32, number, 4, copy);
                let addr = self.shared_address(buffer, offset, 0, 0);
                let order = (Sem::Relaxed, Scope::Cta);
                let one = [Operand::Imm(1)];
                self.b.guarded_if(guard, |b| b.red(AtomOp::Add, Ty::U32, Space::Shared, order, &addr, &one));
            }
            self.begin_read(buffer)?;
            let mut sum: Option<Vec<Operand>> = None;
            for copy in 0..copies {
                let mut read = counts.clone();
                let own = Buffer { offset: buffer.offset + (copy * row) as u32, bytes: row as u32 };
                self.load_side(own, DType::I32, &mut read, &side, round);
                sum = Some(match sum {
                    None => read,
                    Some(sum) => sum.iter().zip(&read).map(|(&a, &b)| self.b.add(Ty::U32, a, b)).collect_vec(),
                });
            }
            counts = sum.unwrap_or(counts);
        }
        self.values.define(result, Tile { layout, regs: counts.into() });
        Ok(())
    }
}
