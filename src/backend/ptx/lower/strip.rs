//! Strip mining: elementwise work on large tiles goes piece by piece.
//!
//! A run of loads, elementwise ops and stores in one layout, none of whose results is needed after it, is
//! lowered for a few slots at a time from load to store, so that the registers in use do not grow
//! with the tile.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::{Lowered, Lowering, memory};
use crate::backend::ptx::infer::{Source, is_elementwise};
use crate::backend::ptx::inst::Operand;
use crate::ir::{OpId, Opcode, Type, Value};
use crate::layout::Layout;

/// Slots of one piece; tiles of fewer than two pieces are lowered whole.
const PIECE: usize = 16;

/// A run of ops that is lowered piece by piece.
pub struct Strip {
    layout: Layout,
    /// The ops of the run in order.
    pub ops: Vec<OpId>,
}

/// What an op is to a strip.
enum Role {
    /// Works on tiles of this layout.
    Tile(Layout),
    /// Has no instructions, or computes scalars: before the pieces.
    Scalar,
    /// Ends the run.
    Other,
}

impl Lowering<'_> {
    /// The strip that starts with the first of these ops, if there is one.
    pub fn strip_at(&self, ops: &[OpId]) -> Option<Strip> {
        let module = self.module;
        let Role::Tile(layout) = self.role(*ops.first()?) else { return None };
        if layout.num_registers() < 2 * PIECE {
            return None;
        }
        let mut inside: HashSet<Value> = HashSet::new();
        let mut touches: Vec<memory::Touch> = Vec::new();
        let mut best = 0;
        let mut uses_inside: HashMap<Value, u32> = HashMap::new();
        for (index, &id) in ops.iter().enumerate() {
            let op = module.op(id);
            match self.role(id) {
                Role::Tile(other) if other.is_same(&layout) => {}
                Role::Scalar => continue,
                Role::Tile(_) | Role::Other => break,
            }
            let tiles = op.operands.iter().filter(|&&v| matches!(module.ty(v), Type::Tile { .. }));
            let mut fits = true;
            for &operand in tiles.filter(|&&v| self.inference.num_elements(v) > 1) {
                if inside.contains(&operand) {
                    *uses_inside.entry(operand).or_default() += 1;
                } else {
                    fits &= !self.depends_on(operand, &inside);
                }
            }
            if let Some(touch) = self.access_of(id) {
                fits &= !touches.iter().any(|earlier| earlier.conflicts(&touch));
                touches.push(touch);
            }
            if !fits {
                break;
            }
            inside.extend(op.results.iter().copied());
            let all_used =
                inside.iter().all(|v| self.use_counts[v.index()] == uses_inside.get(v).copied().unwrap_or(0));
            if op.code == Opcode::StoreView && all_used {
                best = index + 1;
            }
        }
        (best > 0).then(|| Strip { layout, ops: ops[..best].to_vec() })
    }

    fn role(&self, id: OpId) -> Role {
        let op = self.module.op(id);
        match op.code {
            Opcode::LoadView | Opcode::StoreView => match self.inference.accesses.get(&id) {
                Some(layout) => Role::Tile(layout.clone()),
                None => Role::Other,
            },
            Opcode::Constant
            | Opcode::Iota
            | Opcode::Assume
            | Opcode::Broadcast
            | Opcode::Reshape
            | Opcode::Permute => Role::Scalar,
            code if is_elementwise(code) => {
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

    /// Does a virtual or free value come from one of these?
    fn depends_on(&self, value: Value, set: &HashSet<Value>) -> bool {
        if set.contains(&value) {
            return true;
        }
        match (self.inference.source(value), self.module.defining_op(value)) {
            (Source::Free | Source::Virtual, Some(id)) => {
                self.module.op(id).operands.iter().any(|&operand| self.depends_on(operand, set))
            }
            _ => false,
        }
    }

    /// Lowers a strip.
    pub fn strip(&mut self, strip: &Strip) -> Lowered {
        let module = self.module;
        let inside: HashSet<Value> = strip.ops.iter().flat_map(|&id| module.op(id).results.iter().copied()).collect();
        let mut accesses: HashMap<OpId, memory::Access> = HashMap::new();
        let mut outside: HashMap<Value, Rc<[Operand]>> = HashMap::new();
        for &id in &strip.ops {
            let op = module.op(id);
            if let Role::Scalar = self.role(id) {
                self.op(id)?;
                continue;
            }
            let values: &[Value] = match op.code {
                Opcode::LoadView => &[],
                Opcode::StoreView => op.group(0),
                _ => &op.operands,
            };
            for &value in values {
                if !inside.contains(&value) || matches!(self.inference.source(value), Source::Free | Source::Virtual) {
                    let slots = self.get(value, &strip.layout)?;
                    outside.insert(value, slots);
                }
            }
            match op.code {
                Opcode::LoadView => drop(accesses.insert(id, self.begin_load(id)?)),
                Opcode::StoreView => drop(accesses.insert(id, self.begin_store(id)?)),
                _ => {}
            }
        }
        let widest = accesses.values().map(memory::Access::vector).max().unwrap_or(1);
        let piece = PIECE.max(widest);
        let mut held: HashMap<Value, Vec<Operand>> = HashMap::new();
        for start in (0..strip.layout.num_registers()).step_by(piece) {
            for &id in &strip.ops {
                if let Role::Tile(_) = self.role(id) {
                    self.piece(id, start..start + piece, &mut accesses, &outside, &mut held)?;
                }
            }
        }
        Ok(())
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
        let slots = |value: Value, held: &HashMap<Value, Vec<Operand>>| -> Vec<Operand> {
            match outside.get(&value) {
                Some(slots) => slots[range.clone()].to_vec(),
                None => held[&value].clone(),
            }
        };
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
