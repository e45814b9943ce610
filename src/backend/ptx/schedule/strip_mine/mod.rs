//! Strip mining: sequences of elementwise ops computed on some registers at a time.
//!
//! Input: results of `analysis`. Output: `StripMine` steps of `ir/program`.
//!
//! * `eligibility` — the role that an op can have in a strip-mined sequence
//! * `find` — finds sequences of ops to strip-mine
//! * `order` — ops on small tiles precede adjacent ops on large tiles
//! * `pressure` — register pressure of a sequence, whole-tile and strip-mined

pub mod eligibility;
pub mod find;
pub mod order;
pub mod pressure;
