//! Rules of shape ops: broadcast, reshape, permute, cat, extract, insert, iota.

use super::rule::{OpRule, Rule, demand};
use super::types::permutation;
use crate::dtype::DType;
use crate::ir::{CLUSTER_SIZES, Elem, Type, Value};
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// Returns the types of operands and result, for messages.
fn shapes_message(rule: &OpRule, what: &str) -> String {
    let operands: Vec<String> = rule.op.operands.iter().map(|&v| rule.text(v)).collect_vec();
    format!("{} to {}: {what}", operands.join(", "), rule.text(rule.result()))
}

pub(super) fn broadcast(rule: &OpRule) -> Rule {
    let (source, result) = (rule.op.operands[0], rule.result());
    rule.same_elem(source, result)?;
    let (from, to) = (rule.tile(source)?.1, rule.tile(result)?.1);
    let fits = from.len() == to.len() && from.iter().zip(to).all(|(a, b)| a == b || *a == 1);
    demand(fits, || shapes_message(rule, "ranks must be equal, and each extent of the source 1 or that of the result"))
}

pub(super) fn reshape(rule: &OpRule) -> Rule {
    let (source, result) = (rule.op.operands[0], rule.result());
    rule.same_elem(source, result)?;
    let count = |shape: &[i64]| shape.iter().product::<i64>();
    demand(count(rule.tile(source)?.1) == count(rule.tile(result)?.1), || {
        shapes_message(rule, "the number of elements must stay")
    })
}

pub(super) fn permute(rule: &OpRule) -> Rule {
    let (source, result) = (rule.op.operands[0], rule.result());
    rule.same_elem(source, result)?;
    let (from, to) = (rule.tile(source)?.1, rule.tile(result)?.1);
    demand(from.len() >= 2, || rule.expected(source, "a tile of rank 2 or more"))?;
    let order = rule.op.permutation();
    permutation(order, from.len())?;
    let permuted: Vec<i64> = order.iter().map(|&d| from[d as usize]).collect_vec();
    demand(permuted == to, || shapes_message(rule, &format!("the permutation {order:?} gives extents {permuted:?}")))
}

pub(super) fn cat(rule: &OpRule) -> Rule {
    let [lhs, rhs] = [rule.op.operands[0], rule.op.operands[1]];
    rule.same_elem(lhs, rhs)?;
    rule.same_elem(lhs, rule.result())?;
    let (a, b, to) = (rule.tile(lhs)?.1, rule.tile(rhs)?.1, rule.tile(rule.result())?.1);
    let dim = rule.op.dim() as usize;
    demand(a.len() == b.len() && a.len() == to.len(), || shapes_message(rule, "ranks must be equal"))?;
    demand(dim < a.len(), || format!("dimension {dim} of tiles of rank {}", a.len()))?;
    let fits = (0..a.len()).all(|d| if d == dim { a[d] + b[d] == to[d] } else { a[d] == b[d] && a[d] == to[d] });
    demand(fits, || shapes_message(rule, &format!("extents must add up along dimension {dim} and be equal elsewhere")))
}

fn block_indices(rule: &OpRule, indices: &[Value], rank: usize) -> Rule {
    demand(indices.len() == rank, || format!("{} indices for a tile of rank {rank}", indices.len()))?;
    rule.all_of(indices, &Type::scalar(DType::I32))
}

fn divides(part: &[i64], whole: &[i64]) -> bool {
    part.len() == whole.len() && part.iter().zip(whole).all(|(p, w)| w % p == 0)
}

pub(super) fn extract(rule: &OpRule) -> Rule {
    let (source, result) = (rule.operand("source"), rule.result());
    rule.same_elem(source, result)?;
    let (from, to) = (rule.tile(source)?.1, rule.tile(result)?.1);
    // A rest that is no whole block has no index.
    let fits = to.len() == from.len() && to.iter().zip(from).all(|(to, from)| to <= from);
    demand(fits, || shapes_message(rule, "each extent of the result must be at most that of the source"))?;
    block_indices(rule, rule.op.operand_group("indices"), from.len())
}

pub(super) fn insert(rule: &OpRule) -> Rule {
    let (source, destination) = (rule.operand("source"), rule.operand("destination"));
    rule.same_elem(source, destination)?;
    rule.same(destination, rule.result())?;
    let (part, whole) = (rule.tile(source)?.1, rule.tile(destination)?.1);
    demand(divides(part, whole), || {
        shapes_message(rule, "each extent of the source must divide that of the destination")
    })?;
    block_indices(rule, rule.op.operand_group("indices"), whole.len())
}

pub(super) fn gather(rule: &OpRule) -> Rule {
    let [source, positions] = [rule.op.operands[0], rule.op.operands[1]];
    rule.same_elem(source, rule.result())?;
    let (from, at, to) = (rule.tile(source)?.1, rule.tile(positions)?.1, rule.tile(rule.result())?.1);
    rule.all_of(&[positions], &Type::tile(DType::I32, at))?;
    let dim = rule.op.dim() as usize;
    demand(dim < from.len(), || format!("dimension {dim} of tiles of rank {}", from.len()))?;
    let fits = from.len() == at.len() && (0..from.len()).all(|d| d == dim || from[d] == at[d]);
    demand(fits && at == to, || {
        shapes_message(
            rule,
            &format!("the result must be as the positions, whose extents differ along dimension {dim} alone"),
        )
    })
}

pub(super) fn histogram(rule: &OpRule) -> Rule {
    let (source, result) = (rule.op.operands[0], rule.result());
    let (from, to) = (rule.tile(source)?.1, rule.tile(result)?.1);
    rule.all_of(&[source], &Type::tile(DType::I32, from))?;
    rule.all_of(&[result], &Type::tile(DType::I32, to))?;
    demand(to.len() == 1, || rule.expected(result, "a tile of rank 1"))
}

pub(super) fn cluster_all_gather(rule: &OpRule) -> Rule {
    let (source, result) = (rule.op.operands[0], rule.result());
    rule.same_elem(source, result)?;
    let (from, to) = (rule.numbers(source)?.1, rule.numbers(result)?.1);
    let fits = to.split_first().is_some_and(|(&size, rest)| CLUSTER_SIZES.contains(&size) && rest == from);
    demand(fits, || {
        shapes_message(rule, "the result has the shape of the source after a leading axis of 2, 4, 8 or 16")
    })
}

pub(super) fn ranks(rule: &OpRule) -> Rule {
    let (source, result) = (rule.op.operands[0], rule.result());
    let shape = rule.tile(source)?.1;
    rule.all_of(&[source, result], &Type::tile(DType::I32, shape))?;
    demand(shape.len() == 1, || rule.expected(source, "a tile of rank 1"))?;
    demand(rule.op.bins() > 0, || "no bins".to_owned())
}

/// Checks the layout of a tile: each element has a position, and only one except for replicas.
pub(super) fn with_layout(rule: &OpRule) -> Rule {
    let (source, result) = (rule.op.operands[0], rule.result());
    rule.same(source, result)?;
    let shape = rule.numbers(result)?.1;
    demand(shape.iter().all(|extent| extent.count_ones() == 1), || {
        rule.expected(result, "a tile whose extents are powers of two")
    })?;
    let Some(layout) = rule.op.distribution() else { return Ok(()) };
    let count: i64 = shape.iter().product();
    let bits = count.trailing_zeros();
    if layout.is_partial() {
        let mut slots = layout.slots.to_vec();
        sort::natural(&mut slots);
        let is_bit = |slot: &u32| slot.is_power_of_two() && slot.trailing_zeros() < bits;
        return demand(slots.iter().all(is_bit) && slots.windows(2).all(|pair| pair[0] != pair[1]), || {
            format!("the slots {slots:?} of a partial layout, and not different bits of an element")
        });
    }
    let threads = layout.num_threads();
    demand((32..=1024).contains(&threads), || format!("a layout for {threads} threads, and not for 32 to 1024"))?;
    demand(!layout.slots.contains(&0), || "a thread that holds an element in two slots".to_owned())?;
    let mut bases: Vec<u32> =
        layout.slots.iter().chain(&*layout.threads).copied().filter(|&basis| basis != 0).collect_vec();
    sort::natural(&mut bases);
    let whole: Vec<u32> = (0..bits).map(|bit| 1 << bit).collect_vec();
    demand(bases == whole, || {
        format!("the bits of slots and threads add {bases:?}, and those of an element are {whole:?}")
    })
}

pub(super) fn iota(rule: &OpRule) -> Rule {
    match rule.ty(rule.result()) {
        Type::Tile { elem: Elem::Num(dtype), shape } if dtype.is_int() && *dtype != DType::I4 && shape.len() == 1 => {
            let fits = dtype.bits() >= 32 || shape[0] <= 1 << dtype.bits();
            demand(fits, || format!("{} values do not fit {dtype}", shape[0]))
        }
        _ => Err(rule.expected(rule.result(), "a tile of integers of rank 1")),
    }
}
