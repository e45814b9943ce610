//! Races between the threads of a partition in shared memory: conflicting accesses without a
//! barrier between them.
//!
//! Values have no threads: the threads of a partition are simulated as one. Between two barriers,
//! threads may execute sub-steps in any order. Two accesses of sub-steps to one place, at least one
//! a write, are therefore a race. No interleavings need to be tried.

use std::ops::Range;

use crate::backend::ptx::schedule::SubStep;
use crate::backend::schedule_sim::error::{Fault, broken};

/// Accesses to shared memory since the last barrier.
#[derive(Clone, Default, Hash)]
pub struct BarrierChecker {
    writes: Vec<Range<u32>>,
    reads: Vec<Range<u32>>,
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

    /// Executes a sub-step.
    ///
    /// # Errors
    /// Another thread may access the same place.
    pub fn sub_step(&mut self, part: &SubStep) -> Result<(), Fault> {
        match part {
            SubStep::Barrier { .. } => self.after_barrier(),
            SubStep::SmemWrite(place) => {
                let place = place.offset..place.offset + place.bytes;
                alone("write", &place, "write", &self.writes)?;
                alone("write", &place, "read", &self.reads)?;
                if !self.written.contains(&place) {
                    self.written.push(place.clone());
                }
                self.intact.retain(|other| other.end <= place.start || place.end <= other.start);
                self.intact.push(place.clone());
                self.writes.push(place);
            }
            SubStep::SmemRead(place) | SubStep::StoredOperand { buffer: place, .. } => {
                let place = place.offset..place.offset + place.bytes;
                alone("read", &place, "write", &self.writes)?;
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
fn alone(what: &str, place: &Range<u32>, doing: &str, others: &[Range<u32>]) -> Result<(), Fault> {
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
    use crate::backend::ptx::schedule::Buffer;

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
