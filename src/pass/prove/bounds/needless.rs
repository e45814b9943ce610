//! Bounds checks that a proof makes unnecessary.
//!
//! 1. A dimension of a tile that is inside of its array in each execution is marked `inbounds`.
//! 2. A mask that is true in each execution is removed, with the padding of the load.
//!
//! The caller decides both for the launches of the code: all of them, or those with one grid and
//! one set of numbers. The interpreter reports a mark that does not hold.

use crate::ir::{Attr, AttrKind, Module, OpId, Opcode};
use crate::pass::prove::access::Access;

/// Checks of a kernel that no launch of its code needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::pass::prove) struct NeedlessChecks {
    /// Accesses through views, with axes of the tile.
    axes: Vec<(OpId, usize)>,
    /// Accesses through pointers, with a mask.
    masks: Vec<OpId>,
}

impl NeedlessChecks {
    /// Finds the checks of these accesses that are needless. An op has one access.
    ///
    /// * `is_inside`: all elements of an access along a dimension are inside of its array.
    /// * `is_implied`: the last condition of an access follows from the other ones.
    pub fn find(
        module: &Module,
        accesses: &[Access],
        is_inside: &dyn Fn(&Access, usize) -> bool,
        is_implied: &dyn Fn(&Access) -> bool,
    ) -> NeedlessChecks {
        let mut found = NeedlessChecks::default();
        for access in accesses {
            for (axis, &dim) in access.axes.iter().enumerate() {
                let Some(&place) = access.dims.get(dim) else { continue };
                if !place.inbounds && is_inside(access, dim) {
                    found.axes.push((access.op, axis));
                }
            }
            if has_mask(module, access.op) && is_implied(access) {
                found.masks.push(access.op);
            }
        }
        found
    }

    /// Removes the checks from a module.
    pub fn remove_from(&self, module: &mut Module) {
        for &(id, axis) in &self.axes {
            let Some(Attr::Inbounds(mut all)) = module.op(id).attr(AttrKind::Inbounds).cloned() else { continue };
            all[axis] = true;
            module.op_mut(id).set_attr(Attr::Inbounds(all));
        }
        self.masks.iter().for_each(|&id| remove_mask(module, id));
    }
}

fn has_mask(module: &Module, id: OpId) -> bool {
    let op = module.op(id);
    matches!(op.code, Opcode::LoadPtr | Opcode::StorePtr | Opcode::AtomicRmw) && !op.operand_group("mask").is_empty()
}

/// Removes the mask of an access, and its padding.
fn remove_mask(module: &mut Module, id: OpId) {
    let op = module.op_mut(id);
    for (group, operand) in op.code.spec().operands.iter().enumerate().rev() {
        if matches!(operand.name, "mask" | "padding_value") {
            let start: u32 = op.segments[..group].iter().sum();
            op.operands.drain(start as usize..(start + op.segments[group]) as usize);
            op.segments[group] = 0;
        }
    }
}
