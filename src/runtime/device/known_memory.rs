//! The memory of all arrays of the cpu device, for the check of addresses that kernels compute.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

static KNOWN: RwLock<Known> = RwLock::new(Known { own: BTreeMap::new(), foreign: Vec::new() });

/// Addresses and sizes in bytes.
struct Known {
    /// Allocations of this crate, which are disjoint.
    own: BTreeMap<u64, usize>,
    /// Memory of other libraries: arrays may overlap.
    foreign: Vec<(u64, usize)>,
}

impl Known {
    fn contains(&self, address: u64, bytes: u64) -> bool {
        let holds = |(start, size): (u64, usize)| {
            address >= start && address - start <= size as u64 && bytes <= size as u64 - (address - start)
        };
        let below = self.own.range(..=address).next_back();
        below.is_some_and(|(&start, &size)| holds((start, size))) || self.foreign.iter().any(|&one| holds(one))
    }
}

/// Adds memory of the cpu device.
pub fn add(address: u64, bytes: usize, is_foreign: bool) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    match is_foreign {
        true if bytes > 0 => known.foreign.push((address, bytes)),
        true => {}
        false => drop(known.own.insert(address, bytes)),
    }
}

/// Removes memory that [`add`] has added.
pub fn remove(address: u64, bytes: usize, is_foreign: bool) {
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    if !is_foreign {
        known.own.remove(&address);
    } else if let Some(at) = known.foreign.iter().position(|one| *one == (address, bytes)) {
        known.foreign.swap_remove(at);
    }
}

/// Returns true if the memory of one array has all of these bytes.
pub fn contains(address: u64, bytes: u64) -> bool {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).contains(address, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_in_one_array() {
        let known = Known { own: [(1000, 24), (1024, 8)].into(), foreign: vec![(900, 200), (900, 10)] };
        assert!(known.contains(1000, 24) && known.contains(1024, 8) && known.contains(1031, 1));
        assert!(!known.contains(1032, 1 << 40) && !known.contains(1024, 100));
        assert!(known.contains(1020, 8), "memory of another library has these bytes of two arrays");
        assert!(!known.contains(899, 1) && known.contains(900, 200) && !known.contains(900, 201));
        assert!(!known.contains(u64::MAX, 2));
    }
}
