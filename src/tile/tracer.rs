//! From a kernel and its arguments to a module: the entry around what the kernel records.

use super::array::{Array, ArrayMut};
use super::context::{Place, Session, is_tracing, record};
use super::{Handle, Scalar};
use crate::element::{Element, Whole};
use crate::error::{Diagnostic, Error, Location, Result};
use crate::ir::{Module, Opcode, Type, Value};
use crate::kernel::ArrayFacts;

/// Declares the parameters of the entry that is being traced; handed to [`crate::kernel::LaunchArg::trace`].
#[derive(Debug)]
pub struct Tracer(());

impl Tracer {
    /// One more entry parameter, a rank-0 tile of a number or a pointer.
    pub fn param(&mut self, ty: Type) -> Value {
        record(|t| t.param(ty))
    }

    /// One more parameter: a number.
    pub fn scalar<T: Element + Whole>(&mut self) -> Scalar<T> {
        record(|t| {
            let value = t.param(Type::scalar(T::DTYPE));
            Scalar::from_raw(t.raw(value))
        })
    }

    /// The parameters of a read-only array: base pointer, `R` extents, `R` strides.
    pub fn array<T: Element, const R: usize>(&mut self, facts: ArrayFacts) -> Array<T, R> {
        Array::from_handle(record(|t| t.declare_array(T::DTYPE, R, facts)))
    }

    /// The parameters of a writable array: base pointer, `R` extents, `R` strides.
    pub fn array_mut<T: Element, const R: usize>(&mut self, facts: ArrayFacts) -> ArrayMut<T, R> {
        ArrayMut::from_handle(record(|t| t.declare_array(T::DTYPE, R, facts)))
    }
}

/// Runs `kernel` in a fresh trace; the module has one entry `name`.
pub(crate) fn trace_into_module(name: &str, place: Place, kernel: &dyn Fn(&mut Tracer)) -> Result<Module> {
    let Some(session) = Session::start() else {
        debug_assert!(is_tracing());
        let at = Location { file: place.file().into(), line: place.line(), column: place.column() };
        let nested = Diagnostic::new(format!("kernel `{name}` is launched inside of another kernel"), Some(at))
            .note("a kernel is a function of tiles: call it as a function, or launch it after the other one");
        return Err(Error::Kernel(vec![nested]));
    };
    record(|t| {
        t.at(place);
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
