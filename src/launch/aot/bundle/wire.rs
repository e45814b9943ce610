//! Encoding of numbers and texts in a bundle. The reader accepts damaged bytes: every length is
//! checked against the remaining bytes, and no memory is allocated for an unchecked length.

/// Result of a reader, with the reason of a failure.
pub(super) type Read<X> = Result<X, String>;

/// Encoder of a sequence of values.
#[derive(Default)]
pub(super) struct Writer(pub Vec<u8>);

impl Writer {
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    pub fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    pub fn flag(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Writes the number of bytes, which is below 2^32, and the bytes.
    pub fn bytes(&mut self, value: &[u8]) {
        self.u32(u32::try_from(value.len()).expect("code of less than 4 GiB"));
        self.0.extend(value);
    }

    pub fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    pub fn option<X>(&mut self, value: Option<X>, write: impl FnOnce(&mut Writer, X)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    pub fn list<X>(&mut self, values: &[X], mut write: impl FnMut(&mut Writer, &X)) {
        self.u32(u32::try_from(values.len()).expect("fewer than 2^32"));
        values.iter().for_each(|value| write(self, value));
    }
}

/// Decoder of a sequence of values.
pub(super) struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    pub fn new(bytes: &'b [u8]) -> Reader<'b> {
        Reader { rest: bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    fn take(&mut self, count: usize) -> Read<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or("it ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    pub fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("so many were taken"))
    }

    pub fn u8(&mut self) -> Read<u8> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn flag(&mut self) -> Read<bool> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(format!("{other} where 0 or 1 should be")),
        }
    }

    pub fn bytes(&mut self) -> Read<&'b [u8]> {
        let count = self.u32()? as usize;
        self.take(count)
    }

    pub fn text(&mut self) -> Read<String> {
        std::str::from_utf8(self.bytes()?).map(str::to_owned).map_err(|error| format!("a text that is none: {error}"))
    }

    pub fn option<X>(&mut self, read: impl FnOnce(&mut Self) -> Read<X>) -> Read<Option<X>> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    /// Reads a list. Each element has at least one byte, so the remaining bytes bound the count.
    pub fn list<X>(&mut self, mut read: impl FnMut(&mut Self) -> Read<X>) -> Read<Vec<X>> {
        let count = self.u32()?;
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(read(self)?);
        }
        Ok(all)
    }

    /// Reads the index of an element of a list; returns the element.
    pub fn one_of<X: Copy>(&mut self, all: &[X]) -> Read<X> {
        let number = self.u8()?;
        all.get(usize::from(number)).copied().ok_or_else(|| format!("{number} where less than {} should be", all.len()))
    }
}
