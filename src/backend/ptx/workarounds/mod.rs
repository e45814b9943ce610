//! Workarounds for ptxas: rewrites of finished instructions that some releases of ptxas compile to
//! wrong code.
//!
//! Each defect was reproduced on an H100 with single instruction sequences, for PTX of sm_80 and
//! sm_90a (ptxas 13.0.88 in driver 580.159.04; 13.5 where it is named). Without the rewrites the
//! suite's `late` tests fail on that driver by mixed clamps and chained factors. The builder folds
//! constant conversions already, so traced kernels of the suite do not reach the other two defects;
//! unit tests check their rewrites.
//!
//! | defect | instructions | wrong result | releases | rewrite |
//! |---|---|---|---|---|
//! | late minuend | 32-bit `C - x` into `min`, `max` or a `selp` that is one; ptxas learns `C` from 64-bit code | `x - C` | 13.0, 13.5; sm_90 to sm_103 | [`constants`]; [`rewrite_minuends`](defects::rewrite_minuends) |
//! | late shift amount | 32-bit `(x & m) << (C & 31)`; ptxas learns `C` outside of 0 to 31 from 64-bit code | 0 | 13.0 | [`constants`] |
//! | mixed clamp | unsigned `max` with 0 before or after a signed `min` with 0, also as compare and select | 0 | 13.0 | [`remove_trivial`](defects::remove_trivial) |
//! | chained factors | 64-bit `(x * C) * D + y`, or a shift for the first product, `C * D` of 2^32 or more | `C * D` cut to 32 bits | 13.0 | [`merge_factors`](defects::merge_factors) |
//!
//! Constants that ptxas learns early, from `mov`, 32-bit code or unrolled loops, trigger neither of
//! the first two.

mod constants;
mod defects;
mod definitions;
#[cfg(test)]
mod tests;

use super::isa::emit::Function;
use definitions::Definitions;

/// Rewrites the instructions of a kernel that ptxas would compile to wrong code.
pub fn apply(function: &mut Function) {
    // The suite's `late` tests fail without them on a driver that has the defects.
    #[cfg(feature = "_suite")]
    if std::env::var_os("CUTLET_SUITE_WITHOUT_WORKAROUNDS").is_some() {
        return;
    }
    let mut definitions = Definitions::new(function);
    constants::propagate(function, &mut definitions);
    defects::remove_trivial(function, &definitions);
    defects::merge_factors(function, &definitions);
    defects::rewrite_minuends(function, &definitions);
}
