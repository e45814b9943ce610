//! Which ops work element by element.

use crate::ir::Opcode;
use crate::ir::table::Class;

/// True for ops that work element by element on operands of one shape.
pub fn is_elementwise(code: Opcode) -> bool {
    code.spec().class != Class::Own || matches!(code, Opcode::Select | Opcode::PowI | Opcode::Offset)
}
