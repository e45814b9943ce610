//! Elements of an expression combined with all before them along an axis. Where there are few lines, each is cut into
//! parts: these are reduced, what they come to is scanned, and each part begins with what is before it.

use super::combine::Combine;
use super::fused::{Code, Fused, surveyed};
use super::launched::launched;
use super::plan::Survey;
use super::reduce::{CutLines, Lines, Numbers, partial};
use crate::element::Element;
use crate::error::Result;
use crate::kernel::Constant;
use crate::ops::{ScanOptions, for_each, full, range};
use crate::runtime::DeviceArray;
use crate::tile::{Array, ArrayMut, Scalar};

#[track_caller]
pub fn scan<E: Fused<R>, C: Combine<E::Elem>, const R: usize>(
    expr: E,
    axis: usize,
    identity: E::Elem,
    combine: C,
) -> Result<DeviceArray<E::Elem, R>> {
    let survey = surveyed(&expr)?;
    let lines = Lines::along(&survey, axis)?;
    if lines.parts == 1 {
        return scanned(expr, &survey, &lines, identity, combine, None, false);
    }
    let sums = partial(expr, &survey, &lines, identity, combine)?;
    let of_sums = surveyed(&&sums)?;
    let whole = Lines::along(&of_sums, axis)?.uncut();
    let before = scanned(&sums, &of_sums, &whole, identity, combine, None, true)?;
    scanned(expr, &survey, &lines, identity, combine, Some(&before), false)
}

/// What is before each part, if there are several, and whether an element counts for itself.
#[track_caller]
fn scanned<E: Fused<R>, C: Combine<E::Elem>, const R: usize>(
    expr: E,
    survey: &Survey<R>,
    lines: &Lines<R>,
    identity: E::Elem,
    combine: C,
    before: Option<&DeviceArray<E::Elem, R>>,
    exclusive: bool,
) -> Result<DeviceArray<E::Elem, R>> {
    let mut out = survey.device().unspecified(lines.shape)?;
    let nothing = survey.device().unspecified([0; R])?;
    let (given, code) = expr.take_apart(None)?;
    let kernel = move |arrays: E::Arrays,
                       out: ArrayMut<E::Elem, R>,
                       before: Array<E::Elem, R>,
                       numbers: Numbers<Scalar<i64>, Scalar<i32>>,
                       (cut, (exclusive, has_before)): (CutLines<R>, (bool, bool))| {
        let identity = E::Elem::from_bits(cut.identity);
        let (at, [first, end]) = cut.part(out, numbers);
        let start = if has_before { before.load(at, cut.flat) } else { full(cut.flat, identity) };
        for_each(range(first, end), start, |k, before| {
            let (mut at, mut last) = (at, [0; R]);
            (at[cut.axis], last[cut.axis]) = (k, cut.tile[cut.axis] - 1);
            let tile = code.tile(arrays, at, cut.tile);
            let sums = combine.scan(tile, cut.axis, identity, ScanOptions::new());
            let sums = combine.join(before, sums);
            let stored = match exclusive {
                true => combine.join(before, combine.scan(tile, cut.axis, identity, ScanOptions::new().exclusive())),
                false => sums,
            };
            out.store(at, stored);
            sums.extract(last, cut.flat)
        });
    };
    let Constant(cut) = lines.constants(identity);
    let constants = Constant((cut, (exclusive, before.is_some())));
    launched(kernel, lines.blocks(), (given, &mut out, before.unwrap_or(&nothing), lines.numbers(), constants))?;
    Ok(out)
}
