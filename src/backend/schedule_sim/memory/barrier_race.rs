//! Races between the threads of a partition in shared memory: conflicting accesses without a
//! barrier between them.
//!
//! Values have no threads: the threads of a partition are simulated as one. Between two barriers,
//! threads may execute sub-steps in any order. Two accesses of sub-steps to one place, at least one
//! a write, are therefore a race. No interleavings need to be tried.
//!
//! MMAs in flight read their operands until a wait, and those of other warps until the barrier
//! after it. Places are those of the hardware: the steps of a loop with a double buffer name the
//! slot of the iteration, which is another one in the next iteration.

use std::ops::Range;

use crate::backend::ptx::schedule::{Buffer, SubStep};
use crate::backend::schedule_sim::error::{Fault, broken};

/// Accesses to shared memory since the last barrier.
#[derive(Clone, Default, Hash)]
pub struct BarrierChecker {
    writes: Vec<Range<u32>>,
    reads: Vec<Range<u32>>,
    /// Places that the current step reads.
    step_reads: Vec<Range<u32>>,
    /// Places that each MMA group in flight reads. A barrier does not change them.
    mma_reads: Vec<(u64, Vec<Range<u32>>)>,
    /// The double buffer of the next loop.
    next_slots: Option<Range<u32>>,
    /// The double buffers of the entered loops, each with the index of the slot of the iteration.
    slots: Vec<Option<(Range<u32>, bool)>>,
    /// All places that have ever been written.
    written: Vec<Range<u32>>,
    /// Places of which no byte has been written since all of them were.
    intact: Vec<Range<u32>>,
}

impl BarrierChecker {
    /// Executes a barrier.
    pub fn after_barrier(&mut self) {
        self.writes.clear();
        self.reads.clear();
    }

    /// Ends a step.
    pub fn after_step(&mut self) {
        self.step_reads.clear();
    }

    /// Issues the MMA group of a step, which reads the places of the step.
    pub fn issue_mma(&mut self, number: u64) {
        self.mma_reads.push((number, std::mem::take(&mut self.step_reads)));
    }

    /// Completes an MMA group. Those of other warps may read until the next barrier.
    pub fn complete_mma(&mut self, number: u64) {
        if let Some(at) = self.mma_reads.iter().position(|&(other, _)| other == number) {
            self.reads.extend(self.mma_reads.remove(at).1);
        }
    }

    /// Enters a `for`.
    pub fn enter_loop(&mut self) {
        self.slots.push(self.next_slots.take().map(|slots| (slots, false)));
    }

    /// Ends an iteration of a `for`.
    pub fn next_iteration(&mut self) {
        if let Some(Some((_, is_second))) = self.slots.last_mut() {
            *is_second = !*is_second;
        }
    }

    /// Leaves a `for`.
    pub fn leave_loop(&mut self) {
        self.slots.pop();
    }

    /// Returns the place of a buffer in this iteration.
    fn place(&self, buffer: Buffer) -> Range<u32> {
        let place = buffer.offset..buffer.offset + buffer.bytes;
        for (slots, is_second) in self.slots.iter().flatten() {
            let middle = slots.start.midpoint(slots.end);
            if *is_second && slots.start <= place.start && place.end <= middle {
                let distance = middle - slots.start;
                return place.start + distance..place.end + distance;
            }
        }
        place
    }

    /// Executes a sub-step.
    ///
    /// # Errors
    /// Another thread may access the same place.
    pub fn sub_step(&mut self, part: &SubStep) -> Result<(), Fault> {
        match part {
            SubStep::Barrier { .. } => self.after_barrier(),
            SubStep::DoubleBuffer(slots) => self.next_slots = Some(slots.offset..slots.offset + slots.bytes),
            SubStep::SmemWrite(place) => {
                let place = self.place(*place);
                let of_mmas: Vec<Range<u32>> = self.mma_reads.iter().flat_map(|(_, reads)| reads).cloned().collect();
                exclusive("write", &place, "read, as operands of MMAs,", &of_mmas)?;
                exclusive("write", &place, "write", &self.writes)?;
                exclusive("write", &place, "read", &self.reads)?;
                if !self.written.contains(&place) {
                    self.written.push(place.clone());
                }
                self.intact.retain(|other| other.end <= place.start || place.end <= other.start);
                self.intact.push(place.clone());
                self.writes.push(place);
            }
            SubStep::SmemRead(place) | SubStep::StoredOperand { buffer: place, .. } => {
                let place = self.place(*place);
                exclusive("read", &place, "write", &self.writes)?;
                self.step_reads.push(place.clone());
                self.has_been_written(&place)?;
                if matches!(part, SubStep::StoredOperand { .. }) && !self.intact.contains(&place) {
                    return Err(broken(format!("the operand in {place:?} of shared memory has been overwritten")));
                }
                if !self.reads.contains(&place) {
                    self.reads.push(place);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks that all of a place has been written.
    fn has_been_written(&self, place: &Range<u32>) -> Result<(), Fault> {
        let mut next = place.start;
        while next < place.end {
            let Some(here) = self.written.iter().find(|written| written.contains(&next)) else {
                return Err(broken(format!(
                    "threads read {place:?} of shared memory, and no thread has written {next}"
                )));
            };
            next = here.end;
        }
        Ok(())
    }
}

/// Checks that no other access overlaps a place.
fn exclusive(what: &str, place: &Range<u32>, doing: &str, others: &[Range<u32>]) -> Result<(), Fault> {
    match others.iter().find(|other| other.start < place.end && place.start < other.end) {
        None => Ok(()),
        Some(other) => {
            Err(broken(format!("threads {what} {place:?} of shared memory while others may still {doing} {other:?}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_of_mmas_in_flight_are_not_overwritten() {
        let slots = Buffer { offset: 1024, bytes: 2048 };
        let [slot, other] = slots.halves();
        let meet = SubStep::Barrier { required: false };
        // Two iterations: the second one begins with the MMAs of the first one in flight, and
        // `before` precedes its write.
        let run = |doubled: bool, before: &[Option<SubStep>]| -> Result<(), String> {
            let mut barriers = BarrierChecker::default();
            let run = |barriers: &mut BarrierChecker, parts: &[SubStep]| {
                parts.iter().try_for_each(|part| barriers.sub_step(part)).map_err(|fault| fault.message)
            };
            if doubled {
                run(&mut barriers, &[SubStep::DoubleBuffer(slots)])?;
            }
            barriers.enter_loop();
            for iteration in 0..3 {
                for part in before.iter().filter(|_| iteration > 0) {
                    match part {
                        Some(part) => run(&mut barriers, &[*part])?,
                        None => barriers.complete_mma(iteration - 1),
                    }
                }
                run(&mut barriers, &[SubStep::SmemWrite(slot), meet, SubStep::SmemRead(slot)])?;
                barriers.issue_mma(iteration);
                if doubled && iteration > 0 {
                    barriers.complete_mma(iteration - 1);
                }
                barriers.next_iteration();
            }
            barriers.leave_loop();
            Ok(())
        };
        let read = "while others may still read, as operands of MMAs, 1024..2048";
        assert!(!slot.overlaps(other) && run(true, &[Some(meet)]).is_ok());
        assert_eq!(run(false, &[None, Some(meet)]), Ok(()));
        assert!(run(false, &[Some(meet)]).unwrap_err().contains(read));
        assert!(run(false, &[Some(meet), None]).unwrap_err().contains("while others may still read 1024..2048"));
        // The other warps may have MMAs in flight that read the slot two iterations ago.
        assert!(run(true, &[]).unwrap_err().contains("while others may still read 1024..2048"));
    }

    #[test]
    fn a_place_has_one_access_kind_between_two_barriers() {
        let [place, half, adjacent] = [(0, 256), (128, 128), (256, 64)].map(|(offset, bytes)| Buffer { offset, bytes });
        let meet = SubStep::Barrier { required: false };
        let run = |parts: &[SubStep]| {
            let mut barriers = BarrierChecker::default();
            parts.iter().try_for_each(|part| barriers.sub_step(part)).map_err(|fault| fault.message)
        };
        let (write, read) = (SubStep::SmemWrite, SubStep::SmemRead);
        let operand = |buffer| SubStep::StoredOperand { value: crate::ir::Value(0), buffer };
        assert_eq!(run(&[write(place), meet, operand(place), write(adjacent), meet, operand(place)]), Ok(()));
        assert_eq!(run(&[write(place), meet, read(half), read(place), meet, write(half), write(adjacent)]), Ok(()));
        for (parts, problem) in [
            (&[write(place), read(half)][..], "read 128..256 of shared memory while others may still write 0..256"),
            (&[write(place), write(half)], "write 128..256 of shared memory while others may still write 0..256"),
            (&[write(place), meet, read(place), write(half)], "while others may still read 0..256"),
            (&[write(place), operand(place)], "read 0..256 of shared memory while others may still write 0..256"),
            (&[write(place), meet, write(half), meet, operand(place)], "the operand in 0..256 of shared memory"),
            (&[write(half), meet, read(place)], "read 0..256 of shared memory, and no thread has written 0"),
        ] {
            assert!(run(parts).unwrap_err().contains(problem), "{problem}");
        }
    }
}
