//! The verifier of modules.
//!
//! Checks the structure (blocks, terminators, scope of each use), the types, and the typing rule of
//! each op, as the Tile IR verifier does for bytecode. Accepts any module whose handles are in
//! range. Restrictions of targets and bytecode versions are not checked.
//!
//! All ops are checked, and a rule reports the first violation of an op. An op that does not match
//! its row, or has operands of malformed types, is not checked further.

mod assume;
mod control;
mod convert;
mod elementwise;
mod memory;
mod mma;
mod rule;
mod scope;
mod shape;
mod simple;
mod types;
mod view;

use super::attr::{Attr, AttrKind};
use super::module::{Entry, Global, Module, Op, OpId, Value};
use super::name::is_identifier;
use super::op_table::{Class, Opcode};
use super::types::{Elem, Type};
use crate::dtype::DType;
use crate::error::{Diagnostic, Location};
use rule::{OpRule, Rule};

/// Checks structure, scope and types of a module, and reports all errors.
///
/// # Errors
/// One diagnostic for each op (or block, entry, global) that violates a rule, with its location,
/// its name and the types involved.
///
/// ```
/// use cutlet::dtype::DType;
/// use cutlet::ir::{Builder, Opcode, verify};
///
/// let mut builder = Builder::new();
/// builder.begin_entry("k", &[]);
/// let small = builder.splat(DType::I32, 1, &[4]);
/// let large = builder.splat(DType::I32, 1, &[8]);
/// let ty = builder.module.ty_id(small);
/// builder.simple(Opcode::AndI, &[small, large], vec![], ty);
/// builder.op(Opcode::Return, &[&[]], vec![], vec![], &[]);
/// let errors = verify(&builder.module).unwrap_err();
/// assert_eq!(errors[0].message, "`andi`: lhs is tile<4xi32> and rhs is tile<8xi32>, but they must be of one type");
/// ```
pub fn verify(module: &Module) -> Result<(), Vec<Diagnostic>> {
    let mut verifier = Verifier { module, errors: Vec::new() };
    verifier.symbols();
    module.globals.iter().for_each(|global| verifier.global(global));
    module.entries.iter().for_each(|entry| verifier.entry(entry));
    if verifier.errors.is_empty() { Ok(()) } else { Err(verifier.errors) }
}

struct Verifier<'m> {
    module: &'m Module,
    errors: Vec<Diagnostic>,
}

impl Verifier<'_> {
    fn report(&mut self, message: String, location: Option<&Location>) {
        self.errors.push(Diagnostic::new(message, location.cloned()));
    }

    fn report_op(&mut self, op: &Op, message: &str) {
        let location = self.module.location(op.loc);
        self.report(format!("`{}`: {message}", op.code.spec().name), location);
    }

    fn symbols(&mut self) {
        let module = self.module;
        let globals = module.globals.iter().map(|g| (&g.name, None));
        let entries = module.entries.iter().map(|e| (&e.name, module.location(e.loc)));
        let mut seen = rustc_hash::FxHashSet::default();
        for (name, location) in globals.chain(entries) {
            if !is_identifier(name) {
                let message =
                    "names an entry or a global, but a name consists of letters, digits, `_`, `$`, `.` and `-`";
                self.report(format!("{name:?} {message}"), location);
            }
            if !seen.insert(name) {
                self.report(format!("the name `{name}` is used twice in one module"), location);
            }
        }
    }

    fn global(&mut self, global: &Global) {
        if let Err(message) = check_global(self.module, global) {
            self.report(format!("global `{}`: {message}", global.name), None);
        }
    }

    fn entry(&mut self, entry: &Entry) {
        let location = self.module.location(entry.loc);
        for (i, &param) in self.module.block(entry.body).args.iter().enumerate() {
            let valid = match self.module.ty(param) {
                Type::Tile { elem, shape } => shape.is_empty() && *elem != Elem::Num(DType::I4),
                _ => false,
            };
            if !valid {
                let ty = rule::text(self.module, param);
                let name = &entry.name;
                let message = format!("parameter {i} of `{name}` is {ty}, but a parameter is a number or a pointer");
                self.report(message, location);
            }
        }
        if let Err(message) = simple::check_hints(&entry.hints) {
            self.report(format!("entry `{}`: {message}", entry.name), location);
        }
        self.scopes(entry);
    }

    /// Checks an op whose operands are in scope.
    fn op(&mut self, id: OpId) {
        let op = self.module.op(id);
        let checked = op.matches_row().and_then(|()| self.value_types(op)).and_then(|()| typing(self.module, op));
        let checked = checked.and_then(|()| match op.attr(AttrKind::Hints) {
            Some(Attr::Hints(hints)) => simple::check_hints(hints),
            _ => Ok(()),
        });
        if let Err(message) = checked {
            self.report_op(op, &message);
        }
    }

    fn value_types(&self, op: &Op) -> Rule {
        let all = op.operands.iter().chain(&op.results);
        all.copied().try_for_each(|v: Value| {
            types::check(self.module, self.module.ty(v)).map_err(|e| format!("{}: {e}", rule::text(self.module, v)))
        })
    }
}

fn check_global(module: &Module, global: &Global) -> Rule {
    let ty = module.type_of(global.ty);
    types::check(module, ty)?;
    match ty {
        Type::Tile { elem: Elem::Num(dtype), shape } if shape.len() == 1 && *dtype != DType::I4 => {
            if shape[0].count_ones() != 1 {
                return Err(format!("extent {} is not a power of two", shape[0]));
            }
            simple::check_data(&global.value, *dtype, shape)?;
        }
        _ => return Err(format!("{} is not a tile of numbers of rank 1", rule::type_text(module, ty))),
    }
    if global.alignment != 0 && !global.alignment.is_power_of_two() {
        return Err(format!("alignment {} is not a power of two", global.alignment));
    }
    Ok(())
}

/// Checks the typing rule of an op that matches its row and whose types are well-formed.
fn typing(module: &Module, op: &Op) -> Rule {
    let rule = OpRule { module, op };
    match op.code.spec().class {
        Class::FloatUnary | Class::FloatBinary | Class::FloatTernary => elementwise::float(&rule),
        Class::IntUnary | Class::IntBinary => elementwise::int(&rule),
        Class::CmpF | Class::CmpI => elementwise::comparison(&rule),
        Class::Cast => convert::cast(&rule),
        Class::Own => own(&rule),
    }
}

fn own(rule: &OpRule) -> Rule {
    match rule.op.code {
        Opcode::Break | Opcode::Continue | Opcode::Return | Opcode::Yield => Ok(()), // checked with their block
        Opcode::For => control::for_loop(rule),
        Opcode::Loop => control::endless_loop(rule),
        Opcode::If => control::branch(rule),
        Opcode::Reduce | Opcode::Scan => control::reduction(rule),
        Opcode::Assume => assume::assume(rule),
        Opcode::Alloca => simple::alloca(rule),
        Opcode::Assert => simple::assertion(rule),
        Opcode::Constant => simple::constant(rule),
        Opcode::GetGlobal => simple::get_global(rule),
        Opcode::GetNumTileBlocks | Opcode::GetTileBlockId | Opcode::DataPartitionId => simple::grid_query(rule),
        Opcode::GdcLaunchDependents | Opcode::GdcWait | Opcode::MakeToken | Opcode::MemoryFenceAlias => {
            simple::tokens(rule, 0)
        }
        Opcode::JoinTokens => simple::tokens(rule, 2),
        Opcode::Print => simple::print(rule),
        Opcode::Select => elementwise::select(rule),
        Opcode::PowI => elementwise::powi(rule),
        Opcode::InlinePtx => elementwise::inline_ptx(rule),
        Opcode::Offset => elementwise::offset(rule),
        Opcode::Pack | Opcode::Unpack => convert::repack(rule),
        Opcode::Broadcast => shape::broadcast(rule),
        Opcode::Cat => shape::cat(rule),
        Opcode::Extract => shape::extract(rule),
        Opcode::Insert => shape::insert(rule),
        Opcode::Gather => shape::gather(rule),
        Opcode::Histogram => shape::histogram(rule),
        Opcode::WithLayout => shape::with_layout(rule),
        Opcode::Iota => shape::iota(rule),
        Opcode::Permute => shape::permute(rule),
        Opcode::Reshape => shape::reshape(rule),
        Opcode::MmaF | Opcode::MmaI => mma::mma(rule),
        Opcode::MmaFScaled => mma::scaled(rule),
        Opcode::MakeTensorView => view::make_tensor_view(rule),
        Opcode::MakePartitionView | Opcode::MakeStridedView | Opcode::MakeGatherScatterView => view::make_tiles(rule),
        Opcode::GetTensorShape | Opcode::GetIndexSpaceShape => view::shape_query(rule),
        Opcode::LoadPtr | Opcode::StorePtr => memory::pointer_access(rule),
        Opcode::AtomicCas | Opcode::AtomicRmw => memory::pointer_atomic(rule),
        Opcode::LoadView | Opcode::StoreView => view::access(rule),
        Opcode::AtomicRedView => view::atomic(rule),
        Opcode::MultimemLoadReduce | Opcode::MultimemReduce | Opcode::MultimemStore => view::multimem(rule),
        code => unreachable!("{} has a class", code.spec().name),
    }
}

#[cfg(test)]
mod tests;
