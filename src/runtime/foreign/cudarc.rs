//! Conversions from and to cudarc: streams, slices and views, ordered by the events of cudarc.
//!
//! candle keeps its tensors in these slices. A kernel for a `CustomOp` of candle is therefore a
//! closure in [`with`].
//!
//! | from | to | by |
//! |---|---|---|
//! | `Arc<CudaStream>` | [`Stream`] | [`stream`] |
//! | `CudaSlice<T>` | [`DeviceArray`], owned | [`array()`] |
//! | [`DeviceArray`] | `CudaSlice<T>`, owned | [`slice()`] |
//! | `CudaSlice`, `CudaView`, `CudaViewMut` | [`DeviceView`], [`DeviceViewMut`] in a closure | [`read`], [`write()`] and [`with`] |
//! | [`DeviceArray`] | `CudaView`, `CudaViewMut` in a closure | [`lend`], [`lend_mut`] |
//!
//! Slices and views are also arguments of a launch, in place of arrays of one axis. [`read`] and
//! [`write()`] return them in another shape:
//!
//! ```no_run
//! # use cudarc::driver::CudaContext;
//! use cutlet as ct;
//! use cutlet::foreign::cudarc::{read, write};
//! use cutlet::prelude::*;
//!
//! fn double(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
//!     y.store(ct::bid(0), x.load(ct::bid(0), [256]) * 2.0);
//! }
//! fn transpose(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
//!     y.store((ct::bid(0), ct::bid(1)), x.load((ct::bid(1), ct::bid(0)), [32, 32]).transpose());
//! }
//!
//! let stream = CudaContext::new(0)?.new_stream()?;
//! let x = stream.clone_htod(&[1.5f32; 1000])?;
//! let (mut y, mut z) = (stream.alloc_zeros::<f32>(1000)?, stream.alloc_zeros::<f32>(1000)?);
//! let ours = ct::foreign::cudarc::stream(&stream)?; // for launches in the order of cudarc
//! ct::Launch::new(4).stream(&ours).launch(double, (&x, &mut y))?;
//! ct::Launch::new([2, 1]).stream(&ours).launch(transpose, (read(&y, [20, 50])?, write(&mut z, [50, 20])?))?;
//! assert_eq!(stream.clone_dtoh(&z)?, [3.0; 1000]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Such a launch may be on any stream. It follows the earlier work on each slice, and later work on
//! the stream of the slice follows the launch. On the stream of the slices no wait is needed.
//!
//! No elements are copied, and the host does not wait. All resources belong to the primary context
//! of a GPU, that of `CudaContext::new`. The unsafe function `CudaContext::disable_event_tracking`
//! switches event tracking off. Its caller must then order the streams of cudarc among each other.
//!
//! cudarc (0.19) considers the events of a slice only while its context counts a live stream, made
//! by `CudaContext::new_stream` or `CudaStream::fork`. With the last of these streams, cudarc
//! forgets work on a second stream. The functions of this module therefore hold a counted stream
//! during the transfer of a slice, unless their argument is one.

mod launch_arg;

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use ::cudarc::driver::{
    CudaContext, CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtrMut, DeviceSlice, DriverError, SyncOnDrop,
};

use super::layout;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::runtime::array::array::DeviceArray;
use crate::runtime::array::pack_host;
use crate::runtime::array::stream_order::Access;
use crate::runtime::array::strided::Strided;
use crate::runtime::array::view::{DeviceView, DeviceViewMut};
use crate::runtime::device::gpu::{Gpu, StreamHandle};
use crate::runtime::device::stream::Stream;
use crate::sealed::Sealed;

use private::Token;

pub use launch_arg::{ReadArg, WriteArg};

/// Private items of public traits: the traits are sealed, and only [`with`] uses their methods.
mod private {
    pub struct Token {
        pub(super) _own: (),
    }
}

/// Returns the [`Stream`] of a stream of cudarc, for launches and arrays, which keep that stream
/// alive.
///
/// ```no_run
/// # use cudarc::driver::CudaContext;
/// let theirs = CudaContext::new(0)?.new_stream()?;
/// let ours = cutlet::foreign::cudarc::stream(&theirs)?;
/// assert_eq!(ours.raw(), theirs.cu_stream().cast());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for a stream of another context than the primary one of its GPU;
/// [`Error::NoDevice`] and [`Error::Driver`] if that GPU cannot be opened, or earlier work on it
/// failed.
#[track_caller]
pub fn stream(stream: &Arc<CudaStream>) -> Result<Stream> {
    handle(stream).map(Stream::from_handle)
}

#[track_caller]
fn handle(stream: &Arc<CudaStream>) -> Result<StreamHandle> {
    let gpu = gpu_of(stream.context())?;
    // SAFETY: the stream of cudarc is alive as long as its owner.
    unsafe { StreamHandle::foreign(gpu, stream.cu_stream().cast(), Box::new(stream.clone())) }
}

#[track_caller]
fn gpu_of(context: &CudaContext) -> Result<&'static Gpu> {
    let gpu = Gpu::get(context.ordinal())?;
    if gpu.context.cast::<()>() != context.cu_ctx().cast::<()>() {
        let what =
            format!("this is not the primary context of GPU {} ({}): use `CudaContext::new`", gpu.ordinal, gpu.name);
        return Err(Error::argument(what));
    }
    Ok(gpu)
}

fn failed(call: &'static str, error: DriverError) -> Error {
    Error::Driver { call, code: format!("{:?}", error.0), text: "a call of cudarc".into() }
}

/// A guard that makes cudarc consider the events of slices: it holds a stream that the context
/// counts.
struct Counted {
    _stream: Option<Arc<CudaStream>>,
}

impl Counted {
    /// Returns a guard for the time of the borrow of `given`. It is empty if `given` is counted.
    fn for_stream(given: &CudaStream) -> Result<Counted> {
        let context = given.context();
        if !context.is_event_tracking() || !needs_another(given.cu_stream() as usize, context.is_in_multi_stream_mode())
        {
            return Ok(Counted { _stream: None });
        }
        // Not a fork of `given`, which may be captured. Not a new stream, which waits for the
        // context.
        let stream = context.per_thread_stream().fork().map_err(|error| failed("cuStreamCreate", error))?;
        Ok(Counted { _stream: Some(stream) })
    }
}

/// Returns true if the context may not count the stream `raw`. `any`: whether the context counts
/// streams. The legacy default stream (0 and 1) and that of the thread (2) are not counted. A
/// stream of another library is not counted either, but is indistinguishable from a counted one.
/// Its owner orders it.
fn needs_another(raw: usize, any: bool) -> bool {
    raw <= 2 || !any
}

/// Rejects elements that share bytes: in a slice, each element has a whole byte.
#[track_caller]
fn refuse_packed<T: Element>() -> Result<()> {
    match pack_host::is_packed::<T>() {
        true => Err(Error::argument(format!("a slice of {}, of which a byte has two: use u8", T::NAME))),
        false => Ok(()),
    }
}

#[track_caller]
fn row_major<T: Element, const R: usize>(shape: [usize; R], len: usize) -> Result<Strided<R>> {
    refuse_packed::<T>()?;
    match Strided::contiguous(shape).filter(|layout| layout.len() == len) {
        Some(layout) => Ok(layout),
        None => {
            Err(Error::argument(format!("a slice of {len} elements cannot be read as an array of shape {shape:?}")))
        }
    }
}

/// Converts a slice that cudarc allocated to a row-major array. cudarc frees it, in the order of
/// its stream. Work on the array is ordered after the uses of the slice on all streams, including
/// dropped ones.
///
/// ```no_run
/// # use cudarc::driver::CudaContext;
/// let stream = CudaContext::new(0)?.new_stream()?;
/// let slice = stream.clone_htod(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let a = cutlet::foreign::cudarc::array(slice, [2, 3])?;
/// assert_eq!(a.transpose()?.to_vec()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
/// let slice = cutlet::foreign::cudarc::slice(a, &stream)?; // the same one
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for another number of elements and for elements of four bits; else as
/// [`stream`]. After an error the slice is dropped.
#[track_caller]
pub fn array<T: Element, const R: usize>(mut slice: CudaSlice<T>, shape: [usize; R]) -> Result<DeviceArray<T, R>> {
    let layout = row_major::<T, R>(shape, slice.len())?;
    let theirs = slice.stream().clone();
    let ours = stream(&theirs)?;
    let _counted = Counted::for_stream(&theirs)?;
    // Orders the stream of the slice after the uses of the slice on other streams.
    let (address, used) = slice.device_ptr_mut(&theirs);
    drop(used);
    theirs.context().check_err().map_err(|error| failed("cuStreamWaitEvent", error))?;
    // SAFETY: the slice has these elements and is owned by the array; its stream is ordered after
    // every use.
    unsafe { ours.foreign_array(address, shape, layout.strides, slice) }
}

/// Converts an array to a slice of cudarc with the same memory, in row-major order. cudarc frees it
/// from then on. Work on `stream` is ordered after the queued work on the array. For an array of
/// [`array()`], the result is the original slice, with the stream that it had.
///
/// # Errors
/// [`Error::Argument`] for an array on another device than the stream, with gaps or in another
/// order, of elements of four bits, or over memory of another library; else as [`stream`]. After an
/// error the array is dropped.
#[track_caller]
pub fn slice<T: Element, const R: usize>(array: DeviceArray<T, R>, stream: &Arc<CudaStream>) -> Result<CudaSlice<T>> {
    check_borrow(&array, stream)?;
    let (ours, len) = (handle(stream)?, array.len());
    let memory = match array.memory.into_owner()? {
        Ok(owner) => {
            return owner.downcast().map(|slice: Box<CudaSlice<T>>| *slice).map_err(|_| {
                Error::argument("the array is in memory of another library, which cudarc cannot free: lend it")
            });
        }
        Err(memory) => memory,
    };
    if memory.is_empty() {
        return stream.null().map_err(|error| failed("cuMemAllocAsync", error));
    }
    can_upgrade(stream)?;
    let address = memory.release_to_caller(&ours)?;
    // SAFETY: an allocation of the same context with these elements. It is freed by the same
    // function: in the order of a stream if the GPU has memory pools, else at once.
    Ok(unsafe { stream.upgrade_device_ptr(address, len) })
}

/// Returns an error if events cannot be made: `upgrade_device_ptr` makes two, and panics on a
/// failure.
fn can_upgrade(stream: &Arc<CudaStream>) -> Result<()> {
    stream.context().bind_to_thread().map_err(|error| failed("cuCtxSetCurrent", error))?;
    stream.context().new_event(None).map(drop).map_err(|error| failed("cuEventCreate", error))
}

#[track_caller]
fn check_borrow<T: Element, const R: usize>(array: &DeviceArray<T, R>, stream: &Arc<CudaStream>) -> Result<()> {
    refuse_packed::<T>()?;
    let gpu = gpu_of(stream.context())?;
    match array.device().as_gpu() {
        Some(own) if std::ptr::eq(own, gpu) => {}
        _ => {
            let (own, ordinal) = (array.device(), gpu.ordinal);
            return Err(Error::argument(format!("the array is on {own}, the stream on GPU {ordinal}")));
        }
    }
    if !array.layout.is_contiguous() {
        let Strided { shape, strides, .. } = array.layout;
        return Err(Error::argument(format!("an array of shape {shape:?} and strides {strides:?} is no slice")));
    }
    Ok(())
}

/// A slice of cudarc over a borrowed array, which frees nothing. Its drop orders its stream after
/// its uses.
struct BorrowedSlice<T> {
    slice: ManuallyDrop<CudaSlice<T>>,
    /// Dropped last: `leak` waits for the events of the slice while a stream is counted.
    _counted: Counted,
}

impl<T> Drop for BorrowedSlice<T> {
    fn drop(&mut self) {
        // SAFETY: moved out once, and not used afterwards.
        unsafe { ManuallyDrop::take(&mut self.slice) }.leak();
    }
}

#[track_caller]
fn borrowed<T: Element, const R: usize>(
    array: &DeviceArray<T, R>,
    stream: &Arc<CudaStream>,
    writes: bool,
) -> Result<(StreamHandle, BorrowedSlice<T>)> {
    check_borrow(array, stream)?;
    let ours = handle(stream)?;
    let _counted = Counted::for_stream(stream)?;
    can_upgrade(stream)?;
    array.memory.before_use(&ours, Access::of(writes, false))?;
    // SAFETY: these are the elements of the array, which remains borrowed. The slice does not free
    // them.
    let slice = unsafe { stream.upgrade_device_ptr(array.address(), array.len()) };
    Ok((ours, BorrowedSlice { slice: ManuallyDrop::new(slice), _counted }))
}

/// Borrows an array in row-major order for functions of cudarc that read it, for example cuBLAS.
///
/// The work of the closure is ordered after the earlier work on the array, and later work on the
/// array is ordered after it. This applies to `stream` and to functions of cudarc on any other
/// stream, including one that is dropped meanwhile. Of several reads on other streams, cudarc
/// remembers only the last one. For reads on more than one of them, the closure must let `stream`
/// wait: `CudaStream::join`.
///
/// ```no_run
/// # use cudarc::driver::CudaContext;
/// let stream = CudaContext::new(0)?.new_stream()?;
/// let a = cutlet::Device::gpu(0)?.full([1000], 1.5f32)?;
/// let copy = cutlet::foreign::cudarc::lend(&a, &stream, |view| stream.clone_dtod(&view))??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`slice()`], but memory of other libraries is accepted.
#[track_caller]
pub fn lend<T: Element, const R: usize, X>(
    array: &DeviceArray<T, R>,
    stream: &Arc<CudaStream>,
    work: impl for<'v> FnOnce(CudaView<'v, T>) -> X,
) -> Result<X> {
    let (_open, borrowed) = borrowed(array, stream, false)?;
    Ok(work(borrowed.slice.as_view()))
}

/// Borrows an array for functions of cudarc that write it, as [`lend`].
///
/// # Errors
/// As [`lend`].
#[track_caller]
pub fn lend_mut<T: Element, const R: usize, X>(
    array: &mut DeviceArray<T, R>,
    stream: &Arc<CudaStream>,
    work: impl for<'v> FnOnce(CudaViewMut<'v, T>) -> X,
) -> Result<X> {
    let (_open, mut borrowed) = borrowed(array, stream, true)?;
    Ok(work(borrowed.slice.as_view_mut()))
}

/// An argument of [`read`]: `&CudaSlice<T>` or `CudaView<T>`.
///
/// This trait is sealed.
pub trait Readable<'a, T>: Sealed {
    /// Converts the argument to a view.
    fn into_view(self) -> CudaView<'a, T>;
}

/// An argument of [`write()`]: `&mut CudaSlice<T>` or `CudaViewMut<T>`.
///
/// This trait is sealed.
pub trait Writable<'a, T>: Sealed {
    /// Converts the argument to a view.
    fn into_view_mut(self) -> CudaViewMut<'a, T>;
}

impl<T> Sealed for CudaSlice<T> {}
impl<T> Sealed for CudaView<'_, T> {}
impl<T> Sealed for CudaViewMut<'_, T> {}

impl<'a, T> Readable<'a, T> for &'a CudaSlice<T> {
    fn into_view(self) -> CudaView<'a, T> {
        self.as_view()
    }
}

impl<'a, T> Readable<'a, T> for CudaView<'a, T> {
    fn into_view(self) -> CudaView<'a, T> {
        self
    }
}

impl<'a, T> Writable<'a, T> for &'a mut CudaSlice<T> {
    fn into_view_mut(self) -> CudaViewMut<'a, T> {
        self.as_view_mut()
    }
}

impl<'a, T> Writable<'a, T> for CudaViewMut<'a, T> {
    fn into_view_mut(self) -> CudaViewMut<'a, T> {
        self
    }
}

/// An operand of [`with`], or an argument of a launch, that a kernel reads; made by [`read`].
pub struct Read<'a, T, const R: usize> {
    view: CudaView<'a, T>,
    layout: Strided<R>,
}

/// An operand of [`with`], or an argument of a launch, that a kernel reads and writes; made by
/// [`write()`].
pub struct Write<'a, T, const R: usize> {
    view: CudaViewMut<'a, T>,
    layout: Strided<R>,
}

impl<T, const R: usize> fmt::Debug for Read<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Read").field("shape", &self.layout.shape).finish_non_exhaustive()
    }
}

impl<T, const R: usize> fmt::Debug for Write<'_, T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Write").field("shape", &self.layout.shape).finish_non_exhaustive()
    }
}

/// Makes an operand of [`with`] from a slice of cudarc: a row-major [`DeviceView`] of this shape.
///
/// # Errors
/// [`Error::Argument`] for another number of elements, and for elements of four bits.
#[track_caller]
pub fn read<'a, T: Element, const R: usize>(from: impl Readable<'a, T>, shape: [usize; R]) -> Result<Read<'a, T, R>> {
    let view = from.into_view();
    let layout = row_major::<T, R>(shape, view.len())?;
    Ok(Read { view, layout })
}

/// Makes an operand as [`read`], with strides in elements. The slice begins at the first element
/// and includes the last one.
///
/// # Errors
/// [`Error::Argument`] for a slice that is too short, for elements of four bits, and for strides
/// that make elements overlap.
#[track_caller]
pub fn read_strided<'a, T: Element, const R: usize>(
    from: impl Readable<'a, T>,
    shape: [usize; R],
    strides: [usize; R],
) -> Result<Read<'a, T, R>> {
    let view = from.into_view();
    let layout = with_strides::<T, R>(shape, strides, view.len())?;
    Ok(Read { view, layout })
}

/// Makes an operand of [`with`] from a slice of cudarc: a row-major [`DeviceViewMut`] of this
/// shape.
///
/// # Errors
/// As [`read`].
#[track_caller]
pub fn write<'a, T: Element, const R: usize>(to: impl Writable<'a, T>, shape: [usize; R]) -> Result<Write<'a, T, R>> {
    let view = to.into_view_mut();
    let layout = row_major::<T, R>(shape, view.len())?;
    Ok(Write { view, layout })
}

/// Makes an operand as [`write()`], with strides in elements: see [`read_strided`].
///
/// # Errors
/// As [`read_strided`].
#[track_caller]
pub fn write_strided<'a, T: Element, const R: usize>(
    to: impl Writable<'a, T>,
    shape: [usize; R],
    strides: [usize; R],
) -> Result<Write<'a, T, R>> {
    let view = to.into_view_mut();
    let layout = with_strides::<T, R>(shape, strides, view.len())?;
    Ok(Write { view, layout })
}

#[track_caller]
fn with_strides<T: Element, const R: usize>(shape: [usize; R], strides: [usize; R], len: usize) -> Result<Strided<R>> {
    refuse_packed::<T>()?;
    let (layout, _) = layout::<T, R>(shape, strides)?;
    match layout.span() <= len {
        true => Ok(layout),
        false => Err(Error::argument(format!(
            "a slice of {len} elements does not hold an array of shape {shape:?} and strides {strides:?}, which takes {}",
            layout.span()
        ))),
    }
}

/// Operands of [`with`]: [`Read`], [`Write`], and tuples of these.
///
/// This trait is sealed.
pub trait Operands<'a>: Sealed {
    /// The views that the closure receives.
    type Views<'v>;
    /// The resources that are held during the closure.
    #[doc(hidden)]
    type BorrowedArray;

    #[doc(hidden)]
    fn hold(self, ours: &Stream, theirs: &'a CudaStream, token: &Token) -> Result<Self::BorrowedArray>;
    #[doc(hidden)]
    fn views(held: &mut Self::BorrowedArray) -> Self::Views<'_>;
}

/// An array over a borrowed slice. The array is dropped first, which orders the stream after the
/// uses of the array. Then the event of the slice records the stream.
#[doc(hidden)]
pub struct BorrowedArray<'a, T, const R: usize> {
    array: DeviceArray<T, R>,
    _used: SyncOnDrop<'a>,
}

impl<'a, T: Element, const R: usize> BorrowedArray<'a, T, R> {
    fn new(
        ours: &Stream,
        (address, used): (u64, SyncOnDrop<'a>),
        layout: Strided<R>,
    ) -> Result<BorrowedArray<'a, T, R>> {
        // SAFETY: the slice has these elements, and is borrowed for `'a`: uniquely, if the array is
        // written. Its earlier uses precede this one on the stream. Later uses follow the work of
        // the stream at the drop of the array.
        let array = unsafe { ours.foreign_array(address, layout.shape, layout.strides, ()) }?;
        Ok(BorrowedArray { array, _used: used })
    }
}

/// Returns an error unless the slice belongs to the context of its kernels.
fn check_context(of_slice: &CudaStream, theirs: &CudaStream) -> Result<()> {
    match of_slice.context() == theirs.context() {
        true => Ok(()),
        false => {
            let (slice, stream) = (of_slice.context().ordinal(), theirs.context().ordinal());
            Err(Error::argument(format!(
                "a slice of another context (GPU {slice}) than that of the stream (GPU {stream})"
            )))
        }
    }
}

impl<T, const R: usize> Sealed for Read<'_, T, R> {}
impl<T, const R: usize> Sealed for Write<'_, T, R> {}

impl<'a, T: Element, const R: usize> Operands<'a> for Read<'a, T, R> {
    type Views<'v> = DeviceView<'v, T, R>;
    type BorrowedArray = BorrowedArray<'a, T, R>;

    fn hold(self, ours: &Stream, theirs: &'a CudaStream, _token: &Token) -> Result<BorrowedArray<'a, T, R>> {
        check_context(self.view.stream(), theirs)?;
        BorrowedArray::new(ours, self.view.view_ptr(theirs), self.layout)
    }

    fn views<'v>(held: &'v mut BorrowedArray<'a, T, R>) -> DeviceView<'v, T, R> {
        held.array.view()
    }
}

impl<'a, T: Element, const R: usize> Operands<'a> for Write<'a, T, R> {
    type Views<'v> = DeviceViewMut<'v, T, R>;
    type BorrowedArray = BorrowedArray<'a, T, R>;

    fn hold(self, ours: &Stream, theirs: &'a CudaStream, _token: &Token) -> Result<BorrowedArray<'a, T, R>> {
        check_context(self.view.stream(), theirs)?;
        BorrowedArray::new(ours, self.view.view_ptr_mut(theirs), self.layout)
    }

    fn views<'v>(held: &'v mut BorrowedArray<'a, T, R>) -> DeviceViewMut<'v, T, R> {
        held.array.view_mut()
    }
}

macro_rules! tuples {
    ($($($part:ident)+;)+) => {$(

        impl<'a, $($part: Operands<'a>),+> Operands<'a> for ($($part,)+) {
            type Views<'v> = ($($part::Views<'v>,)+);
            type BorrowedArray = ($($part::BorrowedArray,)+);

            #[allow(non_snake_case)]
            fn hold(self, ours: &Stream, theirs: &'a CudaStream, token: &Token) -> Result<Self::BorrowedArray> {
                let ($($part,)+) = self;
                Ok(($($part.hold(ours, theirs, token)?,)+))
            }

            #[allow(non_snake_case)]
            fn views(held: &mut Self::BorrowedArray) -> Self::Views<'_> {
                let ($($part,)+) = held;
                ($($part::views($part),)+)
            }
        }
    )+};
}

tuples! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}

/// Runs kernels on slices of cudarc: the closure receives the stream, and a view for each operand.
/// Its work, on this stream or another one, is ordered after the earlier work of cudarc on these
/// slices, on all streams including dropped ones. Later work of cudarc is ordered after it.
///
/// ```no_run
/// # use cudarc::driver::CudaContext;
/// use cutlet as ct;
/// use cutlet::foreign::cudarc::{read, with, write};
/// use cutlet::prelude::*;
///
/// fn double(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
///     let x = x.load((ct::bid(0), ct::bid(1)), [16, 16]);
///     y.store((ct::bid(0), ct::bid(1)), x + x);
/// }
///
/// let stream = CudaContext::new(0)?.new_stream()?;
/// let x = stream.clone_htod(&[1.5f32; 1000])?;
/// let mut y = stream.alloc_zeros::<f32>(1000)?;
/// with(&stream, (read(&x, [50, 20])?, write(&mut y, [50, 20])?), |stream, (x, y)| {
///     ct::Launch::new([4, 2]).stream(stream).launch(double, (x, y))
/// })?;
/// assert_eq!(stream.clone_dtoh(&y)?, [3.0; 1000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of the closure; [`Error::Argument`] for a slice of another context; else as [`stream`].
#[track_caller]
pub fn with<'a, A: Operands<'a>, X>(
    stream: &'a Arc<CudaStream>,
    operands: A,
    work: impl for<'v> FnOnce(&Stream, A::Views<'v>) -> Result<X>,
) -> Result<X> {
    let ours = self::stream(stream)?;
    let _counted = Counted::for_stream(stream)?;
    let mut held = operands.hold(&ours, stream, &Token { _own: () })?;
    stream.context().check_err().map_err(|error| failed("cuStreamWaitEvent", error))?;
    work(&ours, A::views(&mut held))
}

#[cfg(test)]
mod tests;
