//! Slices of cudarc as arguments of a launch.
//!
//! The slice is used on its own stream, the one that allocated it. That stream first waits for the
//! earlier work of cudarc on the slice. The launch waits for that stream, unless it is on it. The
//! drop of the argument, after the launch is queued, orders the stream after the launch.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ::cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DeviceSlice};

use super::{BorrowedArray, Counted, Operands, Read, Token, Write, failed, read, stream, write};
use crate::backend::ParamWord;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::kernel::{ArgConversion, ArgSignature, IntoKernelArg, LaunchArg, WordBuffer};
use crate::runtime::array::memory::MemoryUse;
use crate::runtime::array::strided::Strided;
use crate::runtime::array::view::{DeviceView, DeviceViewMut};
use crate::runtime::device::device::Device;
use crate::sealed::Sealed;
use crate::tile::{Array, ArrayMut, Tracer};

/// A slice of cudarc as an argument of a launch, read only.
pub struct ReadArg<'a, T, const R: usize>(State<'a, T, R>);

/// A slice of cudarc as an argument of a launch that reads and writes it.
pub struct WriteArg<'a, T, const R: usize>(State<'a, T, R>);

/// A borrowed slice, or the error that the launch returns.
enum State<'a, T, const R: usize> {
    Held(Held<'a, T, R>),
    Failed(Mutex<Option<Error>>),
}

/// A borrowed slice. The fields are dropped in their order.
struct Held<'a, T, const R: usize> {
    lent: BorrowedArray<'a, T, R>,
    _counted: Counted,
    /// The stream that `lent` refers to.
    _stream: Arc<CudaStream>,
}

impl<'a, T: Element, const R: usize> State<'a, T, R> {
    fn new<O>(operand: Result<O>, stream_of: impl FnOnce(&O) -> Arc<CudaStream>) -> State<'a, T, R>
    where
        O: Operands<'a, BorrowedArray = BorrowedArray<'a, T, R>>,
    {
        let held = operand.and_then(|operand| {
            let theirs = stream_of(&operand);
            Held::new(operand, theirs)
        });
        match held {
            Ok(held) => State::Held(held),
            Err(error) => State::Failed(Mutex::new(Some(error))),
        }
    }

    fn view(&self) -> Option<DeviceView<'_, T, R>> {
        match self {
            State::Held(held) => Some(held.lent.array.view()),
            State::Failed(_) => None,
        }
    }

    /// Returns the error of the slice, once.
    fn made(&self) -> Result<()> {
        let State::Failed(error) = self else { return Ok(()) };
        let error = error.lock().unwrap_or_else(PoisonError::into_inner).take();
        Err(error.unwrap_or_else(|| Error::argument("a slice of cudarc that could not be used")))
    }
}

impl<'a, T: Element, const R: usize> Held<'a, T, R> {
    fn new<O>(operand: O, theirs: Arc<CudaStream>) -> Result<Held<'a, T, R>>
    where
        O: Operands<'a, BorrowedArray = BorrowedArray<'a, T, R>>,
    {
        let ours = stream(&theirs)?;
        let counted = Counted::for_stream(&theirs)?;
        // SAFETY: `Held` owns the stream, and drops the reference before it.
        let reference: &'a CudaStream = unsafe { &*Arc::as_ptr(&theirs) };
        let lent = operand.hold(&ours, reference, &Token { _own: () })?;
        let held = Held { lent, _counted: counted, _stream: theirs };
        held._stream.context().check_err().map_err(|error| failed("cuStreamWaitEvent", error))?;
        Ok(held)
    }
}

/// Returns a view without elements in place of a slice that could not be used: its launch fails.
fn nothing<'a, T: Element, const R: usize>() -> DeviceView<'a, T, R> {
    DeviceView::new(crate::runtime::Memory::absent(), Strided { offset: 0, shape: [0; R], strides: [1; R] })
}

macro_rules! slice_argument {
    ($($name:ident of $operand:ident($field:ident) => $traced:ident as $view:ident by $make:expr, writes $writes:literal;)+) => {$(
        impl<T, const R: usize> Sealed for $name<'_, T, R> {}

        impl<T, const R: usize> fmt::Debug for $name<'_, T, R> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }

        impl<T: Element, const R: usize> $name<'_, T, R> {
            fn view(&self) -> $view<'_, T, R> {
                $make(self.0.view().unwrap_or_else(nothing))
            }
        }

        impl<T: Element, const R: usize> LaunchArg for $name<'_, T, R> {
            type Traced = $traced<T, R>;
            type Output = ();

            fn into_output(self) {}

            fn make(&self, _device: Option<Device>) -> Result<()> {
                self.0.made()
            }

            fn key(&self, key: &mut WordBuffer) {
                self.view().key(key);
            }

            fn forms(&self, out: &mut Vec<ArgSignature>) {
                self.view().forms(out);
            }

            fn trace(&self, tracer: &mut Tracer) -> Self::Traced {
                self.view().trace(tracer)
            }

            fn memory(&self, visit: &mut dyn FnMut(MemoryUse<'_>)) {
                if let State::Held(_) = self.0 {
                    self.view().memory(visit);
                }
            }

            fn pack(&self, params: &mut dyn FnMut(ParamWord)) {
                self.view().pack(params);
            }
        }

        #[diagnostic::do_not_recommend]
        impl<'a, T: Element, const R: usize> IntoKernelArg<$traced<T, R>> for $operand<'a, T, R> {
            type Arg = $name<'a, T, R>;
            const CONVERSION: ArgConversion<Self, $traced<T, R>> = ArgConversion::common();

            fn into_arg(self) -> Self::Arg {
                $name(State::new(Ok(self), |operand| operand.$field.stream().clone()))
            }

            fn from_traced(traced: $traced<T, R>) -> $traced<T, R> {
                traced
            }
        }
    )+};
}

slice_argument! {
    ReadArg of Read(view) => Array as DeviceView by |view| view, writes false;
    WriteArg of Write(view) => ArrayMut as DeviceViewMut by exclusive, writes true;
}

/// Returns the unique view of the array of a [`WriteArg`], which borrows its slice uniquely.
fn exclusive<T: Element, const R: usize>(view: DeviceView<'_, T, R>) -> DeviceViewMut<'_, T, R> {
    // SAFETY: the argument owns the array, and makes this view for one of its methods at a time.
    unsafe { DeviceViewMut::assume_unique(view) }
}

macro_rules! whole_slice {
    ($($ty:ty => $traced:ident in $name:ident by $operand:ident;)+) => {$(
        #[diagnostic::do_not_recommend]
        impl<'a, T: Element> IntoKernelArg<$traced<T, 1>> for $ty {
            type Arg = $name<'a, T, 1>;
            const CONVERSION: ArgConversion<Self, $traced<T, 1>> = ArgConversion::common();

            fn into_arg(self) -> Self::Arg {
                let len = self.len();
                $name(State::new($operand(self, [len]), |operand| operand.view.stream().clone()))
            }

            fn from_traced(traced: $traced<T, 1>) -> $traced<T, 1> {
                traced
            }
        }
    )+};
}

whole_slice! {
    &'a CudaSlice<T> => Array in ReadArg by read;
    CudaView<'a, T> => Array in ReadArg by read;
    &'a mut CudaSlice<T> => ArrayMut in WriteArg by write;
    CudaViewMut<'a, T> => ArrayMut in WriteArg by write;
}
