//! Checks of a launch on request: races between tile blocks by code that the kernel contains, and
//! red zones around its arrays.
//!
//! Input: the compiled kernel, and the arguments of the launch. Output: an error after the launch,
//! with the ops and tile blocks, or with the array and the offset.

pub(super) mod races;
pub(super) mod zones;

#[cfg(test)]
mod hang_tests;
#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod tests;
