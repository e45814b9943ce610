//! What was compiled, written to files for people: `CUTLET_DUMP=<folder>`, `CUTLET_DUMP_FILTER=<names>`.

use std::path::PathBuf;

use crate::cache::disk::ContentKey;
use crate::error::{Error, Result};
use crate::ir::{Module, PrintOptions};

/// The files of one kernel: `NAME.ir`, `NAME.layout`, `NAME.schedule`, `NAME.svg`, `NAME.ptx`, `NAME.cubin`, `NAME.log`.
///
/// NAME is the kernel's name and eight digits of a hash of its module, so that specialisations of one
/// kernel do not overwrite each other.
pub(super) struct Dump {
    stem: Option<PathBuf>,
}

impl Dump {
    /// The dump that the environment asks for; without a wish nothing is written, nor printed for it.
    pub fn from_env(kernel: &str, module: &Module, salt: &str) -> Dump {
        let folder = std::env::var_os("CUTLET_DUMP").filter(|folder| !folder.is_empty());
        let folder = folder.filter(|_| match std::env::var("CUTLET_DUMP_FILTER") {
            Ok(names) if !names.is_empty() => names.split(',').any(|name| is_like(kernel, name.trim())),
            _ => true,
        });
        let hash = || ContentKey::of(&[text(module).as_bytes(), salt.as_bytes()]).hex();
        Dump { stem: folder.map(|folder| PathBuf::from(folder).join(format!("{kernel}-{}", &hash()[..8]))) }
    }

    /// Does anybody want the files?
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
        let path = stem.with_extension(extension);
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        folder.and_then(|()| std::fs::write(&path, content)).map_err(|source| {
            let path = path.display().to_string();
            Error::Io { path, source }
        })
    }
}

fn text(module: &Module) -> String {
    module.to_text(PrintOptions::default())
}

/// Is the name of this form, in which `*` stands for any text?
fn is_like(name: &str, form: &str) -> bool {
    match form.split_once('*') {
        None => name == form,
        Some((start, rest)) => name
            .strip_prefix(start)
            .is_some_and(|name| (0..=name.len()).any(|at| name.is_char_boundary(at) && is_like(&name[at..], rest))),
    }
}

#[cfg(test)]
mod tests {
    use super::is_like;

    #[test]
    fn stars_stand_for_any_text() {
        for form in ["scale_bits", "*", "scale*", "*bits", "s*_*s", "scale_bits*", "*scale_bits", "*ale*"] {
            assert!(is_like("scale_bits", form), "{form}");
        }
        for form in ["", "scale", "bits", "scale_bit", "s*_*t", "*x*", "scale_bits?"] {
            assert!(!is_like("scale_bits", form), "{form}");
        }
    }
}
