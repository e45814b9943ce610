//! Partial results of a reduction, combined within a thread and across the lanes of a warp: one step for each bit of the
//! coordinate along the axis, which combines two halves.

use super::{Lowered, Lowering};
use crate::backend::ptx::isa::inst::{Cmp, Operand, ReduxOp, Reg, ShflMode, Special, Ty};
use crate::backend::ptx::layout_inference::AxisBits;
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::LayoutBases;
use crate::dtype::DType;
use crate::ir::{BlockId, Op, OpId, Opcode, Sign};
use crate::layout::Layout;

/// Partial results on their way to the result: one list of slots for each operand, and the images of
/// the hardware bits that still tell elements apart (0 once they do not).
pub struct Partials {
    pub dtypes: Vec<DType>,
    pub slots: Vec<Vec<Operand>>,
    pub images: LayoutBases,
}

impl Partials {
    /// The values of all operands in one slot.
    pub fn at(&self, slot: usize) -> Vec<Operand> {
        self.slots.iter().map(|slots| slots[slot]).collect()
    }
}

impl Lowering<'_> {
    pub fn no_partials(&self, id: OpId, layout: &Layout) -> Partials {
        let operands = &self.module.op(id).operands;
        Partials {
            dtypes: operands.iter().map(|&v| self.context.element_type(v)).collect(),
            slots: Vec::with_capacity(operands.len()),
            images: LayoutBases::of(layout),
        }
    }

    /// The body of a reduction on one pair of values an operand: `left` has the lower coordinates.
    pub fn combine(&mut self, body: BlockId, left: &[Operand], right: &[Operand]) -> Lowered<Vec<Operand>> {
        let module = self.module;
        let block = module.block(body);
        let mark = self.mark();
        for (index, (&accumulator, &element)) in left.iter().zip(right).enumerate() {
            self.single(block.args[2 * index], element);
            self.single(block.args[2 * index + 1], accumulator);
        }
        let (&end, ops) = block.ops.split_last().ok_or("an empty combiner")?;
        for &op in ops {
            self.op(op)?;
        }
        let mut results = Vec::with_capacity(left.len());
        for &value in &module.op(end).operands {
            results.push(self.scalar(value)?);
        }
        self.release(mark);
        Ok(results)
    }

    /// Combines the slots that differ in the register bit with this bit of the coordinate.
    pub fn reduce_registers(
        &mut self,
        body: BlockId,
        partials: &mut Partials,
        coordinate: u32,
        axis: AxisBits,
    ) -> Lowered {
        let found = partials.images.register.iter().position(|&image| axis.coordinate(image) == coordinate);
        let position = found.ok_or("a reduction lost a register bit")?;
        partials.images.register.remove(position);
        let count = partials.slots[0].len() / 2;
        let mut next: Vec<Vec<Operand>> = vec![Vec::with_capacity(count); partials.slots.len()];
        for slot in 0..count {
            let low = slot & ((1 << position) - 1);
            let left = ((slot >> position) << (position + 1)) | low;
            let combined = self.combine(body, &partials.at(left), &partials.at(left | (1 << position)))?;
            for (list, value) in next.iter_mut().zip(combined) {
                list.push(value);
            }
        }
        partials.slots = next;
        Ok(())
    }

    /// Combines so many bits of the lane's number by one instruction, where one operand of 32 bits is reduced by one op, and
    /// what the other bits tell apart are replicas that count for nothing.
    pub fn reduce_by_redux(&mut self, body: BlockId, partials: &mut Partials, lanes: usize) -> bool {
        let Some((how, ty)) = self.redux_of(body) else { return false };
        if !self.context.folds_at_once(body, &partials.dtypes, (lanes, &partials.images)) {
            return false;
        }
        for slot in &mut partials.slots[0] {
            *slot = self.b.redux(how, ty, *slot);
        }
        partials.images.lane.fill(0);
        true
    }

    /// The combination of `redux` that a region of one op does.
    fn redux_of(&self, body: BlockId) -> Option<(ReduxOp, Ty)> {
        let [op, _] = self.module.block(body).ops[..] else { return None };
        let op = self.module.op(op);
        let extreme = |op: &Op| if op.sign() == Sign::Signed { Ty::S32 } else { Ty::U32 };
        Some(match op.code {
            Opcode::AddI => (ReduxOp::Add, Ty::U32),
            Opcode::MinI => (ReduxOp::Min, extreme(op)),
            Opcode::MaxI => (ReduxOp::Max, extreme(op)),
            Opcode::AndI => (ReduxOp::And, Ty::B32),
            Opcode::OrI => (ReduxOp::Or, Ty::B32),
            Opcode::XorI => (ReduxOp::Xor, Ty::B32),
            _ => return None,
        })
    }

    /// Is the lane's bit set?
    pub fn lane_bit(&mut self, lane: usize) -> Reg {
        let tid = self.b.special(Special::TidX);
        let field = self.b.and(Ty::B32, tid, 1u32 << lane);
        self.b.setp(Cmp::Ne, Ty::B32, field, 0)
    }

    /// The values, one an operand, of the lane that differs in one bit.
    fn of_other_lane(&mut self, dtypes: &[DType], values: &[Operand], lane: usize) -> Vec<Operand> {
        let mut theirs = Vec::with_capacity(values.len());
        for (&value, &dtype) in values.iter().zip(dtypes) {
            let words = self.pack_words(dtype, &[value]);
            let words: Vec<Operand> =
                words.into_iter().map(|word| self.b.shfl(ShflMode::Bfly, word, 1u32 << lane)).collect();
            theirs.push(self.unpack_words(dtype, &words, 1)[0]);
        }
        theirs
    }

    /// For each operand the one or the other value: `yes` where the condition holds.
    fn choose(&mut self, dtypes: &[DType], condition: Reg, yes: &[Operand], no: &[Operand]) -> Vec<Operand> {
        let values = yes.iter().zip(no).zip(dtypes);
        values.map(|((&yes, &no), &dtype)| self.b.select(repr::class(dtype), condition, yes, no)).collect()
    }

    /// Combines the slots of two lanes that differ in one bit, each lane those of one half: of the slots that the
    /// register bit with this bit of the coordinate tells apart.
    pub fn share_lane(
        &mut self,
        body: BlockId,
        partials: &mut Partials,
        lane: usize,
        coordinate: u32,
        axis: AxisBits,
    ) -> Lowered {
        let is_right = self.lane_bit(lane);
        let found = partials.images.register.iter().position(|&image| axis.coordinate(image) == coordinate);
        let position = found.ok_or("a reduction lost a register bit")?;
        let image = partials.images.register.remove(position);
        let dtypes = partials.dtypes.clone();
        let count = partials.slots[0].len() / 2;
        let mut next: Vec<Vec<Operand>> = vec![Vec::with_capacity(count); partials.slots.len()];
        for slot in 0..count {
            let low = slot & ((1 << position) - 1);
            let first = ((slot >> position) << (position + 1)) | low;
            let [first, second] = [first, first | (1 << position)].map(|slot| partials.at(slot));
            let given = self.choose(&dtypes, is_right, &first, &second);
            let mine = self.choose(&dtypes, is_right, &second, &first);
            let theirs = self.of_other_lane(&dtypes, &given, lane);
            let left = self.choose(&dtypes, is_right, &theirs, &mine);
            let right = self.choose(&dtypes, is_right, &mine, &theirs);
            let combined = self.combine(body, &left, &right)?;
            for (list, value) in next.iter_mut().zip(combined) {
                list.push(value);
            }
        }
        partials.slots = next;
        partials.images.lane[lane] = image;
        Ok(())
    }

    /// Combines each slot with that of the lane that differs in one bit.
    pub fn reduce_lane(&mut self, body: BlockId, partials: &mut Partials, lane: usize, ordered: bool) -> Lowered {
        let is_right = ordered.then(|| self.lane_bit(lane));
        let dtypes = partials.dtypes.clone();
        for slot in 0..partials.slots[0].len() {
            let mine = partials.at(slot);
            let theirs = self.of_other_lane(&dtypes, &mine, lane);
            let combined = match is_right {
                None => self.combine(body, &mine, &theirs)?,
                Some(is_right) => {
                    let left = self.choose(&dtypes, is_right, &theirs, &mine);
                    let right = self.choose(&dtypes, is_right, &mine, &theirs);
                    self.combine(body, &left, &right)?
                }
            };
            for (list, value) in partials.slots.iter_mut().zip(combined) {
                list[slot] = value;
            }
        }
        partials.images.lane[lane] = 0;
        Ok(())
    }
}
