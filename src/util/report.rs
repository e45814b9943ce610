//! Messages outside of results.
//!
//! A warning is written to the logger of the program with the feature `log`, else to standard
//! error. Text that the user requests by an environment variable, and text that belongs to a
//! panic, are written to standard error in both cases.

/// Reports a warning of this crate.
#[cold]
pub(crate) fn warning(text: &str) {
    #[cfg(feature = "log")]
    log::warn!(target: "cutlet", "{text}");
    #[cfg(not(feature = "log"))]
    eprintln!("cutlet: {text}");
}

/// Writes text that the user requests, or that belongs to a panic.
#[cold]
pub(crate) fn requested(text: std::fmt::Arguments<'_>) {
    eprint!("{text}");
}
