//! Reductions into arrays: tiles combined with what an array holds, by tile index and without results.
//!
//! What the hardware does in its memory, several neighbours at a time where it can. Elements at listed positions, and
//! extrema of floats, which Tile IR's reductions of views do not have, go by element index (`atomic`).

use super::atomic_rmw::{Atomic, AtomicAdd, AtomicBits, AtomicMinMax, Deed};
use crate::ir::op_table::Effect;
use crate::ir::{Attr, MemOrder, MemScope, Opcode, Type};
use crate::ops::create::construct::{extents, full};
use crate::ops::memory::access_options::{Access, StoreOptions};
use crate::ops::memory::element_index;
use crate::ops::memory::load_store::StoreValue;
use crate::ops::memory::tile_access::Visit;
use crate::ops::memory::tiled_view::TiledView;
use crate::ops::support::operand::Operand;
use crate::ops::support::tile_index::{Component, TileIndex};
use crate::tile::{ArrayMut, Handle, Source, Tile, Trace, ValueHandle, caller_location, record};

impl Trace {
    fn atomic_store(
        &mut self,
        visit: &Visit<'_>,
        index: &[Component],
        (deed, signed): (Deed, bool),
        tile: ValueHandle,
    ) {
        self.at(visit.place);
        let rank = visit.shape.len();
        let tile = self.check_usable(tile, visit.place);
        if !visit.check(self) || !self.admits(visit.place, Effect::ReadWrite, rank) {
            return;
        }
        let Some(tile) = tile else { return };
        let sparse = index.iter().any(|component| matches!(component, Component::Sparse(_)));
        if sparse || (visit.dtype.is_float() && !matches!(deed, Deed::Add)) {
            let Some(positions) = visit.positions(self, index) else { return };
            let index: Vec<_> =
                positions.into_iter().map(|(raw, dtype)| element_index::Component::of(raw, dtype)).collect();
            let atomic = Atomic::of_view(visit, &index, deed, signed);
            let value = self.raw(tile);
            self.atomic(&atomic, Source::Value(value));
            return;
        }
        let Some((view, indices)) = visit.locate(self, index) else { return };
        let tile = match rank {
            0 => self.put(Opcode::Reshape, &[tile], vec![], visit.dtype, &[1]),
            _ => tile,
        };
        let mut attrs = vec![Attr::MemOrder(MemOrder::Relaxed), Attr::MemScope(MemScope::Device)];
        attrs.push(Attr::AtomicMode(deed.mode(visit.dtype, signed)));
        attrs.extend(visit.access.promise(indices.len()));
        let token = self.builder.module.intern(Type::Token);
        self.emit(Opcode::AtomicRedView, &[&[view], &indices, &[tile], &[]], attrs, vec![], &[token]);
    }
}

/// An example of an operation with 3 on an element that is 6, and what comes of it.
macro_rules! example {
    ($view:literal, $name:expr, $tile:literal; $after:literal) => {
        concat!(
            "```\n# use cutlet as ct;\n# use cutlet::prelude::*;\nfn kernel(x: ArrayMut<i32, 1>) {\n    x",
            $view,
            ".",
            $name,
            "(ct::bid(0) + 1, ",
            $tile,
            ");\n}\n\n\
             let mut x = ct::Device::cpu().full([2], 6)?;\nct::launch(kernel, 1, (&mut x,))?;\n\
             assert_eq!(x.to_vec()?, [6, ",
            $after,
            "]);\n# Ok::<(), ct::Error>(())\n```"
        )
    };
}

macro_rules! atomic_stores {
    ($($bound:ident $deed:ident $name:ident $after:literal $doc:literal;)+) => {$(
        impl<T: $bound, const R: usize> ArrayMut<T, R> {
            #[doc = $doc]
            /// Relaxed, for the device, and without the values before: each element is changed in one step, in no order
            /// with anything else. What lies outside of the array is left alone. The index is that of
            /// [`ArrayMut::store`]; where listed positions meet, each is applied.
            ///
            #[doc = example!("", stringify!($name), "ct::full([1], 3)"; $after)]
            #[track_caller]
            pub fn $name(self, index: impl TileIndex<R>, tile: impl StoreValue<T, R>) {
                let (place, tile) = (caller_location(), tile.stored());
                record(|t| {
                    let (shape, access) = (t.shape(tile), Access::default());
                    let visit = self.visit(place, stringify!($name), &shape, &access, None);
                    t.atomic_store(&visit, &index.components(), (Deed::$deed, T::SIGNED), tile);
                });
            }
        }

        impl<T: $bound, const R: usize> TiledView<ArrayMut<T, R>, R> {
            #[doc = concat!(
                "[`ArrayMut::", stringify!($name), "`] of a tile of this view; a scalar or a host value fills it. Relaxed, \
                whatever the view says of orders."
            )]
            ///
            #[doc = example!(".tiled([1])", stringify!($name), "3"; $after)]
            #[track_caller]
            pub fn $name(self, index: impl TileIndex<R>, tile: impl Operand<Tile<T, R>>) {
                let place = caller_location();
                let (array, shape, step, StoreOptions { access }) = self.parts();
                let tile = full(shape, tile);
                let (shape, step) = (extents(shape), extents(step));
                let visit = Visit { step: Some(&step), ..array.visit(place, stringify!($name), &shape, &access, None) };
                record(|t| t.atomic_store(&visit, &index.components(), (Deed::$deed, T::SIGNED), tile.raw()));
            }
        }
    )+};
}
atomic_stores! {
    AtomicAdd Add atomic_store_add "9" "Adds a tile to the elements at a tile index.\n\n```\nuse cutlet as ct;\n\
        use cutlet::prelude::*;\n\n// The sum of all rows.\nfn sum(x: Array<f32, 2>, sums: ArrayMut<f32, 1>) {\n    \
        let row = x.load((ct::bid(0), ct::bid(1)), [1, 4]);\n    \
        sums.atomic_store_add(ct::bid(1), row.squeeze(0));\n}\n\nlet device = ct::Device::cpu();\n\
        let x = device.from_fn([3, 6], |[i, j]| (10 * i + j) as f32)?;\nlet mut sums = device.zeros([6])?;\n\
        ct::launch(sum, [3, 2], (&x, &mut sums))?;\n\
        assert_eq!(sums.to_vec()?, [30.0, 33.0, 36.0, 39.0, 42.0, 45.0]);\n# Ok::<(), ct::Error>(())\n```\n\n\
        Floats round once, to nearest even; subnormal numbers are those of [`ArrayMut::atomic_add`].";
    AtomicMinMax Min atomic_store_min "3" "The smaller of element and value, at a tile index. NaNs and zeros are \
        those of [`ArrayMut::atomic_min`].";
    AtomicMinMax Max atomic_store_max "6" "The larger of element and value, at a tile index. NaNs and zeros are \
        those of [`ArrayMut::atomic_max`].";
    AtomicBits And atomic_store_and "2" "Bitwise and with the elements at a tile index.";
    AtomicBits Or atomic_store_or "7" "Bitwise or with the elements at a tile index.";
    AtomicBits Xor atomic_store_xor "5" "Bitwise exclusive or with the elements at a tile index.";
}
