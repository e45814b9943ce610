//! Addresses as arguments of a launch.

use std::fmt;
use std::marker::PhantomData;

use super::arg_signature::ArgSignature;
use super::kernel_arg::arrives_as_it_is;
use super::launch_arg::LaunchArg;
use super::word_buffer::WordBuffer;
use crate::backend::ParamWord;
use crate::element::ByteSized;
use crate::sealed::Sealed;
use crate::tile::{Ptr, Tracer};

/// An address in memory outside of the arrays of this crate; arrives in the kernel as a [`Ptr<T>`].
///
/// Making one is safe, its use in a kernel is unsafe: see [`pointer`](crate::pointer). A launch has
/// no information about the memory:
/// * The device of the launch is that of the arrays among the arguments, or of the stream, or else
///   the default device.
/// * No stream is ordered for the memory. Launches are asynchronous on a GPU, so a user on another
///   stream has to wait for the end of the kernel.
/// * The memory is not kept alive. It has to exist until the kernel has ended.
/// * On the cpu device it is memory of this process, and the launch returns after the end of the
///   kernel.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn double(x: ct::Ptr<f32>, y: ArrayMut<f32, 1>) {
///     // SAFETY: `x` points to as many elements as `y` has, 8 for each tile block.
///     let x = unsafe { x.offset(ct::bid(0) * 8 + ct::arange(0..8)).load() };
///     y.store(ct::bid(0), x * 2.0);
/// }
///
/// let foreign: Vec<f32> = (0..16).map(|i| i as f32).collect();
/// let mut y = ct::Device::cpu().zeros([16])?;
/// let x = ct::RawPtr::<f32>::new(foreign.as_ptr().expose_provenance() as u64);
/// ct::launch(double, 2, (x, &mut y))?;
/// assert_eq!(y.to_vec()?[15], 30.0);
/// # Ok::<(), ct::Error>(())
/// ```
pub struct RawPtr<T> {
    address: u64,
    element: PhantomData<fn(T)>,
}

impl<T> RawPtr<T> {
    /// Makes a pointer to the element at this address of the device.
    #[must_use]
    pub const fn new(address: u64) -> RawPtr<T> {
        RawPtr { address, element: PhantomData }
    }

    /// Returns the address.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.address
    }
}

impl<T> Clone for RawPtr<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for RawPtr<T> {}

impl<T> fmt::Debug for RawPtr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawPtr({:#x})", self.address)
    }
}

impl<T: ByteSized> Sealed for RawPtr<T> {}

impl<T: ByteSized> LaunchArg for RawPtr<T> {
    type Traced = Ptr<T>;
    type Output = ();

    fn into_output(self) {}

    #[inline]
    fn key(&self, _key: &mut WordBuffer) {}

    fn forms(&self, out: &mut Vec<ArgSignature>) {
        out.push(ArgSignature::Pointer(T::NAME.into()));
    }

    fn trace(&self, tracer: &mut Tracer) -> Ptr<T> {
        tracer.pointer()
    }

    #[inline]
    fn pack(&self, params: &mut dyn FnMut(ParamWord)) {
        params(self.address);
    }
}

arrives_as_it_is! { [T: ByteSized] RawPtr<T> => Ptr<T>; }
