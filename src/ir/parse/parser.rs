//! State of the parser: the module so far, its visible values, and the parts of an op's text.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::cursor::{Cursor, Parsed};
use crate::error::Location;
use crate::ir::{Attr, BlockId, Loc, Module, OpId, Opcode, TypeId, Value};

/// State of the parser.
pub(super) struct Parser<'t> {
    pub cursor: Cursor<'t>,
    pub module: Module,
    /// Visible values, by name.
    pub values: FxHashMap<String, Value>,
    pub depth: usize,
    /// Position of the current op.
    pub op_at: usize,
}

impl<'t> Parser<'t> {
    pub fn define_args(&mut self, block: BlockId, names: &[&str]) -> Parsed<()> {
        for (i, name) in names.iter().enumerate() {
            let value = self.module.block(block).args[i];
            self.define(name, value)?;
        }
        Ok(())
    }

    pub fn define(&mut self, name: &str, value: Value) -> Parsed<()> {
        match self.values.insert(name.to_string(), value) {
            None => Ok(()),
            Some(_) => self.cursor.fail_at(self.op_at, format!("`%{name}` is defined twice")),
        }
    }

    /// Parses `%name` or `%name#i`.
    pub fn value(&mut self) -> Parsed<Value> {
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
    pub fn values(&mut self) -> Parsed<Vec<Value>> {
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

    /// Parses items in brackets, separated by commas.
    pub fn list<T>(&mut self, open: &str, close: &str, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = Vec::new();
        self.cursor.expect(open)?;
        while !self.cursor.eat(close) {
            if !items.is_empty() {
                self.cursor.expect(",")?;
            }
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// Parses one of the words of an enumeration.
    pub fn one_of<T: Copy>(&mut self, all: &[T], name: fn(T) -> &'static str) -> Parsed<T> {
        match self.maybe_one_of(all, name) {
            Some(value) => Ok(value),
            None => {
                let words: Vec<&str> = all.iter().map(|&value| name(value)).collect_vec();
                self.cursor.fail(format!("expected one of: {}", words.join(", ")))
            }
        }
    }

    pub fn maybe_one_of<T: Copy>(&mut self, all: &[T], name: fn(T) -> &'static str) -> Option<T> {
        let word = self.cursor.peek_word();
        let found = all.iter().copied().find(|&value| name(value) == word)?;
        self.cursor.eat(word);
        Some(found)
    }

    /// Parses `name = number`.
    pub fn number_named<T: std::str::FromStr>(&mut self, name: &str) -> Parsed<T> {
        self.cursor.expect_word(name)?;
        self.cursor.expect("=")?;
        self.cursor.integer()
    }

    /// Parses `token = %t`, if present.
    pub fn token(&mut self) -> Parsed<Vec<Value>> {
        if !self.cursor.eat_word("token") {
            return Ok(Vec::new());
        }
        self.cursor.expect("=")?;
        Ok(vec![self.value()?])
    }

    /// Adds an op.
    pub fn add(&mut self, code: Opcode, groups: &[&[Value]], attrs: Vec<Attr>, results: &[TypeId]) -> Parsed<OpId> {
        Ok(self.module.add_op(code, groups, attrs, vec![], results, Loc::UNKNOWN))
    }

    /// Parses ` loc("file":line:column)`, if present.
    pub fn location(&mut self) -> Parsed<Loc> {
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
