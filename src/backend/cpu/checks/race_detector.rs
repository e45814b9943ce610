//! Race detector between tile blocks: vector clocks (Mattern, 1989), as in ThreadSanitizer.
//!
//! * For each element of the memory of a launch, the detector records the accesses: block, kind,
//!   time.
//! * The time of a block is the number of its releasing accesses, plus one.
//! * By an acquiring access, a block sees the times that the releasing block had seen.
//!
//! Two accesses of different blocks to one element are in conflict if at least one is a write.
//! Excepted are two accesses that are both atomic or ordered, and accesses whose later block has
//! seen the time of the earlier one.
//!
//! The clock of a place is joined before the releasing access and read after the acquiring one. So
//! the detector can overestimate the times that a block has seen, and never underestimates them: a
//! kernel without races has no conflict. The records depend on the interleaving of the blocks in
//! this run only if the blocks order themselves.

use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashMap;

use crate::ir::Loc;

/// Vector clock: times by number of the tile block in the order of the grid.
type Clock = FxHashMap<u64, u32>;

/// An access of a tile block to an element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub block: [u32; 3],
    pub loc: Loc,
    /// Atomic or ordered.
    pub atomic: bool,
    pub writes: bool,
    /// Number and time of the block.
    at: (u64, u32),
}

/// Number of recorded accesses of one kind to an element, if blocks order themselves: some of them
/// may precede a later access.
const KEPT: usize = 64;
/// The same number if blocks do not order themselves: a third block is in conflict with one of the
/// two.
const KEPT_UNORDERED: usize = 2;

/// Accesses to an element that can be in conflict with later ones. Most elements have one.
#[derive(Default)]
struct Element {
    first: Option<Access>,
    more: Vec<Access>,
}

impl Element {
    /// Returns a recorded access in conflict with this one; without a conflict, records this one.
    fn record(&mut self, access: Access, seen: &Clock, most: usize) -> Option<Access> {
        let precedes =
            |other: &Access| other.at.0 == access.at.0 || seen.get(&other.at.0).is_some_and(|&time| time >= other.at.1);
        let mut alike = 0;
        for other in self.first.iter().chain(&self.more) {
            if (access.writes || other.writes) && !(access.atomic && other.atomic) && !precedes(other) {
                return Some(*other);
            }
            alike += usize::from(other.atomic == access.atomic && other.writes == access.writes);
        }
        // Each later access in conflict with `other` is also in conflict with this one if this one
        // follows `other` and its kind has at least the same conflicts. So `other` is redundant.
        let covers =
            |other: &Access| precedes(other) && (access.writes || !other.writes) && (!access.atomic || other.atomic);
        self.more.retain(|other| !covers(other));
        match &self.first {
            None => self.first = Some(access),
            Some(first) if covers(first) => self.first = Some(access),
            Some(_) if alike < most => self.more.push(access),
            Some(_) => {}
        }
        None
    }
}

/// Times of the other tile blocks that one block has seen.
#[derive(Default)]
pub(crate) struct BlockClock {
    block: ([u32; 3], u64),
    time: u32,
    /// True after an access at this time.
    accessed: bool,
    seen: Clock,
}

impl BlockClock {
    /// Creates the clock of a block at its start.
    pub fn new(block: [u32; 3], [x, y, _]: [u32; 3]) -> BlockClock {
        let number = u64::from(block[0]) + u64::from(x) * (u64::from(block[1]) + u64::from(y) * u64::from(block[2]));
        BlockClock { block: (block, number), time: 1, accessed: false, seen: Clock::default() }
    }

    /// Creates an access of this block at its current time.
    pub fn access(&mut self, loc: Loc, atomic: bool, writes: bool) -> Access {
        self.accessed = true;
        Access { block: self.block.0, loc, atomic, writes, at: (self.block.1, self.time) }
    }
}

/// Accesses of the tile blocks of one launch, by place.
pub(crate) struct RaceDetector {
    /// Number of recorded accesses of one kind to an element.
    kept: usize,
    elements: Mutex<FxHashMap<u64, Element>>,
    /// By place: the clock that an acquiring access of it joins.
    released: Mutex<FxHashMap<u64, Clock>>,
}

impl RaceDetector {
    /// Creates the record of a kernel; `orders` is true if its accesses may have a memory order.
    pub fn new(orders: bool) -> RaceDetector {
        let kept = if orders { KEPT } else { KEPT_UNORDERED };
        RaceDetector { kept, elements: Mutex::default(), released: Mutex::default() }
    }

    /// Records an access to the elements at these places.
    ///
    /// # Errors
    /// The first conflict: the place and the other access.
    pub fn record(
        &self,
        places: impl Iterator<Item = u64>,
        access: Access,
        view: &BlockClock,
    ) -> Result<(), (u64, Access)> {
        let mut elements = self.elements.lock().unwrap_or_else(PoisonError::into_inner);
        for place in places {
            if let Some(other) = elements.entry(place).or_default().record(access, &view.seen, self.kept) {
                return Err((place, other));
            }
        }
        Ok(())
    }

    /// Releases these places, before the access of the block: a block that acquires them later sees
    /// the accesses of this block up to now. Returns true if a place then has new times.
    pub fn release(&self, places: impl Iterator<Item = u64>, view: &mut BlockClock) -> bool {
        let mut released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        // Without an access at this time, the release covers the same accesses as the one before.
        let (mut changed, time) = (false, if view.accessed { view.time } else { view.time - 1 });
        for place in places {
            let clock = released.entry(place).or_default();
            changed |= join(clock, &view.seen);
            let known = clock.entry(view.block.1).or_insert(0);
            changed |= *known < time;
            *known = time.max(*known);
        }
        view.time = time + 1;
        view.accessed = false;
        changed
    }

    /// Acquires these places, after the access of the block. Returns true if the block has then
    /// seen further times.
    pub fn acquire(&self, places: impl Iterator<Item = u64>, view: &mut BlockClock) -> bool {
        let mut changed = false;
        let released = self.released.lock().unwrap_or_else(PoisonError::into_inner);
        for clock in places.filter_map(|place| released.get(&place)) {
            changed |= join(&mut view.seen, clock);
        }
        changed
    }
}

/// Returns the message about a race at element `number` of `of` with another tile block's access.
pub(crate) fn race_message(writes: bool, element: &str, other: &str, (other_writes, at): (bool, &str)) -> String {
    let verb = |writes: bool| if writes { "writes" } else { "reads" };
    format!(
        "a race: this {} {element}, which {other} {} at {at}: an element that one block \
         writes is no other block's, unless all of them access it atomically",
        verb(writes),
        verb(other_writes)
    )
}

fn join(clock: &mut Clock, other: &Clock) -> bool {
    let mut changed = false;
    for (&block, &time) in other {
        let known = clock.entry(block).or_insert(0);
        changed |= *known < time;
        *known = time.max(*known);
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: u64 = 8;
    const FLAG: u64 = 16;

    fn view(block: u32) -> BlockClock {
        BlockClock::new([block, 0, 0], [100, 1, 1])
    }

    fn touch(watch: &RaceDetector, view: &mut BlockClock, place: u64, atomic: bool, writes: bool) -> bool {
        let access = view.access(Loc::UNKNOWN, atomic, writes);
        watch.record([place].into_iter(), access, view).is_ok()
    }

    #[test]
    fn writes_race_with_everything_that_is_not_ordered() {
        for (atomic, writes) in [(false, false), (false, true), (true, false), (true, true)] {
            let watch = RaceDetector::new(true);
            let (mut a, mut b) = (view(0), view(1));
            assert!(touch(&watch, &mut a, X, false, true) && touch(&watch, &mut a, X, atomic, writes));
            assert!(!touch(&watch, &mut b, X, atomic, writes), "{atomic} {writes}");
        }
        let watch = RaceDetector::new(true);
        for block in 0..4 {
            assert!(touch(&watch, &mut view(block), X, true, true), "atomic ones do not race");
            assert!(touch(&watch, &mut view(block), FLAG, false, false), "reading ones do not");
        }
        assert!(!touch(&watch, &mut view(3), X, false, false), "an atomic write and a weak read do");
    }

    #[test]
    fn released_and_acquired_accesses_are_ordered() {
        let watch = RaceDetector::new(true);
        let (mut a, mut b, mut c) = (view(0), view(1), view(2));
        assert!(touch(&watch, &mut a, X, false, true));
        watch.release([FLAG].into_iter(), &mut a);
        watch.acquire([FLAG].into_iter(), &mut b);
        assert!(touch(&watch, &mut b, X, false, true), "b comes behind a");
        assert!(!touch(&watch, &mut c, X, false, false), "c behind none");
        // The later access of a is not released.
        assert!(touch(&watch, &mut a, FLAG + 8, false, true));
        watch.acquire([FLAG].into_iter(), &mut b);
        assert!(!touch(&watch, &mut b, FLAG + 8, false, false));
    }

    #[test]
    fn order_passes_through_others() {
        let watch = RaceDetector::new(true);
        let (mut a, mut b, mut c) = (view(0), view(1), view(2));
        assert!(touch(&watch, &mut a, X, false, true));
        watch.release([FLAG].into_iter(), &mut a);
        watch.acquire([FLAG].into_iter(), &mut b);
        watch.release([FLAG + 8].into_iter(), &mut b);
        watch.acquire([FLAG + 8].into_iter(), &mut c);
        assert!(touch(&watch, &mut c, X, false, true));
    }

    #[test]
    fn a_race_with_one_of_several_is_found() {
        // Three blocks read; the fourth has seen two of them.
        let watch = RaceDetector::new(true);
        let mut writer = view(9);
        for block in 0..3 {
            let mut reader = view(block);
            assert!(touch(&watch, &mut reader, X, false, false));
            if block < 2 {
                watch.release([FLAG].into_iter(), &mut reader);
            }
        }
        watch.acquire([FLAG].into_iter(), &mut writer);
        assert!(!touch(&watch, &mut writer, X, false, true));
    }
}
