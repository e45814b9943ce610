//! Legalization of tile indices outside of the index space: loads return padding, stores have no
//! effect.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use super::index::{Open, inside_condition, through_assumes};
use super::launch_probe;
use super::loops;
use super::rewrite::rewrite_blocks;
use crate::backend::tileir::launch_compare::{Bound, Limit};
use crate::backend::tileir::launch_conditions::{Guards, LaunchConditions};
use crate::ir::{
    Attr, AttrKind, BlockId, ConstData, Def, Entry, Module, OpId, Opcode, Padding, Rounding, Sign, Substitution, Type,
    Value,
};
use crate::pass::IntRanges;
use crate::types::float_codec;
use crate::util::sort;

/// Guards each access whose index may be outside, unless ranges prove the opposite or the launch
/// can check it. Returns the conditions for the launch. The loops and divisions that the launch
/// cannot check remain in `wrapping` and `by_zero`.
pub(super) fn run(
    module: &mut Module,
    entry: &Entry,
    facts: &IntRanges,
    guards: Guards,
    wrapping: &mut FxHashSet<OpId>,
    by_zero: &mut FxHashSet<OpId>,
) -> LaunchConditions {
    let (mut open, limits) = open_accesses(module, entry, facts, guards);
    let probe = match guards {
        Guards::Launch => launch_probe::build(module, entry, facts, &mut open, wrapping, by_zero),
        Guards::Kernel => None,
    };
    loops::version::run(module, entry, &open);
    let mut values = Substitution::new();
    rewrite_blocks(module, entry.body, &mut |module, id, out| match open.get(&id) {
        None => out.push(id),
        Some(dims) => guard(module, id, dims, out, &mut values),
    });
    values.apply(module, entry.body);
    LaunchConditions { limits, probe }
}

/// Returns the accesses that may be outside, and the conditions of the other ones.
fn open_accesses(module: &Module, entry: &Entry, facts: &IntRanges, guards: Guards) -> (Open, Vec<Limit>) {
    let (mut open, mut limits) = (Open::default(), Vec::new());
    let params: &[Value] = match guards {
        Guards::Launch => &module.block(entry.body).args,
        Guards::Kernel => &[],
    };
    let conditional = conditional_ops(module, entry.body);
    module.walk(entry.body, &mut |id| {
        let mut relied = Vec::new();
        let mut dims = open_dimensions(module, facts, params, id, &mut relied);
        if conditional.contains(&id) && !relied.is_empty() {
            // A condition of an op that does not always run must not reject the launch.
            dims = open_dimensions(module, facts, &[], id, &mut Vec::new());
            relied.clear();
        }
        limits.append(&mut relied);
        if !dims.is_empty() {
            open.insert(id, dims);
        }
    });
    sort::by_key(&mut limits, |limit| format!("{limit:?}"));
    limits.dedup();
    (open, limits)
}

/// Returns the accesses that some blocks may not execute: those in an `if`, or all of them if a
/// block can return early.
fn conditional_ops(module: &Module, body: BlockId) -> FxHashSet<OpId> {
    let (mut conditional, mut returns) = (FxHashSet::default(), 0);
    module.walk(body, &mut |id| {
        let op = module.op(id);
        returns += usize::from(op.code == Opcode::Return);
        if op.code == Opcode::If {
            op.regions.iter().for_each(|&region| module.walk(region, &mut |inner| _ = conditional.insert(inner)));
        }
    });
    if returns > 1 {
        module.walk(body, &mut |id| _ = conditional.insert(id));
    }
    conditional
}

/// Returns the dimensions of an access along which its index may be outside.
fn open_dimensions(
    module: &Module,
    facts: &IntRanges,
    params: &[Value],
    id: OpId,
    limits: &mut Vec<Limit>,
) -> Vec<usize> {
    let op = module.op(id);
    if !matches!(op.code, Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView) {
        return Vec::new();
    }
    let view = op.operand_group("view")[0];
    let steps: Vec<i32> = match module.ty(view) {
        Type::PartitionView { tile, .. } => tile.clone(),
        Type::StridedView { traversal, .. } => traversal.clone(),
        // Positions and offsets of elements, which are defined outside of the array, too.
        _ => return Vec::new(),
    };
    let index = op.operand_group("index").to_vec();
    let promised = match op.attr(AttrKind::Inbounds) {
        Some(Attr::Inbounds(promised)) => promised.as_slice(),
        _ => &[],
    };
    let mut known = |d: &usize| {
        promised.get(*d) == Some(&true) || facts.is_inside(module, view, *d, index[*d]) || {
            let limit = upper_bound(module, facts, params, index[*d])
                .zip(known_count(module, params, view, *d, steps[*d]))
                .map(|(index, count)| Limit { index, count })
                .filter(Limit::can_hold);
            limits.extend(limit.filter(|limit| limit.index != limit.count));
            limit.is_some()
        }
    };
    (0..index.len()).filter(|d| !known(d)).collect_vec()
}

/// Returns a bound above all values of an index that is never negative.
fn upper_bound(module: &Module, facts: &IntRanges, params: &[Value], index: Value) -> Option<Bound> {
    let range = facts.range(index)?;
    if range.lo < 0 {
        return None;
    }
    let index = through_assumes(module, index);
    if let Some(constant) = facts.constant(index) {
        return Some(Bound::Constant(constant + 1));
    }
    match module.def(index) {
        Def::Result(id, axis) if module.op(id).code == Opcode::GetTileBlockId => Some(Bound::Grid(axis as u8)),
        Def::Arg(block, 0) => {
            let owner = module.op(module.block(block).parent?);
            (owner.code == Opcode::For).then(|| end_of_loop(module, facts, params, owner.operands[1])).flatten()
        }
        _ => None,
    }
}

/// Returns a number that the end of a loop does not exceed: of a minimum, one of both.
fn end_of_loop(module: &Module, facts: &IntRanges, params: &[Value], end: Value) -> Option<Bound> {
    number(module, facts, params, end).or_else(|| {
        let op = module.op(module.defining_op(end)?);
        let is_minimum = op.code == Opcode::MinI && op.sign() == Sign::Signed;
        is_minimum.then(|| op.operands.iter().rev().find_map(|&one| number(module, facts, params, one))).flatten()
    })
}

/// Returns a value as a number that the launch can compute.
fn number(module: &Module, facts: &IntRanges, params: &[Value], value: Value) -> Option<Bound> {
    let value = through_assumes(module, value);
    if let Some(constant) = facts.constant(value) {
        return Some(Bound::Constant(constant));
    }
    if let Some(position) = params.iter().position(|&p| p == value) {
        return Some(Bound::Param(position as u32));
    }
    let Def::Result(id, d) = module.def(value) else { return None };
    match module.op(id).code {
        Opcode::GetNumTileBlocks => Some(Bound::Grid(d as u8)),
        Opcode::GetIndexSpaceShape => {
            let view = module.op(id).operands[0];
            match module.ty(view) {
                Type::PartitionView { tile, .. } => known_count(module, params, view, d as usize, tile[d as usize]),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns the number of tiles along tile dimension `d` of a view, as the launch can compute it.
fn known_count(module: &Module, params: &[Value], view: Value, d: usize, step: i32) -> Option<Bound> {
    let (Type::PartitionView { dim_map, .. } | Type::StridedView { dim_map, .. }) = module.ty(view) else {
        return None;
    };
    let dim = usize::try_from(dim_map[d]).ok()?;
    let tensor = module.op(module.defining_op(view)?).operands[0];
    let Type::TensorView { shape, .. } = module.ty(tensor) else { return None };
    if let Some(extent) = shape[dim] {
        let step = i64::from(step);
        return Some(Bound::Constant(extent / step + i64::from(extent % step != 0)));
    }
    let make = module.op(module.defining_op(tensor)?);
    let position = shape[..dim].iter().filter(|e| e.is_none()).count();
    let extent = through_assumes(module, *make.operand_group("dynamic_shape").get(position)?);
    let param = params.iter().position(|&p| p == extent)?;
    Some(Bound::Tiles { param: param as u32, tile: u32::try_from(step).ok()? })
}

/// Encloses an access in an `if` that tests its index.
fn guard(module: &mut Module, id: OpId, open: &[usize], out: &mut Vec<OpId>, values: &mut Substitution) {
    let (op, loc) = (module.op(id).clone(), module.op(id).loc);
    let view = op.operand_group("view")[0];
    let condition = inside_condition(module, id, open, loc, out);
    let (inside, outside) = (module.add_block(&[]), module.add_block(&[]));
    // The `if` only needs the tile as a result; tokens are added later.
    let tile = op.results.first().copied().filter(|&v| module.ty(v).as_tile().is_some());
    let results: Vec<_> = tile.iter().map(|&v| module.ty_id(v)).collect_vec();
    let leave = |module: &mut Module, tiles: &[Value]| module.add_op(Opcode::Yield, &[tiles], vec![], vec![], &[], loc);
    let access = module.clone_op(id, &mut Substitution::new());
    let loaded: Vec<Value> = tile.iter().map(|_| module.op(access).results[0]).collect_vec();
    let yielded = leave(module, &loaded);
    module.block_mut(inside).ops = vec![access, yielded];
    if let Some(tile) = tile {
        let data = vec![Attr::Value(ConstData::Splat(padding_bits(module, view, tile)))];
        let ty = module.ty_id(tile);
        let constant = module.add_op(Opcode::Constant, &[], data, vec![], &[ty], loc);
        let padded = module.op(constant).results[0];
        let yielded = leave(module, &[padded]);
        module.block_mut(outside).ops = vec![constant, yielded];
    }
    let branch = module.add_op(Opcode::If, &[&[condition]], vec![], vec![inside, outside], &results, loc);
    out.push(branch);
    if let Some(tile) = tile {
        let chosen = module.op(branch).results[0];
        values.replace(tile, chosen);
    }
}

/// Returns the bit pattern that a load returns outside of the array.
pub(super) fn padding_bits(module: &Module, view: Value, tile: Value) -> u64 {
    let padding = match module.ty(view) {
        Type::PartitionView { padding, .. } | Type::StridedView { padding, .. } => padding.unwrap_or(Padding::Zero),
        _ => Padding::Zero,
    };
    let value = match padding {
        Padding::Zero => return 0,
        Padding::NegZero => -0.0,
        Padding::NaN => f64::NAN,
        Padding::PosInf => f64::INFINITY,
        Padding::NegInf => f64::NEG_INFINITY,
    };
    float_codec::encode(module.dtype(tile), value, Rounding::NearestEven)
}
