//! Lowering: ops on whole tiles become instructions of one thread.
//!
//! [`Lowering`] walks the entry in program order. A tile value is a list of operands, one for each
//! register slot of its layout (`value`); ops are lowered family by family:
//!
//! * `value` — materialising a value in the layout a user asks for;
//! * `elementwise` — one scalar instruction sequence a slot;
//! * `view`, `place`, `listed`, `memory`, `shifted`, `vector` — array descriptions, where tiles lie, addresses, masks, wide
//!   accesses;
//! * `history` — which accesses need a barrier between them;
//! * `pointer`, `atomic`, `atomic_half`, `private`, `certain` — accesses by pointers; atomics; atomics combined in shared
//!   memory; masks that hold for all elements of a thread;
//! * `order` — accesses that other tile blocks see in order;
//! * `strip`, `run` — long elementwise runs piece by piece, and where they are;
//! * `convert` — layout changes through registers, shuffles or shared memory;
//! * `own` — memory of the tile block's own;
//! * `pieces`, `repack` — tiles put together and taken apart; elements packed into bytes;
//! * `lookup` — elements by their positions; counts of numbers;
//! * `reduce`, `scan`, `scan_warps` — within a thread, across lanes, across warps;
//! * `product`, `bundle` — matrix products; those that are issued together;
//! * `tensor_map`, `box_store` — views that the bulk copy engine can move; stores that it does;
//! * `limit` — how much code, and how many registers, are too much;
//! * `control`, `rounds`, `pipeline` — loops and branches; rounds in a row; copies that run ahead of a loop;
//! * `neighbour` — tiles that lie side by side;
//! * `roles`, `slice`, `ring` — warps that only load, for warps that only compute (sm_90a);
//! * `cluster`, `differing` — pairs of tile blocks that share such loads.
//!
//! Scalars (rank 0) are computed by every thread and are the same in all of them, so branches on them
//! are uniform and barriers inside loops are safe.

mod assert;
mod atomic;
mod atomic_half;
mod box_store;
mod bundle;
mod certain;
mod cluster;
mod control;
mod convert;
mod differing;
mod elementwise;
mod exits;
mod hint;
mod history;
mod limit;
mod listed;
mod lookup;
mod memory;
mod neighbour;
mod order;
mod own;
mod pieces;
mod pipeline;
mod place;
mod pointer;
mod print;
mod private;
mod product;
mod reduce;
mod repack;
mod ring;
mod roles;
mod rounds;
mod run;
mod scan;
mod scan_warps;
mod shifted;
mod slice;
mod strip;
#[allow(dead_code)] // used by the stores and pipelines that move boxes
mod tensor_map;
mod thread;
mod value;
mod vector;
mod view;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::assertion::Assertion;
use super::builder::Builder;
use super::emit::{self, Function, Param};
use super::infer::Inference;
use super::inst::{Operand, ProxyFence, RegClass, Space, Ty};
use super::remarks::CodeRemarks;
use super::shared::{Buffer, SharedMemory};
use super::source::SourceLines;
use super::tensor_map::TensorMap;
use super::{CompileOptions, Compiled, ParamKind};
use super::{pressure, whole_product};
use crate::error::Diagnostic;
use crate::ir::{Attr, AttrKind, BlockId, ConstData, Elem, Entry, Global, Module, Op, OpId, Opcode, Type, Value};
use crate::layout::Layout;
use crate::pass::{Bundles, Facts};
use crate::target::Target;

/// Why an op could not be lowered: a sentence; the place is added by the caller.
pub type Lowered<T = ()> = Result<T, String>;

/// The registers of a tile: one operand for each register slot of the layout.
#[derive(Clone, Debug)]
pub struct Tile {
    /// Where the elements are.
    pub layout: Layout,
    /// One operand a slot.
    pub slots: Rc<[Operand]>,
}

/// State of the lowering of one entry.
pub struct Lowering<'m> {
    module: &'m Module,
    inference: Inference<'m>,
    b: Builder,
    /// Concrete values, by value index.
    tiles: Vec<Option<Tile>>,
    /// Values in further layouts; cut back when the region that made them ends.
    cached: value::Cache,
    views: HashMap<Value, Rc<view::TensorView>>,
    shared: SharedMemory,
    memory: history::History,
    /// Memory of the block's own, and where data is in this kernel.
    own: HashMap<OpId, Buffer>,
    data_space: Space,
    /// The array whose atomics the block combines first.
    private: Option<private::Private>,
    /// Ops that are lowered where they are used.
    deferred: HashSet<OpId>,
    loops: Vec<control::Frame>,
    /// Loads whose tile is in a stage of shared memory, by address.
    staged: HashMap<Value, Operand>,
    /// Loads whose elements their threads have in a stage.
    own_tiles: HashMap<OpId, pipeline::OwnTile>,
    /// Products that are issued together.
    bundles: Bundles,
    /// Products that may still be running, in the order in which they were issued.
    in_flight: Vec<ring::Flight>,
    /// Who is being lowered.
    role: ring::Role,
    /// Streamed loads, if there are any.
    rings: Option<ring::Rings>,
    /// The other tile block of a pair.
    peer: cluster::Peer,
    options: CompileOptions,
    facts: Rc<Facts>,
    /// Stores that the bulk copy engine does.
    box_stores: HashMap<OpId, box_store::BoxStore>,
    /// Arrays that may have been stored to by it.
    boxes_stored: HashSet<Value>,
    /// Tensor maps that the kernel takes, and their parameters.
    tensor_maps: Vec<(TensorMap, Operand)>,
    thread: thread::ThreadCache,
    /// The parameter that names the note of a failed assertion, in a kernel that has some, and these so far.
    failure: Option<Operand>,
    assertions: Vec<Assertion>,
    use_counts: Vec<u32>,
    /// The block that each op stands in.
    op_blocks: Vec<Option<BlockId>>,
    errors: Vec<Diagnostic>,
    /// There is too much code: no more is made. And that has been said.
    gave_up: bool,
    gave_up_said: bool,
    remarks: CodeRemarks,
}

/// The state before the first op.
fn start<'m>(
    module: &'m Module,
    entry: &Entry,
    inference: Inference<'m>,
    name: &str,
    options: &CompileOptions,
) -> Lowering<'m> {
    let target = inference.target;
    let threads = inference.num_warps as u32 * super::plan::WARP;
    Lowering {
        module,
        b: Builder::new(target, name, threads),
        tiles: vec![None; module.num_values()],
        cached: value::Cache::default(),
        views: HashMap::new(),
        shared: SharedMemory::new(target.max_shared_bytes()),
        memory: history::History::of(module, entry.body),
        own: HashMap::new(),
        data_space: Space::Global,
        private: None,
        deferred: HashSet::new(),
        loops: Vec::new(),
        staged: HashMap::new(),
        own_tiles: HashMap::new(),
        bundles: Bundles::of(module, entry.body, &|id| inference.runs_alone(id)),
        in_flight: Vec::new(),
        role: ring::Role::All,
        rings: None,
        peer: cluster::Peer::default(),
        options: *options,
        facts: Rc::clone(&inference.facts),
        box_stores: HashMap::new(),
        boxes_stored: HashSet::new(),
        tensor_maps: Vec::new(),
        thread: thread::ThreadCache::default(),
        failure: None,
        assertions: Vec::new(),
        use_counts: use_counts(module, entry.body),
        op_blocks: op_blocks(module, entry.body),
        errors: Vec::new(),
        gave_up: false,
        gave_up_said: false,
        remarks: CodeRemarks::default(),
        inference,
    }
}

/// Lowers an entry; the errors name every op that has no lowering.
pub fn lower<'m>(
    module: &'m Module,
    entry: &Entry,
    inference: Inference<'m>,
    name: &str,
    options: &CompileOptions,
) -> Result<Compiled, Vec<Diagnostic>> {
    let target = inference.target;
    let mut lowering = start(module, entry, inference, name, options);
    lowering.options.occupancy = lowering.possible_occupancy();
    lowering.b.come_from(entry.loc.0);
    let mut params = lowering.params(entry);
    lowering.reserve_own(entry.body);
    lowering.start_box_stores(entry.body);
    let roles = lowering.plan_roles_within_wish(entry.body);
    // Without a number of blocks, ptxas may save registers for more of them than is good.
    let blocks = lowering.options.occupancy.unwrap_or(1);
    lowering.b.function().min_blocks = Some(blocks);
    match roles {
        Some(roles) => {
            if let Err(message) = lowering.with_roles(entry.body, roles) {
                lowering.errors.push(Diagnostic::new(message, None));
            }
        }
        None => {
            lowering.place_box_stores(None);
            if let Err(message) = lowering.start_private(entry.body) {
                lowering.errors.push(Diagnostic::new(message, None));
            }
            lowering.block(entry.body);
        }
    }
    if !lowering.errors.is_empty() {
        return Err(lowering.errors);
    }
    params.extend(lowering.tensor_maps.drain(..).map(|(map, _)| ParamKind::TensorMap(map)));
    let layout = lowering.layout_text(entry.body);
    let (shared_bytes, cluster) = (lowering.shared.used(), lowering.cluster());
    let assertions = lowering.assertions;
    let (mut remarks, warps) = (lowering.remarks, lowering.inference.num_warps as u32);
    let multiplies = !lowering.inference.products.is_empty();
    let generic = lowering.data_space == Space::Generic;
    let (streams, lowered_wish) = (lowering.rings.is_some(), lowering.options.occupancy);
    let mut function: Function = lowering.b.finish();
    whole_product::merge(&mut function);
    // Products plan their registers themselves: for one block.
    if !multiplies && options.occupancy.is_none() {
        // ptxas keeps generic addresses in more registers than there are in the text.
        let spare = if generic { GENERIC_SPARE } else { 0 };
        function.min_blocks = Some(pressure::fitting_blocks(&function, target, shared_bytes, spare));
    }
    if !streams && let Some(wished) = lowered_wish {
        function.min_blocks = Some(without_thrashing(&function, wished, target, warps));
    }
    let min_blocks = function.min_blocks.unwrap_or(1);
    remarks.crowded = options.occupancy.filter(|&wished| wished > min_blocks).map(|wished| [wished, min_blocks]);
    remarks.finish(&function, warps);
    let threads = function.threads;
    if options.lines {
        function.source = Some(SourceLines::of(module, function.places()));
    }
    let text = emit::module(target, &globals(module), &[function]);
    Ok(Compiled {
        text,
        entry: name.to_owned(),
        threads,
        min_blocks,
        shared_bytes,
        cluster,
        params,
        assertions,
        layout,
        remarks,
    })
}

/// Registers that a kernel with generic addresses gets beyond those that it needs.
const GENERIC_SPARE: u32 = 16;

/// Blocks that are wished for, but not so many that a thread gets less than most of the registers that it needs.
fn without_thrashing(function: &Function, wished: u32, target: Target, warps: u32) -> u32 {
    let needed = pressure::live_registers(function) * 3 / 4;
    wished.min(target.multiprocessor().fitting_blocks(warps, needed, 0).max(1))
}

/// The globals of a module as bytes.
fn globals(module: &Module) -> Vec<emit::GlobalArray> {
    let one = |global: &Global| {
        let ty = module.type_of(global.ty);
        let (count, bytes) = (ty.shape().iter().product::<i64>() as usize, ty.dtype().storage_bits().div_ceil(8));
        let words: Vec<u64> = match &global.value {
            ConstData::Splat(word) => vec![*word; count],
            ConstData::Dense(words) => words.to_vec(),
        };
        let bytes_of = |word: u64| word.to_le_bytes().into_iter().take(bytes as usize);
        let align = u32::try_from(global.alignment).unwrap_or(1).max(bytes);
        emit::GlobalArray { align, bytes: words.into_iter().flat_map(bytes_of).collect() }
    };
    module.globals.iter().map(one).collect()
}

fn use_counts(module: &Module, body: BlockId) -> Vec<u32> {
    let mut counts = vec![0; module.num_values()];
    module.walk(body, &mut |op| {
        for operand in &module.op(op).operands {
            counts[operand.index()] += 1;
        }
    });
    counts
}

fn op_blocks(module: &Module, body: BlockId) -> Vec<Option<BlockId>> {
    let mut blocks = vec![None; module.num_ops()];
    let mut pending = vec![body];
    while let Some(block) = pending.pop() {
        for &op in &module.block(block).ops {
            blocks[op.index()] = Some(block);
            pending.extend(&module.op(op).regions);
        }
    }
    blocks
}

impl<'m> Lowering<'m> {
    /// The wish for blocks that share a multiprocessor, as far as their warps and the registers of products allow it:
    /// with fewer, the assembler refuses products that run on their own, or spills most of what there is.
    fn possible_occupancy(&self) -> Option<u32> {
        let inference = &self.inference;
        let registers = inference.products.keys().map(|&id| {
            let operands = &self.module.op(id).operands[..2];
            let computed = operands.iter().filter(|&&operand| self.load_behind(operand).is_none());
            let words = computed.map(|&operand| inference.words_of(operand)).sum::<u32>();
            let behind = super::plan::products_behind(self.module, operands);
            self.accumulators(id) + words + self.accumulators_of(&behind) + ring::SPARE_REGISTERS
        });
        let registers = registers.max().unwrap_or(0);
        let most = inference.target.multiprocessor().fitting_blocks(inference.num_warps as u32, registers, 0);
        self.options.occupancy.map(|wished| wished.clamp(1, most.max(1)))
    }

    /// Declares the entry parameters and loads them.
    fn params(&mut self, entry: &Entry) -> Vec<ParamKind> {
        let args = &self.module.block(entry.body).args;
        let layout = Layout::replicated(&[], self.inference.num_warps);
        let mut kinds = Vec::new();
        for (index, &arg) in args.iter().enumerate() {
            let Type::Tile { elem, .. } = self.module.ty(arg) else { continue };
            let (value, bytes) = match elem {
                Elem::Ptr { .. } => (self.b.param_value(Ty::U64), 8),
                Elem::Num(dtype) => {
                    let (raw, bytes) = vector::param(&mut self.b, *dtype);
                    (raw, bytes)
                }
            };
            kinds.push(ParamKind::Word { index: index as u32, bytes });
            self.tiles[arg.index()] = Some(Tile { layout: layout.clone(), slots: Rc::from([value]) });
        }
        let mut asserts = false;
        self.module.walk(entry.body, &mut |id| asserts |= self.module.op(id).code == Opcode::Assert);
        if asserts {
            self.failure = Some(self.b.param(Param::Scalar(Ty::U64)));
            kinds.push(ParamKind::Failure);
        }
        kinds
    }

    /// Lowers the ops of a block in order; a failed one is reported and skipped.
    fn block(&mut self, block: BlockId) {
        let module = self.module;
        let ops = &module.block(block).ops;
        if self.role == ring::Role::Producer {
            for &id in ops.iter().filter(|&&id| self.producer_runs(id)).collect::<Vec<_>>() {
                if let Err(message) = self.op(id).and_then(|()| self.mirror(id)) {
                    self.report(id, message);
                }
            }
            return;
        }
        let mut strips = self.strips(ops);
        let mut next = 0;
        while next < ops.len() {
            if let Some(strip) = strips.at(next) {
                if let Err(message) = self.strip(&strip) {
                    self.report(strip.ops[0], message);
                    let results = strip.ops.iter().flat_map(|&id| &module.op(id).results);
                    results.for_each(|&result| self.poison(result));
                }
                next += strip.ops.len();
                continue;
            }
            if let Err(message) = self.op(ops[next]) {
                self.report(ops[next], message);
            }
            self.after_op(ops[next]);
            next += 1;
        }
    }

    fn report(&mut self, id: OpId, message: String) {
        let op = self.module.op(id);
        // That there is too much code is said once, of the op that it came to; all others fail, too.
        if !(self.gave_up && std::mem::replace(&mut self.gave_up_said, true)) {
            let message = format!("{message} (op `{}`, target {})", op.code.spec().name, self.b.target);
            self.errors.push(Diagnostic::new(message, self.module.location(op.loc).cloned()));
        }
        for &result in &op.results {
            self.poison(result);
        }
    }

    /// Gives a failed op's result some value, so that the rest can be checked too.
    fn poison(&mut self, value: Value) {
        if matches!(self.module.ty(value), Type::Tile { .. }) && self.tiles[value.index()].is_none() {
            let layout = self.inference.layout(value).cloned();
            let layout = layout.unwrap_or_else(|| self.inference.default_layout(value));
            let slots = vec![Operand::Imm(0); layout.num_registers()].into();
            self.tiles[value.index()] = Some(Tile { layout, slots });
        }
    }

    fn op(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        if !matches!(op.code, Opcode::Break | Opcode::Continue | Opcode::Yield | Opcode::Return) {
            self.check_length(op)?;
            self.check_registers(id)?;
        }
        self.for_op(id, |lowering| lowering.lower_op(id))
    }

    /// What `work` emits comes from the place of this op.
    fn for_op<T>(&mut self, id: OpId, work: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.b.come_from(self.module.op(id).loc.0);
        let result = work(self);
        self.b.come_from(before);
        result
    }

    fn lower_op(&mut self, id: OpId) -> Lowered {
        let op = self.module.op(id);
        use Opcode::*;
        match op.code {
            _ if self.deferred.contains(&id) => Ok(()),
            FToF if self.is_fetched(op.results[0]) => Ok(()),
            // Elementwise ops, and the free and virtual ones, which are computed where they are used.
            AbsF | AbsI | AddF | AddI | AndI | Bitcast | Ceil | CmpF | CmpI | Cos | Cosh | DivF | DivI | Exp | Exp2
            | ExtI | Floor | Fma | FToF | FToI | IntToPtr | IToF | Log | Log2 | MaxF | MaxI | MinF | MinI | MulF
            | MulHiI | MulI | NegF | NegI | Offset | OrI | PowF | PowI | PtrToInt | PtrToPtr | RemF | RemI | Rsqrt
            | Select | ShlI | ShrI | Sin | Sinh | Sqrt | SubF | SubI | Tan | Tanh | TruncI | XorI | Atan2
            | InlinePtx => self.elementwise(id),
            Constant | Iota | Assume | Broadcast | Reshape | Permute => Ok(()),
            GetTileBlockId | GetNumTileBlocks => self.grid(op),
            GetTensorShape | GetIndexSpaceShape => self.view_shape(op),
            MakeTensorView => self.make_tensor_view(id),
            MakePartitionView | MakeStridedView | MakeGatherScatterView => self.alias_view(op),
            LoadView if self.is_streamed(id) => self.streamed_load(id),
            LoadView if self.staged.contains_key(&op.results[0]) => Ok(()),
            LoadView if self.is_own(id) => self.load_own(id),
            LoadView => self.load_view(id),
            StoreView => self.store_view(id),
            LoadPtr => self.load_ptr(id),
            StorePtr => self.store_ptr(id),
            AtomicRmw => self.atomic_rmw(id),
            AtomicCas => self.atomic_cas(id),
            AtomicRedView => self.atomic_red_view(id),
            MakeToken | JoinTokens => Ok(()),
            MmaF | MmaI => self.product(id),
            Reduce => self.reduce(id),
            Scan => self.scan(id),
            Cat => self.cat(id),
            Pack | Unpack => self.repack(id),
            Extract => self.extract(id),
            Insert => self.insert(id),
            Gather => self.gather_tile(id),
            Histogram => self.histogram(id),
            For => self.for_loop(id),
            Loop => self.endless_loop(id),
            If => self.branches(id),
            Break | Continue | Yield | Return => self.terminator(id),
            Print => self.print(id),
            GdcWait | GdcLaunchDependents => {
                self.dependent_launch(op.code);
                Ok(())
            }
            MemoryFenceAlias => {
                // Whatever thread goes on behind the barrier, the accesses of all have passed their fences.
                self.b.fence_proxy(ProxyFence::Alias);
                self.barrier();
                Ok(())
            }
            Assert => self.assertion(id),
            GetGlobal => self.global(op),
            Alloca => self.own_memory(id),
            MmaFScaled | MultimemLoadReduce | MultimemReduce | MultimemStore => {
                Err("the ptx back end has no lowering for this op".to_owned())
            }
        }
    }

    /// `griddepcontrol`, from sm_90 on.
    fn dependent_launch(&mut self, code: Opcode) {
        match code {
            _ if self.b.target.arch < 90 => {}
            Opcode::GdcWait => self.b.grid_dependency_wait(),
            _ => {
                // Dependents may see what was stored before only once this grid has ended: nothing else to wait for.
                self.b.grid_dependency_launch();
            }
        }
    }

    /// Shared memory for stages, so that as many blocks as wished fit on a multiprocessor.
    fn room_for_stages(&self) -> u32 {
        // Each block takes a kilobyte more than it sees.
        const RESERVED: u32 = 1 << 10;
        let most = self.inference.target.max_shared_bytes();
        let each = (most + RESERVED) / self.options.occupancy.unwrap_or(1).max(1) - RESERVED;
        let free = self.shared.free();
        free.min(each.saturating_sub(self.shared.budget() - free))
    }

    /// A barrier over the tile block, and what it settles.
    fn barrier(&mut self) {
        self.settle();
        if self.shared.bulk_wait_wanted() {
            self.b.bulk_wait(0, true);
        }
        match self.role {
            ring::Role::Consumer => {
                let consumers = self.inference.num_warps as u32 * super::plan::WARP;
                self.b.bar_sync(ring::CONSUMER_BARRIER, Some(consumers));
            }
            ring::Role::All | ring::Role::Producer => self.b.bar_sync(0, None),
        }
        self.shared.barrier();
        self.memory.barrier();
    }

    fn single(&mut self, value: Value, operand: Operand) {
        let layout = Layout::replicated(self.module.shape(value), self.inference.num_warps);
        self.tiles[value.index()] = Some(Tile { layout, slots: Rc::from([operand]) });
    }

    /// `get_global`: its address.
    fn global(&mut self, op: &Op) -> Lowered {
        let Some(Attr::Text(name)) = op.attr(AttrKind::Text) else { return Err("a global without a name".to_owned()) };
        let mut globals = self.module.globals.iter();
        let Some(index) = globals.position(|global| *global.name == **name) else {
            return Err(format!("there is no global `{name}`"));
        };
        if self.module.type_of(self.module.globals[index].ty).dtype().storage_bits() < 8 {
            return Err("a global of elements that share a byte".to_owned());
        }
        let address = self.b.copy(Operand::Global(index as u32), RegClass::B64);
        self.single(op.results[0], address.into());
        Ok(())
    }

    fn grid(&mut self, op: &Op) -> Lowered {
        use super::inst::Special::*;
        let registers = match op.code {
            Opcode::GetTileBlockId => [CtaIdX, CtaIdY, CtaIdZ],
            _ => [NCtaIdX, NCtaIdY, NCtaIdZ],
        };
        for (&result, special) in op.results.iter().zip(registers) {
            if self.use_counts[result.index()] > 0 {
                let mut value = self.b.special(special);
                if special == CtaIdX && self.peer.active {
                    value = self.b.xor(Ty::B32, value, 1u32);
                }
                self.single(result, value);
            }
        }
        Ok(())
    }

    /// The layouts of the kernel, for people: one line a value, in program order.
    fn layout_text(&self, body: BlockId) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        let module = self.module;
        module.walk(body, &mut |id| {
            let op = module.op(id);
            for &result in &op.results {
                let Some(layout) = self.inference.layout(result) else { continue };
                if layout.num_elements() > 1 {
                    let place = module.location(op.loc).map(|l| l.to_string()).unwrap_or_default();
                    let _ = writeln!(
                        text,
                        "%{} = {} {:?} register {:?} lane {:?} warp {:?}  // {place}",
                        result.index(),
                        op.code.spec().name,
                        layout.shape(),
                        layout.register_images(),
                        layout.lane_images(),
                        layout.warp_images()
                    );
                }
            }
        });
        text
    }
}
