//! Parser of memory ops.

use super::cursor::Parsed;
use super::parser::Parser;
use crate::ir::{AtomicMode, Attr, MemOrder, MemScope, MultimemKind, OpId, Opcode, Value};

impl Parser<'_> {
    /// Parses the memory order, and the scope if present.
    fn order(&mut self) -> Parsed<Vec<Attr>> {
        let mut attrs = vec![Attr::MemOrder(self.one_of(MemOrder::ALL, MemOrder::name)?)];
        attrs.extend(self.maybe_one_of(MemScope::ALL, MemScope::name).map(Attr::MemScope));
        Ok(attrs)
    }

    fn hints_of_op(&mut self) -> Parsed<Option<Attr>> {
        if !self.cursor.eat_word("optimization_hints") {
            return Ok(None);
        }
        self.cursor.expect("=")?;
        self.hints().map(|hints| Some(Attr::Hints(hints)))
    }

    fn inbounds(&mut self) -> Parsed<Option<Vec<bool>>> {
        if !self.cursor.eat_word("inbounds") {
            return Ok(None);
        }
        self.cursor.expect("=")?;
        let all = self.list("[", "]", |p| match p.cursor.word()? {
            "true" => Ok(true),
            "false" => Ok(false),
            other => p.cursor.fail(format!("`{other}` is neither true nor false")),
        })?;
        Ok(Some(all))
    }

    pub(super) fn pointer_access(&mut self, code: Opcode) -> Parsed<OpId> {
        let mut attrs = self.order()?;
        let operands = self.values()?;
        let token = self.token()?;
        attrs.extend(self.hints_of_op()?);
        let types = self.result_types()?;
        // The trailing operands are optional: mask and padding of a load, mask of a store.
        let groups: [&[Value]; 3] = match (code, &operands[..]) {
            (Opcode::LoadPtr, [source]) => [std::slice::from_ref(source), &[], &[]],
            (Opcode::LoadPtr, [source, mask]) => [std::slice::from_ref(source), std::slice::from_ref(mask), &[]],
            (Opcode::StorePtr, [to, value]) => [std::slice::from_ref(to), std::slice::from_ref(value), &[]],
            (_, [a, b, c]) => [std::slice::from_ref(a), std::slice::from_ref(b), std::slice::from_ref(c)],
            _ => {
                return self
                    .cursor
                    .fail_at(self.op_at, format!("`{}` has another number of operands", code.spec().name));
            }
        };
        self.add(code, &[groups[0], groups[1], groups[2], &token], attrs, &types)
    }

    pub(super) fn pointer_atomic(&mut self, code: Opcode) -> Parsed<OpId> {
        let mut attrs = self.order()?;
        let pointers = self.value()?;
        self.cursor.expect(",")?;
        if code == Opcode::AtomicRmw {
            attrs.push(Attr::AtomicMode(self.one_of(AtomicMode::ALL, AtomicMode::name)?));
            self.cursor.expect(",")?;
        }
        let others = self.values()?;
        let token = self.token()?;
        let types = self.result_types()?;
        let fixed = if code == Opcode::AtomicRmw { 1 } else { 2 };
        if others.len() != fixed && others.len() != fixed + 1 {
            return self.cursor.fail_at(self.op_at, format!("`{}` has another number of operands", code.spec().name));
        }
        let (values, mask) = others.split_at(fixed);
        let mut groups: Vec<&[Value]> = vec![std::slice::from_ref(&pointers)];
        groups.extend(values.chunks(1));
        groups.extend([mask, &token]);
        self.add(code, &groups, attrs, &types)
    }

    pub(super) fn view_access(&mut self, code: Opcode) -> Parsed<OpId> {
        let mut attrs = self.order()?;
        let tile = match code {
            Opcode::StoreView => {
                let tile = self.value()?;
                self.cursor.expect(",")?;
                Some(tile)
            }
            _ => None,
        };
        let view = self.value()?;
        let index = self.list("[", "]", Self::value)?;
        let mut value = None;
        if code == Opcode::AtomicRedView {
            self.cursor.expect(",")?;
            attrs.push(Attr::AtomicMode(self.one_of(AtomicMode::ALL, AtomicMode::name)?));
            self.cursor.expect(",")?;
            value = Some(self.value()?);
        }
        let token = self.token()?;
        attrs.extend(self.hints_of_op()?);
        attrs.extend(self.inbounds()?.map(Attr::Inbounds));
        let types = self.result_types()?;
        match (tile, value) {
            (Some(tile), _) => self.add(code, &[&[tile], &[view], &index, &token], attrs, &types),
            (_, Some(value)) => self.add(code, &[&[view], &index, &[value], &token], attrs, &types),
            _ => self.add(code, &[&[view], &index, &token], attrs, &types),
        }
    }

    pub(super) fn multimem(&mut self, code: Opcode) -> Parsed<OpId> {
        let mut attrs = self.order()?;
        let subject = self.values()?;
        let index = self.list("[", "]", Self::value)?;
        let token = self.token()?;
        let inbounds = self.inbounds()?.unwrap_or_else(|| vec![false; index.len()]);
        if code != Opcode::MultimemStore {
            attrs.push(Attr::MultimemKind(self.multimem_kind()?));
        }
        attrs.push(Attr::Inbounds(inbounds));
        let types = self.result_types()?;
        match (code, &subject[..]) {
            (Opcode::MultimemLoadReduce, &[view]) => self.add(code, &[&[view], &index, &token], attrs, &types),
            (Opcode::MultimemReduce | Opcode::MultimemStore, &[view, tile]) => {
                self.add(code, &[&[view], &[tile], &index, &token], attrs, &types)
            }
            _ => self.cursor.fail_at(self.op_at, format!("`{}` has another number of operands", code.spec().name)),
        }
    }

    /// Parses `attributes {reduction = #cuda_tile.multimem_reduction_kind<min>}`. The default is a
    /// sum.
    fn multimem_kind(&mut self) -> Parsed<MultimemKind> {
        if !self.cursor.eat_word("attributes") {
            return Ok(MultimemKind::Add);
        }
        for sign in ["{", "reduction", "=", "#cuda_tile.multimem_reduction_kind", "<"] {
            self.cursor.expect(sign)?;
        }
        let kind = self.one_of(MultimemKind::ALL, MultimemKind::name)?;
        self.cursor.expect(">")?;
        self.cursor.expect("}")?;
        Ok(kind)
    }
}
