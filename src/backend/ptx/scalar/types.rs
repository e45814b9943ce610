//! What an operation is lowered for, and why it is not.

use crate::dtype::DType;
use crate::ir::Op;

/// Element types of the operands and the result of an operation; pointers count as i64.
#[derive(Clone, Copy, Debug)]
pub struct ScalarTypes<'a> {
    /// One for each operand.
    pub operands: &'a [DType],
    /// The result.
    pub result: DType,
}

/// Why an operation has no lowering, in words for the user; the caller adds target and place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(pub String);

impl Unsupported {
    pub(super) fn new(op: &Op, dtype: DType) -> Unsupported {
        Unsupported(format!("`{}` of {dtype} is not supported by the ptx back end", op.code.spec().name))
    }
}
