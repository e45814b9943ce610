//! The corpus: a folder with the seeds of failing cases, a file for each kernel.
//!
//! The form is that of proptest's `proptest-regressions`: lines `cc SEED # description`. The seeds
//! run before all other cases.

use crate::util::collect::CollectVec as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The file with the seeds of a kernel.
pub(super) struct Corpus(Option<PathBuf>);

const HEAD: &str = "\
# Seeds of failing cases of properties of cutlet. Each test runs them before its other cases.\n\
# Keep this file under version control.\n";

impl Corpus {
    /// Returns the corpus of a kernel in a folder; `None`: no corpus.
    pub fn new(folder: Option<&Path>, kernel: &str) -> Corpus {
        Corpus(folder.map(|folder| folder.join(format!("{kernel}.txt"))))
    }

    /// Returns the folder of the package whose test runs.
    pub fn default_folder() -> Option<PathBuf> {
        Some(PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?).join("cutlet-regressions"))
    }

    /// Returns the seeds.
    pub fn seeds(&self) -> Vec<u64> {
        let text = self.0.as_ref().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        text.lines().filter_map(seed_of).collect_vec()
    }

    /// Adds a seed. A folder that cannot be written is no error: the report has the seed.
    pub fn add(&self, seed: u64, description: &str) {
        let Some(file) = &self.0 else { return };
        if self.seeds().contains(&seed) {
            return;
        }
        let mut text = fs::read_to_string(file).unwrap_or_else(|_| HEAD.to_owned());
        text += &format!("cc {seed:#018x} # {}\n", description.replace('\n', " "));
        if let Some(folder) = file.parent() {
            let _ = fs::create_dir_all(folder);
        }
        let _ = fs::write(file, text);
    }
}

fn seed_of(line: &str) -> Option<u64> {
    let seed = line.strip_prefix("cc ")?.split_whitespace().next()?;
    u64::from_str_radix(seed.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_kept_once() {
        let folder = std::env::temp_dir().join(format!("cutlet-corpus-{}", std::process::id()));
        let corpus = Corpus::new(Some(&folder), "kernel");
        assert!(corpus.seeds().is_empty());
        for seed in [7, u64::MAX, 7] {
            corpus.add(seed, "n = 1");
        }
        assert_eq!(corpus.seeds(), [7, u64::MAX]);
        Corpus::new(None, "kernel").add(1, "");
        fs::remove_dir_all(folder).unwrap();
    }
}
