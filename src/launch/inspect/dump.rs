//! Output of compilation stages to files: `CUTLET_DUMP=<folder>`, `CUTLET_DUMP_FILTER=<names>`.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::cache::disk::ContentHash;
use crate::error::{Error, Result};
use crate::ir::{Module, PrintOptions};
use crate::launch::file::name_for_file;

/// Files of one kernel: `NAME.ir`, `NAME.layout`, `NAME.schedule`, `NAME.svg`, `NAME.ptx`,
/// `NAME.cubin`, `NAME.log`, and `NAME.spills` for a kernel with values in local memory.
///
/// NAME is the kernel's name and eight digits of a hash of its module, so that specializations of
/// one kernel do not overwrite each other.
pub(crate) struct Dump {
    stem: Option<PathBuf>,
    /// The environment variable that selects the folder.
    variable: &'static str,
}

impl Dump {
    /// Returns the dump that the environment selects. If `CUTLET_DUMP` is not set, nothing is
    /// printed or written.
    pub fn from_env(kernel: &str, module: &Module, salt: &str) -> Dump {
        let folder = std::env::var_os("CUTLET_DUMP").filter(|folder| !folder.is_empty());
        let folder = folder.filter(|_| match std::env::var("CUTLET_DUMP_FILTER") {
            Ok(names) if !names.is_empty() => names.split(',').any(|name| is_like(kernel, name.trim())),
            _ => true,
        });
        Dump::to(folder, "CUTLET_DUMP", kernel, module, salt)
    }

    /// Returns the dump of a kernel in a folder, which an environment variable selects.
    pub fn to(folder: Option<OsString>, variable: &'static str, kernel: &str, module: &Module, salt: &str) -> Dump {
        let hash = || ContentHash::new(&[text(module).as_bytes(), salt.as_bytes()]).hex();
        let stem = |folder| PathBuf::from(folder).join(format!("{}-{}", name_for_file(kernel), &hash()[..8]));
        Dump { stem: folder.map(stem), variable }
    }

    /// Returns true if files are written.
    pub fn is_wanted(&self) -> bool {
        self.stem.is_some()
    }

    /// Writes the module.
    pub fn write_module(&self, module: &Module) -> Result<()> {
        if self.stem.is_none() { Ok(()) } else { self.write("ir", text(module).as_bytes()) }
    }

    /// Writes one file.
    pub fn write(&self, extension: &str, content: &[u8]) -> Result<()> {
        let Some(stem) = &self.stem else { return Ok(()) };
        // Not `with_extension`: a dot in the name of a kernel begins no extension.
        let mut path = stem.clone().into_os_string();
        path.push(format!(".{extension}"));
        let path = PathBuf::from(path);
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        folder.and_then(|()| std::fs::write(&path, content)).map_err(|source| {
            let path = format!("{} ({})", path.display(), self.variable);
            Error::Io { path, source }
        })
    }
}

fn text(module: &Module) -> String {
    module.to_text(PrintOptions::default())
}

/// Returns true if a name matches a pattern, in which `*` matches any text.
///
/// Two pointers, as in `fnmatch` of the BSD C library: after a mismatch the last star matches one
/// more byte. Earlier stars keep their text, so the time is at most the product of the two lengths.
fn is_like(name: &str, form: &str) -> bool {
    let (name, form) = (name.as_bytes(), form.as_bytes());
    let (mut at, mut in_form) = (0, 0);
    // Position after the last star in the pattern, and the end of the text that the star matches.
    let mut star = None;
    while at < name.len() {
        match form.get(in_form) {
            Some(b'*') => {
                in_form += 1;
                star = Some((in_form, at));
            }
            Some(byte) if *byte == name[at] => (at, in_form) = (at + 1, in_form + 1),
            _ => {
                let Some((after, end)) = &mut star else { return false };
                *end += 1;
                (at, in_form) = (*end, *after);
            }
        }
    }
    form[in_form..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::util::temp_dir::TemporaryFolder;

    #[test]
    fn stars_match_any_text() {
        for form in
            ["scale_bits", "*", "scale*", "*bits", "s*_*s", "scale_bits*", "*scale_bits", "*ale*", "**s***s**", "*s*s"]
        {
            assert!(is_like("scale_bits", form), "{form}");
        }
        for form in ["", "scale", "bits", "scale_bit", "s*_*t", "*x*", "scale_bits?", "*s*s*s", "*bits_"] {
            assert!(!is_like("scale_bits", form), "{form}");
        }
        assert!(is_like("größe", "gr*ße") && is_like("größe", "*ö*") && !is_like("größe", "gr?ße"));
        assert!(is_like("", "") && is_like("", "**") && !is_like("", "a"));
    }

    #[test]
    fn many_stars_are_matched_fast() {
        let start = std::time::Instant::now();
        assert!(!is_like(&"a".repeat(2000), &("*a".repeat(1000) + "*b")));
        assert!(is_like(&"a".repeat(2000), &"*a".repeat(2000)));
        assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
    }

    #[test]
    fn files_stay_in_their_folder() -> Result<()> {
        let folder = TemporaryFolder::new().expect("a folder");
        let module = Module::new();
        let mut names = Vec::new();
        for kernel in ["../escape", "a.b", "/tmp/x"] {
            let dump = Dump::to(Some(folder.path().join("own").into()), "CUTLET_DUMP", kernel, &module, "");
            dump.write_module(&module)?;
            dump.write("ptx", b"text")?;
            names.push(name_for_file(kernel));
        }
        let own: Vec<String> = std::fs::read_dir(folder.path().join("own"))
            .expect("the folder")
            .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
            .collect();
        assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 1);
        assert_eq!(own.len(), 6, "{own:?}");
        for name in names {
            let is_own = |file: &&String| file.strip_prefix(&format!("{name}-")).is_some_and(|hash| hash.len() > 8);
            assert_eq!(own.iter().filter(is_own).count(), 2, "{name}: {own:?}");
        }
        Ok(())
    }
}
