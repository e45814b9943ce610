//! Record of written elements, for the check of unwritten memory: a store marks its elements, and a
//! load asserts that its elements are marked.
//!
//! Input: the module of a trace, with its assumptions as assertions
//! ([`super::assume_to_assert`]), so that each recorded access is inside of its array.
//!
//! 1. A parameter is appended for the record of each array: one byte per element, which is not 0
//!    after the first write. The record outlives the launch.
//! 2. Memory of the tile block has a record in memory of the tile block, which is cleared where the
//!    memory is allocated.
//! 3. Before each store, its elements are marked. Before each load, their marks are loaded, and an
//!    assertion states that they are set. Atomics do both.
//!
//! A mark precedes its store, and a test precedes its load, in program order. So a release orders
//! the marks of the tile block, as it orders its stores.
//!
//! **Limits.** Not recorded are elements of less than a byte, memory of the tile block of more than
//! [`MAX_SCRATCH`] elements, globals, multimem ops, tables of arrays, and addresses of no array.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashMap;

use super::elements::{ElementWriter, Place, place_of};
use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::recording::{Recording, WrittenArray};
use crate::ir::{Attr, AttrKind, BlockId, CmpPred, Elem, MemOrder, Module, Op, OpId, Opcode, Sign, Type, Value};
use crate::pass::transform::op_writer::OpWriter;

/// Prefix of the text of these assertions.
pub(crate) const UNWRITTEN: &str = "unwritten memory: ";

/// Maximum number of elements of recorded memory of the tile block.
const MAX_SCRATCH: u64 = 1 << 16;

/// Elements of a store that clears such a record.
const CLEARED: u64 = 1 << 12;

/// Records the writes of the first entry. The [`Recording`] of the module then lists the arrays.
pub(crate) fn record_writes(module: &mut Module) {
    let Some(body) = module.entries.first().map(|entry| entry.body) else { return };
    let mut accesses = FxHashMap::default();
    let mut arrays: Vec<(WrittenArray, Value)> = Vec::new();
    let mut ops = Vec::new();
    module.walk(body, &mut |id| ops.push(id));
    for id in ops {
        let op = module.op(id);
        if !matches!(op.code.spec().effect, Effect::Read | Effect::Write | Effect::ReadWrite) {
            continue;
        }
        let Some(place) = op.address().and_then(|address| place_of(module, body, op.code, address)) else { continue };
        accesses.insert(id, place);
        if let Some(param) = place.param
            && arrays.iter().all(|(array, _)| array.param != param)
        {
            arrays.push((WrittenArray { param, bytes: place.bytes }, place.base));
        }
    }
    crate::util::sort::by_key(&mut arrays, |(array, _)| array.param);
    let numbers: Vec<Value> =
        module.block(body).args.iter().copied().filter(|&arg| is_pointer(module, arg)).collect_vec();
    let byte = module.intern(Type::ptr(DType::I8));
    let mut records = FxHashMap::default();
    for (_, base) in &arrays {
        let name = numbers.iter().position(|arg| arg == base).expect("a pointer among the parameters");
        records.insert(*base, (module.add_block_arg(body, byte), format!("array argument {name}")));
    }
    let mut recorder = Recorder { writer: ElementWriter(OpWriter::new(module)), accesses, records };
    recorder.block(body);
    let written = arrays.into_iter().map(|(array, _)| array).collect_vec();
    let recording = module.recording.get_or_insert_with(|| Box::new(Recording::default()));
    recording.written = Some(written);
}

fn is_pointer(module: &Module, value: Value) -> bool {
    matches!(module.ty(value).as_tile(), Some((Elem::Ptr { .. }, _)))
}

struct Recorder<'m> {
    writer: ElementWriter<'m>,
    accesses: FxHashMap<OpId, Place>,
    /// By base: the record, and the name of the memory.
    records: FxHashMap<Value, (Value, String)>,
}

impl Recorder<'_> {
    fn block(&mut self, block: BlockId) {
        let (ops, outer) = self.writer.begin_block(block);
        for id in ops {
            let op = self.writer.module.op(id).clone();
            if !matches!(op.code, Opcode::Reduce | Opcode::Scan) {
                op.regions.iter().for_each(|&region| self.block(region));
            }
            self.writer.begin(&op);
            if op.code == Opcode::Alloca {
                self.allocation(&op);
            }
            if let Some(place) = self.accesses.get(&id).copied() {
                self.access(id, &op, place);
            }
            self.writer.keep(id);
        }
        self.writer.end_block(block, outer);
    }

    /// Allocates and clears the record of memory of the tile block.
    fn allocation(&mut self, op: &Op) {
        let Some(&Attr::NumElem(count)) = op.attr(AttrKind::NumElem) else { return };
        if count > MAX_SCRATCH {
            return;
        }
        let padded = count.next_multiple_of(count.next_power_of_two().min(CLEARED));
        let ty = self.writer.module.intern(Type::ptr(DType::I8));
        let attrs = vec![Attr::NumElem(padded), Attr::Alignment(16)];
        let record = self.writer.emit_typed(Opcode::Alloca, &[], attrs, ty);
        let shape = [count.next_power_of_two().min(CLEARED) as i64];
        for first in (0..padded).step_by(shape[0] as usize) {
            let elements = self.writer.emit_one(Opcode::Iota, &[], vec![], Elem::Num(DType::I32), &shape);
            let first = self.writer.number(DType::I32, first as i64);
            let first = self.writer.splat_to(first, &shape);
            let elements = self.writer.int_op(Opcode::AddI, elements, first);
            self.mark(record, elements, 0, None);
        }
        self.records.insert(op.results[0], (record, "scratch memory".to_owned()));
    }

    fn access(&mut self, id: OpId, op: &Op, place: Place) {
        let Some((record, name)) = self.records.get(&place.base).cloned() else { return };
        let Some((elements, mask)) = self.writer.elements(id, place) else { return };
        let effect = op.code.spec().effect;
        if effect != Effect::Write {
            self.test(record, elements, mask, &name);
        }
        if effect != Effect::Read {
            self.mark(record, elements, 1, mask);
        }
    }

    fn pointers(&mut self, record: Value, elements: Value) -> Value {
        let shape = self.writer.shape(elements);
        let (base, elem) = (self.writer.splat_to(record, &shape), self.writer.elem(record));
        self.writer.emit_one(Opcode::Offset, &[base, elements], vec![], elem, &shape)
    }

    /// Emits the store of a mark for elements.
    fn mark(&mut self, record: Value, elements: Value, mark: i64, mask: Option<Value>) {
        let shape = self.writer.shape(elements);
        let pointers = self.pointers(record, elements);
        let mark = self.writer.number(DType::I8, mark);
        let marks = self.writer.splat_to(mark, &shape);
        let token = self.writer.module.intern(Type::Token);
        let mask: Vec<Value> = mask.into_iter().collect_vec();
        let weak = vec![Attr::MemOrder(MemOrder::Weak)];
        self.writer.emit(Opcode::StorePtr, &[&[pointers], &[marks], &mask, &[]], weak, vec![], &[token]);
    }

    /// Emits the assertion that elements are marked.
    fn test(&mut self, record: Value, elements: Value, mask: Option<Value>, name: &str) {
        let shape = self.writer.shape(elements);
        let pointers = self.pointers(record, elements);
        let one = self.writer.number(DType::I8, 1);
        let ones = self.writer.splat_to(one, &shape);
        let types = [Type::tile(DType::I8, shape.clone()), Type::Token].map(|ty| self.writer.module.intern(ty));
        let (mask, padding) = match mask {
            Some(mask) => (vec![mask], vec![ones]),
            None => (vec![], vec![]),
        };
        let weak = vec![Attr::MemOrder(MemOrder::Weak)];
        let id = self.writer.emit(Opcode::LoadPtr, &[&[pointers], &mask, &padding, &[]], weak, vec![], &types);
        let marks = self.writer.module.op(id).results[0];
        let zero = self.writer.number(DType::I8, 0);
        let zeros = self.writer.splat_to(zero, &shape);
        let attrs = vec![Attr::CmpPred(CmpPred::Ne), Attr::Sign(Sign::Signed)];
        let holds = self.writer.emit_one(Opcode::CmpI, &[marks, zeros], attrs, Elem::Num(DType::I1), &shape);
        let elements = self.writer.widened(elements);
        let text = format!("{UNWRITTEN}element %lld of {name} was never written, and is read here");
        let text = vec![Attr::Text(text.into())];
        self.writer.emit(Opcode::Assert, &[&[holds], &[elements]], text, vec![], &[]);
    }
}
