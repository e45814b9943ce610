//! Numbers that are loaded one by one beside products that run on their own: the scales of the next terms, say.
//!
//! Such a number is the same in all lanes, and ptxas would have it in a uniform register. Where a loop carries it to the next iteration,
//! the instruction that moves it there waits for memory, and comes before the wait for the product: so the product's work would wait, too. To
//! the address a zero is added of which ptxas thinks that each lane has another one. Then the number arrives where it is used.

use super::Lowering;
use super::access::Access;
use super::order::Ordering;
use crate::backend::ptx::isa::inst::{CvtMods, Operand, Reg, RegClass, Special, Ty};
use crate::ir::{OpId, Opcode};

impl Lowering<'_> {
    /// Does the kernel load such numbers?
    pub fn loads_lone_numbers(&self) -> bool {
        self.context.inference.accesses.keys().any(|&id| self.is_lone_number(id))
    }

    /// Is this a load of one, in a block with such a product?
    fn is_lone_number(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        if op.code != Opcode::LoadView || !Ordering::of(op).is_weak() || !self.context.is_repeated(id) {
            return false;
        }
        let result = op.results[0];
        let one = self.module.shape(result).iter().product::<i64>() == 1;
        let block = self.context.op_blocks[id.index()];
        let beside = || {
            let ops = block.map(|block| &self.module.block(block).ops);
            ops.is_some_and(|ops| ops.iter().any(|&other| self.context.inference.runs_alone(other)))
        };
        one && self.context.element_type(result).is_float() && beside()
    }

    /// Zero: no lane has 32 others before it.
    pub fn nothing_of_lanes(&mut self) -> Reg {
        let before = self.b.special(Special::LaneMaskLt);
        let nothing = self.b.shr(Ty::U32, before, 31);
        let wide = self.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), nothing);
        self.b.reg(wide, RegClass::B64)
    }

    /// Lets ptxas think that lanes load different numbers.
    pub fn apart_in_lanes(&mut self, id: OpId, access: &mut Access) {
        let Some(nothing) = self.known_nothing().filter(|_| self.is_lone_number(id)) else { return };
        let base = access.base_mut();
        *base = self.b.add(Ty::S64, *base, Operand::from(nothing));
    }
}
