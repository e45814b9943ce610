//! Prints a program as Rust that can be pasted: a kernel, and a launch of it.

use std::collections::BTreeSet;
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

/// Name and type of a parameter.
type Param = (String, String);

/// The parameters of a kernel: an array for each kind that it reads and writes, in tuples.
fn params(program: &Program) -> Vec<Vec<Param>> {
    let [inputs, outputs] = program.arrays();
    let mut params = Vec::new();
    for (kinds, direction, ty) in [(&inputs, "input", "Array"), (&outputs, "output", "ArrayMut")] {
        let param = |&kind: &Kind| (array(kind, direction), format!("{ty}<{}, 2>", kind.name()));
        params.extend(kinds.chunks(MAX_TOGETHER).map(|kinds| kinds.iter().map(param).collect()));
    }
    let [reads, writes] = program.packed();
    for (types, direction, ty) in [(&reads, "input", "PackedArray"), (&writes, "output", "PackedArrayMut")] {
        let param = |packed: &Packed| {
            let name = packed.name();
            (format!("packed_{direction}_{name}"), format!("ct::packed::{ty}<ct::packed::{name}, 2>"))
        };
        params.push(types.iter().map(param).collect());
    }
    params.retain(|together: &Vec<Param>| !together.is_empty());
    params
}

/// Steps in sequence, as the body of a function.
struct Part {
    text: String,
    /// The values that its steps make.
    made: Vec<Id>,
}

impl Part {
    /// The names that occur in it.
    fn words(&self) -> BTreeSet<&str> {
        self.text.split(|c| !names(c)).collect()
    }
}

/// Most lines of a part, unless one step has more.
const MAX_LINES: usize = 60;

impl Printer<'_> {
    /// The steps in parts.
    fn parts(&mut self, steps: &[Step]) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for step in steps {
            self.step(step);
            let text = std::mem::take(&mut self.text);
            let lines = |text: &str| text.matches('\n').count();
            match parts.last_mut().filter(|part| lines(&part.text) + lines(&text) <= MAX_LINES) {
                Some(part) => {
                    part.text.push_str(&text);
                    part.made.extend(&step.out);
                }
                None => parts.push(Part { text, made: step.out.clone() }),
            }
        }
        parts
    }

    /// A function for each part, and the lines that call them. A function takes the parameters and
    /// the values of earlier parts that it names, and returns its values that later parts name.
    fn functions(&self, parts: &[Part], params: &[Vec<Param>]) -> [String; 2] {
        let [mut functions, mut calls] = [String::new(), String::new()];
        let at = |(name, ty): (&str, &str)| (name.to_string(), ty.to_string());
        let mut known: Vec<Param> = vec![at(("at", "[Scalar<i32>; 2]")), at(("corner", "([Scalar<i32>; 2],)"))];
        known.extend(params.iter().flatten().cloned());
        for (n, part) in parts.iter().enumerate() {
            let (words, later): (_, Vec<_>) = (part.words(), parts[n + 1..].iter().map(Part::words).collect());
            let is_named = |id: &&Id| later.iter().any(|words| words.contains(format!("v{id}").as_str()));
            let made: Vec<Id> = part.made.iter().filter(is_named).copied().collect();
            let value = |&id: &Id| {
                let kind = self.forms[id].expect("a value").kind;
                (format!("v{id}"), format!("Tile<{}, 2>", kind.name()))
            };
            let values: Vec<Param> = made.iter().map(value).collect();
            let takes: Vec<&Param> = known.iter().filter(|(name, _)| words.contains(name.as_str())).collect();
            let taken = takes.iter().map(|(name, ty)| format!("{name}: {ty}")).collect::<Vec<_>>().join(", ");
            let given = takes.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
            let types: Vec<String> = values.iter().map(|(_, ty)| ty.clone()).collect();
            let returns = if types.is_empty() { String::new() } else { format!(" -> {}", tuple(&types)) };
            let _ = writeln!(functions, "{ALLOWED}\nfn part_{n}({taken}){returns} {{\n{}", part.text.trim_end());
            let own: Vec<String> = values.iter().map(|(name, _)| name.clone()).collect();
            let (last, binding) = if own.is_empty() {
                (String::new(), String::new())
            } else {
                (format!("    {}\n", tuple(&own)), format!("let {} = ", tuple(&own)))
            };
            let _ = writeln!(functions, "{last}}}\n");
            let _ = writeln!(calls, "    {binding}part_{n}({given});");
            known.extend(values);
        }
        [functions, calls]
    }
}

/// Warnings that printed functions suppress.
const ALLOWED: &str = "#[allow(unused_variables, unused_parens, unused_braces)]";

/// The kernel of a program as Rust: a function that takes an array for each kind that it reads and
/// writes, and functions of its parts if there are many steps.
pub fn kernel(program: &Program) -> String {
    let forms = program.forms().expect("a program that makes sense");
    let mut printer = Printer { program, forms, text: String::new(), depth: 1 };
    let params = params(program);
    let parts = printer.parts(&program.steps);
    let [functions, steps] = match parts.as_slice() {
        [] => [String::new(), String::new()],
        [all] => [String::new(), all.text.clone()],
        many => printer.functions(many, &params),
    };
    let declared = params.iter().map(|together| {
        let (names, types): (Vec<_>, Vec<_>) = together.iter().cloned().unzip();
        format!("{}: {}", tuple(&names), tuple(&types))
    });
    let declared = declared.collect::<Vec<_>>().join(", ");
    let [rows, columns] = program.tile;
    format!(
        "{functions}{ALLOWED}\nfn kernel({declared}) {{\n    let at = [ct::bid(0), ct::bid(1)];\n    \
         let corner = ([at[0] * {rows}, at[1] * {columns}],);\n{steps}}}\n"
    )
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

/// A number of a list, or all of them.
fn listed(values: &[String]) -> String {
    match values {
        [first, ..] if values.len() > MAX_PRINTED => {
            format!("&[{first}; {}] /* too many to print: see the seed */", values.len())
        }
        all => format!("&[{}]", all.join(", ")),
    }
}

/// A function that makes an array of the bits of its elements.
const ARRAY: &str = "
fn array<T: Element>(device: &ct::Device, bits: &[u64], shape: [usize; 2]) -> ct::Result<ct::DeviceArray<T, 2>> {
    let data: Vec<T> = bits.iter().map(|&bits| Element::from_bits(bits)).collect();
    device.array(&data, shape)
}
";

/// A function that makes a packed array of the codes of its elements.
const PACKED: &str = "
fn packed<F: ct::packed::Narrow>(device: &ct::Device, codes: &[u8], shape: [usize; 2]) -> ct::Result<ct::packed::PackedDeviceArray<F, 2>> {
    let data: Vec<F> = codes.iter().map(|&code| F::from_code(code)).collect();
    device.packed(&data, shape)
}
";

/// A whole program: imports, kernel, and a function `run` that launches it on a device and returns
/// the stored bits.
pub fn whole(program: &Program, contents: &[Vec<Content>; 2], packed: &[Vec<Codes>; 2], note: &str) -> String {
    let mut text = String::from("use cutlet as ct;\nuse cutlet::prelude::*;\n\n");
    text.push_str(&kernel(program));
    text.push_str(ARRAY);
    if packed.iter().any(|codes| !codes.is_empty()) {
        text.push_str(PACKED);
    }
    text.push_str(
        "\n/// The bits of what the kernel stores.\npub fn run(device: ct::Device) -> ct::Result<Vec<Vec<u64>>> {\n",
    );
    let [rows, columns] = program.shape;
    let mut given = Vec::new();
    for (contents, direction, mutable) in [(&contents[0], "input", ""), (&contents[1], "output", "mut ")] {
        let mut names = Vec::new();
        for content in contents {
            let (name, ty) = (array(content.kind, direction), content.kind.name());
            let bits = listed(&content.bits.iter().map(|bits| format!("{bits:#x}")).collect::<Vec<_>>());
            let _ = writeln!(text, "    let {mutable}{name} = array::<{ty}>(&device, {bits}, [{rows}, {columns}])?;");
            names.push(format!("&{mutable}{name}"));
        }
        given.extend(names.chunks(MAX_TOGETHER).map(tuple));
    }
    for (contents, direction, mutable) in [(&packed[0], "input", ""), (&packed[1], "output", "mut ")] {
        let mut names = Vec::new();
        for Codes { packed, codes } in contents {
            let ty = packed.name();
            let name = format!("packed_{direction}_{ty}");
            let codes = listed(&codes.iter().map(u8::to_string).collect::<Vec<_>>());
            let _ = writeln!(
                text,
                "    let {mutable}{name} = packed::<ct::packed::{ty}>(&device, {codes}, [{rows}, {columns}])?;"
            );
            names.push(format!("&{mutable}{name}"));
        }
        given.extend((!names.is_empty()).then(|| tuple(&names)));
    }
    let _ = writeln!(text, "    ct::launch(kernel, {:?}, {})?;", program.grid(), tuple(&given));
    text.push_str(&stored(&contents[1], &packed[1]));
    text.push_str("}\n");
    for line in note.lines() {
        let _ = writeln!(text, "// {line}");
    }
    text
}

/// The last line of `run`: the bits of all outputs.
fn stored(outputs: &[Content], packed: &[Codes]) -> String {
    let bits = outputs.iter().map(|content| {
        let name = array(content.kind, "output");
        format!("{name}.to_vec()?.iter().map(|&x| Element::to_bits(x)).collect()")
    });
    let codes = packed.iter().map(|content| {
        let name = content.packed.name();
        format!("packed_output_{name}.to_vec()?.iter().map(|&x| ct::packed::Narrow::code(x).into()).collect()")
    });
    format!("    Ok(vec![{}])\n", bits.chain(codes).collect::<Vec<_>>().join(", "))
}
