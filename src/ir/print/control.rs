//! Printer of blocks and of ops with regions.

use super::literal::element;
use super::printer::Printer;
use super::types::join;
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, BlockId, Flag, Op, OpId, Opcode, Value};
use std::fmt::Write;

impl Printer<'_> {
    /// Prints ops, one per line, one level deeper.
    pub(super) fn ops(&mut self, ops: &[OpId]) {
        self.depth += 1;
        for &id in ops {
            let op = self.module.op(id);
            self.out.extend(std::iter::repeat_n("  ", self.depth));
            self.out.push_str(self.names.header(id));
            self.out.push_str(op.code.spec().name);
            match op.matches_row() {
                Ok(()) if op.regions.is_empty() => self.simple_op(op),
                Ok(()) => self.op_with_regions(op),
                Err(_) => self.generic(op),
            }
            self.location(op.loc);
            self.out.push('\n');
        }
        self.depth -= 1;
    }

    /// Prints `{ … }` of a region. A terminator with the given opcode and without operands is
    /// omitted.
    fn region(&mut self, block: BlockId, implicit: Option<Opcode>) {
        let ops = &self.module.block(block).ops;
        let hidden = ops.last().is_some_and(|&last| {
            let last = self.module.op(last);
            Some(last.code) == implicit && last.operands.is_empty()
        });
        self.out.push_str("{\n");
        self.ops(&ops[..ops.len() - usize::from(hidden)]);
        self.out.extend(std::iter::repeat_n("  ", self.depth));
        self.out.push('}');
    }

    /// Prints an op that does not match its row: all its parts, without a specific syntax.
    fn generic(&mut self, op: &Op) {
        put!(self, "({})", self.values(&op.operands));
        if !op.attrs.is_empty() {
            put!(self, " {:?}", op.attrs);
        }
        put!(self, " : ({}) -> ({})", self.types(&op.operands), self.types(&op.results));
        for &region in &op.regions {
            let args = join(self.typed_args(region), ", ");
            put!(self, " ({args}) ");
            self.region(region, None);
        }
    }

    fn op_with_regions(&mut self, op: &Op) {
        match op.code {
            Opcode::For => self.for_loop(op),
            Opcode::Loop => self.endless_loop(op),
            Opcode::If => self.branch(op),
            Opcode::Reduce | Opcode::Scan => self.reduction(op),
            code => unreachable!("{} has no regions", code.spec().name),
        }
    }

    /// Returns `iter_values(%a = %init, …)`.
    fn iter_values(&self, args: &[Value], init: &[Value]) -> String {
        let pairs = args.iter().zip(init);
        let pairs = pairs.map(|(&arg, &value)| format!("{} = {}", self.names.value(arg), self.names.value(value)));
        format!("iter_values({})", join(pairs, ", "))
    }

    fn for_loop(&mut self, op: &Op) {
        let body = op.regions[0];
        let args = &self.module.block(body).args;
        let unsigned = if op.flag(Flag::UnsignedCmp) { " unsigned" } else { "" };
        let induction = args.first().map_or_else(|| "%<undefined>".to_string(), |&v| self.names.value(v));
        let [lower, upper, step] = [0, 1, 2].map(|i| self.names.value(op.operands[i]));
        put!(self, "{unsigned} {induction} in ({lower} to {upper}, step {step}) : {} ", self.ty(op.operands[0]));
        if !op.group(3).is_empty() {
            let iter_values = self.iter_values(&args[args.len().min(1)..], op.group(3));
            put!(self, "{iter_values} -> ({}) ", self.types(&op.results));
        }
        self.region(body, Some(Opcode::Continue));
    }

    fn endless_loop(&mut self, op: &Op) {
        let body = op.regions[0];
        self.out.push(' ');
        if !op.operands.is_empty() {
            let iter_values = self.iter_values(&self.module.block(body).args, &op.operands);
            put!(self, "{iter_values} ");
        }
        if !op.operands.is_empty() || !op.results.is_empty() {
            self.out.push_str(": ");
        }
        if !op.operands.is_empty() {
            let arrow = if op.results.is_empty() { "" } else { "-> " };
            put!(self, "{} {arrow}", self.types(&op.operands));
        }
        if !op.results.is_empty() {
            put!(self, "{} ", self.types(&op.results));
        }
        self.region(body, Some(Opcode::Continue));
    }

    fn branch(&mut self, op: &Op) {
        put!(self, " {} ", self.names.value(op.operands[0]));
        if !op.results.is_empty() {
            put!(self, "-> ({}) ", self.types(&op.results));
        }
        self.region(op.regions[0], Some(Opcode::Yield));
        if !self.module.block(op.regions[1]).ops.is_empty() {
            self.out.push_str(" else ");
            self.region(op.regions[1], Some(Opcode::Yield));
        }
    }

    fn reduction(&mut self, op: &Op) {
        let body: BlockId = op.regions[0];
        put!(self, " {} dim={}", self.values(&op.operands), op.dim());
        if op.code == Opcode::Scan {
            put!(self, " reverse={}", op.reverse());
        }
        if let Some(Attr::Identities(all)) = op.attr(AttrKind::Identities) {
            let literals = all.iter().map(|literal| {
                let value = element(literal.dtype, literal.bits);
                // Default types of literals are omitted.
                match literal.dtype {
                    DType::I1 | DType::I64 => value,
                    DType::F64 if !value.starts_with("0x") => value,
                    dtype => format!("{value} : {dtype}"),
                }
            });
            put!(self, " identities=[{}]", join(literals, ", "));
        }
        put!(self, " : {} -> {} \n", self.types(&op.operands), self.types(&op.results));
        self.out.extend(std::iter::repeat_n("  ", self.depth));
        let args = join(self.typed_args(body), ", ");
        put!(self, "({args}) ");
        self.region(body, None);
    }
}
