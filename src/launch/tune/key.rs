//! Key of the result of a search.

use crate::util::collect::CollectVec as _;
use std::fmt::Debug;

use crate::backend::ptx::OptimizationSet;
use crate::cache::disk::ContentHash;
use crate::error::Result;
use crate::launch::compile::ptx::optimizations_from_env;
use crate::launch::options::{CompileRequest, Launch};
use crate::runtime::{Backend, Device};

/// Key of the result of a search. If any part differs, the search is repeated.
///
/// ```
/// let key = cutlet::tune::TuneKey::of(cutlet::Device::cpu(), "scale 10000", "", &[64, 128])?;
/// assert_eq!((key.name.as_str(), key.backend.as_str(), key.device.as_str()), ("scale 10000", "cpu", "cpu"));
/// # Ok::<(), cutlet::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TuneKey {
    /// Name of the search: the kernel, and further inputs of the result, such as extents.
    pub name: String,
    /// Name of the device.
    pub device: String,
    /// Back end that generates the code, and whether the code has checks.
    pub backend: String,
    /// Target of the code.
    pub target: String,
    /// Identity of the driver.
    pub driver: String,
    /// Version of this crate.
    pub version: String,
    /// Hash of the trace of the first configuration's kernels, with the forms of their arguments
    /// and their hints; empty if the kernels are unknown.
    pub kernel: String,
    /// Hash of all configurations.
    pub space: String,
}

impl TuneKey {
    /// Returns the key on a device. `kernel`: hash of the kernels, or empty; `configurations`: all
    /// that are tried.
    ///
    /// ```
    /// let key = cutlet::tune::TuneKey::of(cutlet::Device::cpu(), "scale", "", &[64, 128])?;
    /// assert_eq!((key.name.as_str(), key.backend.as_str()), ("scale", "cpu"));
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Driver`] if the driver of a GPU reports an error.
    pub fn of<C: Debug>(device: Device, name: &str, kernel: &str, configurations: &[C]) -> Result<TuneKey> {
        let words = |text: String| text.split_whitespace().collect_vec().join(" ");
        let texts: Vec<String> = configurations.iter().map(text_of).collect_vec();
        let request = Launch::new(1).request(device)?;
        Ok(TuneKey {
            name: name.to_owned(),
            device: words(device.name().to_owned()),
            backend: made_by(request)?,
            target: device.target().map_or_else(String::new, |target| target.to_string()),
            driver: device.as_gpu().map(|gpu| gpu.driver_identity()).transpose()?.map(words).unwrap_or_default(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: kernel.to_owned(),
            space: hash(&texts),
        })
    }

    /// Returns the parts with their names, in the order of a record.
    pub(super) fn parts(&self) -> [(&'static str, &str); 8] {
        let TuneKey { name, device, backend, target, driver, version, kernel, space } = self;
        [
            ("name", name),
            ("device", device),
            ("backend", backend),
            ("target", target),
            ("driver", driver),
            ("version", version),
            ("kernel", kernel),
            ("space", space),
        ]
    }

    pub(super) fn part_mut(&mut self, name: &str) -> Option<&mut String> {
        Some(match name {
            "name" => &mut self.name,
            "device" => &mut self.device,
            "backend" => &mut self.backend,
            "target" => &mut self.target,
            "driver" => &mut self.driver,
            "version" => &mut self.version,
            "kernel" => &mut self.kernel,
            "space" => &mut self.space,
            _ => return None,
        })
    }
}

/// Returns the back end of the code of a launch without hints. Code with checks has other times,
/// and so has code without some optimizations.
fn made_by(request: CompileRequest) -> Result<String> {
    // Hints and dependent launches are in the hash of the kernels.
    let CompileRequest { backend, checks, recorded, exact, hints: _, programmatic_launch: _ } = request;
    let mut text = backend.to_string();
    if checks {
        text += " with checks";
    }
    if recorded.any() {
        text += &format!(" of {recorded:?}");
    }
    if exact {
        text += " in exact mode";
    }
    if backend == Backend::Ptx {
        let enabled = optimizations_from_env()?;
        if enabled != OptimizationSet::ALL {
            text += &format!(", {enabled:?}");
        }
    }
    Ok(text)
}

/// Returns the text of a configuration on one line.
pub(super) fn text_of<C: Debug>(configuration: &C) -> String {
    format!("{configuration:?}")
}

/// Returns a hash of texts, of 32 hexadecimal digits.
pub(super) fn hash(texts: &[String]) -> String {
    let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect_vec();
    ContentHash::new(&texts).hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Hints;
    use crate::launch::checks::Recorded;
    use crate::runtime::Backend;

    #[test]
    fn each_part_of_a_key_is_read_again() {
        let mut key = TuneKey::default();
        let names = key.parts().map(|(name, _)| name);
        for name in names {
            name.clone_into(key.part_mut(name).expect("a part with this name"));
        }
        assert!(key.parts().iter().all(|(name, value)| name == value), "{key:?}");
    }

    #[test]
    fn code_with_checks_has_its_own_results() {
        let request = |checks, races, exact| CompileRequest {
            hints: Hints::new(),
            backend: Backend::Ptx,
            programmatic_launch: false,
            checks,
            recorded: Recorded { races, ..Recorded::NONE },
            exact,
        };
        let modes = [(false, false, false), (true, false, false), (true, true, false), (false, false, true)];
        let made = modes.map(|(checks, races, exact)| made_by(request(checks, races, exact)).unwrap());
        assert_eq!(made[0], "ptx");
        assert!((1..4).all(|at| !made[..at].contains(&made[at])), "{made:?}");
    }
}
