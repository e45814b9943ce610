//! Kernels in a file that programs carry with them: made ahead for several targets and forms of arguments, launched
//! without tracing.
//!
//! [`wire`] writes and reads bytes, [`forms`] what a kernel was made for, [`image`] is the code of one kernel for one
//! target, [`entry`] a kernel for one form of its arguments, [`file`] the whole, [`make`] makes it, [`start`] launches
//! from it.

mod arg_forms;
mod bundler;
mod entry;
mod file;
mod image;
mod launch;
#[cfg(test)]
mod tests;
mod wire;

pub use bundler::Bundler;
pub use entry::BundledKernel;
pub use file::Bundle;
