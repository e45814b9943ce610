//! Where this tile block is: its index in the grid and the size of the grid.

use crate::dtype::DType;
use crate::ir::{Opcode, Type};
use crate::tile::{Handle, Place, Scalar, here, record};

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

/// The index of this tile block along a grid axis (0, 1 or 2), counted from 0.
#[track_caller]
pub fn bid(axis: usize) -> Scalar<i32> {
    grid_value(here(), "bid", Opcode::GetTileBlockId, axis)
}

/// The number of tile blocks along a grid axis (0, 1 or 2); 1 along axes that the launch does not name.
#[track_caller]
pub fn num_blocks(axis: usize) -> Scalar<i32> {
    grid_value(here(), "num_blocks", Opcode::GetNumTileBlocks, axis)
}
