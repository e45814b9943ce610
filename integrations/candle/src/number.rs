//! The element types that the operations are for.

use candle_core::{DType, Error, Result, WithDType};
use half::{bf16, f16};

/// Element types of candle that kernels support.
#[cfg(not(feature = "cuda"))]
pub trait Stored: WithDType {}
#[cfg(not(feature = "cuda"))]
impl<T: WithDType> Stored for T {}

/// Element types of candle that kernels support, also in the memory of GPUs.
#[cfg(feature = "cuda")]
pub trait Stored:
    WithDType + candle_core::cuda_backend::CudaDType + candle_core::cuda_backend::cudarc::driver::DeviceRepr
{
}
#[cfg(feature = "cuda")]
impl<T> Stored for T where
    T: WithDType + candle_core::cuda_backend::CudaDType + candle_core::cuda_backend::cudarc::driver::DeviceRepr
{
}

/// f32, f16, bf16: computed with in f32.
pub trait Number: Stored + cutlet_kernels::Number {}
impl Number for f32 {}
impl Number for f16 {}
impl Number for bf16 {}

/// `$body` with `$type` for the element type of that name; an error for all others.
macro_rules! by_dtype {
    ($name:expr, $dtype:expr, $type:ident => $body:expr) => {
        match $dtype {
            candle_core::DType::F32 => {
                type $type = f32;
                $body
            }
            candle_core::DType::F16 => {
                type $type = half::f16;
                $body
            }
            candle_core::DType::BF16 => {
                type $type = half::bf16;
                $body
            }
            other => Err($crate::number::unsupported($name, other)),
        }
    };
}
pub(crate) use by_dtype;

/// There is no such operation on elements of this type.
pub fn unsupported(name: &'static str, dtype: DType) -> Error {
    Error::UnsupportedDTypeForOp(dtype, name).bt()
}

/// All operands have elements of one type.
pub fn same_dtype(name: &'static str, first: DType, second: DType) -> Result<DType> {
    match first == second {
        true => Ok(first),
        false => Err(Error::DTypeMismatchBinaryOp { lhs: first, rhs: second, op: name }.bt()),
    }
}
