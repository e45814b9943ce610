//! Machine code kept between runs: a folder of files named by the hash of what they were made from.
//!
//! Bytes in, bytes out. A file is written under another name and renamed, so that readers never see
//! half of one; it carries a checksum, and whatever does not fit is a miss. The folder stays below a
//! number of bytes: the files used least recently go first. A fault of the file system is a miss, too.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

/// First bytes of a file; the digit is the version of the format.
const MAGIC: &[u8; 8] = b"cutlet\x001";
const CHECKSUM_BYTES: usize = 32;
const SUFFIX: &str = "cubin";
const DEFAULT_LIMIT_BYTES: u64 = 1 << 30;

/// What an entry was made from, in 256 bits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentKey([u8; 32]);

impl ContentKey {
    /// The key of a list of parts; where one part ends and the next begins matters.
    pub fn of(parts: &[&[u8]]) -> ContentKey {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        ContentKey(hash.finalize().into())
    }

    /// In hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A folder of entries.
#[derive(Clone, Debug)]
pub(crate) struct DiskCache {
    folder: PathBuf,
    limit_bytes: u64,
}

impl DiskCache {
    /// The cache that the environment describes: `CUTLET_CACHE=off` for none; the folder
    /// `CUTLET_CACHE_DIR`, else `cutlet` in the user's cache folder; at most `CUTLET_CACHE_BYTES` bytes.
    pub fn from_env() -> Option<DiskCache> {
        if std::env::var("CUTLET_CACHE").is_ok_and(|value| value == "off" || value == "0") {
            return None;
        }
        let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = folder("CUTLET_CACHE_DIR")
            .or_else(|| folder("XDG_CACHE_HOME").map(|home| home.join("cutlet")))
            .or_else(|| folder("HOME").map(|home| home.join(".cache").join("cutlet")))?;
        let limit = std::env::var("CUTLET_CACHE_BYTES").ok().and_then(|value| value.parse().ok());
        Some(DiskCache::new(folder, limit.unwrap_or(DEFAULT_LIMIT_BYTES)))
    }

    /// The cache in a folder, which is created when something is put into it.
    pub fn new(folder: PathBuf, limit_bytes: u64) -> DiskCache {
        DiskCache { folder, limit_bytes }
    }

    fn path(&self, key: &ContentKey) -> PathBuf {
        self.folder.join(key.hex()).with_extension(SUFFIX)
    }

    /// The bytes kept under a key.
    pub fn get(&self, key: &ContentKey) -> Option<Vec<u8>> {
        let path = self.path(key);
        let mut bytes = fs::read(&path).ok()?;
        let head = MAGIC.len() + CHECKSUM_BYTES;
        let intact = bytes.len() >= head
            && bytes[..MAGIC.len()] == *MAGIC
            && bytes[MAGIC.len()..head] == checksum(key, &bytes[head..]);
        if !intact {
            let _ = fs::remove_file(&path);
            return None;
        }
        // The time of last use decides what is thrown away.
        let _ = fs::File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Some(bytes.split_off(head))
    }

    /// Keeps bytes under a key, if the file system lets it.
    pub fn put(&self, key: &ContentKey, bytes: &[u8]) {
        let _ = self.write(key, bytes).and_then(|()| self.shrink());
    }

    fn write(&self, key: &ContentKey, bytes: &[u8]) -> std::io::Result<()> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        fs::create_dir_all(&self.folder)?;
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let temporary = self.folder.join(format!("{}.{}.{serial}.tmp", key.hex(), std::process::id()));
        let content = [MAGIC, checksum(key, bytes).as_slice(), bytes].concat();
        let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, self.path(key)));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Removes the files used least recently until three quarters of the limit are left.
    fn shrink(&self) -> std::io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let is_ours = [SUFFIX, "tmp"].iter().any(|suffix| has_suffix(&entry.path(), suffix));
            if let (true, Ok(data)) = (is_ours, entry.metadata()) {
                files.push((data.modified().unwrap_or(SystemTime::UNIX_EPOCH), data.len(), entry.path()));
            }
        }
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        if total <= self.limit_bytes {
            return Ok(());
        }
        files.sort();
        for (_, bytes, path) in files {
            if total <= self.limit_bytes / 4 * 3 {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total -= bytes;
            }
        }
        Ok(())
    }
}

fn has_suffix(path: &Path, suffix: &str) -> bool {
    path.extension().is_some_and(|extension| extension == suffix)
}

/// Of key and content: a file under a wrong name is damaged, too.
fn checksum(key: &ContentKey, bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    ContentKey::of(&[&key.0, bytes]).0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own for each test, removed at the end.
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
    fn keeps_and_gives_back() {
        let folder = Folder::new("keeps");
        let cache = DiskCache::new(folder.0.clone(), 1 << 20);
        let key = ContentKey::of(&[b"a", b"bc"]);
        assert!(key != ContentKey::of(&[b"ab", b"c"]));
        assert_eq!(cache.get(&key), None);
        cache.put(&key, b"code");
        assert_eq!(cache.get(&key).as_deref(), Some(&b"code"[..]));
        cache.put(&key, b"");
        assert_eq!(cache.get(&key).as_deref(), Some(&b""[..]));
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn every_damage_is_a_miss() {
        let folder = Folder::new("damage");
        let cache = DiskCache::new(folder.0.clone(), 1 << 20);
        let key = ContentKey::of(&[b"kernel"]);
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
        fs::write(cache.path(&ContentKey::of(&[b"other"])), &whole).unwrap();
        assert_eq!(cache.get(&ContentKey::of(&[b"other"])), None, "under another name");
        cache.put(&key, b"some machine code");
        assert!(cache.get(&key).is_some());
    }

    #[test]
    fn stays_below_its_limit_and_keeps_what_was_used() {
        let folder = Folder::new("limit");
        let cache = DiskCache::new(folder.0.clone(), 10_000);
        let key = |i: u32| ContentKey::of(&[&i.to_le_bytes()]);
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
    fn a_folder_that_cannot_be_is_a_miss() {
        let cache = DiskCache::new(PathBuf::from("/proc/no/such/folder"), 1);
        cache.put(&ContentKey::of(&[]), b"x");
        assert_eq!(cache.get(&ContentKey::of(&[])), None);
    }
}
