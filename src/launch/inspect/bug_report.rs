//! Files for a bug report, in a folder: `CUTLET_REPORT=<folder>`.
//!
//! Code that an assembler rejects, and a pass that makes a kernel ill-formed, are defects of this
//! crate. If the variable is set, each writes the trace of its kernel, its PTX if it can be
//! generated, the message, and the output of `doctor`.

use std::path::{Path, PathBuf};

use super::doctor::doctor;
use crate::cache::disk::ContentHash;
use crate::error::{Error, Result};
use crate::ir::{Module, PrintOptions};
use crate::launch::compile::ptx::{TensorMapUse, generate};
use crate::launch::file::name_for_file;
use crate::launch::options::CompileRequest;
use crate::runtime::Device;

/// Returns the folder of reports, if the variable is set.
pub(crate) fn folder() -> Option<PathBuf> {
    std::env::var_os("CUTLET_REPORT").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// Input of a compilation.
pub(crate) struct Case<'a> {
    pub kernel: &'a str,
    /// Trace of the kernel before the passes.
    pub trace: &'a Module,
    pub device: Device,
    pub request: CompileRequest,
}

impl Case<'_> {
    /// Writes a report if the error is a defect of this crate; returns the error with the path of
    /// the report. `optimize`: the passes.
    pub fn reported(
        &self,
        folder: &Path,
        error: Error,
        optimize: impl FnOnce(&str, Module) -> Result<Module>,
    ) -> Error {
        let Error::Compile { kernel, stage, mut log } = error else { return error };
        let text = self.trace.to_text(PrintOptions::default());
        let hash =
            ContentHash::new(&[text.as_bytes(), format!("{:?} {:?}", self.device, self.request).as_bytes()]).hex();
        let own = folder.join(format!("{}-{}", name_for_file(self.kernel), &hash[..8]));
        let summary = format!(
            "kernel {} for {:?}, {:?}\n{stage} refused the generated code:\n{log}\n\n{}\n",
            self.kernel,
            self.device,
            self.request,
            doctor()
        );
        let ptx = self.device.target().and_then(|target| {
            let module = optimize(self.kernel, self.trace.clone()).ok()?;
            Some(generate(&module, target, self.request.hints, TensorMapUse::Allowed).ok()?.text)
        });
        let files = [("report.txt", Some(summary)), ("trace.ir", Some(text)), ("kernel.ptx", ptx)];
        let written = std::fs::create_dir_all(&own).and_then(|()| {
            let mut files = files.iter().filter_map(|(name, text)| Some((name, text.as_ref()?)));
            files.try_for_each(|(name, text)| std::fs::write(own.join(name), text))
        });
        log.push_str(&match written {
            Ok(()) => format!("\nwhat a report needs is in {}", own.display()),
            Err(problem) => format!("\nno report could be written to {}: {problem}", own.display()),
        });
        Error::Compile { kernel, stage, log }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Hints;
    use crate::kernel::{Arguments, trace_kernel};
    use crate::launch::checks::Recorded;
    use crate::runtime::Backend;
    use crate::tile::ArrayMut;

    #[test]
    fn a_defect_leaves_the_files_of_its_report() -> Result<()> {
        let x = crate::ArraySpec::<f32, 1>::new([64]).mutable();
        let kernel = |x: ArrayMut<f32, 1>| x.store(0, crate::ones([64]));
        let trace = trace_kernel("fill", &kernel, &Arguments::new((x,)))?;
        let request = CompileRequest {
            hints: Hints::default(),
            backend: Backend::Cpu,
            programmatic_launch: false,
            checks: false,
            exact: false,
            recorded: Recorded::NONE,
        };
        let case = Case { kernel: "fill", trace: &trace, device: Device::cpu(), request };
        let folder = crate::util::temp_dir::TemporaryFolder::new().expect("a folder");
        let defect = |log: &str| Error::Compile { kernel: "fill".into(), stage: "ptxas", log: log.into() };
        let report = |folder: &Path, error| case.reported(folder, error, |_, module| Ok(module)).to_string();

        let text = report(folder.path(), defect("line 7: no such register"));
        assert!(text.contains("line 7") && text.contains("what a report needs is in "), "{text}");
        let own = std::fs::read_dir(folder.path()).expect("it").next().expect("a report").expect("it").path();
        let file = |name| std::fs::read_to_string(own.join(name)).unwrap_or_default();
        assert!(file("trace.ir").contains("store_view_tko") && !own.join("kernel.ptx").exists());
        for part in ["kernel fill", "no such register", "driver  ", env!("CARGO_PKG_VERSION")] {
            assert!(file("report.txt").contains(part), "{part} in {}", file("report.txt"));
        }
        // The same defect has the same folder. Other errors have no report. A folder that cannot be
        // created is reported.
        report(folder.path(), defect("line 8"));
        assert_eq!(std::fs::read_dir(folder.path()).expect("it").count(), 1);
        assert!(file("report.txt").contains("line 8"));
        let other = report(folder.path(), Error::NoDevice("none".into()));
        assert_eq!(other, "none");
        assert!(report(&own.join("report.txt"), defect("")).contains("no report could be written"));
        Ok(())
    }
}
