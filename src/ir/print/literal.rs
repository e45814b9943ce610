//! Printer of numbers, strings and constant data.
//!
//! Floats are printed by the rule of MLIR:
//! 1. Six significant digits in scientific notation, if they identify the value.
//! 2. Otherwise all digits of the format, if the notation has a point.
//! 3. Otherwise (whole numbers, infinities, NaN) the bits in hexadecimal.

use crate::util::collect::CollectVec as _;
use std::fmt::Write;

use crate::dtype::DType;
use crate::ir::{ConstData, Elem, Type};
use crate::types::float_codec;

/// Returns one element, from its bit pattern (see [`ConstData`] for the patterns).
pub(super) fn element(dtype: DType, bits: u64) -> String {
    match dtype {
        DType::I1 => if bits & 1 == 1 { "true" } else { "false" }.to_string(),
        _ if dtype.is_int() => signed(dtype, bits).to_string(),
        _ => float(dtype, bits),
    }
}

/// Returns the signed interpretation of the low bits of an integer.
pub(super) fn signed(dtype: DType, bits: u64) -> i64 {
    let unused = 64 - dtype.bits();
    ((bits << unused) as i64) >> unused
}

/// Returns the number of decimal digits that identify a value of the format, as LLVM counts them.
fn natural_precision(dtype: DType) -> usize {
    let significand_bits = match dtype {
        DType::F64 => 53,
        DType::F32 => 24,
        DType::F16 | DType::TF32 => 11,
        DType::BF16 => 8,
        _ => 4,
    };
    2 + significand_bits * 59 / 196
}

fn float(dtype: DType, bits: u64) -> String {
    let value = float_codec::decode(dtype, bits);
    if value.is_finite() {
        let short = scientific_6(value);
        // Narrower formats have at most 11 significant bits, so six digits identify each value.
        let exact = match dtype {
            DType::F32 => short.parse::<f32>().is_ok_and(|v| v.to_bits() == (value as f32).to_bits()),
            DType::F64 => short.parse::<f64>().is_ok_and(|v| v.to_bits() == value.to_bits()),
            _ => true,
        };
        if exact {
            return short;
        }
        let full = full_precision(value, natural_precision(dtype));
        if full.contains('.') {
            return full;
        }
    }
    let (shift, width) = if dtype == DType::TF32 { (13, 19) } else { (0, dtype.bits()) };
    format!("0x{:X}", (bits >> shift) & (u64::MAX >> (64 - width)))
}

/// Sign, decimal digits without trailing zeros, and the power of ten of the last digit.
struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    exponent: i32,
}

impl Decimal {
    /// Rounds a value to `precision` significant digits, halves up. LLVM first truncates decimal
    /// digits in excess of the binary ones, which is reproduced here.
    fn new(value: f64, precision: usize) -> Decimal {
        // The longest exact expansion of an f64 has 767 significant digits.
        let text = format!("{:.770e}", value.abs());
        let (mantissa, exponent) = text.split_once('e').expect("scientific notation");
        let mut digits: Vec<u8> = mantissa.bytes().filter(u8::is_ascii_digit).map(|d| d - b'0').collect_vec();
        let mut exponent: i32 = exponent.parse::<i32>().expect("an exponent") - 770;
        trim(&mut digits, &mut exponent);
        truncate_surplus(value, &mut digits, &mut exponent, precision);
        trim(&mut digits, &mut exponent);
        round_half_up(&mut digits, &mut exponent, precision);
        Decimal { negative: value.is_sign_negative(), digits, exponent }
    }
}

fn trim(digits: &mut Vec<u8>, exponent: &mut i32) {
    while digits.len() > 1 && digits.last() == Some(&0) {
        digits.pop();
        *exponent += 1;
    }
}

fn truncate_surplus(value: f64, digits: &mut Vec<u8>, exponent: &mut i32, precision: usize) {
    if value == 0.0 {
        return;
    }
    // value = odd * 2^e, which is an integer times a power of ten: odd * 2^e, or odd * 5^-e for
    // negative e.
    let raw = value.abs().to_bits();
    let (field, fraction) = ((raw >> 52) as i32, raw & ((1 << 52) - 1));
    let (significand, power) = if field == 0 { (fraction, -1074) } else { (fraction | 1 << 52, field - 1075) };
    let zeros = significand.trailing_zeros();
    let (odd, power) = ((significand >> zeros) as f64, power + zeros as i32);
    let log2 = if power >= 0 { odd.log2() + f64::from(power) } else { odd.log2() - f64::from(power) * 5f64.log2() };
    let bits = log2.floor() as usize + 1;
    let required = (precision * 196).div_ceil(59);
    let surplus = bits.saturating_sub(required) * 59 / 196;
    // `digits` lacks the trailing zeros of the integer, which are truncated first.
    let dropped = if power >= 0 { *exponent as usize } else { (*exponent + -power) as usize };
    let cut = surplus.saturating_sub(dropped).min(digits.len() - 1);
    digits.truncate(digits.len() - cut);
    *exponent += cut as i32;
}

fn round_half_up(digits: &mut Vec<u8>, exponent: &mut i32, precision: usize) {
    if digits.len() <= precision {
        return;
    }
    *exponent += (digits.len() - precision) as i32;
    let up = digits[precision] >= 5;
    digits.truncate(precision);
    if up {
        let nines = digits.iter().rev().take_while(|&&d| d == 9).count();
        digits.truncate(precision - nines);
        *exponent += nines as i32;
        match digits.last_mut() {
            Some(last) => *last += 1,
            None => digits.push(1),
        }
    }
    trim(digits, exponent);
}

fn push_digits(out: &mut String, digits: &[u8]) {
    out.extend(digits.iter().map(|&d| char::from(b'0' + d)));
}

/// Returns six significant digits with six decimals, as in `-1.500000e+00`.
fn scientific_6(value: f64) -> String {
    let decimal = Decimal::new(value, 6);
    let mut out = String::from(if decimal.negative { "-" } else { "" });
    let power = if value == 0.0 { 0 } else { decimal.exponent + decimal.digits.len() as i32 - 1 };
    push_digits(&mut out, &decimal.digits[..1]);
    out.push('.');
    push_digits(&mut out, &decimal.digits[1..]);
    out.extend(std::iter::repeat_n('0', 7 - decimal.digits.len()));
    write!(out, "e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs()).expect("writing to a string");
    out
}

/// Returns plain notation if at most three zeros pad the digits, otherwise `1.5E+10`.
fn full_precision(value: f64, precision: usize) -> String {
    let Decimal { negative, digits, exponent } = Decimal::new(value, precision);
    let mut out = String::from(if negative { "-" } else { "" });
    let leading = exponent + digits.len() as i32 - 1;
    let scientific =
        if exponent >= 0 { exponent > 3 || digits.len() + exponent as usize > precision } else { leading < -3 };
    if scientific {
        push_digits(&mut out, &digits[..1]);
        out.push('.');
        if digits.len() == 1 {
            out.push('0');
        }
        push_digits(&mut out, &digits[1..]);
        write!(out, "E{}{}", if leading < 0 { '-' } else { '+' }, leading.abs()).expect("writing to a string");
    } else if exponent >= 0 {
        push_digits(&mut out, &digits);
        out.extend(std::iter::repeat_n('0', exponent as usize));
    } else if leading >= 0 {
        push_digits(&mut out, &digits[..=leading as usize]);
        out.push('.');
        push_digits(&mut out, &digits[leading as usize + 1..]);
    } else {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', (-leading - 1) as usize));
        push_digits(&mut out, &digits);
    }
    out
}

/// Returns a quoted string. Bytes that are not printable become `\` and two hexadecimal digits.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b' '..=b'~' if byte != b'"' => out.push(char::from(byte)),
            _ => write!(out, "\\{byte:02X}").expect("writing to a string"),
        }
    }
    out.push('"');
    out
}

/// Returns the pattern of all elements if they are equal.
pub(super) fn splat_bits(data: &ConstData) -> Option<u64> {
    match data {
        ConstData::Splat(bits) => Some(*bits),
        ConstData::Dense(all) => {
            let (first, rest) = all.split_first()?;
            rest.iter().all(|b| b == first).then_some(*first)
        }
    }
}

/// Maximum number of elements that are listed. Longer data is printed as bytes.
const MAX_LISTED: usize = 100;

/// Returns true if each element has whole bytes. A bool has one byte.
fn has_whole_bytes(dtype: DType) -> bool {
    dtype.bits().is_multiple_of(8) || dtype == DType::I1
}

/// Returns `"0x0000803F…"`: the bytes of all elements.
fn hex_bytes(dtype: DType, all: &[u64]) -> String {
    let bytes = all.iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(dtype.bits().div_ceil(8) as usize));
    let mut text = String::from("\"0x");
    bytes.for_each(|byte| text.push_str(&format!("{byte:02X}")));
    text.push('"');
    text
}

/// Returns `<f32: [1.000000e+00, 2.000000e+00]>`. Shape and element type are those of `ty`.
pub(super) fn constant(ty: &Type, data: &ConstData) -> String {
    let Some((Elem::Num(dtype), shape)) = ty.as_tile() else {
        return "<?>".to_string();
    };
    let body = match (splat_bits(data), data) {
        (Some(bits), _) => element(dtype, bits),
        (None, ConstData::Dense(all)) if all.len() > MAX_LISTED && has_whole_bytes(dtype) => hex_bytes(dtype, all),
        (None, ConstData::Dense(all)) => nested(dtype, shape, all),
        (None, ConstData::Splat(_)) => unreachable!("a splat has a pattern"),
    };
    format!("<{dtype}: {body}>")
}

fn nested(dtype: DType, shape: &[i64], all: &[u64]) -> String {
    let inner = match shape {
        [] | [_] => super::types::join(all.iter().map(|&bits| element(dtype, bits)), ", "),
        [outer, rest @ ..] => {
            let chunk = (all.len() / (*outer).max(1) as usize).max(1);
            super::types::join(all.chunks(chunk).map(|part| nested(dtype, rest, part)), ", ")
        }
    };
    format!("[{inner}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_elements_are_bytes() {
        let data: Vec<u64> = (0..128).collect();
        let text = constant(&Type::tile(DType::I16, [128]), &ConstData::Dense(data.into()));
        assert!(text.starts_with("<i16: \"0x000001000200") && text.ends_with("7F00\">"), "{text}");
        let truths = (0..128).map(|i| u64::from(i % 3 == 0)).collect::<Vec<_>>();
        let text = constant(&Type::tile(DType::I1, [128]), &ConstData::Dense(truths.into()));
        assert!(text.starts_with("<i1: \"0x010000010000"), "{text}");
    }

    #[test]
    fn floats_print_like_the_reference_disassembler() {
        let f32_text = |v: f32| element(DType::F32, u64::from(v.to_bits()));
        let f64_text = |v: f64| element(DType::F64, v.to_bits());
        assert_eq!(f32_text(0.0), "0.000000e+00");
        assert_eq!(f32_text(-0.0), "-0.000000e+00");
        assert_eq!(f32_text(-0.5), "-5.000000e-01");
        assert_eq!(f32_text(f32::NEG_INFINITY), "0xFF800000");
        assert_eq!(f32_text(1e30), "1.000000e+30");
        assert_eq!(f64_text(f64::from(0.1f32)), "0.10000000149011612");
        assert_eq!(f64_text(0.1), "1.000000e-01");
        assert_eq!(f64_text(-2.5), "-2.500000e+00");
        assert_eq!(element(DType::BF16, 0x7FC0), "0x7FC0");
        assert_eq!(element(DType::TF32, u64::from(2f32.powi(-15).to_bits())), "3.051760e-05");
        assert_eq!(element(DType::I8, 0x80), "-128");
        assert_eq!(element(DType::I1, 1), "true");
    }

    #[test]
    fn every_printed_float_reads_back() {
        // Numbers that would print without a point are also printed as hexadecimal bits.
        let bits_of = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        for _ in 0..3000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let single = state >> 32;
            let text = element(DType::F32, single);
            let back = bits_of(&text).or_else(|| Some(u64::from(text.parse::<f32>().ok()?.to_bits())));
            assert_eq!(back, Some(single), "{text}");
            let double = state ^ (state >> 31);
            let text = element(DType::F64, double);
            let back = bits_of(&text).or_else(|| Some(text.parse::<f64>().ok()?.to_bits()));
            assert_eq!(back, Some(double), "{text}");
        }
    }

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quoted("a \"b\"\n\\"), "\"a \\22b\\22\\0A\\\\\"");
    }
}
