//! Strip mining: elementwise work on large tiles goes piece by piece.
//!
//! A run of loads, elementwise ops and stores in one layout, none of whose results is needed after it, is
//! lowered for a few slots at a time from load to store, so that the registers in use do not grow
//! with the tile. A reduction of a tile that would fill the registers ends such a run, too.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::order::Ordering;
use super::reduce::RunningReduction;
use super::{Lowered, Lowering, memory};
use crate::backend::ptx::infer::Source;
use crate::backend::ptx::inst::Operand;
use crate::backend::ptx::plan;
use crate::ir::{OpId, Opcode, Value};
use crate::layout::Layout;
use crate::pass;

/// A run of ops that is lowered piece by piece.
pub struct Strip {
    /// The layout of its tiles.
    pub layout: Layout,
    /// Slots of one piece.
    pub piece: usize,
    /// The ops of the run in order.
    pub ops: Vec<OpId>,
    /// Tiles that the run makes, and other names of them.
    pub inside: HashSet<Value>,
}

/// What an op is to a strip.
pub enum Role {
    /// Works on tiles of this layout.
    Tile(Layout),
    /// Gives a tile another shape: the same elements in the same slots.
    Name,
    /// Has no instructions, or computes scalars: before the pieces.
    Scalar,
    /// Ends the run.
    Other,
}

impl Lowering<'_> {
    /// What an op is to a strip that it may stand in.
    pub fn role(&self, id: OpId) -> Role {
        let op = self.module.op(id);
        match op.code {
            _ if self.deferred.contains(&id) => Role::Other,
            Opcode::StoreView if self.box_stores.contains_key(&id) => Role::Other,
            Opcode::LoadView if self.is_own(id) => Role::Other,
            Opcode::LoadView | Opcode::StoreView if self.is_listed(id) || !Ordering::of(op).is_weak() => Role::Other,
            Opcode::LoadView | Opcode::StoreView => match self.inference.accesses.get(&id) {
                Some(layout) => Role::Tile(layout.clone()),
                None => Role::Other,
            },
            Opcode::Reduce if self.reduces_in_pieces(id) => Role::Tile(self.inference.accesses[&id].clone()),
            Opcode::Reshape | Opcode::Assume if self.inference.source(op.results[0]) == Source::Virtual => Role::Name,
            Opcode::Constant
            | Opcode::Iota
            | Opcode::Assume
            | Opcode::Broadcast
            | Opcode::Reshape
            | Opcode::Permute
            | Opcode::MakeTensorView
            | Opcode::MakePartitionView
            | Opcode::MakeStridedView
            | Opcode::MakeGatherScatterView
            | Opcode::MakeToken
            | Opcode::JoinTokens => Role::Scalar,
            code if code.is_elementwise() => {
                let result = op.results[0];
                match self.inference.source(result) {
                    Source::Free | Source::Virtual => Role::Scalar,
                    Source::Concrete if self.inference.num_elements(result) == 1 => Role::Scalar,
                    Source::Concrete => self.inference.layout(result).cloned().map_or(Role::Other, Role::Tile),
                }
            }
            _ => Role::Other,
        }
    }

    /// Would the operands of this reduction fill the registers, and may their elements come in any order?
    fn reduces_in_pieces(&self, id: OpId) -> bool {
        let op = self.module.op(id);
        let Some(layout) = self.inference.accesses.get(&id) else { return false };
        let bits: u32 = op.operands.iter().map(|&operand| self.element_type(operand).storage_bits()).sum();
        let words = layout.num_registers() as u64 * u64::from(bits) / 32;
        plan::fills_registers(words, self.inference.num_warps as u32) && pass::commutes(self.module, op.regions[0])
    }

    /// Lowers a strip.
    pub fn strip(&mut self, strip: &Strip) -> Lowered {
        let module = self.module;
        let mut accesses: HashMap<OpId, memory::Access> = HashMap::new();
        let mut outside: HashMap<Value, Rc<[Operand]>> = HashMap::new();
        for &id in &strip.ops {
            let op = module.op(id);
            let values: &[Value] = match self.role(id) {
                Role::Tile(_) if op.code == Opcode::LoadView => &[],
                Role::Tile(_) if op.code == Opcode::StoreView => op.group(0),
                Role::Tile(_) => &op.operands,
                Role::Name | Role::Scalar | Role::Other => {
                    self.op(id)?;
                    continue;
                }
            };
            for &value in values.iter().filter(|&value| !strip.inside.contains(value)) {
                let layout = strip.layout.reshape(module.shape(value));
                let slots = self.for_op(id, |lowering| lowering.get(value, &layout))?;
                outside.insert(value, slots);
            }
            match op.code {
                Opcode::LoadView => drop(accesses.insert(id, self.for_op(id, |lowering| lowering.begin_load(id))?)),
                Opcode::StoreView => drop(accesses.insert(id, self.for_op(id, |lowering| lowering.begin_store(id))?)),
                _ => {}
            }
        }
        accesses.values_mut().for_each(memory::Access::go_in_pieces);
        let widest = accesses.values().map(memory::Access::vector).max().unwrap_or(1);
        let piece = strip.piece.max(widest);
        let reductions = strip.ops.iter().filter(|&&id| module.op(id).code == Opcode::Reduce);
        let mut reductions: HashMap<OpId, RunningReduction> =
            reductions.map(|&id| (id, self.begin_reduction(id, piece))).collect();
        let mut held: HashMap<Value, Vec<Operand>> = HashMap::new();
        for start in (0..strip.layout.num_registers()).step_by(piece) {
            self.check_length(module.op(strip.ops[0]))?;
            for &id in &strip.ops {
                match self.role(id) {
                    Role::Tile(_) if module.op(id).code == Opcode::Reduce => {
                        let operands = module.op(id).operands.iter();
                        let values = operands.map(|&v| piece_of(v, start..start + piece, &outside, &held)).collect();
                        let running = reductions.get_mut(&id).expect("begun");
                        self.for_op(id, |lowering| lowering.reduce_piece(running, start, values))?;
                    }
                    Role::Tile(_) => self.for_op(id, |lowering| {
                        lowering.piece(id, start..start + piece, &mut accesses, &outside, &mut held)
                    })?,
                    Role::Name => {
                        let op = module.op(id);
                        if let Some(slots) = held.get(&op.operands[0]).cloned() {
                            held.insert(op.results[0], slots);
                        }
                    }
                    Role::Scalar | Role::Other => {}
                }
            }
        }
        accesses.keys().for_each(|&id| self.note_access(id));
        reductions.into_values().try_for_each(|running| self.end_reduction(running))
    }

    fn piece(
        &mut self,
        id: OpId,
        range: std::ops::Range<usize>,
        accesses: &mut HashMap<OpId, memory::Access>,
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
