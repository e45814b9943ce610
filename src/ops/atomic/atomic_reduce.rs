//! Atomic reductions of tiles into arrays, by tile index and without results.
//!
//! The hardware executes them in its memory, for several adjacent elements at a time where it can.
//! Tile IR has no reductions of views at listed positions, and none for maxima and minima of
//! floats. These become atomic operations by element index ([`super::atomic_rmw`]).

use super::atomic_rmw::{Atomic, AtomicOp};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, MemOrder, MemScope, Opcode, Type};
use crate::ops::memory::element_index;
use crate::ops::memory::tile_access::TileAccess;
use crate::ops::support::tile_index::Component;
use crate::tile::{Source, Trace, ValueHandle};
use crate::util::collect::CollectVec as _;

impl Trace {
    /// Emits a reduction of a tile into an array.
    pub(super) fn atomic_store(
        &mut self,
        tile_access: &TileAccess<'_>,
        index: &[Component],
        (op, signed): (AtomicOp, bool),
        tile: ValueHandle,
    ) {
        self.at(tile_access.place);
        let rank = tile_access.shape.len();
        let tile = self.check_usable(tile, tile_access.place);
        if !tile_access.check(self) || !self.admits(tile_access.place, Effect::ReadWrite, rank) {
            return;
        }
        let Some(tile) = tile else { return };
        let sparse = index.iter().any(|component| matches!(component, Component::Sparse(_)));
        if sparse || (tile_access.dtype.is_float() && !matches!(op, AtomicOp::Add)) {
            let Some(positions) = tile_access.positions(self, index) else { return };
            let index: Vec<_> =
                positions.into_iter().map(|(raw, dtype)| element_index::Component::of(raw, dtype)).collect_vec();
            let atomic = Atomic::of_view(tile_access, &index, op, signed);
            let value = self.raw(tile);
            self.atomic(&atomic, Source::Value(value));
            return;
        }
        let Some((view, indices)) = tile_access.locate(self, index) else { return };
        let tile = match rank {
            0 => self.put(Opcode::Reshape, &[tile], vec![], tile_access.dtype, &[1]),
            _ => tile,
        };
        let mut attrs = vec![Attr::MemOrder(MemOrder::Relaxed), Attr::MemScope(MemScope::Device)];
        attrs.push(Attr::AtomicMode(op.mode(tile_access.dtype, signed)));
        if tile_access.access.unchecked {
            attrs.push(Attr::Inbounds(vec![true; indices.len()]));
        }
        let token = self.builder.module.intern(Type::Token);
        self.emit(Opcode::AtomicRedView, &[&[view], &indices, &[tile], &[]], attrs, vec![], &[token]);
    }
}
