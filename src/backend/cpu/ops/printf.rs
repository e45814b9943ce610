//! Text of `print`: conversions as in C, tiles as nested brackets.

use super::float::to_f64;
use super::int;
use crate::backend::cpu::interp::value::Words;
use crate::dtype::DType;
use crate::ir::{Elem, Sign};
use crate::pass::{UNWRITTEN, VIOLATED_ASSUMPTION};
use crate::util::collect::CollectVec as _;

/// The number of elements beyond which a tile is abbreviated, as in NumPy.
const MAX_PRINTED: usize = 1000;

/// The number of elements that an abbreviated axis has at each end, as in NumPy.
const EDGE: usize = 3;

/// A tile to be printed.
pub(crate) struct Printed<'a> {
    pub elem: Elem,
    pub shape: &'a [usize],
    pub words: &'a Words,
}

/// One conversion specification: `%[flags][width][.precision][length]letter`.
#[derive(Clone, Debug, Default, PartialEq)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zeros: bool,
    width: usize,
    precision: Option<usize>,
    letter: char,
}

/// Formats the text of a print with its tiles.
///
/// # Errors
/// An unknown conversion, or more conversions than tiles.
pub(crate) fn format(text: &str, tiles: &[Printed]) -> Result<String, String> {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    let mut tiles = tiles.iter();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
        } else if chars.next_if_eq(&'%').is_some() {
            out.push('%');
        } else {
            let conversion = parse(&mut chars).ok_or_else(|| format!("unknown conversion in print format {text:?}"))?;
            let tile = tiles.next().ok_or_else(|| format!("print format {text:?} has more conversions than values"))?;
            let elided = tile.shape.iter().product::<usize>() > MAX_PRINTED;
            nest(tile.shape, (0, elided), &mut out, &mut |index, out| out.push_str(&conversion.element(tile, index)));
        }
    }
    Ok(out)
}

/// Returns the message of a failed assertion. `text` has conversions for `values` (their bits), or
/// is plain text if there are none. `element` is the position of the false condition; `None` if the
/// condition is a scalar.
///
/// # Errors
/// The errors of [`format`].
pub(crate) fn failure(text: &str, values: &[(DType, u64)], element: Option<&[usize]>) -> Result<String, String> {
    let words: Vec<Words> = values.iter().map(|&(dtype, bits)| Words::W64(vec![bits]).cut(dtype)).collect_vec();
    let values = values.iter().zip(&words);
    let values: Vec<Printed> =
        values.map(|(&(dtype, _), words)| Printed { elem: Elem::Num(dtype), shape: &[], words }).collect_vec();
    let text = if values.is_empty() { text.to_owned() } else { format(text, &values)? };
    let element = element.map(|element| format!(" (element {element:?})")).unwrap_or_default();
    Ok(match &*text {
        "" => format!("assertion failed{element}"),
        text if [VIOLATED_ASSUMPTION, UNWRITTEN].iter().any(|kind| text.starts_with(kind)) => {
            format!("{text}{element}")
        }
        text => format!("assertion failed: {text}{element}"),
    })
}

/// Writes nested brackets around the elements, separated by `, `, from the element of this number
/// on. A scalar has no brackets. An axis that is `elided` has only its first and last elements.
fn nest(
    shape: &[usize],
    (first, elided): (usize, bool),
    out: &mut String,
    element: &mut impl FnMut(usize, &mut String),
) {
    let Some((&count, inner)) = shape.split_first() else {
        element(first, out);
        return;
    };
    let size: usize = inner.iter().product();
    let left_out = if elided && count > 2 * EDGE { EDGE..count - EDGE } else { 0..0 };
    out.push('[');
    for i in (0..count).filter(|i| !left_out.contains(i)) {
        if i > 0 {
            out.push_str(if i == left_out.end { ", ..., " } else { ", " });
        }
        nest(inner, (first + i * size, elided), out, element);
    }
    out.push(']');
}

fn parse(chars: &mut std::iter::Peekable<std::str::Chars>) -> Option<Conversion> {
    let mut conversion = Conversion::default();
    loop {
        match chars.peek()? {
            '-' => conversion.left = true,
            '+' => conversion.plus = true,
            ' ' => conversion.space = true,
            '#' => conversion.alternate = true,
            '0' => conversion.zeros = true,
            _ => break,
        }
        chars.next();
    }
    conversion.width = number(chars);
    if chars.next_if_eq(&'.').is_some() {
        conversion.precision = Some(number(chars));
    }
    // A length modifier has no effect: the tile has an element type.
    while chars.next_if(|c| matches!(c, 'h' | 'l')).is_some() {}
    conversion.letter = chars.next()?;
    "diuoxXeEfFgGaA".contains(conversion.letter).then_some(conversion)
}

fn number(chars: &mut std::iter::Peekable<std::str::Chars>) -> usize {
    let mut value = 0usize;
    while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
        value = value.saturating_mul(10).saturating_add(digit as usize).min(4096);
        chars.next();
    }
    value
}

impl Conversion {
    fn element(&self, tile: &Printed, index: usize) -> String {
        match (tile.elem, self.letter) {
            (Elem::Num(dtype), 'd' | 'i') if dtype.is_int() => {
                // A bool prints as 0 or 1.
                let sign = if dtype == DType::I1 { Sign::Unsigned } else { Sign::Signed };
                let value = int::read_one(dtype, sign, tile.words, index);
                self.pad(value < 0, "", self.digits(value.unsigned_abs().to_string()), self.precision.is_none())
            }
            (Elem::Num(dtype), 'e' | 'E' | 'f' | 'F' | 'g' | 'G' | 'a' | 'A') if dtype.is_float() => {
                self.float(to_f64(dtype, &Words::W64(vec![tile.words.get(index)]).cut(dtype))[0])
            }
            // All other combinations print the bits.
            _ => self.unsigned(tile.words.get(index)),
        }
    }

    fn digits(&self, digits: String) -> String {
        let missing = self.precision.unwrap_or(0).saturating_sub(digits.len());
        "0".repeat(missing) + &digits
    }

    fn unsigned(&self, bits: u64) -> String {
        let (prefix, digits) = match self.letter {
            'x' => ("0x", format!("{bits:x}")),
            'X' => ("0X", format!("{bits:X}")),
            'o' => ("0", format!("{bits:o}")),
            _ => ("", bits.to_string()),
        };
        let prefix = if self.alternate && bits != 0 { prefix } else { "" };
        let plain = Conversion { plus: false, space: false, ..self.clone() };
        plain.pad(false, prefix, self.digits(digits), self.precision.is_none())
    }

    fn float(&self, value: f64) -> String {
        let magnitude = value.abs();
        let precision = self.precision.unwrap_or(6);
        let (prefix, body) = if value.is_nan() {
            ("", "nan".to_string())
        } else if magnitude.is_infinite() {
            ("", "inf".to_string())
        } else {
            match self.letter.to_ascii_lowercase() {
                'f' => ("", format!("{magnitude:.precision$}")),
                'e' => ("", scientific(magnitude, precision)),
                'g' => ("", general(magnitude, precision.max(1), self.alternate)),
                _ => ("0x", hexadecimal(magnitude, self.precision)),
            }
        };
        let negative = value.is_sign_negative() && !value.is_nan();
        let text = self.pad(negative, prefix, body, value.is_finite());
        if self.letter.is_ascii_uppercase() { text.to_ascii_uppercase() } else { text }
    }

    /// Adds sign and padding. Zeros are between the sign (and prefix) and the digits.
    fn pad(&self, negative: bool, prefix: &str, body: String, zeros_allowed: bool) -> String {
        let sign = match negative {
            true => "-",
            false if self.plus => "+",
            false if self.space => " ",
            false => "",
        };
        let missing = self.width.saturating_sub(sign.len() + prefix.len() + body.len());
        if self.left {
            format!("{sign}{prefix}{body}{}", " ".repeat(missing))
        } else if self.zeros && zeros_allowed {
            format!("{sign}{prefix}{}{body}", "0".repeat(missing))
        } else {
            format!("{}{sign}{prefix}{body}", " ".repeat(missing))
        }
    }
}

/// Formats as `d.ddde±dd`.
fn scientific(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let (digits, exponent) = text.split_once('e').expect("an exponent");
    let exponent: i32 = exponent.parse().expect("a number");
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

/// Returns the shorter of the two forms, without trailing zeros unless `keep_zeros`.
fn general(value: f64, precision: usize, keep_zeros: bool) -> String {
    let text = scientific(value, precision - 1);
    let (digits, exponent) = text.split_once('e').expect("an exponent");
    let power: i32 = exponent.parse().expect("a number");
    let trimmed = |digits: &str| match digits.contains('.') && !keep_zeros {
        true => digits.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => digits.to_string(),
    };
    if power < -4 || power >= precision as i32 {
        format!("{}e{exponent}", trimmed(digits))
    } else {
        trimmed(&format!("{value:.*}", (precision as i32 - 1 - power) as usize))
    }
}

/// Formats as `h.hhhp±d`, after the prefix.
fn hexadecimal(value: f64, precision: Option<usize>) -> String {
    let bits = value.to_bits();
    let (field, mut mantissa) = ((bits >> 52) as i64, bits & ((1 << 52) - 1));
    let mut exponent = if value == 0.0 { 0 } else { field.max(1) - 1023 };
    let mut leading = u64::from(field != 0);
    if let Some(digits) = precision.filter(|&digits| digits < 13) {
        let shift = 52 - 4 * digits as u32;
        let all = leading << 52 | mantissa;
        let (kept, rest, half) = (all >> shift, all & ((1 << shift) - 1), 1u64 << (shift - 1));
        let rounded = (kept + u64::from(rest > half || rest == half && kept & 1 == 1)) << shift;
        (leading, mantissa) = (rounded >> 52, rounded & ((1 << 52) - 1));
        if leading == 0 && rounded != 0 {
            exponent = -1022;
        }
    }
    let full = format!("{mantissa:013x}");
    let digits = match precision {
        None => full.trim_end_matches('0').to_string(),
        Some(count) if count <= 13 => full[..count].to_string(),
        Some(count) => full + &"0".repeat(count - 13),
    };
    let point = if digits.is_empty() { "" } else { "." };
    format!("{leading}{point}{digits}p{exponent:+}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, dtype: DType, bits: u64) -> String {
        let words = Words::W64(vec![bits]).cut(dtype);
        format(text, &[Printed { elem: Elem::Num(dtype), shape: &[], words: &words }]).unwrap()
    }

    #[test]
    fn like_c() {
        let f = |text: &str, value: f64| one(text, DType::F64, value.to_bits());
        assert_eq!(f("%f|", 1.5), "1.500000|");
        assert_eq!(f("%8.2f|", -1.5), "   -1.50|");
        assert_eq!(f("%-8.2f|", 1.5), "1.50    |");
        assert_eq!(f("%+08.2f|", 1.5), "+0001.50|");
        assert_eq!(f("%e", 12345.678), "1.234568e+04");
        assert_eq!(f("%E", 0.0), "0.000000E+00");
        assert_eq!(f("%g %%", 0.0001), "0.0001 %");
        assert_eq!(f("%g", 1e-5), "1e-05");
        assert_eq!(f("%g", 1e6), "1e+06");
        assert_eq!(f("%g", 123456.0), "123456");
        assert_eq!(f("%a", 1.5), "0x1.8p+0");
        assert_eq!(f("%.1a", 1.97), "0x2.0p+0");
        assert_eq!(f("%5f", f64::INFINITY), "  inf");
        assert_eq!(one("%d", DType::I8, 0xff), "-1");
        assert_eq!(one("%u", DType::I8, 0xff), "255");
        assert_eq!(one("%d", DType::I1, 1), "1");
        assert_eq!(one("%#x", DType::I32, 255), "0xff");
        assert_eq!(one("%05lld", DType::I64, -42i64 as u64), "-0042");
        assert_eq!(one("%.3d", DType::I32, 7), "007");
        assert_eq!(one("%f", DType::F16, 0x3c00), "1.000000");
    }

    #[test]
    fn tiles_nest() {
        let words = Words::W32(vec![1, 2, 3, 4]);
        let tile = Printed { elem: Elem::Num(DType::I32), shape: &[2, 2], words: &words };
        assert_eq!(format("x = %d\n", &[tile]).unwrap(), "x = [[1, 2], [3, 4]]\n");
        assert!(format("%s", &[]).is_err());
        assert!(format("%d", &[]).is_err());
    }
}
