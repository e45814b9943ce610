//! Merges `mul.lo` and `mul.hi` of the same factors into one `mul.wide`.
//!
//! ptxas keeps the two as separate multiplications, each at half the rate of other instructions.
//! Counter-based random numbers (Philox) consist of such pairs. The pass works on finished
//! instructions.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::isa::emit::Function;
use super::isa::inst::{Arg, Inst, IntOp, Line, Opcode, Operand, Reg, RegClass, Ty};
use crate::util::sort;

/// Maximum distance in lines of the second half from the first one: until then it needs a register.
/// If the second half is the last read of a factor, the factor's register becomes free instead, and
/// any distance is allowed.
const REACH: usize = 64;

/// The factors of a multiplication, in either order.
#[derive(PartialEq, Eq, Hash)]
struct Factors([Factor; 2]);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Factor {
    Register(u32),
    Number(i64),
}

/// One half of a multiplication.
struct Half {
    factors: Factors,
    /// The type of a high half. Low halves are independent of the type.
    high: Option<Ty>,
    result: Reg,
}

/// Merges the two halves of multiplications.
pub fn merge(function: &mut Function) {
    let mut writes = vec![0u8; function.registers[2] as usize];
    for line in &function.lines {
        let Line::Inst(inst) = line else { continue };
        inst.registers(&mut |reg, written| {
            if written && reg.class.bits() == 32 {
                let count = &mut writes[reg.id as usize];
                *count = count.saturating_add(1);
            }
        });
    }
    let lives = Lives::new(&function.lines, function.registers[2] as usize);
    let pairs = pairs(&function.lines, &writes, &lives);
    for &(first, second) in &pairs {
        let half_at = |line: usize| half(&function.lines[line], &writes).expect("a half of a product");
        let (one, other) = (half_at(first), half_at(second));
        let (ty, high, low) = match one.high {
            Some(ty) => (ty, one.result, other.result),
            None => (other.high.expect("one of two halves is the high one"), other.result, one.result),
        };
        let whole = Reg { class: RegClass::B64, id: function.registers[3] };
        function.registers[3] += 1;
        let Line::Inst(product) = &mut function.lines[first] else { unreachable!("a half is an instruction") };
        product.op = Opcode::Int(IntOp::MulWide, ty);
        product.dsts = vec![whole.into()];
        let split = Inst {
            guard: None,
            op: Opcode::Mov(Ty::B64),
            dsts: vec![Arg::Vector([low, high].map(|reg| reg.as_class(RegClass::B32).into()).to_vec())],
            srcs: vec![whole.into()],
            loc: product.loc,
        };
        function.lines[second] = Line::Inst(split);
    }
    // The merged multiplication provides both halves at once: the first half may be read before the
    // line of the second one.
    let mut moved: FxHashMap<usize, usize> = pairs.into_iter().collect();
    let mut lines: Vec<Option<Line>> = std::mem::take(&mut function.lines).into_iter().map(Some).collect_vec();
    for index in 0..lines.len() {
        function.lines.extend(lines[index].take());
        if let Some(second) = moved.remove(&index) {
            function.lines.extend(lines[second].take());
        }
    }
}

/// The last lines that write and that read each 32-bit register.
struct Lives {
    written: Vec<usize>,
    read: Vec<usize>,
}

impl Lives {
    fn new(lines: &[Line], registers: usize) -> Lives {
        let mut lives = Lives { written: vec![0; registers], read: vec![0; registers] };
        for (index, line) in lines.iter().enumerate() {
            let Line::Inst(inst) = line else { continue };
            inst.registers(&mut |reg, written| {
                if reg.class.bits() == 32 {
                    let list = if written { &mut lives.written } else { &mut lives.read };
                    list[reg.id as usize] = index;
                }
            });
        }
        lives
    }

    /// Returns true if a factor is written in the straight-line code from line `start` on, and line
    /// `last` is its last read.
    fn end(&self, factors: &Factors, start: usize, last: usize) -> bool {
        factors.0.iter().any(|factor| match *factor {
            Factor::Register(id) => self.written[id as usize] >= start && self.read[id as usize] == last,
            Factor::Number(_) => false,
        })
    }
}

/// Returns the lines of the first and the second half of multiplications without a jump between
/// them.
fn pairs(lines: &[Line], writes: &[u8], lives: &Lives) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let mut open: FxHashMap<Factors, (usize, bool)> = FxHashMap::default();
    // Start of the straight-line code.
    let mut start = 0;
    for (index, line) in lines.iter().enumerate() {
        let leaves = |inst: &Inst| matches!(inst.op, Opcode::Bra { .. } | Opcode::Ret);
        let ends = match line {
            Line::Label(_) => true,
            Line::Inst(inst) => leaves(inst),
            _ => false,
        };
        if ends {
            open.clear();
            start = index;
        }
        let Some(half) = half(line, writes) else { continue };
        let is_high = half.high.is_some();
        match open.get(&half.factors) {
            Some(&(first, was_high))
                if was_high != is_high && (index - first <= REACH || lives.end(&half.factors, start, index)) =>
            {
                open.remove(&half.factors);
                pairs.push((first, index));
            }
            _ => {
                open.insert(half.factors, (index, is_high));
            }
        }
    }
    pairs
}

/// Returns half a multiplication whose factors and result register are written once.
fn half(line: &Line, writes: &[u8]) -> Option<Half> {
    let Line::Inst(Inst { guard: None, op: Opcode::Int(op, ty), dsts, srcs, .. }) = line else { return None };
    let high = match (op, ty) {
        (IntOp::MulHi, Ty::U32 | Ty::S32) => Some(*ty),
        (IntOp::MulLo, Ty::U32 | Ty::S32 | Ty::B32) => None,
        _ => return None,
    };
    let once = |reg: Reg| (writes[reg.id as usize] == 1).then_some(reg);
    let factor = |arg: &Arg| match arg {
        Arg::One(Operand::Reg(reg)) => once(*reg).map(|reg| Factor::Register(reg.id)),
        Arg::One(Operand::Imm(number)) => Some(Factor::Number(*number)),
        _ => None,
    };
    let ([Arg::One(Operand::Reg(result))], [a, b]) = (&dsts[..], &srcs[..]) else { return None };
    let mut factors = [factor(a)?, factor(b)?];
    sort::natural(&mut factors);
    Some(Half { factors: Factors(factors), high, result: once(*result)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ptx::isa::builder::Builder;
    use crate::backend::ptx::isa::inst::Special;
    use crate::target::Target;

    /// Returns the number of low halves, high halves and wide multiplications in the code of
    /// `make`.
    fn kinds(make: impl FnOnce(&mut Builder, Operand)) -> [usize; 3] {
        let mut b = Builder::new(Target::SM_90A, "k", 128);
        let thread = b.special(Special::TidX);
        make(&mut b, thread);
        b.ret();
        let mut function = b.finish();
        merge(&mut function);
        let count = |required: IntOp| {
            let is_one =
                |line: &&Line| matches!(line, Line::Inst(Inst { op: Opcode::Int(op, _), .. }) if *op == required);
            function.lines.iter().filter(is_one).count()
        };
        [IntOp::MulLo, IntOp::MulHi, IntOp::MulWide].map(count)
    }

    #[test]
    fn halves_of_one_product_come_from_one_instruction() {
        let both = |b: &mut Builder, x: Operand| {
            let high = b.mul_hi(Ty::U32, x, 0xd251_1f53u32);
            let next = b.add(Ty::U32, high, 1);
            b.mul(Ty::S32, x, 0xd251_1f53u32);
            b.mul(Ty::S32, next, next);
            b.mul_hi(Ty::S32, next, next);
        };
        assert_eq!(kinds(both), [0, 0, 2]);
    }

    #[test]
    fn split_values_are_defined_before_their_use() {
        let mut b = Builder::new(Target::SM_90A, "k", 128);
        let x = b.special(Special::TidX);
        let high = b.mul_hi(Ty::U32, x, 12345);
        let next = b.add(Ty::U32, high, 1);
        b.mul(Ty::S32, x, 12345);
        b.ret();
        let mut function = b.finish();
        merge(&mut function);
        let line_of = |required: Operand, written: bool| {
            let mentions = |line: &Line| {
                let mut found = false;
                if let Line::Inst(inst) = line {
                    inst.registers(&mut |reg, w| found |= w == written && Operand::Reg(reg) == required);
                }
                found
            };
            function.lines.iter().position(mentions)
        };
        assert!(line_of(high, true) < line_of(high, false), "{:?}", function.lines);
        assert!(line_of(next, true).is_some());
    }

    #[test]
    fn halves_that_free_their_factor_may_be_distant() {
        let freed = |b: &mut Builder, x: Operand| {
            let factor = b.add(Ty::U32, x, 1);
            b.mul_hi(Ty::U32, factor, 3);
            (0..REACH as i32).fold(x, |sum, n| b.xor(Ty::B32, sum, n + 1));
            b.mul(Ty::S32, factor, 3);
        };
        assert_eq!(kinds(freed), [0, 0, 1]);
        // In a loop whose next iteration reads it again.
        let of_the_round_before = |b: &mut Builder, x: Operand| {
            let factor = b.add(Ty::U32, x, 1);
            let label = b.new_label();
            b.emit_label(label);
            b.mul_hi(Ty::U32, factor, 3);
            (0..REACH as i32).fold(x, |sum, n| b.xor(Ty::B32, sum, n + 1));
            b.mul(Ty::S32, factor, 3);
        };
        assert_eq!(kinds(of_the_round_before), [1, 1, 0]);
    }

    #[test]
    fn others_stay() {
        let of_others = |b: &mut Builder, x: Operand| {
            b.mul_hi(Ty::U32, x, 3);
            b.mul(Ty::S32, x, 5);
        };
        assert_eq!(kinds(of_others), [1, 1, 0]);
        let after_a_label = |b: &mut Builder, x: Operand| {
            b.mul_hi(Ty::U32, x, 3);
            let label = b.new_label();
            b.emit_label(label);
            b.mul(Ty::S32, x, 3);
        };
        assert_eq!(kinds(after_a_label), [1, 1, 0]);
        let of_a_variable = |b: &mut Builder, x: Operand| {
            let variable = b.copy(x, RegClass::B32);
            b.mul_hi(Ty::U32, variable, 3);
            b.mov_to(variable, 7);
            b.mul(Ty::S32, variable, 3);
        };
        assert_eq!(kinds(of_a_variable), [1, 1, 0]);
        let distant = |b: &mut Builder, x: Operand| {
            let x = b.add(Ty::U32, x, 1);
            b.mul_hi(Ty::U32, x, 3);
            let sum = (0..REACH as i32).fold(x, |sum, n| b.xor(Ty::B32, sum, n + 1));
            b.mul(Ty::S32, x, 3);
            b.add(Ty::U32, x, sum);
        };
        assert_eq!(kinds(distant), [1, 1, 0]);
    }
}
