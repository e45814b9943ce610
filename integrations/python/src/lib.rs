//! Kernels of [cutlet](https://docs.rs/cutlet) as functions of Python.
//!
//! The package `cutlet` of Python has the ready ones. For kernels of one's own this crate is a
//! dependency, without default features, of a `cdylib` with a `#[pymodule]`:
//!
#![doc = concat!("```ignore\n", include_str!("../examples/silu/src/lib.rs"), "```")]
//!
//! In Python, `cutlet.op("silu", silu.silu)` makes a function of it, for tensors of all libraries.

mod tensor;

#[cfg(feature = "module")]
mod buffer;
#[cfg(feature = "module")]
mod gradients;
#[cfg(feature = "module")]
mod ready;

pub use cutlet;
pub use cutlet_kernels::{self, Number};
pub use pyo3;
pub use tensor::{Tensor, failed, stream_of};

/// Returns the error of a function for tensors of f32, f16 and bf16.
#[doc(hidden)]
pub fn no_number(dtype: cutlet::foreign::dlpack::TensorType) -> pyo3::PyErr {
    let name = tensor::name_of(dtype);
    pyo3::exceptions::PyTypeError::new_err(format!("a tensor of {name}: f32, f16 and bf16 are possible"))
}

/// Evaluates an expression with a type name for the element type of a tensor: f32, f16 or bf16.
/// Else: the error.
#[macro_export]
macro_rules! by_number {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype {
            dtype if (dtype.code, dtype.bits, dtype.lanes) == (2, 32, 1) => {
                type $type = f32;
                $body
            }
            dtype if (dtype.code, dtype.bits, dtype.lanes) == (2, 16, 1) => {
                type $type = $crate::cutlet::element::f16;
                $body
            }
            dtype if (dtype.code, dtype.bits, dtype.lanes) == (4, 16, 1) => {
                type $type = $crate::cutlet::element::bf16;
                $body
            }
            dtype => Err($crate::no_number(dtype)),
        }
    };
}

#[cfg(feature = "module")]
use pyo3::prelude::*;

/// The native part of the package `cutlet`.
#[cfg(feature = "module")]
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    ready::add(module)?;
    gradients::add(module)?;
    module.add_class::<buffer::Buffer>()?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
