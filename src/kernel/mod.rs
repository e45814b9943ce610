//! Kernels and their launch arguments: the traits between `launch` and the front end.
//!
//! [`IntoKernelArg`] relates the arguments of the host to the parameters of the kernel. It converts
//! each argument into [`LaunchArg`]s. [`KernelArgs`] is the tuple of all arguments. A launch has
//! three requirements of them:
//! * their part of the specialization key;
//! * their parameter words;
//! * their traced value, only if no compiled code fits.
//!
//! All three visit the entry's parameters in the same order. Arrays implement [`LaunchArg`] in
//! `runtime`; numbers, [`Constant`], tuples and lists here. [`Kernel`] is a function of the traced
//! values, and [`trace_kernel`] runs it once.
//!
//! A launch passes addresses to code that was compiled for the properties in [`LaunchArg::key`].
//! `LaunchArg` is therefore sealed: parameter words, declared parameters and memory of an argument
//! agree, because only this folder and `runtime` implement it. `IntoKernelArg` is open. An
//! implementation decomposes a value into such arguments, once per launch, and composes the
//! kernel's parameter from their traced values. It needs no unsafe code and cannot violate memory
//! safety. [`impl_kernel_args!`](crate::impl_kernel_args) implements it for structs.

mod arg_signature;
mod erased_call;
mod kernel_arg;
mod kernel_fn;
mod launch_arg;
mod raw_ptr;
mod tuples;
mod word_buffer;

pub use arg_signature::ArgSignature;
#[cfg(not(feature = "_suite"))]
pub(crate) use erased_call::{AnyArgs, Bound, Call};
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub use erased_call::{AnyArgs, Bound, Call};
pub(crate) use kernel_arg::arrives_as_it_is;
#[doc(hidden)]
pub use kernel_arg::{ArgConversion, Arguments, FromFields};
pub use kernel_arg::{IntoKernelArg, KernelArgs};
pub use kernel_fn::Kernel;
#[doc(hidden)]
pub use kernel_fn::trace_kernel;
pub(crate) use kernel_fn::{name_of, refuse_nested};
#[doc(hidden)]
pub use launch_arg::StoredConstant;
pub use launch_arg::{Constant, ConstantValue, LaunchArg};
pub use raw_ptr::RawPtr;
#[doc(hidden)]
pub use word_buffer::{INLINE_WORDS, WordBuffer};
