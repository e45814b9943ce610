//! Kernels: functions over traced values.

use std::panic::Location;

use super::kernel_arg::{Arguments, IntoKernelArg};
use super::tuples::for_each_tuple;
use crate::error::Result;
use crate::ir::Module;
use crate::tile::{self, trace_into_module};

/// A function or closure with the parameters `Params`, a tuple of at most 16 elements.
///
/// `Params` is inferred from the function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a kernel",
    label = "a kernel is a function or closure (`Fn`) of at most 16 parameters that returns nothing",
    note = "results leave a kernel through an `ArrayMut`: `out.store(index, tile)`; a closure states the types of its \
            parameters; it captures host values by `move` and assigns to none"
)]
pub trait Kernel<Params> {
    /// Calls the function.
    fn call(&self, params: Params);
}

macro_rules! functions {
    ($(($($given:ident $param:ident $index:tt),*))+) => {$(
        impl<Function, $($param),*> Kernel<($($param,)*)> for Function
        where
            Function: Fn($($param),*),
        {
            fn call(&self, _params: ($($param,)*)) {
                self($(_params.$index),*)
            }
        }
    )+};
}
for_each_tuple!(functions);

/// Rejects a launch inside of a kernel.
///
/// # Errors
/// [`crate::Error::Kernel`] at the caller's place.
#[inline]
#[track_caller]
pub(crate) fn refuse_nested(name: impl Fn() -> String) -> Result<()> {
    tile::refuse_nested(name, Location::caller())
}

/// Returns the name of a kernel for messages, dumps and entries: the last part of the function's
/// path, without generics, as an identifier.
pub(crate) fn name_of<K>() -> String {
    entry_name(std::any::type_name::<K>())
}

/// Returns the last part of a type's path, as an identifier: `app::scale<f32>` gives `scale`.
pub(super) fn entry_name(path: &str) -> String {
    let plain = path.split('<').next().unwrap_or_default();
    let mut parts = plain.rsplit("::");
    let name = match parts.next().unwrap_or_default() {
        "{{closure}}" => format!("{}_closure", parts.find(|p| *p != "{{closure}}").unwrap_or("kernel")),
        last => last.to_string(),
    };
    let ident: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if ident.starts_with(|c: char| c.is_ascii_alphabetic()) { ident } else { format!("kernel_{ident}") }
}

/// Runs a kernel once with the traced values of `args` and returns a module with one entry `name`.
///
/// # Errors
/// [`crate::Error::Kernel`] with all problems of the kernel, or if another kernel is being traced
/// on this thread.
///
/// # Panics
/// If the kernel panics; the trace is discarded.
#[track_caller]
pub fn trace_kernel<K, A, P>(name: &str, kernel: &K, args: &Arguments<A, P>) -> Result<Module>
where
    K: Kernel<P>,
    A: IntoKernelArg<P>,
{
    trace_into_module(name, Location::caller(), &|tracer| kernel.call(args.trace(tracer)))
}
