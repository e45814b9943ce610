//! Strip-mined sequences: their ops are executed for some registers of the tiles at a time.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::backend::cpu::{Frame, SlotContent};
use crate::backend::ptx::WARP_SIZE;
use crate::backend::ptx::schedule::{StripMine, StripRole};
use crate::backend::schedule_sim::error::{Fault, broken};
use crate::ir::{Module, OpId, Opcode, Value};
use crate::layout::Layout;

const LANES: usize = WARP_SIZE as usize;

/// State of a strip-mined sequence.
struct StripRun<'f, 'p> {
    frame: &'f mut Frame<'p>,
    module: &'f Module,
    inside: FxHashSet<Value>,
    /// Another group stores.
    is_silent: bool,
    /// Values of the current strip iteration.
    made: FxHashMap<Value, SlotContent>,
    /// Live-out tiles, collected from the strip iterations.
    whole: FxHashMap<Value, SlotContent>,
    count: usize,
}

/// Executes a strip-mined sequence whose tiles have this layout. With `is_silent`, stores are
/// omitted.
///
/// # Errors
/// Errors of its ops; a tile of which no strip iteration has some elements.
pub fn run(
    frame: &mut Frame<'_>,
    (module, is_silent): (&Module, bool),
    strip_mine: &StripMine,
    layout: &Layout,
) -> Result<(), Fault> {
    let of = |required: StripRole| strip_mine.ops.iter().filter(move |&&(_, part)| part == required).map(|&(id, _)| id);
    of(StripRole::Preheader).try_for_each(|id| frame.step(id))?;
    let reduces: Vec<OpId> = of(StripRole::Body).filter(|&id| module.op(id).code == Opcode::Reduce).collect();
    let count = layout.num_elements();
    let (made, whole) = (FxHashMap::default(), FxHashMap::default());
    let mut pieces =
        StripRun { frame, module, inside: strip_mine.defined_tiles(module), is_silent, made, whole, count };
    let mut covered = vec![false; count];
    for start in (0..layout.num_registers()).step_by(strip_mine.registers_per_iteration.max(1)) {
        let elements = elements(layout, start..start + strip_mine.registers_per_iteration);
        elements.iter().for_each(|&element| covered[element as usize] = true);
        pieces.made.clear();
        for &(id, part) in &strip_mine.ops {
            match part {
                StripRole::Body => pieces.iteration(id, &elements)?,
                StripRole::View => pieces.name(id),
                StripRole::Preheader => {}
            }
        }
        for value in &strip_mine.live_out {
            let part = pieces.made.get(value).cloned();
            let part = part.ok_or_else(|| broken(format!("%{} is live-out and not defined", value.index())))?;
            pieces.collect(*value, &part, &elements);
        }
    }
    if covered.contains(&false) {
        return Err(broken("strip iterations do not cover the tiles"));
    }
    reduces.into_iter().try_for_each(|id| pieces.reduce(id))?;
    let StripRun { frame, mut whole, .. } = pieces;
    for &value in &strip_mine.live_out {
        frame.set(value, whole.remove(&value).unwrap_or_default());
    }
    // Views of live-out tiles.
    for id in of(StripRole::View) {
        if frame.is_known(module.op(id).operands[0]) {
            frame.step(id)?;
        }
    }
    of(StripRole::Body).for_each(|id| frame.set_tokens(id));
    Ok(())
}

/// Returns the elements of these registers in all threads.
fn elements(layout: &Layout, registers: std::ops::Range<usize>) -> Vec<u32> {
    let registers = registers.start..registers.end.min(layout.num_registers());
    let all = registers.flat_map(|slot| {
        let threads = (0..layout.num_warps()).flat_map(|warp| (0..LANES).map(move |lane| (warp, lane)));
        threads.map(move |(warp, lane)| layout.element(slot, lane, warp))
    });
    all.collect::<BTreeSet<u32>>().into_iter().collect()
}

impl StripRun<'_, '_> {
    /// Returns a part of a value.
    fn slice(&self, value: Value, elements: &[u32]) -> Option<SlotContent> {
        match self.inside.contains(&value) {
            true => self.made.get(&value).cloned(),
            false => Some(self.frame.get(value).part(elements)).filter(|_| self.module.ty(value).as_tile().is_some()),
        }
    }

    /// Returns the parts of the operands of an op by [`StripRun::slice`]; `None` for an operand
    /// that is not a tile.
    fn operand_slices(&self, id: OpId, elements: &[u32]) -> Result<Vec<Option<SlotContent>>, Fault> {
        let op = self.module.op(id);
        let part =
            |&value: &Value| match self.slice(value, elements) {
                None if self.inside.contains(&value) && self.module.ty(value).as_tile().is_some() => Err(broken(
                    format!("op {} reads %{}, which its strip iteration has not defined", id.index(), value.index()),
                )),
                part => Ok(part),
            };
        op.operands.iter().map(part).collect()
    }

    fn iteration(&mut self, id: OpId, elements: &[u32]) -> Result<(), Fault> {
        let op = self.module.op(id);
        match op.code {
            Opcode::LoadView => {
                let whole = self.frame.step_with(id, &[])?;
                self.made.insert(op.results[0], whole.part(elements));
            }
            Opcode::StoreView if self.is_silent => {}
            Opcode::StoreView => {
                let tile = op.operand_group("tile")[0];
                let parts = self.operand_slices(id, elements)?;
                let blank = |(&value, part): (&Value, Option<SlotContent>)| {
                    let part = part.filter(|_| value == tile)?;
                    Some(SlotContent::default().with_part(elements, &part, self.count))
                };
                let operands: Vec<Option<SlotContent>> = op.operands.iter().zip(parts).map(blank).collect();
                let mut only = vec![false; self.count];
                elements.iter().for_each(|&element| only[element as usize] = true);
                self.frame.store_part(id, &operands, only)?;
            }
            Opcode::Reduce => {
                let parts = self.operand_slices(id, elements)?;
                for (&value, part) in op.operands.iter().zip(parts) {
                    self.collect(value, &part.unwrap_or_default(), elements);
                }
            }
            _ => {
                let parts = self.operand_slices(id, elements)?;
                let made = self.frame.step_with(id, &parts)?;
                self.made.insert(op.results[0], made);
            }
        }
        Ok(())
    }

    /// Sets a view of the same elements.
    fn name(&mut self, id: OpId) {
        let op = self.module.op(id);
        if let Some(content) = self.made.get(&op.operands[0]).cloned() {
            self.made.insert(op.results[0], content);
        }
    }

    /// Adds a part of a tile to its other parts.
    fn collect(&mut self, value: Value, part: &SlotContent, elements: &[u32]) {
        let before = self.whole.remove(&value).unwrap_or_default();
        self.whole.insert(value, before.with_part(elements, part, self.count));
    }

    /// Executes a reduction of complete tiles, in the element order of the program.
    fn reduce(&mut self, id: OpId) -> Result<(), Fault> {
        let op = self.module.op(id);
        let before: Vec<SlotContent> = op.operands.iter().map(|&value| self.frame.get(value)).collect();
        for &value in &op.operands {
            if let Some(content) = self.whole.get(&value) {
                self.frame.set(value, content.clone());
            }
        }
        let done = self.frame.step(id);
        op.operands.iter().zip(before).for_each(|(&value, content)| self.frame.set(value, content));
        done
    }
}
