//! Primitive encodings: LEB128, zigzag, fixed-width lists, padding, and tables with offsets.
//!
//! [`Encoder`] appends to a byte string. [`Decoder`] reads a range of a file that may be damaged.
//! Each error has the byte offset in the file, and a count is only accepted if the file has the
//! bytes for it.

use crate::error::{Error, Result};
use crate::util::collect::CollectVec as _;

/// Fill byte of alignment padding.
const FILLER: u8 = 0xCB;

/// Growing byte string.
#[derive(Clone, Debug, Default)]
pub(super) struct Encoder {
    pub bytes: Vec<u8>,
}

impl Encoder {
    pub fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    /// Appends an unsigned LEB128 number.
    pub fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// Appends a signed number: zigzag in 64 bits, then LEB128.
    pub fn svarint(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }

    pub fn count(&mut self, value: usize) {
        self.varint(value as u64);
    }

    pub fn i32_list(&mut self, list: &[i32]) {
        self.count(list.len());
        list.iter().for_each(|v| self.bytes.extend(v.to_le_bytes()));
    }

    pub fn i64_list(&mut self, list: impl ExactSizeIterator<Item = i64>) {
        self.count(list.len());
        list.for_each(|v| self.bytes.extend(v.to_le_bytes()));
    }

    pub fn bool_list(&mut self, list: &[bool]) {
        self.count(list.len());
        self.bytes.extend(list.iter().map(|&b| u8::from(b)));
    }

    /// Pads to a multiple of `to` bytes from the start.
    pub fn align(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), FILLER);
    }

    /// Appends a table: count, offsets of `width` bytes, entries.
    pub fn table(&mut self, entries: &[Vec<u8>], width: usize) {
        self.count(entries.len());
        self.align(width);
        let mut offset = 0u64;
        for entry in entries {
            self.bytes.extend(&offset.to_le_bytes()[..width]);
            offset += entry.len() as u64;
        }
        entries.iter().for_each(|entry| self.bytes.extend(entry));
    }
}

/// Range of a file, read from the front.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoder<'f> {
    file: &'f [u8],
    start: usize,
    pos: usize,
    end: usize,
}

/// Creates the error for a byte offset of a file.
pub(super) fn damaged(offset: usize, message: impl Into<String>) -> Error {
    Error::Bytecode { offset, message: message.into() }
}

impl<'f> Decoder<'f> {
    pub fn new(file: &'f [u8]) -> Decoder<'f> {
        Decoder { file, start: 0, pos: 0, end: file.len() }
    }

    /// Returns the offset of the next byte in the file.
    pub fn offset(&self) -> usize {
        self.pos
    }

    pub fn remaining(&self) -> usize {
        self.end - self.pos
    }

    pub fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(damaged(self.pos, message))
    }

    pub fn take(&mut self, count: usize) -> Result<&'f [u8]> {
        if count > self.remaining() {
            return self.error(format!("{count} bytes are needed and {} are left", self.remaining()));
        }
        let bytes = &self.file[self.pos..self.pos + count];
        self.pos += count;
        Ok(bytes)
    }

    /// Returns the next `count` bytes as a separate range.
    pub fn part(&mut self, count: usize) -> Result<Decoder<'f>> {
        let start = self.pos;
        self.take(count)?;
        Ok(Decoder { file: self.file, start, pos: start, end: start + count })
    }

    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("N bytes"))
    }

    pub fn varint(&mut self) -> Result<u64> {
        let start = self.pos;
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            let part = u64::from(byte & 0x7F);
            if shift == 63 && part > 1 {
                break;
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(damaged(start, "a variable-length number is longer than 64 bits"))
    }

    pub fn svarint(&mut self) -> Result<i64> {
        let raw = self.varint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// Reads a `varint` of at most 32 bits.
    pub fn u32(&mut self, what: &str) -> Result<u32> {
        let start = self.pos;
        let value = self.varint()?;
        u32::try_from(value).map_err(|_| damaged(start, format!("{what} {value} is out of range")))
    }

    /// Reads a count of items with at least `unit` bytes each in this range.
    pub fn count(&mut self, unit: usize, what: &str) -> Result<usize> {
        let start = self.pos;
        let value = self.varint()?;
        let fits = usize::try_from(value).ok().and_then(|n| n.checked_mul(unit)).is_some_and(|n| n <= self.remaining());
        if fits { Ok(value as usize) } else { Err(damaged(start, format!("{value} {what} do not fit what is left"))) }
    }

    pub fn bool(&mut self) -> Result<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(damaged(self.pos - 1, format!("a truth value is {other}"))),
        }
    }

    pub fn i32_list(&mut self) -> Result<Vec<i32>> {
        let count = self.count(4, "entries of a list")?;
        (0..count).map(|_| self.array().map(i32::from_le_bytes)).try_collect_vec()
    }

    pub fn i64_list(&mut self) -> Result<Vec<i64>> {
        let count = self.count(8, "entries of a list")?;
        (0..count).map(|_| self.array().map(i64::from_le_bytes)).try_collect_vec()
    }

    pub fn bool_list(&mut self) -> Result<Vec<bool>> {
        let count = self.count(1, "entries of a list")?;
        (0..count).map(|_| self.bool()).try_collect_vec()
    }

    /// Skips padding up to a multiple of `to` bytes from the start of the range.
    pub fn align(&mut self, to: usize) -> Result<()> {
        let padding = (self.pos - self.start).next_multiple_of(to) - (self.pos - self.start);
        self.take(padding).map(|_| ())
    }

    /// As [`Decoder::align`], from the first byte of the file.
    pub fn align_in_file(&mut self, to: usize) -> Result<()> {
        self.take(self.pos.next_multiple_of(to) - self.pos).map(|_| ())
    }

    /// Reads a fixed-width little-endian number of 4 or 8 bytes.
    pub fn fixed(&mut self, width: usize) -> Result<u64> {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(self.take(width)?);
        Ok(u64::from_le_bytes(bytes))
    }

    /// Reads the entries of a table that occupies the rest of the range (see [`Encoder::table`]).
    pub fn table(&mut self, width: usize, what: &str) -> Result<Vec<Decoder<'f>>> {
        let count = self.count(width, what)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        self.align(width)?;
        let at = self.pos;
        let offsets: Vec<u64> = (0..count).map(|_| self.fixed(width)).collect::<Result<_>>()?;
        let (base, size) = (self.pos, self.remaining() as u64);
        let ends = offsets.iter().skip(1).copied().chain([size]);
        let entries = offsets.iter().zip(ends).enumerate().map(|(i, (&from, to))| {
            if from > to || to > size {
                let message = format!("entry {i} of the {what} spans {from}..{to} of {size} bytes");
                return Err(damaged(at + i * width, message));
            }
            let (start, end) = (base + from as usize, base + to as usize);
            Ok(Decoder { file: self.file, start, pos: start, end })
        });
        entries.try_collect_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back() {
        let values = [0, 1, -1, 63, 64, -64, -65, 127, 128, 1 << 40, i64::MAX, i64::MIN];
        let mut out = Encoder::default();
        for v in values {
            out.svarint(v);
            out.varint(v as u64);
        }
        let mut input = Decoder::new(&out.bytes);
        for v in values {
            assert_eq!(input.svarint().unwrap(), v);
            assert_eq!(input.varint().unwrap(), v as u64);
        }
        assert_eq!(input.remaining(), 0);
    }

    #[test]
    fn known_bytes() {
        let bytes = |v: i64| {
            let mut out = Encoder::default();
            out.svarint(v);
            out.bytes
        };
        // Negative infinity as an f64 pattern: its zigzag form has at most 64 bits.
        let pattern = f64::NEG_INFINITY.to_bits() as i64;
        assert_eq!(bytes(pattern), [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F]);
        assert_eq!((bytes(-1), bytes(1), bytes(-2)), (vec![1], vec![2], vec![3]));
    }

    #[test]
    fn overlong_numbers_are_refused() {
        assert!(Decoder::new(&[0xFF; 11]).varint().is_err());
        assert!(Decoder::new(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02]).varint().is_err());
        let all = [0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01];
        assert_eq!(Decoder::new(&all).varint().unwrap(), u64::MAX);
        assert!(Decoder::new(&[0x80]).varint().is_err());
    }

    #[test]
    fn counts_are_checked_against_what_is_left() {
        let mut out = Encoder::default();
        out.varint(1 << 60);
        assert!(Decoder::new(&out.bytes).count(1, "things").is_err());
        assert!(Decoder::new(&[2, 0, 0, 0, 0]).i32_list().is_err());
    }

    #[test]
    fn tables_read_back() {
        let entries = [vec![1, 2, 3], vec![], vec![4]];
        let mut out = Encoder::default();
        out.table(&entries, 4);
        let back = Decoder::new(&out.bytes).table(4, "table").unwrap();
        let back: Vec<Vec<u8>> = back.into_iter().map(|mut e| e.take(e.remaining()).unwrap().to_vec()).collect();
        assert_eq!(back, entries);
    }
}
