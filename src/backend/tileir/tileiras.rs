//! NVIDIA's assembler `tileiras`: search, execution as a child process with a time limit, and
//! conversion of its messages to places in the user's source. This crate starts no other process.

use crate::util::collect::CollectVec as _;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::backend::Assembly;
use crate::error::{Diagnostic, Error, Location, Result};
use crate::target::Target;
use crate::util::sort;
use crate::util::temp_dir::TemporaryFolder;

/// Environment variables that name CUDA toolkits.
const TOOLKITS: [&str; 3] = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"];

/// Environment variables that the assembler receives: the search path of its helper `ptxas`,
/// libraries, and the folder of temporary files. With the variables of [`TOOLKITS`] it would search
/// for its helpers in a wrong folder.
const PASSED: [&str; 5] = ["PATH", "LD_LIBRARY_PATH", "TMPDIR", "TEMP", "TMP"];

/// Result of a child process.
struct Exit {
    /// Success; `None` after the time limit.
    good: Option<bool>,
    /// Standard output and standard error.
    text: String,
}

/// An assembler on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assembler {
    path: PathBuf,
    /// Time limit per file.
    pub time_limit: Duration,
}

impl Assembler {
    /// Creates the assembler at this path, with a limit of two minutes per file.
    pub fn at(path: impl Into<PathBuf>) -> Assembler {
        Assembler { path: path.into(), time_limit: Duration::from_secs(120) }
    }

    /// Finds the assembler that `CUTLET_TILEIRAS` names. Without this variable: the first one in
    /// `PATH`, the folders of the CUDA toolkit, and the `nvidia` packages of the active Python
    /// environment.
    ///
    /// # Errors
    /// [`Error::NoDevice`] with all places that were searched.
    pub fn find() -> Result<Assembler> {
        if let Some(path) = std::env::var_os("CUTLET_TILEIRAS").filter(|p| !p.is_empty()) {
            return match PathBuf::from(&path) {
                path if path.is_file() => Ok(Assembler::at(path)),
                path => Err(Error::NoDevice(format!("CUTLET_TILEIRAS names {}, which is no file", path.display()))),
            };
        }
        find_program("tileiras").map(Assembler::at).ok_or_else(|| {
            let others: Vec<String> = toolkit_paths().iter().map(|path| path.display().to_string()).collect_vec();
            Error::NoDevice(format!(
                "the Tile IR assembler `tileiras` is not installed (CUTLET_TILEIRAS is not set; looked in the folders of \
                 PATH, {}): `pip install nvidia-cuda-tileiras nvidia-cuda-nvcc nvidia-nvvm`, or CUDA 13.1 or later",
                others.join(", ")
            ))
        })
    }

    /// Returns the path of the assembler.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the version text, which identifies the assembler.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot be started, [`Error::NoDevice`] if it prints no version.
    pub fn identity(&self) -> Result<String> {
        let folder = self.folder()?;
        let Exit { good, text } = self.run(&["--version".as_ref()], &folder.path().join("log"))?;
        match good {
            Some(true) => Ok(text),
            _ => Err(Error::NoDevice(format!("{} --version does not answer: {text}", self.path.display()))),
        }
    }

    fn folder(&self) -> Result<TemporaryFolder> {
        TemporaryFolder::new().map_err(|source| self.io(source))
    }

    /// Runs the assembler with these arguments. Its output is written to the file `log`, because a
    /// full pipe would block it.
    fn run(&self, arguments: &[&OsStr], log: &Path) -> Result<Exit> {
        let at = |source| Error::Io { path: log.display().to_string(), source };
        let (output, errors) = std::fs::File::create(log).and_then(|file| Ok((file.try_clone()?, file))).map_err(at)?;
        let mut command = Command::new(&self.path);
        command.env_clear().args(arguments).stdin(Stdio::null()).stdout(output).stderr(errors);
        command.envs(PASSED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        let good = command.spawn().and_then(|child| self.wait(child)).map_err(|source| self.io(source))?;
        let text = String::from_utf8_lossy(&std::fs::read(log).map_err(at)?).into_owned();
        Ok(Exit { good, text })
    }

    fn io(&self, source: std::io::Error) -> Error {
        Error::Io { path: self.path.display().to_string(), source }
    }

    /// Assembles bytecode to a cubin for a target.
    ///
    /// # Errors
    /// * [`Error::Unsupported`], with places in the user's source, if the target lacks a feature.
    /// * [`Error::Compile`] for other messages of the assembler, and after the time limit.
    /// * [`Error::Io`].
    pub fn assemble(&self, kernel: &str, bytecode: &[u8], target: Target) -> Result<Vec<u8>> {
        self.assemble_as(kernel, bytecode, target, Assembly::default())
    }

    /// [`Assembler::assemble`] with options.
    pub(crate) fn assemble_as(
        &self,
        kernel: &str,
        bytecode: &[u8],
        target: Target,
        assembly: Assembly,
    ) -> Result<Vec<u8>> {
        let folder = self.folder()?;
        let (input, output) = (folder.path().join("kernel.tilebc"), folder.path().join("kernel.cubin"));
        let at = |path: &Path| {
            let path = path.display().to_string();
            move |source| Error::Io { path, source }
        };
        std::fs::write(&input, bytecode).map_err(at(&input))?;
        let target = format!("--gpu-name=sm_{}", target.arch);
        let flags = flags(assembly);
        let mut arguments = vec![target.as_ref(), "-o".as_ref(), output.as_os_str(), input.as_os_str()];
        arguments.extend(flags.iter().map(OsStr::new));
        let Exit { good, text } = self.run(&arguments, &folder.path().join("log"))?;
        match good {
            Some(true) => std::fs::read(&output).map_err(at(&output)),
            Some(false) => Err(rejection(kernel, &text)),
            None => Err(Error::Compile {
                kernel: kernel.into(),
                stage: "tileiras",
                log: format!("not done after {} s, ended\n{text}", self.time_limit.as_secs()),
            }),
        }
    }

    /// Returns true if the child succeeded; `None` after the time limit.
    fn wait(&self, mut child: Child) -> std::io::Result<Option<bool>> {
        let start = Instant::now();
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status.success()));
            }
            let elapsed = start.elapsed();
            if elapsed >= self.time_limit {
                let descendants = descendants(child.id());
                child.kill()?;
                child.wait()?;
                kill(&descendants);
                return Ok(None);
            }
            // The wait after the end of the child is at most a sixteenth of its time.
            std::thread::sleep((elapsed / 16).clamp(Duration::from_millis(1), Duration::from_millis(50)));
        }
    }
}

/// Returns the numbers of the descendants of a process; none where the system has no `/proc`.
fn descendants(process: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let mut found = Vec::new();
    for child in lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect_vec()) {
        found.extend(child.parse().map(descendants).unwrap_or_default());
        found.push(child);
    }
    found
}

/// Ends processes: the assembler runs ptxas, which continues without it.
fn kill(processes: &[String]) {
    if !processes.is_empty() {
        // Without the command the processes end by themselves, later.
        let _ = Command::new("kill").arg("-KILL").args(processes).stderr(Stdio::null()).status();
    }
}

/// Returns the command-line arguments for assembly options.
fn flags(Assembly { lines, opt_level, device_debug, memcheck }: Assembly) -> Vec<String> {
    // The assembler has no code for a debugger at other levels.
    let level = if device_debug { Some(0) } else { opt_level };
    let level = level.map(|level| format!("--opt-level={level}"));
    // Code for a debugger contains lines in any case.
    let lines = (lines && !device_debug).then(|| "--lineinfo".to_owned());
    let debug = device_debug.then(|| "--device-debug".to_owned());
    let memcheck = memcheck.then(|| "--sanitize=memcheck".to_owned());
    [level, lines, debug, memcheck].into_iter().flatten().collect_vec()
}

/// Returns the first program of this name in the folders of the assembler.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    search_paths().iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Returns the folders that may contain the assembler, best first.
fn search_paths() -> Vec<PathBuf> {
    let mut paths = folders_of("PATH");
    paths.extend(toolkit_paths());
    paths
}

/// Returns the folders that an environment variable lists.
fn folders_of(name: &str) -> Vec<PathBuf> {
    let value = std::env::var_os(name).unwrap_or_default();
    std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect_vec()
}

/// Returns the searched folders outside of `PATH`: of CUDA toolkits and of Python environments.
fn toolkit_paths() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        TOOLKITS.iter().flat_map(|name| folders_of(name)).map(|toolkit| toolkit.join("bin")).collect_vec();
    paths.extend(["/usr/local/cuda/bin", "/opt/cuda/bin"].map(PathBuf::from));
    for environment in ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().flat_map(|name| folders_of(name)) {
        // lib/python3.X/site-packages/nvidia/cu13/bin
        let versions = std::fs::read_dir(environment.join("lib")).into_iter().flatten().flatten();
        let mut versions: Vec<PathBuf> = versions.map(|entry| entry.path()).collect_vec();
        versions.retain(|path| path.file_name().and_then(OsStr::to_str).is_some_and(|n| n.starts_with("python3")));
        sort::natural(&mut versions);
        paths.extend(versions.into_iter().map(|path| path.join("site-packages/nvidia/cu13/bin")));
    }
    paths
}

/// Converts the messages of the assembler to an error.
fn rejection(kernel: &str, output: &str) -> Error {
    const LACKS: &str = "Incompatibility with architecture";
    let diagnostics: Vec<Diagnostic> =
        output.lines().filter(|line| line.contains(LACKS)).filter_map(parse_diagnostic).collect_vec();
    if diagnostics.is_empty() {
        let places = output.lines().filter_map(parse_diagnostic).map(|c| c.to_string()).collect_vec();
        let log = match output.trim() {
            "" => "it ended without a message: an internal error".to_string(),
            output if places.is_empty() => output.to_string(),
            _ => places.join("\n"),
        };
        return Error::Compile { kernel: kernel.into(), stage: "tileiras", log };
    }
    Error::Unsupported(diagnostics)
}

/// Parses one line of the assembler: `...loc("file":line:column)...: error: message`.
fn parse_diagnostic(line: &str) -> Option<Diagnostic> {
    let (place, message) = line.split_once("error: ")?;
    Some(Diagnostic::new(message.trim(), location(place)))
}

fn location(text: &str) -> Option<Location> {
    let (_, rest) = text.split_once("loc(\"")?;
    let (file, rest) = rest.split_once("\":")?;
    let (line, rest) = rest.split_once(':')?;
    let column: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some(Location { file: file.to_string().into(), line: line.parse().ok()?, column: column.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostics_are_at_the_users_lines() {
        let text = "#cuda_tile.di_loc<loc(\"src/kernel.rs\":286:15) in #cuda_tile.di_subprogram<file = <\"kernel.rs\" in \
                    \"src\">, line = 285>>: error: Incompatibility with architecture 'sm_80': unsupported type 'f8E4M3FN'\n\
                    error: failed to compile Tile IR program\n";
        let Error::Unsupported(list) = rejection("k", text) else { panic!("a target that lacks a type") };
        let text = list[0].to_string();
        assert_eq!(
            text,
            "src/kernel.rs:286:15: Incompatibility with architecture 'sm_80': unsupported type 'f8E4M3FN'"
        );
        let other = rejection("k", "error: failed to compile Tile IR program\n").to_string();
        assert!(other.contains("tileiras") && other.contains("failed to compile"), "{other}");
        let silent = rejection("k", "\n").to_string();
        assert!(silent.contains("without a message"), "{silent}");
    }

    #[test]
    fn an_assembler_that_never_ends_is_stopped() {
        let folder = TemporaryFolder::new().expect("a folder");
        let script = folder.path().join("tileiras");
        // As the assembler runs ptxas.
        let text = format!("#!/bin/sh\n/bin/sleep 600 &\necho $! >{}/child\nwait\n", folder.path().display());
        std::fs::write(&script, text).expect("a script");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, mode).expect("a program");
        let slow = Assembler { time_limit: Duration::from_millis(200), ..Assembler::at(script) };
        let start = Instant::now();
        let error = slow.assemble("k", &[], Target::SM_80).expect_err("never done");
        assert!(error.to_string().contains("not done after"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(20));
        let child = std::fs::read_to_string(folder.path().join("child")).expect("a child");
        let status = || std::fs::read_to_string(format!("/proc/{}/status", child.trim())).unwrap_or_default();
        while status().contains("(sleeping)") {
            assert!(start.elapsed() < Duration::from_secs(20), "{}", status());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
