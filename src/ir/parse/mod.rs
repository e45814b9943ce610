//! Parser of modules: the inverse of the printer, so that kernels and tests can be files.
//!
//! Accepts the output of [`Module::to_text`] and of the reference disassembler, with or without
//! source locations. The types of operands follow from their definitions, so repeated types are
//! skipped. Omitted attributes get their defaults.
//!
//! [`cursor`] parses words and numbers, [`types`] types, [`literal`] numbers and data. [`ops`],
//! [`memory`] and [`control`] parse the ops of these families, and the op table defines the regular
//! ones. The result is not verified.

mod control;
mod cursor;
mod literal;
mod memory;
mod ops;
mod types;

use rustc_hash::FxHashMap;

use self::cursor::{Cursor, Parsed};
use super::attr::Hints;
use super::op_table::Opcode;
use super::{BlockId, Entry, Global, Loc, MAX_NESTING, Module, OpId, TypeId, Value};
use crate::error::{Diagnostic, Location};

#[cfg(test)]
mod tests;

impl Module {
    /// Parses a module. `file` is the file name in error messages.
    ///
    /// ```
    /// use cutlet::ir::Module;
    ///
    /// let text = "entry @empty(%n: tile<i32>) {\n  %0 = addi %n, %n  : tile<i32>\n  return\n}\n";
    /// let module = Module::parse("empty.mlir", text)?;
    /// assert_eq!(module.entries[0].name, "empty");
    /// let error = Module::parse("empty.mlir", "entry @empty() {\n  stop\n}").unwrap_err();
    /// assert_eq!(error.to_string(), "empty.mlir:2:3: `stop` is no operation of Tile IR");
    /// # Ok::<(), cutlet::Diagnostic>(())
    /// ```
    ///
    /// # Errors
    /// The first syntax error, with its position in `file`.
    pub fn parse(file: &str, text: &str) -> Result<Module, Diagnostic> {
        let mut parser = Parser {
            cursor: Cursor::new(text),
            module: Module::new(),
            values: FxHashMap::default(),
            depth: 0,
            op_at: 0,
        };
        parser.module().map_err(|problem| {
            let (line, column) = parser.cursor.line_and_column(problem.at);
            let location = Location { file: file.to_string().into(), line, column };
            Diagnostic::new(problem.message, Some(location))
        })?;
        Ok(parser.module)
    }
}

struct Parser<'t> {
    cursor: Cursor<'t>,
    module: Module,
    /// Visible values, by name.
    values: FxHashMap<String, Value>,
    depth: usize,
    /// Position of the current op.
    op_at: usize,
}

/// Left side of an op: each name with its number of results.
type Header<'t> = Vec<(&'t str, usize)>;

impl<'t> Parser<'t> {
    fn module(&mut self) -> Parsed<()> {
        if self.cursor.eat("// Producer: ") {
            self.module.producer = Some(self.cursor.line().to_string());
        }
        while !self.cursor.at_end() {
            if self.cursor.eat_word("global") {
                self.global()?;
            } else {
                self.cursor.expect_word("entry")?;
                self.entry()?;
            }
        }
        Ok(())
    }

    fn global(&mut self) -> Parsed<()> {
        let private = self.cursor.eat_word("private");
        let constant = self.cursor.eat_word("constant");
        self.cursor.expect("@")?;
        let name = self.cursor.symbol()?.to_string();
        let alignment = match self.cursor.eat_word("alignment") {
            true => {
                self.cursor.expect("=")?;
                self.cursor.integer()?
            }
            false => 0,
        };
        let (value, ty) = self.constant()?;
        self.module.globals.push(Global { name, ty, value, alignment, private, constant });
        Ok(())
    }

    fn entry(&mut self) -> Parsed<()> {
        self.op_at = self.cursor.position();
        self.cursor.expect("@")?;
        let name = self.cursor.symbol()?.to_string();
        self.values.clear();
        let (names, types) = self.typed_args()?;
        let body = self.module.add_block(&types);
        self.define_args(body, &names)?;
        let hints = match self.cursor.eat_word("optimization_hints") {
            true => {
                self.cursor.expect("=")?;
                self.hints()?
            }
            false => Hints::default(),
        };
        self.region(body, None)?;
        let loc = self.location()?;
        self.module.entries.push(Entry { name, body, hints, loc });
        Ok(())
    }

    /// Parses `(%a: type, …)`.
    fn typed_args(&mut self) -> Parsed<(Vec<&'t str>, Vec<TypeId>)> {
        let (mut names, mut types) = (Vec::new(), Vec::new());
        self.cursor.expect("(")?;
        while !self.cursor.eat(")") {
            if !names.is_empty() {
                self.cursor.expect(",")?;
            }
            self.cursor.expect("%")?;
            names.push(self.cursor.symbol()?);
            self.cursor.expect(":")?;
            types.push(self.ty()?);
        }
        Ok((names, types))
    }

    fn define_args(&mut self, block: BlockId, names: &[&str]) -> Parsed<()> {
        for (i, name) in names.iter().enumerate() {
            let value = self.module.block(block).args[i];
            self.define(name, value)?;
        }
        Ok(())
    }

    fn define(&mut self, name: &str, value: Value) -> Parsed<()> {
        match self.values.insert(name.to_string(), value) {
            None => Ok(()),
            Some(_) => self.cursor.fail_at(self.op_at, format!("`%{name}` is defined twice")),
        }
    }

    /// Parses `%name` or `%name#i`.
    fn value(&mut self) -> Parsed<Value> {
        self.cursor.expect("%")?;
        let at = self.cursor.position();
        let mut name = self.cursor.symbol()?.to_string();
        if self.cursor.eat("#") {
            name = format!("{name}#{}", self.cursor.integer::<u32>()?);
        }
        match self.values.get(&name) {
            Some(&value) => Ok(value),
            None => self.cursor.fail_at(at, format!("`%{name}` is not defined here")),
        }
    }

    /// Parses values separated by commas, none if no `%` follows.
    fn values(&mut self) -> Parsed<Vec<Value>> {
        let mut values = Vec::new();
        if self.cursor.is_next("%") {
            values.push(self.value()?);
            while self.cursor.are_next(",", "%") {
                self.cursor.expect(",")?;
                values.push(self.value()?);
            }
        }
        Ok(values)
    }

    /// Parses `{ ops }` into a block, and adds a terminator of the given opcode if the text omits
    /// it. Values defined inside go out of scope at its end.
    fn region(&mut self, block: BlockId, implicit: Option<Opcode>) -> Parsed<()> {
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
        if let Some(code) = implicit.filter(|_| last != Some(super::op_table::Effect::Terminator)) {
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

    /// Parses ` loc("file":line:column)`, if present.
    fn location(&mut self) -> Parsed<Loc> {
        if !self.cursor.eat("loc(") {
            return Ok(Loc::UNKNOWN);
        }
        if self.cursor.eat_word("unknown") {
            self.cursor.expect(")")?;
            return Ok(Loc::UNKNOWN);
        }
        let file = self.cursor.quoted()?;
        self.cursor.expect(":")?;
        let line = self.cursor.integer()?;
        self.cursor.expect(":")?;
        let column = self.cursor.integer()?;
        self.cursor.expect(")")?;
        Ok(self.module.add_location(Location { file: file.into(), line, column }))
    }
}
