//! Printer of ops without regions: the regular classes by their rows, the others individually.

use crate::util::collect::CollectVec as _;
use std::fmt::Write;

use super::literal::{constant, quoted};
use super::printer::Printer;
use super::types::join;
use crate::ir::attr::{Attr, AttrKind, Flag, Overflow, Predicate, Rounding};
use crate::ir::op_table::{Class, Effect, Opcode};
use crate::ir::{Op, Type, Value};

impl Printer<'_> {
    /// Prints the text after the name of an op without regions that matches its row.
    pub(super) fn simple_op(&mut self, op: &Op) {
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
            Opcode::Broadcast
            | Opcode::Reshape
            | Opcode::Pack
            | Opcode::Unpack
            | Opcode::Histogram
            | Opcode::Offset
            | Opcode::ClusterAllGather => {
                put!(self, " {operands} : {} -> {results}", self.types(&op.operands));
            }
            Opcode::Permute => {
                let order = join(op.permutation(), ", ");
                put!(self, " {operands} [{order}] : {} -> {results}", self.types(&op.operands));
            }
            Opcode::Cat | Opcode::Gather => {
                put!(self, " {operands} dim = {} : {} -> {results}", op.dim(), self.types(&op.operands));
            }
            Opcode::Ranks => {
                put!(self, " {operands} bins = {} : {} -> {results}", op.bins(), self.types(&op.operands));
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
            Opcode::Select => put!(self, " {operands} : {}, {results}", self.ty(op.operands[0])),
            Opcode::InlinePtx => {
                put!(self, " {} {operands} : {} -> {results}", quoted(text(op)), self.types(&op.operands));
            }
            Opcode::PowI => put!(self, " {operands} : {}", self.types(&op.operands)),
            code if code.is_mma() => {
                let modifiers = self.modifiers(op);
                put!(self, " {operands}{modifiers} : {}", self.types(&op.operands));
            }
            Opcode::Iota | Opcode::MakeToken | Opcode::Clock | Opcode::GlobalTimer | Opcode::Multiprocessor => {
                put!(self, " : {results}")
            }
            Opcode::GetTileBlockId | Opcode::GetNumTileBlocks => put!(self, " : {}", self.ty(op.results[0])),
            Opcode::DataPartitionId => put!(self, " count = {} : {results}", count(op)),
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
            code => unreachable!("{} is of a regular class, or has regions", code.spec().name),
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
        join(constants.iter().map(entry).collect_vec(), ", ")
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

/// Returns the number of data partitions of a `data_partition_id`.
fn count(op: &Op) -> i64 {
    op.attrs.iter().find_map(|attr| if let Attr::NumElem(n) = attr { Some(*n as i64) } else { None }).unwrap_or(1)
}
