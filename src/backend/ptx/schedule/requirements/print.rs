//! `print` and `assert`: message pieces, their tiles and scratch.

use super::requirement::{OpRequirements, Requirement};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::smem_budget::{PRINT_BYTES, PRINTED_PART};
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, OpId, Value};

/// Elements of a tile that is printed together with other values.
const SMALL_TILE: usize = 128;

/// A text of a message, and the value after it.
pub struct PrintSegment<'a> {
    pub text: &'a str,
    /// The value with its C conversion.
    pub arg: Option<(Value, &'a str, PrintArg)>,
}

/// The method of printing a value.
#[derive(Clone, Copy)]
pub enum PrintArg {
    Scalar,
    /// A tile at this offset of a buffer. `is_first`: the previous buffer is full, and this tile
    /// begins a new one.
    SmallTile {
        offset: usize,
        is_first: bool,
    },
    /// A tile that is printed part by part.
    LargeTile,
}

impl<'m> KernelInfo<'m> {
    /// Returns the pieces of the message of a `print_tko`.
    pub fn print_segments(&self, id: OpId) -> Result<Vec<PrintSegment<'m>>, String> {
        let op = self.module.op(id);
        let Some(Attr::Text(text)) = op.attr(AttrKind::Text) else { return Err("a print without a format".to_owned()) };
        let (mut args, mut segments, mut used) = (op.group(0).iter(), Vec::new(), 0);
        for (text, conversion) in format_segments(text) {
            let mut arg = None;
            if let Some(&value) = args.next().filter(|_| !conversion.is_empty()) {
                let dtype = self.element_type(value);
                if !matches!(dtype, DType::I32 | DType::I64 | DType::F32 | DType::F64) {
                    return Err(format!("numbers of i32, i64, f32 and f64 are printed, and this is {dtype}"));
                }
                let count = self.inference.num_elements(value);
                let bytes = count * dtype.storage_bits() as usize / 8;
                let is_first = used + bytes > PRINT_BYTES as usize;
                let way = match count {
                    1 => PrintArg::Scalar,
                    2..=SMALL_TILE => PrintArg::SmallTile { offset: if is_first { 0 } else { used }, is_first },
                    _ => PrintArg::LargeTile,
                };
                used = match way {
                    PrintArg::Scalar => used,
                    PrintArg::SmallTile { offset, .. } => offset + bytes,
                    PrintArg::LargeTile => 0,
                };
                arg = Some((value, conversion, way));
            }
            segments.push(PrintSegment { text, arg });
        }
        Ok(segments)
    }
}

impl OpRequirements<'_, '_> {
    /// Adds a message: small tiles with other values, large ones part by part.
    pub fn print(&mut self) {
        let (mut tiles, mut bytes) = (Vec::new(), 0);
        for segment in self.info.print_segments(self.id).unwrap_or_default() {
            let Some((value, _, way)) = segment.arg else { continue };
            let each = self.info.element_type(value).storage_bits() as usize / 8;
            let count = self.info.inference.num_elements(value);
            match way {
                PrintArg::Scalar => {}
                PrintArg::SmallTile { offset, is_first } => {
                    if is_first {
                        self.collect(&mut tiles, bytes);
                    }
                    tiles.push(value);
                    bytes = offset + count * each;
                }
                PrintArg::LargeTile => {
                    self.collect(&mut tiles, bytes);
                    self.collect(&mut vec![value], count.min(PRINTED_PART) * each);
                    self.list.push(Requirement::Barrier);
                }
            }
        }
        self.collect(&mut tiles, bytes);
    }

    /// Adds tiles that one thread reads from a buffer.
    fn collect(&mut self, tiles: &mut Vec<Value>, bytes: usize) {
        if !tiles.is_empty() {
            for value in tiles.drain(..) {
                self.operand(value, &self.info.inference.natural_or_default(value));
            }
            self.list.push(Requirement::SmemGatherToLeader(bytes));
        }
    }

    /// Adds the condition and the values of an `assert`.
    pub fn assertion(&mut self) {
        let op = self.info.module.op(self.id);
        let condition = op.group(0)[0];
        if !self.info.is_always_true(condition) {
            let layout = self.info.inference.natural_or_default(condition);
            self.operand(condition, &layout);
            for &arg in op.group(1) {
                let is_scalar = self.info.inference.num_elements(arg) == 1;
                let own = is_scalar.then(|| self.info.inference.natural_or_default(arg));
                self.operand(arg, own.as_ref().unwrap_or(&layout));
            }
        }
    }
}

/// Splits a C format into texts (`%%` is kept), each with the conversion after it. The last text
/// has no conversion.
fn format_segments(format: &str) -> Vec<(&str, &str)> {
    let mut segments = Vec::new();
    let (mut start, mut from) = (0, 0);
    while let Some(found) = format[from..].find('%') {
        let percent = from + found;
        let letter = |c: char| c == '%' || (c.is_ascii_alphabetic() && !matches!(c, 'h' | 'l'));
        let Some(length) = format[percent + 1..].find(letter) else { break };
        let end = percent + 1 + length + 1;
        if format[..end].ends_with('%') {
            from = end;
            continue;
        }
        segments.push((&format[start..percent], &format[percent..end]));
        (start, from) = (end, end);
    }
    segments.push((&format[start..], ""));
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_split_after_their_conversions() {
        assert_eq!(format_segments("100%% of %5.3lld, %x\n"), [("100%% of ", "%5.3lld"), (", ", "%x"), ("\n", "")]);
        assert_eq!(format_segments("no values"), [("no values", "")]);
        assert_eq!(format_segments(""), [("", "")]);
    }
}
