//! Caches of compiled kernels: in memory by specialization, on disk by content. The public
//! functions list the entries of the disk cache, remove them, and return statistics.
//!
//! The caches store keys and values, independently of compilation and execution. The trace is part
//! of a key if the type of the kernel does not identify it.
//!
//! Contents of the keys:
//! * memory: `launch/specialize.rs` (`specialization_key`), `LaunchArg::key` of each argument, for
//!   arrays `specialization_word` (`runtime/args/array_arg.rs`), and `kernel_cache::Identity`;
//! * disk: `launch/compile/ptx.rs` (`cubin_key`: PTX, target, driver, options of the assembler)
//!   and `launch/compile/tileir.rs`.
//!
//! The folder is `CUTLET_CACHE_DIR`, or else `cutlet` in the cache folder of the user.
//! `CUTLET_CACHE_BYTES` limits its size (default: 1 GiB), and `CUTLET_CACHE=off` disables the
//! cache. A folder or file with write access for other users is not used. Files are written under a
//! temporary name and renamed, so that a killed process leaves no partial file. A file with a wrong
//! checksum is removed. Each file may be removed at any time.
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
