//! Arrays from pointers, extents and strides.

use crate::dtype::DType;
use crate::element::ByteSized;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, Opcode, Sign, Value};
use crate::ops::support::tile_index::{Component, Number, TileIndex};
use crate::tile::{Array, ArrayHandle, ArrayMut, Handle, Place, Ptr, Trace, ValueHandle, caller_location, record};

/// The description of an array.
struct Described<'a> {
    place: Place,
    name: &'static str,
    base: ValueHandle,
    dtype: DType,
    shape: &'a [Component],
    strides: &'a [Component],
}

impl Trace {
    /// Emits the array. Returns `None` after a problem.
    fn described_array(&mut self, wanted: &Described<'_>) -> Option<ArrayHandle> {
        let Described { place, name, base, dtype, shape, strides } = *wanted;
        self.at(place);
        let base = self.check_usable(base, place)?;
        if !self.admits(place, Effect::Read, 0) {
            return None;
        }
        let mut extents = Vec::with_capacity(shape.len());
        for (axis, &component) in shape.iter().enumerate() {
            let number = self.plain_number(place, name, component)?;
            let value = self.length(place, name, ("extent", axis), number)?;
            // The views of Tile IR read numbers as unsigned ones.
            extents.push(match number.known() {
                Some(_) => value,
                None => {
                    let zero = self.integer(0, DType::I64);
                    self.integers(Opcode::MaxI, vec![Attr::Sign(Sign::Signed)], value, zero)
                }
            });
        }
        let (mut steps, mut unit) = (Vec::with_capacity(strides.len()), 0);
        for (axis, &component) in strides.iter().enumerate() {
            let number = self.plain_number(place, name, component)?;
            unit |= u32::from(number.known() == Some(1)) << axis;
            let value = self.length(place, name, ("stride", axis), number)?;
            steps.push(if number.known().is_some() { value } else { self.nonnegative(value) });
        }
        Some(self.make_array(dtype, base, extents, steps, unit))
    }

    fn plain_number(&mut self, place: Place, name: &str, component: Component) -> Option<Number> {
        if let Component::Tiles(number) = component {
            return Some(number);
        }
        let message = format!("`{name}`: this counts elements, also without `ct::at`");
        self.report(place, message, &["write the number or scalar itself"]);
        None
    }

    /// A number as i64; those that the host knows are not negative.
    fn length(&mut self, place: Place, name: &str, (what, axis): (&str, usize), number: Number) -> Option<Value> {
        if let Some(negative) = number.known().filter(|&n| n < 0) {
            let message = format!("`{name}`: {what} {negative} of axis {axis}");
            self.report(place, message, &["extents and strides are not negative; they count elements"]);
            return None;
        }
        let value = self.index_scalar(place, number)?;
        Some(self.as_width(value, DType::I64))
    }
}

macro_rules! arrays {
    ($($method:ident $array:ident, $more:literal;)+) => {$(
        impl<T: ByteSized> Ptr<T> {
            /// Returns an array whose first element is at this address. Shape and strides (in
            /// elements) are numbers and scalars. A negative extent is 0. Bounds are checked as for
            /// any array.
            ///
            /// ```
            /// use cutlet as ct;
            /// use cutlet::prelude::*;
            ///
            /// // A matrix that lies behind a header of its own, column by column.
            /// fn untangle(file: Array<i64, 1>, y: ArrayMut<i64, 2>) {
            ///     let (rows, columns) = (file.load_scalar(0), file.load_scalar(1));
            ///     // SAFETY: the host has put rows * columns elements behind the two numbers.
            ///     let matrix = unsafe { file.pointer().offset(2).array((rows, columns), (1, rows)) };
            ///     y.store((0, 0), matrix.load((0, 0), [2, 4]));
            /// }
            ///
            /// let device = ct::Device::cpu();
            /// let file = device.array(&[2, 3, 11, 21, 12, 22, 13, 23], [8])?;
            /// let mut y = device.zeros([2, 4])?;
            /// ct::launch(untangle, 1, (&file, &mut y))?;
            /// assert_eq!(y.to_vec()?, [11, 12, 13, 0, 21, 22, 23, 0]);
            /// # Ok::<(), ct::Error>(())
            /// ```
            ///
            /// # Safety
            /// The contract of [`pointer`](crate::pointer) holds for all elements of the array that
            /// are accessed; strides are not negative.
            #[doc = $more]
            #[track_caller]
            #[must_use]
            pub unsafe fn $method<const R: usize>(
                self,
                shape: impl TileIndex<R>,
                strides: impl TileIndex<R>,
            ) -> $array<T, R> {
                const { assert!(R > 0 && R <= 16, "an array from a pointer has 1 to 16 axes") };
                let (shape, strides) = (&shape.components(), &strides.components());
                let (place, name) = (caller_location(), stringify!($method));
                let wanted = Described { place, name, base: self.raw(), dtype: T::DTYPE, shape, strides };
                $array::from_handle(record(|t| {
                    t.described_array(&wanted).unwrap_or_else(|| t.poison_array(R))
                }))
            }
        }
    )+};
}
arrays! {
    array Array, "Where the kernel writes the memory otherwise, it does so between accesses of the same tile block, or \
        nobody reads what is written.";
    array_mut ArrayMut, "Different indices are different elements.";
}
