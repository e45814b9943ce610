//! Positions inside and outside of arrays.

mod check;
mod needless;

pub(super) use check::{BoundsCheck, check, is_implied, is_inside};
pub(super) use needless::NeedlessChecks;
