//! Rules of ops with regions: types of operands, block arguments and results. The operands of
//! terminators are checked with the blocks (see `scope`).

use super::rule::{OpRule, Rule, demand};
use super::simple;
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, Opcode, Type, Value};
use crate::util::collect::CollectVec as _;

/// Checks values that a loop carries or a branch yields.
fn check_carried_types(rule: &OpRule, values: &[Value]) -> Rule {
    values.iter().try_for_each(|&v| {
        demand(matches!(rule.ty(v), Type::Tile { .. } | Type::Token), || rule.expected(v, "a tile or a token"))
    })
}

/// Checks that a region has arguments of exactly these types.
fn block_args(rule: &OpRule, region: usize, expected: &[Type]) -> Rule {
    let args = &rule.module.block(rule.op.regions[region]).args;
    let fits = args.len() == expected.len() && args.iter().zip(expected).all(|(&a, e)| rule.ty(a) == e);
    demand(fits, || {
        let list = |types: Vec<String>| if types.is_empty() { "none".to_string() } else { types.join(", ") };
        let given = list(args.iter().map(|&a| rule.text(a)).collect_vec());
        let needed = list(expected.iter().map(|t| super::rule::type_text(rule.module, t)).collect_vec());
        format!("the block has arguments {given}, but needs {needed}")
    })
}

fn types_of(rule: &OpRule, values: &[Value]) -> Vec<Type> {
    values.iter().map(|&v| rule.ty(v).clone()).collect_vec()
}

pub(super) fn for_loop(rule: &OpRule) -> Rule {
    let [lower, upper, step] = [0, 1, 2].map(|i| rule.op.operands[i]);
    rule.int_scalar(lower)?;
    rule.one_type([lower, upper, step])?;
    let init = rule.op.operand_group("init_values");
    check_carried_types(rule, init)?;
    let results = &rule.op.results;
    demand(results.len() == init.len(), || format!("{} results for {} carried values", results.len(), init.len()))?;
    init.iter().zip(results).try_for_each(|(&a, &b)| rule.same(a, b))?;
    let mut expected = types_of(rule, &[lower]);
    expected.extend(types_of(rule, init));
    block_args(rule, 0, &expected)
}

pub(super) fn endless_loop(rule: &OpRule) -> Rule {
    check_carried_types(rule, &rule.op.operands)?;
    check_carried_types(rule, &rule.op.results)?;
    block_args(rule, 0, &types_of(rule, &rule.op.operands))
}

pub(super) fn branch(rule: &OpRule) -> Rule {
    rule.has_type(rule.op.operands[0], &Type::scalar(DType::I1))?;
    check_carried_types(rule, &rule.op.results)?;
    block_args(rule, 0, &[])?;
    block_args(rule, 1, &[])
}

pub(super) fn reduction(rule: &OpRule) -> Rule {
    let op = rule.op;
    let Some(&first) = op.operands.first() else {
        return Err("no operands".to_string());
    };
    let (_, shape) = rule.numbers(first)?;
    for &operand in &op.operands {
        rule.numbers(operand)?;
        rule.same_shape(first, operand)?;
    }
    let dim = op.dim() as usize;
    demand(dim < shape.len(), || format!("dimension {dim} of {}", rule.text(first)))?;
    let results = &op.results;
    demand(results.len() == op.operands.len(), || {
        format!("{} results of {} operands", results.len(), op.operands.len())
    })?;
    let mut reduced = shape.to_vec();
    if op.code == Opcode::Reduce {
        reduced.remove(dim);
    }
    let dtypes: Vec<DType> = op.operands.iter().map(|&v| rule.ty(v).dtype()).collect_vec();
    for (&result, &dtype) in results.iter().zip(&dtypes) {
        rule.has_type(result, &Type::tile(dtype, reduced.as_slice()))?;
    }
    identities(rule, &dtypes)?;
    let pairs: Vec<Type> = dtypes.iter().flat_map(|&d| [Type::scalar(d), Type::scalar(d)]).collect_vec();
    block_args(rule, 0, &pairs)
}

fn identities(rule: &OpRule, dtypes: &[DType]) -> Rule {
    let Some(Attr::Identities(all)) = rule.op.attr(AttrKind::Identities) else { return Ok(()) };
    let half = |d: DType| matches!(d, DType::F16 | DType::BF16);
    let fits =
        all.len() == dtypes.len() && all.iter().zip(dtypes).all(|(l, &d)| l.dtype == d || (half(l.dtype) && half(d)));
    demand(fits, || {
        let given: Vec<_> = all.iter().map(|l| l.dtype.name()).collect_vec();
        let needed: Vec<_> = dtypes.iter().map(|d| d.name()).collect_vec();
        format!("identities of {}, but the operands are of {}", given.join(", "), needed.join(", "))
    })?;
    all.iter().try_for_each(|literal| simple::check_pattern(literal.bits, literal.dtype))
}
