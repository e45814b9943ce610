//! Positions inside and outside of arrays.

mod check;
mod needless;

pub(super) use check::{BoundsCheck, check};
pub(super) use needless::NeedlessChecks;
