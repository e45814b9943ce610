//! What a kernel and its arguments have to be: the traits between `launch` and the front end.
//!
//! [`IntoKernelArg`] relates what the host gives to what the kernel takes. It turns the arguments
//! into those that a launch handles: [`LaunchArg`]s, which a launch asks three things: their part
//! of the specialisation key, their parameter words, and (only when nothing compiled fits) their
//! traced value. All three visit the entry's parameters in the same order. Arrays implement it in
//! `runtime`; numbers, [`Constant`], tuples and lists here. [`Kernel`] is a function that takes the
//! traced values, and [`trace_kernel`] runs it once.
//!
//! A launch hands addresses to code that was compiled for what [`LaunchArg::key`] said, so
//! `LaunchArg` is sealed: parameter words, declared parameters and memory of an argument agree
//! because they are written here and in `runtime`. `IntoKernelArg` is open: whatever takes a value
//! apart into such arguments, once for each launch, and makes another one of what they arrive as,
//! needs no unsafe code and can do no harm. [`impl_kernel_args!`](crate::impl_kernel_args) writes
//! it for structs.

mod argument;
mod arrive;
mod call;
mod form;
mod function;
mod pointer;
mod tuples;
mod words;

#[doc(hidden)]
pub use argument::StoredConstant;
pub(crate) use argument::sealed;
pub use argument::{Constant, ConstantValue, LaunchArg};
pub use arrive::IntoKernelArg;
pub(crate) use arrive::arrives_as_it_is;
#[doc(hidden)]
pub use arrive::{ArgConversion, Arguments, FromFields};
#[cfg(not(feature = "_suite"))]
pub(crate) use call::{AnyArgs, Bound, Call};
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub use call::{AnyArgs, Bound, Call};
pub use form::{ArgSignature, ArrayInfo};
pub use function::Kernel;
#[doc(hidden)]
pub use function::trace_kernel;
pub(crate) use function::{name_of, refuse_nested};
pub use pointer::RawPtr;
#[doc(hidden)]
pub use words::{INLINE_WORDS, WordWriter};
