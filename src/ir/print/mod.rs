//! Printer of modules, in the syntax of Tile IR as the reference disassembler prints it.
//!
//! Ops of the regular classes are printed from their rows. The others are printed individually. Any
//! module whose handles are in range can be printed: an op that does not match its row has a
//! generic form. There is no wrapper around the entries.
//!
//! [`names`] names the values, [`literal`] prints numbers, and [`types`] types. [`printer`] has the
//! state. [`simple`] and [`memory`] print ops without regions, [`control`] blocks and the other
//! ops.

/// Appends formatted text to the output.
macro_rules! put {
    ($printer:expr, $($arg:tt)*) => { write!($printer.out, $($arg)*).expect("writing to a string") };
}

mod control;
mod literal;
mod memory;
mod names;
mod printer;
mod simple;
mod types;

use std::fmt::{self, Write};

use self::literal::constant;
use self::names::Names;
use self::printer::Printer;
use self::types::join;
use super::{Entry, Global, Module};

pub(crate) use self::types::TypeText;

#[cfg(test)]
mod tests;

/// Options of the text of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrintOptions {
    /// Append the source location of each op as `loc("file":line:column)`.
    pub locations: bool,
    /// Name values by their numbers in the module. The names are then independent of other changes,
    /// for comparisons of two states of a module.
    pub stable_names: bool,
}

impl PrintOptions {
    /// Makes options with [`PrintOptions::locations`].
    pub const fn with_locations() -> PrintOptions {
        PrintOptions { locations: true, stable_names: false }
    }

    /// Makes options with [`PrintOptions::stable_names`].
    pub const fn with_stable_names() -> PrintOptions {
        PrintOptions { locations: false, stable_names: true }
    }
}

impl Module {
    /// Returns the module as text in the syntax of Tile IR.
    ///
    /// ```
    /// use cutlet::dtype::DType;
    /// use cutlet::ir::{Builder, Opcode, PrintOptions};
    ///
    /// let mut builder = Builder::new();
    /// builder.begin_entry("empty", &[]);
    /// builder.splat(DType::F32, 1.0f32.to_bits().into(), &[4]);
    /// builder.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
    /// let text = builder.module.to_text(PrintOptions::default());
    /// assert_eq!(text, "entry @empty() {\n  %cst_1_f32 = constant <f32: 1.000000e+00> : tile<4xf32>\n  return\n}\n");
    /// ```
    pub fn to_text(&self, options: PrintOptions) -> String {
        let names = if options.stable_names { Names::stable(self) } else { Names::new(self) };
        let mut printer = Printer { module: self, names, locations: options.locations, out: String::new(), depth: 0 };
        if let Some(producer) = &self.producer {
            // One line, for any string in the bytecode.
            put!(printer, "// Producer: {}\n", producer.replace(char::is_control, " "));
        }
        self.globals.iter().for_each(|global| printer.global(global));
        self.entries.iter().for_each(|entry| printer.entry(entry));
        printer.out
    }
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(PrintOptions::default()))
    }
}

impl Printer<'_> {
    fn global(&mut self, global: &Global) {
        let private = if global.private { "private " } else { "" };
        let constness = if global.constant { " constant" } else { "" };
        put!(self, "global {private}{constness} @{}", global.name);
        if global.alignment != 0 {
            put!(self, " alignment = {}", global.alignment);
        }
        let ty = self.module.type_of(global.ty);
        put!(self, " {} : {}\n", constant(ty, &global.value), TypeText(self.module, ty));
    }

    fn entry(&mut self, entry: &Entry) {
        let params = join(self.typed_args(entry.body), ", ");
        put!(self, "entry @{}({params})", entry.name);
        if !entry.hints.0.is_empty() {
            put!(self, " optimization_hints={}", entry.hints);
        }
        self.out.push_str(" {\n");
        self.ops(&self.module.block(entry.body).ops);
        self.out.push('}');
        self.location(entry.loc);
        self.out.push('\n');
    }
}
