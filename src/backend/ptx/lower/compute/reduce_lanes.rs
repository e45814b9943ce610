//! Partial reductions within a thread and a warp (`redux.sync`, shuffles).
//!
//! Each step combines two halves that differ in one bit of the coordinate along the axis.

use crate::backend::ptx::isa::inst::{Cmp, Operand, ReduxOp, Reg, ShflMode, Special, Ty};
use crate::backend::ptx::layout_inference::AxisBits;
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::LayoutBases;
use crate::dtype::DType;
use crate::ir::{BlockId, Op, OpId, Opcode, Sign};
use crate::layout::Layout;
use crate::util::collect::CollectVec as _;

/// Error of a reduction step without its register bit.
const LOST_REGISTER_BIT: &str = "a reduction lost a register bit";

/// Partial results of a reduction: a list of registers for each operand.
///
/// The bases have those bits of register, lane and warp numbers that still distinguish elements; 0
/// for reduced bits.
pub struct ReductionPartials {
    pub dtypes: Vec<DType>,
    pub regs: Vec<Vec<Operand>>,
    pub bases: LayoutBases,
}

impl ReductionPartials {
    /// Returns the values of all operands in one register.
    pub fn at(&self, register: usize) -> Vec<Operand> {
        self.regs.iter().map(|regs| regs[register]).collect_vec()
    }
}

impl Lowering<'_> {
    /// Returns partial results without registers, for the operands of a reduction.
    pub fn empty_partials(&self, id: OpId, layout: &Layout) -> ReductionPartials {
        let operands = &self.module.op(id).operands;
        ReductionPartials {
            dtypes: operands.iter().map(|&v| self.info.element_type(v)).collect_vec(),
            regs: Vec::with_capacity(operands.len()),
            bases: LayoutBases::of(layout),
        }
    }

    /// Lowers the combiner of a reduction on a pair of values for each operand. `left` has the
    /// lower coordinates.
    pub fn combine(&mut self, body: BlockId, left: &[Operand], right: &[Operand]) -> Lowered<Vec<Operand>> {
        let module = self.module;
        let block = module.block(body);
        let mark = self.mark();
        for (index, (&accumulator, &element)) in left.iter().zip(right).enumerate() {
            self.define_scalar(block.args[2 * index], element);
            self.define_scalar(block.args[2 * index + 1], accumulator);
        }
        let (&end, ops) = block.ops.split_last().ok_or("an empty combiner")?;
        for &op in ops {
            self.nested_op(op)?;
        }
        let mut results = Vec::with_capacity(left.len());
        for &value in &module.op(end).operands {
            results.push(self.scalar(value)?);
        }
        self.release(mark);
        Ok(results)
    }

    /// Combines registers that differ in the register bit of this coordinate bit.
    pub fn reduce_registers(
        &mut self,
        body: BlockId,
        partials: &mut ReductionPartials,
        coordinate: u32,
        axis: AxisBits,
    ) -> Lowered {
        let (position, _) = partials.bases.remove_register(coordinate, axis).ok_or(LOST_REGISTER_BIT)?;
        let count = partials.regs[0].len() / 2;
        let mut next: Vec<Vec<Operand>> = vec![Vec::with_capacity(count); partials.regs.len()];
        for slot in 0..count {
            let low = slot & ((1 << position) - 1);
            let left = ((slot >> position) << (position + 1)) | low;
            let combined = self.combine(body, &partials.at(left), &partials.at(left | (1 << position)))?;
            for (list, value) in next.iter_mut().zip(combined) {
                list.push(value);
            }
        }
        partials.regs = next;
        Ok(())
    }

    /// Reduces this number of lane bits by one `redux.sync` instruction, if there is one for the
    /// combiner.
    ///
    /// The other lane bits must distinguish replicas only. Returns false if nothing was emitted.
    pub fn reduce_by_redux(&mut self, body: BlockId, partials: &mut ReductionPartials, lanes: usize) -> bool {
        let Some((how, ty)) = self.redux_of(body) else { return false };
        if !self.info.is_warp_redux(body, &partials.dtypes, (lanes, &partials.bases)) {
            return false;
        }
        for register in &mut partials.regs[0] {
            *register = self.b.redux(how, ty, *register);
        }
        partials.bases.lane.fill(0);
        true
    }

    /// Returns the `redux.sync` operation of a combiner with one op.
    fn redux_of(&self, body: BlockId) -> Option<(ReduxOp, Ty)> {
        let [op, _] = self.module.block(body).ops[..] else { return None };
        let op = self.module.op(op);
        let minmax_type = |op: &Op| if op.sign() == Sign::Signed { Ty::S32 } else { Ty::U32 };
        Some(match op.code {
            Opcode::AddI => (ReduxOp::Add, Ty::U32),
            Opcode::MinI => (ReduxOp::Min, minmax_type(op)),
            Opcode::MaxI => (ReduxOp::Max, minmax_type(op)),
            Opcode::AndI => (ReduxOp::And, Ty::B32),
            Opcode::OrI => (ReduxOp::Or, Ty::B32),
            Opcode::XorI => (ReduxOp::Xor, Ty::B32),
            _ => return None,
        })
    }

    /// Returns a predicate: this bit of the lane number is set.
    pub fn lane_bit(&mut self, lane: usize) -> Reg {
        let tid = self.b.special(Special::TidX);
        let field = self.b.and(Ty::B32, tid, 1u32 << lane);
        self.b.setp(Cmp::Ne, Ty::B32, field, 0)
    }

    /// Returns the values of the lane that differs in one bit.
    fn read_other_lane(&mut self, dtypes: &[DType], values: &[Operand], lane: usize) -> Vec<Operand> {
        let mut theirs = Vec::with_capacity(values.len());
        for (&value, &dtype) in values.iter().zip(dtypes) {
            let words = self.pack_words(dtype, &[value]);
            let words: Vec<Operand> =
                words.into_iter().map(|word| self.b.shfl(ShflMode::Bfly, word, 1u32 << lane)).collect_vec();
            theirs.push(self.unpack_words(dtype, &words, 1)[0]);
        }
        theirs
    }

    /// Selects, for each operand, `yes` if the condition is true.
    fn select_values(&mut self, dtypes: &[DType], condition: Reg, yes: &[Operand], no: &[Operand]) -> Vec<Operand> {
        let values = yes.iter().zip(no).zip(dtypes);
        values.map(|((&yes, &no), &dtype)| self.b.select(repr::class(dtype), condition, yes, no)).collect_vec()
    }

    /// Combines registers of two lanes that differ in one bit; each lane combines one half.
    ///
    /// The halves differ in the register bit of this coordinate bit.
    pub fn split_lane(
        &mut self,
        body: BlockId,
        partials: &mut ReductionPartials,
        lane: usize,
        coordinate: u32,
        axis: AxisBits,
    ) -> Lowered {
        let is_right = self.lane_bit(lane);
        let (position, basis) = partials.bases.remove_register(coordinate, axis).ok_or(LOST_REGISTER_BIT)?;
        let dtypes = partials.dtypes.clone();
        let count = partials.regs[0].len() / 2;
        let mut next: Vec<Vec<Operand>> = vec![Vec::with_capacity(count); partials.regs.len()];
        for slot in 0..count {
            let low = slot & ((1 << position) - 1);
            let first = ((slot >> position) << (position + 1)) | low;
            let [first, second] = [first, first | (1 << position)].map(|slot| partials.at(slot));
            let given = self.select_values(&dtypes, is_right, &first, &second);
            let mine = self.select_values(&dtypes, is_right, &second, &first);
            let theirs = self.read_other_lane(&dtypes, &given, lane);
            let left = self.select_values(&dtypes, is_right, &theirs, &mine);
            let right = self.select_values(&dtypes, is_right, &mine, &theirs);
            let combined = self.combine(body, &left, &right)?;
            for (list, value) in next.iter_mut().zip(combined) {
                list.push(value);
            }
        }
        partials.regs = next;
        partials.bases.lane[lane] = basis;
        Ok(())
    }

    /// Combines each register with that of the lane that differs in one bit.
    pub fn reduce_lane(
        &mut self,
        body: BlockId,
        partials: &mut ReductionPartials,
        lane: usize,
        ordered: bool,
    ) -> Lowered {
        let is_right = ordered.then(|| self.lane_bit(lane));
        let dtypes = partials.dtypes.clone();
        for register in 0..partials.regs[0].len() {
            let mine = partials.at(register);
            let theirs = self.read_other_lane(&dtypes, &mine, lane);
            let combined = match is_right {
                None => self.combine(body, &mine, &theirs)?,
                Some(is_right) => {
                    let left = self.select_values(&dtypes, is_right, &theirs, &mine);
                    let right = self.select_values(&dtypes, is_right, &mine, &theirs);
                    self.combine(body, &left, &right)?
                }
            };
            for (list, value) in partials.regs.iter_mut().zip(combined) {
                list[register] = value;
            }
        }
        partials.bases.lane[lane] = 0;
        Ok(())
    }
}
