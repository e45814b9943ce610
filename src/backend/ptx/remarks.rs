//! Compilation remarks: data paths of tiles, instructions of MMAs, and register use of a
//! kernel.
//!
//! Lowering adds them op by op. No pass reads them.

use crate::util::collect::CollectVec as _;
use std::fmt;

use super::hardware::{MAX_REGISTERS_PER_THREAD, REGISTERS_PER_SM, WARP_SIZE};
use super::isa::emit::Function;
use super::isa::inst::{Arg, Inst, Line, Opcode, Operand};
use crate::dtype::DType;
use crate::error::Location;
use crate::ir::{Module, OpId, Opcode as IrOpcode, Value};

/// Data path of a tile between global memory and its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPath {
    /// Accesses of global memory by each thread, from and to registers.
    Direct {
        /// Accesses of a thread.
        accesses: u32,
        /// Bytes of an access.
        bytes: u32,
        /// Boundary tiles are accessed element by element, with a mask.
        masked: bool,
    },
    /// Copies by `cp.async` into the stages of a pipeline.
    CpAsync {
        /// Bytes of a copy.
        bytes: u32,
        /// Number of stages.
        stages: u32,
    },
    /// TMA loads by a producer into the stages of a pipeline.
    TmaPipelined {
        /// Boxes of a tile; 0 for a tile within the boxes of the adjacent one.
        boxes: u32,
        /// Number of stages.
        stages: u32,
        /// CTAs of the cluster that receive a tile.
        multicast: u32,
    },
    /// TMA without a pipeline.
    Tma {
        /// Boxes of a tile.
        boxes: u32,
    },
}

/// A load or a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The user's source location.
    pub location: Option<Location>,
    /// True for a store.
    pub writes: bool,
    /// True for an atomic.
    pub is_atomic: bool,
    /// Element type.
    pub elem: DType,
    /// Extents of the tile.
    pub shape: Vec<i64>,
    /// The data path of the tile.
    pub path: DataPath,
    /// The first reason why a load or store of a loop is direct.
    pub direct_reason: Option<String>,
}

/// An MMA of the module, with its instructions.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// The user's source location.
    pub location: Option<Location>,
    /// Extents of the operands and the result.
    pub shapes: [Vec<i64>; 3],
    /// The instruction, and how many of them a warp issues.
    pub instruction: String,
    /// Number of instructions per warp.
    pub count: u32,
    /// The reason against `wgmma`, on a target that has it.
    pub wgmma_rejection: Option<&'static str>,
}

/// Compilation remarks of a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CodeRemarks {
    accesses: Vec<(OpId, Access)>,
    products: Vec<(OpId, Product)>,
    /// Reason against the requested clusters of CTAs.
    pub cluster_rejected: Option<&'static str>,
    /// Occupancy as requested and as possible, if they differ.
    pub occupancy_limited: Option<[u32; 2]>,
    /// Number of ping-pong groups, if there are several.
    pub pingpong_groups: Option<u32>,
    /// Number of data partitions (by rows), if there are several.
    pub data_partitions: Option<u32>,
    /// Reason against the data partitions that the requested number of warps implies.
    pub data_partition_rejected: Option<String>,
    /// Missed loop hints, and loops with MMAs and without a producer: source location
    /// and reason.
    pub missed_loop_hints: Vec<(Option<Location>, String)>,
    /// Considered plans, one line each: cost, and difference from the selected plan.
    pub plans_considered: Vec<String>,
    /// Gain of the fast float mode by the cost model, if there is any.
    pub fast_float_mode: Option<String>,
    /// Reason against TMA and warp specialization in a kernel that could have them.
    pub tma_rejected: Option<String>,
    /// Layout conversions by shuffles within warps.
    pub shuffle_conversions: u32,
    /// Layout conversions through shared memory.
    pub smem_conversions: u32,
    /// Reductions across warps.
    pub cross_warp_reductions: u32,
    /// Barriers of the whole CTA in the code.
    pub barriers: u32,
    /// Consumer warps of a group.
    pub warps: u32,
    /// Producer warps.
    pub producer_warps: u32,
    /// Estimated maximum of live 32-bit registers per thread.
    pub live_registers: u32,
    /// Registers available per thread at an occupancy of 1.
    pub available_registers: u32,
    /// The tile with the most registers per thread.
    largest: Option<Largest>,
    /// Threads load a tile in a loop body with an MMA.
    pub(crate) has_loads_in_mma_loops: bool,
}

/// A tile and its registers per thread.
#[derive(Clone, Debug, PartialEq)]
struct Largest {
    registers: u32,
    location: Option<Location>,
    elem: String,
    shape: Vec<i64>,
}

impl CodeRemarks {
    /// Loads and stores in the order in which they were lowered.
    pub fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.accesses.iter().map(|(_, access)| access)
    }

    /// MMAs in the order in which they were lowered.
    pub fn products(&self) -> impl Iterator<Item = &Product> {
        self.products.iter().map(|(_, product)| product)
    }

    /// Adds the data path of the tile of a load or store, if the op has none yet.
    pub(super) fn access(&mut self, module: &Module, id: OpId, tile: Value, path: DataPath) {
        if self.accesses.iter().any(|(known, _)| *known == id) {
            return;
        }
        let op = module.op(id);
        let access = Access {
            location: module.location(op.loc).cloned(),
            writes: !op.results.contains(&tile),
            elem: module.dtype(tile),
            shape: module.shape(tile).to_vec(),
            is_atomic: matches!(op.code, IrOpcode::AtomicRmw | IrOpcode::AtomicCas | IrOpcode::AtomicRedView),
            path,
            direct_reason: None,
        };
        self.accesses.push((id, access));
    }

    /// Adds a tile and its registers per thread.
    pub(super) fn tile(&mut self, module: &Module, id: OpId, tile: Value, registers: u32) {
        if self.largest.as_ref().is_none_or(|largest| largest.registers < registers)
            && let Some((elem, shape)) = module.ty(tile).as_tile()
        {
            let (elem, shape) = (elem.to_string(), shape.to_vec());
            self.largest =
                Some(Largest { registers, location: module.location(module.op(id).loc).cloned(), elem, shape });
        }
    }

    /// Returns a warning if the live registers are at least `times` the available ones.
    pub fn spill_warning(&self, times: u32) -> Option<String> {
        let (needed, available) = (self.live_registers, self.available_registers);
        if needed < times * available || available == 0 {
            return None;
        }
        let tile = self.largest.as_ref().map_or(String::new(), |Largest { registers, location: at, elem, shape }| {
            format!(" (the largest tile, {elem} {shape:?}, has {registers}: {})", location_text(at))
        });
        Some(format!(
            "about {needed} registers per thread are live{tile} and {available} are available: expect spills to local memory; use \
             smaller tiles or more warps"
        ))
    }

    /// Adds the instructions of an MMA: those of `lines` that multiply matrices.
    /// `shapes`: extents of the operands and the result.
    pub(super) fn product(
        &mut self,
        (module, id): (&Module, OpId),
        shapes: [Vec<i64>; 3],
        lines: &[Line],
        wgmma_rejection: Option<&'static str>,
    ) {
        if self.products.iter().any(|(known, _)| *known == id) {
            return;
        }
        let multiplies =
            |line: &&Line| matches!(line, Line::Inst(Inst { op: Opcode::Mma { .. } | Opcode::Wgmma { .. }, .. }));
        let found: Vec<&Line> = lines.iter().filter(multiplies).collect_vec();
        let (instruction, count) = match found.first() {
            Some(Line::Inst(inst)) => (inst.op.to_string(), found.len()),
            _ => ("fma".to_owned(), lines.iter().filter(|line| matches!(line, Line::Inst(_))).count()),
        };
        let op = module.op(id);
        let (location, count) = (module.location(op.loc).cloned(), count as u32);
        let product = Product { location, shapes, instruction, count, wgmma_rejection };
        self.products.push((id, product));
    }

    /// Returns the number of groups of consumer warps.
    fn groups(&self) -> u32 {
        self.pingpong_groups.or(self.data_partitions).unwrap_or(1)
    }

    /// Adds the reasons of direct loads and stores in loops.
    pub(super) fn direct_accesses(&mut self, reasons: Vec<(OpId, String)>) {
        for (id, reason) in reasons {
            let found = self.accesses.iter_mut().find(|(known, _)| *known == id);
            if let Some((_, access)) = found.filter(|(_, access)| matches!(access.path, DataPath::Direct { .. })) {
                access.direct_reason = Some(reason);
            }
        }
    }

    /// Adds missed loop hints.
    pub(super) fn loop_hints(&mut self, module: &Module, missed: Vec<(OpId, String)>) {
        let at = |id: OpId| module.location(module.op(id).loc).cloned();
        self.missed_loop_hints.extend(missed.into_iter().map(|(id, what)| (at(id), what)));
    }

    /// Adds the remarks that need the finished code.
    pub(super) fn finish(&mut self, function: &Function, warps: u32) {
        let barrier = |line: &&Line| matches!(line, Line::Inst(Inst { op: Opcode::BarSync, .. }));
        self.barriers = function.lines.iter().filter(barrier).count() as u32;
        self.warps = warps;
        self.producer_warps = (function.threads / WARP_SIZE).saturating_sub(warps * self.groups());
        self.live_registers = super::register_pressure::live_registers(function);
        // Consumer warps acquire registers that the producer releases.
        let taken = function.lines.iter().filter_map(|line| match line {
            Line::Inst(Inst { op: Opcode::Setmaxnreg { inc: true }, srcs, .. }) => match srcs[..] {
                [Arg::One(Operand::Imm(count))] => u32::try_from(count).ok(),
                _ => None,
            },
            _ => None,
        });
        let share = (REGISTERS_PER_SM / function.threads.max(1)).min(MAX_REGISTERS_PER_THREAD);
        self.available_registers = taken.fold(share, u32::max);
    }
}

impl fmt::Display for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            DataPath::Direct { accesses, bytes, masked } => {
                let noun = if accesses == 1 { "access" } else { "accesses" };
                write!(f, "direct, {accesses} {noun} of {bytes} bytes per thread")?;
                if masked { write!(f, "; boundary tiles: scalar") } else { Ok(()) }
            }
            DataPath::CpAsync { bytes, stages } => write!(f, "cp.async of {bytes} bytes, {stages}-stage pipeline"),
            DataPath::TmaPipelined { boxes: 0, stages, .. } => {
                write!(f, "TMA, {stages}-stage pipeline, fused with the adjacent tile")
            }
            DataPath::TmaPipelined { boxes, stages, multicast } => {
                write!(f, "TMA, {stages}-stage pipeline, boxes: {boxes}")?;
                if multicast > 1 { write!(f, ", multicast to {multicast} blocks") } else { Ok(()) }
            }
            DataPath::Tma { boxes } => write!(f, "TMA, boxes: {boxes}"),
        }
    }
}

/// Extents as in `64x32`.
fn extents(shape: &[i64]) -> String {
    shape.iter().map(ToString::to_string).collect_vec().join("x")
}

fn location_text(location: &Option<Location>) -> String {
    location.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string)
}

impl fmt::Display for CodeRemarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for access in self.accesses() {
            let verb = match (access.is_atomic, access.writes) {
                (true, _) => "atomic",
                (false, true) => "store",
                (false, false) => "load",
            };
            let (at, shape) = (location_text(&access.location), extents(&access.shape));
            write!(f, "  {at}: {verb} {shape} {}: {}", access.elem, access.path)?;
            match &access.direct_reason {
                Some(reason) => writeln!(f, "; not asynchronous: {reason}")?,
                None => writeln!(f)?,
            }
        }
        for product in self.products() {
            let [a, b, c] = product.shapes.each_ref().map(|shape| extents(shape));
            let (at, count) = (location_text(&product.location), product.count);
            write!(f, "  {at}: {a} times {b} to {c}: {count} x {}", product.instruction)?;
            match product.wgmma_rejection {
                Some(reason) => writeln!(f, "; not wgmma: {reason}")?,
                None => writeln!(f)?,
            }
        }
        let kinds = [
            (self.smem_conversions, "layout conversions through shared memory"),
            (self.shuffle_conversions, "layout conversions by shuffles"),
            (self.cross_warp_reductions, "reductions across warps"),
            (self.barriers, "barriers"),
        ];
        let found: Vec<String> =
            kinds.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{what}: {count}")).collect_vec();
        if !found.is_empty() {
            writeln!(f, "  {}", found.join(", "))?;
        }
        if let Some(reason) = self.cluster_rejected {
            writeln!(f, "  cluster launch rejected: {reason}")?;
        }
        if let Some(reason) = &self.data_partition_rejected {
            writeln!(f, "  data partitioning rejected: {reason}")?;
        }
        for (at, what) in &self.missed_loop_hints {
            writeln!(f, "  {}: loop: {what}", location_text(at))?;
        }
        if let Some([requested, possible]) = self.occupancy_limited {
            writeln!(f, "  occupancy: {possible}, limited by registers and shared memory (requested: {requested})")?;
        }
        if let Some(reason) = &self.tma_rejected {
            writeln!(f, "  TMA rejected: {reason}")?;
        }
        let groups = self.groups();
        write!(f, "  warps: {}{}", if groups > 1 { format!("{groups} x ") } else { String::new() }, self.warps)?;
        if groups > 1 || self.producer_warps > 0 {
            write!(f, " consumer")?;
        }
        match (self.pingpong_groups, self.data_partitions) {
            (Some(_), _) => write!(f, " (ping-pong)")?,
            (_, Some(_)) => write!(f, " (data-partitioned by rows)")?,
            _ => {}
        }
        if self.producer_warps > 0 {
            write!(f, " + {} producer", self.producer_warps)?;
        }
        writeln!(f, ", live registers: {}", self.live_registers)?;
        self.plans_considered.iter().try_for_each(|plan| writeln!(f, "  plan: {plan}"))?;
        self.fast_float_mode.iter().try_for_each(|gain| writeln!(f, "  float mode: {gain}"))?;
        self.spill_warning(1).map_or(Ok(()), |what| writeln!(f, "  {what}"))
    }
}
