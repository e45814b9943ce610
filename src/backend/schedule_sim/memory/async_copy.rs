//! Multistage copies of a loop: their stages, and the elements that each thread writes.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use super::stage::{Stage, Tile};
use crate::backend::cpu::SlotContent;
use crate::backend::ptx::WARP_SIZE;
use crate::backend::ptx::schedule::{CpAsync, CpAsyncPlan};
use crate::backend::schedule_sim::error::{Fault, broken};
use crate::dtype::DType;
use crate::ir::OpId;
use crate::layout::Layout;

/// A copy in flight.
#[derive(Clone, Hash)]
pub struct IssuedCopy {
    pub stage: usize,
    /// Index in the copies of the loop.
    pub copy: usize,
    pub tile: Rc<Vec<u64>>,
    /// Its commit group.
    pub group: u64,
}

/// Stages of the copies of a loop.
#[derive(Clone)]
pub struct CpAsyncCopies {
    pub plan: Rc<CpAsyncPlan>,
    /// Layouts and element types of the tiles.
    forms: Vec<(Layout, DType)>,
    stages: Vec<Stage>,
    of: u32,
    /// The next stage to fill, and the stage of the current iteration.
    fill_stage: usize,
    compute_stage: usize,
    groups: u64,
    /// The tiles of this iteration, and their stage.
    pub current: Option<(usize, Tile)>,
    /// Copies in flight.
    pub issued: VecDeque<IssuedCopy>,
}

const LANES: usize = WARP_SIZE as usize;

impl CpAsyncCopies {
    /// Returns the state without copies. `forms`: layouts and element types of their tiles.
    pub fn new(id: OpId, plan: Rc<CpAsyncPlan>, forms: Vec<(Layout, DType)>) -> CpAsyncCopies {
        let stages = (0..plan.stages).map(|_| Stage::new(plan.stage_bytes)).collect();
        let (fill, compute, groups, now, begun) = (0, 0, 0, None, VecDeque::new());
        CpAsyncCopies {
            plan,
            forms,
            stages,
            of: id.index() as u32,
            fill_stage: fill,
            compute_stage: compute,
            groups,
            current: now,
            issued: begun,
        }
    }

    /// Hashes the state.
    pub fn fingerprint(&self, hasher: &mut impl Hasher) {
        (&self.stages, self.of, self.fill_stage, self.compute_stage).hash(hasher);
        (self.groups, self.current, &self.issued).hash(hasher);
    }

    /// Issues the copies of an iteration with these tiles. Without an iteration, the commit group
    /// is empty.
    ///
    /// # Errors
    /// The stage is in use.
    pub fn begin(&mut self, iteration: u64, tiles: Option<Vec<Vec<u64>>>) -> Result<(), Fault> {
        let stage = self.fill_stage;
        if let Some(tiles) = tiles {
            self.stages[stage].fill(Tile { of: self.of, number: iteration }, tiles.len(), 0)?;
            let group = self.groups;
            let begun = tiles.into_iter().enumerate();
            self.issued.extend(begun.map(|(copy, tile)| IssuedCopy { stage, copy, tile: Rc::new(tile), group }));
        }
        self.groups += 1;
        self.fill_stage = (stage + 1) % self.stages.len().max(1);
        Ok(())
    }

    /// Completes one of the copies in flight.
    ///
    /// # Errors
    /// It writes outside of its stage.
    pub fn finish(&mut self, which: usize) -> Result<(), Fault> {
        let Some(IssuedCopy { stage, copy, tile, .. }) = self.issued.remove(which) else { return Ok(()) };
        let (plan, (layout, dtype)) = (self.plan.clone(), self.forms[copy].clone());
        let copy = &plan.copies[copy];
        let bytes = dtype.storage_bits() as usize / 8;
        each_element(copy, &layout, bytes, |element, at| {
            self.stages[stage].write(at, &tile[element].to_le_bytes()[..bytes])
        })?;
        self.stages[stage].wrote(0);
        Ok(())
    }

    /// Waits for all copies except the `pending` latest commit groups.
    ///
    /// # Errors
    /// Errors of [`CpAsyncCopies::finish`].
    pub fn wait(&mut self, pending: u64) -> Result<(), Fault> {
        let end = self.groups.saturating_sub(pending);
        while let Some(which) = self.issued.iter().position(|begun| begun.group < end) {
            self.finish(which)?;
        }
        Ok(())
    }

    /// Sets the tiles and the stage of an iteration.
    pub fn begin_iteration(&mut self, iteration: u64) {
        self.current = Some((self.compute_stage, Tile { of: self.of, number: iteration }));
    }

    /// Advances to the next stage.
    pub fn next(&mut self) {
        self.compute_stage = (self.compute_stage + 1) % self.stages.len().max(1);
    }

    pub fn stage(&mut self, stage: usize) -> &mut Stage {
        &mut self.stages[stage]
    }

    /// Returns a tile of which each thread reads the elements that it has copied.
    ///
    /// # Errors
    /// An element is not available.
    pub fn thread_private_tile(&self, copy: usize) -> Result<SlotContent, Fault> {
        let ((stage, tile), (layout, dtype)) = (self.current.ok_or_else(|| broken("no copies"))?, &self.forms[copy]);
        let copy = &self.plan.copies[copy];
        self.stages[stage].holds(tile, copy.load)?;
        let bytes = dtype.storage_bits() as usize / 8;
        let mut bits = vec![None; layout.num_elements()];
        each_element(copy, layout, bytes, |element, at| {
            bits[element] = Some(self.stages[stage].read(at, bytes)?);
            Ok(())
        })?;
        let missing = || broken(format!("op {} is copied in part", copy.load.index()));
        let bits: Vec<u64> = bits.into_iter().collect::<Option<_>>().ok_or_else(missing)?;
        Ok(SlotContent::of_bits(*dtype, bits.into_iter()))
    }

    /// Ends the loop.
    ///
    /// # Errors
    /// A stage is in use.
    pub fn end(&mut self) -> Result<(), Fault> {
        self.wait(0)?;
        self.stages.iter_mut().try_for_each(Stage::free)
    }
}

/// Calls `then` with each element that a thread copies, and its position in the stage.
fn each_element(
    copy: &CpAsync,
    layout: &Layout,
    bytes: usize,
    mut visit: impl FnMut(usize, usize) -> Result<(), Fault>,
) -> Result<(), Fault> {
    for thread in 0..1usize << copy.thread_offsets.len() {
        let bases = copy.thread_offsets.iter().enumerate().filter(|(bit, _)| thread >> bit & 1 == 1);
        let place = bases.fold(0, |all, (_, basis)| all ^ basis);
        for access in &copy.accesses {
            let at = copy.smem_offset + ((place ^ access.xor) + access.offset) as usize;
            for number in 0..copy.vector {
                let element = layout.element(access.register + number, thread % LANES, thread / LANES);
                visit(element as usize, at + number * bytes)?;
            }
        }
    }
    Ok(())
}
