//! Disk cache of machine code: a folder of files whose names are hashes of the inputs of the
//! compilation.
//!
//! * A file is written under a temporary name and renamed, so that readers never see a partial
//!   file. It contains a checksum. An invalid file, and an error of the file system, is a miss.
//! * The folder has a size limit in bytes. The least recently used files are removed first.
//! * Machine code executes with the rights of the process that loads it. The folder and its files
//!   must therefore belong to the user or to root, and no other user may have write access.
//!   Otherwise the folder is not used, and the file is a miss.
//! * Files are created with access for the user only. Files whose names do not have the format of
//!   the cache are not touched.

use crate::util::collect::CollectVec as _;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use hmac_sha256::Hash as Sha256;

use crate::util::{report, sort};

/// First bytes of a file. The digit is the version of the format.
const MAGIC: &[u8; 8] = b"cutlet\x001";
const CHECKSUM_BYTES: usize = 32;
const SUFFIX: &str = "cubin";
/// Suffix of a file that is being written.
const TEMPORARY: &str = "tmp";
const DEFAULT_LIMIT_BYTES: u64 = 1 << 30;

/// SHA-256 hash of the inputs of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentHash([u8; 32]);

impl ContentHash {
    /// Hashes a list of parts with their lengths.
    pub fn new(parts: &[&[u8]]) -> ContentHash {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        ContentHash(hash.finalize())
    }

    /// Returns the hash in hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Machine code of one kernel in the disk cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheEntry {
    /// Path of the file. Its name is a hash of all inputs of the code. The file may be removed at
    /// any time.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of the last write or use.
    pub last_used: SystemTime,
}

/// Returns the compiled kernels in the disk cache of `CUTLET_CACHE_DIR` and `CUTLET_CACHE`, most
/// recently used first. Empty if the cache is off. Kernels of the cpu device are not cached on
/// disk.
///
/// ```
/// let entries = cutlet::cache::cache_entries();
/// println!("{} kernels, {} bytes", entries.len(), entries.iter().map(|entry| entry.bytes).sum::<u64>());
/// assert!(entries.is_sorted_by(|a, b| a.last_used >= b.last_used));
/// ```
pub fn cache_entries() -> Vec<CacheEntry> {
    DiskCache::from_env().map(|cache| cache.entries()).unwrap_or_default()
}

/// Use of the disk cache by this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Number of hits.
    pub found: u64,
    /// Number of misses, invalid entries included.
    pub missed: u64,
    /// Number of written entries.
    pub written: u64,
}

static HITS: AtomicU64 = AtomicU64::new(0);
static MISSES: AtomicU64 = AtomicU64::new(0);
static WRITES: AtomicU64 = AtomicU64::new(0);

/// Returns the use of the disk cache by this process so far.
///
/// ```
/// let before = cutlet::cache::statistics();
/// assert!(cutlet::cache::statistics().found >= before.found);
/// ```
#[must_use]
pub fn statistics() -> Statistics {
    let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
    Statistics { found: now(&HITS), missed: now(&MISSES), written: now(&WRITES) }
}

/// Age from which a temporary file is considered abandoned by a terminated process.
const ABANDONED_AGE: Duration = Duration::from_secs(3600);

/// Folder of entries.
#[derive(Clone, Debug)]
pub(crate) struct DiskCache {
    folder: PathBuf,
    limit_bytes: u64,
}

/// Returns the limit of `CUTLET_CACHE_BYTES`. Prints one message if that is not a number.
fn limit_from_env() -> u64 {
    let value = std::env::var("CUTLET_CACHE_BYTES").unwrap_or_default();
    match value.parse() {
        Ok(limit) => limit,
        Err(_) if value.is_empty() => DEFAULT_LIMIT_BYTES,
        Err(_) => {
            static REPORTED: Once = Once::new();
            REPORTED.call_once(|| {
                report::warning(&format!(
                    "environment variable CUTLET_CACHE_BYTES={value}: expected a number of bytes; the limit is \
                     {DEFAULT_LIMIT_BYTES}"
                ));
            });
            DEFAULT_LIMIT_BYTES
        }
    }
}

impl DiskCache {
    /// Makes the cache that the environment describes. `CUTLET_CACHE=off` disables it. The folder
    /// is `CUTLET_CACHE_DIR`, or else `cutlet` in the cache folder of the user. The limit is
    /// `CUTLET_CACHE_BYTES` bytes.
    pub fn from_env() -> Option<DiskCache> {
        if std::env::var("CUTLET_CACHE").is_ok_and(|value| value == "off" || value == "0") {
            return None;
        }
        let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = folder("CUTLET_CACHE_DIR")
            .or_else(|| folder("XDG_CACHE_HOME").map(|home| home.join("cutlet")))
            .or_else(|| folder("HOME").map(|home| home.join(".cache").join("cutlet")))?;
        Some(DiskCache::new(folder, limit_from_env()))
    }

    /// Makes the cache of a folder, which is created by the first write.
    pub fn new(folder: PathBuf, limit_bytes: u64) -> DiskCache {
        DiskCache { folder, limit_bytes }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the size limit in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Returns true if the folder exists and only the user has write access.
    pub fn is_own(&self) -> bool {
        fs::metadata(&self.folder).is_ok_and(|data| data.is_dir() && access_control::is_safe(&data))
    }

    fn path(&self, key: &ContentHash) -> PathBuf {
        self.folder.join(key.hex()).with_extension(SUFFIX)
    }

    /// Returns the bytes of a key.
    pub fn get(&self, key: &ContentHash) -> Option<Vec<u8>> {
        let found = self.read(key);
        if found.is_some() { &HITS } else { &MISSES }.fetch_add(1, Ordering::Relaxed);
        found
    }

    fn read(&self, key: &ContentHash) -> Option<Vec<u8>> {
        let path = self.path(key);
        let file = self.open(&path)?;
        let mut bytes = Vec::new();
        (&file).read_to_end(&mut bytes).ok()?;
        let head = MAGIC.len() + CHECKSUM_BYTES;
        let intact = bytes.len() >= head
            && bytes[..MAGIC.len()] == *MAGIC
            && bytes[MAGIC.len()..head] == checksum(key, &bytes[head..]);
        if !intact {
            let _ = fs::remove_file(&path);
            return None;
        }
        // The time of the last use decides the order of removal.
        let _ = file.set_modified(SystemTime::now());
        Some(bytes.split_off(head))
    }

    /// Opens the file of an entry, if only the user has write access.
    fn open(&self, path: &Path) -> Option<fs::File> {
        // Only regular files are opened: no links, and no files on which opening blocks.
        let found = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
        if !self.is_safe() || !access_control::is_safe(&found) {
            return None;
        }
        let file = fs::File::open(path).ok()?;
        // The open file is checked again, since the path may have been replaced in between.
        access_control::is_safe(&file.metadata().ok()?).then_some(file)
    }

    /// Returns true if only the user has write access to the folder. Prints one message otherwise.
    fn is_safe(&self) -> bool {
        let Ok(data) = fs::metadata(&self.folder) else { return false };
        let safe = data.is_dir() && access_control::is_safe(&data);
        if data.is_dir() && !safe {
            static REPORTED: Once = Once::new();
            REPORTED.call_once(|| {
                report::warning(&format!(
                    "compiled kernels are not kept: {} belongs to another user or can be written by others; \
                     restrict it (chmod 700), or name another folder in CUTLET_CACHE_DIR",
                    self.folder.display()
                ));
            });
        }
        safe
    }

    /// Stores bytes under a key. Errors of the file system are ignored.
    pub fn put(&self, key: &ContentHash, bytes: &[u8]) {
        if self.write(key, bytes).is_ok() {
            WRITES.fetch_add(1, Ordering::Relaxed);
            let _ = self.shrink();
        }
    }

    fn write(&self, key: &ContentHash, bytes: &[u8]) -> io::Result<()> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        access_control::create_folder(&self.folder)?;
        if !self.is_safe() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let temporary = self.folder.join(format!("{}.{}.{serial}.{TEMPORARY}", key.hex(), std::process::id()));
        let content = [MAGIC, checksum(key, bytes).as_slice(), bytes].concat();
        let written = access_control::create_file(&temporary)
            .and_then(|mut file| file.write_all(&content))
            .and_then(|()| fs::rename(&temporary, self.path(key)));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Returns the files of the cache, temporary ones included: time of last use, size, path.
    fn files(&self) -> io::Result<Vec<(SystemTime, u64, PathBuf)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            // `metadata` of a directory entry does not follow links.
            if let (true, Ok(data)) = (is_cache_file(&entry.file_name().to_string_lossy()), entry.metadata())
                && data.is_file()
                && access_control::is_safe(&data)
            {
                files.push((data.modified().unwrap_or(SystemTime::UNIX_EPOCH), data.len(), entry.path()));
            }
        }
        Ok(files)
    }

    /// Returns the entries, most recently used first.
    pub fn entries(&self) -> Vec<CacheEntry> {
        let mut files = self.files().unwrap_or_default();
        files.retain(|(_, _, path)| path.extension().is_some_and(|suffix| suffix == SUFFIX));
        sort::natural(&mut files);
        let entry = |(last_used, bytes, path)| CacheEntry { path, bytes, last_used };
        files.into_iter().rev().map(entry).collect_vec()
    }

    /// If the limit is exceeded, removes the least recently used files until three quarters of the
    /// limit remain.
    fn shrink(&self) -> io::Result<()> {
        let mut files = self.files()?;
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        if total > self.limit_bytes {
            sort::natural(&mut files);
            remove_oldest(&files, &mut total, self.limit_bytes / 4 * 3);
        }
        Ok(())
    }

    /// Removes abandoned temporary files, then the least recently used entries until at most
    /// `bytes` remain. Returns the number of bytes removed.
    pub fn shrink_to(&self, bytes: u64) -> u64 {
        let mut files = self.files().unwrap_or_default();
        let before: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        let is_temporary = |path: &Path| path.extension().is_some_and(|suffix| suffix == TEMPORARY);
        sort::natural(&mut files);
        let (writing, kept): (Vec<_>, Vec<_>) = files.into_iter().partition(|(_, _, path)| is_temporary(path));
        let is_abandoned =
            |at: &SystemTime| SystemTime::now().duration_since(*at).is_ok_and(|age| age >= ABANDONED_AGE);
        let abandoned: Vec<_> = writing.into_iter().filter(|(at, _, _)| is_abandoned(at)).collect_vec();
        let mut total = before;
        remove_oldest(&abandoned, &mut total, 0);
        let mut of_entries = kept.iter().map(|(_, bytes, _)| bytes).sum();
        let entries = of_entries;
        remove_oldest(&kept, &mut of_entries, bytes);
        before - total + entries - of_entries
    }
}

/// Removes files in order until at most `left` bytes of `total` remain.
fn remove_oldest(files: &[(SystemTime, u64, PathBuf)], total: &mut u64, left: u64) {
    for (_, bytes, path) in files {
        if *total <= left {
            break;
        }
        // A missing file was removed by another process, which also released its bytes.
        match fs::remove_file(path) {
            Ok(()) => *total -= bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => *total -= bytes,
            Err(_) => {}
        }
    }
}

/// Returns true for a file name of the cache: 64 hexadecimal digits and the suffix. A temporary
/// name also has the numbers of the process and of the write.
fn is_cache_file(name: &str) -> bool {
    let all = |text: &str, valid: fn(u8) -> bool| !text.is_empty() && text.bytes().all(valid);
    let is_key = |text: &str| text.len() == 64 && all(text, |c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    let is_number = |text: &str| all(text, |c| c.is_ascii_digit());
    match *name.split('.').collect_vec() {
        [key, SUFFIX] => is_key(key),
        [key, process, serial, TEMPORARY] => is_key(key) && is_number(process) && is_number(serial),
        _ => false,
    }
}

/// Access control of files on Unix.
#[cfg(unix)]
mod access_control {
    use std::fs::{DirBuilder, File, Metadata, OpenOptions};
    use std::io::Result;
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
    use std::path::Path;

    // SAFETY: POSIX specifies that `geteuid` takes no arguments, returns a number of this width,
    // and cannot fail.
    unsafe extern "C" {
        safe fn geteuid() -> u32;
    }

    /// Returns true if the file belongs to the user or root, and no other user has write access.
    pub fn is_safe(data: &Metadata) -> bool {
        [geteuid(), 0].contains(&data.uid()) && data.mode() & 0o022 == 0
    }

    pub fn create_folder(path: &Path) -> Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)
    }

    pub fn create_file(path: &Path) -> Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
    }
}

/// No access control on systems whose user folders are private by default.
#[cfg(not(unix))]
mod access_control {
    use std::fs::{File, Metadata, OpenOptions, create_dir_all};
    use std::io::Result;
    use std::path::Path;

    pub fn is_safe(_data: &Metadata) -> bool {
        true
    }

    pub fn create_folder(path: &Path) -> Result<()> {
        create_dir_all(path)
    }

    pub fn create_file(path: &Path) -> Result<File> {
        OpenOptions::new().write(true).create_new(true).open(path)
    }
}

/// Returns the checksum of key and content. A file under a wrong name is thus invalid.
fn checksum(key: &ContentHash, bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    ContentHash::new(&[&key.0, bytes]).0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Folder of one test, removed at its end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            Folder(std::env::temp_dir().join(format!("cutlet-cache-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn stored_bytes_are_returned() {
        let folder = Folder::new("keeps");
        let cache = DiskCache::new(folder.0.clone(), 1 << 20);
        let key = ContentHash::new(&[b"a", b"bc"]);
        assert!(key != ContentHash::new(&[b"ab", b"c"]));
        assert_eq!(cache.get(&key), None);
        cache.put(&key, b"code");
        assert_eq!(cache.get(&key).as_deref(), Some(&b"code"[..]));
        cache.put(&key, b"");
        assert_eq!(cache.get(&key).as_deref(), Some(&b""[..]));
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn entries_are_listed_by_their_last_use() {
        let folder = Folder::new("lists");
        let cache = DiskCache::new(folder.0.clone(), 1 << 20);
        assert_eq!(cache.entries(), []);
        let keys = [1u8, 2, 3].map(|i| ContentHash::new(&[&[i]]));
        for (size, key) in keys.iter().enumerate() {
            cache.put(key, &vec![0; size]);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        fs::write(folder.0.join("notes.txt"), "mine").unwrap();
        fs::write(folder.0.join(format!("{}.1.2.tmp", keys[0].hex())), "half").unwrap();
        assert!(cache.get(&keys[1]).is_some());
        let entries = cache.entries();
        let names: Vec<_> = entries.iter().map(|entry| entry.path.clone()).collect();
        assert_eq!(names, [1, 2, 0].map(|i: usize| cache.path(&keys[i])));
        let head = (MAGIC.len() + CHECKSUM_BYTES) as u64;
        assert_eq!(entries.iter().map(|entry| entry.bytes - head).collect::<Vec<_>>(), [1, 2, 0]);
    }

    #[test]
    fn every_damage_is_a_miss() {
        let folder = Folder::new("damage");
        let cache = DiskCache::new(folder.0.clone(), 1 << 20);
        let key = ContentHash::new(&[b"kernel"]);
        let path = cache.path(&key);
        cache.put(&key, b"some machine code");
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x40;
            fs::write(&path, &damaged).unwrap();
            assert_eq!(cache.get(&key), None, "byte {at} changed");
            assert!(!path.exists());
            fs::write(&path, &whole[..at]).unwrap();
            assert_eq!(cache.get(&key), None, "cut at {at}");
        }
        fs::write(cache.path(&ContentHash::new(&[b"other"])), &whole).unwrap();
        assert_eq!(cache.get(&ContentHash::new(&[b"other"])), None, "under another name");
        cache.put(&key, b"some machine code");
        assert!(cache.get(&key).is_some());
    }

    #[test]
    fn remains_below_its_limit_and_keeps_recent_files() {
        let folder = Folder::new("limit");
        let cache = DiskCache::new(folder.0.clone(), 10_000);
        let key = |i: u32| ContentHash::new(&[&i.to_le_bytes()]);
        for i in 0..30 {
            cache.put(&key(i), &[i as u8; 1000]);
            assert!(cache.get(&key(0)).is_some(), "used all the time, after {i}");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        let bytes: u64 = fs::read_dir(&folder.0).unwrap().map(|f| f.unwrap().metadata().unwrap().len()).sum();
        assert!(bytes <= 10_000, "{bytes}");
        assert!(cache.get(&key(29)).is_some());
        assert!(cache.get(&key(1)).is_none());
    }

    #[test]
    fn entries_can_be_evicted() {
        let folder = Folder::new("less");
        let cache = DiskCache::new(folder.0.clone(), 1 << 20);
        let keys = [1u8, 2, 3].map(|n| ContentHash::new(&[&[n]]));
        for (age, key) in (1..).zip(&keys) {
            cache.put(key, &[0; 1000]);
            let at = SystemTime::now() - Duration::from_secs(100 * (4 - age));
            fs::File::options().write(true).open(cache.path(key)).unwrap().set_modified(at).unwrap();
        }
        let each = cache.entries()[0].bytes;
        // A file that is being written, and one whose writer was killed a day ago.
        let [young, old] = [7, 8].map(|serial| folder.0.join(format!("{}.1.{serial}.{TEMPORARY}", keys[0].hex())));
        for path in [&young, &old] {
            access_control::create_file(path).unwrap().write_all(&[0; 10]).unwrap();
        }
        let day_ago = SystemTime::now() - Duration::from_secs(86400);
        fs::File::options().write(true).open(&old).unwrap().set_modified(day_ago).unwrap();

        assert_eq!(cache.shrink_to(3 * each), 10);
        assert!(young.exists() && !old.exists() && cache.entries().len() == 3);
        assert_eq!(cache.shrink_to(3 * each - 1), each);
        assert!(cache.get(&keys[0]).is_none() && cache.get(&keys[1]).is_some(), "the oldest one goes");
        assert_eq!((cache.shrink_to(0), cache.entries().len(), young.exists()), (2 * each, 0, true));
        assert_eq!(DiskCache::new(folder.0.join("none"), 1).shrink_to(0), 0);
    }

    /// Two processes that shrink the cache at the same time list the same files.
    #[test]
    fn files_removed_by_another_process_are_counted() {
        let folder = Folder::new("both");
        let cache = DiskCache::new(folder.0.clone(), 1 << 20);
        let keys = [1u8, 2, 3, 4].map(|n| ContentHash::new(&[&[n]]));
        for key in &keys {
            cache.put(key, &[0; 1000]);
        }
        let files = cache.files().unwrap();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        let left = total / 2;
        fs::remove_file(&files[0].2).unwrap();
        fs::remove_file(&files[1].2).unwrap();
        remove_oldest(&files, &mut total, left);
        assert_eq!((total, cache.entries().len()), (left, 2));
    }

    #[test]
    fn an_impossible_folder_is_a_miss() {
        let cache = DiskCache::new(PathBuf::from("/proc/no/such/folder"), 1);
        cache.put(&ContentHash::new(&[]), b"x");
        assert_eq!(cache.get(&ContentHash::new(&[])), None);
    }

    #[test]
    fn foreign_files_are_not_touched() {
        let folder = Folder::new("others");
        let cache = DiskCache::new(folder.0.clone(), 10_000);
        let key = |i: u32| ContentHash::new(&[&i.to_le_bytes()]);
        let hex = key(0).hex();
        let names =
            ["notes.tmp", "kernel.cubin", "keep.txt", &hex, &format!("{hex}.1.cubin"), &format!("{hex}.x.1.tmp")];
        fs::create_dir_all(&folder.0).unwrap();
        own_folder(&folder.0);
        for name in names {
            fs::write(folder.0.join(name), [1; 4000]).unwrap();
        }
        let stale = folder.0.join(format!("{hex}.12.7.tmp"));
        fs::write(&stale, [1; 4000]).unwrap();
        for i in 0..12 {
            cache.put(&key(i), &[i as u8; 1000]);
        }
        for name in names {
            assert!(folder.0.join(name).exists(), "{name}");
        }
        assert!(!stale.exists(), "what an interrupted write has left goes, too");
        assert!(cache.get(&key(11)).is_some() && cache.get(&key(0)).is_none());
    }

    #[cfg(unix)]
    fn set_mode(path: &Path, mode: u32) {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn own_folder(path: &Path) {
        #[cfg(unix)]
        set_mode(path, 0o700);
        let _ = path;
    }

    #[cfg(unix)]
    #[test]
    fn files_with_foreign_write_access_are_not_used() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = Folder::new("permissions");
        let cache = DiskCache::new(folder.0.join("new/cache"), 1 << 20);
        let (key, other) = (ContentHash::new(&[b"kernel"]), ContentHash::new(&[b"other"]));
        cache.put(&key, b"code");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&cache.folder), mode(&cache.path(&key))), (0o700, 0o600));
        for (path, mine) in [(cache.folder.clone(), 0o700), (cache.path(&key), 0o600)] {
            for others in [0o020, 0o002] {
                set_mode(&path, mine | others);
                assert_eq!(cache.get(&key), None, "{} {others:o}", path.display());
            }
            // Read access is allowed.
            set_mode(&path, mine | 0o044);
            assert_eq!(cache.get(&key).as_deref(), Some(&b"code"[..]));
        }
        set_mode(&cache.folder, 0o777);
        cache.put(&other, b"code");
        assert!(!cache.path(&other).exists(), "nothing is written where others can change it");
        set_mode(&cache.folder, 0o700);
        // A link is no entry, and its target is not changed.
        let mine = folder.0.join("mine");
        fs::copy(cache.path(&key), &mine).unwrap();
        fs::remove_file(cache.path(&key)).unwrap();
        symlink(&mine, cache.path(&key)).unwrap();
        assert_eq!(cache.get(&key), None);
        cache.put(&key, b"new");
        assert_eq!(cache.get(&key).as_deref(), Some(&b"new"[..]));
        assert!(fs::read(&mine).unwrap().ends_with(b"code"));
        // An entry of another user, which only root can create.
        if std::os::unix::fs::chown(cache.path(&key), Some(12345), None).is_ok() {
            assert_eq!(cache.get(&key), None);
            std::os::unix::fs::chown(cache.path(&key), Some(0), None).unwrap();
            std::os::unix::fs::chown(&cache.folder, Some(12345), None).unwrap();
            assert_eq!(cache.get(&key), None);
        }
    }
}
