//! Tables of arrays as arguments: the addresses and layouts of several arrays, in device memory.

use crate::util::collect::CollectVec as _;
use std::fmt;

use super::array::DeviceArray;
use super::memory::{Memory, MemoryUse};
use super::view::{DeviceView, DeviceViewMut};
use crate::backend::ParamWord;
use crate::element::ByteSized;
use crate::error::{Error, Result};
use crate::kernel::{ArgSignature, LaunchArg, WordBuffer, arrives_as_it_is};
use crate::runtime::args::array_arg::{Form, form, specialization_word};
use crate::runtime::device::device::Device;
use crate::runtime::graph::GraphResource;
use crate::sealed::Sealed;
use crate::tile::{ArrayInfo, Arrays, ArraysMut, Tracer};

/// Several arrays of one element type and rank as one argument of a launch. The kernel selects
/// among them at run time. In the kernel it is an [`Arrays<T, R>`](crate::Arrays).
///
/// A table borrows the arrays as launches do, and owns a list of their addresses and layouts. The
/// list is made once, on their device. The number and extents of the arrays may differ between
/// tables for the same compiled kernel. The kernel is compiled for the common properties of all
/// arrays (alignment, strides of 1, extents and strides that are multiples of 16).
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// // The sum of each of some vectors.
/// fn sums(x: ct::Arrays<i32, 1>, y: ArrayMut<i32, 1>) {
///     let x = x.get(ct::bid(0));
///     let sum = ct::fold(..x.num_tiles(0, [4]), ct::zeros([4]), |sum, i| sum + x.load(i, [4]));
///     y.store(ct::bid(0), sum.sum(0));
/// }
///
/// let device = ct::Device::cpu();
/// let (a, b) = (device.array(&[1, 2, 3, 4, 5], [5])?, device.array(&[10, 20], [2])?);
/// let table = ct::ArrayTable::new(&[&a, &b, &a])?;
/// let mut y = device.zeros([4])?;
/// ct::launch(sums, 4, (&table, &mut y))?;
/// assert_eq!(y.to_vec()?, [15, 30, 15, 0]);
/// # Ok::<(), ct::Error>(())
/// ```
pub struct ArrayTable<'a, T, const R: usize> {
    arrays: Vec<DeviceView<'a, T, R>>,
    list: List,
}

/// An [`ArrayTable`] whose arrays the kernel may write: it borrows each of them uniquely. In the
/// kernel it is an [`ArraysMut<T, R>`](crate::ArraysMut).
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn fill(y: ct::ArraysMut<i32, 2>) {
///     let which = ct::bid(0);
///     y.get(which).store((0, 0), ct::full([2, 2], which));
/// }
///
/// let device = ct::Device::cpu();
/// let (mut a, mut b) = (device.zeros([2, 2])?, device.zeros([1, 3])?);
/// ct::launch(fill, 3, (ct::ArrayTable::new_mut([&mut a, &mut b])?,))?;
/// assert_eq!((a.to_vec()?, b.to_vec()?), (vec![0; 4], vec![1, 1, 0]));
/// # Ok::<(), ct::Error>(())
/// ```
pub struct ArrayTableMut<'a, T, const R: usize> {
    arrays: Vec<DeviceViewMut<'a, T, R>>,
    list: List,
}

/// The list of arrays, which both kinds of table own.
struct List {
    /// See [`crate::tile::Arrays`].
    words: DeviceArray<i64, 2>,
    first: u64,
    count: usize,
    facts: ArrayInfo,
}

impl List {
    #[track_caller]
    fn new<const R: usize>(arrays: &[(Device, Form<R>)]) -> Result<List> {
        let Some(&(device, Form { address: first, .. })) = arrays.first() else {
            return Err(Error::argument("a table of no arrays: it needs one at least, whose device is its own"));
        };
        if let Some((other, _)) = arrays.iter().find(|(other, _)| *other != device) {
            let message = format!("the arrays of this table are on {device} and on {other}: make all on one device");
            return Err(Error::argument(message));
        }
        let mut facts = arrays[0].1.facts;
        let mut words = Vec::with_capacity(arrays.len() * (1 + 2 * R));
        for (_, form) in arrays {
            facts.index64 |= form.facts.index64;
            facts.extent64 |= form.facts.extent64;
            facts.base_align = facts.base_align.min(form.facts.base_align);
            facts.unit_stride &= form.facts.unit_stride;
            facts.extent_div16 &= form.facts.extent_div16;
            facts.stride_div16 &= form.facts.stride_div16;
            words.push(form.address.wrapping_sub(first) as i64);
            words.extend(form.layout.shape.iter().chain(&form.layout.strides).map(|&n| n as i64));
        }
        let words = device.array(&words, [arrays.len(), 1 + 2 * R])?;
        Ok(List { words, first, count: arrays.len(), facts })
    }

    fn pack(&self, params: &mut dyn FnMut(ParamWord)) {
        [self.words.address(), self.first, self.count as u64].into_iter().for_each(params);
    }
}

impl<'a, T: ByteSized, const R: usize> ArrayTable<'a, T, R> {
    /// Makes a table of these arrays or views, which may contain one of them several times.
    ///
    /// # Errors
    /// [`Error::Argument`] without arrays, or with arrays on several devices; [`Error::Driver`] if
    /// the device has not enough memory or earlier work on it failed.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let (a, b) = (ct::Device::cpu().full([4], 1)?, ct::Device::cpu().full([7], 2)?);
    /// assert_eq!(ct::ArrayTable::new(&[&a, &b, &a])?.len(), 3);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn new<A: Copy + Into<DeviceView<'a, T, R>>>(arrays: &[A]) -> Result<ArrayTable<'a, T, R>> {
        let arrays: Vec<DeviceView<'a, T, R>> = arrays.iter().map(|&array| array.into()).collect_vec();
        let forms: Vec<_> = arrays.iter().map(|a| (a.device(), form::<T, R>(a.memory, &a.layout))).collect_vec();
        Ok(ArrayTable { arrays, list: List::new(&forms)? })
    }

    /// Makes a table of these arrays or views, for kernels that write them.
    ///
    /// # Errors
    /// As [`ArrayTable::new`].
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let (mut a, mut b) = (ct::Device::cpu().full([1], 1)?, ct::Device::cpu().full([1], 2)?);
    /// let table = ct::ArrayTable::new_mut([&mut a, &mut b])?;
    /// ct::launch(|table: ct::ArraysMut<i32, 1>| table.get(1).store_scalar(0, 7), 1, (table,))?;
    /// assert_eq!((a.to_vec()?, b.to_vec()?), (vec![1], vec![7]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn new_mut<A: Into<DeviceViewMut<'a, T, R>>>(
        arrays: impl IntoIterator<Item = A>,
    ) -> Result<ArrayTableMut<'a, T, R>> {
        let arrays: Vec<DeviceViewMut<'a, T, R>> = arrays.into_iter().map(Into::into).collect_vec();
        let forms: Vec<_> = arrays.iter().map(|a| (a.device(), form::<T, R>(a.memory, &a.layout))).collect_vec();
        Ok(ArrayTableMut { arrays, list: List::new(&forms)? })
    }
}

macro_rules! table_methods {
    ($($name:ident)+) => {$(
        impl<T, const R: usize> $name<'_, T, R> {
            /// Returns the number of arrays.
            ///
            /// ```
            /// # use cutlet::doctest::*;
            /// let a = ct::Device::cpu().full([4], 1)?;
            /// assert_eq!(ct::ArrayTable::new(&[&a, &a])?.len(), 2);
            /// # Ok::<(), ct::Error>(())
            /// ```
            #[allow(clippy::len_without_is_empty, reason = "a table has at least one array")]
            pub fn len(&self) -> usize {
                self.arrays.len()
            }
        }

        impl<T, const R: usize> Sealed for $name<'_, T, R> {}

        impl<T, const R: usize> fmt::Debug for $name<'_, T, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} of {} arrays with {R} axes", stringify!($name), self.len())
            }
        }
    )+};
}
table_methods!(ArrayTable ArrayTableMut);

macro_rules! table_argument {
    ($($ty:ty => $traced:ident by $trace:ident, writes $writes:literal;)+) => {$(
        impl<T: ByteSized, const R: usize> LaunchArg for $ty {
            type Traced = $traced<T, R>;
            type Output = ();

            fn into_output(self) {}

            #[inline]
            fn key(&self, key: &mut WordBuffer) {
                key.push(specialization_word(self.list.facts));
            }

            fn forms(&self, out: &mut Vec<ArgSignature>) {
                let (element, facts) = (T::NAME.into(), self.list.facts);
                out.push(ArgSignature::Array { element, rank: R as u32, writes: $writes, table: true, facts });
            }

            fn trace(&self, tracer: &mut Tracer) -> Self::Traced {
                tracer.$trace(self.list.facts)
            }

            #[inline]
            fn memory(&self, visit: &mut dyn FnMut(MemoryUse<'_>)) {
                // The extents of the arrays, which may be empty, are in words in device memory.
                visit(MemoryUse { memory: &self.list.words.memory, writes: false, part: false, empty: true });
                for array in &self.arrays {
                    visit(MemoryUse { memory: array.memory, writes: $writes, part: array.is_part(), empty: true });
                }
            }

            #[inline]
            fn pack(&self, params: &mut dyn FnMut(ParamWord)) {
                self.list.pack(params);
            }
        }

        arrives_as_it_is! { [T: ByteSized, const R: usize] $ty => $traced<T, R>; }
    )+};
}
table_argument! {
    &ArrayTable<'_, T, R> => Arrays by arrays, writes false;
    ArrayTable<'_, T, R> => Arrays by arrays, writes false;
    &mut ArrayTableMut<'_, T, R> => ArraysMut by arrays_mut, writes true;
    ArrayTableMut<'_, T, R> => ArraysMut by arrays_mut, writes true;
}

// SAFETY: it borrows its arrays and owns their list, which is never written.
unsafe impl<T: ByteSized, const R: usize> GraphResource for ArrayTable<'_, T, R> {
    fn arrays(&self, visit: &mut dyn FnMut(&Memory, bool)) {
        self.arrays.arrays(visit);
        self.list.words.arrays(&mut |memory, _| visit(memory, false));
    }
}

// SAFETY: it borrows its arrays uniquely and owns their list, which is never written.
unsafe impl<T: ByteSized, const R: usize> GraphResource for ArrayTableMut<'_, T, R> {
    fn arrays(&self, visit: &mut dyn FnMut(&Memory, bool)) {
        self.arrays.arrays(visit);
        self.list.words.arrays(&mut |memory, _| visit(memory, false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_those_of_all_arrays_and_all_memory_is_ordered() -> Result<()> {
        let device = Device::cpu();
        let (a, b) = (device.zeros::<f32, 2>([32, 64])?, device.zeros::<f32, 2>([48, 20])?);
        let table = ArrayTable::new(&[a.view(), b.view(), a.view().slice(1, 1..17)?])?;
        let facts = table.list.facts;
        assert_eq!((facts.base_align, facts.unit_stride, facts.extent_div16, facts.stride_div16), (4, 0b10, 0b01, 0));
        assert_eq!(table.list.words.to_vec()?[10..], [4, 32, 16, 64, 1]);
        let mut used = Vec::new();
        table.memory(&mut |one| used.push((one.memory().address(), one.writes())));
        assert_eq!(used[1..], [(a.address(), false), (b.address(), false), (a.address(), false)]);
        assert!(!used[0].1);

        let (mut a, mut b) = (a, b);
        let places = [a.address(), b.address()];
        let table = ArrayTable::new_mut([&mut a, &mut b])?;
        let mut used = Vec::new();
        table.memory(&mut |one| used.push((one.memory().address(), one.writes())));
        assert_eq!(used[1..], places.map(|place| (place, true)));
        let mut words = Vec::new();
        table.pack(&mut |word| words.push(word));
        assert_eq!(words, [used[0].0, places[0], 2]);

        let nothing: [&DeviceArray<f32, 1>; 0] = [];
        match ArrayTable::new(&nothing) {
            Err(Error::Argument(problem)) => {
                assert_eq!(problem.message, "a table of no arrays: it needs one at least, whose device is its own");
            }
            other => panic!("an error, got {other:?}"),
        }
        Ok(())
    }
}
