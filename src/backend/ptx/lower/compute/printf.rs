//! `print` by the driver's `vprintf`, called by one thread.
//!
//! A call has at most 32 values, so a message is split into as few calls as possible. Tiles are
//! transferred through shared memory: small ones together, large ones part by part in a loop.

use crate::backend::ptx::isa::inst::{Addr, Cmp, CvtMods, Label, MemMods, Operand, Reg, RegClass, Space, Special, Ty};
use crate::backend::ptx::layout_inference::{replica_bits, thread_bases};
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::scalar::repr;
use crate::backend::ptx::schedule::{PRINTED_PART as PART, PrintArg, PrintSegment};
use crate::backend::ptx::smem::allocation::Buffer;
use crate::dtype::DType;
use crate::ir::{OpId, Value};
use crate::util::collect::CollectVec as _;

/// Maximum number of values per call.
const MAX_VALUES_PER_CALL: usize = 32;

/// Location of a printed number.
#[derive(Clone, Copy)]
enum ArgLocation {
    Register(Operand),
    /// Bytes from the start of the buffer.
    Shared(u32),
}

/// Calls that one thread executes next.
#[derive(Default)]
struct Pending {
    format: String,
    values: Vec<(ArgLocation, DType)>,
    /// Complete calls.
    calls: Vec<(String, Vec<(ArgLocation, DType)>)>,
    /// Tiles that are stored to shared memory, and their offsets.
    tiles: Vec<(Value, u32)>,
}

impl Pending {
    fn value(&mut self, conversion: &str, location: ArgLocation, dtype: DType) {
        if self.values.len() == MAX_VALUES_PER_CALL {
            self.end_call();
        }
        self.format.push_str(conversion);
        self.values.push((location, dtype));
    }

    fn end_call(&mut self) {
        if !self.format.is_empty() {
            self.calls.push((std::mem::take(&mut self.format), std::mem::take(&mut self.values)));
        }
    }
}

/// A tile that is stored in row-major order.
struct Elements {
    tile: Tile,
    dtype: DType,
    /// Element index of the first register, by thread.
    thread: Operand,
    owner: Option<Reg>,
}

impl Lowering<'_> {
    /// Lowers `print_tko`.
    pub fn print(&mut self, id: OpId) -> Lowered {
        let module = self.module;
        let segments = self.info.print_segments(id)?;
        let mut pending = Pending::default();
        for PrintSegment { text, arg } in segments {
            pending.format.push_str(text);
            let Some((value, conversion, way)) = arg else { continue };
            let dtype = self.info.element_type(value);
            let shape = module.shape(value);
            let (open, close) = ("[".repeat(shape.len()), "]".repeat(shape.len()));
            match way {
                PrintArg::Scalar => {
                    pending.format.push_str(&open);
                    let scalar = self.scalar(value)?;
                    pending.value(conversion, ArgLocation::Register(scalar), dtype);
                }
                PrintArg::SmallTile { offset: start, is_first } => {
                    if is_first {
                        self.emit_calls(&mut pending)?;
                    }
                    pending.tiles.push((value, start as u32));
                    for index in 0..self.info.inference.num_elements(value) {
                        pending.format.push_str(&separator(shape, index));
                        let offset = start as u32 + index as u32 * dtype.storage_bits() / 8;
                        pending.value(conversion, ArgLocation::Shared(offset), dtype);
                    }
                }
                PrintArg::LargeTile => {
                    pending.format.push_str(&open);
                    self.emit_calls(&mut pending)?;
                    self.print_large_tile(value, conversion)?;
                }
            }
            pending.format.push_str(&close);
        }
        self.emit_calls(&mut pending)
    }

    /// Stores the tiles of a message to shared memory, and emits the calls.
    fn emit_calls(&mut self, pending: &mut Pending) -> Lowered {
        let Pending { calls, tiles, .. } = {
            pending.end_call();
            std::mem::take(pending)
        };
        if calls.is_empty() {
            return Ok(());
        }
        let mut buffer = Buffer { offset: 0, bytes: 0 };
        if !tiles.is_empty() {
            let mut stored = Vec::new();
            for (value, start) in tiles {
                stored.push((self.elements(value)?, start));
            }
            buffer = self.next_write_buffer()?;
            for (elements, start) in stored {
                self.store_elements(&elements, buffer, start, None);
            }
            self.begin_read(buffer)?;
        }
        let skip = self.branch_others();
        for (format, values) in calls {
            let text = self.b.text(&format);
            let values: Vec<Operand> =
                values.into_iter().map(|(location, dtype)| self.argument(location, dtype, buffer)).collect_vec();
            self.b.printf(text, &values);
        }
        self.join_others(skip);
        Ok(())
    }

    /// Branches all threads but the first one to the returned label.
    fn branch_others(&mut self) -> Label {
        let skip = self.b.new_label();
        let thread = self.b.special(Special::TidX);
        let others = self.b.setp(Cmp::Ne, Ty::U32, thread, 0);
        self.b.bra_if(others, false, skip, false);
        skip
    }

    fn join_others(&mut self, skip: Label) {
        self.b.emit_label(skip);
        self.b.bar_warp_sync();
    }

    /// Returns a number as argument of `vprintf`.
    fn argument(&mut self, location: ArgLocation, dtype: DType, buffer: Buffer) -> Operand {
        let value = match location {
            ArgLocation::Register(operand) => operand,
            ArgLocation::Shared(offset) => {
                let address = Addr::new(Operand::Smem, i64::from(buffer.offset + offset));
                self.b.ld(Space::Shared, repr::memory_ty(dtype), &address, MemMods::default()).into()
            }
        };
        self.promote_argument(value, dtype)
    }

    fn promote_argument(&mut self, value: Operand, dtype: DType) -> Operand {
        match dtype {
            DType::F32 => self.b.cvt(Ty::F64, Ty::F32, CvtMods::default(), value),
            _ => self.b.reg(value, repr::class(dtype)).into(),
        }
    }

    /// Returns the elements of the next operand.
    fn elements(&mut self, value: Value) -> Lowered<Elements> {
        let tile = self.operand()?;
        let thread = self.linear_in_thread(&thread_bases(&tile.layout));
        let owner = self.owner_of(replica_bits(&tile.layout));
        Ok(Elements { tile, dtype: self.info.element_type(value), thread, owner })
    }

    /// Stores the elements of a tile, or of one part of it, in row-major order to `start` of a
    /// buffer.
    fn store_elements(&mut self, elements: &Elements, buffer: Buffer, start: u32, part: Option<Reg>) {
        let (ty, bytes) = (repr::memory_ty(elements.dtype), elements.dtype.storage_bits() / 8);
        let mut stored = vec![false; elements.tile.layout.num_elements()];
        for (register, &slot) in elements.tile.regs.iter().enumerate() {
            let offset = elements.tile.layout.element(register, 0, 0);
            // A thread may hold an element twice.
            if std::mem::replace(&mut stored[offset as usize], true) {
                continue;
            }
            let index = self.b.xor(Ty::B32, elements.thread, offset);
            let mut guard = elements.owner;
            let mut index_in_part = index;
            if let Some(part) = part {
                let own = self.b.shr(Ty::U32, index, PART.trailing_zeros());
                let now = self.b.setp(Cmp::Eq, Ty::B32, own, part);
                guard = Some(guard.map_or(now, |guard| self.b.and(Ty::Pred, guard, now).reg()));
                index_in_part = self.b.and(Ty::B32, index, PART as u32 - 1);
            }
            let smem_offset = self.b.mul(Ty::U32, index_in_part, bytes);
            let address = self.b.address(Operand::Smem, smem_offset).plus(i64::from(buffer.offset + start));
            let value = self.b.reg(slot, repr::class(elements.dtype));
            match guard {
                Some(guard) => {
                    self.b.guarded(guard, false, |b| b.st(Space::Shared, ty, &address, value, MemMods::default()));
                }
                None => self.b.st(Space::Shared, ty, &address, value, MemMods::default()),
            }
        }
    }

    /// Prints the elements of a large tile, without the outer brackets.
    fn print_large_tile(&mut self, value: Value, conversion: &str) -> Lowered {
        let shape = self.module.shape(value).to_vec();
        let count = self.info.inference.num_elements(value);
        let elements = self.elements(value)?;
        let part_elements = count.min(PART);
        let bytes = elements.dtype.storage_bits() / 8;
        let buffer = self.next_write_buffer()?;
        let part = self.b.copy(0, RegClass::B32);
        let again = self.b.new_label();
        self.b.emit_label(again);
        self.store_elements(&elements, buffer, 0, (count > PART).then_some(part));
        self.begin_read(buffer)?;
        let skip = self.branch_others();
        let first = self.b.copy(0, RegClass::B32);
        let next = self.b.new_label();
        self.b.emit_label(next);
        let before = self.b.mul(Ty::U32, part, PART as u32);
        let number = self.b.add(Ty::U32, before, first);
        let text = self.part_text(&shape, conversion, number);
        let smem_offset = self.b.mul(Ty::U32, first, bytes);
        let start = self.b.address(Operand::Smem, smem_offset).plus(i64::from(buffer.offset));
        let mut values = Vec::with_capacity(MAX_VALUES_PER_CALL);
        for index in 0..MAX_VALUES_PER_CALL {
            let address = start.plus(index as i64 * i64::from(bytes));
            let raw = self.b.ld(Space::Shared, repr::memory_ty(elements.dtype), &address, MemMods::default());
            values.push(self.promote_argument(raw.into(), elements.dtype));
        }
        self.b.printf(text, &values);
        let after = self.b.add(Ty::U32, first, MAX_VALUES_PER_CALL as u32);
        self.b.mov_to(first, after);
        let more = self.b.setp(Cmp::Lt, Ty::U32, first, part_elements as u32);
        self.b.bra_if(more, false, next, false);
        self.join_others(skip);
        self.scheduled_barrier()?;
        if count > PART {
            let after = self.b.add(Ty::U32, part, 1);
            self.b.mov_to(part, after);
            let more = self.b.setp(Cmp::Lt, Ty::U32, part, (count / PART) as u32);
            self.b.bra_if(more, false, again, true);
        }
        Ok(())
    }

    /// Returns the format of 32 elements from element `number` on.
    ///
    /// The separator before the first element depends on the number of rows that end there, along
    /// each axis.
    fn part_text(&mut self, shape: &[i64], conversion: &str, number: Operand) -> Reg {
        let format = |before: String| {
            let mut format = before;
            for index in 0..MAX_VALUES_PER_CALL {
                if index > 0 {
                    format.push_str(&separator(shape, index));
                }
                format.push_str(conversion);
            }
            format
        };
        let text = self.b.text(&format(separator(shape, MAX_VALUES_PER_CALL)));
        let text = self.b.copy(text, RegClass::B64);
        let count: i64 = shape.iter().product();
        let mut period = MAX_VALUES_PER_CALL as i64 * 2;
        // Row lengths are powers of two.
        while period <= count {
            if period == count || separator(shape, period as usize) != separator(shape, period as usize / 2) {
                let before = if period == count { String::new() } else { separator(shape, period as usize) };
                let other = self.b.text(&format(before));
                let rest = self.b.and(Ty::B32, number, (period - 1) as u32);
                let ends = self.b.setp(Cmp::Eq, Ty::B32, rest, 0);
                self.b.guarded(ends, false, |b| b.mov_to(text, other));
            }
            period *= 2;
        }
        text
    }
}

/// Returns the separator before element `index` (row-major): the closing and opening brackets.
fn separator(shape: &[i64], index: usize) -> String {
    if index == 0 {
        return "[".repeat(shape.len());
    }
    let mut row = 1;
    let mut ended = 0;
    for &extent in shape.iter().skip(1).rev() {
        row *= extent as usize;
        if !index.is_multiple_of(row) {
            break;
        }
        ended += 1;
    }
    format!("{}, {}", "]".repeat(ended), "[".repeat(ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_nest() {
        let text = |shape: &[i64]| -> String {
            let count: i64 = shape.iter().product();
            let all = (0..count as usize).map(|i| format!("{}{i}", separator(shape, i))).collect::<String>();
            all + &"]".repeat(shape.len())
        };
        assert_eq!(text(&[4]), "[0, 1, 2, 3]");
        assert_eq!(text(&[2, 2]), "[[0, 1], [2, 3]]");
        assert_eq!(text(&[2, 1, 2]), "[[[0, 1]], [[2, 3]]]");
        assert_eq!(text(&[1, 2, 1]), "[[[0], [1]]]");
    }
}
