//! Poison of the operands and results of ops (as in LLVM).
//!
//! * A requested check poisons the elements that it finds invalid.
//! * Ops propagate the poison of their operands.
//! * The use of a poisoned element is an error.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use super::poison::{Poison, Source};
use super::poison_sources::{CheckedOp, element};
use crate::backend::cpu::interp::machine::{Fault, Machine};
use crate::backend::cpu::interp::value::Word;
use crate::backend::cpu::interp::value::{Width, Words, zip, zip3};
use crate::backend::cpu::ops::shape;
use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::{Loc, Op, OpId, Opcode, Sign, Type};

/// Poison by operand of an op.
type OperandPoison = [Option<Rc<Poison>>];

/// Result of the checks before an op.
pub(in crate::backend::cpu) struct Poisoning {
    /// The op, if its result is to be checked.
    checked: Option<CheckedOp>,
    /// Poison that the results have from the operands.
    propagated: Option<Poison>,
    /// Poison of elements that the op reads from unwritten memory.
    unwritten: Option<Poison>,
}

impl Machine<'_> {
    /// Checks the operands of an op before its step, which may consume them. Returns `None` for an
    /// op whose step moves values together with their poison.
    pub fn before_step(&mut self, id: OpId, op: &Op) -> Result<Option<Poisoning>, Fault> {
        let poisons: Vec<Option<Rc<Poison>>> =
            op.operands.iter().map(|&value| self.poison(value).cloned()).collect_vec();
        let any = poisons.iter().any(Option::is_some);
        if any {
            self.refuse_use(op, &poisons)?;
        }
        let unwritten = self.unwritten(op)?;
        if op.code.is_control_flow() || op.code.spec().effect == Effect::Terminator {
            return Ok(None);
        }
        let checked = self.checked_op(id, op);
        let propagated = if any { self.propagated(op, &poisons)? } else { None };
        Ok(Some(Poisoning { checked, propagated, unwritten }))
    }

    /// Poisons the results of an op after its step.
    pub fn after_step(&mut self, op: &Op, poisoning: Poisoning) -> Result<(), Fault> {
        let Poisoning { checked, propagated, unwritten } = poisoning;
        let Some(&result) = op.results.first() else { return Ok(()) };
        let raised = checked.and_then(|checked| checked.poison(self.checks, self.tile(result).len()));
        if self.folding
            && let Some((loc, what)) = raised.as_ref().and_then(|poison| poison.first(|_| true))
        {
            return Err(Fault { loc: Some(loc), message: what });
        }
        let raised = raised.or(unwritten);
        let poison = match (propagated, raised) {
            (Some(propagated), Some(raised)) => Some(propagated.or(raised)),
            (propagated, raised) => propagated.or(raised),
        };
        if let Some(poison) = poison {
            for &result in &op.results {
                self.set_poison(result, poison.clone());
            }
        }
        Ok(())
    }

    /// Returns the checked op if the user wrote the op.
    fn checked_op(&self, id: OpId, op: &Op) -> Option<CheckedOp> {
        let written = *self.program.written.get(&id)?;
        let types = [op.operands[0], op.results[0]].map(|value| self.module().dtype(value));
        let operands = op.operands.iter().map(|&value| self.tile(value).clone()).collect_vec();
        let shape = if self.folding { Vec::new() } else { self.dims(op.results[0]) };
        Some(CheckedOp::new(op, written, types, operands, shape))
    }

    // Memory of the tile block.

    /// Records the writes of an access to such memory, and returns the poison of the elements that
    /// it reads before any write.
    fn unwritten(&mut self, op: &Op) -> Result<Option<Poison>, Fault> {
        use Opcode as O;
        let is_load = matches!(op.code, O::LoadView | O::LoadPtr);
        let is_store = matches!(op.code, O::StoreView | O::StorePtr);
        let is_atomic = matches!(op.code, O::AtomicRedView | O::AtomicRmw | O::AtomicCas);
        let is_recorded = !self.allocations.is_empty() || self.memory.has_records();
        if !self.checks.unwritten || !is_recorded || !(is_load || is_store || is_atomic) {
            return Ok(None);
        }
        let (places, halves) = self.lane_places(op)?;
        if is_store || is_atomic {
            let missing = if is_atomic { self.missing(&places, halves) } else { Vec::new() };
            self.note_written(&places, halves);
            let first = missing.iter().position(Option::is_some);
            return match first.and_then(|i| Some((i, missing[i].clone()?))) {
                Some((i, what)) => {
                    let shape = self.result_shape(op);
                    let message = format!("{what} was never written{}, and is updated here", element(&shape, i));
                    Err(Fault { loc: Some(op.loc), message })
                }
                None => Ok(None),
            };
        }
        let missing = self.missing(&places, halves);
        let (shape, loc) = (self.result_shape(op), op.loc);
        let names = missing.clone();
        let tell = move |i: usize| {
            let what = names[i].as_deref().unwrap_or("an element");
            format!("{what} was never written{}", element(&shape, i))
        };
        Ok(Poison::new(|| Source { loc, tell: Box::new(tell) }, missing.len(), |i| missing[i].is_some()))
    }

    /// Returns the allocation of the tile block that has a place, and the offset in half bytes.
    fn own_place(&self, place: u64) -> Option<(usize, usize)> {
        self.allocations.iter().enumerate().find_map(|(which, own)| {
            let offset = place.wrapping_sub(2 * own.span().address());
            (offset < own.written.len() as u64).then_some((which, offset as usize))
        })
    }

    /// Returns the names of the elements at these places that were never written.
    fn missing(&self, places: &[Option<u64>], halves: u64) -> Vec<Option<String>> {
        let name = |place: u64| {
            if let Some((which, offset)) = self.own_place(place) {
                let is_written = self.allocations[which].written[offset];
                return (!is_written).then(|| format!("element {} of scratch memory", offset as u64 / halves));
            }
            let (written, number, of) = self.memory.written_at(place / 2)?;
            (written.load::<u8>(0) == 0).then(|| format!("element {number} of an array of {of}"))
        };
        places.iter().map(|place| place.and_then(name)).collect_vec()
    }

    /// Records a write of the elements at these places.
    fn note_written(&mut self, places: &[Option<u64>], halves: u64) {
        for &place in places.iter().flatten() {
            if let Some((which, offset)) = self.own_place(place) {
                let written = &mut self.allocations[which].written;
                let end = written.len().min(offset + halves as usize);
                written[offset..end].fill(true);
            } else if let Some((written, ..)) = self.memory.written_at(place / 2) {
                written.store(0, 1u8);
            }
        }
    }

    fn result_shape(&self, op: &Op) -> Vec<usize> {
        op.results.first().map_or(Vec::new(), |&result| match self.module().ty(result) {
            Type::Tile { .. } => self.dims(result),
            _ => Vec::new(),
        })
    }

    // Uses.

    /// Rejects the use of poisoned elements.
    fn refuse_use(&self, op: &Op, poisons: &OperandPoison) -> Result<(), Fault> {
        use Opcode as O;
        let everything = |_: usize| true;
        let range = |from: usize, to: usize| poisons[from..to].iter().flatten();
        let refuse = |found: Option<(Loc, String)>, what: &str| match found {
            None => Ok(()),
            Some((loc, message)) => {
                let at = self.module().location(op.loc).map_or_else(|| "?".to_owned(), ToString::to_string);
                Err(Fault { loc: Some(loc), message: format!("{message}, and {what} at {at} uses it") })
            }
        };
        match op.code {
            O::If => refuse(range(0, 1).find_map(|poison| poison.first(everything)), "a branch"),
            O::For => refuse(range(0, 3).find_map(|poison| poison.first(everything)), "the range of a loop"),
            O::Assert => refuse(range(0, 1).find_map(|poison| poison.first(everything)), "an assertion"),
            O::Print => refuse(range(0, poisons.len()).find_map(|poison| poison.first(everything)), "a print"),
            O::MakeTensorView => {
                refuse(range(0, poisons.len()).find_map(|poison| poison.first(everything)), "the extent of an array")
            }
            O::Extract => {
                refuse(range(1, poisons.len()).find_map(|poison| poison.first(everything)), "the index of a part")
            }
            O::Insert => {
                refuse(range(2, poisons.len()).find_map(|poison| poison.first(everything)), "the index of a part")
            }
            O::LoadView | O::StoreView | O::AtomicRedView => {
                let index = op.operand_group("index");
                let of_index = index.iter().filter_map(|&value| self.poison(value));
                refuse(of_index.clone().find_map(|poison| poison.first(everything)), "an index")?;
                let (group, what) = match op.code {
                    O::LoadView => return Ok(()),
                    O::StoreView => ("tile", "a store"),
                    _ => ("value", "an atomic operation"),
                };
                let Some(poison) = self.poison(op.operand_group(group)[0]) else { return Ok(()) };
                let (places, _) = self.lane_places(op)?;
                refuse(poison.first(|i| places[i].is_some()), what)
            }
            O::LoadPtr | O::StorePtr | O::AtomicRmw | O::AtomicCas => {
                let of_mask = op.operand_group("mask").first().and_then(|&value| self.poison(value));
                refuse(of_mask.and_then(|poison| poison.first(everything)), "an index or mask")?;
                let (places, _) = self.lane_places(op)?;
                let used = |i: usize| places[i].is_some();
                let (pointers, what) = match op.code {
                    O::LoadPtr => ("source", "an address"),
                    O::StorePtr => ("destination", "a store"),
                    _ => ("pointers", "an atomic operation"),
                };
                let groups: &[&str] = match op.code {
                    O::LoadPtr => &[],
                    O::StorePtr => &["value"],
                    O::AtomicRmw => &["arg"],
                    _ => &["cmp", "val"],
                };
                let of = |name: &str| self.poison(op.operand_group(name)[0]).and_then(|poison| poison.first(used));
                refuse(of(pointers), "an address")?;
                groups.iter().try_for_each(|name| refuse(of(name), what))
            }
            _ => Ok(()),
        }
    }

    // Propagation.

    /// Returns the poison of the results of an op from that of its operands.
    fn propagated(&self, op: &Op, poisons: &OperandPoison) -> Result<Option<Poison>, Fault> {
        use Opcode as O;
        let Some(&result) = op.results.first() else { return Ok(None) };
        let is_tile = |value| matches!(self.module().ty(value), Type::Tile { .. });
        if !is_tile(result) || matches!(op.code, O::LoadView | O::AtomicRmw | O::AtomicCas) {
            return Ok(None);
        }
        let counts: Vec<usize> =
            op.operands.iter().map(|&v| if is_tile(v) { self.tile(v).len() } else { 0 }).collect_vec();
        let (marks, sources) = Poison::concat_marks(poisons, &counts);
        let words = |operand: usize| &**self.tile(op.operands[operand]);
        let dims = |operand: usize| self.dims(op.operands[operand]);
        let either = |a: &Words, b: &Words| Words::W64(zip(u64::of(a), u64::of(b), |a, b| if a != 0 { a } else { b }));
        let marks = match op.code {
            O::Select => {
                let c = u8::of(words(0));
                let chosen = zip3(c, u64::of(&marks[1]), u64::of(&marks[2]), |c, x, y| if c != 0 { x } else { y });
                either(&marks[0], &Words::W64(chosen))
            }
            // A known bool that decides the result makes it independent of the other operand.
            O::AndI | O::OrI if self.module().dtype(result) == DType::I1 => {
                let deciding = u64::from(op.code == O::OrI);
                let decides = |operand: usize, i: usize| {
                    let at = |words: &Words| words.get(if words.len() == 1 { 0 } else { i });
                    at(&marks[operand]) == 0 && at(words(operand)) == deciding
                };
                let both = either(&marks[0], &marks[1]);
                let undecided = |i: usize| if decides(0, i) || decides(1, i) { 0 } else { both.get(i) };
                Words::W64((0..both.len()).map(undecided).collect_vec())
            }
            O::Broadcast => shape::broadcast(&marks[0], &dims(0), &self.dims(result)),
            O::Permute => shape::permute(&marks[0], &dims(0), op.permutation()),
            O::Cat => shape::cat([&marks[0], &marks[1]], [&dims(0), &dims(1)], op.dim() as usize),
            O::Gather => {
                let moved = shape::gather([&marks[0], words(1)], [&dims(0), &dims(1)], op.dim() as usize);
                either(&moved, &marks[1])
            }
            O::Extract | O::Insert => self.part(op, &marks)?,
            O::Reduce | O::Scan => self.along(op, &marks, result),
            O::LoadPtr => self.padded(op, &marks),
            O::Reshape | O::Assume | O::WithLayout => marks[0].clone(),
            code if code.is_elementwise() || code == O::Offset => {
                marks[1..].iter().fold(marks[0].clone(), |all, marks| either(&all, marks))
            }
            // Any element of the operands may affect each element of the result.
            _ => {
                let first = marks.iter().find_map(|words| u64::of(words).iter().find(|&&mark| mark != 0));
                Words::splat(Width::W64, first.copied().unwrap_or(0), self.dims(result).iter().product())
            }
        };
        Ok(Poison::from_marks(marks, &sources))
    }

    /// Returns the marks of an `extract` or `insert`.
    fn part(&self, op: &Op, marks: &[Words]) -> Result<Words, Fault> {
        let is_extract = op.code == Opcode::Extract;
        let (block, whole, group) = match is_extract {
            true => (self.dims(op.results[0]), self.dims(op.operands[0]), 1),
            false => (self.dims(op.operands[0]), self.dims(op.operands[1]), 2),
        };
        let index: Vec<i64> = op.group(group).iter().map(|&value| self.scalar(value, Sign::Unsigned)).collect_vec();
        let start = shape::block_start(&whole, &block, &index)?;
        if is_extract {
            return Ok(shape::extract(&marks[0], &whole, &block, start));
        }
        let mut all = marks[1].clone();
        shape::insert(&mut all, &whole, &marks[0], &block, start);
        Ok(all)
    }

    /// Returns the marks of a reduction or scan: one poisoned element poisons its entire line.
    fn along(&self, op: &Op, marks: &[Words], result: crate::ir::Value) -> Words {
        let dims = self.dims(op.operands[0]);
        let dim = op.dim() as usize;
        let (length, inner): (usize, usize) = (dims[dim], dims[dim + 1..].iter().product());
        let mut lines = vec![0u64; dims.iter().product::<usize>() / length];
        for marks in marks {
            for (i, &mark) in u64::of(marks).iter().enumerate() {
                let line = &mut lines[i / (length * inner) * inner + i % inner];
                *line = if *line != 0 { *line } else { mark };
            }
        }
        if op.code == Opcode::Reduce {
            return Words::W64(lines);
        }
        let count = self.dims(result).iter().product();
        Words::W64((0..count).map(|i: usize| lines[i / (length * inner) * inner + i % inner]).collect_vec())
    }

    /// Returns the marks of a load: an element that the mask excludes has those of the padding.
    fn padded(&self, op: &Op, marks: &[Words]) -> Words {
        let padding = op.operand_group("padding_value").first();
        let of = padding.and_then(|padding| op.operands.iter().position(|operand| operand == padding));
        let mask = op.operand_group("mask").first().map(|&mask| u8::of(self.tile(mask)));
        let count = self.dims(op.results[0]).iter().product();
        let mark = |i: usize| match (of, mask) {
            (Some(of), Some(mask)) if mask[i] == 0 => marks[of].get(i),
            _ => 0,
        };
        Words::W64((0..count).map(mark).collect_vec())
    }
}
