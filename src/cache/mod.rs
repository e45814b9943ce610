//! Caches of compiled kernels: in memory by specialisation, on disk by content. For users, what is on the disk: how much,
//! what, since when; less of it, none of it, and how it served this process.
//!
//! Know keys and values, not how a kernel is compiled or run. A trace is part of a key where the type of a kernel does not
//! say everything.
//!
//! The folder is what `CUTLET_CACHE_DIR` names, else `cutlet` in the user's cache folder; `CUTLET_CACHE_BYTES` limits it (1 GiB
//! unless it says otherwise), and `CUTLET_CACHE=off` has none. A folder or a file that others can write is not used. Files
//! are written under another name first, so a process that is killed leaves no half of one; what does not have its checksum
//! is removed, and any of them may be removed at any time.
//!
//! ```
//! use cutlet::cache;
//!
//! if let Some(folder) = cache::folder() {
//!     println!("{}: {} of {} bytes, {} kernels", folder.display(), cache::bytes(), cache::limit_bytes(), cache::entries().len());
//! }
//! println!("{:?}", cache::statistics()); // Statistics { found: 12, missed: 1, written: 1 }
//! ```

pub(crate) mod disk;
mod disk_api;
pub(crate) mod kernel_cache;
pub(crate) mod trace_hash;

pub use disk::{CacheEntry, Statistics, cache_entries, statistics};
pub use disk_api::{bytes, clear, entries, evict, folder, limit_bytes};
