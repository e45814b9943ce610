//! Public functions of the disk cache: inspection and removal of entries.

use std::path::PathBuf;

use super::disk::{CacheEntry, DiskCache, cache_entries};

/// Returns the folder of the disk cache, which may not exist yet. `None` if the cache is off.
///
/// ```
/// println!("{:?}", cutlet::cache::folder());
/// ```
#[must_use]
pub fn folder() -> Option<PathBuf> {
    DiskCache::from_env().map(|cache| cache.folder().to_owned())
}

/// Returns the size limit of the disk cache in bytes, 0 if the cache is off.
///
/// ```
/// assert!(cutlet::cache::bytes() <= cutlet::cache::limit_bytes());
/// ```
#[must_use]
pub fn limit_bytes() -> u64 {
    DiskCache::from_env().map_or(0, |cache| cache.limit_bytes())
}

/// Returns the size of all entries in bytes.
///
/// ```
/// println!("{} bytes", cutlet::cache::bytes());
/// ```
#[must_use]
pub fn bytes() -> u64 {
    entries().iter().map(|entry| entry.bytes).sum()
}

/// Returns the entries, most recently used first, like
/// [`cache_entries`](crate::cache::cache_entries).
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

/// Removes the least recently used entries until at most `bytes` remain, and temporary files of
/// killed processes. Returns the number of bytes removed. Other processes only have to compile
/// again.
///
/// ```no_run
/// let gone = cutlet::cache::evict(100 << 20); // keep 100 MiB
/// println!("{gone} bytes removed");
/// ```
pub fn evict(bytes: u64) -> u64 {
    DiskCache::from_env().map_or(0, |cache| cache.shrink_to(bytes))
}

/// Removes all entries. Returns the number of bytes removed.
///
/// ```no_run
/// cutlet::cache::clear();
/// assert!(cutlet::cache::entries().is_empty());
/// ```
pub fn clear() -> u64 {
    evict(0)
}
