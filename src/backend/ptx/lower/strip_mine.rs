//! Emits strip-mined sequences, iteration by iteration.
//!
//! A sequence of loads, elementwise ops and stores in one layout is lowered for a few registers at
//! a time. The number of live registers then does not depend on the tile size. A reduction of a
//! large tile can end the sequence. Live-out tiles are concatenated from the strip iterations.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::compute::reduce::StripReduction;
use super::memory::view_access::ViewAccess;
use super::{Lowered, Lowering, Tile};
use crate::backend::ptx::isa::inst::Operand;
use crate::backend::ptx::schedule::{Requirement, StripMine, StripRole};
use crate::ir::{OpId, Opcode, Value};

impl Lowering<'_> {
    /// Lowers a strip-mined sequence.
    pub fn strip_mine(&mut self, strip: &StripMine) -> Lowered {
        let module = self.module;
        let mut accesses: FxHashMap<OpId, ViewAccess> = FxHashMap::default();
        let mut outside: FxHashMap<Value, Rc<[Operand]>> = FxHashMap::default();
        let of_strip = self.schedule.layout(strip.layout).clone();
        for (&(id, role), (_, requirements)) in strip.ops.iter().zip(self.info.strip_requirements(strip, &of_strip)) {
            if role != StripRole::Body {
                self.nested_op(id)?;
                continue;
            }
            let op = module.op(id);
            if op.results.iter().any(|value| strip.live_out.contains(value)) {
                self.check_registers(id)?;
            }
            for requirement in requirements {
                let Requirement::Operand(value, layout) = requirement else { continue };
                outside.insert(value, self.for_op(id, |lowering| lowering.get(value, &layout))?);
            }
            match op.code {
                Opcode::LoadView => drop(accesses.insert(id, self.for_op(id, |lowering| lowering.begin_load(id))?)),
                Opcode::StoreView => drop(accesses.insert(id, self.for_op(id, |lowering| lowering.begin_store(id))?)),
                _ => {}
            }
        }
        accesses.values_mut().for_each(ViewAccess::use_strips);
        let widest = accesses.values().map(ViewAccess::vector).max().unwrap_or(1);
        let strip_registers = strip.registers_per_iteration.max(widest);
        let reductions = strip.ops().filter(|&id| module.op(id).code == Opcode::Reduce);
        let mut reductions: FxHashMap<OpId, StripReduction> =
            reductions.map(|id| (id, self.begin_strip_reduction(id, strip_registers))).collect();
        let mut strip_values: FxHashMap<Value, Vec<Operand>> = FxHashMap::default();
        let mut given: Vec<Vec<Operand>> = vec![Vec::new(); strip.live_out.len()];
        for start in (0..of_strip.num_registers()).step_by(strip_registers) {
            self.check_code_size(module.op(strip.ops[0].0))?;
            for &(id, part) in &strip.ops {
                match part {
                    StripRole::Body if module.op(id).code == Opcode::Reduce => {
                        let operands = module.op(id).operands.iter();
                        let values = operands
                            .map(|&v| strip_of(v, start..start + strip_registers, &outside, &strip_values))
                            .collect_vec();
                        let running = reductions.get_mut(&id).expect("begun");
                        self.for_op(id, |lowering| lowering.reduce_strip(running, start, values))?;
                    }
                    StripRole::Body => self.for_op(id, |lowering| {
                        lowering.strip_iteration(
                            id,
                            start..start + strip_registers,
                            &mut accesses,
                            &outside,
                            &mut strip_values,
                        )
                    })?,
                    StripRole::View => {
                        let op = module.op(id);
                        if let Some(regs) = strip_values.get(&op.operands[0]).cloned() {
                            strip_values.insert(op.results[0], regs);
                        }
                    }
                    StripRole::Preheader => {}
                }
            }
            given.iter_mut().zip(&strip.live_out).for_each(|(regs, value)| regs.extend(&strip_values[value]));
        }
        for (regs, &value) in given.into_iter().zip(&strip.live_out) {
            let layout = of_strip.reshape(module.shape(value));
            self.values.define(value, Tile { layout, regs: regs.into() });
        }
        reductions.into_values().try_for_each(|running| self.end_strip_reduction(running))
    }

    fn strip_iteration(
        &mut self,
        id: OpId,
        range: std::ops::Range<usize>,
        accesses: &mut FxHashMap<OpId, ViewAccess>,
        outside: &FxHashMap<Value, Rc<[Operand]>>,
        strip_values: &mut FxHashMap<Value, Vec<Operand>>,
    ) -> Lowered {
        let op = self.module.op(id);
        let regs = |value: Value, strip_values: &FxHashMap<Value, Vec<Operand>>| {
            strip_of(value, range.clone(), outside, strip_values)
        };
        match op.code {
            Opcode::LoadView => {
                let access = accesses.get_mut(&id).expect("begun");
                let loaded = self.load_registers(access, range.clone());
                strip_values.insert(op.results[0], loaded);
            }
            Opcode::StoreView => {
                let values = regs(op.group(0)[0], strip_values);
                let access = accesses.get_mut(&id).expect("begun");
                self.store_registers(access, range.start, &values);
            }
            _ => {
                let operands: Vec<Rc<[Operand]>> =
                    op.operands.iter().map(|&v| regs(v, strip_values).into()).collect_vec();
                let result = self.apply(id, &operands, range.len())?;
                strip_values.insert(op.results[0], result);
            }
        }
        Ok(())
    }
}

/// Returns the registers of a value in a strip iteration.
fn strip_of(
    value: Value,
    range: std::ops::Range<usize>,
    outside: &FxHashMap<Value, Rc<[Operand]>>,
    strip_values: &FxHashMap<Value, Vec<Operand>>,
) -> Vec<Operand> {
    match outside.get(&value) {
        Some(regs) => regs[range].to_vec(),
        None => strip_values[&value].clone(),
    }
}
