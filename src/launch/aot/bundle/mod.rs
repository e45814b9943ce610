//! Bundles: kernels that are compiled ahead of time for several targets and forms of arguments,
//! included in a program, and launched without a trace.
//!
//! * [`wire`] encodes and decodes bytes, [`arg_forms`] the forms of arguments and the hints.
//! * [`image`] is the code of one kernel for one target, [`entry`] a kernel for one form of its
//!   arguments, [`file`] a bundle.
//! * [`bundler`] makes a bundle, [`mod@launch`] launches from it.

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
