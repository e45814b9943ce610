//! A box of an array, as the copy engine brings it to a stage.

use super::fault::{Fault, broken};
use super::source::swizzled;
use super::stage::Stage;
use crate::backend::ParamWord;
use crate::backend::cpu::{Held, Memory};
use crate::backend::ptx::tensor_map::{MapElement, TensorMap};
use crate::dtype::DType;

/// Bytes that stay together.
const CHUNK: usize = 16;

/// Copies the box that begins at these coordinates, innermost first, to where it is to begin in a stage; gives its bytes.
/// What is outside of the array is zero.
///
/// # Errors
/// The array has no map, or the box does not fit.
pub fn copy(
    map: &TensorMap,
    coordinates: &[i64],
    (memory, params): (&Memory, &[ParamWord]),
    (stage, at): (&mut Stage, usize),
) -> Result<u32, Fault> {
    let array = map.resolve(params).ok_or_else(|| broken("an array is streamed that has no map"))?;
    let element = map.element.bytes() as usize;
    let span = map.swizzle.span().map_or(0, |span| span as usize);
    let width = array.boxes[0] as usize;
    let rows: usize = array.boxes[1..array.rank].iter().map(|&extent| extent as usize).product();
    let inside = |axis: usize, place: i64| (0..array.extents[axis] as i64).contains(&place);
    for row in 0..rows {
        let (mut rest, mut address, mut is_inside) = (row, array.address, true);
        for axis in 1..array.rank {
            let place = coordinates[axis] + (rest % array.boxes[axis] as usize) as i64;
            rest /= array.boxes[axis] as usize;
            is_inside &= inside(axis, place);
            address = address.wrapping_add((place as u64).wrapping_mul(array.strides[axis - 1]));
        }
        let mut bytes = vec![0; width * element];
        let first = (0..width).find(|&i| inside(0, coordinates[0] + i as i64));
        if let Some(first) = first.filter(|_| is_inside) {
            let end = (first..width).find(|&i| !inside(0, coordinates[0] + i as i64)).unwrap_or(width);
            let start = (coordinates[0] + first as i64) as u64 * element as u64;
            memory.read(address.wrapping_add(start), &mut bytes[first * element..end * element])?;
        }
        if map.element == MapElement::Tf32 {
            round(&mut bytes);
        }
        for (number, chunk) in bytes.chunks(CHUNK).enumerate() {
            stage.write(swizzled(at + row * bytes.len() + number * CHUNK, span), chunk)?;
        }
    }
    Ok((rows * width * element) as u32)
}

/// Rounds f32 to tf32.
fn round(bytes: &mut [u8]) {
    let words = bytes.chunks(4).map(|word| word.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte)));
    let rounded = Held::of_bits(DType::F32, words.collect::<Vec<u64>>().into_iter()).as_tf32().bits();
    for (to, word) in bytes.chunks_mut(4).zip(rounded) {
        to.copy_from_slice(&word.to_le_bytes()[..4]);
    }
}
