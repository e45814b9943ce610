//! Kernels in a file that programs carry with them: made ahead for several targets and forms of arguments, launched
//! without tracing.
//!
//! [`wire`] writes and reads bytes, [`forms`] what a kernel was made for, [`image`] is the code of one kernel for one
//! target, [`entry`] a kernel for one form of its arguments, [`file`] the whole, [`make`] makes it, [`start`] launches
//! from it.

mod entry;
mod file;
mod forms;
mod image;
mod make;
mod start;
#[cfg(test)]
mod tests;
mod wire;

pub use entry::BundledKernel;
pub use file::Bundle;
pub use make::Bundler;
