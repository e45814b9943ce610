//! Record of accesses to global memory, for the check of races: each access to an array that the
//! kernel writes also updates a word of the array's shadow.
//!
//! Input: the module of a trace, with its assumptions as assertions
//! ([`super::assume_to_assert`]), so that each recorded access is inside of its array.
//!
//! 1. The accesses whose address is derived from a parameter are collected, with their classes
//!    ([`AccessClass`]). Arrays without a write are excluded: borrows exclude that another argument
//!    writes their memory.
//! 2. A parameter is appended for the shadow of each array.
//! 3. Before each access, two atomic maxima per element record the key of the tile block and op:
//!    the key and its complement. Both are relaxed and have no result. So the record depends on
//!    neither the order of the tile blocks nor the timing.
//!
//! After the launch, a scan of the shadow compares the classes in conflict ([`Recording`]).
//!
//! **Order.** An access can only be ordered with another tile block's by a release after it or an
//! acquire before it. Such pairs are in separate classes and are not compared, so correct flags and
//! locks give no report. Races between these pairs are missed.
//!
//! **Limits.** Not recorded are elements of less than a byte, scratch memory, globals, multimem
//! ops, tables of arrays, and addresses of no array.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::recording::{AccessClass, COMPLEMENT, RecordedArray, Recording, SITE_BITS, Site};
use crate::ir::{AtomicMode, Attr, BlockId, MemOrder, MemScope, Module, OpId, Opcode, Type, Value};
use super::elements::{ElementWriter, Place, place_of};
use crate::pass::transform::op_writer::OpWriter;
use crate::pass::transform::{dce, relax_memory_order};

/// Records the accesses of the first entry. The module then has a [`Recording`], unless no access
/// can race.
pub(crate) fn record_accesses(module: &mut Module) {
    let Some(body) = module.entries.first().map(|entry| entry.body) else { return };
    // Atomics whose results are unused order nothing.
    dce::run(module);
    relax_memory_order::run(module);
    let accesses = accesses(module, body);
    let mut arrays: Vec<RecordedArray> = Vec::new();
    for access in accesses.values().filter(|access| access.class.writes) {
        if arrays.iter().all(|array| array.param != access.param) {
            arrays.push(RecordedArray { param: access.param, bytes: access.place.bytes, classes: Vec::new() });
        }
    }
    arrays.sort_by_key(|array| array.param);
    for array in &mut arrays {
        let own = accesses.values().filter(|access| access.param == array.param);
        array.classes = own.map(|access| access.class).collect();
        array.classes.sort_unstable();
        array.classes.dedup();
    }
    // Atomics alone cannot race.
    arrays.retain(|array| !array.conflicts().is_empty());
    if arrays.is_empty() {
        return;
    }
    let word = module.intern(Type::ptr(DType::I64));
    let shadows = arrays.iter().map(|_| module.add_block_arg(body, word)).collect();
    let mut recorder = Recorder {
        block: None,
        accesses,
        shadows,
        recording: Recording { arrays, ..Recording::default() },
        writer: ElementWriter(OpWriter::new(module)),
    };
    recorder.entry(body);
    let recording = recorder.recording;
    module.recording = Some(Box::new(recording));
}

/// Access to an array parameter.
#[derive(Clone, Copy, Debug)]
struct Access {
    place: Place,
    /// Number of the parameter of the address.
    param: usize,
    class: AccessClass,
}

/// Returns the accesses to arrays that can be recorded, by op.
fn accesses(module: &Module, body: BlockId) -> FxHashMap<OpId, Access> {
    let mut order = Vec::new();
    let mut loops = Vec::new();
    positions(module, body, &mut order, &mut loops);
    let acquires = |id: &OpId| is_exchange(module, *id) || module.op(*id).mem_order().acquires();
    let releases = |id: &OpId| is_exchange(module, *id) || module.op(*id).mem_order().releases();
    let first_acquire = order.iter().position(acquires);
    let last_release = order.iter().rposition(releases);
    let mut found = FxHashMap::default();
    for (position, &id) in order.iter().enumerate() {
        let op = module.op(id);
        let effect = op.code.spec().effect;
        if !matches!(effect, Effect::Read | Effect::Write | Effect::ReadWrite) {
            continue;
        }
        let Some(place) = op.address().and_then(|address| place_of(module, body, op.code, address)) else { continue };
        let Some(param) = place.param else { continue };
        // In a loop, an op may precede an earlier one of the list.
        let around = loops.iter().find(|range| range.contains(&position)).map(|range| &order[range.clone()]);
        let repeated = around.unwrap_or_default();
        let class = AccessClass {
            writes: effect != Effect::Read,
            atomic: effect == Effect::ReadWrite || op.mem_order() != MemOrder::Weak,
            follows_acquire: first_acquire.is_some_and(|first| first < position) || repeated.iter().any(acquires),
            precedes_release: last_release.is_some_and(|last| last >= position) || repeated.iter().any(releases),
        };
        found.insert(id, Access { place, param, class });
    }
    found
}

/// Appends the ops of a block and its nested blocks in program order, and the ranges of the
/// outermost loops.
fn positions(module: &Module, block: BlockId, order: &mut Vec<OpId>, loops: &mut Vec<Range<usize>>) {
    for &id in &module.block(block).ops {
        let start = order.len();
        order.push(id);
        let op = module.op(id);
        let outer = loops.len();
        op.regions.iter().for_each(|&region| positions(module, region, order, loops));
        if op.code.is_loop() {
            loops.truncate(outer);
            loops.push(start..order.len());
        }
    }
}

/// Returns true for an exchange within a cluster, which orders its tile blocks.
fn is_exchange(module: &Module, id: OpId) -> bool {
    module.op(id).code == Opcode::ClusterAllGather
}

struct Recorder<'m> {
    writer: ElementWriter<'m>,
    accesses: FxHashMap<OpId, Access>,
    /// Parameters of the shadows, in the order of the arrays.
    shadows: Vec<Value>,
    recording: Recording,
    /// Key of the tile block without an op.
    block: Option<Value>,
}

impl Recorder<'_> {
    fn entry(&mut self, body: BlockId) {
        let (ops, outer) = self.writer.begin_block(body);
        self.block = Some(self.block_key());
        self.ops(ops);
        self.writer.end_block(body, outer);
    }

    fn ops(&mut self, ops: Vec<OpId>) {
        for id in ops {
            let op = self.writer.module.op(id).clone();
            if !matches!(op.code, Opcode::Reduce | Opcode::Scan) {
                for &region in &op.regions {
                    let (inner, outer) = self.writer.begin_block(region);
                    self.ops(inner);
                    self.writer.end_block(region, outer);
                }
            }
            self.writer.begin(&op);
            if let Some(&access) = self.accesses.get(&id)
                && let Some(array) = self.recording.arrays.iter().position(|array| array.param == access.param)
            {
                self.access(id, access, array);
            }
            self.writer.keep(id);
        }
    }

    /// Emits the key of the tile block: its number in the grid plus 1, in the high bits.
    fn block_key(&mut self) -> Value {
        let number = self.writer.module.intern(Type::scalar(DType::I32));
        let id = self.writer.emit(Opcode::GetTileBlockId, &[], vec![], vec![], &[number; 3]);
        let at = self.writer.module.op(id).results.clone();
        let id = self.writer.emit(Opcode::GetNumTileBlocks, &[], vec![], vec![], &[number; 3]);
        let of = self.writer.module.op(id).results.clone();
        let [x, y, z] = [0, 1, 2].map(|axis| self.writer.widened(at[axis]));
        let [width, height] = [0, 1].map(|axis| self.writer.widened(of[axis]));
        let plane = self.writer.int_op(Opcode::MulI, height, z);
        let row = self.writer.int_op(Opcode::AddI, y, plane);
        let rows = self.writer.int_op(Opcode::MulI, width, row);
        let number = self.writer.int_op(Opcode::AddI, x, rows);
        let one = self.writer.number(DType::I64, 1);
        let number = self.writer.int_op(Opcode::AddI, number, one);
        let shift = self.writer.number(DType::I64, 1 << SITE_BITS);
        self.writer.int_op(Opcode::MulI, number, shift)
    }

    fn access(&mut self, id: OpId, access: Access, array: usize) {
        let Some((element, mask)) = self.writer.elements(id, access.place) else { return };
        let site = self.recording.sites.len();
        // Further ops share the last number.
        let site = site.min((1 << SITE_BITS) - 1);
        if site == self.recording.sites.len() {
            let loc = self.writer.module.op(id).loc;
            self.recording.sites.push(Site { loc, class: access.class });
        }
        let recorded = &self.recording.arrays[array];
        let class = recorded.classes.iter().position(|&class| class == access.class).expect("a class of the array");
        let words = recorded.words() as i64;
        let number = self.writer.number(DType::I64, site as i64);
        let key = self.block.expect("the key of the tile block");
        let key = self.writer.int_op(Opcode::AddI, key, number);
        let all = self.writer.number(DType::I64, COMPLEMENT);
        let complement = self.writer.int_op(Opcode::SubI, all, key);
        let words = self.writer.splat(words, element);
        let row = self.writer.int_op(Opcode::MulI, element, words);
        for (word, key) in [key, complement].into_iter().enumerate() {
            let own = self.writer.splat((2 * class + word) as i64, element);
            let at = self.writer.int_op(Opcode::AddI, row, own);
            self.record(self.shadows[array], at, key, mask);
        }
    }

    /// Emits the atomic maximum of a key and words of a shadow.
    fn record(&mut self, shadow: Value, at: Value, key: Value, mask: Option<Value>) {
        let shape = self.writer.shape(at);
        let (base, keys) = (self.writer.splat_to(shadow, &shape), self.writer.splat_to(key, &shape));
        let elem = self.writer.elem(shadow);
        let pointers = self.writer.emit_one(Opcode::Offset, &[base, at], vec![], elem, &shape);
        let attrs = vec![
            Attr::MemOrder(MemOrder::Relaxed),
            Attr::MemScope(MemScope::Device),
            Attr::AtomicMode(AtomicMode::Max),
        ];
        let types = [Type::tile(DType::I64, shape), Type::Token].map(|ty| self.writer.module.intern(ty));
        let mask: Vec<Value> = mask.into_iter().collect();
        self.writer.emit(Opcode::AtomicRmw, &[&[pointers], &[keys], &mask, &[]], attrs, vec![], &types);
    }
}
