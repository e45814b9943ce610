//! Attributes in bytecode: inline in the order of the op table, and tagged.

use std::sync::Arc;

use super::constant::{from_file_bits, to_file_bits};
use super::tables::{ReadTables, WriteTables};
use super::wire::{Decoder, Encoder, damaged};
use crate::backend::tileir::version::Version;
use crate::dtype::DType;
use crate::error::Result;
use crate::ir::{
    AtomicMode, Attr, AttrKind, CmpOrder, CmpPred, HintValue, Hints, Literal, MemOrder, MemScope, MultimemKind, Op,
    Overflow, Predicate, Rounding, Sign, Type,
};

mod tag {
    pub const INTEGER: u64 = 1;
    pub const FLOAT: u64 = 2;
    pub const BOOL: u64 = 3;
    pub const ARRAY: u64 = 6;
    pub const DIV_BY: u64 = 8;
    pub const SAME_ELEMENTS: u64 = 9;
    pub const DICTIONARY: u64 = 10;
    pub const HINTS: u64 = 11;
    pub const BOUNDED: u64 = 12;
}

/// Returns the value that an absent attribute of a later version implies.
pub(super) fn late_default(kind: AttrKind, op: &Op) -> Attr {
    match kind {
        AttrKind::Rounding => Attr::Rounding(Rounding::Full),
        AttrKind::Overflow => Attr::Overflow(Overflow::None),
        AttrKind::Inbounds => Attr::Inbounds(vec![false; op.operand_group("index").len()]),
        other => unreachable!("{other:?} is as old as its op"),
    }
}

/// Appends an attribute in its inline form.
pub(super) fn encode(attr: &Attr, op: &Op, tables: &mut WriteTables<'_>, out: &mut Encoder) {
    match attr {
        Attr::Flag(_) => unreachable!("flags are bits of the flags word"),
        Attr::Rounding(v) => out.varint(*v as u64),
        Attr::Overflow(v) => out.varint(*v as u64),
        Attr::Sign(v) | Attr::SignLhs(v) | Attr::SignRhs(v) => out.varint(*v as u64),
        Attr::CmpPred(v) => out.varint(*v as u64),
        Attr::CmpOrder(v) => out.varint(*v as u64),
        Attr::MemOrder(v) => out.varint(*v as u64),
        Attr::MemScope(v) => out.varint(*v as u64),
        Attr::AtomicMode(v) => out.varint(*v as u64),
        Attr::MultimemKind(v) => out.varint(*v as u64),
        Attr::Text(text) => out.varint(tables.string(text)),
        Attr::Predicate(predicate) => encode_predicate(predicate, out),
        Attr::Dim(v) => out.varint((*v).into()),
        Attr::NumElem(v) | Attr::Alignment(v) => out.varint(*v),
        Attr::Reverse(v) => out.u8((*v).into()),
        Attr::Value(data) => {
            let ty = tables.types_of(op);
            out.varint(tables.constant(ty, data));
        }
        Attr::Identities(all) => {
            out.count(all.len());
            all.iter().for_each(|literal| encode_literal(literal, tables, out));
        }
        Attr::Permutation(list) => out.i32_list(list),
        Attr::Inbounds(list) => out.bool_list(list),
        Attr::Hints(hints) => encode_hints(hints, tables, out),
        Attr::Distribution(_) => unreachable!("no version of the bytecode has layouts"),
    }
}

fn encode_predicate(predicate: &Predicate, out: &mut Encoder) {
    let pair = |out: &mut Encoder, first: Option<i64>, second: Option<i64>| {
        out.u8(u8::from(first.is_some()) | u8::from(second.is_some()) << 1);
        first.into_iter().chain(second).for_each(|v| out.svarint(v));
    };
    match predicate {
        Predicate::DivBy { divisor, every, along } => {
            out.varint(tag::DIV_BY);
            out.varint(*divisor);
            pair(out, *every, *along);
        }
        Predicate::SameElements(list) => {
            out.varint(tag::SAME_ELEMENTS);
            out.i64_list(list.iter().copied());
        }
        Predicate::Bounded { lower, upper } => {
            out.varint(tag::BOUNDED);
            pair(out, *lower, *upper);
        }
    }
}

fn encode_integer(dtype: DType, bits: u64, tables: &mut WriteTables<'_>, out: &mut Encoder) {
    out.varint(tag::INTEGER);
    out.varint(tables.types.number(dtype));
    out.varint(from_file_bits(dtype, bits));
}

fn encode_literal(literal: &Literal, tables: &mut WriteTables<'_>, out: &mut Encoder) {
    let Literal { dtype, bits } = *literal;
    if dtype == DType::I1 {
        out.varint(tag::BOOL);
        out.u8((bits & 1) as u8);
    } else if dtype.is_int() {
        encode_integer(dtype, bits, tables, out);
    } else {
        out.varint(tag::FLOAT);
        out.varint(tables.types.number(dtype));
        let bits = to_file_bits(dtype, bits);
        if dtype.bits() <= 8 {
            out.u8(bits as u8);
        } else {
            out.svarint(bits as i64);
        }
    }
}

/// Appends hints with their tag, as a function has them.
pub(super) fn encode_tagged_hints(hints: &Hints, tables: &mut WriteTables<'_>, out: &mut Encoder) {
    out.varint(tag::HINTS);
    encode_hints(hints, tables, out);
}

/// Appends the attributes of a kernel's arguments: none.
pub(super) fn encode_no_argument_attributes(out: &mut Encoder) {
    out.varint(tag::ARRAY);
    out.count(0);
}

fn encode_hints(hints: &Hints, tables: &mut WriteTables<'_>, out: &mut Encoder) {
    out.count(hints.0.len());
    for (target, keys) in &hints.0 {
        out.varint(tables.string(target));
        out.varint(tag::DICTIONARY);
        out.count(keys.len());
        for (key, value) in keys {
            out.varint(tables.string(key));
            match value {
                HintValue::Int(v) => encode_integer(DType::I32, *v as u64, tables, out),
                HintValue::Bool(v) => {
                    out.varint(tag::BOOL);
                    out.u8((*v).into());
                }
            }
        }
    }
}

fn number<T: Copy>(all: &[T], what: &str, input: &mut Decoder<'_>) -> Result<T> {
    let at = input.offset();
    let value = input.varint()?;
    let known = usize::try_from(value).ok().and_then(|i| all.get(i));
    known.copied().ok_or_else(|| damaged(at, format!("{what} {value} is unknown")))
}

/// Reads an attribute of this kind; `result` is the type of the op's first result.
pub(super) fn decode(
    kind: AttrKind,
    result: Option<&Type>,
    tables: &mut ReadTables<'_>,
    input: &mut Decoder<'_>,
) -> Result<Attr> {
    Ok(match kind {
        AttrKind::Flag(flag) => Attr::Flag(flag),
        AttrKind::Rounding => {
            let at = input.offset();
            let rounding = number(Rounding::ALL, "rounding", input)?;
            if rounding == Rounding::NearestAway && tables.version < Version::V13_4 {
                return Err(damaged(at, "rounding nearest_away is not of this version"));
            }
            Attr::Rounding(rounding)
        }
        AttrKind::Overflow => Attr::Overflow(number(Overflow::ALL, "overflow", input)?),
        AttrKind::Sign => Attr::Sign(number(Sign::ALL, "signedness", input)?),
        AttrKind::SignLhs => Attr::SignLhs(number(Sign::ALL, "signedness", input)?),
        AttrKind::SignRhs => Attr::SignRhs(number(Sign::ALL, "signedness", input)?),
        AttrKind::CmpPred => Attr::CmpPred(number(CmpPred::ALL, "comparison", input)?),
        AttrKind::CmpOrder => Attr::CmpOrder(number(CmpOrder::ALL, "comparison ordering", input)?),
        AttrKind::MemOrder => Attr::MemOrder(number(MemOrder::ALL, "memory ordering", input)?),
        AttrKind::MemScope => Attr::MemScope(number(MemScope::ALL, "memory scope", input)?),
        AttrKind::AtomicMode => Attr::AtomicMode(number(AtomicMode::ALL, "atomic mode", input)?),
        AttrKind::MultimemKind => Attr::MultimemKind(number(MultimemKind::ALL, "multimem reduction", input)?),
        AttrKind::Text => Attr::Text(Arc::from(tables.string(input)?)),
        AttrKind::Predicate => Attr::Predicate(decode_predicate(input)?),
        AttrKind::Dim => Attr::Dim(input.u32("dimension")?),
        AttrKind::NumElem => Attr::NumElem(input.varint()?),
        AttrKind::Alignment => Attr::Alignment(input.varint()?),
        AttrKind::Reverse => Attr::Reverse(input.bool()?),
        AttrKind::Value => {
            let at = input.offset();
            let ty = result.ok_or_else(|| damaged(at, "a constant without result"))?;
            Attr::Value(tables.constants.read(input, ty)?)
        }
        AttrKind::Identities => {
            let count = input.count(2, "identities")?;
            Attr::Identities((0..count).map(|_| decode_literal(tables, input)).collect::<Result<_>>()?)
        }
        AttrKind::Permutation => Attr::Permutation(input.i32_list()?),
        AttrKind::Inbounds => Attr::Inbounds(input.bool_list()?),
        AttrKind::Hints => Attr::Hints(decode_hints(tables, input)?),
        AttrKind::Distribution => return Err(damaged(input.offset(), "a layout")),
    })
}

fn decode_predicate(input: &mut Decoder<'_>) -> Result<Predicate> {
    let pair = |input: &mut Decoder<'_>| -> Result<(Option<i64>, Option<i64>)> {
        let mask = input.u8()?;
        let first = (mask & 1 != 0).then(|| input.svarint()).transpose()?;
        Ok((first, (mask & 2 != 0).then(|| input.svarint()).transpose()?))
    };
    let at = input.offset();
    match input.varint()? {
        tag::DIV_BY => {
            let divisor = input.varint()?;
            let (every, along) = pair(input)?;
            Ok(Predicate::DivBy { divisor, every, along })
        }
        tag::SAME_ELEMENTS => Ok(Predicate::SameElements(input.i64_list()?)),
        tag::BOUNDED => {
            let (lower, upper) = pair(input)?;
            Ok(Predicate::Bounded { lower, upper })
        }
        other => Err(damaged(at, format!("attribute tag {other} is no predicate"))),
    }
}

fn decode_literal(tables: &ReadTables<'_>, input: &mut Decoder<'_>) -> Result<Literal> {
    let at = input.offset();
    match input.varint()? {
        tag::BOOL => Ok(Literal { dtype: DType::I1, bits: input.bool()?.into() }),
        tag::INTEGER => {
            let dtype = tables.types.number(input)?;
            Ok(Literal { dtype, bits: from_file_bits(dtype, input.varint()?) })
        }
        tag::FLOAT => {
            let dtype = tables.types.number(input)?;
            let bits = if dtype.bits() <= 8 { input.u8()?.into() } else { input.svarint()? as u64 };
            Ok(Literal { dtype, bits: from_file_bits(dtype, bits) })
        }
        other => Err(damaged(at, format!("attribute tag {other} is no number"))),
    }
}

/// Reads hints with their tag.
pub(super) fn decode_tagged_hints(tables: &ReadTables<'_>, input: &mut Decoder<'_>) -> Result<Hints> {
    let at = input.offset();
    match input.varint()? {
        tag::HINTS => decode_hints(tables, input),
        other => Err(damaged(at, format!("attribute tag {other} is no optimization hints"))),
    }
}

/// Reads the attributes of a kernel's arguments; no attribute is supported.
pub(super) fn decode_no_argument_attributes(input: &mut Decoder<'_>) -> Result<()> {
    let at = input.offset();
    match (input.varint()?, input.varint()?) {
        (tag::ARRAY, 0) => Ok(()),
        _ => Err(damaged(at, "attributes of arguments are not supported")),
    }
}

fn decode_hints(tables: &ReadTables<'_>, input: &mut Decoder<'_>) -> Result<Hints> {
    let count = input.count(3, "hints")?;
    let mut hints = Vec::new();
    for _ in 0..count {
        let target = tables.string(input)?.to_string();
        let at = input.offset();
        if input.varint()? != tag::DICTIONARY {
            return Err(damaged(at, "the hints of a target are no dictionary"));
        }
        let keys = input.count(3, "hints")?;
        let keys = (0..keys).map(|_| Ok((tables.string(input)?.to_string(), decode_hint(tables, input)?)));
        hints.push((target, keys.collect::<Result<_>>()?));
    }
    Ok(Hints(hints))
}

fn decode_hint(tables: &ReadTables<'_>, input: &mut Decoder<'_>) -> Result<HintValue> {
    let at = input.offset();
    match input.varint()? {
        tag::BOOL => Ok(HintValue::Bool(input.bool()?)),
        tag::INTEGER => {
            let dtype = tables.types.number(input)?;
            let unused = 64 - dtype.bits();
            Ok(HintValue::Int(((input.varint()? << unused) as i64) >> unused))
        }
        other => Err(damaged(at, format!("attribute tag {other} is no hint"))),
    }
}
