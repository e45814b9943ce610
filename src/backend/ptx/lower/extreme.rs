//! The largest or smallest of many numbers of f32 as integers, three at a time (sm_90).
//!
//! Beside running tensor cores an instruction that compares takes more than four cycles, which makes the maximum of a row
//! one of the dearest parts of a softmax. Of integers one instruction gives the largest of three (ptxas makes it of two
//! `max` in a row). Numbers that are not negative are in the order of their bits, and as signed integers above all negative
//! ones, so the largest integer is the largest number wherever one number is not negative; likewise the smallest number is
//! the one with the largest unsigned bits wherever one is negative. What comes out tells whether that was so. Where it was
//! not, in any lane of the warp, or where a NaN is in the way, the warp does the same again by the instructions for floats.

use super::partials::Partials;
use super::{Lowered, Lowering};
use crate::backend::ptx::isa::inst::{Cmp, IntOp, Operand, Reg, RegClass, ShflMode, Ty, VoteMode};
use crate::backend::ptx::layout_inference::AxisBits;
use crate::backend::ptx::schedule::ReductionStep;
use crate::dtype::DType;
use crate::ir::{BlockId, Flag, Opcode};

/// Bits of infinity: those of a NaN are larger.
const INFINITY: u32 = 0x7f80_0000;
/// The bit of the sign.
const SIGN: u32 = 0x8000_0000;
/// Numbers of a thread that are worth the test behind them, as a power of two.
const LEAST_BITS: usize = 4;
/// Runs of instructions that depend on one another.
const CHAINS: usize = 3;

/// How floats are compared as integers.
#[derive(Clone, Copy)]
enum Extreme {
    Largest,
    Smallest,
}

impl Extreme {
    fn ty(self) -> Ty {
        match self {
            Extreme::Largest => Ty::S32,
            Extreme::Smallest => Ty::U32,
        }
    }
}

impl Lowering<'_> {
    /// Does the first of these folds, as many as there are before warps meet, and says how many; none where that is
    /// not for integers.
    pub fn extremes(
        &mut self,
        body: BlockId,
        partials: &mut Partials,
        folds: &[ReductionStep],
        axis: AxisBits,
        ordered: bool,
    ) -> Lowered<usize> {
        let Some(extreme) = self.extreme_of(body, partials).filter(|_| !ordered) else { return Ok(0) };
        let within = folds.iter().take_while(|fold| !matches!(fold, ReductionStep::CrossWarp(_))).count();
        let registers = folds.iter().take_while(|fold| matches!(fold, ReductionStep::Registers(_))).count();
        let lanes: Option<Vec<usize>> = folds[registers..within]
            .iter()
            .map(|fold| if let ReductionStep::LaneShuffle(lane) = fold { Some(*lane) } else { None })
            .collect();
        let along = partials.images.register.iter().filter(|&&image| axis.coordinate(image) != 0).count();
        let Some(lanes) = lanes.filter(|_| registers >= LEAST_BITS && registers == along) else { return Ok(0) };

        let found = self.as_integers(extreme, partials, axis, &lanes);
        let number = |bits: &Operand| self.b.copy(bits.reg().as_class(RegClass::F32), RegClass::F32);
        let results: Vec<Reg> = found.iter().map(number).collect();
        let again = self.is_not_sure(extreme, &found);
        let sure = self.b.new_label();
        self.b.bra_if(again, true, sure, true);
        let mark = self.mark();
        for fold in &folds[..within] {
            match *fold {
                ReductionStep::Registers(coordinate) => self.reduce_registers(body, partials, coordinate, axis)?,
                ReductionStep::LaneShuffle(lane) => self.reduce_lane(body, partials, lane, false)?,
                _ => {
                    return Err(
                        "a part of a reduction that is not for integers, which is a defect of this crate".into()
                    );
                }
            }
        }
        for (&result, &exact) in results.iter().zip(&partials.slots[0]) {
            self.b.mov_to(result, exact);
        }
        self.release(mark);
        self.b.place(sure);
        partials.slots[0] = results.into_iter().map(Operand::from).collect();
        Ok(within)
    }

    /// What a reduction with this body looks for, if integers find it sooner.
    fn extreme_of(&self, body: BlockId, partials: &Partials) -> Option<Extreme> {
        let [op, _] = self.module.block(body).ops[..] else { return None };
        let op = self.module.op(op);
        let target = self.context.inference.target;
        let beside_products = target.arch == 90 && !self.context.inference.products.is_empty();
        let plain = !op.flag(Flag::PropagateNan) && !op.flag(Flag::FlushToZero);
        if !beside_products || !plain || partials.dtypes != [DType::F32] {
            return None;
        }
        match op.code {
            Opcode::MaxF => Some(Extreme::Largest),
            Opcode::MinF => Some(Extreme::Smallest),
            _ => None,
        }
    }

    /// The extremes of the bits: of all registers along the axis, then of these lanes.
    fn as_integers(&mut self, extreme: Extreme, partials: &Partials, axis: AxisBits, lanes: &[usize]) -> Vec<Operand> {
        let ty = extreme.ty();
        let images = &partials.images.register;
        let off: Vec<usize> = (0..images.len()).filter(|&bit| axis.coordinate(images[bit]) == 0).collect();
        let row = |slot: usize| off.iter().enumerate().map(|(to, &from)| (slot >> from & 1) << to).sum::<usize>();
        let mut rows: Vec<Vec<Operand>> = vec![Vec::new(); 1 << off.len()];
        for (slot, &value) in partials.slots[0].iter().enumerate() {
            rows[row(slot)].push(self.bits_of(value));
        }
        let mut chains: Vec<Vec<Operand>> = rows
            .iter()
            .flat_map(|row| (0..CHAINS).map(|chain| row.iter().skip(chain).step_by(CHAINS).rev().copied().collect()))
            .collect();
        while chains.iter().any(|chain| chain.len() > 1) {
            chains.iter_mut().for_each(|chain| self.shorten(ty, chain));
        }
        let firsts: Vec<Operand> = chains.into_iter().map(|chain| chain[0]).collect();
        let mut found: Vec<Operand> = Vec::with_capacity(rows.len());
        for firsts in firsts.chunks(CHAINS) {
            let mut rest = firsts.to_vec();
            self.shorten(ty, &mut rest);
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

    /// One instruction on the last three of these, or on the last two.
    fn shorten(&mut self, ty: Ty, chain: &mut Vec<Operand>) {
        let Some(first) = chain.pop() else { return };
        let Some(second) = chain.pop() else { return chain.push(first) };
        let others = match chain.pop() {
            Some(third) => self.b.int(IntOp::Max, ty, second, third),
            None => second,
        };
        chain.push(self.b.int(IntOp::Max, ty, first, others));
    }

    /// The bits of a number.
    fn bits_of(&mut self, value: Operand) -> Operand {
        match value {
            Operand::Reg(reg) => reg.as_class(RegClass::B32).into(),
            constant => self.b.copy(constant, RegClass::F32).as_class(RegClass::B32).into(),
        }
    }

    /// Holds in all lanes where one of these bits, in any lane, need not be those of the extreme.
    fn is_not_sure(&mut self, extreme: Extreme, found: &[Operand]) -> Reg {
        let mut most: Option<Operand> = None;
        for &bits in found {
            // Where all went well the sign is known, and without it only a NaN is above infinity.
            let bits = match extreme {
                Extreme::Largest => bits,
                Extreme::Smallest => self.b.xor(Ty::B32, bits, SIGN),
            };
            most = Some(most.map_or(bits, |most| self.b.int(IntOp::Max, Ty::U32, most, bits)));
        }
        let most = most.unwrap_or(Operand::Imm(0));
        let here = self.b.setp(Cmp::Gt, Ty::U32, most, INFINITY);
        self.b.vote(VoteMode::Any, here).reg()
    }
}
