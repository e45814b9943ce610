//! Sub-steps of `print`: message pieces and their scratch.

use super::state::MembarState;
use crate::backend::ptx::schedule::analysis::smem_budget::{PRINT_BYTES, PRINTED_PART};
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, OpId, Value};

/// Elements of a tile that is printed with what stands around it.
pub const SMALL_TILE: usize = 128;

impl MembarState<'_, '_> {
    /// `print_tko`: small tiles with what stands around them, large ones part by part.
    pub fn print(&mut self, id: OpId) {
        let info = self.info;
        let op = info.module.op(id);
        let Some(Attr::Text(text)) = op.attr(AttrKind::Text) else { return };
        let mut args = op.group(0).iter();
        let (mut tiles, mut bytes) = (Vec::new(), 0);
        for (_, conversion) in format_pieces(text) {
            let Some(&value) = args.next().filter(|_| !conversion.is_empty()) else { continue };
            let dtype = info.element_type(value);
            if !matches!(dtype, DType::I32 | DType::I64 | DType::F32 | DType::F64) {
                return;
            }
            let each = dtype.storage_bits() as usize / 8;
            match info.inference.num_elements(value) {
                1 => {}
                count if count <= SMALL_TILE => {
                    if bytes + count * each > PRINT_BYTES as usize {
                        self.print_tiles(&mut tiles, &mut bytes);
                    }
                    tiles.push(value);
                    bytes += count * each;
                }
                count => {
                    self.print_tiles(&mut tiles, &mut bytes);
                    self.require_elements(value);
                    self.gather_in_smem(count.min(PRINTED_PART) * each);
                    self.barrier(true);
                }
            }
        }
        self.print_tiles(&mut tiles, &mut bytes);
    }

    /// Brings the tiles of a message to shared memory.
    fn print_tiles(&mut self, tiles: &mut Vec<Value>, bytes: &mut usize) {
        if !tiles.is_empty() {
            tiles.drain(..).for_each(|value| self.require_elements(value));
            self.gather_in_smem(std::mem::take(bytes));
        }
    }

    fn require_elements(&mut self, value: Value) {
        let layout = self.info.inference.natural_or_default(value);
        self.require(value, &layout);
    }

    /// Elements that all threads write and one reads.
    fn gather_in_smem(&mut self, bytes: usize) {
        let Some(buffer) = self.allocate(bytes) else {
            return self.smem_overflow(bytes as u32);
        };
        self.smem.write(buffer);
        self.barrier(true);
        self.smem_write(Some(buffer));
        self.barrier(true);
        self.smem_read(&[Some(buffer)]);
    }
}

/// A C format as texts (`%%` stays), each with the conversion behind it; the last one has none.
pub fn format_pieces(format: &str) -> Vec<(&str, &str)> {
    let mut pieces = Vec::new();
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
        pieces.push((&format[start..percent], &format[percent..end]));
        (start, from) = (end, end);
    }
    pieces.push((&format[start..], ""));
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_cut_behind_their_conversions() {
        assert_eq!(format_pieces("100%% of %5.3lld, %x\n"), [("100%% of ", "%5.3lld"), (", ", "%x"), ("\n", "")]);
        assert_eq!(format_pieces("no values"), [("no values", "")]);
        assert_eq!(format_pieces(""), [("", "")]);
    }
}
