//! Hoists loop-invariant instructions of an emitted loop (loop-invariant code motion).
//!
//! Reason: ptxas recomputes addresses that depend on the thread index in each iteration, to save
//! registers. This costs nothing if the warps wait for memory, but it delays the issue of MMAs.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::super::inst::*;
use super::Builder;

/// So many instructions are worth a register for their result: of less, ptxas computes the last
/// ones again, and better so.
const LONG: usize = 3;

/// What is moved of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steady {
    /// All that gives the same in each round.
    All,
    /// Of that, chains of instructions that begin with the number of the thread, if they are long.
    OfThreads,
    /// The same, where the number of a thread is a part of another one, with instructions that do
    /// not count.
    OfThreadsIn(u32),
}

impl Builder {
    /// Moves instructions of the loop whose lines begin at `head`, and end with the last one so
    /// far, in front of it: those that give the same in each round.
    pub fn hoist_steady(&mut self, head: usize, what: Steady) {
        let lines = self.function.lines.split_off(head);
        let mut chains = Chains::new(what, &self.function.lines, &lines);
        let mut moved = vec![false; lines.len()];
        for (at, line) in lines.iter().enumerate() {
            for place in chains.take(at, line) {
                moved[place] = true;
            }
        }
        let (before, rest): (Vec<_>, Vec<_>) = lines.into_iter().zip(moved).partition(|&(_, moved)| moved);
        self.function.lines.extend(before.into_iter().chain(rest).map(|(line, _)| line));
    }

    /// Are there products of warpgroups among the lines from this one on?
    pub fn multiplies_since(&self, head: usize) -> bool {
        let is_product = |line: &Line| matches!(line, Line::Inst(inst) if matches!(inst.op, Opcode::Wgmma { .. }));
        self.function.lines[head..].iter().any(is_product)
    }
}

/// What steady values of a loop are made of.
struct Chains {
    what: Steady,
    /// How often each register is written before the loop, and in it.
    writes: HashMap<Key, [u32; 2]>,
    /// Registers that depend on the number of the thread.
    of_threads: HashSet<Key>,
    /// For each steady value of the loop the instructions that it takes and that are not moved:
    /// their places.
    open: HashMap<Key, BTreeSet<usize>>,
    /// Registers with the number of the thread as it is, and where a part of it is taken.
    numbers: HashSet<Key>,
    parts: HashSet<usize>,
}

impl Chains {
    fn new(what: Steady, before: &[Line], inside: &[Line]) -> Chains {
        let mut writes: HashMap<Key, [u32; 2]> = HashMap::new();
        for (of_loop, lines) in [before, inside].into_iter().enumerate() {
            for line in lines {
                registers(line, &mut |key, written| writes.entry(key).or_default()[of_loop] += u32::from(written));
            }
        }
        let mut chains = Chains {
            what,
            writes,
            of_threads: HashSet::new(),
            open: HashMap::new(),
            numbers: HashSet::new(),
            parts: HashSet::new(),
        };
        before.iter().for_each(|line| chains.note_threads(line));
        chains
    }

    /// The next line, at this place of the loop. Gives the places of what moves with it.
    fn take(&mut self, at: usize, line: &Line) -> BTreeSet<usize> {
        self.note_threads(line);
        self.note_part(at, line);
        let (mut steady, mut narrow, mut of_threads) = (is_pure(line), true, false);
        let (mut results, mut chain) = (Vec::new(), BTreeSet::from([at]));
        registers(line, &mut |key, written| {
            let [before, inside] = self.writes[&key];
            let known = self.open.get(&key);
            steady &= if written { before == 0 && inside == 1 } else { inside == 0 || known.is_some() };
            chain.extend(known.filter(|_| !written).into_iter().flatten());
            if written {
                narrow &= key.0 <= 32;
                of_threads |= self.of_threads.contains(&key);
                results.push(key);
            }
        });
        let worth = match self.what {
            Steady::All => true,
            // Addresses take two registers.
            Steady::OfThreads | Steady::OfThreadsIn(_) => narrow && of_threads,
        };
        if !steady || !worth {
            return BTreeSet::new();
        }
        let length = chain.iter().filter(|place| !self.parts.contains(place)).count();
        let moves = self.what == Steady::All || length >= LONG;
        let (moving, open) = if moves { (chain, BTreeSet::new()) } else { (BTreeSet::new(), chain) };
        self.open.extend(results.into_iter().map(|key| (key, open.clone())));
        moving
    }

    /// Notes where the number of a thread in its group is taken from that in the block.
    fn note_part(&mut self, at: usize, line: &Line) {
        let (Line::Inst(inst), Steady::OfThreadsIn(threads)) = (line, self.what) else { return };
        match (inst.op, &inst.srcs[..]) {
            (Opcode::Mov(_), [Arg::One(Operand::Special(Special::TidX))]) => {
                let numbers = &mut self.numbers;
                registers(line, &mut |key, _| numbers.extend([key]));
            }
            (Opcode::Int(IntOp::And, _), [Arg::One(Operand::Reg(reg)), Arg::One(Operand::Imm(mask))])
                if *mask == i64::from(threads) - 1 && self.numbers.contains(&(reg.class.bits(), reg.id)) =>
            {
                self.parts.insert(at);
            }
            _ => {}
        }
    }

    fn note_threads(&mut self, line: &Line) {
        let Line::Inst(inst) = line else { return };
        let number =
            |arg: &Arg| matches!(arg, Arg::One(Operand::Special(Special::TidX | Special::LaneId | Special::WarpId)));
        let mut depends = inst.srcs.iter().any(number);
        let mut results = Vec::new();
        registers(line, &mut |key, written| match written {
            true => results.push(key),
            false => depends |= self.of_threads.contains(&key),
        });
        if depends {
            self.of_threads.extend(results);
        }
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

/// Integer arithmetic whose result depends on nothing but operands that do not change while a
/// kernel runs.
fn is_pure(line: &Line) -> bool {
    let Line::Inst(inst) = line else { return false };
    let changes = |arg: &Arg| matches!(arg, Arg::One(Operand::Special(Special::Clock64 | Special::GlobalTimer)));
    let arithmetic = matches!(
        inst.op,
        Opcode::Mov(_) | Opcode::Int(..) | Opcode::Mad(_) | Opcode::MadWide(_) | Opcode::Selp(_) | Opcode::Setp { .. }
    );
    arithmetic && inst.guard.is_none() && !inst.srcs.iter().any(changes)
}
