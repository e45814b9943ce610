//! Store of the elements of an expression in an array.

use super::fusion::{Code, FusedExpr, surveyed};
use super::generated::launched;
use super::tiling::{counts, line};
use crate::error::{Error, Result};
use crate::kernel::Constant;
use crate::ops::{bid, scalar};
use crate::runtime::{DeviceArray, DeviceViewMut};
use crate::tile::{ArrayMut, Scalar};

/// Returns the tile index of a tile block. The axes with several tiles are enumerated, the last one
/// fastest.
pub fn place<const R: usize>(block: Scalar<i32>, counts: [Option<Scalar<i32>>; R]) -> [Scalar<i32>; R] {
    let mut rest = block;
    let last = (0..R).find(|&d| counts[d].is_some());
    let mut at = [scalar(0); R];
    for d in (0..R).rev() {
        let Some(count) = counts[d] else { continue };
        // The first enumerated axis has the complete rest.
        (at[d], rest) = if last == Some(d) { (rest, rest) } else { (rest % count, rest / count) };
    }
    at
}

#[track_caller]
pub fn store<E: FusedExpr<R>, const R: usize>(expr: E, out: DeviceViewMut<'_, E::Elem, R>) -> Result<()> {
    let mut survey = surveyed(&expr)?;
    if survey.shape() != out.shape() {
        let message = format!("an expression of shape {:?} into an array of {:?}", survey.shape(), out.shape());
        return Err(Error::argument(message));
    }
    survey.array(out.device(), out.shape(), out.strides());
    let shape = survey.is_line().then(|| line(survey.shape()));
    let (given, code) = expr.decompose(shape)?;
    let out = match shape {
        Some(shape) => out.reshape(shape)?,
        None => out,
    };
    let tile = survey.tile(out.shape());
    let counts = counts(out.shape(), tile);
    let kernel = move |arrays: E::Arrays, out: ArrayMut<E::Elem, R>, (tile, several): ([usize; R], [bool; R])| {
        let counts = std::array::from_fn(|d| several[d].then(|| out.num_tiles(d, tile)));
        let at = place(bid(0), counts);
        out.store(at, code.tile(arrays, at, tile));
    };
    launched(kernel, counts.iter().product::<usize>(), (given, out, Constant((tile, counts.map(|n| n > 1)))))
}

#[track_caller]
pub fn to_array<E: FusedExpr<R>, const R: usize>(expr: E) -> Result<DeviceArray<E::Elem, R>> {
    let survey = surveyed(&expr)?;
    let mut out = survey.device().unspecified(survey.shape())?;
    store(expr, out.view_mut())?;
    Ok(out)
}
