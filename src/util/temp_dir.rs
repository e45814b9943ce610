//! Temporary folders. This file is independent of the rest of the crate.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use std::{env, fs, io, process};

/// A new folder that only the user can read. The drop removes it with its contents.
#[derive(Debug)]
pub struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    /// Creates a folder in the temporary directory of the system.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn new() -> io::Result<TemporaryFolder> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        const TRIES: usize = 100;
        let mut answer = io::Error::other("no name is free");
        for _ in 0..TRIES {
            let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().subsec_nanos();
            let name = format!("cutlet-{}-{time:x}-{}", process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let path = env::temp_dir().join(name);
            // Fails if the name exists, for any owner.
            match builder().create(&path) {
                Ok(()) => return Ok(TemporaryFolder(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => answer = error,
                Err(error) => return Err(error),
            }
        }
        Err(answer)
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

#[cfg(unix)]
fn builder() -> fs::DirBuilder {
    let mut builder = fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

#[cfg(not(unix))]
fn builder() -> fs::DirBuilder {
    fs::DirBuilder::new()
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // Files that cannot be removed remain.
        let _ = fs::remove_dir_all(&self.0);
    }
}
