//! The trace of this thread: what has been recorded, which regions are open, what was wrong.
//!
//! Everything here is untyped: a [`Raw`] is a recorded value, a [`Source`] an operand that may also be
//! a host literal. An operation that cannot be recorded leaves a [`Diagnostic`] and gives a *poisoned*
//! value of the type it would have had; what is computed from poison is poison too, silently, so that
//! only causes are reported. Knows no op's meaning.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU64, Ordering};

use rustc_hash::{FxHashMap, FxHashSet};

use super::array_info::ArrayData;
use super::user_backtrace::calls_to;
use crate::dtype::DType;
use crate::error::{Diagnostic, Location, Note};
use crate::ir::op_table::Effect;
use crate::ir::{
    Attr, BlockId, Builder, Def, MAX_EXTENT_PARTS, MAX_TILE_ELEMENTS, OpId, Opcode, Rounding, Sign, Type, TypeId,
    Value, Written,
};
use crate::task::{Scoped, may_interrupt};

/// The user's place, as `#[track_caller]` hands it down.
pub(crate) type Place = &'static std::panic::Location<'static>;

thread_local! {
    /// What [`here`] gives within [`at_place`].
    static FIXED: Cell<Option<Place>> = const { Cell::new(None) };
}

/// The place of the nearest caller that is not `#[track_caller]`.
#[track_caller]
pub(crate) fn here() -> Place {
    match FIXED.get() {
        Some(place) => place,
        None => std::panic::Location::caller(),
    }
}

/// Records what is put together of other operations at one place of the user's: closures do not know their callers.
/// User code must not run inside of `work`.
pub(crate) fn at_place<X>(place: Place, work: impl FnOnce() -> X) -> X {
    let _fixed = Scoped::set(&FIXED, Some(place));
    work()
}

/// Is this an operation of those that [`at_place`] puts together?
pub(crate) fn is_part() -> bool {
    FIXED.get().is_some()
}

fn location(place: Place) -> Location {
    Location { file: place.file().into(), line: place.line(), column: place.column() }
}

/// A value of a trace. (Public because sealed traits mention it; it cannot be named outside.)
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    value: Value,
    /// Serial number of the trace, so that a value kept from another one is noticed. 64 bits: a process never uses a
    /// number twice.
    trace: u64,
    pub(super) rank: u8,
}

/// Passed in two registers.
const _: () = assert!(size_of::<Raw>() == 16);

impl Raw {
    /// Is this the same value, not only an equal one?
    pub fn is_same(self, other: Raw) -> bool {
        (self.trace, self.value) == (other.trace, other.value)
    }
}

/// An operand: recorded, or a host value that becomes a constant of whatever shape is wanted.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// A recorded value.
    Value(Raw),
    /// Bits of the operand's element type.
    Literal(u64),
    /// A host extent or offset, for an i32 operand.
    Extent(usize),
}

/// What an open block is the body of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    /// In the user's words: ``the body of `fold` ``.
    pub what: &'static str,
    /// The call that it belongs to.
    pub place: Place,
    /// Takes only operations on scalars without effects (bodies of `reduce` and `map`)?
    pub scalar_only: bool,
}

/// A loop whose body is being recorded.
#[derive(Debug)]
struct Looping {
    place: Place,
    /// The values that it carries, as they were given to it.
    carried: Vec<Raw>,
    /// Does its body leave it before its end?
    leaves: bool,
}

/// The state of one kernel being traced.
#[derive(Debug)]
pub(crate) struct Trace {
    /// Where ops go.
    pub builder: Builder,
    /// Arrays declared or derived so far; [`super::Array`] holds a position.
    pub arrays: Vec<ArrayData>,
    /// The kernel, and the call that has it traced.
    pub(super) launched: Option<(String, Place)>,
    id: u64,
    /// The block that each value is defined in, by value index.
    homes: Vec<BlockId>,
    poisoned: FxHashSet<Value>,
    regions: FxHashMap<BlockId, Region>,
    /// The loops whose bodies are open, by the blocks of these.
    loops: FxHashMap<BlockId, Looping>,
    /// How often bodies were asked for that are nested too deeply.
    too_deep: u32,
    /// Extents in i64 that are known to fit i32.
    pub short_extents: FxHashSet<Value>,
    /// Extents in i64 of arrays of which some extent does not fit i32.
    pub long_extents: FxHashSet<Value>,
    /// What each launch checks not to be above a number: see `ops/support/i32_count.rs`.
    pub limited: FxHashSet<(Value, i64)>,
    /// Threads that the layouts of tiles are for, and the first of these.
    pub layout_threads: Option<(i64, Place)>,
    /// Rounding and flush to zero for float ops that state none.
    pub float_mode: Option<(Option<Rounding>, bool)>,
    diagnostics: Vec<Diagnostic>,
}

thread_local! {
    /// Owned by a [`Session`]. Without a destructor, so that kernels can be launched as long as the thread lives.
    static TRACE: Cell<Option<ManuallyDrop<Box<Trace>>>> = const { Cell::new(None) };
    /// Traces under way on this thread: that of [`TRACE`], and those that it interrupts. Apart from them,
    /// because every launch asks.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Most traces under way on one thread of a pool.
const MOST_TRACES: u32 = 32;

static NEXT_TRACE: AtomicU64 = AtomicU64::new(0);

/// Is a kernel being traced on this thread?
pub fn is_tracing() -> bool {
    DEPTH.get() > 0
}

/// Can a kernel be traced or launched here? Not inside of another kernel.
///
/// A thread of a rayon pool that waits for others (`rayon::join` in a kernel) runs tasks of the pool in the
/// meantime, which have nothing to do with the kernel that waits: there a trace interrupts another one.
pub(crate) fn can_launch() -> bool {
    match DEPTH.get() {
        0 => true,
        depth => depth < MOST_TRACES && may_interrupt(),
    }
}

/// The trace of this thread, taken from it while something is recorded.
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

/// Works on the trace of this thread. User code must not run inside of `work`. (Compiled for every operation and type in a
/// program: what is not `work` stands apart.)
///
/// # Panics
/// When no kernel is being traced.
#[track_caller]
pub(crate) fn record<X>(work: impl FnOnce(&mut Trace) -> X) -> X {
    let mut recording = Recording::start();
    work(recording.trace())
}

/// Runs a closure of the user's, which records into the innermost open block. If it panics that block is closed
/// again, so that a kernel which catches the panic goes on where the region began, and the launch says what
/// happened.
pub(crate) fn in_region<X>(closure: impl FnOnce() -> X) -> X {
    let unfinished = Unfinished::innermost();
    let result = closure();
    std::mem::forget(unfinished);
    result
}

/// A region whose closure runs; dropped only by a panic in it.
struct Unfinished {
    trace: u64,
    /// Open blocks, with its own.
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

/// The trace of this thread while it lasts; dropping it (also by a panic in the kernel) leaves the one that
/// it interrupted, if any.
pub(crate) struct Session {
    interrupted: Option<Box<Trace>>,
    /// Operations of this trace are no parts of an operation of the interrupted one.
    _own_places: Scoped<Option<Place>>,
}

impl Session {
    /// Starts a trace; `None` inside of a kernel, see [`can_launch`].
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
            homes: Vec::new(),
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

    /// The serial number of this trace.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Everything that was wrong, in order of discovery.
    pub fn take_diagnostics(&mut self) -> Vec<Diagnostic> {
        std::mem::take(&mut self.diagnostics)
    }

    /// Sets the place of the ops that follow.
    pub fn at(&mut self, place: Place) {
        self.builder.set_location(&location(place));
    }

    /// Reports a problem, once for each place and text.
    pub fn report(&mut self, place: Place, message: impl Into<String>, notes: &[&str]) {
        let start = Diagnostic::new(message, Some(location(place)));
        self.push(notes.iter().fold(start, |d, note| d.note(*note)));
    }

    /// Reports a problem together with other places.
    pub fn report_with(&mut self, place: Place, message: String, others: &[(Place, &str)], way_out: &str) {
        let start = Diagnostic::new(message, Some(location(place)));
        let with = others.iter().fold(start, |d, (place, note)| d.note_at(*note, Some(location(place))));
        self.push(with.note(way_out));
    }

    fn push(&mut self, diagnostic: Diagnostic) {
        // Those that were reported have the calls that led to them besides.
        let is_known = |known: &Diagnostic| {
            let (a, b) = (known, &diagnostic);
            a.location == b.location && a.message == b.message && a.notes.starts_with(&b.notes)
        };
        if !self.diagnostics.iter().any(is_known) {
            let diagnostic = self.with_calls(diagnostic);
            self.diagnostics.push(diagnostic);
        }
    }

    /// Adds the calls from the kernel to the function with the problem; where the stack does not tell them, the bodies
    /// that it lies in.
    #[cold]
    fn with_calls(&self, mut diagnostic: Diagnostic) -> Diagnostic {
        let calls = calls_to(diagnostic.location.as_ref()).unwrap_or_else(|| {
            let regions = self.builder.open_blocks().iter().rev().filter_map(|block| self.regions.get(block));
            let elsewhere = regions.filter(|region| diagnostic.location != Some(location(region.place)));
            let note = |region: &Region| Note {
                message: format!("in {}", region.what),
                location: Some(location(region.place)),
            };
            elsewhere.map(note).collect()
        });
        if let Some((name, place)) = self.launched.as_ref().filter(|_| !calls.is_empty()) {
            diagnostic.notes.extend(calls);
            return diagnostic.note_at(format!("kernel `{name}` is traced for this call"), Some(location(place)));
        }
        diagnostic
    }

    /// Reports a problem and gives a poisoned value of type `ty`.
    pub fn fail(&mut self, place: Place, ty: Type, message: impl Into<String>, notes: &[&str]) -> Raw {
        self.report(place, message, notes);
        self.poison(ty)
    }

    /// A poisoned value of type `ty`; never part of a finished module.
    pub fn poison(&mut self, ty: Type) -> Raw {
        let id = self.builder.module.intern(ty);
        let block = self.builder.module.add_block(&[id]);
        let value = self.builder.module.block(block).args[0];
        self.poisoned.insert(value);
        self.settle(&[value], block);
        self.raw(value)
    }

    /// Is this what a refused operation gave? Its shape may be one that the user has not written.
    pub fn is_poisoned(&self, raw: Raw) -> bool {
        raw.trace == self.id && self.poisoned.contains(&raw.value)
    }

    /// The tile type behind a handle; of a value of another trace, some tile of its rank.
    pub fn type_of(&self, raw: Raw) -> Type {
        match raw.trace == self.id {
            true => self.builder.module.ty(raw.value).clone(),
            false => Type::tile(DType::F32, vec![1; raw.rank.into()]),
        }
    }

    /// The handle of a value of this trace.
    pub fn raw(&self, value: Value) -> Raw {
        let rank = self.builder.module.ty(value).as_tile().map_or(0, |(_, shape)| shape.len());
        Raw { value, trace: self.id, rank: rank as u8 }
    }

    /// The extents; all 1 for a value of another trace.
    pub fn shape(&self, raw: Raw) -> Vec<i64> {
        match raw.trace == self.id {
            true => self.builder.module.shape(raw.value).to_vec(),
            false => vec![1; raw.rank.into()],
        }
    }

    /// The value behind a handle if it can be used here. `None` is poison: there was a problem, and it
    /// has been reported.
    pub fn usable(&mut self, raw: Raw, place: Place) -> Option<Value> {
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
        let home = self.homes[raw.value.index()];
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

    fn settle(&mut self, values: &[Value], block: BlockId) {
        for value in values {
            if self.homes.len() <= value.index() {
                self.homes.resize(value.index() + 1, block);
            }
            self.homes[value.index()] = block;
        }
    }

    /// One more parameter of the entry.
    pub fn param(&mut self, ty: Type) -> Value {
        let id = self.builder.module.intern(ty);
        let body = self.builder.open_blocks()[0];
        let value = self.builder.module.add_block_arg(body, id);
        self.settle(&[value], body);
        value
    }

    /// Is this value defined in the body of the entry, outside of all regions?
    pub fn is_outermost(&self, value: Value) -> bool {
        self.homes.get(value.index()) == self.builder.open_blocks().first()
    }

    /// Does the innermost open block take only operations on scalars without effects?
    pub fn is_scalar_only(&self) -> bool {
        self.regions.get(&self.builder.block()).is_some_and(|region| region.scalar_only)
    }

    /// Opens the block of a region; gives its arguments.
    pub fn open(&mut self, region: Region, arg_types: &[TypeId]) -> Vec<Value> {
        let block = self.builder.begin_block(arg_types);
        self.regions.insert(block, region);
        let args = self.builder.module.block(block).args.clone();
        self.settle(&args, block);
        args
    }

    /// Closes the innermost region.
    pub fn close(&mut self) -> BlockId {
        self.builder.end_block()
    }

    /// The innermost block is the body of a loop.
    pub fn begin_loop(&mut self, block: BlockId, place: Place, carried: Vec<Raw>) {
        self.loops.insert(block, Looping { place, carried, leaves: false });
    }

    /// The body of a loop is closed. Does it leave the loop early?
    pub fn end_loop(&mut self, block: BlockId) -> bool {
        self.loops.remove(&block).is_some_and(|looping| looping.leaves)
    }

    /// The innermost loop that is open: its block, its place, and what it carries.
    pub fn innermost_loop(&self) -> Option<(BlockId, Place, &[Raw])> {
        let open = self.builder.open_blocks().iter().rev();
        let mut loops = open.filter_map(|block| Some((*block, self.loops.get(block)?)));
        loops.next().map(|(block, looping)| (block, looping.place, looping.carried.as_slice()))
    }

    /// Is this the body of a loop that is open?
    pub fn is_open_loop(&self, block: BlockId) -> bool {
        self.loops.contains_key(&block)
    }

    /// Something in the body of this loop leaves it.
    pub fn leave_loop(&mut self, block: BlockId) {
        if let Some(looping) = self.loops.get_mut(&block) {
            looping.leaves = true;
        }
    }

    /// Something leaves all loops that are open.
    pub fn leave_all_loops(&mut self) {
        self.loops.values_mut().for_each(|looping| looping.leaves = true);
    }

    /// Counts how often a body is asked for inside of more than `most` others.
    pub fn nest_too_deeply(&mut self, most: usize) -> u32 {
        self.too_deep += u32::from(self.builder.open_blocks().len() > most);
        self.too_deep
    }

    /// Marks values (arguments of an open block) as poisoned.
    pub fn taint(&mut self, values: &[Value]) {
        self.poisoned.extend(values);
    }

    /// Closes blocks until there are fewer than `depth`, because of a panic in the body of the last one of these.
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

    /// Appends an op whose operands have been checked.
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
        self.settle(&values, self.builder.block());
        values
    }

    /// The op of this value is one that the user wrote, which reads operands and result like this.
    pub fn written(&mut self, value: Value, [from, to]: [Sign; 2]) {
        let module = &mut self.builder.module;
        if let Some(op) = module.defining_op(value).filter(|_| !is_part()) {
            module.written.push(Written { op, from, to });
        }
    }

    /// The op that was recorded last is an assertion that each launch checks.
    pub fn require_last(&mut self) {
        let block = self.builder.block();
        let last = self.builder.module.block(block).ops.last().copied();
        self.builder.module.required.extend(last);
    }

    /// Appends an op with one operand in each group and one tile as result.
    pub fn put(&mut self, code: Opcode, operands: &[Value], attrs: Vec<Attr>, dtype: DType, shape: &[i64]) -> Value {
        let ty = self.builder.module.intern(Type::tile(dtype, shape));
        let groups: Vec<&[Value]> = operands.chunks(1).collect();
        self.emit(code, &groups, attrs, Vec::new(), &[ty])[0]
    }

    /// Appends a constant with the same bits in every element.
    pub fn splat(&mut self, dtype: DType, bits: u64, shape: &[i64]) -> Value {
        let value = self.builder.splat(dtype, bits, shape);
        self.settle(&[value], self.builder.block());
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

    /// The value of an operand as a scalar, also that of a tile of one element; `None` after a problem.
    pub fn scalar(&mut self, place: Place, source: Source, dtype: DType) -> Option<Value> {
        match source {
            Source::Value(raw) => {
                let value = self.usable(raw, place)?;
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

    /// Is an op with this effect and result rank allowed in the innermost region? Reports if not.
    pub fn admits(&mut self, place: Place, effect: Effect, rank: usize) -> bool {
        let Some(region) = self.regions.get(&self.builder.block()).copied() else { return true };
        if !region.scalar_only || (effect == Effect::Pure && rank == 0) {
            return true;
        }
        let problem = match effect {
            Effect::Pure => "works on tiles",
            Effect::Region => "has control flow or a reduction of its own",
            Effect::Other => "is seen outside of the kernel",
            _ => "reads or writes memory",
        };
        self.report(
            place,
            format!("{} takes only elementwise operations on scalars, and this operation {problem}", region.what),
            &["compute it before, outside of the closure"],
        );
        false
    }

    /// Is the extent of an axis a power of two? Reports if not: for what goes by the bits of a position.
    pub fn power_along(&mut self, place: Place, name: &str, shape: &[i64], axis: usize) -> bool {
        let power = shape[axis].count_ones() == 1;
        if !power {
            let message = format!("`{name}` along axis {axis} of a tile of shape {shape:?}");
            let way_out = format!(
                "the extent there has to be a power of two: make it {} by a larger tile or `ct::cat`",
                (shape[axis] as u64).next_power_of_two()
            );
            self.report(place, message, &[&way_out]);
        }
        power
    }

    /// Is this a legal tile shape? Reports and gives false if not.
    pub fn legal_shape(&mut self, place: Place, name: &str, shape: &[i64]) -> bool {
        if let Some(axis) = shape.iter().position(|&e| e <= 0 || e.count_ones() > MAX_EXTENT_PARTS) {
            let extent = shape[axis];
            let way_out = match extent {
                ..=0 => "every extent of a tile is at least 1".to_string(),
                _ => format!(
                    "extents of tiles are sums of at most three powers of two: take {} and let loads pad (stores drop what \
                     lies outside), or {} and more tiles",
                    next_extent(extent),
                    last_extent(extent)
                ),
            };
            self.report(
                place,
                format!("`{name}`: extent {extent} of axis {axis} in tile shape {shape:?}"),
                &[&way_out],
            );
            return false;
        }
        let count = shape.iter().try_fold(1u64, |n, &e| n.checked_mul(e as u64)).unwrap_or(u64::MAX);
        if count > MAX_TILE_ELEMENTS {
            self.report(
                place,
                format!("`{name}`: tile shape {shape:?} has more than {MAX_TILE_ELEMENTS} (2^24) elements"),
                &["take a smaller tile and more tile blocks, or loop over tiles"],
            );
            return false;
        }
        true
    }
}

/// The smallest extent of a tile that is larger.
fn next_extent(extent: i64) -> i64 {
    // Beyond the first bits, any bit that is set rounds up.
    let mut rest = extent;
    for _ in 1..MAX_EXTENT_PARTS {
        rest &= !(1 << rest.ilog2());
    }
    let last = 1 << rest.ilog2();
    (extent & !(2 * last - 1)) + 2 * last
}

/// The largest extent of a tile that is smaller.
fn last_extent(extent: i64) -> i64 {
    let mut kept = 0;
    for _ in 0..MAX_EXTENT_PARTS {
        kept |= 1 << (extent & !kept).ilog2();
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_traces_do_not_come_again_after_32_bits() {
        let started = || {
            let mut trace = Trace::new();
            trace.builder.begin_entry("kernel", &[]);
            let value = trace.splat(DType::I32, 1, &[]);
            (trace.raw(value), trace)
        };
        let (kept, first) = started();
        let (own, mut later) = started();
        later.id = first.id + (1 << 32);
        assert!(later.usable(kept, here()).is_none());
        assert!(later.take_diagnostics()[0].message.contains("another kernel trace"));
        assert!(!own.is_same(kept));
    }
}
