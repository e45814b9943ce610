//! What a step does within, as the schedule says: where its threads meet, where its buffers lie, how tiles come to other layouts.
//!
//! The step asks for each of them when it comes to it. What it asks for and what the schedule has next are the same, or one of
//! both is wrong.

use std::rc::Rc;

use super::{Lowered, Lowering, ring};
use crate::backend::ptx::hardware::WARP_SIZE;
use crate::backend::ptx::schedule::{ConversionPlan, ConvertLayout, SubStep};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::ir::{OpId, Value};
use crate::layout::Layout;

/// What is said of a step that does not do what its schedule says.
pub const OTHERWISE: &str = "a step and its schedule do not say the same, which is a defect of this crate";

impl Lowering<'_> {
    /// All threads meet, here.
    pub fn meet(&mut self) -> Lowered {
        while let Some(within) = self.within.pop_front() {
            match within {
                SubStep::MmaWaitAll | SubStep::TmaStoreWait { .. } => self.synchronise(within)?,
                SubStep::Barrier { .. } => return self.synchronise(within),
                _ => break,
            }
        }
        Err(OTHERWISE.to_owned())
    }

    /// Waits for the copy engine, if that has to be here.
    pub fn drain(&mut self) -> Lowered {
        while let Some(within) = self.next_if(|within| matches!(within, SubStep::TmaStoreWait { .. })) {
            self.synchronise(within)?;
        }
        Ok(())
    }

    /// A buffer that is written next, behind a meeting where there is one.
    pub fn begin_write(&mut self) -> Lowered<Buffer> {
        match self.behind_meetings()? {
            Some(SubStep::SmemWrite(buffer)) => Ok(self.of_team(buffer)),
            Some(SubStep::SmemOverflow { bytes, of }) => {
                Err(format!("{bytes} bytes of shared memory are needed, and {of} are free: use smaller tiles"))
            }
            _ => Err(OTHERWISE.to_owned()),
        }
    }

    /// A buffer that is read next.
    pub fn begin_read(&mut self) -> Lowered<Buffer> {
        match self.behind_meetings()? {
            Some(SubStep::SmemRead(buffer)) => Ok(self.of_team(buffer)),
            _ => Err(OTHERWISE.to_owned()),
        }
    }

    /// An access begins: behind a meeting, if other threads of the block may still be at work on the same elements.
    pub fn order(&mut self, id: OpId) -> Lowered {
        let next = self.within.iter().find(|within| !within.synchronizes());
        if next == Some(&SubStep::GlobalAccess(id)) {
            self.behind_meetings()?;
        }
        Ok(())
    }

    /// In how many parts something goes through shared memory, and how many of them have room side by side.
    pub fn parts(&mut self) -> Option<[u32; 2]> {
        let parts = self.next_if(|within| matches!(within, SubStep::Split { .. }));
        parts.map(|parts| if let SubStep::Split { count, beside } = parts { [count, beside] } else { [1, 1] })
    }

    /// Bytes that operands need and that there are, if there are too few.
    pub fn missing_room(&self) -> Option<[u32; 2]> {
        match self.within.front() {
            Some(&SubStep::SmemOverflow { bytes, of }) => Some([bytes, of]),
            _ => None,
        }
    }

    /// How a value comes to a layout.
    pub fn change_of(&mut self, value: Value, wanted: &Layout) -> Lowered<Rc<ConversionPlan>> {
        match self.within.pop_front() {
            Some(SubStep::ConvertLayout(ConvertLayout { value: brought, to, plan, .. }))
                if brought == value && self.schedule.layout(to).is_same(wanted) =>
            {
                Ok(Rc::clone(&self.schedule.conversions[plan as usize]))
            }
            _ => Err(OTHERWISE.to_owned()),
        }
    }

    /// Goes on behind what comes first of waits and meetings: to what is next.
    fn behind_meetings(&mut self) -> Lowered<Option<SubStep>> {
        while let Some(within) = self.next_if(|within| within.synchronizes()) {
            self.synchronise(within)?;
        }
        Ok(self.within.pop_front())
    }

    fn synchronise(&mut self, within: SubStep) -> Lowered {
        match within {
            SubStep::MmaWaitAll => self.land_to_meet(),
            SubStep::TmaStoreWait { written } => self.b.bulk_wait(0, !written),
            _ if self.is_flying() => return Err(OTHERWISE.to_owned()),
            _ => self.barrier(),
        }
        Ok(())
    }

    /// A barrier over the threads of the agent.
    pub fn barrier(&mut self) {
        match self.role {
            ring::Role::Consumer => {
                let consumers = self.context.inference.num_warps as u32 * WARP_SIZE;
                self.b.bar_sync(ring::CONSUMER_BARRIER + self.team.index, Some(consumers));
            }
            ring::Role::All | ring::Role::Producer => self.b.bar_sync(0, None),
        }
    }

    fn next_if(&mut self, is_it: impl FnOnce(&SubStep) -> bool) -> Option<SubStep> {
        if self.within.front().is_some_and(is_it) { self.within.pop_front() } else { None }
    }

    /// Where a buffer is of the team that is lowered.
    fn of_team(&self, buffer: Buffer) -> Buffer {
        Buffer { offset: buffer.offset + self.team.index * self.schedule.smem_bytes_per_group, ..buffer }
    }
}
