//! What a loop computes alike in each round, moved in front of it.
//!
//! ptxas does so with little, for fear of registers: places that depend on the number of a thread it computes anew. That is
//! for nothing where warps wait for memory, but where tensor cores wait for the warps, each instruction counts.

use std::collections::HashMap;

use super::super::inst::*;
use super::Builder;

impl Builder {
    /// Moves instructions of the loop whose lines begin at `head`, and end with the last one so far, in front of it: those that
    /// give the same in each round.
    pub fn hoist_steady(&mut self, head: usize) {
        let lines = self.function.lines.split_off(head);
        let mut writes: HashMap<Key, [u32; 2]> = HashMap::new();
        for (of_loop, lines) in [(0, &self.function.lines), (1, &lines)] {
            for line in lines {
                registers(line, &mut |key, written| writes.entry(key).or_default()[of_loop] += u32::from(written));
            }
        }
        let mut rest = Vec::with_capacity(lines.len());
        for line in lines {
            let (mut steady, mut results) = (is_pure(&line), Vec::new());
            registers(&line, &mut |key, written| {
                let [before, inside] = writes[&key];
                steady &= if written { before == 0 && inside == 1 } else { inside == 0 };
                results.extend(written.then_some(key));
            });
            if steady {
                writes.extend(results.into_iter().map(|key| (key, [1, 0])));
                self.function.lines.push(line);
            } else {
                rest.push(line);
            }
        }
        self.function.lines.extend(rest);
    }
}

/// A register, under whatever class it is read: registers of as many bits and this number are one.
type Key = (u32, u32);

fn registers(line: &Line, found: &mut impl FnMut(Key, bool)) {
    if let Line::Inst(inst) = line {
        inst.registers(&mut |reg, written| found((reg.class.bits(), reg.id), written));
        if let Some((reg, _)) = inst.guard {
            found((reg.class.bits(), reg.id), false);
        }
    }
}

/// Integer arithmetic whose result depends on nothing but operands that do not change while a kernel runs.
fn is_pure(line: &Line) -> bool {
    let Line::Inst(inst) = line else { return false };
    let changes = |arg: &Arg| matches!(arg, Arg::One(Operand::Special(Special::Clock64 | Special::GlobalTimer)));
    let arithmetic = matches!(
        inst.op,
        Opcode::Mov(_) | Opcode::Int(..) | Opcode::Mad(_) | Opcode::MadWide(_) | Opcode::Selp(_) | Opcode::Setp { .. }
    );
    arithmetic && inst.guard.is_none() && !inst.srcs.iter().any(changes)
}
