//! Rule of each op: its row, the types of its values, and its typing.

use super::rule::{self, OpRule, Rule};
use super::{assume, control, convert, elementwise, memory, mma, shape, simple, types, view};
use crate::ir::op_table::{Class, Opcode};
use crate::ir::{Attr, AttrKind, Module, Op, Value};

/// Checks an op whose operands are in scope.
pub(super) fn check_op(module: &Module, op: &Op) -> Rule {
    op.matches_row()?;
    check_value_types(module, op)?;
    typing(module, op)?;
    match op.attr(AttrKind::Hints) {
        Some(Attr::Hints(hints)) => simple::check_hints(hints),
        _ => Ok(()),
    }
}

fn check_value_types(module: &Module, op: &Op) -> Rule {
    let all = op.operands.iter().chain(&op.results);
    all.copied().try_for_each(|v: Value| {
        types::check(module, module.ty(v)).map_err(|e| format!("{}: {e}", rule::text(module, v)))
    })
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
        Opcode::Multiprocessor => simple::grid_query(rule),
        Opcode::Clock | Opcode::GlobalTimer => simple::time_query(rule),
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
        Opcode::ClusterAllGather => shape::cluster_all_gather(rule),
        Opcode::Ranks => shape::ranks(rule),
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
