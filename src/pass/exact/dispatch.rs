//! Selection of the rewriting of each op.

use super::state::{Exact, Site};
use crate::dtype::DType;
use crate::ir::{AtomicMode, Attr, AttrKind, BlockId, Elem, Literal, OpId, Opcode, Type, Value};
use crate::types::float_codec;
use crate::util::collect::CollectVec as _;

/// Rewrites the body of an entry. Scalar float arguments keep their type, and are converted first.
pub fn entry(exact: &mut Exact<'_>, body: BlockId) {
    let args = exact.ops.module.block(body).args.clone();
    let (list, outer) = exact.ops.begin_block(body);
    for arg in args {
        if exact.float(arg).is_some()
            && let Some(number) = exact.argument(arg)
        {
            exact.values.replace(arg, number);
        }
    }
    list.into_iter().for_each(|id| op(exact, id));
    exact.ops.end_block(body, outer);
}

fn block(exact: &mut Exact<'_>, body: BlockId) {
    let (list, outer) = exact.ops.begin_block(body);
    list.into_iter().for_each(|id| op(exact, id));
    exact.ops.end_block(body, outer);
}

fn op(exact: &mut Exact<'_>, id: OpId) {
    let old = exact.ops.module.op(id).clone();
    exact.values.apply_to(exact.ops.module, id);
    let site = Site { op: exact.ops.module.op(id).clone(), old };
    site.op.regions.iter().for_each(|&region| block(exact, region));
    exact.ops.begin(&site.op);
    let values = site.old.operands.iter().chain(&site.old.results);
    if values.copied().any(|value| exact.float(value).is_some()) {
        on_floats(exact, id, &site);
    } else {
        exact.ops.keep(id);
    }
}

/// Rewrites an op with a float operand or result.
fn on_floats(exact: &mut Exact<'_>, id: OpId, site: &Site) {
    if let Some(result) = exact.arithmetic(site) {
        return exact.replace(site, result);
    }
    let of = |exact: &Exact<'_>, values: &[Value]| values.first().and_then(|&value| exact.float(value));
    let (first, result) = (of(exact, &site.old.operands), of(exact, &site.old.results));
    let new = match (site.op.code, first, result) {
        (Opcode::CmpF, ..) => exact.comparison(site),
        (Opcode::FToF | Opcode::IToF | Opcode::FToI, ..) => exact.cast(site),
        (Opcode::Bitcast, ..) => exact.bitcast(site),
        (Opcode::Pack, Some(dtype), _) => exact.pack(site, dtype),
        (Opcode::Unpack, _, Some(dtype)) => exact.unpack(site, dtype),
        (Opcode::Constant, _, Some(dtype)) => exact.float_constant(site, dtype),
        (Opcode::MmaF, ..) => exact.mma(site),
        (Opcode::LoadPtr, _, Some(dtype)) => exact.load_pointers(id, site, dtype),
        (Opcode::LoadView, _, Some(dtype)) => match exact.load_view(id, site, dtype) {
            Some(element) => element,
            None => return exact.reject(&site.op, "padding other than zero, of a view that a loop carries"),
        },
        (Opcode::AtomicCas | Opcode::AtomicRmw, _, Some(dtype)) => atomic(exact, id, site, dtype),
        _ => return without_result(exact, id, site),
    };
    exact.replace(site, new);
}

fn atomic(exact: &mut Exact<'_>, id: OpId, site: &Site, dtype: DType) -> Value {
    if site.op.attr(AttrKind::AtomicMode) == Some(&Attr::AtomicMode(AtomicMode::AddF)) {
        return exact.atomic_add(site, dtype);
    }
    exact.stored(id, site, 1..site.op.operands.len());
    let pattern = exact.loaded(id, dtype);
    exact.embed(pattern, dtype)
}

/// Rewrites an op that keeps its result.
fn without_result(exact: &mut Exact<'_>, id: OpId, site: &Site) {
    match site.op.code {
        Opcode::StorePtr | Opcode::StoreView => {
            exact.stored(id, site, 0..site.op.operands.len());
            exact.ops.keep(id);
        }
        Opcode::AtomicRedView => {
            if exact.atomic_add_view(site).is_none() {
                exact.reject(&site.op, "a view that a loop carries: make the view in the loop");
            }
        }
        Opcode::Print | Opcode::Assert => {
            for (position, &old) in site.old.operands.iter().enumerate() {
                if let Some(dtype) = exact.float(old) {
                    let float = exact.printable(site.op.operands[position], dtype);
                    exact.ops.module.op_mut(id).operands[position] = float;
                }
            }
            exact.ops.keep(id);
        }
        Opcode::Reduce | Opcode::Scan => {
            identities(exact, id);
            exact.ops.keep(id);
        }
        Opcode::If
        | Opcode::For
        | Opcode::Loop
        | Opcode::Yield
        | Opcode::Continue
        | Opcode::Break
        | Opcode::Select
        | Opcode::Broadcast
        | Opcode::Reshape
        | Opcode::Permute
        | Opcode::Cat
        | Opcode::Extract
        | Opcode::Insert
        | Opcode::Gather
        | Opcode::WithLayout
        | Opcode::ClusterAllGather => exact.ops.keep(id),
        _ => exact.reject(&site.op, "it has no form on elements of the ring"),
    }
}

/// Replaces the identities of a reduction or scan by elements of the ring.
fn identities(exact: &mut Exact<'_>, id: OpId) {
    let ring = exact.ring;
    let numbers = |literal: &Literal| match literal.dtype.is_float() {
        true => Literal { dtype: ring.0, bits: ring.number(float_codec::decode(literal.dtype, literal.bits)) },
        false => *literal,
    };
    let op = exact.ops.module.op_mut(id);
    for attr in &mut op.attrs {
        if let Attr::Identities(all) = attr {
            *all = all.iter().map(numbers).collect_vec();
        }
    }
}

/// Returns true if a type is a tile of floats.
pub fn is_float_tile(ty: &Type) -> bool {
    matches!(ty, Type::Tile { elem: Elem::Num(dtype), .. } if dtype.is_float())
}
