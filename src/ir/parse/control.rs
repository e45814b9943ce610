//! Parser of ops with regions.

use super::Parser;
use super::cursor::Parsed;
use crate::ir::{Attr, BlockId, Flag, Loc, OpId, Opcode, TypeId, Value};

impl<'t> Parser<'t> {
    /// Parses `iter_values(%a = %init, …)`, if present.
    fn iter_values(&mut self) -> Parsed<(Vec<&'t str>, Vec<Value>)> {
        if !self.cursor.eat_word("iter_values") {
            return Ok((Vec::new(), Vec::new()));
        }
        let pairs = self.list("(", ")", |p| {
            p.cursor.expect("%")?;
            let name = p.cursor.symbol()?;
            p.cursor.expect("=")?;
            Ok((name, p.value()?))
        })?;
        Ok(pairs.into_iter().unzip())
    }

    fn types_of(&self, values: &[Value]) -> Vec<TypeId> {
        values.iter().map(|&value| self.module.ty_id(value)).collect()
    }

    /// Parses a region. Its arguments are visible only inside of it.
    fn region_of(&mut self, names: &[&str], types: &[TypeId], implicit: Option<Opcode>) -> Parsed<BlockId> {
        let block = self.module.add_block(types);
        let outer = self.values.clone();
        self.define_args(block, names)?;
        self.region(block, implicit)?;
        self.values = outer;
        Ok(block)
    }

    fn with_regions(
        &mut self,
        code: Opcode,
        groups: &[&[Value]],
        attrs: Vec<Attr>,
        regions: Vec<BlockId>,
        results: &[TypeId],
    ) -> Parsed<OpId> {
        Ok(self.module.add_op(code, groups, attrs, regions, results, Loc::UNKNOWN))
    }

    /// Parses an op with regions.
    pub(super) fn op_with_regions(&mut self, code: Opcode) -> Parsed<OpId> {
        match code {
            Opcode::For => self.for_loop(),
            Opcode::Loop => self.loop_op(),
            Opcode::If => self.branch(),
            Opcode::Reduce | Opcode::Scan => self.reduction(code),
            code => unreachable!("{} has no region", code.spec().name),
        }
    }

    fn for_loop(&mut self) -> Parsed<OpId> {
        let unsigned = self.cursor.eat_word("unsigned").then_some(Attr::Flag(Flag::UnsignedCmp));
        self.cursor.expect("%")?;
        let mut names = vec![self.cursor.symbol()?];
        self.cursor.expect_word("in")?;
        self.cursor.expect("(")?;
        let lower = self.value()?;
        self.cursor.expect_word("to")?;
        let upper = self.value()?;
        self.cursor.expect(",")?;
        self.cursor.expect_word("step")?;
        let step = self.value()?;
        self.cursor.expect(")")?;
        self.cursor.expect(":")?;
        let mut types = vec![self.ty()?];
        let (iter_values, init) = self.iter_values()?;
        let results = if self.cursor.eat("->") { self.list("(", ")", Self::ty)? } else { Vec::new() };
        names.extend(iter_values);
        types.extend(self.types_of(&init));
        let body = self.region_of(&names, &types, Some(Opcode::Continue))?;
        let groups: [&[Value]; 4] = [&[lower], &[upper], &[step], &init];
        self.with_regions(Opcode::For, &groups, unsigned.into_iter().collect(), vec![body], &results)
    }

    fn loop_op(&mut self) -> Parsed<OpId> {
        let (names, init) = self.iter_values()?;
        let mut results = Vec::new();
        if self.cursor.eat(":") {
            // The types of the carried values, if there are any, precede those of the results.
            let types = self.types()?;
            match init.is_empty() {
                true => results = types,
                false if self.cursor.eat("->") => results = self.types()?,
                false => {}
            }
        }
        let types = self.types_of(&init);
        let body = self.region_of(&names, &types, Some(Opcode::Continue))?;
        self.with_regions(Opcode::Loop, &[&init], vec![], vec![body], &results)
    }

    fn branch(&mut self) -> Parsed<OpId> {
        let condition = self.value()?;
        let results = if self.cursor.eat("->") { self.list("(", ")", Self::ty)? } else { Vec::new() };
        let then = self.region_of(&[], &[], Some(Opcode::Yield))?;
        let otherwise = match self.cursor.eat_word("else") {
            true => self.region_of(&[], &[], Some(Opcode::Yield))?,
            false => self.module.add_block(&[]),
        };
        self.with_regions(Opcode::If, &[&[condition]], vec![], vec![then, otherwise], &results)
    }

    fn reduction(&mut self, code: Opcode) -> Parsed<OpId> {
        let operands = self.values()?;
        let mut attrs = vec![Attr::Dim(self.number_named("dim")?)];
        if code == Opcode::Scan {
            self.cursor.expect_word("reverse")?;
            self.cursor.expect("=")?;
            attrs.push(Attr::Reverse(match self.cursor.word()? {
                "true" => true,
                "false" => false,
                other => return self.cursor.fail(format!("`{other}` is neither true nor false")),
            }));
        }
        self.cursor.expect_word("identities")?;
        self.cursor.expect("=")?;
        attrs.push(Attr::Identities(self.identities()?));
        let results = self.result_types()?;
        let (names, types) = self.typed_args()?;
        let body = self.region_of(&names, &types, None)?;
        self.with_regions(code, &[&operands], attrs, vec![body], &results)
    }
}
