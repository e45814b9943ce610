//! Values in the layout that a user asks for.

use std::collections::HashMap;
use std::rc::Rc;

use super::{Lowered, Lowering, Tile};
use crate::backend::ptx::isa::inst::{Cmp, CvtMods, Operand, Ty};
use crate::backend::ptx::layout_inference::{ValueOrigin, thread_images};
use crate::backend::ptx::scalar::repr;
use crate::dtype::DType;
use crate::ir::{ConstData, OpId, Opcode, Value};
use crate::layout::Layout;

/// Values in further layouts than their own, in the order in which they came about.
#[derive(Debug, Default)]
pub struct Cache {
    tiles: Vec<(Value, Tile)>,
    /// Positions of a value's tiles.
    of: HashMap<Value, Vec<usize>>,
}

impl Cache {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.tiles.len()
    }

    /// Forgets all but the first ones.
    pub fn truncate(&mut self, len: usize) {
        for (value, _) in self.tiles.drain(len.min(self.tiles.len())..) {
            self.of.get_mut(&value).and_then(Vec::pop);
        }
    }

    fn push(&mut self, value: Value, tile: Tile) {
        self.of.entry(value).or_default().push(self.tiles.len());
        self.tiles.push((value, tile));
    }

    /// The tiles of a value, the latest first.
    fn of(&self, value: Value) -> impl Iterator<Item = &Tile> {
        self.of.get(&value).into_iter().flatten().rev().map(|&position| &self.tiles[position].1)
    }
}

impl Lowering<'_> {
    /// The slots of `value` in layout `wanted`.
    pub fn get(&mut self, value: Value, wanted: &Layout) -> Lowered<Rc<[Operand]>> {
        self.need(value)?;
        debug_assert_eq!(self.module.shape(value), wanted.shape());
        if let Some(tile) = self.held(value, wanted) {
            return Ok(tile);
        }
        self.get_operands(value, wanted)?;
        let slots = match self.context.inference.source(value) {
            ValueOrigin::Register => {
                let tile = self.concrete(value)?;
                if tile.layout.num_elements() == 1 {
                    vec![tile.slots[0]; wanted.num_registers()].into()
                } else {
                    self.convert(value, &tile, wanted)?
                }
            }
            ValueOrigin::View => self.renamed(value, wanted)?,
            ValueOrigin::Rematerialized => self.computed(value, wanted)?,
        };
        self.cached.push(value, Tile { layout: wanted.clone(), slots: slots.clone() });
        Ok(slots)
    }

    /// Computes what a virtual or free value is made of, one after another: chains of them may be longer than the stack.
    fn get_operands(&mut self, value: Value, wanted: &Layout) -> Lowered {
        let mut pending = self.missing_operands(value, wanted);
        while let Some((operand, layout)) = pending.pop() {
            let missing = self.missing_operands(operand, &layout);
            if missing.is_empty() {
                self.get(operand, &layout)?;
            } else {
                pending.push((operand, layout));
                pending.extend(missing);
            }
        }
        Ok(())
    }

    /// The virtual and free operands of such a value that are not there yet, the first one last.
    fn missing_operands(&self, value: Value, wanted: &Layout) -> Vec<(Value, Layout)> {
        let Some(id) = self.module.defining_op(value) else { return Vec::new() };
        let op = self.module.op(id);
        let renames = matches!(
            op.code,
            Opcode::Broadcast | Opcode::Reshape | Opcode::Permute | Opcode::Assume | Opcode::WithLayout
        );
        let operands = op.operands.iter().rev().filter(|&&operand| self.context.inference.num_elements(operand) > 1);
        match self.context.inference.source(value) {
            ValueOrigin::Register => return Vec::new(),
            ValueOrigin::Rematerialized | ValueOrigin::View => {}
        }
        let layout = if renames { self.context.inference.demand(id, wanted) } else { wanted.clone() };
        let missing = operands.filter(|&&operand| {
            self.context.inference.source(operand) != ValueOrigin::Register && self.held(operand, &layout).is_none()
        });
        missing.map(|&operand| (operand, layout.clone())).collect()
    }

    /// `with_layout`: the tile in the layout that the user has chosen.
    pub fn in_chosen_layout(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        let Some(layout) = self.context.inference.chosen(op) else {
            let threads = op.distribution().map_or(0, |layout| layout.num_threads());
            let warps = self.context.inference.num_warps as u64;
            let more = (32 * warps).checked_div(threads).filter(|&more| more > 1);
            let replicas =
                more.map_or(String::new(), |more| format!(", or replicas of the threads (`.replicate({more})`)"));
            return Err(format!(
                "a layout for {threads} threads, and the tile block has {warps} warps, which are {}: ask for `num_warps` \
                 {}{replicas}",
                32 * warps,
                threads / 32
            ));
        };
        if self.context.inference.source(op.results[0]) == ValueOrigin::Register {
            let slots = self.get(op.operands[0], &layout)?;
            self.tiles[op.results[0].index()] = Some(Tile { layout, slots });
        }
        Ok(())
    }

    /// The value, if it is there in exactly this layout.
    fn held(&self, value: Value, wanted: &Layout) -> Option<Rc<[Operand]>> {
        let own = self.tiles[value.index()].iter();
        own.chain(self.cached.of(value)).find(|tile| tile.layout.is_same(wanted)).map(|tile| tile.slots.clone())
    }

    /// A concrete value in its own layout.
    pub fn concrete(&self, value: Value) -> Lowered<Tile> {
        self.tiles[value.index()].clone().ok_or_else(|| "an operand has no registers".to_owned())
    }

    /// A scalar, or the only element of a one-element tile.
    pub fn scalar(&mut self, value: Value) -> Lowered<Operand> {
        let layout = Layout::replicated(self.module.shape(value), self.context.inference.num_warps);
        Ok(self.get(value, &layout)?[0])
    }

    /// The result of a virtual op: its operand's registers under other names.
    fn renamed(&mut self, value: Value, wanted: &Layout) -> Lowered<Rc<[Operand]>> {
        let id = self.module.defining_op(value).expect("virtual values have an op");
        let operand = self.module.op(id).operands[0];
        let demand = self.context.inference.demand(id, wanted);
        let slots = self.get(operand, &demand)?;
        if self.module.op(id).code != Opcode::Broadcast {
            return Ok(slots);
        }
        let map = wanted.projected_registers(self.module.shape(operand));
        Ok(map.iter().map(|&register| slots[register]).collect())
    }

    /// A free value, computed in this layout.
    fn computed(&mut self, value: Value, wanted: &Layout) -> Lowered<Rc<[Operand]>> {
        let id = self.module.defining_op(value).expect("free values have an op");
        self.for_op(id, |lowering| lowering.computed_by(id, value, wanted))
    }

    fn computed_by(&mut self, id: OpId, value: Value, wanted: &Layout) -> Lowered<Rc<[Operand]>> {
        let op = self.module.op(id);
        match op.code {
            Opcode::Constant => self.constant(id, wanted),
            Opcode::Iota => self.iota(value, wanted),
            Opcode::Broadcast | Opcode::Reshape | Opcode::Permute
                if self.context.inference.num_elements(op.operands[0]) == 1 =>
            {
                let scalar = self.scalar(op.operands[0])?;
                Ok(vec![scalar; wanted.num_registers()].into())
            }
            Opcode::Broadcast | Opcode::Reshape | Opcode::Permute => self.renamed(value, wanted),
            _ => self.elementwise_slots(id, wanted),
        }
    }

    fn constant(&mut self, id: OpId, wanted: &Layout) -> Lowered<Rc<[Operand]>> {
        let op = self.module.op(id);
        let dtype = self.module.dtype(op.results[0]);
        match op.const_data() {
            Some(ConstData::Splat(bits)) => Ok(vec![repr::constant(dtype, *bits); wanted.num_registers()].into()),
            Some(ConstData::Dense(words)) if words.len() == 1 => {
                Ok(vec![repr::constant(dtype, words[0]); wanted.num_registers()].into())
            }
            Some(ConstData::Dense(words)) => self.dense_constant(dtype, words, wanted),
            None => Err("a constant without a value".to_owned()),
        }
    }

    /// Elements that differ: selected by the element index, bit by bit of the index.
    fn dense_constant(&mut self, dtype: DType, words: &[u64], wanted: &Layout) -> Lowered<Rc<[Operand]>> {
        let thread = self.linear_in_thread(&thread_images(wanted));
        let class = repr::class(dtype);
        let mut slots = Vec::with_capacity(wanted.num_registers());
        for register in 0..wanted.num_registers() {
            let offset = wanted.element(register, 0, 0);
            let mut values: Vec<Operand> =
                (0..words.len()).map(|i| repr::constant(dtype, words[i ^ offset as usize])).collect();
            let mut bit = 0;
            while values.len() > 1 {
                let used = thread_images(wanted).iter().any(|image| image & (1 << bit) != 0);
                values = if used {
                    let field = self.b.and(Ty::B32, thread, 1u32 << bit);
                    let set = self.b.setp(Cmp::Ne, Ty::B32, field, 0);
                    values
                        .chunks(2)
                        .map(
                            |pair| {
                                if pair[0] == pair[1] { pair[0] } else { self.b.select(class, set, pair[1], pair[0]) }
                            },
                        )
                        .collect()
                } else {
                    values.chunks(2).map(|pair| pair[0]).collect()
                };
                bit += 1;
            }
            slots.push(values[0]);
        }
        Ok(slots.into())
    }

    fn iota(&mut self, value: Value, wanted: &Layout) -> Lowered<Rc<[Operand]>> {
        let dtype = self.module.dtype(value);
        let thread = self.linear_in_thread(&thread_images(wanted));
        let mut slots = Vec::with_capacity(wanted.num_registers());
        for register in 0..wanted.num_registers() {
            let index = self.b.xor(Ty::B32, thread, wanted.element(register, 0, 0));
            slots.push(match dtype {
                DType::I64 => self.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), index),
                DType::I32 => index,
                DType::I8 | DType::I16 => repr::truncate(&mut self.b, dtype, index),
                DType::I1 => self.b.setp(Cmp::Ne, Ty::B32, index, 0).into(),
                other => return Err(format!("an index range of {other}")),
            });
        }
        Ok(slots.into())
    }
}
