//! The trace of this thread: recorded ops, open regions and diagnostics.
//!
//! The trace is untyped: a [`ValueHandle`] is a recorded value, a [`Source`] an operand that may
//! also be a host literal. An operation that cannot be recorded adds a [`Diagnostic`] and returns a
//! *poisoned* value of its result type. Results of poisoned operands are poisoned without a further
//! diagnostic, so that only causes are reported. The meaning of ops is not known here.

use crate::util::collect::CollectVec as _;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::{FxHashMap, FxHashSet};

use super::array_info::ArrayData;
use super::user_backtrace::calls_to;
use crate::dtype::DType;
use crate::error::{Diagnostic, Location, Note};
use crate::ir::{Attr, BlockId, Builder, Def, OpId, Opcode, Rounding, Sign, Type, TypeId, Value, Written};
use crate::util::task::{Scoped, may_interrupt};

/// The user's source place, as `#[track_caller]` passes it.
pub(crate) type Place = &'static std::panic::Location<'static>;

thread_local! {
    /// The place that [`caller_location`] returns inside of [`with_location`].
    static FIXED: Cell<Option<Place>> = const { Cell::new(None) };
}

/// Returns the place of the nearest caller that is not `#[track_caller]`.
#[track_caller]
pub(crate) fn caller_location() -> Place {
    match FIXED.get() {
        Some(place) => place,
        None => std::panic::Location::caller(),
    }
}

/// Runs `work`, whose operations are all recorded at `place`. Closures need this because
/// `#[track_caller]` does not reach them. User code must not run inside of `work`.
pub(crate) fn with_location<X>(place: Place, work: impl FnOnce() -> X) -> X {
    let _fixed = Scoped::set(&FIXED, Some(place));
    work()
}

/// Returns true inside of [`with_location`]: the operation is a part of a composed one.
pub(crate) fn is_part() -> bool {
    FIXED.get().is_some()
}

fn location(place: Place) -> Location {
    Location { file: place.file().into(), line: place.line(), column: place.column() }
}

/// A value of a trace. (Public because sealed traits mention it; other crates cannot name it.)
#[derive(Clone, Copy, Debug)]
pub struct ValueHandle {
    value: Value,
    /// Serial number of the trace, which detects values that are kept from another trace. With 64
    /// bits, a process never uses a number twice.
    trace: u64,
    pub(super) rank: u8,
}

/// Passed in two registers.
const _: () = assert!(size_of::<ValueHandle>() == 16);

impl ValueHandle {
    /// Returns true if both are the same recorded value, and not only equal ones.
    pub fn is_same(self, other: ValueHandle) -> bool {
        (self.trace, self.value) == (other.trace, other.value)
    }
}

/// An operand: a recorded value, or a host value that becomes a constant of the required shape.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// A recorded value.
    Value(ValueHandle),
    /// Bits of a constant of the operand's element type.
    Literal(u64),
    /// A host extent or offset, for an i32 operand.
    Extent(usize),
}

/// Description of an open block: the call whose body it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    /// The name in messages: ``the body of `fold` ``.
    pub what: &'static str,
    /// The call that the body belongs to.
    pub place: Place,
    /// Only operations on scalars without effects are allowed (bodies of `reduce` and `map`).
    pub scalar_only: bool,
}

/// A loop whose body is being recorded.
#[derive(Debug)]
struct Looping {
    place: Place,
    /// The initial values of its state.
    carried: Vec<ValueHandle>,
    /// The body leaves the loop early.
    leaves: bool,
}

/// The state of one kernel during its tracing.
#[derive(Debug)]
pub(crate) struct Trace {
    /// The builder to which ops are appended.
    pub builder: Builder,
    /// Arrays declared or derived so far; [`super::Array`] holds an index into this list.
    pub arrays: Vec<ArrayData>,
    /// The name of the kernel, and the call that traces it.
    pub(super) launched: Option<(String, Place)>,
    id: u64,
    /// The block that defines each value, by value index.
    defining_blocks: Vec<BlockId>,
    poisoned: FxHashSet<Value>,
    pub(super) regions: FxHashMap<BlockId, Region>,
    /// The loops whose bodies are open, by body block.
    loops: FxHashMap<BlockId, Looping>,
    /// The number of bodies that exceeded the nesting limit.
    too_deep: u32,
    /// Extents in i64 whose values fit i32.
    pub short_extents: FxHashSet<Value>,
    /// Extents in i64 of arrays with an extent that does not fit i32.
    pub long_extents: FxHashSet<Value>,
    /// Values with an upper limit that each launch checks: see `ops/support/i32_count.rs`.
    pub limited: FxHashSet<(Value, i64)>,
    /// The number of threads of the tile layouts, and the place of the first of these layouts.
    pub layout_threads: Option<(i64, Place)>,
    /// Mode of float ops that state none.
    pub float_mode: Option<ScopedMode>,
    diagnostics: Vec<Diagnostic>,
}

/// Mode of the float ops in a scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScopedMode {
    pub rounding: Option<Rounding>,
    pub flush_to_zero: bool,
    /// Products are fused with the additions that use them.
    pub contract: bool,
    /// Exponents and masks have forms with fewer ops.
    pub reassociate: bool,
}

thread_local! {
    /// Owned by a [`Session`]. It has no destructor, so that kernels can be launched until the
    /// thread ends.
    static TRACE: Cell<Option<ManuallyDrop<Box<Trace>>>> = const { Cell::new(None) };
    /// The number of open traces of this thread: that of [`TRACE`], and those that it interrupts.
    /// Separate from [`TRACE`], because every launch reads it.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The maximum number of open traces on one thread of a pool.
const MAX_TRACES: u32 = 32;

static NEXT_TRACE: AtomicU64 = AtomicU64::new(0);

/// Returns true if a kernel is being traced on this thread.
pub fn is_tracing() -> bool {
    DEPTH.get() > 0
}

/// Returns true if a kernel can be traced or launched here: outside of another kernel, or in an
/// unrelated task.
///
/// While a thread of a rayon pool waits (`rayon::join` in a kernel), it executes other tasks of the
/// pool. These are unrelated to the waiting kernel, so a trace in such a task interrupts the
/// waiting one.
pub(crate) fn can_launch() -> bool {
    match DEPTH.get() {
        0 => true,
        depth => depth < MAX_TRACES && may_interrupt(),
    }
}

/// The trace of this thread, removed from [`TRACE`] during a recording.
struct Recording(Option<ManuallyDrop<Box<Trace>>>);

impl Recording {
    #[track_caller]
    fn start() -> Recording {
        match TRACE.take() {
            Some(trace) => Recording(Some(trace)),
            None => panic!(
                "tile operations work only inside a kernel: pass the function that contains this line to `cutlet::launch`"
            ),
        }
    }

    fn trace(&mut self) -> &mut Trace {
        self.0.as_mut().expect("a trace until it is given back")
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        TRACE.set(self.0.take());
    }
}

/// Runs `work` on the trace of this thread. User code must not run inside of `work`. (Instantiated
/// for every operation and type of a program, so the code apart from `work` is in [`Recording`].)
///
/// # Panics
/// If no kernel is being traced.
#[track_caller]
pub(crate) fn record<X>(work: impl FnOnce(&mut Trace) -> X) -> X {
    let mut recording = Recording::start();
    work(recording.trace())
}

/// Runs a closure of the user, which records into the innermost open block. If the closure panics,
/// that block is closed. A kernel that catches the panic continues before the region, and the
/// launch reports the panic.
pub(crate) fn in_region<X>(closure: impl FnOnce() -> X) -> X {
    let unfinished = Unfinished::innermost();
    let result = closure();
    std::mem::forget(unfinished);
    result
}

/// A region whose closure is running; dropped only by a panic in the closure.
struct Unfinished {
    trace: u64,
    /// The number of open blocks, including the block of the region.
    depth: usize,
}

impl Unfinished {
    fn innermost() -> Unfinished {
        record(|t| Unfinished { trace: t.id, depth: t.builder.open_blocks().len() })
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut open = TRACE.take();
        if let Some(trace) = open.as_mut().filter(|trace| trace.id == self.trace) {
            trace.abandon(self.depth);
        }
        TRACE.set(open);
    }
}

/// The open trace of this thread. Dropping it, also by a panic in the kernel, restores the
/// interrupted trace, if any.
pub(crate) struct Session {
    interrupted: Option<Box<Trace>>,
    /// Operations of this trace are not parts of an operation of the interrupted one.
    _own_places: Scoped<Option<Place>>,
}

impl Session {
    /// Starts a trace; `None` if [`can_launch`] is false.
    pub fn start() -> Option<Session> {
        can_launch().then(|| {
            DEPTH.set(DEPTH.get() + 1);
            let trace = ManuallyDrop::new(Box::new(Trace::new()));
            Session {
                interrupted: TRACE.replace(Some(trace)).map(ManuallyDrop::into_inner),
                _own_places: Scoped::set(&FIXED, None),
            }
        })
    }

    /// Ends the trace.
    pub fn finish(self) -> Box<Trace> {
        TRACE.take().map(ManuallyDrop::into_inner).expect("the trace of this session")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        let ended = TRACE.replace(self.interrupted.take().map(ManuallyDrop::new));
        drop(ended.map(ManuallyDrop::into_inner));
    }
}

impl Trace {
    fn new() -> Trace {
        Trace {
            builder: Builder::new(),
            arrays: Vec::new(),
            launched: None,
            id: NEXT_TRACE.fetch_add(1, Ordering::Relaxed),
            defining_blocks: Vec::new(),
            poisoned: FxHashSet::default(),
            regions: FxHashMap::default(),
            loops: FxHashMap::default(),
            too_deep: 0,
            short_extents: FxHashSet::default(),
            long_extents: FxHashSet::default(),
            limited: FxHashSet::default(),
            layout_threads: None,
            float_mode: None,
            diagnostics: Vec::new(),
        }
    }

    /// Returns the serial number of this trace.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Removes and returns all diagnostics, in order of discovery.
    pub fn take_diagnostics(&mut self) -> Vec<Diagnostic> {
        std::mem::take(&mut self.diagnostics)
    }

    /// Sets the place of the following ops.
    pub fn at(&mut self, place: Place) {
        self.builder.set_location(&location(place));
    }

    /// Reports a problem, once per place and text.
    pub fn report(&mut self, place: Place, message: impl Into<String>, notes: &[&str]) {
        let start = Diagnostic::new(message, Some(location(place)));
        self.push(notes.iter().fold(start, |d, note| d.note(*note)));
    }

    /// Reports a problem together with other places and a remedy.
    pub fn report_with(&mut self, place: Place, message: String, others: &[(Place, &str)], way_out: &str) {
        let start = Diagnostic::new(message, Some(location(place)));
        let with = others.iter().fold(start, |d, (place, note)| d.note_at(*note, Some(location(place))));
        self.push(with.note(way_out));
    }

    fn push(&mut self, diagnostic: Diagnostic) {
        // Stored diagnostics have the notes of their calls at the end.
        let is_known = |known: &Diagnostic| {
            let (a, b) = (known, &diagnostic);
            a.location == b.location && a.message == b.message && a.notes.starts_with(&b.notes)
        };
        if !self.diagnostics.iter().any(is_known) {
            let diagnostic = self.with_calls(diagnostic);
            self.diagnostics.push(diagnostic);
        }
    }

    /// Adds the calls from the kernel to the function with the problem, or the enclosing bodies if
    /// the stack is unavailable.
    #[cold]
    fn with_calls(&self, mut diagnostic: Diagnostic) -> Diagnostic {
        let calls = calls_to(diagnostic.location.as_ref()).unwrap_or_else(|| {
            let regions = self.builder.open_blocks().iter().rev().filter_map(|block| self.regions.get(block));
            let elsewhere = regions.filter(|region| diagnostic.location != Some(location(region.place)));
            let note = |region: &Region| Note {
                message: format!("in {}", region.what),
                location: Some(location(region.place)),
            };
            elsewhere.map(note).collect_vec()
        });
        if let Some((name, place)) = self.launched.as_ref().filter(|_| !calls.is_empty()) {
            diagnostic.notes.extend(calls);
            return diagnostic.note_at(format!("kernel `{name}` is traced for this call"), Some(location(place)));
        }
        diagnostic
    }

    /// Reports a problem and returns a poisoned value of type `ty`.
    pub fn fail(&mut self, place: Place, ty: Type, message: impl Into<String>, notes: &[&str]) -> ValueHandle {
        self.report(place, message, notes);
        self.poison(ty)
    }

    /// Returns a poisoned value of type `ty`, which is never part of a finished module.
    pub fn poison(&mut self, ty: Type) -> ValueHandle {
        let id = self.builder.module.intern(ty);
        let block = self.builder.module.add_block(&[id]);
        let value = self.builder.module.block(block).args[0];
        self.poisoned.insert(value);
        self.set_defining_block(&[value], block);
        self.raw(value)
    }

    /// Returns true for the result of a rejected operation. Its shape may be one that the user has
    /// not written.
    pub fn is_poisoned(&self, raw: ValueHandle) -> bool {
        raw.trace == self.id && self.poisoned.contains(&raw.value)
    }

    /// Returns the tile type of a handle; for a value of another trace, some tile type of its rank.
    pub fn type_of(&self, raw: ValueHandle) -> Type {
        match raw.trace == self.id {
            true => self.builder.module.ty(raw.value).clone(),
            false => Type::tile(DType::F32, vec![1; raw.rank.into()]),
        }
    }

    /// Returns the handle of a value of this trace.
    pub fn raw(&self, value: Value) -> ValueHandle {
        let rank = self.builder.module.ty(value).as_tile().map_or(0, |(_, shape)| shape.len());
        ValueHandle { value, trace: self.id, rank: rank as u8 }
    }

    /// Returns the extents; all 1 for a value of another trace.
    pub fn shape(&self, raw: ValueHandle) -> Vec<i64> {
        match raw.trace == self.id {
            true => self.builder.module.shape(raw.value).to_vec(),
            false => vec![1; raw.rank.into()],
        }
    }

    /// Returns the value of a handle if it is usable here. `None` is poison: the problem has been
    /// reported.
    pub fn check_usable(&mut self, raw: ValueHandle, place: Place) -> Option<Value> {
        if raw.trace != self.id {
            self.report(
                place,
                "this value belongs to another kernel trace",
                &["tiles and scalars exist only while their kernel is traced: do not keep them in statics or cells"],
            );
            return None;
        }
        if self.poisoned.contains(&raw.value) {
            return None;
        }
        let home = self.defining_blocks[raw.value.index()];
        if !self.builder.open_blocks().contains(&home) {
            self.report_escape(raw.value, home, place);
            return None;
        }
        Some(raw.value)
    }

    fn report_escape(&mut self, value: Value, home: BlockId, place: Place) {
        let Some(region) = self.regions.get(&home).copied() else {
            unreachable!("only the blocks of regions are closed while a kernel is traced")
        };
        let message = format!("this value belongs to {} and is used outside of it", region.what);
        let way_out = "return it from the closure: values leave a body only through its result";
        match self.builder.module.def(value) {
            Def::Result(..) => self.report_at_definition(place, message, value, way_out),
            Def::Arg(..) => {
                let start = Diagnostic::new(message, Some(location(place)));
                let start = start.note_at("it is an argument of this body", Some(location(region.place)));
                self.push(start.note(way_out));
            }
        }
    }

    /// Reports a problem together with the place where a value is computed.
    pub fn report_at_definition(&mut self, place: Place, message: String, value: Value, way_out: &str) {
        let module = &self.builder.module;
        let mut diagnostic = Diagnostic::new(message, Some(location(place)));
        if let Some(op) = module.defining_op(value) {
            diagnostic = diagnostic.note_at("it is computed here", module.location(module.op(op).loc).cloned());
        }
        self.push(diagnostic.note(way_out));
    }

    fn set_defining_block(&mut self, values: &[Value], block: BlockId) {
        for value in values {
            if self.defining_blocks.len() <= value.index() {
                self.defining_blocks.resize(value.index() + 1, block);
            }
            self.defining_blocks[value.index()] = block;
        }
    }

    /// Appends a parameter to the entry.
    pub fn param(&mut self, ty: Type) -> Value {
        let id = self.builder.module.intern(ty);
        let body = self.builder.open_blocks()[0];
        let value = self.builder.module.add_block_arg(body, id);
        self.set_defining_block(&[value], body);
        value
    }

    /// Returns true if this value is defined in the body of the entry, outside of all regions.
    pub fn is_outermost(&self, value: Value) -> bool {
        self.defining_blocks.get(value.index()) == self.builder.open_blocks().first()
    }

    /// Returns true if the innermost open block allows only operations on scalars without effects.
    pub fn is_scalar_only(&self) -> bool {
        self.regions.get(&self.builder.block()).is_some_and(|region| region.scalar_only)
    }

    /// Opens the block of a region and returns its arguments.
    pub fn open(&mut self, region: Region, arg_types: &[TypeId]) -> Vec<Value> {
        let block = self.builder.begin_block(arg_types);
        self.regions.insert(block, region);
        let args = self.builder.module.block(block).args.clone();
        self.set_defining_block(&args, block);
        args
    }

    /// Closes the innermost region.
    pub fn close(&mut self) -> BlockId {
        self.builder.end_block()
    }

    /// Registers the innermost block as the body of a loop.
    pub fn begin_loop(&mut self, block: BlockId, place: Place, carried: Vec<ValueHandle>) {
        self.loops.insert(block, Looping { place, carried, leaves: false });
    }

    /// Removes a loop whose body is closed. Returns true if the body leaves the loop early.
    pub fn end_loop(&mut self, block: BlockId) -> bool {
        self.loops.remove(&block).is_some_and(|looping| looping.leaves)
    }

    /// Returns the innermost open loop: its block, place, and initial state.
    pub fn innermost_loop(&self) -> Option<(BlockId, Place, &[ValueHandle])> {
        let open = self.builder.open_blocks().iter().rev();
        let mut loops = open.filter_map(|block| Some((*block, self.loops.get(block)?)));
        loops.next().map(|(block, looping)| (block, looping.place, looping.carried.as_slice()))
    }

    /// Returns true if this is the body of an open loop.
    pub fn is_open_loop(&self, block: BlockId) -> bool {
        self.loops.contains_key(&block)
    }

    /// Records that an op in the body of this loop leaves it.
    pub fn leave_loop(&mut self, block: BlockId) {
        if let Some(looping) = self.loops.get_mut(&block) {
            looping.leaves = true;
        }
    }

    /// Records that an op leaves all open loops.
    pub fn leave_all_loops(&mut self) {
        self.loops.values_mut().for_each(|looping| looping.leaves = true);
    }

    /// Counts the bodies that are nested inside of more than `most` others. Returns the count.
    pub fn nest_too_deeply(&mut self, most: usize) -> u32 {
        self.too_deep += u32::from(self.builder.open_blocks().len() > most);
        self.too_deep
    }

    /// Marks values (arguments of an open block) as poisoned.
    pub fn taint(&mut self, values: &[Value]) {
        self.poisoned.extend(values);
    }

    /// Closes blocks until fewer than `depth` are open, because of a panic in the body of block
    /// `depth`.
    fn abandon(&mut self, depth: usize) {
        while self.builder.open_blocks().len() >= depth {
            let block = self.close();
            if self.builder.open_blocks().len() + 1 == depth
                && let Some(Region { what, place, .. }) = self.regions.get(&block).copied()
            {
                let message =
                    format!("{what} panicked, and the kernel caught the panic: what it records is unfinished");
                self.report(place, message, &["let the panic leave the kernel: the launch passes it on"]);
            }
        }
    }

    /// Appends an op whose operands have been checked, and returns its results.
    pub fn emit(
        &mut self,
        code: Opcode,
        groups: &[&[Value]],
        attrs: Vec<Attr>,
        regions: Vec<BlockId>,
        results: &[TypeId],
    ) -> Vec<Value> {
        let op: OpId = self.builder.op(code, groups, attrs, regions, results);
        let values = self.builder.module.op(op).results.clone();
        self.set_defining_block(&values, self.builder.block());
        values
    }

    /// Records that the user wrote the op of this value, with these signs of operands and result.
    pub fn written(&mut self, value: Value, [from, to]: [Sign; 2]) {
        let module = &mut self.builder.module;
        if let Some(op) = module.defining_op(value).filter(|_| !is_part()) {
            module.written.push(Written { op, from, to });
        }
    }

    /// Marks the last recorded op as an assertion that each launch checks.
    pub fn require_last(&mut self) {
        let block = self.builder.block();
        let last = self.builder.module.block(block).ops.last().copied();
        self.builder.module.required.extend(last);
    }

    /// Appends an op with one operand per group and one tile as result.
    pub fn put(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, dtype: DType, shape: &[i64]) -> Value {
        let ty = self.builder.module.intern(Type::tile(dtype, shape));
        let groups: Vec<&[Value]> = operands.chunks(1).collect_vec();
        self.emit(code, &groups, attrs, Vec::new(), &[ty])[0]
    }

    /// Appends a constant with the same bits in every element.
    pub fn splat(&mut self, dtype: DType, bits: u64, shape: &[i64]) -> Value {
        let value = self.builder.splat(dtype, bits, shape);
        self.set_defining_block(&[value], self.builder.block());
        value
    }

    /// Appends an i32 constant from a host number.
    pub fn splat_extent(&mut self, place: Place, value: usize, shape: &[i64]) -> Value {
        if i32::try_from(value).is_err() {
            self.report(
                place,
                format!("the host value {value} does not fit the i32 that it is combined with"),
                &["compute in i64: `.cast::<i64>()`, and write the host value as i64"],
            );
        }
        self.splat(DType::I32, value as u32 as u64, shape)
    }

    /// Returns the value of an operand as a scalar, also of a tile of one element; `None` after a
    /// problem.
    pub fn scalar(&mut self, place: Place, source: Source, dtype: DType) -> Option<Value> {
        match source {
            Source::Value(raw) => {
                let value = self.check_usable(raw, place)?;
                let shape = self.shape(raw);
                if shape.iter().any(|&e| e != 1) {
                    let message = format!("a tile of shape {shape:?} where one value is wanted");
                    self.report(place, message, &["only a tile of one element converts to a scalar: reduce it first"]);
                    return None;
                }
                Some(if shape.is_empty() { value } else { self.put(Opcode::Reshape, &[value], vec![], dtype, &[]) })
            }
            Source::Literal(bits) => Some(self.splat(dtype, bits, &[])),
            Source::Extent(n) => Some(self.splat_extent(place, n, &[])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_traces_do_not_repeat_after_32_bits() {
        let started = || {
            let mut trace = Trace::new();
            trace.builder.begin_entry("kernel", &[]);
            let value = trace.splat(DType::I32, 1, &[]);
            (trace.raw(value), trace)
        };
        let (kept, first) = started();
        let (own, mut later) = started();
        later.id = first.id + (1 << 32);
        assert!(later.check_usable(kept, caller_location()).is_none());
        assert!(later.take_diagnostics()[0].message.contains("another kernel trace"));
        assert!(!own.is_same(kept));
    }
}
