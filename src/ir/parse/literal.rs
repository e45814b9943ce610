//! Parser of numbers and constant data.

use super::cursor::Parsed;
use super::parser::Parser;
use crate::dtype::DType;
use crate::ir::{ConstData, Elem, Literal, Rounding, TypeId};
use crate::types::float_codec;

/// Maximum number of elements of a constant. No tile may have more.
const MAX_ELEMENTS: usize = 1 << 24;

impl Parser<'_> {
    /// Parses an element as the bit pattern of this type.
    fn element(&mut self, dtype: DType) -> Parsed<u64> {
        let at = self.cursor.position();
        let text = self.cursor.number();
        match element(dtype, text) {
            Some(bits) => Ok(bits),
            None => self.cursor.fail_at(at, format!("`{text}` is no {dtype}")),
        }
    }

    /// Parses `<f32: [1.0, 2.0]> : tile<2xf32>`: the data and the type, whose element types are
    /// equal.
    pub(super) fn constant(&mut self) -> Parsed<(ConstData, TypeId)> {
        self.cursor.expect("<")?;
        let dtype = self.dtype()?;
        let data = self.data(dtype)?;
        self.cursor.expect(":")?;
        let at = self.cursor.position();
        let ty = self.ty()?;
        match self.module.type_of(ty).as_tile() {
            Some((Elem::Num(other), _)) if other == dtype => Ok((data, ty)),
            _ => self.cursor.fail_at(at, format!("the values are of {dtype}, but this is no tile of {dtype}")),
        }
    }

    fn data(&mut self, dtype: DType) -> Parsed<ConstData> {
        self.cursor.expect(":")?;
        let data = match self.cursor.is_next("[") {
            false if self.cursor.is_next("\"") => self.bytes(dtype)?,
            false => ConstData::Splat(self.element(dtype)?),
            true => {
                let mut all = Vec::new();
                self.nested(dtype, &mut all)?;
                ConstData::Dense(all.into())
            }
        };
        self.cursor.expect(">")?;
        Ok(data)
    }

    /// Parses `"0x0000803F…"`: the bytes of all elements.
    fn bytes(&mut self, dtype: DType) -> Parsed<ConstData> {
        let at = self.cursor.position();
        let text = self.cursor.quoted()?;
        let element = |digits: &[u8]| -> Option<u64> {
            // The first byte is the lowest one.
            let digits = std::str::from_utf8(digits).ok()?;
            let bytes = (0..digits.len()).step_by(2).rev();
            bytes
                .map(|i| digits.get(i..i + 2))
                .try_fold(0, |bits, byte| Some(bits << 8 | u64::from(u8::from_str_radix(byte?, 16).ok()?)))
        };
        let width = dtype.bits().div_ceil(8) as usize * 2;
        let digits = text.strip_prefix("0x").map(str::as_bytes).unwrap_or_default();
        let whole = !digits.is_empty() && digits.len().is_multiple_of(width);
        let all: Option<Vec<u64>> = whole.then(|| digits.chunks(width).map(element).collect()).flatten();
        let all = all.filter(|all| all.iter().all(|&bits| bits <= u64::MAX >> (64 - dtype.bits())));
        match all {
            Some(all) if all.len() <= MAX_ELEMENTS => Ok(ConstData::Dense(all.into())),
            _ => self.cursor.fail_at(at, format!("this is not `\"0x…\"` with the bytes of elements of {dtype}")),
        }
    }

    fn nested(&mut self, dtype: DType, all: &mut Vec<u64>) -> Parsed<()> {
        // Brackets only group elements. The shape is that of the type.
        let mut open = 0;
        loop {
            while self.cursor.eat("[") {
                open += 1;
            }
            all.push(self.element(dtype)?);
            if all.len() > MAX_ELEMENTS {
                return self.cursor.fail("more elements than a tile may have");
            }
            while open > 0 && self.cursor.eat("]") {
                open -= 1;
            }
            if open == 0 {
                return Ok(());
            }
            self.cursor.expect(",")?;
        }
    }

    /// Parses `[0.0 : f32, true, …]`. Default types of literals are omitted.
    pub(super) fn identities(&mut self) -> Parsed<Vec<Literal>> {
        self.list("[", "]", |p| {
            let at = p.cursor.position();
            let text = p.cursor.number();
            let dtype = match text {
                "true" | "false" => DType::I1,
                _ if p.cursor.eat(":") => p.dtype()?,
                _ if text.contains(['.', 'e', 'E']) => DType::F64,
                _ => DType::I64,
            };
            match element(dtype, text) {
                Some(bits) => Ok(Literal { dtype, bits }),
                None => p.cursor.fail_at(at, format!("`{text}` is no {dtype}")),
            }
        })
    }
}

fn element(dtype: DType, text: &str) -> Option<u64> {
    if dtype == DType::I1 {
        return match text {
            "true" => Some(1),
            "false" => Some(0),
            _ => None,
        };
    }
    let mask = u64::MAX >> (64 - dtype.bits());
    if dtype.is_int() {
        let number: i128 = text.parse().ok()?;
        let least = -(1i128 << (dtype.bits() - 1));
        return (number >= least && number <= i128::from(mask)).then_some(number as u64 & mask);
    }
    if let Some(digits) = text.strip_prefix("0x") {
        let bits = u64::from_str_radix(digits, 16).ok().filter(|bits| bits & !mask == 0)?;
        return Some(if dtype == DType::TF32 { bits << 13 } else { bits });
    }
    // Parsed directly, since a conversion from another float type would round twice.
    match dtype {
        DType::F32 => Some(u64::from(text.parse::<f32>().ok()?.to_bits())),
        _ => Some(float_codec::encode(dtype, text.parse().ok()?, Rounding::NearestEven)),
    }
}
