//! Tables of arrays inside kernels.

use std::marker::PhantomData;

use super::array_info::ArrayInfo;
use super::trace::ValueHandle;

/// Read-only arrays in device memory with elements of type `T` and `R` dimensions, one of which the
/// kernel selects by index.
///
/// The launch makes it from an [`ArrayTable`](crate::ArrayTable). `Copy`: a handle.
///
/// ```
/// # use cutlet::doctest::*;
/// fn firsts(table: ct::Arrays<i32, 1>, y: ArrayMut<i32, 1>) {
///     y.store_scalar(ct::bid(0), table.get(ct::bid(0)).load_scalar(0));
/// }
///
/// let device = ct::Device::cpu();
/// let (a, b, mut y) = (device.full([7], 1)?, device.full([5], 2)?, device.zeros([2])?);
/// ct::launch(firsts, 2, (&ct::ArrayTable::new(&[&a, &b])?, &mut y))?;
/// assert_eq!(y.to_vec()?, [1, 2]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Arrays<T, const R: usize> {
    pub(crate) handle: TableHandle,
    element: PhantomData<T>,
}

/// Writable [`Arrays`].
///
/// The launch makes it from an [`ArrayTableMut`](crate::ArrayTableMut). `Copy`: a handle.
///
/// ```
/// # use cutlet as ct;
/// fn number(table: ct::ArraysMut<i32, 1>) {
///     table.get(ct::bid(0)).store_scalar(0, ct::bid(0) + 1);
/// }
///
/// let (mut a, mut b) = (ct::Device::cpu().zeros([1])?, ct::Device::cpu().zeros([1])?);
/// ct::launch(number, 2, (ct::ArrayTable::new_mut([&mut a, &mut b])?,))?;
/// assert_eq!((a.to_vec()?, b.to_vec()?), (vec![1], vec![2]));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ArraysMut<T, const R: usize> {
    pub(crate) handle: TableHandle,
    element: PhantomData<T>,
}

/// A table of arrays in a trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableHandle {
    /// The address of the table. For each array it contains the distance in bytes from the first
    /// one, then extents and strides, all as i64.
    pub words: ValueHandle,
    /// The address of the first array.
    pub first: ValueHandle,
    /// The number of arrays, as i32.
    pub count: ValueHandle,
    /// The properties that the launch has determined for all arrays.
    pub facts: ArrayInfo,
}

macro_rules! table_handle {
    ($($name:ident)+) => {$(
        impl<T, const R: usize> $name<T, R> {
            pub(crate) fn from_handle(handle: TableHandle) -> Self {
                $name { handle, element: PhantomData }
            }
        }
    )+};
}
table_handle!(Arrays ArraysMut);
