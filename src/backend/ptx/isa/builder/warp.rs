//! Instructions of a warp or CTA: shuffles, votes, barriers, matrix instructions.

use super::super::inst::*;
use super::Builder;
use crate::util::collect::CollectVec as _;

/// All lanes of a warp.
const FULL_MASK: Operand = Operand::Imm(-1);

impl Builder {
    /// Reads a special register by a new instruction.
    pub fn special(&mut self, special: Special) -> Operand {
        let value = self.copy(Operand::Special(special), special.ty().class());
        match special {
            Special::TidX if self.threads_per_consumer_group > 0 => {
                self.and(Ty::B32, value, self.threads_per_consumer_group - 1)
            }
            _ => value.into(),
        }
    }

    /// Returns the value of another lane (any 32-bit class). `lane`: xor mask, distance or lane by
    /// `mode`.
    pub fn shfl(&mut self, mode: ShflMode, value: impl Into<Operand>, lane: impl Into<Operand>) -> Operand {
        let clamp = if mode == ShflMode::Up { 0 } else { 31 };
        self.shfl_clamped(mode, value, lane, clamp)
    }

    /// Emits [`Builder::shfl`] with an explicit clamp and segment word.
    pub fn shfl_clamped(
        &mut self,
        mode: ShflMode,
        value: impl Into<Operand>,
        lane: impl Into<Operand>,
        clamp: i64,
    ) -> Operand {
        let value = value.into();
        let class = match value {
            Operand::Reg(reg) => reg.class,
            constant => return constant,
        };
        assert_eq!(class.bits(), 32, "shuffle of {class:?}");
        let (dst, lane) = (self.fresh(class), self.source(lane, Ty::U32));
        let srcs = vec![value.into(), lane.into(), Operand::Imm(clamp).into(), FULL_MASK.into()];
        self.push(Opcode::Shfl(mode), vec![dst.into()], srcs);
        dst.into()
    }

    /// Emits a reduction over all lanes of the warp; `ty` is u32, s32 or b32.
    pub fn redux(&mut self, op: ReduxOp, ty: Ty, value: impl Into<Operand>) -> Operand {
        let (value, dst) = (self.reg(value, RegClass::B32), self.fresh(RegClass::B32));
        self.push(Opcode::Redux(op, ty), vec![dst.into()], vec![value.into(), FULL_MASK.into()]);
        dst.into()
    }

    /// Emits `vote`: a predicate, or for `Ballot` a mask in B32.
    pub fn vote(&mut self, mode: VoteMode, pred: impl Into<Operand>) -> Operand {
        let pred = self.reg(pred, RegClass::Pred);
        let dst = self.fresh(if mode == VoteMode::Ballot { RegClass::B32 } else { RegClass::Pred });
        self.push(Opcode::Vote(mode), vec![dst.into()], vec![pred.into(), FULL_MASK.into()]);
        dst.into()
    }

    /// Returns the mask of the lanes with the same 32-bit value.
    pub fn match_any(&mut self, value: impl Into<Operand>) -> Operand {
        let (value, dst) = (self.reg(value, RegClass::B32), self.fresh(RegClass::B32));
        self.push(Opcode::MatchAny, vec![dst.into()], vec![value.into(), FULL_MASK.into()]);
        dst.into()
    }

    /// Returns a predicate that is true in one lane of the warp (sm_90 and later).
    pub fn elect(&mut self) -> Reg {
        let dst = self.fresh(RegClass::Pred);
        self.push(Opcode::Elect, vec![Arg::WithPred(None, dst)], vec![FULL_MASK.into()]);
        dst
    }

    /// Waits for all threads of the CTA (or `threads` of them) at barrier `id`; orders memory.
    pub fn bar_sync(&mut self, id: impl Into<Operand>, threads: Option<u32>) {
        let srcs = std::iter::once(id.into()).chain(threads.map(Operand::from)).map(Into::into).collect_vec();
        self.push(Opcode::BarSync, vec![], srcs);
    }

    /// Arrives on barrier `id` of `threads` threads without a wait.
    pub fn bar_arrive(&mut self, id: impl Into<Operand>, threads: u32) {
        self.push(Opcode::BarArrive, vec![], vec![id.into().into(), Operand::from(threads).into()]);
    }

    /// Waits for the lanes of the warp.
    pub fn bar_warp_sync(&mut self) {
        self.push(Opcode::BarWarpSync, vec![], vec![FULL_MASK.into()]);
    }

    /// Loads 1, 2 or 4 matrices of 8 rows of 16 bytes from shared memory; each lane provides a row
    /// address.
    pub fn ldmatrix(&mut self, num: u32, trans: bool, addr: &Addr) -> Vec<Reg> {
        let dsts = self.fresh_vec(RegClass::B32, num as usize);
        let list = Arg::Vector(dsts.iter().map(|&d| d.into()).collect_vec());
        self.push(Opcode::LdMatrix { num, trans }, vec![list], vec![Arg::Mem(addr.clone())]);
        dsts
    }

    /// Stores matrices, as the inverse of [`Builder::ldmatrix`] (sm_90 and later).
    pub fn stmatrix(&mut self, trans: bool, addr: &Addr, values: &[Operand]) {
        let regs = self.regs(values, RegClass::B32);
        let list = Arg::Vector(regs.into_iter().map(Operand::Reg).collect_vec());
        let num = values.len() as u32;
        self.push(Opcode::StMatrix { num, trans }, vec![], vec![Arg::Mem(addr.clone()), list]);
    }

    /// Emits `d = a × b + c`; `d` may be the registers of `c`. The fragments are those of the PTX
    /// ISA.
    pub fn mma(&mut self, shape: MmaShape, types: MmaTypes, d: &[Reg], a: &[Operand], b: &[Operand], c: &[Operand]) {
        let input = |ty: Ty| if ty == Ty::F64 { RegClass::F64 } else { RegClass::B32 };
        let output = |ty: Ty| match ty {
            Ty::F32 => RegClass::F32,
            Ty::F64 => RegClass::F64,
            _ => RegClass::B32,
        };
        assert!(d.iter().all(|r| r.class == output(types.d)), "result registers of {shape}");
        let list = |regs: Vec<Reg>| Arg::Vector(regs.into_iter().map(Operand::Reg).collect_vec());
        let srcs = vec![
            list(self.regs(a, input(types.a))),
            list(self.regs(b, input(types.b))),
            list(self.regs(c, output(types.c))),
        ];
        self.push(Opcode::Mma { shape, types, sat: false }, vec![list(d.to_vec())], srcs);
    }
}
