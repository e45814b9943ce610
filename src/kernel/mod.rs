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

mod arg_signature;
mod erased_call;
mod kernel_arg;
mod kernel_fn;
mod launch_arg;
mod raw_ptr;
mod tuples;
mod word_buffer;

pub use arg_signature::{ArgSignature, ArrayInfo};
#[cfg(not(feature = "_suite"))]
pub(crate) use erased_call::{AnyArgs, Bound, Call};
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub use erased_call::{AnyArgs, Bound, Call};
pub use kernel_arg::IntoKernelArg;
pub(crate) use kernel_arg::arrives_as_it_is;
#[doc(hidden)]
pub use kernel_arg::{ArgConversion, Arguments, FromFields};
pub use kernel_fn::Kernel;
#[doc(hidden)]
pub use kernel_fn::trace_kernel;
pub(crate) use kernel_fn::{name_of, refuse_nested};
#[doc(hidden)]
pub use launch_arg::StoredConstant;
pub(crate) use launch_arg::sealed;
pub use launch_arg::{Constant, ConstantValue, LaunchArg};
pub use raw_ptr::RawPtr;
#[doc(hidden)]
pub use word_buffer::{INLINE_WORDS, WordWriter};
