//! Errors of launches, compilations and devices.
//!
//! A [`Diagnostic`] is one problem with its place in the user's source. An [`Error`] is the error
//! type of public functions. This file is independent of the rest of the crate.

mod hang;
mod location;

use std::fmt;

pub use hang::{Awaited, Hang, StuckWait, WaitRole};
pub use location::Location;

/// One problem found in a kernel or its arguments.
///
/// ```
/// # use cutlet::doctest::*;
/// fn kernel(x: ArrayMut<f32, 1>) {
///     x.store(0, ct::zeros([15]));
/// }
///
/// let error = ct::launch(kernel, 1, (&mut ct::Device::cpu().zeros([3])?,)).unwrap_err();
/// let ct::Error::Kernel(diagnostics) = &error else { panic!("{error}") };
/// assert!(!diagnostics[0].message.is_empty() && diagnostics[0].location.is_some());
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Description of the problem, with the shapes and element types involved.
    pub message: String,
    /// Place in the user's source.
    pub location: Option<Location>,
    /// Further lines: related places and remedies.
    pub notes: Vec<Note>,
}

/// A further line of a [`Diagnostic`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// The text.
    pub message: String,
    /// A related place, if there is one.
    pub location: Option<Location>,
}

impl Diagnostic {
    /// Creates a diagnostic without notes.
    pub fn new(message: impl Into<String>, location: Option<Location>) -> Diagnostic {
        Diagnostic { message: message.into(), location, notes: Vec::new() }
    }

    /// Adds a line without a place.
    #[must_use]
    pub fn note(mut self, message: impl Into<String>) -> Diagnostic {
        self.notes.push(Note { message: message.into(), location: None });
        self
    }

    /// Adds a line with another place.
    #[must_use]
    pub fn note_at(mut self, message: impl Into<String>, location: Option<Location>) -> Diagnostic {
        self.notes.push(Note { message: message.into(), location });
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.location {
            Some(place) => write!(f, "{place}: {}", self.message)?,
            None => write!(f, "{}", self.message)?,
        }
        for note in &self.notes {
            match &note.location {
                Some(place) => write!(f, "\n  {place}: {}", note.message)?,
                None => write!(f, "\n  {}", note.message)?,
            }
        }
        Ok(())
    }
}

/// Error of a function of this crate.
///
/// ```
/// # use cutlet::doctest::*;
/// let wrong = ct::Device::cpu().array(&[1, 2, 3], [2, 2]);
/// assert!(matches!(wrong, Err(ct::Error::Argument(_))));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// `Debug` prints the same text as `Display`, so that `fn main() -> ct::Result<()>` prints a
/// readable error.
#[non_exhaustive]
pub enum Error {
    /// The kernel is ill-formed. All problems of the trace are listed.
    Kernel(Vec<Diagnostic>),
    /// The kernel is well-formed, but the back end or the target cannot run it.
    Unsupported(Vec<Diagnostic>),
    /// An argument of a launch or of an array method is invalid.
    Argument(Diagnostic),
    /// The assembler or the driver rejected the generated code: a defect of this crate.
    Compile {
        /// Kernel name.
        kernel: String,
        /// Name of the tool that rejected the code.
        stage: &'static str,
        /// Output of the tool.
        log: String,
    },
    /// The Tile IR bytecode cannot be read.
    Bytecode {
        /// Offset of the first invalid byte in the file.
        offset: usize,
        /// Description of the problem.
        message: String,
    },
    /// A CUDA driver call failed.
    Driver {
        /// The driver function.
        call: &'static str,
        /// Name of the error code.
        code: String,
        /// The driver's description of the error.
        text: String,
    },
    /// An operation exceeded its time limit, see [`Tuner::limit`](crate::Tuner::limit). On a GPU it
    /// continues.
    TimedOut {
        /// Name of the operation.
        what: String,
        /// The limit.
        limit: std::time::Duration,
    },
    /// The device does not exist, or there is no driver.
    NoDevice(String),
    /// An assertion of a kernel failed, or the cpu back end found an operation without a defined
    /// result.
    Execution(Diagnostic),
    /// Waits of a kernel did not end within [`Hints::wait_limit`](crate::Hints::wait_limit).
    Hung(Hang),
    /// A file could not be read or written.
    Io {
        /// The file.
        path: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Kernel(problems) | Error::Unsupported(problems) => write!(f, "{}", DisplayAll(problems)),
            Error::Argument(problem) | Error::Execution(problem) => write!(f, "{problem}"),
            Error::Compile { kernel, stage, log } => {
                write!(f, "{stage} refused the generated code of kernel `{kernel}`: {log}")
            }
            Error::Bytecode { offset, message } => write!(f, "damaged Tile IR bytecode at byte {offset}: {message}"),
            Error::Driver { call, code, text } => write!(f, "{call} failed: {code} ({text})"),
            Error::TimedOut { what, limit } => write!(f, "{what} is not done after {limit:?}"),
            Error::NoDevice(why) => write!(f, "{why}"),
            Error::Hung(hang) => write!(f, "{hang}"),
            Error::Io { path, source } => write!(f, "{path}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Creates an [`Error::Argument`] at the place of the nearest caller that is not
    /// `#[track_caller]`.
    #[track_caller]
    pub(crate) fn argument(message: impl Into<String>) -> Error {
        Error::Argument(Diagnostic::new(message, Some(Location::caller())))
    }

    /// Returns the same error at another place, if it is an [`Error::Argument`].
    #[cold]
    pub(crate) fn placed(self, place: Location) -> Error {
        match self {
            Error::Argument(diagnostic) => Error::Argument(Diagnostic { location: Some(place), ..diagnostic }),
            other => other,
        }
    }

    /// Creates an [`Error::Argument`] about an environment variable, without a place in the
    /// program.
    pub(crate) fn environment(name: &str, value: &str, problem: impl fmt::Display) -> Error {
        Error::Argument(Diagnostic::new(format!("environment variable {name}={value}: {problem}"), None))
    }
}

/// Result with this crate's [`enum@Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

struct DisplayAll<'a>(&'a [Diagnostic]);

impl fmt::Display for DisplayAll<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}
