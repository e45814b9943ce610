//! Back ends: a verified, optimised module becomes something that runs.
//!
//! Each back end knows `ir` and `pass`, never the front end and never another back end.
//! The parameters of a compiled kernel are the entry's parameters in order, one 64-bit word each
//! ([`ParamWord`]); how they travel from there is the back end's affair.

pub mod cpu;
pub mod ptx;

/// The bits of one entry parameter: an address, or a number in the low bits.
pub type ParamWord = u64;
