//! Parser of ops without regions and memory: the regular classes by their rows, the others
//! individually.

use super::cursor::Parsed;
use super::parser::Parser;
use crate::ir::op_table::{Arity, AttrSpec, Class, Effect};
use crate::ir::{
    Attr, AttrKind, CmpOrder, CmpPred, Distribution, Flag, OpId, Opcode, Overflow, Predicate, Rounding, Sign, Type,
    TypeId, Value,
};
use crate::util::collect::CollectVec as _;

impl Parser<'_> {
    /// Parses the text after the name of an op with this number of results.
    pub(super) fn simple_op(&mut self, code: Opcode, count: usize) -> Parsed<OpId> {
        let spec = code.spec();
        if spec.effect == Effect::Terminator {
            let operands = self.values()?;
            if !operands.is_empty() {
                self.cursor.expect(":")?;
                self.types()?;
            }
            return self.add(code, &[&operands], vec![], &[]);
        }
        match spec.class {
            Class::FloatUnary
            | Class::FloatBinary
            | Class::FloatTernary
            | Class::IntUnary
            | Class::IntBinary
            | Class::Cast => {
                let operands = self.values()?;
                let attrs = self.modifiers(code)?;
                let types = self.result_types()?;
                self.plain(code, &operands, attrs, &types)
            }
            Class::CmpF | Class::CmpI => self.comparison(code),
            Class::Own => self.own(code, count),
        }
    }

    /// Adds an op with one operand per group. Other numbers of operands are rejected.
    fn plain(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, results: &[TypeId]) -> Parsed<OpId> {
        let groups = code.spec().operands;
        if operands.len() != groups.len() || groups.iter().any(|group| group.arity != Arity::One) {
            let message = format!("`{}` has {} operands, not {}", code.spec().name, groups.len(), operands.len());
            return self.cursor.fail_at(self.op_at, message);
        }
        let groups: Vec<&[Value]> = operands.chunks(1).collect_vec();
        self.add(code, &groups, attrs, results)
    }

    /// Parses the modifiers of the row of an op, in the order of the printer. Omitted required
    /// modifiers get their defaults.
    pub(super) fn modifiers(&mut self, code: Opcode) -> Parsed<Vec<Attr>> {
        let mut attrs = Vec::new();
        for spec in code.spec().attrs {
            attrs.extend(self.modifier(code, spec)?);
        }
        while let Some(flag) = self.maybe_one_of(Flag::ALL, Flag::name) {
            attrs.push(Attr::Flag(flag));
        }
        Ok(attrs)
    }

    fn modifier(&mut self, code: Opcode, spec: &AttrSpec) -> Parsed<Option<Attr>> {
        let is_required = spec.since <= code.spec().since;
        Ok(match spec.kind {
            AttrKind::Sign => Some(Attr::Sign(self.one_of(Sign::ALL, Sign::name)?)),
            AttrKind::SignLhs => Some(Attr::SignLhs(self.one_of(Sign::ALL, Sign::name)?)),
            AttrKind::SignRhs => Some(Attr::SignRhs(self.one_of(Sign::ALL, Sign::name)?)),
            AttrKind::Overflow => {
                let promise = self.angled_word("overflow", Overflow::ALL, Overflow::name)?;
                promise.or(is_required.then_some(Overflow::None)).map(Attr::Overflow)
            }
            AttrKind::Rounding => {
                let default = match code {
                    Opcode::DivI => Rounding::Zero,
                    Opcode::FToI => Rounding::IntToZero,
                    Opcode::Exp | Opcode::Tanh => Rounding::Full,
                    _ => Rounding::NearestEven,
                };
                let mode = self.angled_word("rounding", Rounding::ALL, Rounding::name)?;
                mode.or(is_required.then_some(default)).map(Attr::Rounding)
            }
            _ => None,
        })
    }

    /// Parses `word<name>`, if present.
    fn angled_word<T: Copy>(&mut self, word: &str, all: &[T], name: fn(T) -> &'static str) -> Parsed<Option<T>> {
        if !self.cursor.eat_word(word) {
            return Ok(None);
        }
        self.cursor.expect("<")?;
        let value = self.one_of(all, name)?;
        self.cursor.expect(">")?;
        Ok(Some(value))
    }

    fn comparison(&mut self, code: Opcode) -> Parsed<OpId> {
        let pred = Attr::CmpPred(self.one_of(CmpPred::ALL, CmpPred::name)?);
        let is_float = code.spec().class == Class::CmpF;
        let order = if is_float { Some(Attr::CmpOrder(self.one_of(CmpOrder::ALL, CmpOrder::name)?)) } else { None };
        let operands = self.values()?;
        let other = match order {
            Some(order) => order,
            None => {
                self.cursor.expect(",")?;
                Attr::Sign(self.one_of(Sign::ALL, Sign::name)?)
            }
        };
        let types = self.result_types()?;
        self.plain(code, &operands, vec![pred, other], &types)
    }

    fn own(&mut self, code: Opcode, count: usize) -> Parsed<OpId> {
        match code {
            Opcode::Constant
            | Opcode::Iota
            | Opcode::MakeToken
            | Opcode::GetTileBlockId
            | Opcode::GetNumTileBlocks
            | Opcode::GetGlobal
            | Opcode::DataPartitionId
            | Opcode::Clock
            | Opcode::GlobalTimer
            | Opcode::Multiprocessor
            | Opcode::Alloca => self.nullary_op(code),
            Opcode::Broadcast
            | Opcode::Reshape
            | Opcode::Pack
            | Opcode::Unpack
            | Opcode::Offset
            | Opcode::MakePartitionView
            | Opcode::MakeStridedView
            | Opcode::MakeGatherScatterView
            | Opcode::Permute
            | Opcode::Cat
            | Opcode::Extract
            | Opcode::Insert
            | Opcode::Gather
            | Opcode::Histogram
            | Opcode::ClusterAllGather
            | Opcode::Ranks
            | Opcode::WithLayout
            | Opcode::Select
            | Opcode::PowI
            | Opcode::MmaF
            | Opcode::MmaI
            | Opcode::MmaFScaled => self.tile_op(code),
            Opcode::InlinePtx => {
                let text = vec![Attr::Text(self.cursor.quoted()?.into())];
                let operands = self.values()?;
                let types = self.result_types()?;
                self.plain(code, &operands, text, &types)
            }
            Opcode::Assume => {
                let predicate = vec![Attr::Predicate(self.predicate()?)];
                self.cursor.expect(",")?;
                let operands = self.values()?;
                let types = self.result_types()?;
                self.plain(code, &operands, predicate, &types)
            }
            Opcode::Assert => {
                let operands = self.values()?;
                self.cursor.expect(",")?;
                let message = vec![Attr::Text(self.cursor.quoted()?.into())];
                self.result_types()?;
                let (condition, args) = operands.split_at(operands.len().min(1));
                self.add(code, &[condition, args], message, &[])
            }
            Opcode::GetTensorShape | Opcode::GetIndexSpaceShape => {
                let operands = self.values()?;
                // One type for all results.
                let types = self.result_types()?.first().map_or(vec![], |&ty| vec![ty; count]);
                self.plain(code, &operands, vec![], &types)
            }
            Opcode::JoinTokens => {
                let operands = self.values()?;
                let types = self.result_types()?;
                self.add(code, &[&operands], vec![], &types)
            }
            Opcode::MakeTensorView => self.make_tensor_view(),
            Opcode::Print => self.print(),
            Opcode::GdcWait | Opcode::GdcLaunchDependents => {
                let token = self.token()?;
                self.cursor.expect("->")?;
                let types = self.types()?;
                self.add(code, &[&token], vec![], &types)
            }
            Opcode::MemoryFenceAlias => {
                let operands = self.values()?;
                let token = self.module.intern(Type::Token);
                self.plain(code, &operands, vec![], &[token])
            }
            Opcode::LoadPtr | Opcode::StorePtr => self.pointer_access(code),
            Opcode::AtomicCas | Opcode::AtomicRmw => self.pointer_atomic(code),
            Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView => self.view_access(code),
            Opcode::MultimemLoadReduce | Opcode::MultimemReduce | Opcode::MultimemStore => self.multimem(code),
            code => unreachable!("{} is of a regular class, or has regions", code.spec().name),
        }
    }

    /// Parses ops without operands.
    fn nullary_op(&mut self, code: Opcode) -> Parsed<OpId> {
        match code {
            Opcode::Constant => {
                let (data, ty) = self.constant()?;
                self.add(code, &[], vec![Attr::Value(data)], &[ty])
            }
            Opcode::Iota | Opcode::MakeToken | Opcode::Clock | Opcode::GlobalTimer | Opcode::Multiprocessor => {
                let types = self.result_types()?;
                self.add(code, &[], vec![], &types)
            }
            Opcode::GetTileBlockId | Opcode::GetNumTileBlocks => {
                let ty = self.last_type()?;
                self.add(code, &[], vec![], &[ty; 3])
            }
            Opcode::DataPartitionId => {
                let count = vec![Attr::NumElem(self.number_named("count")?)];
                let types = self.result_types()?;
                self.add(code, &[], count, &types)
            }
            Opcode::GetGlobal => {
                self.cursor.expect("@")?;
                let name = vec![Attr::Text(self.cursor.symbol()?.into())];
                let types = self.result_types()?;
                self.add(code, &[], name, &types)
            }
            Opcode::Alloca => {
                let elements = Attr::NumElem(self.number_named("num_elem")?);
                self.cursor.expect(",")?;
                let mut attrs = vec![elements, Attr::Alignment(self.number_named("alignment")?)];
                attrs.extend(self.cursor.eat_word("global").then_some(Attr::Flag(Flag::Global)));
                let types = self.result_types()?;
                self.add(code, &[], attrs, &types)
            }
            code => unreachable!("`{}` has operands", code.spec().name),
        }
    }

    /// Parses ops that make a tile or view from others.
    fn tile_op(&mut self, code: Opcode) -> Parsed<OpId> {
        match code {
            Opcode::Broadcast
            | Opcode::Reshape
            | Opcode::Pack
            | Opcode::Unpack
            | Opcode::Offset
            | Opcode::MakePartitionView
            | Opcode::MakeStridedView
            | Opcode::Histogram
            | Opcode::ClusterAllGather
            | Opcode::MakeGatherScatterView => {
                let operands = self.values()?;
                let types = self.result_types()?;
                self.plain(code, &operands, vec![], &types)
            }
            Opcode::Permute => {
                let operands = self.values()?;
                let order = self.list("[", "]", |p| p.cursor.integer())?;
                let types = self.result_types()?;
                self.plain(code, &operands, vec![Attr::Permutation(order)], &types)
            }
            Opcode::Cat | Opcode::Gather => {
                let operands = self.values()?;
                let dim = vec![Attr::Dim(self.number_named("dim")?)];
                let types = self.result_types()?;
                self.plain(code, &operands, dim, &types)
            }
            Opcode::Ranks => {
                let operands = self.values()?;
                let bins = vec![Attr::NumElem(self.number_named("bins")?)];
                let types = self.result_types()?;
                self.plain(code, &operands, bins, &types)
            }
            Opcode::WithLayout => {
                let operands = self.values()?;
                let mut bases = |name: &str| {
                    self.cursor.expect_word(name)?;
                    self.cursor.expect("=")?;
                    self.list("[", "]", |p| p.cursor.integer())
                };
                let (slots, threads): (Vec<u32>, Vec<u32>) = (bases("slots")?, bases("threads")?);
                let layout = Distribution { slots: slots.into(), threads: threads.into() };
                let types = self.result_types()?;
                self.plain(code, &operands, vec![Attr::Distribution(layout)], &types)
            }
            Opcode::Extract | Opcode::Insert => {
                let tiles = self.values()?;
                let indices = self.list("[", "]", Self::value)?;
                let types = self.result_types()?;
                match (code, &tiles[..]) {
                    (Opcode::Extract, [source]) => self.add(code, &[&[*source], &indices], vec![], &types),
                    // The text has the types of both tiles. The result has that of the second one.
                    (Opcode::Insert, [source, into]) => {
                        let ty = self.module.ty_id(*into);
                        self.add(code, &[&[*source], &[*into], &indices], vec![], &[ty])
                    }
                    _ => self.cursor.fail_at(self.op_at, format!("`{}` has another number of tiles", code.spec().name)),
                }
            }
            Opcode::Select => {
                let operands = self.values()?;
                let ty = self.last_type()?;
                self.plain(code, &operands, vec![], &[ty])
            }
            Opcode::PowI | Opcode::MmaF | Opcode::MmaI | Opcode::MmaFScaled => {
                let operands = self.values()?;
                let attrs = self.modifiers(code)?;
                self.result_types()?;
                // The result has the type of the accumulator, or of the base.
                let like = if code == Opcode::PowI { operands.first() } else { operands.get(2) };
                let Some(&like) = like else { return self.cursor.fail_at(self.op_at, "too few operands") };
                let ty = self.module.ty_id(like);
                self.plain(code, &operands, attrs, &[ty])
            }
            code => unreachable!("`{}` has a form of its own", code.spec().name),
        }
    }

    fn make_tensor_view(&mut self) -> Parsed<OpId> {
        let base = self.value()?;
        self.cursor.expect(",")?;
        let shape = self.dynamic_entries("shape")?;
        self.cursor.expect(",")?;
        let strides = self.dynamic_entries("strides")?;
        let types = self.result_types()?;
        self.add(Opcode::MakeTensorView, &[&[base], &shape, &strides], vec![], &types)
    }

    /// Parses `name = [%a, 4]` and returns the values. The numbers are also part of the type.
    fn dynamic_entries(&mut self, name: &str) -> Parsed<Vec<Value>> {
        self.cursor.expect_word(name)?;
        self.cursor.expect("=")?;
        let entries = self.list("[", "]", |p| match p.cursor.is_next("%") {
            true => p.value().map(Some),
            false => p.cursor.integer::<i64>().map(|_| None),
        })?;
        Ok(entries.into_iter().flatten().collect_vec())
    }

    fn print(&mut self) -> Parsed<OpId> {
        let text = vec![Attr::Text(self.cursor.quoted()?.into())];
        let args = if self.cursor.eat(",") { self.values()? } else { Vec::new() };
        let token = self.token()?;
        if self.cursor.eat(":") {
            self.types()?;
        }
        let types = if self.cursor.eat("->") { self.types()? } else { Vec::new() };
        self.add(Opcode::Print, &[&args, &token], text, &types)
    }

    fn predicate(&mut self) -> Parsed<Predicate> {
        let at = self.cursor.position();
        let name = self.cursor.word()?;
        self.cursor.expect("<")?;
        let bound = |p: &mut Self| if p.cursor.eat("?") { Ok(None) } else { p.cursor.integer().map(Some) };
        let predicate = match name {
            "div_by" => {
                let divisor = self.cursor.integer()?;
                let (mut every, mut along) = (None, None);
                if self.cursor.eat(",") {
                    self.cursor.expect_word("every")?;
                    every = Some(self.cursor.integer()?);
                    self.cursor.expect_word("along")?;
                    along = bound(self)?;
                }
                Predicate::DivBy { divisor, every, along }
            }
            "same_elements" => Predicate::SameElements(self.list("[", "]", |p| p.cursor.integer())?),
            "bounded" => {
                let lower = bound(self)?;
                self.cursor.expect(",")?;
                Predicate::Bounded { lower, upper: bound(self)? }
            }
            other => return self.cursor.fail_at(at, format!("`{other}` is no predicate of `assume`")),
        };
        self.cursor.expect(">")?;
        Ok(predicate)
    }
}
