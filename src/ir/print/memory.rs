//! Printer of memory ops: memory order, scope, operands, hints, and the types of their syntax.

use super::printer::Printer;
use super::types::join;
use crate::ir::{Attr, AttrKind, MultimemKind, Op, Opcode, Type, Value};
use crate::util::collect::CollectVec as _;
use std::fmt::Write;

impl Printer<'_> {
    fn order(&self, op: &Op) -> String {
        let mut out = String::new();
        if let Some(Attr::MemOrder(order)) = op.attr(AttrKind::MemOrder) {
            out += &format!(" {}", order.name());
        }
        if let Some(Attr::MemScope(scope)) = op.attr(AttrKind::MemScope) {
            out += &format!(" {}", scope.name());
        }
        out
    }

    fn hints(&self, op: &Op) -> String {
        match op.attr(AttrKind::Hints) {
            Some(Attr::Hints(hints)) => format!(" optimization_hints = {hints}"),
            _ => String::new(),
        }
    }

    fn inbounds(&self, op: &Op) -> String {
        match op.attr(AttrKind::Inbounds) {
            Some(Attr::Inbounds(all)) if all.contains(&true) => format!(" inbounds = [{}]", join(all, ", ")),
            _ => String::new(),
        }
    }

    /// Returns all operands except the token.
    fn operands_without_token<'o>(&self, op: &'o Op) -> &'o [Value] {
        &op.operands[..op.operands.len() - op.operand_group("token").len()]
    }

    pub(super) fn pointer_access(&mut self, op: &Op) {
        let operands = self.operands_without_token(op);
        let (order, token, hints) = (self.order(op), self.token(op, "="), self.hints(op));
        put!(self, "{order} {}{token}{hints} : {}", self.values(operands), self.types(operands));
        put!(self, " -> {}", self.types(&op.results));
    }

    pub(super) fn pointer_atomic(&mut self, op: &Op) {
        let operands = self.operands_without_token(op);
        let mut texts: Vec<String> = operands.iter().map(|&v| self.names.value(v)).collect_vec();
        let mut typed = operands.to_vec();
        if let Some(Attr::AtomicMode(mode)) = op.attr(AttrKind::AtomicMode) {
            texts.insert(1, mode.name().to_string());
        } else {
            // cmp and val have one type, which is printed once.
            typed.remove(1);
        }
        let (order, token) = (self.order(op), self.token(op, "="));
        put!(self, "{order} {}{token} : {}", texts.join(", "), self.types(&typed));
        put!(self, " -> {}", self.types(&op.results));
    }

    /// Returns `%view[%i, %j]`.
    fn indexed_view(&self, subject: &str, op: &Op) -> String {
        format!("{subject}[{}]", self.values(op.operand_group("index")))
    }

    /// Returns one type for all indices, or a type for each index of a gather/scatter view.
    fn index_types(&self, op: &Op) -> String {
        let index = op.operand_group("index");
        let own_types = matches!(
            op.operand_group("view").first().map(|&v| self.module.ty(v)),
            Some(Type::GatherScatterView { .. })
        );
        self.types(if own_types { index } else { &index[..index.len().min(1)] })
    }

    pub(super) fn view_access(&mut self, op: &Op) {
        let view = op.operand_group("view")[0];
        let (view_text, view_type, index_types) = (self.names.value(view), self.ty(view), self.index_types(op));
        let (order, token) = (self.order(op), self.token(op, " = "));
        let tail = format!("{token}{}{}", self.hints(op), self.inbounds(op));
        let place = self.indexed_view(&view_text, op);
        match op.code {
            Opcode::LoadView => put!(self, "{order} {place}{tail} : {view_type}, {index_types}"),
            Opcode::StoreView => {
                let tile = op.operand_group("tile")[0];
                let (name, ty) = (self.names.value(tile), self.ty(tile));
                put!(self, "{order} {name}, {place}{tail} : {ty}, {view_type}, {index_types}");
            }
            _ => {
                let value = op.operand_group("value")[0];
                let mode = match op.attr(AttrKind::AtomicMode) {
                    Some(Attr::AtomicMode(mode)) => mode.name(),
                    _ => "?",
                };
                let (name, ty) = (self.names.value(value), self.ty(value));
                put!(self, "{order} {place}, {mode}, {name}{tail} : {ty}, {view_type}, {index_types}");
            }
        }
        put!(self, " -> {}", self.types(&op.results));
    }

    pub(super) fn multimem(&mut self, op: &Op) {
        let view = op.operand_group("view")[0];
        let mut subject = vec![view];
        if op.code != Opcode::MultimemLoadReduce {
            subject.extend(op.operand_group("tile"));
        }
        let place = self.indexed_view(&self.values(&subject), op);
        let (order, token) = (self.order(op), self.token(op, " = "));
        // The reference prints a space for a hidden default.
        let inbounds = Some(self.inbounds(op)).filter(|text| !text.is_empty()).unwrap_or(" ".to_string());
        put!(self, "{order} {place}{token}{inbounds}");
        match op.attr(AttrKind::MultimemKind) {
            Some(Attr::MultimemKind(kind)) if *kind != MultimemKind::Add => {
                put!(self, " attributes {{reduction = #cuda_tile.multimem_reduction_kind<{}>}}", kind.name());
            }
            _ => {}
        }
        put!(self, " : {}, {}", self.types(&subject), self.index_types(op));
        for &token in op.operand_group("token") {
            put!(self, ", {}", self.ty(token));
        }
        put!(self, " -> {}", self.types(&op.results));
    }
}
