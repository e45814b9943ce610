//! Rules of matrix products: shapes and element types.

use super::rule::{OpRule, Rule, demand};
use crate::dtype::DType;
use crate::ir::{Opcode, Value};
use crate::util::collect::CollectVec as _;

fn rejection(rule: &OpRule, what: &str) -> String {
    let operands: Vec<String> = rule.op.operands.iter().map(|&v| rule.text(v)).collect_vec();
    format!("{}: {what}", operands.join(", "))
}

/// Checks M×K times K×N added to M×N, all with an optional leading batch extent.
fn shapes(rule: &OpRule) -> Result<(Vec<i64>, i64, i64, i64), String> {
    let [lhs, rhs, acc] = [0, 1, 2].map(|i| rule.op.operands[i]);
    let (a, b, c) = (rule.numbers(lhs)?.1, rule.numbers(rhs)?.1, rule.numbers(acc)?.1);
    let rank = a.len();
    let wrong = || rejection(rule, "shapes must be M×K, K×N and M×N, or these with one batch extent in front");
    if !(2..=3).contains(&rank) || b.len() != rank || c.len() != rank {
        return Err(wrong());
    }
    let batch = rank - 2;
    let (m, k, n) = (a[batch], a[batch + 1], b[batch + 1]);
    let fits = a[..batch] == b[..batch] && a[..batch] == c[..batch] && b[batch] == k && c[batch..] == [m, n];
    if fits { Ok((a[..batch].to_vec(), m, k, n)) } else { Err(wrong()) }
}

fn types(rule: &OpRule) -> Result<[DType; 3], String> {
    let of = |v: Value| rule.numbers(v).map(|(dtype, _)| dtype);
    Ok([of(rule.op.operands[0])?, of(rule.op.operands[1])?, of(rule.op.operands[2])?])
}

pub(super) fn mma(rule: &OpRule) -> Rule {
    use DType::{BF16, F8E4M3FN, F8E5M2, F16, F32, F64, I8, I32, TF32};
    shapes(rule)?;
    rule.same(rule.op.operands[2], rule.result())?;
    let [lhs, rhs, acc] = types(rule)?;
    let known = match (rule.op.code, lhs) {
        (Opcode::MmaI, I8) => acc == I32,
        (Opcode::MmaF, F16 | F8E4M3FN | F8E5M2) => matches!(acc, F16 | F32),
        (Opcode::MmaF, BF16 | TF32 | F32) => acc == F32,
        (Opcode::MmaF, F64) => acc == F64,
        _ => false,
    };
    demand(lhs == rhs && known, || rejection(rule, "there is no such product of element types"))
}

pub(super) fn scaled(rule: &OpRule) -> Rule {
    use DType::{F4E2M1FN, F8E4M3FN, F8E5M2, F8E5M3FNU, F8E8M0FNU, F32};
    let (batch, m, k, n) = shapes(rule)?;
    let [lhs, rhs, acc] = types(rule)?;
    rule.same(rule.op.operands[2], rule.result())?;
    let [left, right] = [rule.op.operands[3], rule.op.operands[4]];
    let ((left_type, left_shape), (right_type, right_shape)) = (rule.numbers(left)?, rule.numbers(right)?);
    let blocks = *left_shape.last().unwrap_or(&0);
    let expected = |tail: [i64; 2]| [batch.as_slice(), &tail].concat();
    let fits =
        blocks > 0 && k % blocks == 0 && left_shape == expected([m, blocks]) && right_shape == expected([blocks, n]);
    demand(fits, || rejection(rule, "scales must be M×(K/B) and (K/B)×N"))?;
    let block = k / blocks;
    let known = |input: DType| match (input, left_type) {
        (F8E4M3FN | F8E5M2, F8E8M0FNU) => block == 32,
        (F4E2M1FN, F8E8M0FNU | F8E5M3FNU) => block == 16 || block == 32,
        (F4E2M1FN, F8E4M3FN) => block == 16,
        _ => false,
    };
    // Tile IR has one type for both operands. Its back end expands products of two types.
    demand(known(lhs) && known(rhs) && left_type == right_type && acc == F32, || {
        rejection(rule, &format!("there is no such product with blocks of {block}"))
    })
}
