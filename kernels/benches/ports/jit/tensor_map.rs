//! Tensor maps of the copy engine, encoded by the CUDA driver.

use std::ffi::{c_int, c_uint, c_void};

use anyhow::{Context, Result, ensure};
use libloading::Library;

/// CUtensorMap of cuda.h.
#[repr(C, align(64))]
pub struct TensorMap([u64; 16]);

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
    c_uint,
    c_uint,
    c_uint,
    c_uint,
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
    c_uint,
    c_uint,
    c_uint,
    c_uint,
) -> c_int;

impl TensorMap {
    /// Encodes a map of an array by the numbers of TileLang's host code: element type, rank, extents, strides in bytes,
    /// then boxes (`tiled`), or steps, corners, pixels and channels (`im2col`), and the four modes.
    pub fn new(library: &Library, address: u64, kind: &str, numbers: &[i64]) -> Result<Box<TensorMap>> {
        let [element, rank, ..] = *numbers else { anyhow::bail!("a tensor map without rank") };
        let rank = usize::try_from(rank)?;
        let mut rest = &numbers[2..];
        let mut next = |count: usize| {
            let (first, behind) = rest.split_at_checked(count).context("too few numbers of a tensor map")?;
            rest = behind;
            Ok::<_, anyhow::Error>(first)
        };
        let words = |of: &[i64]| of.iter().map(|&x| x as u64).collect::<Vec<u64>>();
        let halves = |of: &[i64]| of.iter().map(|&x| x as u32).collect::<Vec<u32>>();
        let (extents, strides) = (words(next(rank)?), words(next(rank)?));
        let mut map = Box::new(TensorMap([0; 16]));
        let (to, address) = (std::ptr::from_mut(&mut *map), address as *mut c_void);
        let (element, axes) = (element as c_uint, rank as c_uint);
        let status = match kind {
            "tiled" => {
                let (boxes, steps, modes) = (halves(next(rank)?), halves(next(rank)?), halves(next(4)?));
                // SAFETY: the signature is that of the driver API; the arrays have the elements of the rank.
                unsafe {
                    let encode = library.get::<Tiled>(b"cuTensorMapEncodeTiled\0")?;
                    encode(
                        to,
                        element,
                        axes,
                        address,
                        extents.as_ptr(),
                        strides[1..].as_ptr(),
                        boxes.as_ptr(),
                        steps.as_ptr(),
                        modes[0],
                        modes[1],
                        modes[2],
                        modes[3],
                    )
                }
            }
            "im2col" => {
                let steps = halves(next(rank)?);
                let corners =
                    [next(rank - 2)?, next(rank - 2)?].map(|of| of.iter().map(|&x| x as c_int).collect::<Vec<_>>());
                let (sizes, modes) = (halves(next(2)?), halves(next(4)?));
                // SAFETY: the signature is that of the driver API; the arrays have the elements of the rank.
                unsafe {
                    let encode = library.get::<Im2col>(b"cuTensorMapEncodeIm2col\0")?;
                    encode(
                        to,
                        element,
                        axes,
                        address,
                        extents.as_ptr(),
                        strides[1..].as_ptr(),
                        corners[0].as_ptr(),
                        corners[1].as_ptr(),
                        sizes[1],
                        sizes[0],
                        steps.as_ptr(),
                        modes[0],
                        modes[1],
                        modes[2],
                        modes[3],
                    )
                }
            }
            _ => anyhow::bail!("the tensor map {kind}"),
        };
        ensure!(status == 0, "a tensor map {kind} {numbers:?}: status {status}");
        Ok(map)
    }
}
