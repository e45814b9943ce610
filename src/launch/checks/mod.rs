//! Checks of a launch on a GPU, by code that the kernel contains on request.
//!
//! Input: the compiled kernel, and the arguments of the launch. Output: an error after the launch,
//! with the ops and tile blocks.

pub(super) mod races;

#[cfg(test)]
mod tests;
