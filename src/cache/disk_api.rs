//! What users see of the folder of compiled kernels, and how they make it smaller.

use std::path::PathBuf;

use super::disk::{CacheEntry, DiskCache, cache_entries};

/// The folder; `None` where nothing is kept. It may not be there yet.
///
/// ```
/// println!("{:?}", cutlet::cache::folder());
/// ```
#[must_use]
pub fn folder() -> Option<PathBuf> {
    DiskCache::from_env().map(|cache| cache.folder().to_owned())
}

/// Bytes that the folder may have; 0 where nothing is kept.
///
/// ```
/// assert!(cutlet::cache::bytes() <= cutlet::cache::limit_bytes());
/// ```
#[must_use]
pub fn limit_bytes() -> u64 {
    DiskCache::from_env().map_or(0, |cache| cache.limit_bytes())
}

/// Bytes of what is kept.
///
/// ```
/// println!("{} bytes", cutlet::cache::bytes());
/// ```
#[must_use]
pub fn bytes() -> u64 {
    entries().iter().map(|entry| entry.bytes).sum()
}

/// What is kept, the entry that was used last in front: [`cache_entries`](crate::cache::cache_entries).
///
/// ```
/// for entry in cutlet::cache::entries() {
///     println!("{} bytes in {}", entry.bytes, entry.path.display());
/// }
/// ```
#[must_use]
pub fn entries() -> Vec<CacheEntry> {
    cache_entries()
}

/// Removes the entries that were used least recently until at most so many bytes are left, and what writers that were
/// killed have left behind; gives the bytes that went. Other processes lose nothing but time.
///
/// ```no_run
/// let gone = cutlet::cache::evict(100 << 20); // keep 100 MiB
/// println!("{gone} bytes removed");
/// ```
pub fn evict(bytes: u64) -> u64 {
    DiskCache::from_env().map_or(0, |cache| cache.shrink_to(bytes))
}

/// Removes everything that is kept, and gives its bytes.
///
/// ```no_run
/// cutlet::cache::clear();
/// assert!(cutlet::cache::entries().is_empty());
/// ```
pub fn clear() -> u64 {
    evict(0)
}
