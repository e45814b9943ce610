//! Hoists loop-invariant instructions of an emitted loop (loop-invariant code motion).
//!
//! Reason: ptxas recomputes addresses that depend on the thread index in each iteration, to save
//! registers. This costs nothing if the warps wait for memory, but it delays the issue of MMAs.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use super::super::inst::*;
use super::Builder;

/// Minimum number of instructions that justify a register for their result. ptxas recomputes
/// shorter chains, which is faster.
const LONG: usize = 3;

/// The instructions that are hoisted out of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invariants {
    /// All loop-invariant ones.
    All,
    /// Loop-invariant chains of at least three instructions that begin with the thread number.
    FromThreadIndex,
    /// The same, if a thread number is derived from another one: the derivation does not count as
    /// part of the chain.
    FromThreadIndexIn(u32),
}

impl Builder {
    /// Hoists loop-invariant instructions of a loop before its head. The loop begins at line
    /// `head` and ends with the last line so far.
    pub fn hoist_invariants(&mut self, head: usize, what: Invariants) {
        let lines = self.function.lines.split_off(head);
        let mut chains = Chains::new(what, &self.function.lines, &lines);
        let mut moved = vec![false; lines.len()];
        for (at, line) in lines.iter().enumerate() {
            for index in chains.take(at, line) {
                moved[index] = true;
            }
        }
        let (before, rest): (Vec<_>, Vec<_>) = lines.into_iter().zip(moved).partition(|&(_, moved)| moved);
        self.function.lines.extend(before.into_iter().chain(rest).map(|(line, _)| line));
    }

    /// Returns true if there are MMAs of warp groups from line `head` on.
    pub fn multiplies_since(&self, head: usize) -> bool {
        let is_product = |line: &Line| matches!(line, Line::Inst(inst) if matches!(inst.op, Opcode::Wgmma { .. }));
        self.function.lines[head..].iter().any(is_product)
    }
}

/// Dependence chains of the loop-invariant values.
struct Chains {
    what: Invariants,
    /// Number of writes of each register before the loop, and in it.
    writes: FxHashMap<Key, [u32; 2]>,
    /// Registers that depend on the thread number.
    of_threads: FxHashSet<Key>,
    /// For each loop-invariant value, the positions of its instructions that are not hoisted.
    open: FxHashMap<Key, BTreeSet<usize>>,
    /// Registers with the unmodified thread number, and the positions that extract a part of it.
    numbers: FxHashSet<Key>,
    parts: FxHashSet<usize>,
}

impl Chains {
    fn new(what: Invariants, before: &[Line], inside: &[Line]) -> Chains {
        let mut writes: FxHashMap<Key, [u32; 2]> = FxHashMap::default();
        for (of_loop, lines) in [before, inside].into_iter().enumerate() {
            for line in lines {
                registers(line, &mut |key, written| writes.entry(key).or_default()[of_loop] += u32::from(written));
            }
        }
        let mut chains = Chains {
            what,
            writes,
            of_threads: FxHashSet::default(),
            open: FxHashMap::default(),
            numbers: FxHashSet::default(),
            parts: FxHashSet::default(),
        };
        before.iter().for_each(|line| chains.note_threads(line));
        chains
    }

    /// Processes the next line, at this position of the loop. Returns the positions that are
    /// hoisted with it.
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
            Invariants::All => true,
            // Addresses need two registers.
            Invariants::FromThreadIndex | Invariants::FromThreadIndexIn(_) => narrow && of_threads,
        };
        if !steady || !worth {
            return BTreeSet::new();
        }
        let length = chain.iter().filter(|index| !self.parts.contains(index)).count();
        let moves = self.what == Invariants::All || length >= LONG;
        let (moving, open) = if moves { (chain, BTreeSet::new()) } else { (BTreeSet::new(), chain) };
        self.open.extend(results.into_iter().map(|key| (key, open.clone())));
        moving
    }

    /// Records an instruction that computes the number of a thread in its group from that in the
    /// block.
    fn note_part(&mut self, at: usize, line: &Line) {
        let (Line::Inst(inst), Invariants::FromThreadIndexIn(threads)) = (line, self.what) else { return };
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

/// A register independent of its class: width in bits, and number.
type Key = (u32, u32);

fn registers(line: &Line, found: &mut dyn FnMut(Key, bool)) {
    if let Line::Inst(inst) = line {
        inst.registers(&mut |reg, written| found((reg.class.bits(), reg.id), written));
        if let Some((reg, _)) = inst.guard {
            found((reg.class.bits(), reg.id), false);
        }
    }
}

/// Returns true for integer arithmetic whose result depends only on operands that are constant
/// during a kernel.
fn is_pure(line: &Line) -> bool {
    let Line::Inst(inst) = line else { return false };
    let changes =
        |arg: &Arg| matches!(arg, Arg::One(Operand::Special(Special::Clock | Special::Clock64 | Special::GlobalTimer)));
    let arithmetic = matches!(
        inst.op,
        Opcode::Mov(_) | Opcode::Int(..) | Opcode::Mad(_) | Opcode::MadWide(_) | Opcode::Selp(_) | Opcode::Setp { .. }
    );
    arithmetic && inst.guard.is_none() && !inst.srcs.iter().any(changes)
}
