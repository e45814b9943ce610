//! The index of this tile block in the grid, and the extents of the grid.

use crate::dtype::DType;
use crate::ir::{Opcode, Type};
use crate::ops::create::construct::scalar;
use crate::ops::support::operand::Operand;
use crate::tile::{Handle, Place, Scalar, caller_location, record, with_location};

#[track_caller]
fn grid_value(place: Place, name: &str, code: Opcode, axis: usize) -> Scalar<i32> {
    Scalar::from_raw(record(|t| {
        t.at(place);
        let ty = Type::scalar(DType::I32);
        if axis > 2 {
            let message = format!("`{name}({axis})`: a grid has the axes 0, 1 and 2");
            return t.fail(place, ty, message, &["axes that a launch does not name have one block"]);
        }
        let id = t.builder.module.intern(ty);
        let values = t.emit(code, &[], vec![], vec![], &[id; 3]);
        t.raw(values[axis])
    }))
}

/// Returns the index of this tile block along a grid axis (0, 1 or 2), counted from 0.
///
/// ```
/// # use cutlet::doctest::*;
/// fn columns(y: ArrayMut<i32, 1>) {
///     y.store_scalar(ct::bid(0), ct::bid(0) * 10);
/// }
///
/// let mut y = ct::Device::cpu().zeros([3])?;
/// ct::launch(columns, 3, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [0, 10, 20]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn bid(axis: usize) -> Scalar<i32> {
    grid_value(caller_location(), "bid", Opcode::GetTileBlockId, axis)
}

/// Returns the number of tile blocks along a grid axis (0, 1 or 2); 1 along axes that the launch
/// does not name.
///
/// ```
/// # use cutlet::doctest::*;
/// fn count(y: ArrayMut<i32, 1>) {
///     y.store_scalar(ct::bid(0), ct::num_blocks(0) + ct::num_blocks(1));
/// }
///
/// let mut y = ct::Device::cpu().zeros([3])?;
/// ct::launch(count, 3, (&mut y,))?;
/// assert_eq!(y.to_vec()?, [4, 4, 4]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn num_blocks(axis: usize) -> Scalar<i32> {
    grid_value(caller_location(), "num_blocks", Opcode::GetNumTileBlocks, axis)
}

/// Returns row and column of a tile from its number among `rows` times `columns`, in the order of
/// Triton's `swizzle2d`: groups of `group` rows, each column by column. Tile blocks that run at the
/// same time then read the same rows and columns of the operands of a product, which stay in the
/// cache.
///
/// Every number below `rows * columns` has its own position, for every `group` of at least 1.
/// `columns` times `group` is less than 2^31.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn order(out: ArrayMut<i32, 2>) {
///     let [row, column] = ct::swizzle_2d(ct::bid(0), out.extent(0), out.extent(1), 2);
///     out.entry((row, column)).store(ct::bid(0));
/// }
///
/// let mut out = ct::Device::cpu().zeros([3, 4])?;
/// ct::launch(order, 12, (&mut out,))?;
/// assert_eq!(out.to_vec()?, [0, 2, 4, 6, 1, 3, 5, 7, 8, 9, 10, 11]);
/// # Ok::<(), ct::Error>(())
/// ```
#[track_caller]
#[must_use]
pub fn swizzle_2d(
    number: Scalar<i32>,
    rows: impl Operand<Scalar<i32>>,
    columns: impl Operand<Scalar<i32>>,
    group: usize,
) -> [Scalar<i32>; 2] {
    with_location(caller_location(), || {
        let (rows, columns, group) = (scalar(0) + rows, scalar(0) + columns, group.max(1));
        let size = columns * group;
        let first = number / size * group;
        // The last group may have fewer rows, and later blocks have none.
        let height = (rows - first).min(group);
        let within = number % size;
        [first + within % height, within / height]
    })
}
