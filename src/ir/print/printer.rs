//! State of the printer, and the texts of values, types and locations.

use crate::util::collect::CollectVec as _;
use std::fmt::Write;

use super::literal::quoted;
use super::names::Names;
use super::types::{TypeText, join};
use crate::ir::{BlockId, Loc, Module, Op, Value};

/// State of the printer.
pub(super) struct Printer<'m> {
    pub module: &'m Module,
    pub names: Names,
    /// Append the source location of each op.
    pub locations: bool,
    pub out: String,
    pub depth: usize,
}

impl<'m> Printer<'m> {
    pub fn typed_args(&self, block: BlockId) -> Vec<String> {
        let args = self.module.block(block).args.iter();
        args.map(|&arg| format!("{}: {}", self.names.value(arg), self.ty(arg))).collect_vec()
    }

    pub fn location(&mut self, loc: Loc) {
        if self.locations {
            match self.module.location(loc) {
                Some(place) => put!(self, " loc({}:{}:{})", quoted(&place.file), place.line, place.column),
                None => self.out.push_str(" loc(unknown)"),
            }
        }
    }

    pub fn ty(&self, value: Value) -> TypeText<'m> {
        TypeText(self.module, self.module.ty(value))
    }

    pub fn types(&self, values: &[Value]) -> String {
        join(values.iter().map(|&v| self.ty(v)), ", ")
    }

    pub fn values(&self, values: &[Value]) -> String {
        join(values.iter().map(|&v| self.names.value(v)), ", ")
    }

    /// Returns the `token` operand, if present. `equals` is the spelling of the equals sign of this
    /// op.
    pub fn token(&self, op: &Op, equals: &str) -> String {
        match op.operand_group("token") {
            [token] => format!(" token{equals}{}", self.names.value(*token)),
            _ => String::new(),
        }
    }
}
