//! Arrays and descriptions of arrays as arguments of a launch.
//!
//! Interface to the front end: an array becomes a traced `Array` or `ArrayMut`. Its facts become a
//! word of the specialization key. Its address, extents and strides become parameter words, in this
//! order.

use std::marker::PhantomData;

use crate::backend::ParamWord;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::ir::MAX_TILE_ELEMENTS;
use crate::kernel::{ArgSignature, LaunchArg, WordBuffer, arrives_as_it_is};
use crate::pass::Symbol;
use crate::runtime::array::array::DeviceArray;
use crate::runtime::array::memory::{Memory, MemoryUse};
use crate::runtime::array::pack_host;
use crate::runtime::array::strided::Strided;
use crate::runtime::array::view::{DeviceView, DeviceViewMut};
use crate::sealed::Sealed;
use crate::tile::{Array, ArrayInfo, ArrayMut, Tracer};

/// The alignment of addresses that the code generator uses, in bytes.
const WIDE_ALIGNMENT: u32 = 16;

/// The maximum extent with 32-bit indices, including those of a tile that extends beyond the array.
const LARGEST_EXTENT: usize = i32::MAX as usize - MAX_TILE_ELEMENTS as usize;

/// Returns the facts of an array of this form for a launch.
#[inline]
fn facts<T: Element, const R: usize>(address: u64, layout: &Strided<R>) -> ArrayInfo {
    const { assert!(R <= 16, "an array of a kernel has at most 16 dimensions") };
    let wide = address.is_multiple_of(u64::from(WIDE_ALIGNMENT));
    let mut facts = ArrayInfo {
        base_align: if wide { WIDE_ALIGNMENT } else { T::DTYPE.storage_bits().div_ceil(8) },
        ..ArrayInfo::default()
    };
    let mut last = 0usize;
    for d in 0..R {
        let (extent, stride) = (layout.shape[d], layout.strides[d]);
        facts.unit_stride |= u32::from(stride == 1) << d;
        facts.extent_div16 |= u32::from(extent % 16 == 0) << d;
        facts.stride_div16 |= u32::from(stride % 16 == 0) << d;
        facts.index64 |= stride > i32::MAX as usize || extent > LARGEST_EXTENT;
        facts.extent64 |= extent > i32::MAX as usize;
        last = last.saturating_add(extent.saturating_sub(1).saturating_mul(stride));
    }
    facts.index64 |= last > i32::MAX as usize || index64_is_forced();
    facts
}

#[cfg(feature = "_suite")]
thread_local! {
    static FORCED_INDEX64: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Runs `body` with 64-bit indices for the arrays of all launches of this thread, regardless of
/// their sizes. Small arrays then test the code of arrays beyond 2^31 elements.
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub fn with_index64<T>(body: impl FnOnce() -> T) -> T {
    let _scoped = crate::util::task::Scoped::set(&FORCED_INDEX64, true);
    body()
}

#[cfg(feature = "_suite")]
fn index64_is_forced() -> bool {
    FORCED_INDEX64.get()
}

#[cfg(not(feature = "_suite"))]
const fn index64_is_forced() -> bool {
    false
}

/// The description of an array in a table of arrays.
#[derive(Clone, Copy)]
pub(crate) struct Form<const R: usize> {
    pub address: u64,
    pub layout: Strided<R>,
    pub facts: ArrayInfo,
}

/// Returns the form of the part of an allocation that a view shows.
pub(crate) fn form<T: Element, const R: usize>(memory: &Memory, layout: &Strided<R>) -> Form<R> {
    let address = address_of::<T, R>(memory, layout);
    Form { address, layout: *layout, facts: facts::<T, R>(address, layout) }
}

/// Returns the facts of an array that the launch allocates.
pub(crate) fn facts_of_new<T: Element, const R: usize>(shape: [usize; R]) -> ArrayInfo {
    ArraySpec::<T, R>::new(shape).facts()
}

/// Passes the parameter words of a whole array.
pub(crate) fn pack_array<T: Element, const R: usize>(array: &DeviceArray<T, R>, params: &mut dyn FnMut(ParamWord)) {
    pack(address_of::<T, R>(&array.memory, &array.layout), &array.layout, params);
}

/// Passes the parameter words of a row-major array that is not allocated yet.
pub(crate) fn pack_new<T: Element, const R: usize>(shape: [usize; R], params: &mut dyn FnMut(ParamWord)) {
    ArraySpec::<T, R>::new(shape).pack(params);
}

/// Returns the form of an array that a kernel reads, or `writes`.
pub(crate) fn array_form<T: Element, const R: usize>(writes: bool, facts: ArrayInfo) -> ArgSignature {
    ArgSignature::Array { element: T::NAME.into(), rank: R as u32, writes, table: false, facts }
}

/// Returns the facts in one word: 2 bits of widths, 8 bits of alignment, 3 * 16 bits of dimensions.
#[inline]
pub(crate) fn specialization_word(facts: ArrayInfo) -> u64 {
    let ArrayInfo { index64, extent64, base_align, unit_stride, extent_div16, stride_div16 } = facts;
    u64::from(index64)
        | u64::from(extent64) << 1
        | u64::from(base_align) << 8
        | u64::from(unit_stride) << 16
        | u64::from(extent_div16) << 32
        | u64::from(stride_div16) << 48
}

#[inline]
fn pack<const R: usize>(address: u64, layout: &Strided<R>, params: &mut dyn FnMut(ParamWord)) {
    params(address);
    layout.shape.iter().chain(&layout.strides).for_each(|&n| params(n as ParamWord));
}

/// Returns the address of the first element.
#[inline]
pub(super) fn address_of<T: Element, const R: usize>(memory: &Memory, layout: &Strided<R>) -> u64 {
    memory.address() + pack_host::byte_offset::<T>(layout.offset) as u64
}

macro_rules! array_argument {
    ($($ty:ty => $traced:ident by $trace:ident, writes $writes:literal;)+) => {$(
        impl<T: Element, const R: usize> LaunchArg for $ty {
            type Traced = $traced<T, R>;
            type Output = ();

            fn into_output(self) {}

            #[inline]
            fn key(&self, key: &mut WordBuffer) {
                key.push(specialization_word(facts::<T, R>(address_of::<T, R>(&self.memory, &self.layout), &self.layout)));
            }

            fn forms(&self, out: &mut Vec<ArgSignature>) {
                let facts = facts::<T, R>(address_of::<T, R>(&self.memory, &self.layout), &self.layout);
                out.push(array_form::<T, R>($writes, facts));
            }

            fn trace(&self, tracer: &mut Tracer) -> Self::Traced {
                tracer.$trace(facts::<T, R>(address_of::<T, R>(&self.memory, &self.layout), &self.layout))
            }

            #[inline]
            fn memory(&self, visit: &mut dyn FnMut(MemoryUse<'_>)) {
                let (part, empty) = (self.is_part(), self.layout.len() == 0);
                visit(MemoryUse { memory: &self.memory, writes: $writes, part, empty });
            }

            #[inline]
            fn pack(&self, params: &mut dyn FnMut(ParamWord)) {
                pack(address_of::<T, R>(&self.memory, &self.layout), &self.layout, params);
            }
        }

        arrives_as_it_is! { [T: Element, const R: usize] $ty => $traced<T, R>; }
    )+};
}

array_argument! {
    &DeviceArray<T, R> => Array by array, writes false;
    &DeviceView<'_, T, R> => Array by array, writes false;
    DeviceView<'_, T, R> => Array by array, writes false;
    &mut DeviceArray<T, R> => ArrayMut by array_mut, writes true;
    &mut DeviceViewMut<'_, T, R> => ArrayMut by array_mut, writes true;
    DeviceViewMut<'_, T, R> => ArrayMut by array_mut, writes true;
}

/// The description of an array without memory: an argument of [`inspect`](crate::inspect()) and
/// [`export`](crate::export).
///
/// The array is row-major and aligned by default. A launch with it is an error.
///
/// ```
/// use cutlet as ct;
/// let a = ct::ArraySpec::<f32, 2>::new([1024, 512]);
/// let c = ct::ArraySpec::<f32, 2>::new([1024, 512]).strides([1, 1024])?.mutable();
/// # let _ = (a, c);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ArraySpec<T, const R: usize> {
    layout: Strided<R>,
    /// Extents and strides that a proof leaves open.
    symbols: Option<[[Symbol; R]; 2]>,
    address: u64,
    element: PhantomData<T>,
}

/// An [`ArraySpec`] of an array that the kernel may write.
///
/// ```
/// # use cutlet::doctest::*;
/// let x = ct::ArraySpec::<f32, 1>::new([1024]);
/// let text = ct::inspect(|x: ArrayMut<f32, 1>| x.store(0, ct::zeros([64])), (x.mutable(),)).ir()?;
/// assert!(text.contains("store_view_tko"));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ArraySpecMut<T, const R: usize>(ArraySpec<T, R>);

impl<T: Element, const R: usize> ArraySpec<T, R> {
    /// Describes a row-major array of this shape, whose address is a multiple of 16.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 2>::new([1000, 64]);
    /// let text = ct::inspect(|x: Array<f32, 2>| ct::println!("{}", x.load((0, 0), [1, 64]).sum(..)), (x,)).target(ct::Target::SM_80).ptx()?;
    /// assert!(text.contains(".target sm_80"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn new(shape: [usize; R]) -> ArraySpec<T, R> {
        // An array that is too large to exist has the extents and strides of the largest one. Only
        // its 64-bit indices matter.
        let shape = shape.map(|extent| extent.min(i64::MAX as usize));
        let layout =
            Strided::contiguous(shape).unwrap_or(Strided { offset: 0, shape, strides: [i64::MAX as usize; R] });
        ArraySpec { layout, symbols: None, address: 0, element: PhantomData }
    }

    /// Describes a row-major array whose extents are [symbols](Symbol), for
    /// [`prove_for_all`](crate::prove_for_all).
    ///
    /// The code has the form for the greatest extents: the width of indices, and multiples of 16.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// let (m, n) = (ct::Symbol::new("m", 1..=4096), ct::Symbol::new("n", 1..=4096));
    /// let x = ct::ArraySpec::<f32, 2>::symbolic([m, n * 16]);
    /// # let _ = x;
    /// ```
    pub fn symbolic(shape: [Symbol; R]) -> ArraySpec<T, R> {
        let mut strides = [Symbol::from(1); R];
        for d in (1..R).rev() {
            strides[d - 1] = shape[d] * strides[d];
        }
        ArraySpec { symbols: Some([shape, strides]), ..ArraySpec::new(shape.map(Symbol::representative)) }
    }

    /// Sets the strides, in elements.
    ///
    /// # Errors
    /// [`Error::Argument`] if a stride is 0, or exceeds i64.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let column_major = ct::ArraySpec::<f32, 2>::new([1000, 64]).strides([1, 1000])?;
    /// assert!(ct::inspect(|x: Array<f32, 2>| ct::println!("{}", x.load((0, 0), [4, 4])), (column_major,)).ir().is_ok());
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn strides(mut self, strides: [usize; R]) -> Result<ArraySpec<T, R>> {
        if let Some(stride) = strides.iter().find(|&&stride| stride == 0 || i64::try_from(stride).is_err()) {
            let reason = if *stride == 0 { "is at least 1" } else { "is less than 2^63" };
            return Err(Error::argument(format!("strides {strides:?}: a stride {reason}")));
        }
        self.layout.strides = strides;
        if let Some([_, symbols]) = &mut self.symbols {
            *symbols = strides.map(Symbol::from);
        }
        Ok(self)
    }

    /// Sets the alignment of the address to the element size.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let anywhere = ct::ArraySpec::<f32, 1>::new([1000]).unaligned();
    /// assert!(ct::inspect(|x: Array<f32, 1>| ct::println!("{}", x.load(0, [4])), (anywhere,)).ir().is_ok());
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn unaligned(mut self) -> ArraySpec<T, R> {
        self.address = u64::from(T::DTYPE.storage_bits().div_ceil(8));
        self
    }

    /// Returns the description of an array that the kernel may write.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([1024]);
    /// assert!(ct::inspect(|x: ArrayMut<f32, 1>| x.store(0, ct::zeros([64])), (x.mutable(),)).ir().is_ok());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn mutable(self) -> ArraySpecMut<T, R> {
        ArraySpecMut(self)
    }

    fn facts(&self) -> ArrayInfo {
        facts::<T, R>(self.address, &self.layout)
    }

    pub(crate) fn layout(&self) -> Strided<R> {
        self.layout
    }
}

impl<T: Element, const R: usize> Sealed for ArraySpec<T, R> {}

impl<T: Element, const R: usize> LaunchArg for ArraySpec<T, R> {
    type Traced = Array<T, R>;
    type Output = ();

    fn into_output(self) {}

    fn key(&self, key: &mut WordBuffer) {
        key.push(specialization_word(self.facts()));
    }

    fn forms(&self, out: &mut Vec<ArgSignature>) {
        out.push(array_form::<T, R>(false, self.facts()));
    }

    fn trace(&self, tracer: &mut Tracer) -> Array<T, R> {
        tracer.array(self.facts())
    }

    fn memory(&self, visit: &mut dyn FnMut(MemoryUse<'_>)) {
        visit(MemoryUse { memory: Memory::absent(), writes: false, part: false, empty: self.layout.len() == 0 });
    }

    fn pack(&self, params: &mut dyn FnMut(ParamWord)) {
        let Some([shape, strides]) = self.symbols else { return pack(self.address, &self.layout, params) };
        params(self.address);
        let words = self.layout.shape.iter().chain(&self.layout.strides);
        for (symbol, &word) in shape.into_iter().chain(strides).zip(words) {
            symbol.pack(word as ParamWord, params);
        }
    }
}

arrives_as_it_is! {
    [T: Element, const R: usize] ArraySpec<T, R> => Array<T, R>;
    [T: Element, const R: usize] ArraySpecMut<T, R> => ArrayMut<T, R>;
}

impl<T, const R: usize> ArraySpecMut<T, R> {
    pub(crate) fn layout(&self) -> Strided<R> {
        self.0.layout
    }
}

impl<T: Element, const R: usize> Sealed for ArraySpecMut<T, R> {}

impl<T: Element, const R: usize> LaunchArg for ArraySpecMut<T, R> {
    type Traced = ArrayMut<T, R>;
    type Output = ();

    fn into_output(self) {}

    fn key(&self, key: &mut WordBuffer) {
        self.0.key(key);
    }

    fn forms(&self, out: &mut Vec<ArgSignature>) {
        out.push(array_form::<T, R>(true, self.0.facts()));
    }

    fn trace(&self, tracer: &mut Tracer) -> ArrayMut<T, R> {
        tracer.array_mut(self.0.facts())
    }

    fn memory(&self, visit: &mut dyn FnMut(MemoryUse<'_>)) {
        visit(MemoryUse { memory: Memory::absent(), writes: true, part: false, empty: self.0.layout.len() == 0 });
    }

    fn pack(&self, params: &mut dyn FnMut(ParamWord)) {
        self.0.pack(params);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::Device;

    fn facts_of(arg: &impl LaunchArg) -> u64 {
        let mut key = WordBuffer::default();
        arg.key(&mut key);
        key.words()[0]
    }

    #[test]
    fn keys_contain_all_dependences_of_code() -> Result<()> {
        let a = Device::cpu().zeros::<f32, 2>([64, 48])?;
        let whole = facts_of(&&a);
        assert_eq!(whole, facts_of(&ArraySpec::<f32, 2>::new([16, 16])));
        // Only the odd start changes, then only the odd extent, then the odd stride.
        assert_ne!(whole, facts_of(&a.slice(1, 1..17)?));
        assert_eq!(whole, facts_of(&a.slice(1, 16..32)?));
        assert_ne!(whole, facts_of(&a.slice(1, 0..17)?));
        assert_ne!(whole, facts_of(&ArraySpec::<f32, 2>::new([16, 16]).strides([17, 1])?));
        assert_ne!(whole, facts_of(&a.transpose()?));
        assert_ne!(whole, facts_of(&ArraySpec::<f32, 2>::new([16, 16]).unaligned()));
        Ok(())
    }

    #[test]
    fn index_width_follows_the_largest_offset() {
        let wide = |shape: [usize; 2]| ArraySpec::<u8, 2>::new(shape).facts().index64;
        assert!(!wide([1 << 16, 1 << 15]));
        assert!(wide([(1 << 16) + 1, 1 << 15]));
        assert!(wide([1, usize::MAX]));
        // A tile of 2^24 elements that starts inside still ends within 31 bits.
        assert!(!wide([1, (1 << 31) - (1 << 24) - 1]));
        assert!(wide([1, (1 << 31) - (1 << 24)]));
        assert!(!wide([0, 5]));
    }

    #[test]
    fn parameters_are_address_extents_strides() -> Result<()> {
        let a = Device::cpu().zeros::<i16, 2>([4, 6])?;
        let view = a.slice(1, 2..5)?.transpose()?;
        let mut words = Vec::new();
        view.pack(&mut |word| words.push(word));
        assert_eq!(words, [a.address() + 4, 3, 4, 1, 6]);
        Ok(())
    }
}
