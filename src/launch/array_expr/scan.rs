//! Inclusive scan of an expression along an axis. If there are many lines, one tile block scans
//! each from its first element to its last; else decoupled look-back is used.

use super::combine::Combine;
use super::decoupled_lookback::scan_long;
use super::fusion::{Code, FusedExpr, surveyed};
use super::generated::launched;
use super::reduce::{CutLines, Lines, Numbers};
use super::tiling::Survey;
use crate::element::Element;
use crate::error::Result;
use crate::ops::{ScanOptions, fold, full, range};
use crate::runtime::DeviceArray;
use crate::tile::{ArrayMut, Scalar};

#[track_caller]
pub fn scan<E: FusedExpr<R>, C: Combine<E::Elem>, const R: usize>(
    expr: E,
    axis: usize,
    identity: E::Elem,
    combine: C,
) -> Result<DeviceArray<E::Elem, R>> {
    let survey = surveyed(&expr)?;
    let lines = Lines::along(&survey, axis)?;
    match lines.parts {
        1 => scan_alone(expr, &survey, &lines, identity, combine),
        _ => {
            let tiles = Lines::of_tiles(&survey, axis, size_of::<E::Elem>());
            scan_long(expr, survey.device(), &tiles, identity, combine)
        }
    }
}

/// Scans each line, or tile of lines, by one tile block.
#[track_caller]
fn scan_alone<E: FusedExpr<R>, C: Combine<E::Elem>, const R: usize>(
    expr: E,
    survey: &Survey<R>,
    lines: &Lines<R>,
    identity: E::Elem,
    combine: C,
) -> Result<DeviceArray<E::Elem, R>> {
    let mut out = survey.device().unspecified(lines.shape)?;
    let (given, code) = expr.decompose(None)?;
    let kernel = move |arrays: E::Arrays,
                       out: ArrayMut<E::Elem, R>,
                       numbers: Numbers<Scalar<i64>, Scalar<i32>>,
                       cut: CutLines<R>| {
        let identity = E::Elem::from_bits(cut.identity);
        let (at, [first, end]) = cut.part(out, numbers);
        fold(range(first, end), full(cut.flat, identity), |before, k| {
            let (mut at, mut last) = (at, [0; R]);
            (at[cut.axis], last[cut.axis]) = (k, cut.tile[cut.axis] - 1);
            let sums = combine.scan(code.tile(arrays, at, cut.tile), cut.axis, identity, ScanOptions::new());
            let sums = combine.join(before, sums);
            out.store(at, sums);
            sums.extract(last, cut.flat)
        });
    };
    launched(kernel, lines.blocks(), (given, &mut out, lines.numbers(), lines.constants(identity)))?;
    Ok(out)
}
