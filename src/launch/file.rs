//! Files that several threads and processes replace: atomic replacement, changes under a lock, file
//! names for kernels.
//!
//! ```text
//! replace: lock; write the part file; rename the part file
//! update:  lock; read; change; write the part file; read again: other text repeats the change; rename
//! ```
//!
//! The lock is on the file `NAME.lock` in the same folder, which its holder removes. On a file
//! system without locks, only the second read detects conflicts: a change between that read and the
//! rename is lost.
//!
//! A symbolic link is kept, and its target is replaced. An existing file keeps its mode, and its
//! owner if the system permits. Hard links are separated.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache::disk::ContentHash;
use crate::error::{Error, Result};

/// Limit of symbolic links in one path. Linux follows 40.
const MAX_LINKS: usize = 40;

/// Limit of attempts at a lock or a change. An attempt fails only if another process was faster.
const MAX_TRIES: usize = 10_000;

/// Limit of characters of a kernel's name in a file name, which has at most 255 bytes on most file
/// systems.
const MAX_NAME_CHARS: usize = 128;

/// Returns the name of a kernel as part of a file name. Characters other than letters, digits, `_`,
/// `$`, `-` and `.` are replaced by `_`, and so is a leading dot.
pub(super) fn name_for_file(kernel: &str) -> String {
    let keeps = |c: char| c.is_ascii_alphanumeric() || "_$-.".contains(c);
    let mut name: String = kernel.chars().take(MAX_NAME_CHARS).map(|c| if keeps(c) { c } else { '_' }).collect();
    if name.starts_with('.') {
        name.replace_range(..1, "_");
    }
    name
}

/// Replaces the content of a file, or creates the file and its folders.
///
/// # Errors
/// [`Error::Io`] if the file cannot be written.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let failed = |source| Error::Io { path: path.display().to_string(), source };
    let target = Target::new(path).map_err(failed)?;
    let lock = target.lock();
    target.write(content, lock.is_some(), || Ok(true)).map(drop).map_err(failed)
}

/// Changes the text of a file. `change` gets the present text (`None` without a file) and returns
/// the new one. If another process replaces the file before the rename, `change` is called again
/// with the new text.
///
/// # Errors
/// [`Error::Io`]; the error of `change`.
pub(super) fn update(path: &Path, mut change: impl FnMut(Option<&str>) -> Result<String>) -> Result<()> {
    let failed = |source| Error::Io { path: path.display().to_string(), source };
    let target = Target::new(path).map_err(failed)?;
    let lock = target.lock();
    let mut old = target.read().map_err(failed)?;
    for _ in 0..MAX_TRIES {
        let new = change(old.as_deref())?;
        let mut now = None;
        let is_same = || {
            now = target.read()?;
            Ok(now == old)
        };
        if target.write(new.as_bytes(), lock.is_some(), is_same).map_err(failed)? {
            return Ok(());
        }
        old = now;
    }
    Err(failed(io::Error::new(ErrorKind::ResourceBusy, "other processes modify the file continuously")))
}

/// File at the end of a chain of symbolic links.
struct Target {
    path: PathBuf,
    folder: PathBuf,
    /// Metadata of the file, if it exists.
    data: Option<Metadata>,
}

impl Target {
    fn new(path: &Path) -> io::Result<Target> {
        let mut path = path.to_owned();
        let mut links = 0;
        // Not `canonicalize`: the target of a link may be missing.
        while let Ok(next) = fs::read_link(&path) {
            path = folder_of(&path).join(next);
            links += 1;
            if links > MAX_LINKS {
                return Err(io::Error::other("too many symbolic links"));
            }
        }
        let folder = folder_of(&path).to_owned();
        fs::create_dir_all(&folder)?;
        let data = fs::metadata(&path).ok();
        Ok(Target { path, folder, data })
    }

    fn lock(&self) -> Option<Lock> {
        if self.is_file() { Lock::open(&self.path) } else { None }
    }

    /// Returns false for a device, a pipe or a folder.
    fn is_file(&self) -> bool {
        self.data.as_ref().is_none_or(Metadata::is_file)
    }

    fn read(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(&self.path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the part file and renames it if `is_current` returns true immediately before. Returns
    /// the result of `is_current`.
    fn write(&self, content: &[u8], locked: bool, is_current: impl FnOnce() -> io::Result<bool>) -> io::Result<bool> {
        let in_place = || fs::write(&self.path, content).map(|()| true);
        if !self.is_file() {
            return in_place();
        }
        let part = self.part(locked);
        let written = self.write_part(&part, content).and_then(|()| {
            let current = is_current()?;
            if current {
                fs::rename(&part, &self.path)?;
            }
            Ok(current)
        });
        if !matches!(written, Ok(true)) {
            let _ = fs::remove_file(&part);
        }
        match written {
            // A folder that permits no new file, or a file that is a mount point.
            Err(error)
                if self.data.is_some()
                    && matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ResourceBusy) =>
            {
                in_place().map_err(|_| error)
            }
            other => other,
        }
    }

    /// Returns the path of the part file. With the lock it depends on the file only, so that the
    /// next writer replaces the part file of a killed one.
    fn part(&self, locked: bool) -> PathBuf {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = self.path.file_name().unwrap_or_default();
        let mut own = format!(".cutlet-{}", &ContentHash::new(&[name.as_encoded_bytes()]).hex()[..16]);
        if !locked {
            own.push_str(&format!("-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
        }
        self.folder.join(own + ".part")
    }

    fn write_part(&self, part: &Path, content: &[u8]) -> io::Result<()> {
        // Removes the part file of a killed writer; `create_new` opens neither a file nor a link.
        let _ = fs::remove_file(part);
        let mut file = OpenOptions::new().write(true).create_new(true).open(part)?;
        if let Some(data) = &self.data {
            system::keep_owner(&file, data);
            file.set_permissions(data.permissions())?;
        }
        file.write_all(content)
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Exclusive right to replace a file, among the users of this struct in all processes.
struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Waits for the lock of a file. Returns `None` if the file system has no locks, or the folder
    /// permits no new file.
    fn open(path: &Path) -> Option<Lock> {
        let mut name = OsString::from(path);
        name.push(".lock");
        let path = PathBuf::from(name);
        for _ in 0..MAX_TRIES {
            let file = match OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path) {
                // The lock file of another user may be read-only.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => File::open(&path),
                other => other,
            };
            let file = file.ok()?;
            match file.lock() {
                // The previous holder may have removed the file: the next process then locks
                // another one.
                Ok(()) if system::is_at(&file, &path) => return Some(Lock { file, path }),
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    if error.kind() == ErrorKind::Unsupported {
                        let _ = fs::remove_file(&path);
                    }
                    return None;
                }
            }
        }
        None
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if system::CAN_REMOVE {
            let _ = fs::remove_file(&self.path);
        }
        // A child process that was forked in the meantime holds the file, too: closing it here does
        // not unlock it.
        let _ = self.file.unlock();
    }
}

#[cfg(unix)]
mod system {
    use std::fs::{File, Metadata, metadata};
    use std::os::unix::fs::{MetadataExt, fchown};
    use std::path::Path;

    /// The holder may remove its lock file, because [`is_at`] detects the removal.
    pub(super) const CAN_REMOVE: bool = true;

    /// Returns true if this is the file at a path now.
    pub(super) fn is_at(file: &File, path: &Path) -> bool {
        let identity = |data: Metadata| (data.dev(), data.ino());
        match (file.metadata(), metadata(path)) {
            (Ok(own), Ok(named)) => identity(own) == identity(named),
            _ => false,
        }
    }

    /// Sets the owner and the group of a file to those of another one, as far as the system
    /// permits.
    pub(super) fn keep_owner(file: &File, other: &Metadata) {
        let Ok(own) = file.metadata() else { return };
        if own.gid() != other.gid() {
            let _ = fchown(file, None, Some(other.gid()));
        }
        if own.uid() != other.uid() {
            let _ = fchown(file, Some(other.uid()), None);
        }
    }
}

#[cfg(not(unix))]
mod system {
    use std::fs::{File, Metadata};
    use std::path::Path;

    /// The standard library has no identity of a file for this system.
    pub(super) const CAN_REMOVE: bool = false;

    pub(super) fn is_at(_file: &File, _path: &Path) -> bool {
        true
    }

    pub(super) fn keep_owner(_file: &File, _other: &Metadata) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::temp_dir::TemporaryFolder;

    /// Adds a line to a text.
    fn add(path: &Path, line: &str) {
        update(path, |text| Ok(format!("{}{line}\n", text.unwrap_or_default()))).expect("a change");
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("the folder").flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Environment variable of the child processes of the test below: the path of the file.
    const CHILD: &str = "CUTLET_TEST_FILE_CHILD";

    #[test]
    fn changes_of_threads_and_processes_are_all_there() {
        const LINES: usize = 50;
        let write = |path: &Path, name: &str| (0..LINES).for_each(|i| add(path, &format!("{name} {i}")));
        if let Some(path) = std::env::var_os(CHILD) {
            write(Path::new(&path), &std::process::id().to_string());
            return;
        }
        let folder = TemporaryFolder::new().expect("a folder");
        let path = folder.path().join("shared");
        let child = || {
            let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
            command.args(["changes_of_threads_and_processes_are_all_there", "--test-threads=1"]).env(CHILD, &path);
            command.stdout(std::process::Stdio::null()).spawn().expect("a process")
        };
        let mut children = [child(), child(), child()];
        std::thread::scope(|scope| {
            for thread in ["a", "b", "c"] {
                let path = &path;
                scope.spawn(move || write(path, thread));
            }
        });
        assert!(children.iter_mut().all(|child| child.wait().expect("its end").success()));
        let text = fs::read_to_string(&path).expect("the file");
        let lines: std::collections::BTreeSet<&str> = text.lines().collect();
        assert_eq!((text.lines().count(), lines.len()), (6 * LINES, 6 * LINES));
        assert_eq!(names(folder.path()), ["shared"], "neither locks nor parts are left");
    }

    /// The lock file cannot be created, as on a file system without locks.
    #[test]
    fn a_change_meanwhile_is_kept_without_locks() {
        let folder = TemporaryFolder::new().expect("a folder");
        let path = folder.path().join("shared");
        fs::create_dir(folder.path().join("shared.lock")).expect("no lock file");
        add(&path, "first");
        let mut calls = 0;
        let changed = update(&path, |text| {
            calls += 1;
            if calls == 1 {
                add(&path, "of another process");
            }
            Ok(format!("{}last\n", text.unwrap_or_default()))
        });
        changed.expect("a change");
        assert_eq!((calls, fs::read_to_string(&path).expect("it").as_str()), (2, "first\nof another process\nlast\n"));
        assert_eq!(names(folder.path()), ["shared", "shared.lock"]);
    }

    #[test]
    fn files_of_a_killed_writer_are_removed() {
        let folder = TemporaryFolder::new().expect("a folder");
        let path = folder.path().join("text");
        let part = Target::new(&path).expect("a target").part(true);
        fs::write(&part, "half").expect("a part");
        fs::write(folder.path().join("text.lock"), "").expect("a lock");
        add(&path, "line");
        assert_eq!(names(folder.path()), ["text"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_modes_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = TemporaryFolder::new().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
        fs::create_dir(at("other")).expect("a folder");
        fs::write(at("other/target"), "").expect("a file");
        fs::set_permissions(at("other/target"), fs::Permissions::from_mode(0o640)).expect("its mode");
        // A link to a link, relative to their folder; and a link to a missing file.
        symlink("middle", at("link")).expect("a link");
        symlink("other/target", at("middle")).expect("a link");
        symlink("missing/new", at("early")).expect("a link");
        for (link, target) in [("link", "other/target"), ("early", "missing/new")] {
            add(&at(link), "line");
            assert_eq!(fs::read_to_string(at(target)).expect("the target"), "line\n");
            replace(&at(link), b"all").expect("a replacement");
            assert!(fs::symlink_metadata(at(link)).expect("a link").is_symlink(), "{link}");
            assert_eq!(fs::read_to_string(at(target)).expect("the target"), "all");
        }
        assert!(fs::symlink_metadata(at("middle")).expect("a link").is_symlink());
        assert_eq!(mode(&at("other/target")), 0o640);
        symlink("circle", at("circle")).expect("a link");
        assert!(replace(&at("circle"), b"").expect_err("a circle").to_string().contains("too many symbolic links"));
        // A device is written in place, without a part file.
        replace(Path::new("/dev/null"), b"all").expect("a device");
        assert!(!Path::new("/dev/null").metadata().expect("it").is_file());
    }

    #[test]
    fn names_of_kernels_stay_in_their_folder() {
        for (kernel, name) in
            [("scale", "scale"), ("../up", "_._up"), ("/etc/x", "_etc_x"), ("a.b$c", "a.b$c"), ("\u{1}\0ä", "___")]
        {
            assert_eq!(name_for_file(kernel), name);
        }
        assert_eq!(name_for_file(&"x".repeat(1000)).len(), MAX_NAME_CHARS);
    }
}
