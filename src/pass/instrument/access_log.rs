//! Log of accesses and of the memory orders between them, for the check of races in kernels whose
//! tile blocks order themselves.
//!
//! The log is a counter and a list of events. An event is the address of an element, with its kind,
//! and the key of tile block and op. The number of an event is that of its atomic addition to the
//! counter.
//!
//! * A release is logged before the op. Its addition is a release, so it follows the additions of
//!   all earlier accesses of the tile block.
//! * An acquire is logged after the op. Its addition is an acquire, so the additions of all later
//!   accesses of the tile block follow it.
//! * An acquire that reads from a release has the larger number: the op and its synchronization are
//!   between the two additions.
//!
//! So the order of the numbers contains the order of the tile blocks, and the host can follow it by
//! vector clocks. Events beyond the capacity are dropped: the events before them are complete.

use super::elements::{ElementWriter, Place};
use crate::dtype::DType;
use crate::ir::recording::{Event, LOG_CAPACITY, LOG_HEADER};
use crate::ir::{AtomicMode, Attr, CmpPred, Elem, MemOrder, MemScope, OpId, Opcode, Sign, Type, Value};

/// Multiplier of the hash of an address (Knuth, 1997).
const HASH: i64 = 0x9E37_79B9_7F4A_7C15_u64 as i64;

/// Log of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct AccessLog {
    /// Parameter of the log.
    pub log: Value,
    /// Bits of the hash of an address that are 0 for logged elements.
    pub sampled: Value,
}

/// Numbers of events that are read before an op and stored after it.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    addresses: Value,
    numbers: Value,
    mask: Value,
}

impl AccessLog {
    /// Emits the load of the header of a log at the start of a kernel.
    pub fn begin(writer: &mut ElementWriter<'_>, log: Value) -> AccessLog {
        let (one, elem) = (writer.number(DType::I64, 1), writer.elem(log));
        let at = writer.emit_one(Opcode::Offset, &[log, one], vec![], elem, &[]);
        let types = [Type::scalar(DType::I64), Type::Token].map(|ty| writer.module.intern(ty));
        let weak = vec![Attr::MemOrder(MemOrder::Weak)];
        let id = writer.emit(Opcode::LoadPtr, &[&[at], &[], &[], &[]], weak, vec![], &types);
        AccessLog { log, sampled: writer.module.op(id).results[0] }
    }

    /// Emits the numbers of the events of an op, and all of the event apart from its key.
    pub fn take(self, writer: &mut ElementWriter<'_>, id: OpId, place: Option<Place>, event: Event) -> Option<Numbers> {
        let (addresses, mask) = addresses(writer, id, place)?;
        let shape = writer.shape(addresses);
        let mask = match mask {
            Some(mask) => mask,
            None => {
                let all = writer.number(DType::I1, 1);
                writer.splat_to(all, &shape)
            }
        };
        let mask = if event == Event::Access { self.sample(writer, addresses, mask) } else { mask };
        let elem = writer.elem(self.log);
        let pointers = writer.splat_to(self.log, &shape);
        let ones = writer.splat(1, addresses);
        let order = if event == Event::Access { MemOrder::Relaxed } else { MemOrder::AcqRel };
        let attrs = vec![Attr::MemOrder(order), Attr::MemScope(MemScope::Device), Attr::AtomicMode(AtomicMode::Add)];
        debug_assert!(matches!(elem, Elem::Ptr { .. }));
        let types = [Type::tile(DType::I64, shape), Type::Token].map(|ty| writer.module.intern(ty));
        let added = writer.emit(Opcode::AtomicRmw, &[&[pointers], &[ones], &[mask], &[]], attrs, vec![], &types);
        let numbers = writer.module.op(added).results[0];
        let kind = writer.splat(event.bits(), addresses);
        let addresses = writer.int_op(Opcode::AddI, addresses, kind);
        Some(Numbers { addresses, numbers, mask })
    }

    /// Emits the stores of events. `written`: further condition, by element.
    pub fn put(self, writer: &mut ElementWriter<'_>, events: Numbers, key: Value, written: Option<Value>) {
        let Numbers { addresses, numbers, mask } = events;
        let shape = writer.shape(addresses);
        let capacity = writer.splat(LOG_CAPACITY as i64, numbers);
        let fits = compare(writer, CmpPred::Lt, numbers, capacity);
        let mut mask = both(writer, mask, fits);
        if let Some(written) = written {
            mask = both(writer, mask, written);
        }
        let (two, header) = (writer.splat(2, numbers), writer.splat(LOG_HEADER as i64, numbers));
        let at = writer.int_op(Opcode::MulI, numbers, two);
        let at = writer.int_op(Opcode::AddI, at, header);
        let keys = writer.splat_to(key, &shape);
        for (word, value) in [addresses, keys].into_iter().enumerate() {
            let own = writer.splat(word as i64, at);
            let at = writer.int_op(Opcode::AddI, at, own);
            let (base, elem) = (writer.splat_to(self.log, &shape), writer.elem(self.log));
            let pointers = writer.emit_one(Opcode::Offset, &[base, at], vec![], elem, &shape);
            let token = writer.module.intern(Type::Token);
            let weak = vec![Attr::MemOrder(MemOrder::Weak)];
            writer.emit(Opcode::StorePtr, &[&[pointers], &[value], &[mask], &[]], weak, vec![], &[token]);
        }
    }

    /// Emits the mask of the logged ones of elements.
    fn sample(self, writer: &mut ElementWriter<'_>, addresses: Value, mask: Value) -> Value {
        let shape = writer.shape(addresses);
        let (words, high) = (writer.splat(2, addresses), writer.splat(40, addresses));
        let shift = |writer: &mut ElementWriter<'_>, value, by| {
            let ty = writer.module.ty_id(value);
            writer.emit_typed(Opcode::ShrI, &[value, by], vec![Attr::Sign(Sign::Unsigned)], ty)
        };
        let word = shift(writer, addresses, words);
        let by = writer.splat(HASH, addresses);
        let hash = writer.int_op(Opcode::MulI, word, by);
        let hash = shift(writer, hash, high);
        let sampled = writer.splat_to(self.sampled, &shape);
        let hash = writer.emit_one(Opcode::AndI, &[hash, sampled], vec![], Elem::Num(DType::I64), &shape);
        let zero = writer.splat(0, addresses);
        let chosen = compare(writer, CmpPred::Eq, hash, zero);
        both(writer, mask, chosen)
    }
}

/// Emits the addresses of the accessed elements as integers, and the mask of the accessed ones.
fn addresses(writer: &mut ElementWriter<'_>, id: OpId, place: Option<Place>) -> Option<(Value, Option<Value>)> {
    let Some(place) = place else {
        let op = writer.module.op(id);
        let (pointers, mask) = (op.address()?, op.operand_group("mask").first().copied());
        let shape = writer.shape(pointers);
        return Some((writer.emit_one(Opcode::PtrToInt, &[pointers], vec![], Elem::Num(DType::I64), &shape), mask));
    };
    let (elements, mask) = writer.elements(id, place)?;
    let shape = writer.shape(elements);
    let bytes = writer.splat(place.bytes as i64, elements);
    let offset = writer.int_op(Opcode::MulI, elements, bytes);
    let start = writer.emit_one(Opcode::PtrToInt, &[place.base], vec![], Elem::Num(DType::I64), &[]);
    let start = writer.splat_to(start, &shape);
    Some((writer.int_op(Opcode::AddI, start, offset), mask))
}

/// Emits the comparison of signed integers.
pub fn compare(writer: &mut ElementWriter<'_>, pred: CmpPred, a: Value, b: Value) -> Value {
    let shape = writer.shape(a);
    let attrs = vec![Attr::CmpPred(pred), Attr::Sign(Sign::Signed)];
    writer.emit_one(Opcode::CmpI, &[a, b], attrs, Elem::Num(DType::I1), &shape)
}

fn both(writer: &mut ElementWriter<'_>, a: Value, b: Value) -> Value {
    let shape = writer.shape(a);
    writer.emit_one(Opcode::AndI, &[a, b], vec![], Elem::Num(DType::I1), &shape)
}
