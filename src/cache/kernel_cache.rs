//! Memory cache of compiled kernels, by specialization. Each specialization is compiled once per
//! process.
//!
//! * [`Recent`] is a small table of each thread, which is searched without a lock.
//! * [`MemoryCache`] is shared by all threads. It is bounded in total and for each hash. Beyond the
//!   bound, the least recently requested entries without other references are removed.
//!
//! Constants are values of the user, whose `Eq`, `Clone` and `Drop` may execute any code, including
//! launches. They are called only while no lock is held and no cell is borrowed.

use crate::util::collect::CollectVec as _;
use std::any::TypeId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hasher;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use rustc_hash::{FxBuildHasher, FxHasher};

use super::trace_hash::same_trace;
use crate::error::Result;
use crate::ir::Module;
use crate::kernel::StoredConstant;
use crate::util::sort;

/// Identity of a compiled kernel in addition to the words of the key.
pub(crate) enum Identity {
    /// Kernel that is identified by its type, with the constants of its trace.
    Type(TypeId, Vec<StoredConstant>),
    /// Kernel that may have captured values: its trace.
    Trace(Box<Module>),
}

/// Identity that a launch looks up: the borrowed form of an [`Identity`].
pub(crate) enum IdentityRef<'a> {
    /// Kernel type, with a comparison of its constants.
    Type(TypeId, &'a dyn Fn(&[StoredConstant]) -> bool),
    /// Trace.
    Trace(&'a Module),
}

impl IdentityRef<'_> {
    fn is(&self, identity: &Identity) -> bool {
        match (self, identity) {
            (IdentityRef::Type(wanted, same_constants), Identity::Type(id, constants)) => {
                wanted == id && same_constants(constants)
            }
            (IdentityRef::Trace(wanted), Identity::Trace(module)) => same_trace(wanted, module),
            _ => false,
        }
    }
}

/// Hashes the words of a key for [`Slot::hash`]. `seed` is a hash of the identity.
#[inline]
pub(crate) fn hash_words(seed: u64, words: &[u64]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u64(seed);
    for &word in words {
        hasher.write_u64(word);
    }
    hasher.finish()
}

/// Slot of one specialization, which is compiled or being compiled.
pub(crate) struct Slot<E> {
    hash: u64,
    words: Box<[u64]>,
    identity: Identity,
    /// Time of the last request to the shared cache.
    last_request: AtomicU64,
    building: Mutex<()>,
    value: OnceLock<E>,
}

// The constants are clones of user values that comparisons only read, so a panic in a comparison
// leaves them valid.
impl<E: UnwindSafe> UnwindSafe for Slot<E> {}
impl<E: RefUnwindSafe> RefUnwindSafe for Slot<E> {}

impl<E> Slot<E> {
    /// Makes an empty slot that is not part of a cache.
    pub fn unshared() -> Slot<E> {
        Slot {
            hash: 0,
            words: Box::default(),
            identity: Identity::Type(TypeId::of::<()>(), Vec::new()),
            last_request: AtomicU64::new(0),
            building: Mutex::new(()),
            value: OnceLock::new(),
        }
    }

    /// Returns true if hash and words are equal.
    #[inline]
    fn has_key(&self, hash: u64, words: &[u64]) -> bool {
        self.hash == hash && *self.words == *words
    }

    /// Returns the compiled kernel, if present.
    #[inline]
    pub fn get(&self) -> Option<&E> {
        self.value.get()
    }

    /// Returns the compiled kernel, built by `build` if absent. Other threads wait during the
    /// build. After an error or panic, the next caller tries again. `build` must not execute user
    /// code.
    pub fn fill(&self, build: impl FnOnce() -> Result<E>) -> Result<&E> {
        let _only_one = self.building.lock().unwrap_or_else(PoisonError::into_inner);
        match self.get() {
            Some(value) => Ok(value),
            None => {
                let value = build()?;
                Ok(self.value.get_or_init(|| value))
            }
        }
    }
}

/// Slots to be removed from the cache.
type RemovedSlots<E> = Vec<Arc<Slot<E>>>;

/// Compiled specializations of the process.
pub(crate) struct MemoryCache<E> {
    slots: RwLock<Slots<E>>,
    /// Maximum number of entries without other references.
    limit: usize,
    /// Number of requests.
    clock: AtomicU64,
}

/// Slots by hash.
struct Slots<E> {
    /// Invariant: the entries of one hash are ordered by their numbers. [`MemoryCache::insert`]
    /// establishes it.
    by_hash: HashMap<u64, Vec<Entry<E>>, FxBuildHasher>,
    count: usize,
    /// Number of entries above which some are removed.
    shrink_threshold: usize,
    /// Number of insertions.
    inserted: u64,
}

/// Slot of the cache.
struct Entry<E> {
    /// Number of its insertion, from 1 on. An unsuccessful search stores the last number instead of
    /// clones of the slots, which would prevent [`Slots::shrink`] from removing them.
    number: u64,
    slot: Arc<Slot<E>>,
}

impl<E> MemoryCache<E> {
    /// Makes a cache of at most `limit` entries, of which at most a quarter have the same hash.
    /// Entries with other references are kept in addition.
    pub const fn new(limit: usize) -> MemoryCache<E> {
        let by_hash = HashMap::with_hasher(FxBuildHasher);
        let slots = Slots { by_hash, count: 0, shrink_threshold: limit, inserted: 0 };
        MemoryCache { slots: RwLock::new(slots), limit, clock: AtomicU64::new(0) }
    }

    /// Returns the slot of a specialization. If there is none, `identity` is called for a new one.
    pub fn slot(
        &self,
        hash: u64,
        words: &[u64],
        wanted: &IdentityRef<'_>,
        identity: &dyn Fn() -> Identity,
    ) -> Arc<Slot<E>> {
        let now = self.clock.fetch_add(1, Relaxed);
        let mut seen = 0;
        let mut own: Option<Arc<Slot<E>>> = None;
        loop {
            // One slot per iteration, because the comparison calls the `Eq` of the user and no lock
            // may be held. Hash collisions are rare, so the first slot is most often the right one.
            while let Some((number, slot)) = self.next(hash, words, seen) {
                if wanted.is(&slot.identity) {
                    slot.last_request.store(now, Relaxed);
                    return slot;
                }
                seen = number;
            }
            let slot = own.get_or_insert_with(|| {
                Arc::new(Slot {
                    hash,
                    words: words.into(),
                    identity: identity(),
                    last_request: AtomicU64::new(now),
                    building: Mutex::new(()),
                    value: OnceLock::new(),
                })
            });
            // Removed slots are dropped here, after the lock is released.
            if let Some(_given_up) = self.insert(slot, seen) {
                return slot.clone();
            }
        }
    }

    /// Returns the first slot with this hash and these words among those inserted after number
    /// `seen`.
    fn next(&self, hash: u64, words: &[u64], seen: u64) -> Option<(u64, Arc<Slot<E>>)> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let same_hash = slots.by_hash.get(&hash)?;
        let unseen = &same_hash[same_hash.partition_point(|entry| entry.number <= seen)..];
        unseen.iter().find(|entry| entry.slot.has_key(hash, words)).map(|entry| (entry.number, entry.slot.clone()))
    }

    /// Adds a slot and returns the slots that it displaces. `None` if a slot with its hash and
    /// words was inserted after number `seen`.
    fn insert(&self, slot: &Arc<Slot<E>>, seen: u64) -> Option<RemovedSlots<E>> {
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let number = slots.inserted + 1;
        let same_hash = slots.by_hash.entry(slot.hash).or_default();
        let is_unseen = |entry: &Entry<E>| entry.number > seen && entry.slot.has_key(slot.hash, &slot.words);
        if same_hash.iter().rev().any(is_unseen) {
            return None;
        }
        same_hash.push(Entry { number, slot: slot.clone() });
        slots.inserted = number;
        slots.count += 1;
        let mut given_up = slots.shrink_hash(slot.hash, self.limit / 4);
        given_up.extend(slots.shrink(self.limit));
        Some(given_up)
    }
}

/// Returns the slots without other references, least recently requested first. No other thread can
/// clone one in the meantime, because the caller holds the write lock.
fn unreferenced_slots<'a, E: 'a>(all: impl Iterator<Item = &'a Entry<E>>) -> RemovedSlots<E> {
    let mut unreferenced: Vec<_> =
        all.map(|entry| &entry.slot).filter(|slot| Arc::strong_count(slot) == 1).cloned().collect_vec();
    sort::by_key(&mut unreferenced, |slot| slot.last_request.load(Relaxed));
    unreferenced
}

impl<E> Slots<E> {
    /// Removes slots without other references until three quarters of the limit remain.
    fn shrink(&mut self, limit: usize) -> RemovedSlots<E> {
        if self.count <= self.shrink_threshold {
            return Vec::new();
        }
        let mut unreferenced = unreferenced_slots(self.by_hash.values().flatten());
        unreferenced.truncate(self.count - limit / 4 * 3);
        self.remove(&unreferenced);
        // If many slots have other references, the next search is deferred until it can succeed.
        self.shrink_threshold = limit.max(self.count + limit / 4);
        unreferenced
    }

    /// Shrinks the entries of one hash like [`Slots::shrink`], since a search compares all of them.
    /// Constants with a poor hash, or that are not equal to themselves, have one hash.
    fn shrink_hash(&mut self, hash: u64, limit: usize) -> RemovedSlots<E> {
        let Some(same_hash) = self.by_hash.get(&hash).filter(|same_hash| same_hash.len() > limit) else {
            return Vec::new();
        };
        let mut unreferenced = unreferenced_slots(same_hash.iter());
        unreferenced.truncate(same_hash.len() - limit / 4 * 3);
        self.remove(&unreferenced);
        unreferenced
    }

    /// Removes slots of this cache.
    fn remove(&mut self, gone: &[Arc<Slot<E>>]) {
        for slot in gone {
            if let Some(same_hash) = self.by_hash.get_mut(&slot.hash) {
                same_hash.retain(|entry| !Arc::ptr_eq(&entry.slot, slot));
                if same_hash.is_empty() {
                    self.by_hash.remove(&slot.hash);
                }
            }
        }
        self.count -= gone.len();
    }
}

/// Size of the table of [`Recent`]: a power of two.
const RECENT_SLOTS: usize = 64;

/// Recently launched kernels of one thread.
pub(crate) struct Recent<E> {
    slots: [RefCell<Option<Arc<Slot<E>>>>; RECENT_SLOTS],
}

impl<E> Recent<E> {
    pub const fn new() -> Recent<E> {
        Recent { slots: [const { RefCell::new(None) }; RECENT_SLOTS] }
    }

    fn place(&self, hash: u64) -> &RefCell<Option<Arc<Slot<E>>>> {
        // The high bits of the multiplicative hash are the best ones.
        &self.slots[(hash >> 32) as usize % RECENT_SLOTS]
    }

    /// Returns a compiled specialization.
    #[inline]
    pub fn find(&self, hash: u64, words: &[u64], wanted: &IdentityRef<'_>) -> Option<Arc<Slot<E>>> {
        let slot = self.place(hash).borrow().as_ref().filter(|slot| slot.has_key(hash, words)).cloned()?;
        wanted.is(&slot.identity).then_some(slot)
    }

    /// Stores a compiled specialization.
    pub fn put(&self, slot: &Arc<Slot<E>>) {
        let old = self.place(slot.hash).replace(Some(slot.clone()));
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LIMIT: usize = 16;

    fn constants(value: u32) -> Vec<StoredConstant> {
        vec![Box::new(value)]
    }

    #[test]
    fn equal_hashes_do_not_confuse_constants() {
        let cache = MemoryCache::<u32>::new(LIMIT);
        let id = TypeId::of::<u8>();
        let get = |value: u32| {
            let same = move |stored: &[StoredConstant]| stored[0].downcast_ref::<u32>() == Some(&value);
            let slot = cache.slot(7, &[1], &IdentityRef::Type(id, &same), &|| Identity::Type(id, constants(value)));
            *slot.fill(|| Ok(value * 10)).unwrap()
        };
        assert_eq!([get(1), get(2), get(1), get(2)], [10, 20, 10, 20]);
    }

    #[test]
    fn failures_are_tried_again_and_values_built_once() {
        let cache = MemoryCache::<u32>::new(LIMIT);
        let id = TypeId::of::<u8>();
        let wanted = IdentityRef::Type(id, &|_| true);
        let slot = cache.slot(1, &[], &wanted, &|| Identity::Type(id, Vec::new()));
        assert!(slot.fill(|| Err(crate::Error::argument("no"))).is_err());
        assert_eq!(slot.fill(|| Ok(3)).unwrap(), &3);
        assert_eq!(slot.fill(|| Ok(4)).unwrap(), &3);
    }

    #[test]
    fn threads_build_one_value() {
        let cache = MemoryCache::<usize>::new(LIMIT);
        let built = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let id = TypeId::of::<u8>();
                    let slot =
                        cache.slot(1, &[5], &IdentityRef::Type(id, &|_| true), &|| Identity::Type(id, Vec::new()));
                    let value = slot.fill(|| {
                        std::thread::sleep(std::time::Duration::from_millis(5));
                        Ok(built.fetch_add(1, Ordering::SeqCst))
                    });
                    assert_eq!(value.unwrap(), &0);
                });
            }
        });
        assert_eq!(built.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn least_recently_requested_slots_are_removed() {
        let cache = MemoryCache::<u32>::new(LIMIT);
        let id = TypeId::of::<u8>();
        let identities = AtomicUsize::new(0);
        let get = |number: u64| {
            let identity = || {
                identities.fetch_add(1, Ordering::SeqCst);
                Identity::Type(id, Vec::new())
            };
            cache.slot(number, &[number], &IdentityRef::Type(id, &|_| true), &identity)
        };
        let is_kept = |number: u64| {
            let before = identities.load(Ordering::SeqCst);
            get(number);
            identities.load(Ordering::SeqCst) == before
        };
        let held = get(0);
        for number in 1..1000 {
            get(number);
            assert!(is_kept(1), "asked for all the time, after {number}");
            assert!(cache.slots.read().unwrap().count <= LIMIT + 1);
        }
        assert!(Arc::ptr_eq(&held, &get(0)));
        assert!(is_kept(999) && !is_kept(2));
        // Slots with other references are kept, and an insertion does not search them each time.
        let held: Vec<_> = (2000..2100).map(get).collect();
        assert!(held.iter().zip(2000..).all(|(slot, number)| Arc::ptr_eq(slot, &get(number))));
        drop(held);
        for number in 3000..3100 {
            get(number);
        }
        assert!(cache.slots.read().unwrap().count <= LIMIT + LIMIT / 4 + 1);
    }

    /// Requests a key of constants that all have one hash.
    fn of_one_hash(cache: &MemoryCache<u32>, same: &dyn Fn(&[StoredConstant]) -> bool, value: u32) -> Arc<Slot<u32>> {
        let id = TypeId::of::<u8>();
        cache.slot(7, &[1], &IdentityRef::Type(id, same), &|| Identity::Type(id, constants(value)))
    }

    #[test]
    fn constants_unequal_to_themselves_are_removed() {
        let cache = MemoryCache::<u32>::new(LIMIT);
        let compared = AtomicUsize::new(0);
        let unequal = |_: &[StoredConstant]| {
            compared.fetch_add(1, Ordering::SeqCst);
            false
        };
        for value in 0..1000 {
            compared.store(0, Ordering::SeqCst);
            of_one_hash(&cache, &unequal, value);
            assert!(cache.slots.read().unwrap().count <= LIMIT / 4, "after {value}");
            assert!(compared.load(Ordering::SeqCst) <= LIMIT / 4, "after {value}");
        }
    }

    #[test]
    fn constants_with_a_poor_hash_are_found_and_bounded() {
        let cache = MemoryCache::<u32>::new(LIMIT);
        let get = |value: u32| {
            let same = move |stored: &[StoredConstant]| stored[0].downcast_ref::<u32>() == Some(&value);
            let slot = of_one_hash(&cache, &same, value);
            let found = *slot.fill(|| Ok(value * 10)).unwrap();
            assert_eq!(found, value * 10);
            slot
        };
        let held = get(0);
        for value in 1..1000 {
            get(value);
            let frequent = get(1);
            assert!(Arc::ptr_eq(&held, &get(0)) && Arc::ptr_eq(&frequent, &get(1)), "after {value}");
            assert!(cache.slots.read().unwrap().count <= LIMIT / 4 + 1, "after {value}");
        }
        // All slots have other references, so all are kept.
        let all: Vec<_> = (2000..2100).map(get).collect();
        assert!(all.iter().zip(2000..).all(|(slot, value)| Arc::ptr_eq(slot, &get(value))));
        drop(all);
        get(3000);
        let slots = cache.slots.read().unwrap();
        assert_eq!(slots.count, slots.by_hash.values().map(Vec::len).sum::<usize>());
        assert!(slots.count <= LIMIT / 4 + 1, "{}", slots.count);
    }

    /// The comparison is called while no lock is held: it may launch kernels, also with the same
    /// key.
    #[test]
    fn slots_inserted_during_a_comparison_are_found() {
        let cache = MemoryCache::<u32>::new(LIMIT);
        let equal = |value: u32| move |stored: &[StoredConstant]| stored[0].downcast_ref::<u32>() == Some(&value);
        of_one_hash(&cache, &equal(1), 1);
        let inserted = OnceLock::new();
        let comparing = |stored: &[StoredConstant]| {
            inserted.get_or_init(|| of_one_hash(&cache, &equal(2), 2));
            equal(2)(stored)
        };
        let slot = of_one_hash(&cache, &comparing, 2);
        assert!(Arc::ptr_eq(&slot, inserted.get().unwrap()));
        assert_eq!(cache.slots.read().unwrap().count, 2);
    }
}
