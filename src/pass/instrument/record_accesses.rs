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
//! acquire before it. Such pairs are in separate classes and are not compared in the shadow. Their
//! accesses, the releases and the acquires are logged ([`super::access_log`]), and the host
//! compares them by vector clocks.
//!
//! **Addresses.** Accesses through pointers of no parameter (tables of arrays, addresses in memory)
//! are logged, together with the accesses to the arrays that they may alias.
//!
//! **Limits.** Not recorded are elements of less than a byte, scratch memory, globals and multimem
//! ops. Kernels that exchange tiles within a cluster have no log.

use crate::util::collect::CollectVec as _;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::access_log::{AccessLog, compare};
use super::elements::{ElementWriter, Place, place_of};
use crate::dtype::DType;
use crate::ir::op_table::Effect;
use crate::ir::recording::{AccessClass, COMPLEMENT, Event, Logged, RecordedArray, Recording, SITE_BITS, Site};
use crate::ir::{AtomicMode, Attr, BlockId, CmpPred, Elem, MemOrder, MemScope, Module, OpId, Opcode, Type, Value};
use crate::pass::transform::op_writer::OpWriter;
use crate::pass::transform::{dce, relax_memory_order};

/// Records the accesses of the first entry. The module then has a [`Recording`], unless no access
/// can race.
pub(crate) fn record_accesses(module: &mut Module) {
    let Some(body) = module.entries.first().map(|entry| entry.body) else { return };
    // Atomics whose results are unused order nothing.
    dce::run(module);
    relax_memory_order::run(module);
    let found = accesses(module, body);
    let mut arrays: Vec<RecordedArray> = Vec::new();
    for (param, access) in found.values().filter_map(|access| Some((access.param?, access))) {
        if access.class.writes && arrays.iter().all(|array| array.param != param) {
            arrays.push(RecordedArray { param, bytes: access.bytes, classes: Vec::new() });
        }
    }
    crate::util::sort::by_key(&mut arrays, |array| array.param);
    for array in &mut arrays {
        let own = found.values().filter(|access| access.param == Some(array.param));
        array.classes = own.map(|access| access.class).collect_vec();
        array.classes.sort_unstable();
        array.classes.dedup();
    }
    let mut has_exchange = false;
    module.walk(body, &mut |id| has_exchange |= is_exchange(module, id));
    // The log has no events for exchanges within a cluster.
    let (logged, is_unlogged) = match logged(&arrays, &found) {
        Some(_) if has_exchange => (None, true),
        logged => (logged, false),
    };
    // Atomics alone cannot race.
    arrays.retain(|array| !array.conflicts().is_empty());
    if arrays.is_empty() && logged.is_none() {
        if is_unlogged {
            module.recording = Some(Box::new(Recording { is_unlogged, ..Recording::default() }));
        }
        return;
    }
    let word = module.intern(Type::ptr(DType::I64));
    let shadows = arrays.iter().map(|_| module.add_block_arg(body, word)).collect_vec();
    let log = logged.as_ref().map(|_| module.add_block_arg(body, word));
    let mut recorder = Recorder {
        block: None,
        accesses: found,
        shadows,
        log: None,
        sites: FxHashMap::default(),
        recording: Recording { arrays, log: logged, is_unlogged, ..Recording::default() },
        writer: ElementWriter(OpWriter::new(module)),
    };
    recorder.entry(body, log);
    let recording = recorder.recording;
    module.recording = Some(Box::new(recording));
}

/// Access to global memory.
#[derive(Clone, Copy, Debug)]
struct Access {
    /// Array of the elements; `None` for pointers of no array.
    place: Option<Place>,
    /// Number of the parameter of the address.
    param: Option<usize>,
    /// Bytes of an element.
    bytes: u64,
    class: AccessClass,
}

/// Returns the arrays whose accesses are logged: those with accesses that an order can separate,
/// and all written ones if there are accesses to memory of no parameter.
fn logged(arrays: &[RecordedArray], found: &FxHashMap<OpId, Access>) -> Option<Logged> {
    let unknown = || found.values().filter(|access| access.param.is_none());
    let writes = !arrays.is_empty() || unknown().any(|access| access.class.writes);
    let addresses = writes && unknown().next().is_some();
    let is_logged = |array: &&RecordedArray| addresses || array.depends_on_order();
    let mut params: Vec<usize> = arrays.iter().filter(is_logged).map(|array| array.param).collect_vec();
    if addresses && unknown().any(|access| access.class.writes) {
        // It may write an array that the kernel only reads through its parameter.
        params.extend(found.values().filter_map(|access| access.param));
        params.sort_unstable();
        params.dedup();
    }
    (addresses || !params.is_empty()).then_some(Logged { params, addresses })
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
        let Some(address) = op.address() else { continue };
        let known = place_of(module, body, op.code, address);
        let (param, Some((place, bytes))) =
            (known.and_then(|place| place.param), memory_of(module, op.code, known, address))
        else {
            continue;
        };
        // In a loop, an op may precede an earlier one of the list.
        let around = loops.iter().find(|range| range.contains(&position)).map(|range| &order[range.clone()]);
        let repeated = around.unwrap_or_default();
        let class = AccessClass {
            writes: effect != Effect::Read,
            atomic: effect == Effect::ReadWrite || op.mem_order() != MemOrder::Weak,
            follows_acquire: first_acquire.is_some_and(|first| first < position) || repeated.iter().any(acquires),
            precedes_release: last_release.is_some_and(|last| last >= position) || repeated.iter().any(releases),
        };
        found.insert(id, Access { place, param, bytes, class });
    }
    found
}

/// Returns the array of an access and the bytes of an element, also for pointers of no parameter.
/// `None` for memory of the tile block and elements that are not recorded.
fn memory_of(module: &Module, code: Opcode, known: Option<Place>, address: Value) -> Option<(Option<Place>, u64)> {
    if let Some(place) = known {
        return place.param.is_some().then_some((known, place.bytes));
    }
    let base = match code {
        Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView => {
            let array = module.op(module.defining_op(address)?).operands[0];
            module.op(module.defining_op(array)?).operands[0]
        }
        Opcode::LoadPtr | Opcode::StorePtr | Opcode::AtomicRmw | Opcode::AtomicCas => address,
        _ => return None,
    };
    let (Elem::Ptr { pointee, .. }, _) = module.ty(base).as_tile()? else { return None };
    let is_own = module.defining_op(module.base(base)).is_some_and(|id| module.op(id).code == Opcode::Alloca);
    let bytes = u64::from(pointee.storage_bits() / 8);
    let place = (base != address).then_some(Place { base, param: None, bytes });
    (bytes > 0 && !is_own).then_some((place, bytes))
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
    log: Option<AccessLog>,
    /// Numbers of recorded ops.
    sites: FxHashMap<OpId, i64>,
    recording: Recording,
    /// Key of the tile block without an op.
    block: Option<Value>,
}

impl Recorder<'_> {
    fn entry(&mut self, body: BlockId, log: Option<Value>) {
        let (ops, outer) = self.writer.begin_block(body);
        self.block = Some(self.block_key());
        self.log = log.map(|log| AccessLog::begin(&mut self.writer, log));
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
            let access = self.accesses.get(&id).copied();
            if let Some(access) = access {
                self.access(id, access);
            }
            match (access, self.log) {
                (Some(access), Some(log)) => self.logged(id, access, log),
                _ => self.writer.keep(id),
            }
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

    /// Returns the key of an op of the tile block.
    fn key(&mut self, id: OpId, access: Access) -> Value {
        let sites = &mut self.recording.sites;
        let loc = self.writer.module.op(id).loc;
        let number = *self.sites.entry(id).or_insert_with(|| {
            // Further ops share the last number.
            let number = sites.len().min((1 << SITE_BITS) - 1);
            if number == sites.len() {
                sites.push(Site { loc, class: access.class, bytes: access.bytes });
            }
            number as i64
        });
        let number = self.writer.number(DType::I64, number);
        let key = self.block.expect("the key of the tile block");
        self.writer.int_op(Opcode::AddI, key, number)
    }

    /// Emits an op with its events.
    fn logged(&mut self, id: OpId, access: Access, log: AccessLog) {
        let logged = self.recording.log.as_ref().expect("a log");
        let is_logged = access.param.map_or(logged.addresses, |param| logged.params.contains(&param));
        let op = self.writer.module.op(id);
        let (order, is_swap) = (op.mem_order(), op.code == Opcode::AtomicCas);
        let (expected, old) = (op.operands.get(1).copied(), op.results.first().copied());
        let key = self.key(id, access);
        if is_logged && let Some(events) = log.take(&mut self.writer, id, access.place, Event::Access) {
            log.put(&mut self.writer, events, key, None);
        }
        let mut released = None;
        if order.releases() {
            released = log.take(&mut self.writer, id, access.place, Event::Release);
        }
        if !is_swap && let Some(events) = released.take() {
            log.put(&mut self.writer, events, key, None);
        }
        self.writer.keep(id);
        if let (Some(events), Some(expected), Some(old)) = (released, expected, old) {
            // Only an exchange that writes is a release.
            let written = match self.writer.elem(old) {
                Elem::Num(dtype) if dtype.is_int() => Some(compare(&mut self.writer, CmpPred::Eq, old, expected)),
                _ => None,
            };
            log.put(&mut self.writer, events, key, written);
        }
        if order.acquires()
            && let Some(events) = log.take(&mut self.writer, id, access.place, Event::Acquire)
        {
            log.put(&mut self.writer, events, key, None);
        }
    }

    /// Emits the record of an access in the shadow of its array.
    fn access(&mut self, id: OpId, access: Access) {
        let Some(array) = self.recording.arrays.iter().position(|array| Some(array.param) == access.param) else {
            return;
        };
        let Some((element, mask)) = access.place.and_then(|place| self.writer.elements(id, place)) else { return };
        let recorded = &self.recording.arrays[array];
        let class = recorded.classes.iter().position(|&class| class == access.class).expect("a class of the array");
        let words = recorded.words() as i64;
        let key = self.key(id, access);
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
        let mask: Vec<Value> = mask.into_iter().collect_vec();
        self.writer.emit(Opcode::AtomicRmw, &[&[pointers], &[keys], &mask, &[]], attrs, vec![], &types);
    }
}
