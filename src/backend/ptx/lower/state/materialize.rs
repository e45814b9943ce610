//! Materializes a value in the layout of a user, and caches conversions.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use super::core::{Lowered, Lowering, SCHEDULE_MISMATCH};
use super::values::Tile;
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::isa::inst::{Cmp, CvtMods, Operand, Ty};
use crate::backend::ptx::layout_inference::{ValueOrigin, thread_bases};
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::Requirement;
use crate::dtype::DType;
use crate::ir::{ConstData, OpId, Opcode, Value};
use crate::layout::Layout;

impl Lowering<'_> {
    /// Returns the registers of a value in layout `required`.
    pub fn get(&mut self, value: Value, required: &Layout) -> Lowered<Rc<[Operand]>> {
        self.wait_for_value(value)?;
        debug_assert_eq!(self.module.shape(value), required.shape());
        if let Some(tile) = self.values.in_layout(value, required) {
            return Ok(tile);
        }
        let is_available = |value: Value, layout: &Layout| self.values.in_layout(value, layout).is_some();
        for (operand, layout) in self.info.missing_inputs(value, required, &is_available) {
            self.get(operand, &layout)?;
        }
        let regs = match self.info.inference.origin(value) {
            ValueOrigin::Register => {
                let tile = self.concrete(value)?;
                if tile.layout.num_elements() == 1 {
                    vec![tile.regs[0]; required.num_registers()].into()
                } else {
                    self.convert(value, &tile, required)?
                }
            }
            ValueOrigin::View => self.alias_operand(value, required)?,
            ValueOrigin::Rematerialized => self.rematerialized(value, required)?,
        };
        self.values.conversions.push(value, required.clone(), regs.clone());
        Ok(regs)
    }

    /// Returns the next operand of the op, in the layout of its requirements.
    pub fn operand(&mut self) -> Lowered<Tile> {
        let (value, layout) = self.values.operands.pop_front().ok_or(SCHEDULE_MISMATCH)?;
        Ok(Tile { regs: self.get(value, &layout)?, layout })
    }

    /// Returns the registers of all other operands of the op.
    pub fn operands(&mut self) -> Lowered<Vec<Rc<[Operand]>>> {
        let count = self.values.operands.len();
        (0..count).map(|_| Ok(self.operand()?.regs)).try_collect_vec()
    }

    /// Lowers an op, which reads the operands among its requirements.
    pub fn with_requirements(
        &mut self,
        requirements: Vec<Requirement>,
        lower: impl FnOnce(&mut Self) -> Lowered,
    ) -> Lowered {
        let operand = |requirement| match requirement {
            Requirement::Operand(value, layout) => Some((value, layout)),
            _ => None,
        };
        let operands = requirements.into_iter().filter_map(operand).collect();
        let outer = std::mem::replace(&mut self.values.operands, operands);
        let result = lower(self);
        let rest = std::mem::replace(&mut self.values.operands, outer);
        result.and(if rest.is_empty() { Ok(()) } else { Err(SCHEDULE_MISMATCH.to_owned()) })
    }

    /// Lowers `with_layout`: converts the tile to the layout of the user.
    pub fn with_layout(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        if self.info.inference.chosen(op).is_none() {
            let threads = op.distribution().map_or(0, |layout| layout.num_threads());
            let (warp_size, warps) = (u64::from(WARP_SIZE), self.info.inference.num_warps as u64);
            let more = (warp_size * warps).checked_div(threads).filter(|&more| more > 1);
            let replicas =
                more.map_or(String::new(), |more| format!(", or replicas of the threads (`.replicate({more})`)"));
            return Err(format!(
                "a layout for {threads} threads, and the tile block has {warps} warps, which are {}: ask for `num_warps` \
                 {}{replicas}",
                warp_size * warps,
                threads / warp_size
            ));
        }
        if !self.values.operands.is_empty() {
            let tile = self.operand()?;
            self.values.define(op.results[0], tile);
        }
        Ok(())
    }

    /// Returns a value in its own layout.
    pub fn concrete(&self, value: Value) -> Lowered<Tile> {
        self.values.tiles[value.index()].clone().ok_or_else(|| "an operand has no registers".to_owned())
    }

    /// Returns a scalar, or the only element of a tile with one element.
    pub fn scalar(&mut self, value: Value) -> Lowered<Operand> {
        let layout = Layout::replicated(self.module.shape(value), self.info.inference.num_warps);
        Ok(self.get(value, &layout)?[0])
    }

    /// Returns the result of a view: the registers of its operand.
    fn alias_operand(&mut self, value: Value, required: &Layout) -> Lowered<Rc<[Operand]>> {
        let id = self.module.defining_op(value).expect("virtual values have an op");
        let (operand, layout) = self.info.inputs_in_layout(id, required).swap_remove(0);
        let regs = self.get(operand, &layout)?;
        if self.module.op(id).code != Opcode::Broadcast {
            return Ok(regs);
        }
        let map = required.projected_registers(self.module.shape(operand));
        Ok(map.iter().map(|&register| regs[register]).collect())
    }

    /// Computes a rematerialized value in this layout.
    fn rematerialized(&mut self, value: Value, required: &Layout) -> Lowered<Rc<[Operand]>> {
        let id = self.module.defining_op(value).expect("free values have an op");
        self.for_op(id, |lowering| lowering.rematerialize_by(id, value, required))
    }

    fn rematerialize_by(&mut self, id: OpId, value: Value, required: &Layout) -> Lowered<Rc<[Operand]>> {
        let op = self.module.op(id);
        match op.code {
            Opcode::Constant => self.constant(id, required),
            Opcode::Iota => self.iota(value, required),
            code if code.is_shape_alias() && self.info.inference.num_elements(op.operands[0]) == 1 => {
                let scalar = self.scalar(op.operands[0])?;
                Ok(vec![scalar; required.num_registers()].into())
            }
            code if code.is_shape_alias() => self.alias_operand(value, required),
            _ => {
                let inputs = self.info.inputs_in_layout(id, required).into_iter();
                let operands = inputs.map(|(operand, layout)| self.get(operand, &layout));
                let operands = operands.collect::<Lowered<Vec<_>>>()?;
                Ok(self.apply(id, &operands, required.num_registers())?.into())
            }
        }
    }

    fn constant(&mut self, id: OpId, required: &Layout) -> Lowered<Rc<[Operand]>> {
        let op = self.module.op(id);
        let dtype = self.module.dtype(op.results[0]);
        match op.const_data() {
            Some(ConstData::Splat(bits)) => Ok(vec![repr::constant(dtype, *bits); required.num_registers()].into()),
            Some(ConstData::Dense(words)) if words.len() == 1 => {
                Ok(vec![repr::constant(dtype, words[0]); required.num_registers()].into())
            }
            Some(ConstData::Dense(words)) => self.dense_constant(dtype, words, required),
            None => Err("a constant without a value".to_owned()),
        }
    }

    /// Selects the elements of a constant by the bits of the element index.
    fn dense_constant(&mut self, dtype: DType, words: &[u64], required: &Layout) -> Lowered<Rc<[Operand]>> {
        let thread = self.linear_in_thread(&thread_bases(required));
        let class = repr::class(dtype);
        let mut regs = Vec::with_capacity(required.num_registers());
        for register in 0..required.num_registers() {
            let offset = required.element(register, 0, 0);
            let mut values: Vec<Operand> =
                (0..words.len()).map(|i| repr::constant(dtype, words[i ^ offset as usize])).collect_vec();
            let mut bit = 0;
            while values.len() > 1 {
                let used = thread_bases(required).iter().any(|basis| basis & (1 << bit) != 0);
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
                        .collect_vec()
                } else {
                    values.chunks(2).map(|pair| pair[0]).collect_vec()
                };
                bit += 1;
            }
            regs.push(values[0]);
        }
        Ok(regs.into())
    }

    fn iota(&mut self, value: Value, required: &Layout) -> Lowered<Rc<[Operand]>> {
        let dtype = self.module.dtype(value);
        let thread = self.linear_in_thread(&thread_bases(required));
        let mut regs = Vec::with_capacity(required.num_registers());
        for register in 0..required.num_registers() {
            let index = self.b.xor(Ty::B32, thread, required.element(register, 0, 0));
            regs.push(match dtype {
                DType::I64 => self.b.cvt(Ty::U64, Ty::U32, CvtMods::default(), index),
                DType::I32 => index,
                DType::I8 | DType::I16 => repr::truncate(&mut self.b, dtype, index),
                DType::I1 => self.b.setp(Cmp::Ne, Ty::B32, index, 0).into(),
                other => return Err(format!("an index range of {other}")),
            });
        }
        Ok(regs.into())
    }

    /// Lowers an elementwise op in its own layout. A rematerialized op is lowered at its uses.
    pub fn elementwise(&mut self, id: OpId) -> Lowered {
        let result = self.module.op(id).results[0];
        if self.info.inference.origin(result) == ValueOrigin::Rematerialized {
            return Ok(());
        }
        let layout = self.info.result_layout(result);
        let operands = self.operands()?;
        let regs = self.apply(id, &operands, layout.num_registers())?.into();
        self.values.define(result, Tile { layout, regs });
        Ok(())
    }
}
