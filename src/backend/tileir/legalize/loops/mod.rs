//! Legalization of loop counters that exceed their type. A loop ends at the first number that is
//! not below its end, also if the type cannot represent this number.
//!
//! In Tile IR the counter wraps, and the loop never ends. A step of 1 never wraps, and ranges can
//! exclude the case. Otherwise the launch checks it, or the counter is widened to 64 bits.

pub(super) mod split;
pub(super) mod version;

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use super::rewrite::rewrite_blocks;
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, Entry, Flag, Module, Op, OpId, Opcode, Overflow, Sign, Substitution, Type, hint_key};
use crate::pass::IntRanges;

/// Removes the hints of loops, caches and checks, which Tile IR lacks.
pub(super) fn drop_hints(module: &mut Module, entry: &Entry) {
    let mut hinted = Vec::new();
    module.walk(entry.body, &mut |id| hinted.extend(module.op(id).attr(AttrKind::Hints).is_some().then_some(id)));
    for id in hinted {
        let op = module.op_mut(id);
        let of_loop = op.code.is_loop();
        op.attrs.retain_mut(|attr| {
            let Attr::Hints(hints) = attr else { return true };
            hints.0.iter_mut().for_each(|(_, list)| list.retain(|(key, _)| key != "cache" && key != hint_key::CLIPPED));
            hints.0.retain(|(_, list)| !list.is_empty());
            !of_loop && !hints.0.is_empty()
        });
    }
}

/// Returns the loops whose counter may wrap. 64-bit counters never reach this point.
pub(super) fn wrapping(module: &Module, entry: &Entry, facts: &IntRanges) -> FxHashSet<OpId> {
    let mut found = FxHashSet::default();
    module.walk(entry.body, &mut |id| {
        let op = module.op(id);
        if op.code == Opcode::For && module.dtype(op.operands[0]).bits() < 64 && !fits_counter(module, op, facts) {
            found.insert(id);
        }
    });
    found
}

fn fits_counter(module: &Module, op: &Op, facts: &IntRanges) -> bool {
    let (Some(end), Some(step)) = (facts.range(op.operands[1]), facts.range(op.operands[2])) else { return false };
    if (step.lo, step.hi) == (1, 1) {
        return true;
    }
    match sign(op) {
        // A nonnegative signed number is in the lower half of the unsigned range.
        Sign::Unsigned => end.lo >= 0 && step.lo >= 0,
        Sign::Signed => end.hi - 1 + step.hi <= last(module.dtype(op.operands[0]), Sign::Signed) as i64,
    }
}

/// Returns the sign with which a loop compares its counter.
pub(super) fn sign(op: &Op) -> Sign {
    if op.flag(Flag::UnsignedCmp) { Sign::Unsigned } else { Sign::Signed }
}

/// Returns the largest number of a type of less than 64 bits.
pub(super) fn last(dtype: DType, sign: Sign) -> u64 {
    (1 << (dtype.bits() - u32::from(sign == Sign::Signed))) - 1
}

/// Widens the counters of these loops to 64 bits.
pub(super) fn widen(module: &mut Module, entry: &Entry, loops: &FxHashSet<OpId>) {
    if loops.is_empty() {
        return;
    }
    let mut values = Substitution::new();
    let wide = module.intern(Type::scalar(DType::I64));
    rewrite_blocks(module, entry.body, &mut |module, id, out| {
        if !loops.contains(&id) {
            return out.push(id);
        }
        let op = module.op(id).clone();
        for (position, &bound) in op.operands[..3].iter().enumerate() {
            let extend = module.add_op(Opcode::ExtI, &[&[bound]], vec![Attr::Sign(sign(&op))], vec![], &[wide], op.loc);
            out.push(extend);
            module.op_mut(id).operands[position] = module.op(extend).results[0];
        }
        module.op_mut(id).attrs.retain(|attr| *attr != Attr::Flag(Flag::UnsignedCmp));
        let args = module.block(op.regions[0]).args.clone();
        let mut types: Vec<_> = args.iter().map(|&arg| module.ty_id(arg)).collect_vec();
        let narrow = std::mem::replace(&mut types[0], wide);
        let body = module.add_block(&types);
        let new = module.block(body).args.clone();
        let attrs = vec![Attr::Overflow(Overflow::None)];
        let truncate = module.add_op(Opcode::TruncI, &[&new[..1]], attrs, vec![], &[narrow], op.loc);
        values.replace(args[0], module.op(truncate).results[0]);
        args.iter().zip(new).skip(1).for_each(|(&old, new)| values.replace(old, new));
        let ops = std::mem::take(&mut module.block_mut(op.regions[0]).ops);
        module.block_mut(body).ops = std::iter::once(truncate).chain(ops).collect_vec();
        module.block_mut(body).parent = Some(id);
        module.op_mut(id).regions[0] = body;
        out.push(id);
    });
    values.apply(module, entry.body);
}
