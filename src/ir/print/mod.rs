//! Printer of modules, in the syntax of Tile IR as the reference disassembler prints it.
//!
//! Ops of the regular classes are printed from their rows. The others are printed individually. Any
//! module whose handles are in range can be printed: an op that does not match its row has a
//! generic form. There is no wrapper around the entries. [`names`] names the values, [`literal`]
//! prints numbers, [`types`] types, [`memory`] and [`control`] the ops of these families.

/// Appends formatted text to the output.
macro_rules! put {
    ($printer:expr, $($arg:tt)*) => { write!($printer.out, $($arg)*).expect("writing to a string") };
}

mod control;
mod literal;
mod memory;
mod names;
mod types;

use std::fmt::{self, Write};

use self::literal::{constant, quoted};
use self::names::Names;
use self::types::join;
use super::attr::{Attr, AttrKind, Flag, Overflow, Predicate, Rounding};
use super::op_table::{Class, Effect, Opcode};
use super::{BlockId, Entry, Global, Loc, Module, Op, OpId, Type, Value};

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
        let mut printer = Printer { module: self, names, options, out: String::new(), depth: 0 };
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

struct Printer<'m> {
    module: &'m Module,
    names: Names,
    options: PrintOptions,
    out: String,
    depth: usize,
}

impl<'m> Printer<'m> {
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

    fn typed_args(&self, block: BlockId) -> Vec<String> {
        let args = self.module.block(block).args.iter();
        args.map(|&arg| format!("{}: {}", self.names.value(arg), self.ty(arg))).collect()
    }

    fn location(&mut self, loc: Loc) {
        if self.options.locations {
            match self.module.location(loc) {
                Some(place) => put!(self, " loc({}:{}:{})", quoted(&place.file), place.line, place.column),
                None => self.out.push_str(" loc(unknown)"),
            }
        }
    }

    fn ty(&self, value: Value) -> TypeText<'m> {
        TypeText(self.module, self.module.ty(value))
    }

    fn types(&self, values: &[Value]) -> String {
        join(values.iter().map(|&v| self.ty(v)), ", ")
    }

    fn values(&self, values: &[Value]) -> String {
        join(values.iter().map(|&v| self.names.value(v)), ", ")
    }

    fn ops(&mut self, ops: &[OpId]) {
        self.depth += 1;
        for &id in ops {
            let op = self.module.op(id);
            self.out.extend(std::iter::repeat_n("  ", self.depth));
            self.out.push_str(self.names.header(id));
            self.out.push_str(op.code.spec().name);
            match op.matches_row() {
                Ok(()) => self.op(op),
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

    fn op(&mut self, op: &Op) {
        let spec = op.code.spec();
        if spec.effect == Effect::Terminator {
            if !op.operands.is_empty() {
                put!(self, " {} : {}", self.values(&op.operands), self.types(&op.operands));
            }
            return;
        }
        match spec.class {
            Class::FloatUnary | Class::FloatBinary | Class::FloatTernary | Class::IntUnary | Class::IntBinary => {
                let modifiers = self.modifiers(op);
                put!(self, " {}{modifiers} : {}", self.values(&op.operands), self.types(&op.results));
            }
            Class::Cast => {
                let modifiers = self.modifiers(op);
                let (from, to) = (self.types(&op.operands), self.types(&op.results));
                put!(self, " {}{modifiers} : {from} -> {to}", self.values(&op.operands));
            }
            Class::CmpF | Class::CmpI => self.comparison(op),
            Class::Own => self.own(op),
        }
    }

    fn comparison(&mut self, op: &Op) {
        let (order, sign) = match op.code.spec().class {
            Class::CmpF => (format!(" {}", op.cmp_order().name()), String::new()),
            _ => (String::new(), format!(", {}", op.sign().name())),
        };
        let (operands, pred) = (self.values(&op.operands), op.cmp_pred().name());
        put!(self, " {pred}{order} {operands}{sign} : {} -> {}", self.ty(op.operands[0]), self.types(&op.results));
    }

    /// Returns the modifiers between operands and types. Defaults are omitted.
    fn modifiers(&self, op: &Op) -> String {
        let mut out = String::new();
        for spec in op.code.spec().attrs {
            match op.attr(spec.kind) {
                Some(Attr::Sign(sign) | Attr::SignLhs(sign) | Attr::SignRhs(sign)) => {
                    write!(out, " {}", sign.name()).expect("writing to a string");
                }
                Some(Attr::Overflow(promise)) if *promise != Overflow::None => {
                    write!(out, " overflow<{}>", promise.name()).expect("writing to a string");
                }
                None if spec.optional => {}
                Some(Attr::Rounding(_)) | None if spec.kind == AttrKind::Rounding => {
                    out += &rounding(op);
                }
                _ => {}
            }
        }
        for (flag, text) in FLAGS {
            if op.flag(flag) {
                write!(out, " {text}").expect("writing to a string");
            }
        }
        out
    }

    fn own(&mut self, op: &Op) {
        let operands = self.values(&op.operands);
        let results = self.types(&op.results);
        match op.code {
            Opcode::Constant => {
                let data = op.const_data().expect("a matching row");
                put!(self, " {} : {results}", constant(self.module.ty(op.results[0]), data));
            }
            Opcode::Assume => put!(self, " {}, {operands} : {results}", predicate(op)),
            Opcode::Assert => put!(self, " {operands}, {} : {}", quoted(text(op)), self.types(&op.operands)),
            Opcode::Broadcast | Opcode::Reshape | Opcode::Pack | Opcode::Unpack | Opcode::Histogram => {
                put!(self, " {operands} : {} -> {results}", self.types(&op.operands));
            }
            Opcode::Offset => put!(self, " {operands} : {} -> {results}", self.types(&op.operands)),
            Opcode::Permute => {
                let order = join(op.permutation(), ", ");
                put!(self, " {operands} [{order}] : {} -> {results}", self.types(&op.operands));
            }
            Opcode::Cat | Opcode::Gather => {
                put!(self, " {operands} dim = {} : {} -> {results}", op.dim(), self.types(&op.operands));
            }
            Opcode::WithLayout => {
                let list = |bases: Option<&[u32]>| join(bases.unwrap_or_default(), ", ");
                let layout = op.distribution();
                let slots = list(layout.map(|layout| &*layout.slots));
                let threads = list(layout.map(|layout| &*layout.threads));
                let types = self.types(&op.operands);
                put!(self, " {operands} slots = [{slots}] threads = [{threads}] : {types} -> {results}");
            }
            Opcode::Extract => {
                let (source, indices) = (op.operands[0], self.values(&op.operands[1..]));
                put!(self, " {}[{indices}] : {} -> {results}", self.names.value(source), self.ty(source));
            }
            Opcode::Insert => {
                let tiles = &op.operands[..2];
                let indices = self.values(&op.operands[2..]);
                put!(self, " {}[{indices}] : {}", self.values(tiles), self.types(tiles));
            }
            Opcode::Select => {
                put!(self, " {operands} : {}, {results}", self.ty(op.operands[0]));
            }
            Opcode::InlinePtx => {
                put!(self, " {} {operands} : {} -> {results}", quoted(text(op)), self.types(&op.operands));
            }
            Opcode::PowI => put!(self, " {operands} : {}", self.types(&op.operands)),
            Opcode::MmaF | Opcode::MmaI | Opcode::MmaFScaled => {
                let modifiers = self.modifiers(op);
                put!(self, " {operands}{modifiers} : {}", self.types(&op.operands));
            }
            Opcode::Iota | Opcode::MakeToken => put!(self, " : {results}"),
            Opcode::GetTileBlockId | Opcode::GetNumTileBlocks => put!(self, " : {}", self.ty(op.results[0])),
            Opcode::DataPartitionId => {
                let count = op.attrs.iter().find_map(|attr| if let Attr::NumElem(n) = attr { Some(*n) } else { None });
                put!(self, " count = {} : {results}", count.unwrap_or(1));
            }
            Opcode::GetGlobal => put!(self, " @{} : {results}", text(op)),
            Opcode::GetTensorShape | Opcode::GetIndexSpaceShape => {
                let result = op.results.first().map(|&r| self.ty(r).to_string()).unwrap_or_default();
                put!(self, " {operands} : {} -> {result}", self.types(&op.operands));
            }
            Opcode::JoinTokens => put!(self, " {operands} : {results}"),
            Opcode::Alloca => {
                let find = |kind| match op.attr(kind) {
                    Some(Attr::NumElem(n) | Attr::Alignment(n)) => *n,
                    _ => 0,
                };
                let (count, alignment) = (find(AttrKind::NumElem), find(AttrKind::Alignment));
                let global = if op.flag(Flag::Global) { " global" } else { "" };
                put!(self, " num_elem = {count}, alignment = {alignment}{global} : {results}");
            }
            Opcode::MakeTensorView => self.make_tensor_view(op),
            Opcode::MakePartitionView | Opcode::MakeStridedView | Opcode::MakeGatherScatterView => {
                put!(self, " {operands} : {results}");
            }
            Opcode::Print => self.print(op, &results),
            Opcode::GdcWait | Opcode::GdcLaunchDependents => put!(self, "{} -> {results}", self.token(op, " = ")),
            Opcode::MemoryFenceAlias => put!(self, " {operands}"),
            Opcode::LoadPtr | Opcode::StorePtr => self.pointer_access(op),
            Opcode::AtomicCas | Opcode::AtomicRmw => self.pointer_atomic(op),
            Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView => self.view_access(op),
            Opcode::MultimemLoadReduce | Opcode::MultimemReduce | Opcode::MultimemStore => self.multimem(op),
            Opcode::For => self.for_loop(op),
            Opcode::Loop => self.endless_loop(op),
            Opcode::If => self.branch(op),
            Opcode::Reduce | Opcode::Scan => self.reduction(op),
            code => unreachable!("{} is of a regular class", code.spec().name),
        }
    }

    /// Prints `print_tko`.
    fn print(&mut self, op: &Op, results: &str) {
        let args = op.group(0);
        let comma = if args.is_empty() { "" } else { ", " };
        put!(self, " {}{comma}{}{}", quoted(text(op)), self.values(args), self.token(op, "="));
        if !args.is_empty() {
            put!(self, " : {}", self.types(args));
        }
        if !results.is_empty() {
            put!(self, " -> {results}");
        }
    }

    /// Returns the `token` operand, if present. `equals` is the spelling of the equals sign of this
    /// op.
    fn token(&self, op: &Op, equals: &str) -> String {
        match op.operand_group("token") {
            [token] => format!(" token{equals}{}", self.names.value(*token)),
            _ => String::new(),
        }
    }

    fn make_tensor_view(&mut self, op: &Op) {
        let (mut shape, mut strides) = (String::new(), String::new());
        let mut base = String::new();
        if let Type::TensorView { shape: extents, strides: steps, ptr_attr, .. } = self.module.ty(op.results[0]) {
            shape = self.mixed_entries(extents, op.group(1));
            strides = self.mixed_entries(steps, op.group(2));
            if ptr_attr.is_some() {
                base = format!("{} -> ", self.ty(op.operands[0]));
            }
        }
        if let Some(&dynamic) = op.operands.get(1) {
            let separator = if base.is_empty() { "" } else { ", " };
            base = format!("{}{separator}{} -> ", base.trim_end_matches(" -> "), self.ty(dynamic));
        }
        let source = self.names.value(op.operands[0]);
        put!(self, " {source}, shape = [{shape}], strides = [{strides}] : {base}{}", self.types(&op.results));
    }

    /// Returns constants, with the operands for the dynamic entries of the type.
    fn mixed_entries(&self, constants: &[Option<i64>], dynamic: &[Value]) -> String {
        let mut dynamic = dynamic.iter();
        let entry = |constant: &Option<i64>| match constant {
            Some(value) => value.to_string(),
            None => dynamic.next().map_or_else(|| "?".to_string(), |&v| self.names.value(v)),
        };
        join(constants.iter().map(entry).collect::<Vec<_>>(), ", ")
    }
}

const FLAGS: [(Flag, &str); 5] = [
    (Flag::FlushToZero, "flush_to_zero"),
    (Flag::PropagateNan, "propagate_nan"),
    (Flag::Saturating, "saturating"),
    (Flag::FastAcc, "fast_acc"),
    (Flag::Global, "global"),
];

/// Returns the rounding with its leading space. Most ops keep the space if the default is omitted.
fn rounding(op: &Op) -> String {
    let (default, space) = match op.code {
        Opcode::DivI => (Rounding::Zero, ""),
        Opcode::Exp | Opcode::Tanh => (Rounding::Full, " "),
        Opcode::FToI => (Rounding::IntToZero, " "),
        _ => (Rounding::NearestEven, " "),
    };
    match op.attr(AttrKind::Rounding) {
        Some(Attr::Rounding(mode)) if *mode != default => format!(" rounding<{}>", mode.name()),
        _ => space.to_string(),
    }
}

fn text(op: &Op) -> &str {
    match op.attr(AttrKind::Text) {
        Some(Attr::Text(text)) => text,
        _ => "",
    }
}

fn predicate(op: &Op) -> String {
    let bound = |b: &Option<i64>| b.map_or_else(|| "?".to_string(), |v| v.to_string());
    match op.attr(AttrKind::Predicate) {
        Some(Attr::Predicate(Predicate::DivBy { divisor, every: Some(every), along })) => {
            format!("div_by<{divisor}, every {every} along {}>", bound(along))
        }
        Some(Attr::Predicate(Predicate::DivBy { divisor, .. })) => format!("div_by<{divisor}>"),
        Some(Attr::Predicate(Predicate::SameElements(counts))) => format!("same_elements<[{}]>", join(counts, ", ")),
        Some(Attr::Predicate(Predicate::Bounded { lower, upper })) => {
            format!("bounded<{}, {}>", bound(lower), bound(upper))
        }
        _ => "?".to_string(),
    }
}
