//! Prints a program as Rust that can be pasted: a kernel, and a launch of it.

use std::fmt::Write as _;

use super::kind::Kind;
use super::packed::Packed;
use super::program::{Form, Id, Program, Region, Step};

/// Text of a step.
pub enum Text {
    /// The tokens that record it, with names of operands, numbers and other names.
    Template {
        body: &'static str,
        args: &'static [&'static str],
        numbers: &'static [(&'static str, &'static str)],
        given: &'static [(&'static str, &'static str)],
    },
    /// A step with regions.
    Regions(fn(&mut Printer<'_>, &Step)),
}

impl Text {
    /// Names other than operands and numbers, with their types.
    pub fn given(&self) -> &'static [(&'static str, &'static str)] {
        match self {
            Text::Template { given, .. } => given,
            Text::Regions(_) => &[],
        }
    }
}

pub struct Printer<'a> {
    program: &'a Program,
    forms: Vec<Option<Form>>,
    text: String,
    depth: usize,
}

/// Returns true for the type of an array with the elements of the first operand.
pub fn of_operand(ty: &str) -> bool {
    ty.replace(' ', "").contains("<T,")
}

/// The name of an array.
fn array(kind: Kind, direction: &str) -> String {
    format!("{direction}_{}", kind.name())
}

/// Returns true for a character of a name.
fn names(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The text with names replaced. A name after a point is a method's or a field's, unless two
/// points make a range.
fn replaced(text: &str, by: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let end = rest.find(|c| !names(c)).unwrap_or(rest.len());
        if end == 0 {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let (word, tail) = rest.split_at(end);
        let before = out.trim_end();
        let is_member = before.ends_with('.') && !before.ends_with("..");
        match by(word).filter(|_| !is_member) {
            Some(other) => out.push_str(&other),
            None => out.push_str(word),
        }
        rest = tail;
    }
    out
}

impl<'a> Printer<'a> {
    /// `(v1, v2)`, `v1`, `()`.
    pub fn list(ids: &[Id]) -> String {
        match ids {
            [one] => format!("v{one}"),
            many => format!("({})", many.iter().map(|id| format!("v{id}")).collect::<Vec<_>>().join(", ")),
        }
    }

    /// `let v1 = `, or nothing.
    pub fn binding(&self, out: &[Id]) -> String {
        if out.is_empty() { String::new() } else { format!("let {} = ", Printer::list(out)) }
    }

    pub fn line(&mut self, text: &str) {
        // A line that closes a bracket is less indented, one that opens one indents the following
        // lines.
        let text = text.trim_end();
        self.depth -= usize::from(text.starts_with('}'));
        let _ = writeln!(self.text, "{}{text}", "    ".repeat(self.depth));
        self.depth += usize::from(text.ends_with('{'));
    }

    /// The steps of a region and its results.
    pub fn region(&mut self, region: &Region, _: &[Id]) {
        self.steps(&region.steps);
        if !region.results.is_empty() {
            self.line(&Printer::list(&region.results));
        }
    }

    pub fn steps(&mut self, steps: &[Step]) {
        steps.iter().for_each(|step| self.step(step));
    }

    fn step(&mut self, step: &Step) {
        match &step.op.text {
            Text::Regions(print) => print(self, step),
            Text::Template { body, args, numbers, .. } => {
                let body = body.split_whitespace().collect::<Vec<_>>().join(" ").replace(" :: ", "::");
                let first = step.args.first().map(|&id| self.forms[id].expect("a value").kind);
                let named = |word: &str| {
                    if let Some(n) = args.iter().position(|&name| name == word) {
                        return Some(format!("v{}", step.args[n]));
                    }
                    if let Some(n) = numbers.iter().position(|&(name, _)| name == word) {
                        let (number, ty) = (step.numbers[n], numbers[n].1);
                        return Some(if number < 0 { format!("({number}{ty})") } else { format!("{number}{ty}") });
                    }
                    self.named(word, step, first)
                };
                let text = replaced(&body, named);
                let binding = self.binding(&step.out);
                let end = text.len() - 1;
                let inner = text[1..end].trim();
                let single = !inner.contains(';');
                self.line(&format!("{binding}{};", if single { inner } else { &text }));
            }
        }
    }

    /// Types, arrays, shapes.
    fn named(&self, word: &str, step: &Step, first: Option<Kind>) -> Option<String> {
        let operands = |name: &str| {
            step.op.text.given().iter().find(|(given, _)| *given == name).is_some_and(|(_, ty)| of_operand(ty))
        };
        let kind_of = |name: &str| if operands(name) { first.expect("an operand") } else { step.kind };
        match word {
            "T" => first.map(|kind| kind.name().to_string()),
            "U" => Some(step.kind.name().to_string()),
            "input" | "output" => Some(array(kind_of(word), word)),
            "packed_input" | "packed_output" => {
                let given = step.op.text.given().iter().find(|(name, _)| *name == word);
                given.and_then(|(_, ty)| Packed::of(ty)).map(|packed| format!("{word}_{}", packed.name()))
            }
            "shape" if step.op.text.given().iter().any(|(name, _)| *name == "shape") => {
                let shape = step.out.first().map_or(self.program.tile, |&id| self.forms[id].expect("a value").shape);
                Some(format!("[{}usize, {}usize]", shape[0], shape[1]))
            }
            _ => None,
        }
    }
}

/// Most arrays in one tuple.
const MAX_TOGETHER: usize = 8;

fn tuple(parts: &[String]) -> String {
    format!("({}{})", parts.join(", "), if parts.len() == 1 { "," } else { "" })
}

/// The kernel of a program as Rust: a function that takes an array for each kind that it reads and
/// writes.
pub fn kernel(program: &Program) -> String {
    let forms = program.forms().expect("a program that makes sense");
    let mut printer = Printer { program, forms, text: String::new(), depth: 0 };
    let [inputs, outputs] = program.arrays();
    let mut params = Vec::new();
    for (kinds, direction, ty) in [(&inputs, "input", "Array"), (&outputs, "output", "ArrayMut")] {
        for kinds in kinds.chunks(MAX_TOGETHER) {
            let names: Vec<_> = kinds.iter().map(|&kind| array(kind, direction)).collect();
            let types: Vec<_> = kinds.iter().map(|kind| format!("{ty}<{}, 2>", kind.name())).collect();
            params.push(format!("{}: {}", tuple(&names), tuple(&types)));
        }
    }
    let [reads, writes] = program.packed();
    for (types, direction, ty) in [(&reads, "input", "PackedArray"), (&writes, "output", "PackedArrayMut")] {
        if types.is_empty() {
            continue;
        }
        let names: Vec<_> = types.iter().map(|packed| format!("packed_{direction}_{}", packed.name())).collect();
        let types: Vec<_> =
            types.iter().map(|packed| format!("ct::packed::{ty}<ct::packed::{}, 2>", packed.name())).collect();
        params.push(format!("{}: {}", tuple(&names), tuple(&types)));
    }
    printer.line(&format!("fn kernel({}) {{", params.join(", ")));
    let [rows, columns] = program.tile;
    printer.line("let at = [ct::bid(0), ct::bid(1)];");
    printer.line(&format!("let corner = ([at[0] * {rows}, at[1] * {columns}],);"));
    printer.steps(&program.steps);
    printer.line("}");
    printer.text
}

/// Initial content of an array.
pub struct Content {
    pub kind: Kind,
    /// Bit patterns, row-major.
    pub bits: Vec<u64>,
}

/// Initial content of a packed array, row-major.
pub struct Codes {
    pub packed: Packed,
    pub codes: Vec<u8>,
}

/// Most elements that are printed one by one.
const MAX_PRINTED: usize = 1024;

/// A whole program: imports, kernel, and a function `run` that launches it on a device and returns
/// the bits of the stored elements.
pub fn whole(program: &Program, [inputs, outputs]: &[Vec<Content>; 2], packed: &[Vec<Codes>; 2], note: &str) -> String {
    let mut text = String::from("use cutlet as ct;\nuse cutlet::prelude::*;\n\n");
    text.push_str("#[allow(unused_variables, unused_parens, unused_braces)]\n");
    text.push_str(&kernel(program));
    text.push_str(
        "\n/// The bits of what the kernel stores.\npub fn run(device: ct::Device) -> ct::Result<Vec<Vec<u64>>> {\n",
    );
    let [rows, columns] = program.shape;
    for (contents, direction, mutable) in [(inputs, "input", ""), (outputs, "output", "mut ")] {
        for content in contents {
            let (name, ty) = (array(content.kind, direction), content.kind.name());
            let bits = if content.bits.len() <= MAX_PRINTED {
                let list: Vec<_> = content.bits.iter().map(|bits| format!("{bits:#x}")).collect();
                format!("[{}]", list.join(", "))
            } else {
                format!("[0x{:x}; {}] /* too many to print: see the seed */", content.bits[0], content.bits.len())
            };
            let _ = writeln!(text, "    let bits: &[u64] = &{bits};");
            let _ = writeln!(
                text,
                "    let data: Vec<{ty}> = bits.iter().map(|&bits| Element::from_bits(bits)).collect();"
            );
            let _ = writeln!(text, "    let {mutable}{name} = device.array(&data, [{rows}, {columns}])?;");
        }
    }
    for (contents, direction, mutable) in [(&packed[0], "input", ""), (&packed[1], "output", "mut ")] {
        for Codes { packed, codes } in contents {
            let name = packed.name();
            let list = if codes.len() <= MAX_PRINTED {
                format!("{codes:?}")
            } else {
                format!("[{}; {}]", codes[0], codes.len())
            };
            let _ = writeln!(text, "    let codes: &[u8] = &{list};");
            let _ = writeln!(
                text,
                "    let data: Vec<ct::packed::{name}> = codes.iter().map(|&code| ct::packed::Narrow::from_code(code)).collect();"
            );
            let _ = writeln!(
                text,
                "    let {mutable}packed_{direction}_{name} = device.packed(&data, [{rows}, {columns}])?;"
            );
        }
    }
    let mut given = Vec::new();
    for (contents, direction, by) in [(inputs, "input", "&"), (outputs, "output", "&mut ")] {
        for contents in contents.chunks(MAX_TOGETHER) {
            let names: Vec<_> =
                contents.iter().map(|content| format!("{by}{}", array(content.kind, direction))).collect();
            given.push(tuple(&names));
        }
    }
    for (contents, direction, by) in [(&packed[0], "input", "&"), (&packed[1], "output", "&mut ")] {
        let name = |content: &Codes| format!("{by}packed_{direction}_{}", content.packed.name());
        if !contents.is_empty() {
            given.push(tuple(&contents.iter().map(name).collect::<Vec<_>>()));
        }
    }
    let _ = writeln!(text, "    ct::launch(kernel, {:?}, {})?;", program.grid(), tuple(&given));
    let codes = packed[1].iter().map(|content| {
        let name = content.packed.name();
        format!("packed_output_{name}.to_vec()?.iter().map(|&x| ct::packed::Narrow::code(x).into()).collect()")
    });
    let stored: Vec<_> = outputs
        .iter()
        .map(|content| {
            format!("{}.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect()", array(content.kind, "output"))
        })
        .chain(codes)
        .collect();
    let _ = writeln!(text, "    Ok(vec![{}])", stored.join(", "));
    text.push_str("}\n");
    for line in note.lines() {
        let _ = writeln!(text, "// {line}");
    }
    text
}
