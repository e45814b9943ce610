//! What a kernel author holds: tiles, scalars, arrays. Records into `ir`, knows no back end.

use crate::ir::{Builder, Type, Value};

/// Declares the parameters of the entry that is being traced.
pub struct Tracer {
    builder: Builder,
}

impl Tracer {
    /// One more entry parameter.
    pub fn param(&mut self, ty: Type) -> Value {
        let id = self.builder.module.intern(ty);
        let body = self.builder.open_blocks()[0];
        self.builder.module.add_block_arg(body, id)
    }
}
