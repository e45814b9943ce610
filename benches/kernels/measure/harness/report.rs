//! The line that an example prints.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};

/// Work of one launch, for the printed rate.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Bytes read and written.
    Bytes(f64),
    /// Floating-point operations.
    Flops(f64),
}

/// One run of an example.
#[derive(Debug)]
pub struct Report<'a> {
    /// Name, element type and sizes.
    pub what: String,
    /// Device of the launch.
    pub device: String,
    /// Time of one launch.
    pub time: Duration,
    /// Work of one launch.
    pub work: Work,
    /// Largest error, relative to the magnitude that the example states.
    pub error: f64,
    /// Largest error that is right.
    pub tolerance: f64,
    /// Quantity to which the error is relative.
    pub relative_to: &'a str,
}

impl Report<'_> {
    /// Prints the line; an error when the results were wrong.
    pub fn finish(self) -> Result<()> {
        let seconds = self.time.as_secs_f64();
        let rate = match self.work {
            Work::Bytes(bytes) if bytes / seconds > 1e11 => format!("{:.1} GB/s", bytes / seconds / 1e9),
            Work::Bytes(bytes) => format!("{:.4} GB/s", bytes / seconds / 1e9),
            Work::Flops(flops) if flops / seconds > 1e11 => format!("{:.1} TFLOP/s", flops / seconds / 1e12),
            Work::Flops(flops) => format!("{:.4} TFLOP/s", flops / seconds / 1e12),
        };
        let mut line = format!("{}: {}, {:.1} us, {rate}", self.what, self.device, seconds * 1e6);
        write!(line, ", largest error {:.2e} of {}", self.error, self.relative_to)?;
        println!("{line}");
        ensure!(self.error <= self.tolerance, "wrong results: the error should be at most {:.2e}", self.tolerance);
        Ok(())
    }
}
