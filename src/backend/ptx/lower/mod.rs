//! Lowering: ops on whole tiles become instructions of one thread.
//!
//! [`Lowering`] walks the schedule of the entry (`step`). A tile value is a list of operands, one for each
//! register slot of its layout (`value`); ops are lowered family by family:
//!
//! * `planned` — the schedule, and what it is made into;
//! * `value` — materialising a value in the layout a user asks for;
//! * `elementwise` — one scalar instruction sequence a slot;
//! * `view`, `place`, `listed`, `access`, `memory`, `shifted`, `vector` — array descriptions, where tiles lie, addresses, masks, wide
//!   accesses;
//! * `within` — barriers, buffers and changes of layouts within a step, as the schedule says;
//! * `pointer`, `atomic`, `atomic_half`, `private`, `certain` — accesses by pointers; atomics; atomics combined in shared
//!   memory; masks that hold for all elements of a thread;
//! * `order` — accesses that other tile blocks see in order;
//! * `strip` — long elementwise runs piece by piece;
//! * `convert` — layout changes through registers, shuffles or shared memory;
//! * `own`, `global` — memory of the tile block's own; global arrays;
//! * `pieces`, `repack` — tiles put together and taken apart; elements packed into bytes;
//! * `lookup` — elements by their positions; counts of numbers;
//! * `partials`, `extreme`, `reduce`, `reduce_warps`, `scan`, `scan_warps` — within a thread, across lanes, across warps;
//! * `product`, `flight` — matrix products; those that run on their own until a wait for them;
//! * `tensor_map`, `box_store` — views that the bulk copy engine can move; stores and additions that it does;
//! * `limit` — how much code, and how many registers, are too much;
//! * `control`, `rounds`, `pipeline` — loops and branches; rounds in a row; copies that run ahead of a loop;
//! * `ring` — warps that only load, for warps that only compute (sm_90a);
//! * `teams`, `turns`, `bands` — groups of such warps that take iterations in turn, or multiply in turn; those with rows of their own;
//! * `cluster` — pairs of tile blocks that share such loads.
//!
//! Scalars (rank 0) are computed by every thread and are the same in all of them, so branches on them
//! are uniform and barriers inside loops are safe.

mod access;
mod assert;
mod atomic;
mod atomic_half;
mod bands;
mod box_store;
mod certain;
mod cluster;
mod control;
mod convert;
mod elementwise;
mod extreme;
mod flight;
mod global;
mod hint;
mod known;
mod limit;
mod listed;
mod lone;
mod look;
mod lookup;
mod memory;
mod order;
mod own;
mod partials;
mod pieces;
mod pipeline;
mod place;
mod planned;
mod pointer;
mod print;
mod private;
mod product;
mod reduce;
mod reduce_warps;
mod release;
mod repack;
mod rider;
mod ring;
mod rounds;
mod scan;
mod scan_warps;
mod shifted;
mod step;
mod strip;
mod teams;
#[allow(dead_code)] // used by the stores and pipelines that move boxes
mod tensor_map;
mod thread;
mod turns;
mod value;
mod vector;
mod view;
mod within;

use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

pub use planned::{lowered, planned};

use super::device_assert::Assertion;
use super::isa::builder::Builder;
use super::isa::emit::{self, Function, Param};
use super::isa::inst::{Operand, ProxyFence, Space, Ty};
use super::isa::loc_directives::SourceLines;
use super::layout_inference::Inference;
use super::opt::mul_wide;
use super::opt::register_pressure;
use super::remarks::CodeRemarks;
use super::schedule::{KernelInfo, Schedule, SubStep};
use super::smem::allocation::{Buffer, SharedMemory};
use super::tensor_map::TensorMap;
use super::workarounds;
use super::{CompileOptions, Compiled, ParamKind};
use crate::error::Diagnostic;
use crate::ir::{Elem, Entry, Module, Op, OpId, Opcode, Type, Value};
use crate::layout::Layout;
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
    context: KernelInfo<'m>,
    /// What is lowered.
    schedule: Rc<Schedule>,
    b: Builder,
    /// Concrete values, by value index.
    tiles: Vec<Option<Tile>>,
    /// Values in further layouts; cut back when the region that made them ends.
    cached: value::Cache,
    views: HashMap<Value, Rc<view::TensorView>>,
    shared: SharedMemory,
    /// What the step that is lowered does within, and has not come to.
    within: VecDeque<SubStep>,
    /// Memory of the block's own, and where data is in this kernel.
    own: HashMap<OpId, Buffer>,
    data_space: Space,
    loops: Vec<control::Frame>,
    /// Loads whose tile is in a stage of shared memory, by address.
    staged: HashMap<Value, Operand>,
    /// Loads whose elements their threads have in a stage.
    own_tiles: HashMap<OpId, pipeline::OwnTile>,
    /// Products that may still be running.
    flights: flight::Flights,
    /// Who is being lowered.
    role: ring::Role,
    /// Streamed loads, if there are any.
    rings: Option<ring::Rings>,
    /// The team of warps, where there are several.
    team: teams::Team,
    /// What a band of rows, or a group that works in turn, knows of its turns.
    turns: Option<turns::KnownTurns>,
    /// The other tile block of a pair.
    peer: cluster::Peer,
    params: Vec<ParamKind>,
    /// Tensor maps that the kernel takes, and their parameters.
    tensor_maps: Vec<(TensorMap, Operand)>,
    thread: thread::ThreadCache,
    /// The parameter that names the note of a failed assertion, in a kernel that has some, and these so far.
    failure: Option<Operand>,
    assertions: Vec<Assertion>,
    errors: Vec<Diagnostic>,
    /// Only the schedule is wanted.
    plans_only: bool,
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
    let threads = inference.num_warps as u32 * super::hardware::WARP_SIZE;
    Lowering {
        module,
        b: Builder::new(target, name, threads),
        tiles: vec![None; module.num_values()],
        cached: value::Cache::default(),
        views: HashMap::new(),
        shared: SharedMemory::new(target.max_shared_bytes()),
        within: VecDeque::new(),
        schedule: Rc::default(),
        own: HashMap::new(),
        data_space: Space::Global,
        loops: Vec::new(),
        staged: HashMap::new(),
        own_tiles: HashMap::new(),
        flights: flight::Flights::default(),
        role: ring::Role::All,
        rings: None,
        team: teams::Team::default(),
        turns: None,
        peer: cluster::Peer::default(),
        params: Vec::new(),
        tensor_maps: Vec::new(),
        thread: thread::ThreadCache::default(),
        failure: None,
        assertions: Vec::new(),
        errors: Vec::new(),
        plans_only: false,
        gave_up: false,
        gave_up_said: false,
        remarks: CodeRemarks::default(),
        context: KernelInfo::new(module, entry, inference, options),
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
    let mut lowering = lowered(module, entry, inference, name, options);
    if !lowering.errors.is_empty() {
        return Err(lowering.errors);
    }
    let mut params = std::mem::take(&mut lowering.params);
    params.extend(lowering.tensor_maps.drain(..).map(|(map, _)| ParamKind::TensorMap(map)));
    let target = lowering.context.inference.target;
    let layout = lowering.context.layout_text(entry.body);
    let schedule = if options.schedule { lowering.schedule.to_text(module) } else { String::new() };
    let (shared_bytes, cluster) = (lowering.schedule.shared_bytes, lowering.cluster());
    let assertions = lowering.assertions;
    let (mut remarks, warps) = (lowering.remarks, lowering.context.inference.num_warps as u32);
    let multiplies = !lowering.context.inference.products.is_empty();
    let generic = lowering.data_space == Space::Generic;
    let (streams, lowered_wish) = (lowering.rings.is_some(), lowering.context.options.occupancy);
    let mut function: Function = lowering.b.finish();
    workarounds::apply(&mut function);
    mul_wide::merge(&mut function);
    // Products plan their registers themselves: for one block.
    if !multiplies && options.occupancy.is_none() {
        // ptxas keeps generic addresses in more registers than there are in the text.
        let spare = if generic { GENERIC_SPARE } else { 0 };
        function.min_blocks = Some(register_pressure::fitting_blocks(&function, target, shared_bytes, spare));
    }
    if !streams && let Some(wished) = lowered_wish {
        function.min_blocks = Some(without_thrashing(&function, wished, target, warps));
    }
    let min_blocks = function.min_blocks.unwrap_or(1);
    remarks.crowded = options.occupancy.filter(|&wished| wished > min_blocks).map(|wished| [wished, min_blocks]);
    remarks.finish(&function, warps);
    let threads = function.threads;
    if options.line_info {
        function.source = Some(SourceLines::of(module, function.places()));
    }
    let text = emit::module(target, &global::globals(module), &[function]);
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
        schedule,
        remarks,
    })
}

/// Registers that a kernel with generic addresses gets beyond those that it needs.
const GENERIC_SPARE: u32 = 16;

/// Blocks that are wished for, but not so many that a thread gets less than most of the registers that it needs.
fn without_thrashing(function: &Function, wished: u32, target: Target, warps: u32) -> u32 {
    let needed = register_pressure::live_registers(function) * 3 / 4;
    wished.min(target.multiprocessor().fitting_blocks(warps, needed, 0).max(1))
}

impl<'m> Lowering<'m> {
    /// Declares the entry parameters and loads them.
    fn entry_params(&mut self, entry: &Entry) -> Vec<ParamKind> {
        let args = &self.module.block(entry.body).args;
        let layout = Layout::replicated(&[], self.context.inference.num_warps);
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

    fn report(&mut self, id: OpId, message: String) {
        let op = self.module.op(id);
        // That there is too much code is said once, of the op that it came to; all others fail, too. Behind what failed,
        // steps do other things than their schedule says.
        let follows = message == within::OTHERWISE && !self.errors.is_empty();
        if !(follows || self.gave_up && std::mem::replace(&mut self.gave_up_said, true)) {
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
            let layout = self.context.inference.layout(value).cloned();
            let layout = layout.unwrap_or_else(|| self.context.inference.default_layout(value));
            let slots = vec![Operand::Imm(0); layout.num_registers()].into();
            self.tiles[value.index()] = Some(Tile { layout, slots });
        }
    }

    /// Refuses what is too much for the assembler.
    fn check(&mut self, id: OpId) -> Lowered {
        self.check_length(self.module.op(id))?;
        self.check_registers(id)
    }

    /// An op that is a part of a step.
    fn op(&mut self, id: OpId) -> Lowered {
        self.check(id)?;
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
            // Elementwise ops, and the free and virtual ones, which are computed where they are used.
            AbsF | AbsI | AddF | AddI | AndI | Bitcast | Ceil | CmpF | CmpI | Cos | Cosh | DivF | DivI | Exp | Exp2
            | ExtI | Floor | Fma | FToF | FToI | IntToPtr | IToF | Log | Log2 | MaxF | MaxI | MinF | MinI | MulF
            | MulHiI | MulI | NegF | NegI | Offset | OrI | PowF | PowI | PtrToInt | PtrToPtr | RemF | RemI | Rsqrt
            | Select | ShlI | ShrI | Sin | Sinh | Sqrt | SubF | SubI | Tan | Tanh | TruncI | XorI | Atan2
            | InlinePtx => self.elementwise(id),
            Constant | Iota | Assume | Broadcast | Reshape | Permute => Ok(()),
            GetTileBlockId | GetNumTileBlocks => self.grid(op),
            GetBand => self.band(op),
            GetTensorShape | GetIndexSpaceShape => self.view_shape(op),
            MakeTensorView => self.make_tensor_view(id),
            MakePartitionView | MakeStridedView | MakeGatherScatterView => self.alias_view(op),
            LoadView => self.load_view(id),
            StoreView => self.store_view(id),
            LoadPtr => self.load_ptr(id),
            StorePtr => self.store_ptr(id),
            AtomicRmw => self.atomic_rmw(id),
            AtomicCas => self.atomic_cas(id),
            AtomicRedView => self.atomic_red_view(id),
            MakeToken | JoinTokens => Ok(()),
            Reduce => self.reduce(id),
            Scan => self.scan(id),
            Cat => self.cat(id),
            Pack | Unpack => self.repack(id),
            Extract => self.extract(id),
            Insert => self.insert(id),
            Gather => self.gather_tile(id),
            Histogram => self.histogram(id),
            WithLayout => self.in_chosen_layout(id),
            Print => self.print(id),
            GdcWait | GdcLaunchDependents => {
                self.dependent_launch(op.code);
                Ok(())
            }
            MemoryFenceAlias => {
                // Whatever thread goes on behind the barrier, the accesses of all have passed their fences.
                self.b.fence_proxy(ProxyFence::Alias);
                self.meet()
            }
            Assert => self.assertion(id),
            GetGlobal => self.global(op),
            Alloca => self.own_memory(id),
            For | Loop | If | Break | Continue | Yield | Return | MmaF | MmaI => {
                Err("an op that is a step of its own stands within another one".to_owned())
            }
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

    fn single(&mut self, value: Value, operand: Operand) {
        let layout = Layout::replicated(self.module.shape(value), self.context.inference.num_warps);
        self.tiles[value.index()] = Some(Tile { layout, slots: Rc::from([operand]) });
    }

    fn grid(&mut self, op: &Op) -> Lowered {
        use super::isa::inst::Special::*;
        let registers = match op.code {
            Opcode::GetTileBlockId => [CtaIdX, CtaIdY, CtaIdZ],
            _ => [NCtaIdX, NCtaIdY, NCtaIdZ],
        };
        for (&result, special) in op.results.iter().zip(registers) {
            if self.context.use_counts[result.index()] > 0 {
                let mut value = self.b.special(special);
                if special == CtaIdX && self.peer.active {
                    value = self.b.xor(Ty::B32, value, 1u32);
                }
                self.single(result, value);
            }
        }
        Ok(())
    }
}
