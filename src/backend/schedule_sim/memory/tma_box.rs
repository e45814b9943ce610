//! TMA boxes: the copy of a part of an array into a stage.

use super::operand_view::swizzled;
use super::stage::Stage;
use crate::backend::ParamWord;
use crate::backend::cpu::{Memory, SlotContent};
use crate::backend::ptx::tensor_map::{MapElement, TensorMap};
use crate::backend::schedule_sim::error::{Fault, broken};
use crate::dtype::DType;

/// Bytes of a swizzled chunk (PTX ISA, swizzling modes).
const CHUNK: usize = 16;

/// Copies the box at these coordinates, innermost first, to its position in a stage, and returns
/// its bytes. Elements outside of the array are zero.
///
/// # Errors
/// The array has no tensor map, or the box does not fit, or it starts at an invalid position.
pub fn copy(
    map: &TensorMap,
    coordinates: &[i64],
    (memory, params): (&Memory, &[ParamWord]),
    (stage, at): (&mut Stage, usize),
) -> Result<u32, Fault> {
    let array = map.resolve(params).ok_or_else(|| broken("an array is streamed that has no map"))?;
    let element = map.element.bytes() as usize;
    if (coordinates[0] * element as i64).rem_euclid(CHUNK as i64) != 0 {
        return Err(broken(format_args!(
            "a box begins at element {}, which is no multiple of 16 bytes",
            coordinates[0]
        )));
    }
    let span = map.swizzle.span().map_or(0, |span| span as usize);
    let width = array.boxes[0] as usize;
    let rows: usize = array.boxes[1..array.rank].iter().map(|&extent| extent as usize).product();
    let inside = |axis: usize, place: i64| (0..array.extents[axis] as i64).contains(&place);
    for row in 0..rows {
        let (mut rest, mut address, mut is_inside) = (row, array.address, true);
        for (axis, &start) in coordinates.iter().enumerate().take(array.rank).skip(1) {
            let place = start + (rest % array.boxes[axis] as usize) as i64;
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
    let rounded = SlotContent::of_bits(DType::F32, words.collect::<Vec<u64>>().into_iter()).as_tf32().bits();
    for (to, word) in bytes.chunks_mut(4).zip(rounded) {
        to.copy_from_slice(&word.to_le_bytes()[..4]);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::super::stage::Tile;
    use super::*;
    use crate::backend::ptx::Panels;
    use crate::backend::ptx::tensor_map::{Dim, L2Promotion, Number, Swizzle};
    use crate::backend::schedule_sim::memory::operand_view::{Form, Source};

    /// Returns an array of 16-bit numbers, each its index.
    fn array(rows: u64, columns: u64) -> Vec<AtomicU64> {
        let word = |first: u64| (0..4).fold(0, |word, i| word | (first * 4 + i) << (16 * i));
        (0..rows * columns / 4).map(|first| AtomicU64::new(word(first))).collect()
    }

    /// Returns a map of it with boxes of 8 rows of 64 bytes.
    fn map(rows: i64, columns: i64) -> TensorMap {
        let number = Number::Constant;
        TensorMap {
            base: 0,
            dims: vec![
                Dim { extent: number(columns), stride: number(1), boxed: 32 },
                Dim { extent: number(rows), stride: number(columns), boxed: 8 },
            ],
            element: MapElement::U16,
            swizzle: Swizzle::B64,
            promotion: L2Promotion::default(),
            ragged: None,
        }
    }

    /// Returns a tile of 16 x 64 of an array of 40 x 72 from this row and column on, as read by an
    /// MMA whose panels have `rows` rows.
    fn tile(first: [i64; 2], rows: i64) -> Vec<u64> {
        let data = array(40, 72);
        let mut memory = Memory::new();
        // SAFETY: the array outlives the memory, and no other code accesses it.
        unsafe { memory.add(data.as_ptr() as *mut u8, size_of_val(&data[..]), false) };
        let (mut stage, of) = (Stage::new(4096), Tile { of: 0, number: 0 });
        stage.fill(of, 4, 2048).unwrap();
        for (panel, part) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let coordinates = [first[1] + 32 * panel, first[0] + 8 * part];
            let at = ((panel * 16 + 8 * part) * 64) as usize;
            let launch = (&memory, &[data.as_ptr() as u64][..]);
            let bytes = copy(&map(40, 72), &coordinates, launch, (&mut stage, at)).unwrap();
            stage.wrote(bytes);
        }
        let panels = Panels { along_k: true, swizzle_bytes: 64, rows: 16, count: 2 };
        let form = Form::Panels(panels, rows);
        let source = Source { start: 0, form, shape: vec![16, 64], k_last: true, stored: DType::I16, rounds: false };
        source.tile(&mut |at, bytes| stage.read(at, bytes)).unwrap().bits()
    }

    #[test]
    fn boxes_begin_at_multiples_of_sixteen_bytes() {
        let data = array(40, 72);
        let mut memory = Memory::new();
        // SAFETY: the array outlives the memory, and no other code accesses it.
        unsafe { memory.add(data.as_ptr() as *mut u8, size_of_val(&data[..]), false) };
        let brings = |first: i64| {
            let mut stage = Stage::new(4096);
            stage.fill(Tile { of: 0, number: 0 }, 1, 512).unwrap();
            copy(&map(40, 72), &[first, 0], (&memory, &[data.as_ptr() as u64]), (&mut stage, 0))
        };
        assert!(brings(8).is_ok() && brings(-8).is_ok());
        assert!(brings(4).unwrap_err().message.contains("no multiple of 16 bytes"));
    }

    #[test]
    fn products_read_the_tiles_of_boxes() {
        let expected = |[row, column]: [i64; 2]| {
            let place =
                |(i, j): (i64, i64)| if row + i < 40 && column + j < 72 { (row + i) * 72 + column + j } else { 0 };
            (0..16).flat_map(|i| (0..64).map(move |j| (i, j))).map(|at| place(at) as u64).collect::<Vec<u64>>()
        };
        for first in [[0, 0], [16, 0], [32, 64]] {
            assert_eq!(tile(first, 16), expected(first), "{first:?}");
        }
        assert_ne!(tile([0, 0], 24), expected([0, 0]), "panels of other rows");
    }
}
