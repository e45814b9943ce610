//! Launch arguments: their keys, parameters and traced values.

use crate::util::collect::CollectVec as _;
use std::any::Any;
use std::hash::{Hash, Hasher};

use super::arg_signature::ArgSignature;
use super::tuples::for_each_tuple;
use super::word_buffer::WordBuffer;
use crate::backend::ParamWord;
use crate::element::{Element, bf16, f8e4m3fn, f8e5m2, f8e5m3fnu, f8e8m0fnu, f16, tf32};
use crate::error::Result;
use crate::runtime::{Device, MemoryUse};
use crate::sealed::Sealed;
use crate::tile::{Scalar, Tracer};

/// A constant argument kept with a compiled kernel, to be compared with later launches.
pub type StoredConstant = Box<dyn Any + Send + Sync>;

/// An argument that a launch handles: an array or a view of one, a number, a [`Constant`], a tuple
/// or list of arguments.
///
/// This trait is sealed: a launch relies on the agreement of the methods. Other types are
/// decomposed into such arguments by [`IntoKernelArg`](super::IntoKernelArg).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a launch",
    note = "arrays are passed by reference: `&array` arrives as `Array`, `&mut array` as `ArrayMut`",
    note = "numbers of the types of elements arrive as `Scalar`; `ct::Constant(x)` arrives as `x`, for `usize`, flags, \
            enums, shapes",
    note = "tuples, arrays and `Vec` of arguments are arguments; so are structs named in `ct::impl_kernel_args!`"
)]
pub trait LaunchArg: Sealed {
    /// The value that the kernel function receives.
    type Traced;

    /// Output of [`launch_with_outputs`](crate::launch_with_outputs): an array for a
    /// [`crate::NewArray`], else `()`, and lists of these.
    type Output;

    /// Returns the outputs of a launch that succeeded.
    fn into_output(self) -> Self::Output;

    /// Makes the arrays that the launch owns, on its device.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] and [`crate::Error::Driver`] if their memory cannot be allocated;
    /// an error if there are arrays to make and no device.
    #[doc(hidden)]
    #[inline]
    fn make(&self, _device: Option<Device>) -> Result<()> {
        Ok(())
    }

    /// Writes all properties that the compiled code depends on; constants write a hash. Does not
    /// allocate.
    #[doc(hidden)]
    fn key(&self, key: &mut WordBuffer);

    /// Appends clones of the constants of this argument.
    #[doc(hidden)]
    fn store_constants(&self, _out: &mut Vec<StoredConstant>) {}

    /// Compares the constants of this argument with stored ones, in order.
    #[doc(hidden)]
    fn same_constants(&self, _stored: &mut std::slice::Iter<'_, StoredConstant>) -> bool {
        true
    }

    /// Appends the signatures of this argument or of its parts, by which another program can select
    /// an entry.
    #[doc(hidden)]
    fn forms(&self, out: &mut Vec<ArgSignature>);

    /// Declares the entry parameters of this argument and returns the traced value.
    #[doc(hidden)]
    fn trace(&self, tracer: &mut crate::tile::Tracer) -> Self::Traced;

    /// Visits the memory of the arrays of this argument. A launch checks its device and orders the
    /// accesses on its stream.
    #[doc(hidden)]
    fn memory(&self, _visit: &mut dyn FnMut(MemoryUse<'_>)) {}

    /// Writes the parameter words, in the order in which [`LaunchArg::trace`] declares them.
    #[doc(hidden)]
    fn pack(&self, params: &mut dyn FnMut(ParamWord));
}

macro_rules! scalar_argument {
    ($($name:ident)+) => {$(
        impl LaunchArg for $name {
            type Traced = Scalar<$name>;
            type Output = ();

            fn into_output(self) {}

            #[inline]
            fn key(&self, _key: &mut WordBuffer) {}

            fn forms(&self, out: &mut Vec<ArgSignature>) {
                out.push(ArgSignature::Number(<$name as Element>::NAME.into()));
            }

            fn trace(&self, tracer: &mut Tracer) -> Scalar<$name> {
                tracer.scalar()
            }

            #[inline]
            fn pack(&self, params: &mut dyn FnMut(ParamWord)) {
                params(Element::to_bits(*self))
            }
        }
    )+};
}
scalar_argument!(f64 f32 tf32 f16 bf16 f8e4m3fn f8e5m2 f8e8m0fnu f8e5m3fnu i8 i16 i32 i64 u8 u16 u32 u64 bool);

/// A value that can be a constant of the compiled code.
///
/// This trait is sealed: each type with its bounds implements it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a `Constant`",
    note = "a constant is compared and hashed: `Hash + Eq + Clone + Send + Sync + 'static`",
    note = "a float is passed as a number, `2.0`, and arrives as `Scalar<f32>`; its bits can be a constant: \
            `ct::Constant(x.to_bits())`; \
            see docs/common_errors.md"
)]
pub trait ConstantValue: Hash + Eq + Clone + Send + Sync + 'static {}

#[diagnostic::do_not_recommend]
impl<X: Hash + Eq + Clone + Send + Sync + 'static> ConstantValue for X {}

/// A value that is compiled into the kernel: tile extents, a flag, an enum, a configuration.
///
/// The kernel receives the value itself, an ordinary Rust value. The kernel is compiled once per
/// different value. Use it for all values that determine the structure of the code.
///
/// ```
/// # use cutlet::doctest::*;
/// fn fill(x: ArrayMut<i32, 1>, tile: usize) {
///     x.store(ct::bid(0), ct::full([tile], 7)); // an ordinary number
/// }
///
/// let mut x = ct::Device::cpu().zeros([100])?;
/// ct::launch(fill, 2, (&mut x, ct::Constant(64)))?;
/// assert_eq!(x.to_vec()?, [7; 100]);
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Constant<X>(pub X);

impl<X> Sealed for Constant<X> {}

impl<X: ConstantValue> LaunchArg for Constant<X> {
    type Traced = X;
    type Output = ();

    fn into_output(self) {}

    #[inline]
    fn key(&self, key: &mut WordBuffer) {
        let mut hasher = rustc_hash::FxHasher::default();
        self.0.hash(&mut hasher);
        key.push(hasher.finish());
    }

    fn store_constants(&self, out: &mut Vec<StoredConstant>) {
        out.push(Box::new(self.0.clone()));
    }

    #[inline]
    fn same_constants(&self, stored: &mut std::slice::Iter<'_, StoredConstant>) -> bool {
        stored.next().and_then(|other| other.downcast_ref::<X>()) == Some(&self.0)
    }

    fn forms(&self, out: &mut Vec<ArgSignature>) {
        out.push(ArgSignature::of_constant(&self.0));
    }

    fn trace(&self, _tracer: &mut Tracer) -> X {
        self.0.clone()
    }

    #[inline]
    fn pack(&self, _params: &mut dyn FnMut(ParamWord)) {}
}

/// Implements the methods that all lists of arguments share.
macro_rules! list_methods {
    () => {
        #[inline]
        fn make(&self, device: Option<Device>) -> Result<()> {
            self.iter().try_for_each(|arg| arg.make(device))
        }
        fn store_constants(&self, out: &mut Vec<StoredConstant>) {
            self.iter().for_each(|arg| arg.store_constants(out));
        }
        #[inline]
        fn same_constants(&self, stored: &mut std::slice::Iter<'_, StoredConstant>) -> bool {
            self.iter().all(|arg| arg.same_constants(stored))
        }
        fn forms(&self, out: &mut Vec<ArgSignature>) {
            self.iter().for_each(|arg| arg.forms(out));
        }
        fn memory(&self, visit: &mut dyn FnMut(MemoryUse<'_>)) {
            self.iter().for_each(|arg| arg.memory(visit));
        }
        #[inline]
        fn pack(&self, params: &mut dyn FnMut(ParamWord)) {
            self.iter().for_each(|arg| arg.pack(params));
        }
    };
}

/// A list of arguments. Its length is compiled in.
impl<A: LaunchArg> LaunchArg for Vec<A> {
    type Traced = Vec<A::Traced>;
    type Output = Vec<A::Output>;

    fn into_output(self) -> Vec<A::Output> {
        self.into_iter().map(A::into_output).collect_vec()
    }

    #[inline]
    fn key(&self, key: &mut WordBuffer) {
        key.push(self.len() as u64);
        self.iter().for_each(|arg| arg.key(key));
    }
    list_methods!();
    fn trace(&self, tracer: &mut Tracer) -> Vec<A::Traced> {
        self.iter().map(|arg| arg.trace(tracer)).collect_vec()
    }
}

/// An optional argument. Its presence is compiled in.
impl<A: LaunchArg> LaunchArg for Option<A> {
    type Traced = Option<A::Traced>;
    type Output = Option<A::Output>;

    fn into_output(self) -> Option<A::Output> {
        self.map(A::into_output)
    }

    #[inline]
    fn key(&self, key: &mut WordBuffer) {
        key.push(u64::from(self.is_some()));
        self.iter().for_each(|arg| arg.key(key));
    }
    list_methods!();
    fn trace(&self, tracer: &mut Tracer) -> Option<A::Traced> {
        self.as_ref().map(|arg| arg.trace(tracer))
    }
}

impl<A: LaunchArg, const N: usize> LaunchArg for [A; N] {
    type Traced = [A::Traced; N];
    type Output = [A::Output; N];

    fn into_output(self) -> [A::Output; N] {
        self.map(A::into_output)
    }

    #[inline]
    fn key(&self, key: &mut WordBuffer) {
        self.iter().for_each(|arg| arg.key(key));
    }
    list_methods!();
    fn trace(&self, tracer: &mut Tracer) -> [A::Traced; N] {
        self.each_ref().map(|arg| arg.trace(tracer))
    }
}

macro_rules! tuples {
    ($(($($arg:ident $_param:ident $index:tt),*))+) => {$(
        impl<$($arg),*> Sealed for ($($arg,)*) {}

        #[allow(clippy::unused_unit)]
        impl<$($arg: LaunchArg),*> LaunchArg for ($($arg,)*) {
            type Traced = ($($arg::Traced,)*);
            type Output = ($($arg::Output,)*);

            fn into_output(self) -> Self::Output {
                ($(self.$index.into_output(),)*)
            }
            #[inline]
            fn make(&self, _device: Option<Device>) -> Result<()> {
                $(self.$index.make(_device)?;)*
                Ok(())
            }

            #[inline]
            fn key(&self, _key: &mut WordBuffer) {
                $(self.$index.key(_key);)*
            }
            fn store_constants(&self, _out: &mut Vec<StoredConstant>) {
                $(self.$index.store_constants(_out);)*
            }
            #[inline]
            fn same_constants(&self, _stored: &mut std::slice::Iter<'_, StoredConstant>) -> bool {
                true $(&& self.$index.same_constants(_stored))*
            }
            fn forms(&self, _out: &mut Vec<ArgSignature>) {
                $(self.$index.forms(_out);)*
            }
            fn trace(&self, _tracer: &mut Tracer) -> Self::Traced {
                ($(self.$index.trace(_tracer),)*)
            }
            fn memory(&self, _visit: &mut dyn FnMut(MemoryUse<'_>)) {
                $(self.$index.memory(_visit);)*
            }
            #[inline]
            fn pack(&self, _params: &mut dyn FnMut(ParamWord)) {
                $(self.$index.pack(_params);)*
            }
        }
    )+};
}
for_each_tuple!(tuples);
