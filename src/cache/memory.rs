//! Compiled kernels of this process, by specialisation; each is compiled once, whoever asks first.
//!
//! Two levels: [`Recent`], a small table of each thread that is asked without any lock, in front of
//! [`MemoryCache`], which all threads share. Entries stay for the life of the process.

use std::any::TypeId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hasher;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use rustc_hash::{FxBuildHasher, FxHasher};

use super::trace::same_trace;
use crate::error::Result;
use crate::ir::Module;
use crate::kernel::StoredConstant;

/// What was compiled, apart from the words of the key.
pub(crate) enum Identity {
    /// A kernel whose type says everything, with the constants it was traced with.
    Type(TypeId, Vec<StoredConstant>),
    /// A kernel that may hold captured values: what its trace recorded.
    Trace(Box<Module>),
}

/// What a launch looks for: the borrowed form of an [`Identity`].
pub(crate) enum Wanted<'a> {
    /// A kernel type, with a comparison of its constants.
    Type(TypeId, &'a dyn Fn(&[StoredConstant]) -> bool),
    /// A trace.
    Trace(&'a Module),
}

impl Wanted<'_> {
    fn is(&self, identity: &Identity) -> bool {
        match (self, identity) {
            (Wanted::Type(wanted, same_constants), Identity::Type(id, constants)) => {
                wanted == id && same_constants(constants)
            }
            (Wanted::Trace(wanted), Identity::Trace(module)) => same_trace(wanted, module),
            _ => false,
        }
    }
}

/// Hash of the words of a key, for [`Slot::hash`]. `seed` is a hash of the identity.
#[inline]
pub(crate) fn hash_words(seed: u64, words: &[u64]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write_u64(seed);
    for &word in words {
        hasher.write_u64(word);
    }
    hasher.finish()
}

/// One specialisation, compiled or about to be.
pub(crate) struct Slot<E> {
    hash: u64,
    words: Box<[u64]>,
    identity: Identity,
    building: Mutex<()>,
    value: OnceLock<E>,
}

impl<E> Slot<E> {
    #[inline]
    fn is(&self, hash: u64, words: &[u64], wanted: &Wanted<'_>) -> bool {
        self.hash == hash && *self.words == *words && wanted.is(&self.identity)
    }

    /// The compiled kernel, if it is there.
    #[inline]
    pub fn get(&self) -> Option<&E> {
        self.value.get()
    }

    /// Holds back other threads that want this specialisation; then look at [`Slot::get`] again.
    /// A thread that panicked or failed while building leaves the work to the next one.
    pub fn lock(&self) -> std::sync::MutexGuard<'_, ()> {
        self.building.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The compiled kernel, built by `build` if it is not there. Call it while holding [`Slot::lock`].
    pub fn fill(&self, build: impl FnOnce() -> Result<E>) -> Result<&E> {
        match self.get() {
            Some(value) => Ok(value),
            None => {
                let value = build()?;
                Ok(self.value.get_or_init(|| value))
            }
        }
    }
}

/// Slots by hash.
type Slots<E> = HashMap<u64, Vec<Arc<Slot<E>>>, FxBuildHasher>;

/// All specialisations of the process.
pub(crate) struct MemoryCache<E> {
    slots: RwLock<Slots<E>>,
}

impl<E> MemoryCache<E> {
    pub const fn new() -> MemoryCache<E> {
        MemoryCache { slots: RwLock::new(HashMap::with_hasher(FxBuildHasher)) }
    }

    /// The slot of a specialisation; `identity` is asked for when there is none yet.
    pub fn slot(&self, hash: u64, words: &[u64], wanted: &Wanted<'_>, identity: &dyn Fn() -> Identity) -> Arc<Slot<E>> {
        let find = |slots: &[Arc<Slot<E>>]| slots.iter().find(|slot| slot.is(hash, words, wanted)).cloned();
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(&hash).and_then(|slots| find(slots)) {
            return slot;
        }
        drop(slots);
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let slots = slots.entry(hash).or_default();
        find(slots).unwrap_or_else(|| {
            let slot = Arc::new(Slot {
                hash,
                words: words.into(),
                identity: identity(),
                building: Mutex::new(()),
                value: OnceLock::new(),
            });
            slots.push(slot.clone());
            slot
        })
    }
}

/// Size of the table of [`Recent`]; a power of two.
const RECENT_SLOTS: usize = 64;

/// The kernels that one thread launched lately.
pub(crate) struct Recent<E> {
    slots: [RefCell<Option<Arc<Slot<E>>>>; RECENT_SLOTS],
}

impl<E> Recent<E> {
    pub const fn new() -> Recent<E> {
        Recent { slots: [const { RefCell::new(None) }; RECENT_SLOTS] }
    }

    fn place(&self, hash: u64) -> &RefCell<Option<Arc<Slot<E>>>> {
        // The multiplicative hash is best in its high bits.
        &self.slots[(hash >> 32) as usize % RECENT_SLOTS]
    }

    /// A compiled specialisation.
    #[inline]
    pub fn find(&self, hash: u64, words: &[u64], wanted: &Wanted<'_>) -> Option<Arc<Slot<E>>> {
        let place = self.place(hash).borrow();
        place.as_ref().filter(|slot| slot.is(hash, words, wanted)).cloned()
    }

    /// Remembers a compiled specialisation.
    pub fn put(&self, slot: &Arc<Slot<E>>) {
        let old = self.place(slot.hash).replace(Some(slot.clone()));
        drop(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn constants(value: u32) -> Vec<StoredConstant> {
        vec![Box::new(value)]
    }

    #[test]
    fn equal_hashes_do_not_confuse_constants() {
        let cache = MemoryCache::<u32>::new();
        let id = TypeId::of::<u8>();
        let get = |value: u32| {
            let same = move |stored: &[StoredConstant]| stored[0].downcast_ref::<u32>() == Some(&value);
            let slot = cache.slot(7, &[1], &Wanted::Type(id, &same), &|| Identity::Type(id, constants(value)));
            let _guard = slot.lock();
            *slot.fill(|| Ok(value * 10)).unwrap()
        };
        assert_eq!([get(1), get(2), get(1), get(2)], [10, 20, 10, 20]);
    }

    #[test]
    fn failures_are_tried_again_and_values_built_once() {
        let cache = MemoryCache::<u32>::new();
        let id = TypeId::of::<u8>();
        let wanted = Wanted::Type(id, &|_| true);
        let slot = cache.slot(1, &[], &wanted, &|| Identity::Type(id, Vec::new()));
        assert!(slot.fill(|| Err(crate::Error::argument("no"))).is_err());
        assert_eq!(slot.fill(|| Ok(3)).unwrap(), &3);
        assert_eq!(slot.fill(|| Ok(4)).unwrap(), &3);
    }

    #[test]
    fn threads_build_one_value() {
        let cache = MemoryCache::<usize>::new();
        let built = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let id = TypeId::of::<u8>();
                    let slot = cache.slot(1, &[5], &Wanted::Type(id, &|_| true), &|| Identity::Type(id, Vec::new()));
                    let _guard = slot.lock();
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
}
