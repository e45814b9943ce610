//! Register pressure: the registers that a thread needs, and the CTAs that an SM
//! can hold.
//!
//! Liveness analysis over the finished instructions: the largest number of 32-bit registers that
//! are live at one point, in the order of the text. ptxas reorders instructions and has
//! temporaries. The number is an estimate, usually from above. Without a bound ptxas spends
//! registers on loads that it moves up, and fewer CTAs are resident to hide latency.

use rustc_hash::FxHashMap;

use super::hardware::WARP_SIZE;
use super::isa::emit::Function;
use super::isa::inst::{Arg, FloatMods, FloatOp, FloatRound, Inst, Label, Line, Opcode, Operand, Reg, Space, Special};
use crate::target::Target;

/// A sequence of instructions with one entry, at the top.
struct BasicBlock {
    /// Positions of its instructions.
    lines: std::ops::Range<usize>,
    /// Blocks that may be executed next.
    next: Vec<usize>,
    /// Registers that are live after the last instruction.
    exit: Vec<usize>,
}

/// Numbers of the virtual registers, and their widths in 32-bit registers.
struct Numbers {
    /// The first number of registers of 1, 16, 32 and 64 bits.
    starts: [usize; 4],
    widths: Vec<u32>,
}

impl Numbers {
    /// Numbers the registers. Predicates have a separate register file: numbers, but no width.
    fn new(function: &Function) -> Numbers {
        let (mut starts, mut widths) = ([0; 4], Vec::new());
        for (bank, width) in [0, 1, 1, 2].into_iter().enumerate() {
            starts[bank] = widths.len();
            widths.resize(widths.len() + function.registers[bank] as usize, width);
        }
        Numbers { starts, widths }
    }

    fn get(&self, reg: Reg) -> usize {
        let bank = match reg.class.bits() {
            1 => 0,
            16 => 1,
            32 => 2,
            _ => 3,
        };
        self.starts[bank] + reg.id as usize
    }

    /// Removes the width of integer values computed from parameters, block numbers and constants.
    fn leave_out_shared(&mut self, function: &Function) {
        let mut own = vec![false; self.widths.len()];
        let mut changed = true;
        while changed {
            changed = false;
            for inst in instructions(function) {
                let mut depends = inst.guard.is_some() || !may_be_shared(inst.op);
                depends |= inst.srcs.iter().any(|arg| matches!(arg, Arg::One(Operand::Special(s)) if !is_shared(*s)));
                inst.registers(&mut |reg, written| depends |= !written && own[self.get(reg)]);
                inst.registers(&mut |reg, written| {
                    let number = self.get(reg);
                    if written && depends && !own[number] {
                        own[number] = true;
                        changed = true;
                    }
                });
            }
        }
        for (width, own) in self.widths.iter_mut().zip(own) {
            *width *= u32::from(own);
        }
    }
}

/// Returns true for integer arithmetic and parameters, which the uniform datapath of a warp also
/// supports.
fn may_be_shared(op: Opcode) -> bool {
    match op {
        Opcode::Mov(_)
        | Opcode::Int(..)
        | Opcode::Mad(_)
        | Opcode::MadWide(_)
        | Opcode::Selp(_)
        | Opcode::Setp { .. } => true,
        Opcode::Ld { space, .. } => space == Space::Param,
        _ => false,
    }
}

fn is_shared(special: Special) -> bool {
    use Special::*;
    matches!(special, CtaIdX | CtaIdY | CtaIdZ | NCtaIdX | NCtaIdY | NCtaIdZ | NTidX)
}

/// Returns the maximum number of live 32-bit registers of a kernel. Values that all threads share
/// are excluded: they are in uniform registers, one per warp.
pub fn live_registers(function: &Function) -> u32 {
    let mut numbers = Numbers::new(function);
    numbers.leave_out_shared(function);
    let mut blocks = basic_blocks(function);
    follow(function, &mut blocks, &numbers);
    let mut live = Live { member: vec![false; numbers.widths.len()], weight: 0 };
    let mut most = 0;
    for block in &blocks {
        block.exit.iter().for_each(|&number| live.set(&numbers, number, true));
        most = most.max(live.weight);
        for line in function.lines[block.lines.clone()].iter().rev() {
            let called = if calls(line) { CALL_REGISTERS } else { 0 };
            most = most.max(live.weight + called);
            step(line, &numbers, &mut live);
            most = most.max(live.weight);
        }
        live.clear(&function.lines[block.lines.clone()], &block.exit, &numbers);
    }
    most
}

/// Registers of ptxas's routine for the rare cases of a division or root that is correctly rounded:
/// operands, return address and temporaries.
const CALL_REGISTERS: u32 = 8;

/// Returns true if ptxas calls a routine for this line.
fn calls(line: &Line) -> bool {
    let Line::Inst(inst) = line else { return false };
    let rounded = |mods: FloatMods| !matches!(mods.round, FloatRound::None | FloatRound::Approx | FloatRound::Full);
    matches!(inst.op, Opcode::Float(FloatOp::Div | FloatOp::Sqrt | FloatOp::Rcp, _, mods) if rounded(mods))
}

/// The live registers, and their number in 32-bit registers.
struct Live {
    member: Vec<bool>,
    weight: u32,
}

impl Live {
    fn set(&mut self, numbers: &Numbers, number: usize, live: bool) {
        if std::mem::replace(&mut self.member[number], live) != live {
            let width = numbers.widths[number];
            self.weight = if live { self.weight + width } else { self.weight - width };
        }
    }

    /// Marks all registers of these lines and of the end of their block as dead.
    fn clear(&mut self, lines: &[Line], exit: &[usize], numbers: &Numbers) {
        exit.iter().for_each(|&number| self.member[number] = false);
        for line in lines {
            if let Line::Inst(inst) = line {
                inst.registers(&mut |reg, _| self.member[numbers.get(reg)] = false);
            }
        }
        self.weight = 0;
    }
}

/// Computes the registers that are live after each block. A register that a block reads before it
/// writes it is live on all paths from the preceding writes. It is propagated to the predecessors,
/// up to the blocks that write it.
fn follow(function: &Function, blocks: &mut [BasicBlock], numbers: &Numbers) {
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); blocks.len()];
    for (index, block) in blocks.iter().enumerate() {
        block.next.iter().for_each(|&next| before[next].push(index));
    }
    // Blocks that read a register before they write it, and blocks that always write it.
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); numbers.widths.len()];
    let mut writers: Vec<Vec<usize>> = vec![Vec::new(); numbers.widths.len()];
    for (index, block) in blocks.iter().enumerate() {
        for line in &function.lines[block.lines.clone()] {
            let Line::Inst(inst) = line else { continue };
            let here = |list: &Vec<usize>| list.last() == Some(&index);
            inst.registers(&mut |reg, written| {
                let number = numbers.get(reg);
                if !written && !here(&writers[number]) && !here(&readers[number]) {
                    readers[number].push(index);
                }
            });
            inst.registers(&mut |reg, written| {
                let number = numbers.get(reg);
                if written && inst.guard.is_none() && !here(&writers[number]) {
                    writers[number].push(index);
                }
            });
        }
    }
    // The last register found live before, and after, a block.
    let (mut entered, mut left) = (vec![usize::MAX; blocks.len()], vec![usize::MAX; blocks.len()]);
    for (number, readers) in readers.iter_mut().enumerate() {
        let pending = readers;
        while let Some(index) = pending.pop() {
            if std::mem::replace(&mut entered[index], number) == number {
                continue;
            }
            for &earlier in &before[index] {
                if std::mem::replace(&mut left[earlier], number) != number {
                    blocks[earlier].exit.push(number);
                    if writers[number].binary_search(&earlier).is_err() {
                        pending.push(earlier);
                    }
                }
            }
        }
    }
}

fn instructions(function: &Function) -> impl Iterator<Item = &Inst> {
    function.lines.iter().filter_map(|line| if let Line::Inst(inst) = line { Some(inst) } else { None })
}

/// Returns the number of CTAs that an SM can hold if ptxas uses `spare` registers
/// more than the kernel needs.
pub fn fitting_ctas(function: &Function, target: Target, shared_bytes: u32, spare: u32) -> u32 {
    let warps = function.threads / WARP_SIZE;
    target.multiprocessor().fitting_blocks(warps, live_registers(function) + spare, shared_bytes).max(1)
}

/// Splits the body at labels and jumps.
fn basic_blocks(function: &Function) -> Vec<BasicBlock> {
    let mut blocks: Vec<BasicBlock> = Vec::new();
    let mut labels: FxHashMap<Label, usize> = FxHashMap::default();
    let mut start = 0;
    let mut close = |start: &mut usize, end: usize| {
        if *start < end {
            blocks.push(BasicBlock { lines: *start..end, next: Vec::new(), exit: Vec::new() });
        }
        *start = end;
    };
    for (position, line) in function.lines.iter().enumerate() {
        match line {
            Line::Label(_) => close(&mut start, position),
            Line::Inst(inst) if ends(inst) => close(&mut start, position + 1),
            _ => {}
        }
    }
    close(&mut start, function.lines.len());
    for (index, block) in blocks.iter().enumerate() {
        for line in &function.lines[block.lines.clone()] {
            if let Line::Label(label) = line {
                labels.insert(*label, index);
            }
        }
    }
    let count = blocks.len();
    for (index, block) in blocks.iter_mut().enumerate() {
        let last = &function.lines[block.lines.end - 1];
        let (target, falls) = match last {
            Line::Inst(inst) if ends(inst) => (target(inst), inst.guard.is_some()),
            _ => (None, true),
        };
        block.next.extend(target.and_then(|label| labels.get(&label)));
        if falls && index + 1 < count {
            block.next.push(index + 1);
        }
    }
    blocks
}

fn ends(inst: &Inst) -> bool {
    matches!(inst.op, Opcode::Bra { .. } | Opcode::Ret)
}

fn target(inst: &Inst) -> Option<Label> {
    inst.srcs.iter().find_map(|arg| if let Arg::Label(label) = arg { Some(*label) } else { None })
}

/// Updates the live registers from after a line to before it.
fn step(line: &Line, numbers: &Numbers, live: &mut Live) {
    let Line::Inst(inst) = line else { return };
    // A guarded instruction may keep the previous value of its result.
    let kills = inst.guard.is_none();
    for read in [false, true] {
        inst.registers(&mut |reg, written| {
            let number = numbers.get(reg);
            if written != read && (read || kills) {
                live.set(numbers, number, read);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::ptx::isa::builder::Builder;
    use crate::backend::ptx::isa::inst::{Cmp, MemMods, RegClass, Space, Ty};

    fn kernel() -> (Builder, Operand) {
        let mut b = Builder::new(Target::SM_90A, "k", 128);
        let base = b.param_value(Ty::U64);
        let thread = b.special(Special::TidX);
        let offset = b.mul_wide(Ty::S32, thread, 4);
        let address = b.add(Ty::S64, base, offset);
        (b, address)
    }

    #[test]
    fn values_count_until_their_last_use() {
        let (mut b, base) = kernel();
        let loaded = b.fresh_vec(RegClass::F32, 4);
        b.ld_to(&loaded, Space::Global, Ty::F32, &base.into(), MemMods::default(), None);
        let sum = b.add(Ty::F32, loaded[0], loaded[1]);
        let other = b.add(Ty::F32, loaded[2], loaded[3]);
        let sum = b.add(Ty::F32, sum, other);
        b.st_vec(Space::Global, Ty::F32, &base.into(), &[sum], MemMods::default());
        b.ret();
        // The address needs two registers throughout.
        assert_eq!(live_registers(&b.finish()), 2 + 4);
    }

    #[test]
    fn live_values_at_a_call_leave_registers_for_it() {
        // During the routine, the quotient and the two others are live; without one, the maximum is
        // before it.
        for (mods, most) in [(FloatMods::RN, 3 + CALL_REGISTERS), (FloatMods::APPROX, 4)] {
            let (mut b, base) = kernel();
            let loaded = b.fresh_vec(RegClass::F32, 4);
            b.ld_to(&loaded, Space::Global, Ty::F32, &base.into(), MemMods::default(), None);
            let share = b.float(FloatOp::Div, Ty::F32, mods, &[loaded[0].into(), loaded[1].into()]);
            b.st_vec(
                Space::Global,
                Ty::F32,
                &base.into(),
                &[share, loaded[2].into(), loaded[3].into()],
                MemMods::default(),
            );
            b.ret();
            assert_eq!(live_registers(&b.finish()), 2 + most);
        }
    }

    #[test]
    fn carried_values_are_live_in_the_whole_loop() {
        let (mut b, base) = kernel();
        let count = b.copy(0, RegClass::B32);
        let carried = b.fresh(RegClass::F32);
        b.ld_to(&[carried], Space::Global, Ty::F32, &base.into(), MemMods::default(), None);
        let top = b.new_label();
        b.emit_label(top);
        let loaded = b.fresh_vec(RegClass::F32, 8);
        for half in loaded.chunks(4) {
            b.ld_to(half, Space::Global, Ty::F32, &base.into(), MemMods::default(), None);
        }
        for &value in &loaded {
            b.st_vec(Space::Global, Ty::F32, &base.into(), &[value.into()], MemMods::default());
        }
        let next = b.add(Ty::U32, count, 1);
        b.mov_to(count, next);
        let again = b.setp(Cmp::Lt, Ty::U32, count, 10);
        b.bra_if(again, false, top, true);
        b.st_vec(Space::Global, Ty::F32, &base.into(), &[carried.into()], MemMods::default());
        b.ret();
        // The counter is equal in all threads.
        assert_eq!(live_registers(&b.finish()), 2 + 1 + 8);
    }
}
