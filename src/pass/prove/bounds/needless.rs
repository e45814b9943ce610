//! Bounds checks that a proof makes unnecessary.
//!
//! 1. A dimension of a tile that is inside of its array in each execution is marked `inbounds`.
//! 2. A mask that is true in each execution is removed, with the padding of the load.
//!
//! Both hold for one grid and one set of numbers: the caller launches the code with these alone.
//! The interpreter reports a mark that does not hold.

use super::check::{is_implied, is_inside};
use crate::ir::{Attr, AttrKind, Module, OpId, Opcode};
use crate::pass::prove::access::Access;
use crate::pass::prove::interval::Ranges;
use crate::pass::prove::term::Terms;

/// Checks of a kernel that no launch with the numbers of a proof needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::pass::prove) struct NeedlessChecks {
    /// Accesses through views, with axes of the tile.
    axes: Vec<(OpId, usize)>,
    /// Accesses through pointers, with a mask.
    masks: Vec<OpId>,
}

impl NeedlessChecks {
    /// Finds the checks of these accesses that are needless. An op has one access.
    pub fn find(terms: &Terms, ranges: &Ranges, module: &Module, accesses: &[Access]) -> NeedlessChecks {
        let mut found = NeedlessChecks::default();
        for access in accesses {
            for (axis, &dim) in access.axes.iter().enumerate() {
                let Some(&place) = access.dims.get(dim) else { continue };
                if !place.inbounds && is_inside(terms, ranges, access, dim) {
                    found.axes.push((access.op, axis));
                }
            }
            if has_mask(module, access.op) && is_implied(terms, ranges, access) {
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
