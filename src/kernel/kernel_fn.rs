//! Kernels: functions over traced values.

use std::panic::Location;

use super::kernel_arg::{Arguments, IntoKernelArg};
use super::tuples::for_each_tuple;
use crate::error::Result;
use crate::ir::Module;
use crate::tile::{self, trace_into_module};

/// A function or closure with the parameters `Params`, a tuple of at most 16 elements.
///
/// `Params` is inferred from the function. Programs may implement this trait, for example for a
/// struct whose type parameters select the code.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a kernel",
    label = "a kernel is a function or closure (`Fn`) of at most 16 parameters that returns nothing",
    note = "results leave a kernel through an `ArrayMut`: `out.store(index, tile)`; a closure states the types of its \
            parameters; it captures host values by `move` and assigns to none; \
            see docs/common_errors.md"
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
/// path, without generics, as an identifier. The type of a function pointer has no path of a
/// function: the name is then that of the caller's file and line.
#[track_caller]
pub(crate) fn name_of<K>() -> String {
    entry_name(std::any::type_name::<K>(), Location::caller())
}

/// Returns the last part of a type's path, as an identifier: `scale` of `app::scale<f32>`. For a
/// type without the path of a function, it is `kernel_main_7` of `src/main.rs:7`.
pub(super) fn entry_name(path: &str, launch: &Location<'_>) -> String {
    if !is_function(path) {
        let file = launch.file().rsplit(['/', '\\']).next().unwrap_or_default();
        return identifier(&format!("kernel_{}_{}", file.strip_suffix(".rs").unwrap_or(file), launch.line()));
    }
    let plain = path.split('<').next().unwrap_or_default();
    let mut parts = plain.rsplit("::");
    let name = match parts.next().unwrap_or_default() {
        "{{closure}}" => format!("{}_closure", parts.find(|p| *p != "{{closure}}").unwrap_or("kernel")),
        last => last.to_string(),
    };
    identifier(&name)
}

/// Returns false for the types of function pointers, references and boxes.
fn is_function(path: &str) -> bool {
    let start = path.split('<').next().unwrap_or_default();
    start != "for" && !start.contains(['(', '&', ' ']) && !start.ends_with("::boxed::Box")
}

/// Replaces the characters that no identifier has.
fn identifier(name: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prelude::*;
    use crate::{bid, inspect};

    fn double(x: ArrayMut<f32, 1>) {
        x.store(bid(0), x.load(bid(0), [64]) * 2.0);
    }

    #[test]
    fn functions_have_their_name() {
        let place = Location::caller();
        for (path, name) in [
            ("app::scale<f32>", "scale"),
            ("app::main::{{closure}}", "main_closure"),
            ("fortran::forward", "forward"),
            ("<app::A<f32> as app::B>::run", "kernel_"),
        ] {
            assert_eq!(entry_name(path, place), name);
        }
    }

    /// The path of the type of a pointer is that of its parameters.
    #[test]
    fn function_pointers_have_the_name_of_their_launch() -> Result<()> {
        let pointer: fn(ArrayMut<f32, 1>) = double;
        let boxed: Box<dyn Fn(ArrayMut<f32, 1>)> = Box::new(double);
        let x = crate::ArraySpec::<f32, 1>::new([100]);
        let name = |line: u32| format!("entry @kernel_kernel_fn_{line}(");
        let line = line!() + 1;
        let text = inspect(pointer, (x.mutable(),)).ir()?;
        assert!(text.contains(&name(line)), "{text}");
        let line = line!() + 1;
        let text = inspect(&*boxed, (x.mutable(),)).ir()?;
        assert!(text.contains(&name(line)), "{text}");
        assert!(inspect(double, (x.mutable(),)).ir()?.contains("entry @double("));
        Ok(())
    }
}
