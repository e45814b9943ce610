//! Strip mining: elementwise work on large tiles goes piece by piece.
//!
//! A run of loads, elementwise ops and stores in one layout is lowered for a few slots at a time from load to store, so that
//! the registers in use do not grow with the tile. A reduction of a tile that would fill the registers ends such a run, too.
//! What is needed after the run is put together from its pieces.

use std::collections::HashMap;
use std::rc::Rc;

use super::access::Access;
use super::reduce::RunningReduction;
use super::{Lowered, Lowering, Tile};
use crate::backend::ptx::isa::inst::Operand;
use crate::backend::ptx::schedule::{StripMine, StripRole};
use crate::ir::{OpId, Opcode, Value};

impl Lowering<'_> {
    /// Lowers a strip.
    pub fn strip(&mut self, strip: &StripMine) -> Lowered {
        let module = self.module;
        let mut accesses: HashMap<OpId, Access> = HashMap::new();
        let mut outside: HashMap<Value, Rc<[Operand]>> = HashMap::new();
        let inside = strip.inside(module);
        let of_strip = self.schedule.layout(strip.layout).clone();
        for &(id, part) in &strip.ops {
            let op = module.op(id);
            let values: &[Value] = match part {
                StripRole::Body if op.code == Opcode::LoadView => &[],
                StripRole::Body if op.code == Opcode::StoreView => op.group(0),
                StripRole::Body => &op.operands,
                StripRole::View | StripRole::Preheader => {
                    self.op(id)?;
                    continue;
                }
            };
            if part == StripRole::Body && op.results.iter().any(|value| strip.live_out.contains(value)) {
                self.check_registers(id)?;
            }
            for &value in values.iter().filter(|&value| !inside.contains(value)) {
                let layout = of_strip.reshape(module.shape(value));
                let slots = self.for_op(id, |lowering| lowering.get(value, &layout))?;
                outside.insert(value, slots);
            }
            match op.code {
                Opcode::LoadView => drop(accesses.insert(id, self.for_op(id, |lowering| lowering.begin_load(id))?)),
                Opcode::StoreView => drop(accesses.insert(id, self.for_op(id, |lowering| lowering.begin_store(id))?)),
                _ => {}
            }
        }
        accesses.values_mut().for_each(Access::go_in_pieces);
        let widest = accesses.values().map(Access::vector).max().unwrap_or(1);
        let piece = strip.registers_per_iteration.max(widest);
        let reductions = strip.ops().filter(|&id| module.op(id).code == Opcode::Reduce);
        let mut reductions: HashMap<OpId, RunningReduction> =
            reductions.map(|id| (id, self.begin_reduction(id, piece))).collect();
        let mut held: HashMap<Value, Vec<Operand>> = HashMap::new();
        let mut given: Vec<Vec<Operand>> = vec![Vec::new(); strip.live_out.len()];
        for start in (0..of_strip.num_registers()).step_by(piece) {
            self.check_length(module.op(strip.ops[0].0))?;
            for &(id, part) in &strip.ops {
                match part {
                    StripRole::Body if module.op(id).code == Opcode::Reduce => {
                        let operands = module.op(id).operands.iter();
                        let values = operands.map(|&v| piece_of(v, start..start + piece, &outside, &held)).collect();
                        let running = reductions.get_mut(&id).expect("begun");
                        self.for_op(id, |lowering| lowering.reduce_piece(running, start, values))?;
                    }
                    StripRole::Body => self.for_op(id, |lowering| {
                        lowering.piece(id, start..start + piece, &mut accesses, &outside, &mut held)
                    })?,
                    StripRole::View => {
                        let op = module.op(id);
                        if let Some(slots) = held.get(&op.operands[0]).cloned() {
                            held.insert(op.results[0], slots);
                        }
                    }
                    StripRole::Preheader => {}
                }
            }
            given.iter_mut().zip(&strip.live_out).for_each(|(slots, value)| slots.extend(&held[value]));
        }
        for (slots, &value) in given.into_iter().zip(&strip.live_out) {
            let layout = of_strip.reshape(module.shape(value));
            self.tiles[value.index()] = Some(Tile { layout, slots: slots.into() });
        }
        reductions.into_values().try_for_each(|running| self.end_reduction(running))
    }

    fn piece(
        &mut self,
        id: OpId,
        range: std::ops::Range<usize>,
        accesses: &mut HashMap<OpId, Access>,
        outside: &HashMap<Value, Rc<[Operand]>>,
        held: &mut HashMap<Value, Vec<Operand>>,
    ) -> Lowered {
        let op = self.module.op(id);
        let slots = |value: Value, held: &HashMap<Value, Vec<Operand>>| piece_of(value, range.clone(), outside, held);
        match op.code {
            Opcode::LoadView => {
                let access = accesses.get_mut(&id).expect("begun");
                let loaded = self.load_slots(access, range.clone());
                held.insert(op.results[0], loaded);
            }
            Opcode::StoreView => {
                let values = slots(op.group(0)[0], held);
                let access = accesses.get_mut(&id).expect("begun");
                self.store_slots(access, range.start, &values);
            }
            _ => {
                let operands: Vec<Vec<Operand>> = op.operands.iter().map(|&v| slots(v, held)).collect();
                let operands: Vec<&[Operand]> = operands.iter().map(|slots| &slots[..]).collect();
                let result = self.apply(id, &operands, range.len())?;
                held.insert(op.results[0], result);
            }
        }
        Ok(())
    }
}

/// The operands of a value in a piece.
fn piece_of(
    value: Value,
    range: std::ops::Range<usize>,
    outside: &HashMap<Value, Rc<[Operand]>>,
    held: &HashMap<Value, Vec<Operand>>,
) -> Vec<Operand> {
    match outside.get(&value) {
        Some(slots) => slots[range].to_vec(),
        None => held[&value].clone(),
    }
}
