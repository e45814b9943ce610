//! Tracing of a kernel with its arguments into a module with one entry.

use super::array::{Array, ArrayMut};
use super::array_info::ArrayInfo;
use super::array_table::{Arrays, ArraysMut};
use super::handle::Handle;
use super::handle::Scalar;
use super::pointer::Ptr;
use super::trace::{Place, Session, can_launch, record};
use crate::dtype::DType;
use crate::element::{ByteSized, Element};
use crate::error::{Diagnostic, Error, Location, Result};
use crate::ir::{Module, Opcode, Type};

/// Declares the parameters of the traced entry; an argument of [`crate::kernel::LaunchArg::trace`].
///
/// Only the arguments of this crate use it: the declared parameters decide which memory a kernel
/// may write.
#[derive(Debug)]
pub struct Tracer(());

impl Tracer {
    /// Declares a number parameter.
    pub(crate) fn scalar<T: Element + ByteSized>(&mut self) -> Scalar<T> {
        record(|t| {
            let value = t.param(Type::scalar(T::DTYPE));
            Scalar::from_raw(t.raw(value))
        })
    }

    /// Declares an address parameter. It is a number, so that no assumption about its target holds.
    pub(crate) fn pointer<T: Element + ByteSized>(&mut self) -> Ptr<T> {
        Ptr::from_raw(record(|t| {
            let address = t.param(Type::scalar(DType::I64));
            let ty = t.builder.module.intern(Type::ptr(T::DTYPE));
            let pointer = t.emit(Opcode::IntToPtr, &[&[address]], vec![], vec![], &[ty])[0];
            t.raw(pointer)
        }))
    }

    /// Declares the parameters of a read-only array: base pointer, `R` extents, `R` strides.
    pub(crate) fn array<T: Element, const R: usize>(&mut self, facts: ArrayInfo) -> Array<T, R> {
        Array::from_handle(record(|t| t.declare_array(T::DTYPE, R, facts)))
    }

    /// Declares the parameters of a table of read-only arrays: the address of its words, the first
    /// array, the number of arrays.
    pub(crate) fn arrays<T: Element + ByteSized, const R: usize>(&mut self, facts: ArrayInfo) -> Arrays<T, R> {
        Arrays::from_handle(record(|t| t.declare_table(T::DTYPE, facts)))
    }

    /// Declares the parameters of a table of writable arrays, as [`Tracer::arrays`] does.
    pub(crate) fn arrays_mut<T: Element + ByteSized, const R: usize>(&mut self, facts: ArrayInfo) -> ArraysMut<T, R> {
        ArraysMut::from_handle(record(|t| t.declare_table(T::DTYPE, facts)))
    }

    /// Declares the parameters of a writable array: base pointer, `R` extents, `R` strides.
    pub(crate) fn array_mut<T: Element, const R: usize>(&mut self, facts: ArrayInfo) -> ArrayMut<T, R> {
        ArrayMut::from_handle(record(|t| t.declare_array(T::DTYPE, R, facts)))
    }
}

/// Rejects a launch inside of a kernel, also of a kernel that is already compiled.
///
/// # Errors
/// [`Error::Kernel`] at `place`.
#[inline]
pub(crate) fn refuse_nested(name: impl Fn() -> String, place: Place) -> Result<()> {
    if can_launch() { Ok(()) } else { Err(nested(&name(), place)) }
}

#[cold]
fn nested(name: &str, place: Place) -> Error {
    let at = Location { file: place.file().into(), line: place.line(), column: place.column() };
    let nested = Diagnostic::new(format!("kernel `{name}` is launched inside of another kernel"), Some(at))
        .note("a kernel is a function of tiles: call it as a function, or launch it after the other one");
    Error::Kernel(vec![nested])
}

/// Runs `kernel` in a new trace and returns a module with one entry `name`.
///
/// `user_backtrace.rs` searches the stack for the name of this function.
#[inline(never)]
pub(crate) fn trace_into_module(name: &str, place: Place, kernel: &dyn Fn(&mut Tracer)) -> Result<Module> {
    let Some(session) = Session::start() else { return Err(nested(name, place)) };
    record(|t| {
        t.at(place);
        t.launched = Some((name.to_string(), place));
        t.builder.begin_entry(name, &[]);
    });
    kernel(&mut Tracer(()));
    record(|t| {
        t.at(place);
        t.emit(Opcode::Return, &[&[]], Vec::new(), Vec::new(), &[]);
    });
    let mut trace = session.finish();
    match trace.take_diagnostics() {
        none if none.is_empty() => Ok(trace.builder.module),
        problems => Err(Error::Kernel(problems)),
    }
}
