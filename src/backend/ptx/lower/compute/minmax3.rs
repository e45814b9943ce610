//! Three-input integer min and max for f32 reductions (sm_90).
//!
//! While tensor cores are active, a float comparison takes more than four cycles. An integer `max`
//! of three operands is one instruction (ptxas combines two `max`), so it is faster for the row
//! maximum of a softmax. Correctness:
//! * Non-negative floats have the order of their bits, and are greater than all negative ones as
//!   signed integers. The largest signed integer is therefore the maximum if one number is
//!   non-negative.
//! * The smallest number is the one with the largest unsigned bits if one number is negative.
//!
//! The sign of the result shows whether the condition holds. If it fails in any lane of the warp,
//! or if there is a NaN, the warp repeats the reduction with float instructions.

use super::reduce_lanes::ReductionPartials;
use crate::backend::ptx::isa::inst::{Cmp, IntOp, Operand, Reg, RegClass, ShflMode, Ty, VoteMode};
use crate::backend::ptx::layout_inference::AxisBits;
use crate::backend::ptx::lower::{Lowered, Lowering};
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::ReductionStep;
use crate::dtype::DType;
use crate::ir::{BlockId, Flag, Opcode};
use crate::util::collect::CollectVec as _;

/// Bits of infinity. The bits of a NaN are larger.
const INFINITY: u32 = 0x7f80_0000;
/// Sign bit.
const SIGN: u32 = 0x8000_0000;
/// Minimum log2 of the elements per thread for which the final test is profitable.
const MIN_LOG2_ELEMENTS: usize = 4;
/// Number of independent dependency chains.
const CHAINS: usize = 3;

/// Order of floats as integers.
#[derive(Clone, Copy)]
enum MinMax {
    Largest,
    Smallest,
}

impl MinMax {
    fn ty(self) -> Ty {
        match self {
            MinMax::Largest => Ty::S32,
            MinMax::Smallest => Ty::U32,
        }
    }
}

impl Lowering<'_> {
    /// Lowers the reduction steps before the first cross-warp step with integers.
    ///
    /// Returns the number of these steps; 0 if the reduction is not suitable.
    pub fn reduce_minmax3(
        &mut self,
        body: BlockId,
        partials: &mut ReductionPartials,
        folds: &[ReductionStep],
        axis: AxisBits,
        ordered: bool,
    ) -> Lowered<usize> {
        let Some(minmax) = self.minmax_of(body, partials).filter(|_| !ordered) else { return Ok(0) };
        let within = folds.iter().take_while(|fold| !matches!(fold, ReductionStep::CrossWarp(_))).count();
        let registers = folds.iter().take_while(|fold| matches!(fold, ReductionStep::Registers(_))).count();
        let lanes: Option<Vec<usize>> = folds[registers..within]
            .iter()
            .map(|fold| if let ReductionStep::LaneShuffle(lane) = fold { Some(*lane) } else { None })
            .collect();
        let along = partials.bases.register.iter().filter(|&&basis| axis.coordinate(basis) != 0).count();
        let Some(lanes) = lanes.filter(|_| registers >= MIN_LOG2_ELEMENTS && registers == along) else { return Ok(0) };

        let found = self.minmax_of_bits(minmax, partials, axis, &lanes);
        let number = |bits: &Operand| self.b.copy(bits.reg().as_class(RegClass::F32), RegClass::F32);
        let results: Vec<Reg> = found.iter().map(number).collect_vec();
        let again = self.is_inexact(minmax, &found);
        let sure = self.b.new_label();
        self.b.bra_if(again, true, sure, true);
        let mark = self.mark();
        for fold in &folds[..within] {
            match *fold {
                ReductionStep::Registers(coordinate) => self.reduce_registers(body, partials, coordinate, axis)?,
                ReductionStep::LaneShuffle(lane) => self.reduce_lane(body, partials, lane, false)?,
                _ => {
                    return Err("internal error: a reduction step without an integer form; please report it".into());
                }
            }
        }
        for (&result, &exact) in results.iter().zip(&partials.regs[0]) {
            self.b.mov_to(result, exact);
        }
        self.release(mark);
        self.b.emit_label(sure);
        partials.regs[0] = results.into_iter().map(Operand::from).collect_vec();
        Ok(within)
    }

    /// Returns the kind of a reduction with this body, if integer instructions are faster.
    fn minmax_of(&self, body: BlockId, partials: &ReductionPartials) -> Option<MinMax> {
        if !self.info.is_enabled(Optimization::MinMax3) {
            return None;
        }
        let [op, _] = self.module.block(body).ops[..] else { return None };
        let op = self.module.op(op);
        let target = self.info.inference.target;
        let overlaps_mmas = target.arch == 90 && !self.info.inference.mma_plans.is_empty();
        let plain = !op.flag(Flag::PropagateNan) && !op.flag(Flag::FlushToZero);
        if !overlaps_mmas || !plain || partials.dtypes != [DType::F32] {
            return None;
        }
        match op.code {
            Opcode::MaxF => Some(MinMax::Largest),
            Opcode::MinF => Some(MinMax::Smallest),
            _ => None,
        }
    }

    /// Reduces the bits: all registers along the axis, then these lanes.
    fn minmax_of_bits(
        &mut self,
        minmax: MinMax,
        partials: &ReductionPartials,
        axis: AxisBits,
        lanes: &[usize],
    ) -> Vec<Operand> {
        let ty = minmax.ty();
        let bases = &partials.bases.register;
        let off: Vec<usize> = (0..bases.len()).filter(|&bit| axis.coordinate(bases[bit]) == 0).collect_vec();
        let row = |slot: usize| off.iter().enumerate().map(|(to, &from)| (slot >> from & 1) << to).sum::<usize>();
        let mut rows: Vec<Vec<Operand>> = vec![Vec::new(); 1 << off.len()];
        for (slot, &value) in partials.regs[0].iter().enumerate() {
            rows[row(slot)].push(self.bits_of(value));
        }
        let mut chains: Vec<Vec<Operand>> = rows
            .iter()
            .flat_map(|row| {
                (0..CHAINS).map(|chain| row.iter().skip(chain).step_by(CHAINS).rev().copied().collect_vec())
            })
            .collect_vec();
        while chains.iter().any(|chain| chain.len() > 1) {
            chains.iter_mut().for_each(|chain| self.minmax_step(ty, chain));
        }
        let firsts: Vec<Operand> = chains.into_iter().map(|chain| chain[0]).collect_vec();
        let mut found: Vec<Operand> = Vec::with_capacity(rows.len());
        for firsts in firsts.chunks(CHAINS) {
            let mut rest = firsts.to_vec();
            self.minmax_step(ty, &mut rest);
            found.push(rest[0]);
        }
        for lane in lanes {
            for value in &mut found {
                let other = self.b.shfl(ShflMode::Bfly, *value, 1u32 << lane);
                *value = self.b.int(IntOp::Max, ty, other, *value);
            }
        }
        found
    }

    /// Emits one instruction on the last three elements of a chain, or on the last two.
    fn minmax_step(&mut self, ty: Ty, chain: &mut Vec<Operand>) {
        let Some(first) = chain.pop() else { return };
        let Some(second) = chain.pop() else { return chain.push(first) };
        let others = match chain.pop() {
            Some(third) => self.b.int(IntOp::Max, ty, second, third),
            None => second,
        };
        chain.push(self.b.int(IntOp::Max, ty, first, others));
    }

    /// Returns the bits of a number.
    fn bits_of(&mut self, value: Operand) -> Operand {
        match value {
            Operand::Reg(reg) => reg.as_class(RegClass::B32).into(),
            constant => self.b.copy(constant, RegClass::F32).as_class(RegClass::B32).into(),
        }
    }

    /// Returns a predicate, equal in all lanes: the bits may differ from the float result in some
    /// lane.
    fn is_inexact(&mut self, minmax: MinMax, found: &[Operand]) -> Reg {
        let mut most: Option<Operand> = None;
        for &bits in found {
            // For a correct result the sign is known. Without it only a NaN is greater than
            // infinity.
            let bits = match minmax {
                MinMax::Largest => bits,
                MinMax::Smallest => self.b.xor(Ty::B32, bits, SIGN),
            };
            most = Some(most.map_or(bits, |most| self.b.int(IntOp::Max, Ty::U32, most, bits)));
        }
        let most = most.unwrap_or(Operand::Imm(0));
        let here = self.b.setp(Cmp::Gt, Ty::U32, most, INFINITY);
        self.b.vote(VoteMode::Any, here).reg()
    }
}
