//! What was compiled, written to files for people: `CUTLET_DUMP=<folder>`.

use std::path::PathBuf;

use crate::cache::disk::ContentKey;
use crate::error::{Error, Result};

/// The files of one kernel: `NAME.ir`, `NAME.layout`, `NAME.ptx`, `NAME.cubin`, `NAME.log`.
///
/// NAME is the kernel's name and eight digits of a hash of its module, so that specialisations of one
/// kernel do not overwrite each other.
pub(super) struct Dump {
    stem: Option<PathBuf>,
}

impl Dump {
    /// The dump that the environment asks for; without a wish nothing is written.
    pub fn from_env(kernel: &str, module: &str, salt: &str) -> Dump {
        let folder = std::env::var_os("CUTLET_DUMP").filter(|folder| !folder.is_empty());
        let hash = || ContentKey::of(&[module.as_bytes(), salt.as_bytes()]).hex();
        Dump { stem: folder.map(|folder| PathBuf::from(folder).join(format!("{kernel}-{}", &hash()[..8]))) }
    }

    /// Writes one file.
    pub fn write(&self, extension: &str, content: &[u8]) -> Result<()> {
        let Some(stem) = &self.stem else { return Ok(()) };
        let path = stem.with_extension(extension);
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        folder.and_then(|()| std::fs::write(&path, content)).map_err(|source| {
            let path = path.display().to_string();
            Error::Io { path, source }
        })
    }
}
