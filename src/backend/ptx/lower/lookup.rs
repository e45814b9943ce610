//! Elements by their positions along an axis, and counts of numbers.
//!
//! Where a line along the axis lies in a warp, lanes hand each other what is asked for: one shuffle for each register in which
//! it may be, and choices between those. Else the tile is put into shared memory in the order of its elements, and each thread
//! looks up its own. Numbers are counted there, by atomics: a few copies of the counts keep lanes that count the same number
//! apart.

use super::within::OTHERWISE;
use super::{Lowered, Lowering, Tile};
use crate::backend::ptx::isa::inst::{
    AtomOp, Cmp, MemMods, Operand, RegClass, Scope, Sem, ShflMode, Space, Special, Ty,
};
use crate::backend::ptx::layout_inference::{AxisLines, LaneGather, replica_bits, thread_images};
use crate::backend::ptx::schedule::APART;
use crate::backend::ptx::smem::allocation::Buffer;
use crate::dtype::DType;
use crate::ir::{OpId, Value};
use crate::layout::{Layout, Side};

impl Lowering<'_> {
    /// `gather`.
    pub fn gather_tile(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let (source, positions, result) = (op.operands[0], op.operands[1], op.results[0]);
        let axis = op.dim() as usize;
        let held = self.context.inference.accesses[&id].clone();
        let layout = self.context.inference.layout(result).cloned().ok_or("a result without a layout")?;
        let slots = self.get(source, &held)?;
        let at = self.get(positions, &layout)?.to_vec();
        let at = self.kept_inside(positions, at, self.module.shape(source)[axis]);
        let dtype = self.context.element_type(source);
        let values = match self.parts() {
            Some([rounds, _]) => self.looked_up(dtype, &slots, [&held, &layout], (axis, rounds as usize), &at)?,
            None => {
                let handing = LaneGather::of(&held, &layout, axis).ok_or("no lane has what is looked up")?;
                self.handed_over(dtype, &slots, &handing, &at)
            }
        };
        self.tiles[result.index()] = Some(Tile { layout, slots: values.into() });
        Ok(())
    }

    /// Positions from 0 to below `extent`: of those outside the nearest one.
    fn kept_inside(&mut self, positions: Value, at: Vec<Operand>, extent: i64) -> Vec<Operand> {
        let range = self.context.inference.facts.range(positions);
        if range.is_some_and(|range| range.lo >= 0 && range.hi < extent) {
            return at;
        }
        let clamp = |at| {
            let from = self.b.max(Ty::S32, at, 0);
            self.b.min(Ty::S32, from, extent - 1)
        };
        at.into_iter().map(clamp).collect()
    }

    /// The elements at positions, from the lanes of the warp that have them.
    fn handed_over(&mut self, dtype: DType, slots: &[Operand], handing: &LaneGather, at: &[Operand]) -> Vec<Operand> {
        let words: Vec<Vec<Operand>> = slots.iter().map(|&slot| self.pack_words(dtype, &[slot])).collect();
        let registers: Vec<(usize, usize)> = handing.registers().collect();
        let mut values = Vec::with_capacity(at.len());
        for (&at, &line) in at.iter().zip(&handing.lines) {
            let lane = self.lane_at(handing, at);
            let candidate = |number: usize| {
                let bits = registers.iter().enumerate().filter(|(i, _)| number >> i & 1 == 1);
                line | bits.map(|(_, (_, bit))| 1 << bit).sum::<usize>()
            };
            let mut left: Vec<Vec<Operand>> =
                (0..1 << registers.len()).map(|number| words[candidate(number)].clone()).collect();
            if let Some(lane) = lane {
                let all = left
                    .into_iter()
                    .map(|words| words.into_iter().map(|word| self.b.shfl(ShflMode::Idx, word, lane)).collect());
                left = all.collect();
                self.remarks.shuffled += 1;
            }
            // Each bit of the position halves what is left.
            for &(position, _) in &registers {
                let bit = self.b.and(Ty::B32, at, 1i64 << position);
                let is_second = self.b.setp(Cmp::Ne, Ty::B32, bit, 0);
                let pick = |pair: &[Vec<Operand>]| {
                    let words = pair[0].iter().zip(&pair[1]);
                    words.map(|(&a, &b)| self.b.select(RegClass::B32, is_second, b, a)).collect()
                };
                left = left.chunks(2).map(pick).collect();
            }
            values.extend(self.unpack_words(dtype, &left[0], 1));
        }
        values
    }

    /// The lane that has the element at a position; none where each lane has its own.
    fn lane_at(&mut self, handing: &LaneGather, at: Operand) -> Option<Operand> {
        let lanes: Vec<(usize, usize)> = handing.lanes().collect();
        let mask = lanes.iter().map(|(_, lane)| 1u32 << lane).sum::<u32>();
        if mask == 0 {
            return None;
        }
        let own = self.lane();
        let mut lane = self.b.and(Ty::B32, own, 31 & !mask);
        // Neighbouring bits of both go together.
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

    /// The elements at positions, from a copy of the tile in shared memory.
    fn looked_up(
        &mut self,
        dtype: DType,
        slots: &[Operand],
        [held, layout]: [&Layout; 2],
        (axis, rounds): (usize, usize),
        at: &[Operand],
    ) -> Lowered<Vec<Operand>> {
        self.remarks.through_shared += 1;
        let size = super::vector::run_bytes(super::vector::shared_type(dtype), 1);
        let side = Side::in_order(held, size as usize, rounds);
        let owner = self.owner_of(side.replicated);
        let [from, to] = [held, layout].map(|layout| AxisLines::of(layout.shape(), axis));
        let first = |image: u32| from.first(to.line(image));
        let images: Vec<u32> = thread_images(layout).into_iter().map(first).collect();
        let in_thread = images.iter().fold(0, |all, image| all | image);
        let thread = self.linear_in_thread(&images);
        let part = (held.num_elements() / rounds) as u32;
        let smem = self.b.reg(Operand::Smem, RegClass::B32);
        let mut values = vec![Operand::Imm(0); at.len()];
        for round in 0..rounds {
            let buffer = self.begin_write()?;
            self.store_side(buffer, dtype, slots, &side, round, owner);
            self.begin_read()?;
            for (slot, &at) in at.iter().enumerate() {
                let line = first(layout.element(slot, 0, 0));
                let own = self.b.xor(Ty::B32, thread, line & in_thread);
                let rest = line & !in_thread;
                let old = [values[slot]];
                let (addr, guard) = if rounds == 1 {
                    let bytes = self.b.mul(Ty::U32, own, size);
                    let own = self.b.add(Ty::S32, smem, bytes);
                    let place = self.b.mad(Ty::S32, at, from.inner * size, own);
                    (self.b.address(place, 0).plus(i64::from(buffer.offset + rest * size)), None)
                } else {
                    let own = self.b.add(Ty::U32, own, rest);
                    let element = self.b.mad(Ty::S32, at, from.inner, own);
                    let number = self.b.shr(Ty::U32, element, part.trailing_zeros());
                    let within = self.b.and(Ty::B32, element, part - 1);
                    let place = self.b.mul(Ty::U32, within, size);
                    let is_now = self.b.setp(Cmp::Eq, Ty::B32, number, round as u32);
                    (self.shared_place(buffer, place, 0, 0), Some(is_now))
                };
                values[slot] = self.loaded(super::vector::shared_type(dtype), &addr, guard, &old)[0];
            }
        }
        Ok(values)
    }

    /// `histogram`.
    pub fn histogram(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let (source, result) = (op.operands[0], op.results[0]);
        let held = self.context.inference.accesses[&id].clone();
        let layout = self.context.inference.layout(result).cloned().ok_or("a result without a layout")?;
        let numbers = self.get(source, &held)?;
        let [rounds, copies] = self.parts().ok_or(OTHERWISE)?.map(|number| number as usize);
        let part = layout.num_elements() / rounds;
        let row = (part + APART) * 4;
        let side = Side::in_order(&layout, 4, rounds);
        let owner = self.owner_of(replica_bits(&held));
        let tid = self.b.special(Special::TidX);
        let copy = self.b.and(Ty::B32, tid, copies as u32 - 1);
        let copy = self.b.mul(Ty::U32, copy, row as u32);
        let is_inside =
            self.context.inference.facts.range(source).is_some_and(|range| range.lo >= 0 && range.hi < part as i64);
        let mut counts = vec![Operand::Imm(0); layout.num_registers()];
        for round in 0..rounds {
            let buffer = self.begin_write()?;
            self.clear(buffer);
            self.begin_write()?;
            for &number in numbers.iter() {
                let number = self.b.sub(Ty::S32, number, (round * part) as i64);
                let mut guard = owner;
                if !(is_inside && rounds == 1) {
                    let counts = self.b.setp(Cmp::Lt, Ty::U32, number, part as u32);
                    guard = Some(owner.map_or(counts, |owner| self.b.and(Ty::Pred, owner, counts).reg()));
                }
                let place = self.b.mad(Ty::S32, number, 4, copy);
                let addr = self.shared_place(buffer, place, 0, 0);
                let order = (Sem::Relaxed, Scope::Cta);
                let one = [Operand::Imm(1)];
                self.b.guarded_if(guard, |b| b.red(AtomOp::Add, Ty::U32, Space::Shared, order, &addr, &one));
            }
            self.begin_read()?;
            let mut sum: Option<Vec<Operand>> = None;
            for copy in 0..copies {
                let mut read = counts.clone();
                let own = Buffer { offset: buffer.offset + (copy * row) as u32, bytes: row as u32 };
                self.load_side(own, DType::I32, &mut read, &side, round);
                sum = Some(match sum {
                    None => read,
                    Some(sum) => sum.iter().zip(&read).map(|(&a, &b)| self.b.add(Ty::U32, a, b)).collect(),
                });
            }
            counts = sum.unwrap_or(counts);
        }
        self.tiles[result.index()] = Some(Tile { layout, slots: counts.into() });
        Ok(())
    }

    /// Zeros in all of a buffer.
    pub fn clear(&mut self, buffer: Buffer) {
        self.each_in_turn(buffer.bytes / 16, 16, &mut |this, offset| {
            let addr = this.b.address(Operand::Smem, offset).plus(i64::from(buffer.offset));
            this.b.st_vec(Space::Shared, Ty::B32, &addr, &[Operand::Imm(0); 4], MemMods::default());
        });
    }
}
