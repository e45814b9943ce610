//! Rules of constants, grid queries, globals, allocation, tokens, print and assert.

use super::rule::{OpRule, Rule, demand};
use crate::dtype::DType;
use crate::ir::attr::pattern_mask;
use crate::ir::name::is_word;
use crate::ir::{Attr, AttrKind, ConstData, Elem, HintValue, Hints, Type};

/// Checks the data of a constant or global of this element type and shape.
pub(super) fn check_data(data: &ConstData, dtype: DType, shape: &[i64]) -> Rule {
    let count: i64 = shape.iter().product();
    match data {
        ConstData::Splat(bits) => check_pattern(*bits, dtype),
        ConstData::Dense(all) => {
            demand(all.len() as i64 == count, || format!("{} values for a tile of {count} elements", all.len()))?;
            all.iter().try_for_each(|&bits| check_pattern(bits, dtype))
        }
    }
}

/// Checks that the bits are a pattern of this type.
pub(super) fn check_pattern(bits: u64, dtype: DType) -> Rule {
    demand(bits & !pattern_mask(dtype) == 0, || format!("the bits {bits:#x} are no pattern of {dtype}"))
}

/// Checks that targets and keys of hints are words, and their numbers i32.
pub(super) fn check_hints(hints: &Hints) -> Rule {
    let words = hints.0.iter().flat_map(|(target, keys)| keys.iter().map(|(key, _)| key).chain([target]));
    for word in words {
        demand(is_word(word), || format!("the hint {word:?} is no word of letters, digits and `_`"))?;
    }
    let all = hints.0.iter().flat_map(|(_, keys)| keys);
    all.into_iter().try_for_each(|(key, value)| match value {
        HintValue::Int(number) if i32::try_from(*number).is_err() => {
            Err(format!("the hint {key} = {number} does not fit i32"))
        }
        _ => Ok(()),
    })
}

pub(super) fn constant(rule: &OpRule) -> Rule {
    let (dtype, shape) = rule.numbers(rule.result())?;
    rule.op.const_data().map_or(Ok(()), |data| check_data(data, dtype, shape))
}

pub(super) fn grid_query(rule: &OpRule) -> Rule {
    rule.all_of(&rule.op.results, &Type::scalar(DType::I32))
}

pub(super) fn time_query(rule: &OpRule) -> Rule {
    rule.all_of(&rule.op.results, &Type::scalar(DType::I64))
}

fn text<'m>(rule: &OpRule<'m>) -> &'m str {
    match rule.op.attr(AttrKind::Text) {
        Some(Attr::Text(text)) => text,
        _ => "",
    }
}

pub(super) fn get_global(rule: &OpRule) -> Rule {
    let name = text(rule);
    let Some(global) = rule.module.globals.iter().find(|g| g.name == name) else {
        return Err(format!("there is no global `{name}`"));
    };
    let elem = rule.module.type_of(global.ty).as_tile().and_then(|(elem, _)| elem.dtype());
    match rule.ty(rule.result()) {
        Type::Tile { elem: Elem::Ptr { pointee, .. }, shape } if shape.is_empty() && Some(*pointee) == elem => Ok(()),
        _ => Err(rule.expected(rule.result(), "a pointer to the element type of the global")),
    }
}

pub(super) fn alloca(rule: &OpRule) -> Rule {
    let pointee = match rule.ty(rule.result()) {
        Type::Tile { elem: Elem::Ptr { pointee, .. }, shape } if shape.is_empty() => *pointee,
        _ => return Err(rule.expected(rule.result(), "a pointer of rank 0")),
    };
    let Some(Attr::Alignment(alignment)) = rule.op.attr(AttrKind::Alignment) else { return Ok(()) };
    let least = u64::from(pointee.storage_bits().div_ceil(8));
    demand(alignment.is_power_of_two() && *alignment >= least, || {
        format!("alignment {alignment} must be a power of two of at least {least}, the size of {pointee}")
    })
}

pub(super) fn assertion(rule: &OpRule) -> Rule {
    let condition = rule.op.group(0)[0];
    demand(matches!(rule.tile(condition), Ok((Elem::Num(DType::I1), _))), || rule.expected(condition, "a tile of i1"))?;
    let (args, shape) = (rule.op.group(1), rule.module.shape(condition));
    for &arg in args {
        let (_, own) = rule.tile(arg)?;
        demand(own.is_empty() || own == shape, || rule.expected(arg, "a scalar, or of the shape of the condition"))?;
    }
    // Without values the message is plain text.
    let count = if args.is_empty() { 0 } else { conversions(text(rule))? };
    demand(count == args.len(), || format!("{count} conversions in the message, but {} values", args.len()))
}

/// Checks an op whose operands and results are tokens. It has at least `least` operands.
pub(super) fn tokens(rule: &OpRule, least: usize) -> Rule {
    let op = rule.op;
    demand(op.operands.len() >= least, || format!("{} tokens, but at least {least} are needed", op.operands.len()))?;
    rule.all_of(&op.operands, &Type::Token)?;
    rule.all_of(&op.results, &Type::Token)
}

pub(super) fn print(rule: &OpRule) -> Rule {
    let args = rule.op.operand_group("args");
    for &arg in args {
        rule.tile(arg)?;
    }
    let count = conversions(text(rule))?;
    demand(count == args.len(), || format!("{count} conversions in the format, but {} values", args.len()))?;
    demand(rule.op.results.len() <= 1, || format!("has {} results instead of one", rule.op.results.len()))?;
    rule.token_in_out(0)
}

/// Returns the number of conversions of a C format string.
fn conversions(format: &str) -> Result<usize, String> {
    let mut chars = format.chars();
    let mut count = 0;
    while let Some(c) = chars.next() {
        if c != '%' {
            continue;
        }
        // Flags, width, precision and length precede the letter.
        match chars.find(|c| !"-+ #.*0123456789hlLqjzt".contains(*c)) {
            Some('%') => {}
            Some(_) => count += 1,
            None => return Err(format!("the format {format:?} ends within a conversion")),
        }
    }
    Ok(count)
}
