//! Tensor maps of the copy engine, encoded by the CUDA driver.

use std::ffi::{c_int, c_uint, c_void};

use anyhow::{Context, Result, bail};

use super::{Driver, accepted};

/// CUtensorMap of cuda.h.
#[repr(C, align(64))]
pub struct TensorMap([u64; 16]);

type Mode = c_uint;
/// Extents, strides and boxes are arrays of the rank; the strides begin with the second axis.
type Tiled = unsafe extern "C" fn(
    *mut TensorMap,
    c_uint,
    c_uint,
    *mut c_void,
    *const u64,
    *const u64,
    *const u32,
    *const u32,
    Mode,
    Mode,
    Mode,
    Mode,
) -> c_int;
/// Instead of boxes, the corners of windows of images, channels and pixels.
type Im2col = unsafe extern "C" fn(
    *mut TensorMap,
    c_uint,
    c_uint,
    *mut c_void,
    *const u64,
    *const u64,
    *const c_int,
    *const c_int,
    u32,
    u32,
    *const u32,
    Mode,
    Mode,
    Mode,
    Mode,
) -> c_int;

/// Splits off a number of words.
fn next<T>(rest: &mut &[i64], count: usize, convert: fn(i64) -> T) -> Result<Vec<T>> {
    let (first, behind) = rest.split_at_checked(count).context("too few numbers of a tensor map")?;
    *rest = behind;
    Ok(first.iter().copied().map(convert).collect())
}

impl TensorMap {
    /// Encodes a map of an array by the numbers of TileLang's host code: element type, rank,
    /// extents, strides in bytes, then boxes (`tiled`), or corners (`im2col`), steps, and the four
    /// modes. Pixels and channels of `im2col` are between its steps and corners and its modes.
    pub fn new(driver: &Driver, address: u64, kind: &str, numbers: &[i64]) -> Result<Box<TensorMap>> {
        let [element, axes, ref rest @ ..] = *numbers else { bail!("a tensor map without rank") };
        let (mut rest, rank) = (rest, usize::try_from(axes)?);
        let rest = &mut rest;
        let halves = |x| x as u32;
        let (extents, strides) = (next(rest, rank, |x| x as u64)?, next(rest, rank, |x| x as u64)?);
        let mut map = Box::new(TensorMap([0; 16]));
        let (to, address) = (&raw mut *map, address as *mut c_void);
        let (element, axes) = (element as c_uint, axes as c_uint);
        let (extents, strides) = (extents.as_ptr(), strides[1..].as_ptr());
        let status = match kind {
            "tiled" => {
                let [boxes, steps, modes] =
                    [next(rest, rank, halves)?, next(rest, rank, halves)?, next(rest, 4, halves)?];
                let (boxes, steps) = (boxes.as_ptr(), steps.as_ptr());
                let [a, b, c, d] = modes[..] else { bail!("four modes") };
                // SAFETY: the signature is that of the driver API; the arrays have the elements of
                // the rank.
                unsafe {
                    let encode = driver.function::<Tiled>("cuTensorMapEncodeTiled")?;
                    encode(to, element, axes, address, extents, strides, boxes, steps, a, b, c, d)
                }
            }
            "im2col" => {
                let steps = next(rest, rank, halves)?;
                let corner = |x| x as c_int;
                let (low, high) = (next(rest, rank - 2, corner)?, next(rest, rank - 2, corner)?);
                let (low, high, steps) = (low.as_ptr(), high.as_ptr(), steps.as_ptr());
                let sizes = next(rest, 6, halves)?;
                let [pixels, channels, a, b, c, d] = sizes[..] else { bail!("six numbers") };
                // SAFETY: the signature is that of the driver API; the arrays have the elements of
                // the rank.
                unsafe {
                    let encode = driver.function::<Im2col>("cuTensorMapEncodeIm2col")?;
                    encode(to, element, axes, address, extents, strides, low, high, channels, pixels, steps, a, b, c, d)
                }
            }
            _ => bail!("the tensor map {kind}"),
        };
        accepted(status, "tensor map").with_context(|| format!("{kind} {numbers:?}"))?;
        Ok(map)
    }
}
