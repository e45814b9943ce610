//! Rules of the predicates of `assume`.

use super::rule::{OpRule, Rule, demand};
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, Elem, Predicate, Type};

pub(super) fn assume(rule: &OpRule) -> Rule {
    let value = rule.op.operands[0];
    rule.same(value, rule.result())?;
    match rule.op.attr(AttrKind::Predicate) {
        Some(Attr::Predicate(Predicate::DivBy { divisor, every, along })) => {
            demand(divisor.is_power_of_two() && *divisor <= 1 << 62, || {
                format!("div_by<{divisor}>: the divisor must be a power of two up to 2^62")
            })?;
            if matches!(rule.ty(value), Type::TensorView { .. }) {
                return demand(every.is_none() && along.is_none(), || {
                    "`every` and `along` have no meaning for a tensor_view".to_string()
                });
            }
            let shape = addressable(rule)?;
            grouped(shape, *every, *along)
        }
        Some(Attr::Predicate(Predicate::SameElements(counts))) => {
            let shape = addressable(rule)?;
            let fits = counts.len() == shape.len() && counts.iter().zip(shape).all(|(c, e)| (0..=*e).contains(c));
            demand(fits, || format!("same_elements<{counts:?}> of {}: one count per dimension", rule.text(value)))
        }
        Some(Attr::Predicate(Predicate::Bounded { lower, upper })) => {
            let (dtype, _) = rule.ints(value)?;
            bounded(dtype, *lower, *upper)
        }
        _ => Err("an assumption without a predicate".to_string()),
    }
}

/// Returns the shape of a tile of integers or pointers.
fn addressable<'m>(rule: &OpRule<'m>) -> Result<&'m [i64], String> {
    let value = rule.op.operands[0];
    match rule.tile(value)? {
        (Elem::Num(dtype), shape) if dtype.is_int() && dtype != DType::I4 => Ok(shape),
        (Elem::Ptr { .. }, shape) => Ok(shape),
        _ => Err(rule.expected(value, "a tile of integers or pointers")),
    }
}

fn grouped(shape: &[i64], every: Option<i64>, along: Option<i64>) -> Rule {
    let (Some(every), Some(along)) = (every, along) else {
        return demand(every.is_none() && along.is_none(), || "`every` and `along` go together".to_string());
    };
    let extent = usize::try_from(along).ok().and_then(|d| shape.get(d)).copied();
    demand(extent.is_some_and(|extent| (0..=extent).contains(&every)), || {
        format!("`every {every} along {along}` does not fit a tile of shape {shape:?}")
    })
}

fn bounded(dtype: DType, lower: Option<i64>, upper: Option<i64>) -> Rule {
    let (min, max) = (i64::MIN >> (64 - dtype.bits()), i64::MAX >> (64 - dtype.bits()));
    for bound in [lower, upper].into_iter().flatten() {
        demand((min..=max).contains(&bound), || format!("bound {bound} is not a value of {dtype}"))?;
    }
    demand(lower.unwrap_or(min) <= upper.unwrap_or(max), || "the lower bound exceeds the upper one".to_string())
}
