//! State of the verifier: the module, and the errors so far.

use crate::error::{Diagnostic, Location};
use crate::ir::{Module, Op};

/// State of the verifier.
pub(super) struct Verifier<'m> {
    pub module: &'m Module,
    pub errors: Vec<Diagnostic>,
}

impl Verifier<'_> {
    pub fn report(&mut self, message: String, location: Option<&Location>) {
        self.errors.push(Diagnostic::new(message, location.cloned()));
    }

    pub fn report_op(&mut self, op: &Op, message: &str) {
        let location = self.module.location(op.loc);
        self.report(format!("`{}`: {message}", op.code.spec().name), location);
    }
}
