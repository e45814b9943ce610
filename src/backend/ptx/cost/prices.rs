//! What an op asks of the units of a multiprocessor: by its row in the op table, the layouts of its tiles and the plans of
//! products.

use super::demand::{Demand, Unit};
use super::weights::Weights;
use crate::backend::ptx::infer::{Source, ViewShape, stored};
use crate::backend::ptx::plan::{WARP, extent};
use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{Attr, AttrKind, Flag, Op, OpId, Opcode, Type, Value};
use crate::layout::Layout;

/// Bytes of the widest access of a thread.
const VECTOR_BYTES: f64 = 16.0;
/// Bytes of memory that come together.
const SECTOR_BYTES: f64 = 32.0;
/// Instructions of an access, with those of its address.
const ACCESS: f64 = 3.0;
/// Instructions that a warp issues for one of tensor cores that runs on its own: its descriptors, and itself.
const ISSUED: f64 = 5.0;
/// Bytes of k of one instruction of tensor cores, and rows of one that runs on its own.
const STEP_BYTES: f64 = 32.0;
const ROWS: f64 = 64.0;

/// Instructions for an element.
#[derive(Clone, Copy, Default)]
struct Mix {
    all: f64,
    alu: f64,
    special: f64,
}

/// The rule that prices an op.
#[derive(Clone, Copy)]
enum Pricing {
    /// Instructions for each element of the result.
    Elements(Mix),
    /// A reduction.
    Reduce,
    /// A scan.
    Scan,
    /// A load of the first result.
    Load,
    /// A store of this tile, or an atomic without a result.
    Store(Value),
    /// An atomic with a result, by this tile.
    Atomic(Value),
    /// Elements at computed places of shared memory.
    Lookup,
    /// Elements in other registers.
    Move,
    /// One instruction that the next one waits for.
    Step,
    /// No instructions, or a price of another rule.
    Nothing,
}

/// What an op asks for, of the warps that go through it together.
#[derive(Clone, Copy, Default)]
pub struct Price {
    pub demand: Demand,
    /// What goes on behind it: nobody waits for it.
    pub behind: Demand,
    /// Barriers of all warps that hold a tile together.
    pub meets: u32,
    /// What it gives arrives later.
    pub arrives: bool,
}

/// A product of the warps that go through it together.
#[derive(Clone, Copy, Default)]
pub struct ProductPrice {
    /// Of tensor cores, while they run, and how long that takes at least.
    pub runs: Demand,
    pub least: f64,
    /// What comes before: operands on their way.
    pub before: Price,
    /// What comes after, with the result.
    pub after: Demand,
}

/// Knows what ops cost.
pub struct Prices<'a, 'm> {
    pub context: &'a KernelInfo<'m>,
    pub weights: &'static Weights,
    /// Warps that go through a program together.
    pub warps: f64,
    /// So many such groups hold a tile.
    pub groups: f64,
}

impl Prices<'_, '_> {
    /// Instructions of all warps, so many for each slot of a thread.
    fn instructions(&self, slots: f64, mix: Mix) -> Demand {
        let crowd = 1.0 + self.weights.crowd * self.groups.log2();
        let lanes = slots * self.warps * f64::from(WARP) * crowd;
        Demand::of(Unit::Issue, lanes * mix.all / self.weights.issue)
            .and(Unit::Alu, lanes * mix.alu / self.weights.alu)
            .and(Unit::Special, lanes * mix.special / self.weights.special)
    }

    fn slots(&self, value: Value) -> f64 {
        self.context.inference.natural(value).map_or_else(
            || (extent(self.context.module, value).0 as f64 / (self.warps * self.groups * f64::from(WARP))).max(1.0),
            |layout| layout.num_registers() as f64,
        )
    }

    /// An op that is no product, loop or branch.
    pub fn op(&self, id: OpId) -> Price {
        let module = self.context.module;
        let op = module.op(id);
        let Some(&first) = op.results.first().or(op.operands.first()) else { return Price::default() };
        let demand = |demand| Price { demand, ..Price::default() };
        let pricing = self.pricing(op);
        debug_assert_eq!(matches!(pricing, Pricing::Elements(_)), op.code.is_elementwise(), "{:?}", op.code);
        match pricing {
            Pricing::Elements(mix) => self.elements(op, mix),
            Pricing::Reduce => self.reduce(id),
            Pricing::Scan => {
                let mut price = self.reduce(id);
                price.demand += self.instructions(2.0 * self.slots(op.operands[0]), mix(1.0, 0.5, 0.0));
                price
            }
            Pricing::Load => self.access(id, op.results[0], false),
            Pricing::Store(tile) => self.access(id, tile, true),
            Pricing::Atomic(tile) => Price { arrives: true, ..self.access(id, tile, true) },
            Pricing::Lookup => {
                let slots = self.slots(first);
                let bytes = slots * self.warps * f64::from(WARP) * 4.0 * 4.0;
                let lookups =
                    self.instructions(slots, mix(6.0, 3.0, 0.0)).and(Unit::Shared, bytes / self.weights.shared);
                Price { meets: 2, ..demand(lookups) }
            }
            Pricing::Move => demand(self.instructions(self.slots(first), mix(1.0, 0.5, 0.0))),
            Pricing::Step => demand(Demand::time(self.weights.step)),
            Pricing::Nothing => Price::default(),
        }
    }

    /// An elementwise op, with the conversions of its operands.
    fn elements(&self, op: &Op, mix: Mix) -> Price {
        let result = op.results[0];
        let slots = self.slots(result);
        let mut demand = self.instructions(slots, mix);
        demand.latency += self.weights.step;
        if slots <= 1.0 && self.context.inference.num_elements(result) == 1 {
            // Numbers that all threads have: divisions take their time.
            demand.latency += mix.all * self.weights.step;
        }
        let mut price = Price { demand, ..Price::default() };
        if let Some(wanted) = self.context.inference.layout(result) {
            for &operand in &op.operands {
                let moved = self.moved(operand, wanted);
                price.demand += moved.demand;
                price.meets += moved.meets;
            }
        }
        price
    }

    /// Returns the rule that prices an op. The match has no wildcard, so that a new op has to state its cost.
    fn pricing(&self, op: &Op) -> Pricing {
        use Opcode::*;
        let bits = |value: Value| self.context.element_type(value).storage_bits();
        let flushes = op.flag(Flag::FlushToZero);
        let each = |all, alu, special| Pricing::Elements(mix(all, alu, special));
        match op.code {
            Reduce => Pricing::Reduce,
            Scan => Pricing::Scan,
            LoadView | LoadPtr => Pricing::Load,
            StoreView | AtomicRedView => Pricing::Store(stored(op)),
            StorePtr => Pricing::Store(op.group(1)[0]),
            AtomicRmw | AtomicCas => Pricing::Atomic(op.group(1)[0]),
            Gather | Histogram => Pricing::Lookup,
            Cat | Extract | Insert | Pack | Unpack => Pricing::Move,
            AddF | SubF | MulF | Fma | NegF | AbsF => each(if bits(op.results[0]) > 32 { 2.0 } else { 1.0 }, 0.0, 0.0),
            Bitcast | PtrToInt | IntToPtr | PtrToPtr => each(0.0, 0.0, 0.0),
            Exp2 => each(if flushes { 1.0 } else { 3.0 }, 0.0, 1.0),
            Exp => each(if flushes { 2.0 } else { 4.0 }, 0.0, 1.0),
            Log | Log2 | Rsqrt => each(5.0, 1.0, 1.0),
            Sqrt | DivF => each(8.0, 1.0, 1.0),
            Sin | Cos | Tan | Tanh | Sinh | Cosh | Atan2 | PowF | PowI | RemF => each(24.0, 6.0, 1.0),
            DivI | RemI => each(20.0, 10.0, 1.0),
            FToF if bits(op.results[0]) < bits(op.operands[0]) => each(0.5, 0.5, 0.0),
            FToF => each(0.75, 0.25, 0.0),
            InlinePtx => each(2.0, 1.0, 0.0),
            MulI | MulHiI | Offset => each(1.0, 0.5, 0.0),
            AbsI | AddI | AndI | Ceil | CmpF | CmpI | ExtI | FToI | Floor | IToF | MaxF | MaxI | MinF | MinI | NegI
            | OrI | Select | ShlI | ShrI | SubI | TruncI | XorI => each(1.0, 1.0, 0.0),
            Alloca | Assert | Break | Continue | For | GdcLaunchDependents | GdcWait | If | Loop | MemoryFenceAlias
            | MultimemLoadReduce | MultimemReduce | MultimemStore | Print | Return | Yield => Pricing::Step,
            // Products have prices of their own.
            MmaF | MmaFScaled | MmaI => Pricing::Nothing,
            Assume
            | Broadcast
            | Constant
            | DataPartitionId
            | GetGlobal
            | GetIndexSpaceShape
            | GetNumTileBlocks
            | GetTensorShape
            | GetTileBlockId
            | Iota
            | JoinTokens
            | MakeGatherScatterView
            | MakePartitionView
            | MakeStridedView
            | MakeTensorView
            | MakeToken
            | Permute
            | Reshape
            | WithLayout => Pricing::Nothing,
        }
    }

    /// A value on its way to another layout.
    fn moved(&self, value: Value, wanted: &Layout) -> Price {
        let inference = &self.context.inference;
        let (count, bytes) = extent(self.context.module, value);
        if count <= 1 || inference.source(value) != Source::Concrete {
            return Price::default();
        }
        match inference.layout(value) {
            Some(own) if own.shape() == wanted.shape() && !own.is_same(wanted) => {
                self.through_shared(bytes as f64, 2.0)
            }
            _ => Price::default(),
        }
    }

    /// All bytes of a tile are written to shared memory and read.
    fn through_shared(&self, bytes: f64, times: f64) -> Price {
        let bytes = bytes / self.groups;
        let accesses = times * bytes / VECTOR_BYTES / f64::from(WARP);
        let demand = self
            .instructions(accesses / self.warps, mix(ACCESS, 1.0, 0.0))
            .and(Unit::Shared, times * bytes / self.weights.shared);
        Price { demand, meets: times as u32, ..Price::default() }
    }

    fn access(&self, id: OpId, tile: Value, writes: bool) -> Price {
        let (module, inference) = (self.context.module, &self.context.inference);
        let (count, bytes) = extent(module, tile);
        let (weights, op) = (self.weights, module.op(id));
        if count <= 1 {
            let demand = Demand::of(Unit::Issue, ACCESS * self.warps / 4.0);
            let behind = Demand::of(Unit::L2, SECTOR_BYTES / weights.l2);
            return Price { demand, behind, arrives: !writes, ..Price::default() };
        }
        let bytes = bytes as f64 / self.groups;
        let by_view = matches!(op.code, Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView);
        let view = if by_view { op.operand_group("view").first().copied() } else { None };
        let listed = match by_view {
            true => self.context.is_indexed_access(id),
            false => !inference.pointer_runs.contains_key(&id),
        };
        let (moved, wide) = match listed {
            true => (count as f64 / self.groups * SECTOR_BYTES, bytes / count as f64 * self.groups),
            false => (bytes, self.width(id, view)),
        };
        let accesses = bytes / wide.max(1.0) / f64::from(WARP) / self.warps;
        let demand = self.instructions(accesses, mix(ACCESS, 1.0, 0.0));
        let far = Demand::of(Unit::L2, moved / weights.l2).and(Unit::Memory, moved / weights.memory);
        let mut price = Price { demand, behind: far, arrives: !writes, ..Price::default() };
        if let Some(wanted) = inference.accesses.get(&id).filter(|_| writes) {
            let moved = self.moved(tile, wanted);
            price.demand += moved.demand;
            price.meets += moved.meets;
        }
        price
    }

    /// Bytes of one access of a thread.
    fn width(&self, id: OpId, view: Option<Value>) -> f64 {
        let inference = &self.context.inference;
        let Some(layout) = inference.accesses.get(&id) else { return VECTOR_BYTES };
        let shape = view.and_then(|view| ViewShape::of(self.context.module, view));
        let Some(shape) = shape else { return VECTOR_BYTES };
        let run = (0..layout.shape().len()).map(|axis| layout.vector_len(axis)).max().unwrap_or(1);
        (run as f64 * f64::from(shape.elem.storage_bits()) / 8.0).min(VECTOR_BYTES)
    }

    /// A store by the bulk copy engine: what threads do for it. Its bytes go on their own.
    pub fn send(&self, id: OpId) -> (Price, f64) {
        let tile = stored(self.context.module.op(id));
        let bytes = extent(self.context.module, tile).1 as f64;
        let price = self.through_shared(bytes, 1.0);
        (Price { meets: 1, ..price }, bytes / self.groups)
    }

    fn reduce(&self, id: OpId) -> Price {
        let op = self.context.module.op(id);
        let layout = match self.context.inference.accesses.get(&id) {
            Some(layout) => layout.clone(),
            None => self.context.inference.natural_or_default(op.operands[0]),
        };
        let axis = match op.attr(AttrKind::Dim) {
            Some(&Attr::Dim(axis)) => axis as usize,
            _ => 0,
        };
        let along = |images: &[u32]| {
            let moves = |&&image: &&u32| image != 0 && layout.coordinates(image)[axis] != 0;
            images.iter().filter(moves).count() as i32
        };
        let (lanes, warps) = (along(layout.lane_images()), along(layout.warp_images()));
        let slots = layout.num_registers() as f64;
        let left = slots / f64::from(1 << along(layout.register_images()));
        let each = op.operands.len() as f64;
        let body = &self.context.module.block(op.regions[0]).ops;
        let mut fold = Mix::default();
        for &inner in body {
            if let Pricing::Elements(more) = self.pricing(self.context.module.op(inner)) {
                fold = mix(fold.all + more.all, fold.alu + more.alu, fold.special + more.special);
            }
        }
        let mut demand = self.instructions((slots - left).max(0.0), fold);
        let shuffle = mix(fold.all + each, fold.alu + each, fold.special);
        demand += self.instructions(left * f64::from(lanes), shuffle);
        demand.latency += f64::from(lanes) * self.weights.shuffle;
        let mut price = Price { demand, ..Price::default() };
        if warps > 0 {
            let bytes = left * each * 4.0 * self.warps * f64::from(WARP);
            price.demand = price.demand.and(Unit::Shared, 2.0 * bytes / self.weights.shared);
            price.demand.latency += 2.0 * self.weights.shuffle;
            price.meets = 2;
        }
        price
    }

    /// A product; `fetched`: operands that are in shared memory already.
    pub fn product(&self, id: OpId, fetched: &dyn Fn(Value) -> bool) -> ProductPrice {
        let module = self.context.module;
        let op = module.op(id);
        let Some(Ok(plan)) = self.context.inference.products.get(&id) else { return ProductPrice::default() };
        let (left, right) = (module.shape(op.operands[0]), module.shape(op.operands[1]));
        let dtype = module.dtype(op.operands[0]);
        let bits = f64::from(plan.a.dtype.storage_bits().max(8));
        let results = extent(module, op.results[0]).0 as f64;
        let products = results * left[left.len() - 1] as f64;
        let mut before = Price::default();
        let brought = self.context.operand_bytes(&[id], &|value| fetched(value) || self.is_held(value, id));
        if brought > 0 {
            before = self.through_shared(f64::from(brought), 1.0);
        }
        let mut price = ProductPrice { before, ..ProductPrice::default() };
        let mine = products / self.groups;
        if dtype == crate::dtype::DType::F32 {
            price.runs = Demand::of(Unit::Issue, mine / self.weights.issue);
            return price;
        }
        let tensor = mine / (self.weights.tensor * 16.0 / bits) * if bits > 32.0 { 4.0 } else { 1.0 };
        price.runs = Demand::of(Unit::Tensor, tensor);
        let depth = left[left.len() - 1] as f64 * bits / 8.0 / STEP_BYTES;
        if plan.is_asynchronous() {
            let effort = plan.effort();
            // What instructions read of shared memory: the left operand for each of their columns, the right one for each of their rows.
            let instructions = results / self.groups / (ROWS * effort.columns as f64) * depth;
            let read = instructions * STEP_BYTES * (effort.columns as f64 + if effort.words > 0 { 0.0 } else { ROWS });
            price.runs = price.runs.and(Unit::Shared, read / self.weights.shared);
            price.before.demand += self.instructions(instructions * ISSUED, mix(1.0, 0.0, 0.0));
            // Instructions of tensor cores take registers, too.
            price.runs = price.runs.and(Unit::Issue, tensor * self.weights.registers);
            if effort.words > 0 {
                // Each step of k waits for its part of the left operand, which is read, rounded and put in its place beside the step before.
                price.least = depth * self.weights.gather;
                price.runs += self.instructions(effort.words as f64, mix(3.0, 1.0, 0.0));
            }
            price.after = self.instructions(effort.additions as f64, mix(1.0, 0.0, 0.0));
        } else {
            // Fragments: each of 16 rows and 8 columns reads its operands, which registers keep for some of them.
            let [rows, columns] = [left[left.len() - 2] as f64, right[right.len() - 1] as f64];
            let instructions = mine * bits / 8.0 / (16.0 * 8.0 * STEP_BYTES);
            let read = (rows + columns) * depth * STEP_BYTES * 2.0;
            price.runs =
                price.runs.and(Unit::Issue, instructions / 4.0 * 1.5).and(Unit::Shared, read / self.weights.shared);
        }
        price
    }

    /// Does an operand of a product come in registers?
    fn is_held(&self, value: Value, product: OpId) -> bool {
        let Some(Ok(plan)) = self.context.inference.products.get(&product) else { return false };
        let left = self.context.module.op(product).operands[0] == value;
        left && plan.a.registers.is_some() && self.context.source_load(value).is_none()
    }

    /// Bytes of a stage of copies that threads make.
    pub fn copies(&self, bytes: f64) -> Demand {
        let accesses = bytes / self.groups / VECTOR_BYTES / f64::from(WARP) / self.warps;
        self.instructions(accesses, mix(ACCESS, 1.0, 0.0)).and(Unit::Shared, bytes / self.groups / self.weights.shared)
    }

    /// Does it move tiles at all?
    pub fn is_tile(&self, value: Value) -> bool {
        matches!(self.context.module.ty(value), Type::Tile { .. }) && self.context.inference.num_elements(value) > 1
    }
}

const fn mix(all: f64, alu: f64, special: f64) -> Mix {
    Mix { all, alu, special }
}
