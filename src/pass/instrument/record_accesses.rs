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
use crate::ir::{
    AtomicMode, Attr, BlockId, CmpPred, Def, Elem, MemOrder, MemScope, Module, OpId, Opcode, Rounding, Sign, Type,
    Value,
};
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
            arrays.push(RecordedArray { param: access.param, bytes: access.bytes, classes: Vec::new() });
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
        recording: Recording { arrays, sites: Vec::new() },
        writer: OpWriter::new(module),
    };
    recorder.entry(body);
    let recording = recorder.recording;
    module.recording = Some(Box::new(recording));
}

/// Access to an array parameter.
#[derive(Clone, Copy, Debug)]
struct Access {
    /// Number of the parameter of the address.
    param: usize,
    bytes: u64,
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
        let Some((param, bytes)) = op.address().and_then(|address| array_of(module, body, op.code, address)) else {
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
        found.insert(id, Access { param, bytes, class });
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

/// Returns the number of the address parameter from which an address is derived, and the bytes of
/// an element; `None` if the access cannot be recorded.
fn array_of(module: &Module, body: BlockId, code: Opcode, address: Value) -> Option<(usize, u64)> {
    if matches!(code, Opcode::MultimemLoadReduce | Opcode::MultimemReduce | Opcode::MultimemStore) {
        return None;
    }
    let mut base = address;
    while let Some(id) = module.defining_op(base) {
        let op = module.op(id);
        match op.code {
            Opcode::Offset => base = op.operands[0],
            code if code.is_view() || code.is_alias() => base = op.operands[0],
            // Not through `PtrToPtr`, which changes the element type.
            _ => return None,
        }
    }
    let Def::Arg(block, param) = module.def(base) else { return None };
    let (Elem::Ptr { pointee, .. }, _) = module.ty(base).as_tile()? else { return None };
    // Pointers without an array are not checked, so they may point outside of the shadow.
    let has_array = module.block(body).ops.iter().any(|&id| {
        let op = module.op(id);
        op.code == Opcode::MakeTensorView && module.base(op.operands[0]) == base
    });
    let bits = pointee.storage_bits();
    (block == body && bits >= 8 && has_array).then_some((param as usize, u64::from(bits / 8)))
}

struct Recorder<'m> {
    writer: OpWriter<'m>,
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
        let [x, y, z] = [0, 1, 2].map(|axis| self.widened(at[axis]));
        let [width, height] = [0, 1].map(|axis| self.widened(of[axis]));
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
        let Some((element, mask)) = self.elements(id, access) else { return };
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
        let words = self.splat(words, element);
        let row = self.writer.int_op(Opcode::MulI, element, words);
        for (word, key) in [key, complement].into_iter().enumerate() {
            let own = self.splat((2 * class + word) as i64, element);
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

    /// Returns the number of each accessed element, counted from the address of the parameter, and
    /// the mask of the accessed ones.
    fn elements(&mut self, id: OpId, access: Access) -> Option<(Value, Option<Value>)> {
        let op = self.writer.module.op(id).clone();
        let address = op.address()?;
        match op.code {
            Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView => {
                self.view_elements(address, op.operand_group("index"), access)
            }
            _ => {
                let mask = op.operand_group("mask").first().copied();
                Some((self.distance_from_start(address, access), mask))
            }
        }
    }

    /// Returns the distance of pointers from the parameter, in elements.
    fn distance_from_start(&mut self, pointers: Value, access: Access) -> Value {
        let start = self.parameter(access.param);
        let shape = self.writer.shape(pointers);
        let address = self.writer.emit_one(Opcode::PtrToInt, &[pointers], vec![], Elem::Num(DType::I64), &shape);
        let start = self.writer.emit_one(Opcode::PtrToInt, &[start], vec![], Elem::Num(DType::I64), &[]);
        let start = self.writer.splat_to(start, &shape);
        let distance = self.writer.int_op(Opcode::SubI, address, start);
        let bytes = self.splat(access.bytes as i64, distance);
        let ty = self.writer.module.ty_id(distance);
        let down = vec![Attr::Sign(Sign::Signed), Attr::Rounding(Rounding::NegInf)];
        self.writer.emit_typed(Opcode::DivI, &[distance, bytes], down, ty)
    }

    fn parameter(&self, param: usize) -> Value {
        let body = self.writer.module.entries[0].body;
        self.writer.module.block(body).args[param]
    }

    /// Returns the elements of an access through a view; see [`Recorder::elements`].
    fn view_elements(&mut self, view: Value, index: &[Value], access: Access) -> Option<(Value, Option<Value>)> {
        let array = self.writer.module.op(self.writer.module.defining_op(view)?).operands[0];
        let made = self.writer.module.op(self.writer.module.defining_op(array)?).clone();
        let Type::TensorView { strides, .. } = self.writer.module.ty(array).clone() else { return None };
        // For each dimension of the tile: its extent, the step between tiles in elements, and the
        // dimension of the array.
        let dims: Vec<(i64, i64, usize)> = match self.writer.module.ty(view) {
            Type::PartitionView { tile, dim_map, .. } => {
                tile.iter().zip(dim_map).map(|(&tile, &dim)| (tile.into(), tile.into(), dim as usize)).collect()
            }
            Type::StridedView { tile, traversal, dim_map, .. } => {
                let steps = tile.iter().zip(traversal).zip(dim_map);
                steps.map(|((&tile, &step), &dim)| (tile.into(), step.into(), dim as usize)).collect()
            }
            Type::GatherScatterView { tile, .. } => {
                tile.iter().enumerate().map(|(dim, &tile)| (tile.into(), 1, dim)).collect()
            }
            _ => return None,
        };
        let shape: Vec<i64> = dims.iter().map(|&(tile, ..)| tile).collect();
        let extents = self.extents(array, strides.len());
        let strides = self.strides(&strides, made.group(2));
        let start = self.distance_from_start(made.operands[0], access);
        let mut element = self.writer.splat_to(start, &shape);
        let mut mask = None;
        for (d, &(tile, step, dim)) in dims.iter().enumerate() {
            let position = self.position(index[d], tile, step);
            let mut along = vec![1; shape.len()];
            along[d] = tile;
            let inside = self.is_inside(position, extents[dim], &[tile]);
            let inside = self.writer.reshape(inside, &along);
            let inside = self.writer.broadcast(inside, &shape);
            mask = Some(match mask {
                None => inside,
                Some(mask) => self.writer.emit_one(Opcode::AndI, &[mask, inside], vec![], Elem::Num(DType::I1), &shape),
            });
            let stride = self.writer.splat_to(strides[dim], &[tile]);
            let offset = self.writer.int_op(Opcode::MulI, position, stride);
            let offset = self.writer.reshape(offset, &along);
            let offset = self.writer.broadcast(offset, &shape);
            element = self.writer.int_op(Opcode::AddI, element, offset);
        }
        Some((element, mask))
    }

    /// Returns the positions of a tile along a dimension, in elements.
    fn position(&mut self, index: Value, tile: i64, step: i64) -> Value {
        let index = self.widened(index);
        if !self.writer.shape(index).is_empty() {
            // An index tile has the positions.
            return index;
        }
        let step = self.writer.number(DType::I64, step);
        let first = self.writer.int_op(Opcode::MulI, index, step);
        let first = self.writer.splat_to(first, &[tile]);
        let numbers = self.writer.emit_one(Opcode::Iota, &[], vec![], Elem::Num(DType::I32), &[tile]);
        let numbers = self.widened(numbers);
        self.writer.int_op(Opcode::AddI, first, numbers)
    }

    fn is_inside(&mut self, position: Value, extent: Value, shape: &[i64]) -> Value {
        let extent = self.writer.splat_to(extent, shape);
        let zero = self.splat(0, position);
        let mut compare = |pred, a, b| {
            let attrs = vec![Attr::CmpPred(pred), Attr::Sign(Sign::Signed)];
            self.writer.emit_one(Opcode::CmpI, &[a, b], attrs, Elem::Num(DType::I1), shape)
        };
        let (below, above) = (compare(CmpPred::Lt, position, extent), compare(CmpPred::Ge, position, zero));
        self.writer.emit_one(Opcode::AndI, &[below, above], vec![], Elem::Num(DType::I1), shape)
    }

    fn extents(&mut self, array: Value, rank: usize) -> Vec<Value> {
        let long = self.writer.module.intern(Type::scalar(DType::I64));
        let id = self.writer.emit(Opcode::GetTensorShape, &[&[array]], vec![], vec![], &vec![long; rank]);
        self.writer.module.op(id).results.clone()
    }

    fn strides(&mut self, strides: &[Option<i64>], dynamic: &[Value]) -> Vec<Value> {
        let mut dynamic = dynamic.iter();
        let number = |stride: &Option<i64>| match stride {
            Some(stride) => self.writer.number(DType::I64, *stride),
            None => {
                let stride = *dynamic.next().expect("a value for each stride that is not fixed");
                self.widened(stride)
            }
        };
        strides.iter().map(number).collect()
    }

    /// Returns a constant tile of the shape of another one.
    fn splat(&mut self, number: i64, like: Value) -> Value {
        let shape = self.writer.shape(like);
        let number = self.writer.number(DType::I64, number);
        self.writer.splat_to(number, &shape)
    }

    /// Converts integers to i64.
    fn widened(&mut self, value: Value) -> Value {
        if self.writer.module.dtype(value) == DType::I64 {
            return value;
        }
        let shape = self.writer.shape(value);
        let signed = vec![Attr::Sign(Sign::Signed)];
        self.writer.emit_one(Opcode::ExtI, &[value], signed, Elem::Num(DType::I64), &shape)
    }
}
