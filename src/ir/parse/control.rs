//! Parser of regions, and of the ops that have some.

use super::cursor::Parsed;
use super::parser::Parser;
use crate::ir::op_table::Effect;
use crate::ir::{Attr, BlockId, Flag, Loc, MAX_NESTING, OpId, Opcode, TypeId, Value};
use crate::util::collect::CollectVec as _;

/// Left side of an op: each name with its number of results.
type Header<'t> = Vec<(&'t str, usize)>;

impl<'t> Parser<'t> {
    /// Parses `{ ops }` into a block, and adds a terminator of the given opcode if the text omits
    /// it. Values defined inside go out of scope at its end.
    pub(super) fn region(&mut self, block: BlockId, implicit: Option<Opcode>) -> Parsed<()> {
        self.depth += 1;
        // The body of the entry is not counted.
        if self.depth > MAX_NESTING + 1 {
            return self.cursor.fail(format!("more than {MAX_NESTING} regions in one another"));
        }
        let outer = self.values.clone();
        self.cursor.expect("{")?;
        while !self.cursor.eat("}") {
            let id = self.op()?;
            self.module.block_mut(block).ops.push(id);
        }
        self.values = outer;
        self.depth -= 1;
        let last = self.module.block(block).ops.last().map(|&id| self.module.op(id).code.spec().effect);
        if let Some(code) = implicit.filter(|_| last != Some(Effect::Terminator)) {
            let id = self.module.add_op(code, &[&[]], vec![], vec![], &[], Loc::UNKNOWN);
            self.module.block_mut(block).ops.push(id);
        }
        Ok(())
    }

    fn op(&mut self) -> Parsed<OpId> {
        let header = self.header()?;
        let at = self.cursor.position();
        let name = self.cursor.word()?;
        let Some(&code) = Opcode::ALL.iter().find(|code| code.spec().name == name) else {
            return self.cursor.fail_at(at, format!("`{name}` is no operation of Tile IR"));
        };
        self.op_at = at;
        let count = header.iter().map(|(_, count)| count).sum();
        // Two functions, since the locals of `simple_op` would otherwise be on the stack at each
        // nesting depth.
        let id = match code.spec().regions {
            0 => self.simple_op(code, count)?,
            _ => self.op_with_regions(code)?,
        };
        let found = self.module.op(id).results.len();
        if found != count {
            return self.cursor.fail_at(at, format!("`{name}` has {found} results here, not {count}"));
        }
        let loc = self.location()?;
        self.module.op_mut(id).loc = loc;
        let mut results = self.module.op(id).results.clone().into_iter();
        for (name, count) in header {
            for i in 0..count {
                let value = results.next().expect("as many results as were counted");
                let part = if count == 1 { name.to_string() } else { format!("{name}#{i}") };
                self.define(&part, value)?;
            }
        }
        Ok(id)
    }

    /// Parses `%a, %b:2 = `. Empty for an op without results.
    fn header(&mut self) -> Parsed<Header<'t>> {
        const MAX: usize = 1 << 12;
        let mut header = Vec::new();
        if !self.cursor.is_next("%") {
            return Ok(header);
        }
        loop {
            self.cursor.expect("%")?;
            let name = self.cursor.symbol()?;
            let count = if self.cursor.eat(":") { self.cursor.integer()? } else { 1 };
            header.push((name, count));
            if header.iter().map(|(_, count)| *count).fold(0usize, usize::saturating_add) > MAX || count == 0 {
                return self.cursor.fail(format!("{count} results of one name"));
            }
            if self.cursor.eat("=") {
                return Ok(header);
            }
            self.cursor.expect(",")?;
        }
    }

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
        values.iter().map(|&value| self.module.ty_id(value)).collect_vec()
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
    fn op_with_regions(&mut self, code: Opcode) -> Parsed<OpId> {
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
        self.with_regions(Opcode::For, &groups, unsigned.into_iter().collect_vec(), vec![body], &results)
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
