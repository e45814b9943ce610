//! Record of the accesses to global memory that an instrumented kernel writes, for the check of
//! races on a GPU.
//!
//! Each recorded array has a *shadow*: for each element and each class of accesses, the smallest
//! and the largest key of an access. A key has the number of the tile block in its high bits, and
//! the number of the op in its low bits.

use super::handle::Loc;
use crate::util::collect::CollectVec as _;

/// Number of low bits of a key that hold the number of the op.
pub(crate) const SITE_BITS: u32 = 16;

/// Sum of a key and the word that records it as a smallest key. Both words grow: 0 is no access.
pub(crate) const COMPLEMENT: i64 = 1 << 62;

/// Description of the record of a kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    /// Recorded arrays, in the order of the parameters of their shadows, which are the last
    /// parameters of the entry.
    pub arrays: Vec<RecordedArray>,
    /// Recorded ops, by number.
    pub sites: Vec<Site>,
    /// Log of the accesses whose order the tile blocks establish, and of the accesses to memory of
    /// no parameter. Its parameter follows those of the shadows.
    pub log: Option<Logged>,
    /// True if such accesses exist, and are not logged: the kernel exchanges tiles within clusters.
    pub is_unlogged: bool,
    /// Arrays with a record of their written elements; `None` without the check of unwritten
    /// memory. Parameters of these records follow those of the shadows.
    pub written: Option<Vec<WrittenArray>>,
}

impl Recording {
    /// Returns true if accesses of tile blocks are recorded.
    pub fn has_accesses(&self) -> bool {
        !self.arrays.is_empty() || self.log.is_some()
    }
}

/// Arrays of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    /// Numbers of the parameters of the addresses of logged arrays.
    pub params: Vec<usize>,
    /// True if accesses to memory of no parameter are logged.
    pub addresses: bool,
}

/// Words of a log before its events: the counter of the events, and the mask of the sample.
pub(crate) const LOG_HEADER: u64 = 2;

/// Maximum number of events of a log.
pub(crate) const LOG_CAPACITY: u64 = 1 << 20;

/// Kind of an event of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Access,
    Release,
    Acquire,
}

/// Number of low bits of the first word of an event that hold the address.
const ADDRESS_BITS: u32 = 60;

impl Event {
    /// Returns the bits of the kind in the first word of an event.
    pub fn bits(self) -> i64 {
        (self as i64) << ADDRESS_BITS
    }

    /// Returns the kind and the address of the first word of an event.
    pub fn of(word: i64) -> (Event, u64) {
        let kind = match word >> ADDRESS_BITS {
            1 => Event::Release,
            2 => Event::Acquire,
            _ => Event::Access,
        };
        (kind, (word & ((1 << ADDRESS_BITS) - 1)) as u64)
    }
}

/// Array with a record of its written elements: one byte per element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WrittenArray {
    /// Number of the parameter of its address.
    pub param: usize,
    /// Bytes of an element.
    pub bytes: u64,
}

/// Array whose accesses are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedArray {
    /// Number of the parameter of its address.
    pub param: usize,
    /// Bytes of an element.
    pub bytes: u64,
    /// Classes of the accesses. Class c has the words 2c (largest key) and 2c + 1 (complement of
    /// the smallest key) of an element.
    pub classes: Vec<AccessClass>,
}

/// Recorded op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub loc: Loc,
    pub class: AccessClass,
    /// Bytes of an element.
    pub bytes: u64,
}

/// Properties of an access that decide about its conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct AccessClass {
    pub writes: bool,
    /// Atomic or ordered.
    pub atomic: bool,
    /// An acquiring access may precede it in its tile block.
    pub follows_acquire: bool,
    /// A releasing access may follow it in its tile block, or is the access itself.
    pub precedes_release: bool,
}

impl AccessClass {
    /// Returns true if accesses of the two classes by different tile blocks to one element are a
    /// race, independently of the other accesses of the kernel.
    ///
    /// An order of two accesses needs a release after the first and an acquire before the second
    /// one, in their tile blocks.
    pub fn is_in_conflict(self, other: AccessClass) -> bool {
        let may_precede = |first: AccessClass, second: AccessClass| first.precedes_release && second.follows_acquire;
        (self.writes || other.writes)
            && !(self.atomic && other.atomic)
            && !may_precede(self, other)
            && !may_precede(other, self)
    }
}

impl RecordedArray {
    /// Returns true if two of the classes are in conflict unless an order separates them.
    pub fn depends_on_order(&self) -> bool {
        let separate =
            |a: AccessClass, b: AccessClass| (a.writes || b.writes) && !(a.atomic && b.atomic) && !a.is_in_conflict(b);
        self.classes.iter().any(|&a| self.classes.iter().any(|&b| separate(a, b)))
    }

    /// Returns the number of words of an element.
    pub fn words(&self) -> usize {
        2 * self.classes.len()
    }

    /// Returns the pairs of classes in conflict, by number.
    pub fn conflicts(&self) -> Vec<(usize, usize)> {
        let count = self.classes.len();
        let pairs = (0..count).flat_map(|a| (a..count).map(move |b| (a, b)));
        pairs.filter(|&(a, b)| self.classes[a].is_in_conflict(self.classes[b])).collect_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: AccessClass =
        AccessClass { writes: false, atomic: false, follows_acquire: false, precedes_release: false };
    const WRITE: AccessClass = AccessClass { writes: true, ..READ };
    const ATOMIC: AccessClass = AccessClass { atomic: true, ..WRITE };

    #[test]
    fn writes_are_in_conflict_unless_both_are_atomic_or_an_order_is_possible() {
        assert!(WRITE.is_in_conflict(WRITE) && WRITE.is_in_conflict(READ) && READ.is_in_conflict(ATOMIC));
        assert!(!READ.is_in_conflict(READ) && !ATOMIC.is_in_conflict(ATOMIC));
        let (first, second) =
            (AccessClass { precedes_release: true, ..WRITE }, AccessClass { follows_acquire: true, ..READ });
        assert!(!first.is_in_conflict(second) && !second.is_in_conflict(first));
        // A release without an acquire, and an acquire without a release, order nothing.
        assert!(first.is_in_conflict(READ) && WRITE.is_in_conflict(second));
        assert!(first.is_in_conflict(first));
    }

    #[test]
    fn only_pairs_in_conflict_are_compared() {
        let array = RecordedArray { param: 0, bytes: 4, classes: vec![READ, WRITE, ATOMIC] };
        assert_eq!((array.words(), array.conflicts()), (6, vec![(0, 1), (0, 2), (1, 1), (1, 2)]));
    }
}
