//! The atomic operations as methods of arrays, elements, pointers and tiled views.
//!
//! [`operations`] is the table of all operations. A row has the bound of the element type, the
//! operation, and the names of its methods: with its result, with options, and without a result.
//! Then follow the operands of an example on an element that is 6, the element afterwards, and the
//! documentation: a name and details.

use super::atomic_rmw::{AtomicAdd, AtomicBits, AtomicMinMax, AtomicOp, AtomicOptions, AtomicXchg, atomic_on};
use crate::element::ByteSized;
use crate::ops::create::construct::full;
use crate::ops::memory::access_options::Access;
use crate::ops::memory::element::EntryMut;
use crate::ops::memory::element_index::{GatherIndex, Target};
use crate::ops::memory::load_store::StoreValue;
use crate::ops::memory::tiled_view::TiledView;
use crate::ops::support::operand::Operand;
use crate::ops::support::tile_index::TileIndex;
use crate::tile::{ArrayMut, Handle, Ptr, PtrTile, Scalar, Source, Tile, caller_location, record};

macro_rules! operations {
    ($methods:ident! $target:tt) => {
        $methods! { $target
            { AtomicAdd Add() atomic_add atomic_add_with atomic_store_add "3" "9" "Atomic addition"
                "Floats round once, to nearest even. Subnormal elements, values and sums of type f32 are zeros of the \
                same sign, as in `red.add.f32`. In [`scratch`](crate::scratch) memory the cpu and ptx back ends keep \
                them. Subnormal numbers of type f16, bf16 and f64 are kept everywhere." }
            { AtomicAdd Sub() atomic_sub atomic_sub_with - "3" "3" "Atomic subtraction"
                "The addition of the negated value: `atomic_add` describes rounding and subnormal numbers." }
            { AtomicMinMax Max() atomic_max atomic_max_with atomic_store_max "3" "6" "Atomic maximum"
                "A value that is NaN changes no element, and -0 is less than +0. An element that is NaN is greater than \
                all numbers, or less than all numbers if its sign bit is set." }
            { AtomicMinMax Min() atomic_min atomic_min_with atomic_store_min "3" "3" "Atomic minimum"
                "A value that is NaN changes no element, and -0 is less than +0. An element that is NaN is greater than \
                all numbers, or less than all numbers if its sign bit is set." }
            { AtomicBits And() atomic_and atomic_and_with atomic_store_and "3" "2" "Atomic bitwise and" "" }
            { AtomicBits Or() atomic_or atomic_or_with atomic_store_or "3" "7" "Atomic bitwise or" "" }
            { AtomicBits Xor() atomic_xor atomic_xor_with atomic_store_xor "3" "5" "Atomic bitwise exclusive or" "" }
            { AtomicXchg Xchg() atomic_xchg atomic_xchg_with - "3" "3" "Atomic exchange" "" }
            { AtomicXchg Cas(expected) atomic_cas atomic_cas_with - "6, 3" "3" "Atomic compare-and-swap"
                "Replaces elements that have the bits of `expected`." }
        }
    };
}

/// An example: a kernel that changes the last of two elements, which are 6.
macro_rules! example {
    ($($line:expr),+; $after:literal) => {
        concat!(
            "```\n# use cutlet as ct;\n# use cutlet::prelude::*;\nfn kernel(x: ArrayMut<i32, 1>) {\n    ",
            $($line),+,
            "\n}\n\nlet mut x = ct::Device::cpu().full([2], 6)?;\nct::launch(kernel, 1, (&mut x,))?;\n\
             assert_eq!(x.to_vec()?, [6, ", $after, "]);\n# Ok::<(), ct::Error>(())\n```"
        )
    };
}

/// The methods with results of one type. `$target` has its generics, the type, and for [`method`]:
///
/// * `unsafe`, the generics and index of a method, the type and rank of values;
/// * the place, notes and contract of the documentation;
/// * the call of the example, its first operands and its end.
macro_rules! methods {
    (([$($generics:tt)*] $ty:ty, $details:tt) $($row:tt)+) => {
        impl<T: ByteSized, $($generics)*> $ty {
            $(method! { $details $row })+
        }
    };
}

macro_rules! method {
    (
        ([$($unsafe:tt)?] [$($generics:tt)*] [$($index:ident: $index_ty:ty)?] $values:ty, $rank:tt;
         $where:literal $notes:literal $safety:literal; $call:literal $first:literal $end:literal)
        { $bound:ident $op:ident($($expected:ident)?) $name:ident $with:ident $store:tt $operands:literal $after:literal
          $what:literal $details:literal }
    ) => {
        #[doc = concat!($what, " ", $where, ". Returns the values before.")]
        ///
        #[doc = $details]
        #[doc = concat!($notes, " Acquires and releases for the device.")]
        #[doc = $safety]
        ///
        #[doc = example!($call, stringify!($name), "(", $first, $operands, $end; $after)]
        #[track_caller]
        pub $($unsafe)? fn $name $($generics)* (
            self,
            $($index: $index_ty,)?
            $($expected: impl Operand<$values>,)?
            value: impl Operand<$values>,
        ) -> $values
        where
            T: $bound,
        {
            let op = AtomicOp::$op$(($expected.source()))?;
            self.atomic(stringify!($name), op, $($index,)? value.source(), AtomicOptions::new())
        }

        #[doc = concat!($what, " ", $where, " with mask, order and bounds check as stated. Otherwise as")]
        #[doc = concat!("[`", stringify!($name), "`](Self::", stringify!($name), ").")]
        #[doc = $safety]
        ///
        #[doc = example!(
            "let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device);\n    ",
            $call, stringify!($with), "(", $first, $operands, ", options", $end; $after
        )]
        #[track_caller]
        pub $($unsafe)? fn $with $($generics)* (
            self,
            $($index: $index_ty,)?
            $($expected: impl Operand<$values>,)?
            value: impl Operand<$values>,
            options: AtomicOptions<$rank>,
        ) -> $values
        where
            T: $bound,
        {
            let op = AtomicOp::$op$(($expected.source()))?;
            self.atomic(stringify!($name), op, $($index,)? value.source(), options)
        }
    };
}

operations! { methods! ([const R: usize] ArrayMut<T, R>, (
    [] [<const N: usize>] [index: impl GatherIndex<R, N>] Tile<T, N>, N;
    "at element indices"
    "The index is that of [`Array::gather`](crate::Array::gather), and is stretched together with the value. Several \
    indices may name the same element: each is applied, in no particular order. Elements outside of the array are not \
    accessed: their result is 0, and that of a compare-and-swap is the expected value. One element by scalars is an \
    [`entry`](ArrayMut::entry)."
    "";
    "let old = x." "ct::astile([1]), " ");\n    ct::assert!(old.eq(6));"
)) }

operations! { methods! ([const R: usize] EntryMut<T, R>, (
    [] [] [] Scalar<T>, 0;
    "of this element"
    "Outside of the array no element is accessed: the result is 0, and that of a compare-and-swap is the expected value."
    "";
    "let old = x.entry(1)." "" ");\n    ct::assert!(old.eq(6));"
)) }

operations! { methods! ([] Ptr<T>, (
    [unsafe] [] [] Scalar<T>, 0;
    "of the element at this address" "No bounds are checked."
    "\n# Safety\nThe contract of [`pointer`](crate::pointer), where the mask is true.";
    "// SAFETY: launched with two elements.\n    let old = unsafe { x.pointer().offset(1)." "" ") };\n    ct::assert!(old.eq(6));"
)) }

operations! { methods! ([const N: usize] PtrTile<T, N>, (
    [unsafe] [] [] Tile<T, N>, N;
    "of the elements at these addresses" "No bounds are checked."
    "\n# Safety\nThe contract of [`pointer`](crate::pointer), where the mask is true.";
    "// SAFETY: launched with two elements.\n    let old = unsafe { x.pointer().offset(1..2)." "" ") };\n    ct::assert!(old.eq(6));"
)) }

impl<T: ByteSized, const R: usize> ArrayMut<T, R> {
    #[track_caller]
    fn atomic<const N: usize>(
        self,
        name: &'static str,
        op: AtomicOp,
        index: impl GatherIndex<R, N>,
        value: Source,
        options: AtomicOptions<N>,
    ) -> Tile<T, N> {
        let target = Target::Elements { array: self.handle, index: &index.components() };
        Tile::from_raw(atomic_on::<T, N>(name, target, op, value, options))
    }
}

impl<T: ByteSized, const R: usize> EntryMut<T, R> {
    #[track_caller]
    fn atomic(self, name: &'static str, op: AtomicOp, value: Source, options: AtomicOptions<0>) -> Scalar<T> {
        Scalar::from_raw(atomic_on::<T, 0>(name, self.target(), op, value, options))
    }
}

impl<T: ByteSized> Ptr<T> {
    #[track_caller]
    fn atomic(self, name: &'static str, op: AtomicOp, value: Source, options: AtomicOptions<0>) -> Scalar<T> {
        Scalar::from_raw(atomic_on::<T, 0>(name, Target::Pointers(self.raw()), op, value, options))
    }
}

impl<T: ByteSized, const N: usize> PtrTile<T, N> {
    #[track_caller]
    fn atomic(self, name: &'static str, op: AtomicOp, value: Source, options: AtomicOptions<N>) -> Tile<T, N> {
        Tile::from_raw(atomic_on::<T, N>(name, Target::Pointers(self.raw()), op, value, options))
    }
}

/// The methods without results, of a type with tile indices: the type; the type of values; its
/// place in the documentation; the call of the example and its first operands.
macro_rules! reductions {
    (([$ty:ty, $values:path, $where:literal $call:literal $value:literal]) $($row:tt)+) => {
        impl<T: ByteSized, const R: usize> $ty {
            $(reduction! { [$values, $where $call $value] $row })+
        }
    };
}

macro_rules! reduction {
    ($target:tt { $bound:ident $op:ident($($expected:ident)?) $name:ident $with:ident - $($doc:literal)+ }) => {};
    (
        [$values:path, $where:literal $call:literal $value:literal]
        { $bound:ident $op:ident() $name:ident $with:ident $store:ident $operands:literal $after:literal
          $what:literal $details:literal }
    ) => {
        #[doc = concat!($what, " ", $where, ", without a result.")]
        ///
        /// Relaxed, for the device: each element is changed in one step, in no order with other
        /// accesses. Elements outside of the array are left alone. The index is that of
        /// [`ArrayMut::store`]. If positions are listed several times, each is applied.
        #[doc = $details]
        ///
        #[doc = example!($call, stringify!($store), "(1, ", $value, ");"; $after)]
        #[track_caller]
        pub fn $store(self, index: impl TileIndex<R>, tile: impl $values)
        where
            T: $bound,
        {
            self.atomic_store(stringify!($store), AtomicOp::$op, index, tile);
        }
    };
}

operations! { reductions! ([
    ArrayMut<T, R>, StoreValue<T, R>, "of a tile with the elements at a tile index" "x." "ct::full([1], 3)"
]) }

operations! { reductions! ([
    TiledView<ArrayMut<T, R>, R>, Operand<Tile<T, R>>,
    "of a tile, or of a scalar or a host value that fills it, with a tile of this view" "x.tiled([1])." "3"
]) }

impl<T: ByteSized, const R: usize> ArrayMut<T, R> {
    #[track_caller]
    fn atomic_store(self, name: &'static str, op: AtomicOp, index: impl TileIndex<R>, tile: impl StoreValue<T, R>) {
        let (place, tile) = (caller_location(), tile.stored());
        record(|t| {
            let (shape, access) = (t.shape(tile), Access::default());
            let tile_access = self.tile_access(place, name, &shape, &access, None);
            t.atomic_store(&tile_access, &index.components(), (op, T::SIGNED), tile);
        });
    }
}

impl<T: ByteSized, const R: usize> TiledView<ArrayMut<T, R>, R> {
    #[track_caller]
    fn atomic_store(self, name: &'static str, op: AtomicOp, index: impl TileIndex<R>, tile: impl Operand<Tile<T, R>>) {
        let tile = full(self.shape, tile);
        self.tile_access(name, self.stores, None, |t, tile_access| {
            t.atomic_store(tile_access, &index.components(), (op, T::SIGNED), tile.raw());
        });
    }
}
