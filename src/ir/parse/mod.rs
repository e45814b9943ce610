//! Parser of modules: the inverse of the printer, so that kernels and tests can be files.
//!
//! Accepts the output of [`Module::to_text`] and of the reference disassembler, with or without
//! source locations. The types of operands follow from their definitions, so repeated types are
//! skipped. Omitted attributes get their defaults.
//!
//! [`cursor`] parses words and numbers, [`types`] types, [`literal`] numbers and data. [`parser`]
//! has the state. [`ops`] and [`memory`] parse ops without regions, of which the op table defines
//! the regular ones. [`control`] parses regions and the other ops. The result is not verified.

mod control;
mod cursor;
mod literal;
mod memory;
mod ops;
mod parser;
mod types;

use rustc_hash::FxHashMap;

use self::cursor::{Cursor, Parsed};
use self::parser::Parser;
use super::attr::Hints;
use super::{Entry, Global, Module};
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

impl Parser<'_> {
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
}
