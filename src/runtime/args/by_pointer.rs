//! Arrays as arguments whose kernel parameter is only the address.

use super::array_arg::address_of;
use crate::backend::ParamWord;
use crate::element::ByteSized;
use crate::kernel::{ArgSignature, LaunchArg, RawPtr, WordBuffer, arrives_as_it_is};
use crate::runtime::array::array::DeviceArray;
use crate::runtime::array::memory::MemoryUse;
use crate::runtime::array::view::{DeviceView, DeviceViewMut};
use crate::sealed::Sealed;
use crate::tile::{Ptr, Tracer};

/// An array argument that passes only the address of its first element. `ByPointer(&x)`,
/// `ByPointer(&mut x)` and those of views are a [`Ptr<T>`] in the kernel.
///
/// As for an array, the launch determines its device from the argument, is ordered with other work
/// on it, and keeps it alive. Accesses by the address are as unsafe as those of a
/// [`RawPtr`](crate::RawPtr). The kernel may write an argument that is passed as `&mut`.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn doubled(x: ct::Ptr<f32>, y: ct::Ptr<f32>) {
///     let at = ct::bid(0) * 8 + ct::arange(0..8);
///     // SAFETY: both arrays have 8 elements for each tile block, and `y` is given as `&mut`.
///     unsafe { y.offset(at).store(x.offset(at).load() * 2.0) };
/// }
///
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.full([16], 1.5f32)?, device.zeros([16])?);
/// ct::launch(doubled, 2, (ct::ByPointer(&x), ct::ByPointer(&mut y)))?;
/// assert_eq!(y.to_vec()?, [3.0; 16]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ByPointer<A>(pub A);

impl<A> Sealed for ByPointer<A> {}

macro_rules! by_pointer {
    ($($ty:ty, writes $writes:literal;)+) => {$(
        impl<T: ByteSized, const R: usize> ByPointer<$ty> {
            fn pointer(&self) -> RawPtr<T> {
                RawPtr::new(address_of::<T, R>(&self.0.memory, &self.0.layout))
            }
        }

        impl<T: ByteSized, const R: usize> LaunchArg for ByPointer<$ty> {
            type Traced = Ptr<T>;
            type Output = ();

            fn into_output(self) {}

            #[inline]
            fn key(&self, key: &mut WordBuffer) {
                self.pointer().key(key);
            }

            fn forms(&self, out: &mut Vec<ArgSignature>) {
                self.pointer().forms(out);
            }

            fn trace(&self, tracer: &mut Tracer) -> Ptr<T> {
                self.pointer().trace(tracer)
            }

            #[inline]
            fn memory(&self, visit: &mut dyn FnMut(MemoryUse<'_>)) {
                let array = &self.0;
                let (part, empty) = (array.is_part(), array.layout.len() == 0);
                visit(MemoryUse { memory: &array.memory, writes: $writes, part, empty });
            }

            #[inline]
            fn pack(&self, params: &mut dyn FnMut(ParamWord)) {
                self.pointer().pack(params);
            }
        }

        arrives_as_it_is! { [T: ByteSized, const R: usize] ByPointer<$ty> => Ptr<T>; }
    )+};
}

by_pointer! {
    &DeviceArray<T, R>, writes false;
    &DeviceView<'_, T, R>, writes false;
    &mut DeviceArray<T, R>, writes true;
    &mut DeviceViewMut<'_, T, R>, writes true;
}
