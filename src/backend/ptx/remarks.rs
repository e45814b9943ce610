//! What became of a kernel, for people: which way its tiles travel, which instructions multiply them, how
//! its threads are used. Lowering notes it op by op; nothing reads it but people.

use std::fmt;

use super::hardware::{MAX_REGISTERS_PER_THREAD, REGISTERS_PER_SM, WARP_SIZE};
use super::isa::emit::Function;
use super::isa::inst::{Arg, Inst, Line, Opcode, Operand};
use crate::dtype::DType;
use crate::error::Location;
use crate::ir::{Module, OpId, Value};

/// How a tile travels between memory and where it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Each thread accesses its elements: so many times, so many bytes at once.
    Threads {
        /// Accesses of a thread.
        count: u32,
        /// Bytes of one.
        bytes: u32,
        /// Tiles that stick out of the array go element by element.
        ragged: bool,
    },
    /// Threads copy to shared memory, some iterations ahead.
    Ahead {
        /// Bytes of one copy.
        bytes: u32,
        /// Stages of shared memory.
        stages: u32,
    },
    /// The copy engine moves boxes of a tensor map, as a producer some stages ahead.
    Streamed {
        /// Boxes of a tile.
        boxes: u32,
        /// Stages of shared memory.
        stages: u32,
        /// Tile blocks that fetch a tile together where it is the same in all of them.
        blocks: u32,
    },
    /// The copy engine moves boxes of a tensor map.
    Boxes {
        /// Boxes of a tile.
        boxes: u32,
    },
}

/// A load or a store.
#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The user's place.
    pub place: Option<Location>,
    /// Writes?
    pub writes: bool,
    /// Element type.
    pub elem: DType,
    /// Extents of the tile.
    pub shape: Vec<i64>,
    /// How it goes.
    pub way: Way,
}

/// A matrix product.
#[derive(Clone, Debug, PartialEq)]
pub struct Product {
    /// The user's place.
    pub place: Option<Location>,
    /// Extents of the operands and the result.
    pub shapes: [Vec<i64>; 3],
    /// The instruction, and how many of them a warp issues.
    pub instruction: String,
    /// How many of them a warp issues.
    pub count: u32,
}

/// What became of a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CodeRemarks {
    accesses: Vec<(OpId, Access)>,
    products: Vec<(OpId, Product)>,
    /// Why tile blocks do not run in clusters although that was wished for.
    pub alone: Option<&'static str>,
    /// Why tile blocks share a multiprocessor with fewer others than was wished for: the wish, and what is possible.
    pub crowded: Option<[u32; 2]>,
    /// Teams of warps that take the iterations of a loop in turn, if there are several.
    pub teams: Option<u32>,
    /// Groups of warps of which each makes a band of the rows of a tile, if there are several.
    pub bands: Option<u32>,
    /// Why a tile block has no bands of rows although so many warps were wished for.
    pub whole: Option<String>,
    /// Wishes of loops that are not met, or not wholly, and loops with products that have no producer: where, and what there
    /// is instead.
    pub loops: Vec<(Option<Location>, String)>,
    /// Plans that were considered, a line each: what they cost, and why they were not taken.
    pub considered: Vec<String>,
    /// Why neither the copy engine nor warps with roles are used although the kernel could have them.
    pub plain: Option<String>,
    /// Changes of layout by shuffles within warps.
    pub shuffled: u32,
    /// Changes of layout through shared memory.
    pub through_shared: u32,
    /// Reductions across warps.
    pub across_warps: u32,
    /// Barriers over the block in the text.
    pub barriers: u32,
    /// Warps that compute.
    pub warps: u32,
    /// Warps that only move data.
    pub producer_warps: u32,
    /// 32-bit registers of a thread that hold values at the fullest point, as estimated.
    pub live_registers: u32,
    /// Registers that a thread can have, when one tile block is on a multiprocessor.
    pub available_registers: u32,
    /// The tile of which a thread holds most.
    largest: Option<Largest>,
}

/// A tile, and how many registers of a thread it takes.
#[derive(Clone, Debug, PartialEq)]
struct Largest {
    registers: u32,
    place: Option<Location>,
    elem: String,
    shape: Vec<i64>,
}

/// Registers of a multiprocessor, and most of a thread.

impl CodeRemarks {
    /// Loads and stores in the order in which they were lowered.
    pub fn accesses(&self) -> impl Iterator<Item = &Access> {
        self.accesses.iter().map(|(_, access)| access)
    }

    /// Matrix products in the order in which they were lowered.
    pub fn products(&self) -> impl Iterator<Item = &Product> {
        self.products.iter().map(|(_, product)| product)
    }

    /// Notes the way of the tile of a load or store; the first word about an op counts.
    pub(super) fn access(&mut self, module: &Module, id: OpId, tile: Value, way: Way) {
        if self.accesses.iter().any(|(known, _)| *known == id) {
            return;
        }
        let op = module.op(id);
        let access = Access {
            place: module.location(op.loc).cloned(),
            writes: !op.results.contains(&tile),
            elem: module.dtype(tile),
            shape: module.shape(tile).to_vec(),
            way,
        };
        self.accesses.push((id, access));
    }

    /// Notes a tile that takes so many registers of a thread.
    pub(super) fn tile(&mut self, module: &Module, id: OpId, tile: Value, registers: u32) {
        if self.largest.as_ref().is_none_or(|largest| largest.registers < registers)
            && let Some((elem, shape)) = module.ty(tile).as_tile()
        {
            let (elem, shape) = (elem.to_string(), shape.to_vec());
            self.largest = Some(Largest { registers, place: module.location(module.op(id).loc).cloned(), elem, shape });
        }
    }

    /// What to do about values that are not in registers for a lack of them: so many times as many are needed as there
    /// are, or more.
    pub fn overfull(&self, times: u32) -> Option<String> {
        let (needed, there) = (self.live_registers, self.available_registers);
        if needed < times * there || there == 0 {
            return None;
        }
        let tile = self.largest.as_ref().map_or(String::new(), |Largest { registers, place: at, elem, shape }| {
            format!(" (the largest tile, {elem} {shape:?}, takes {registers}: {})", place(at))
        });
        Some(format!(
            "some {needed} registers of a thread are needed{tile}, and there are {there}: the rest is in memory, which is \
             slow; take smaller tiles, or more warps"
        ))
    }

    /// Notes the instructions of a matrix product, whose operands and result have these extents: those among `lines` that
    /// multiply matrices.
    pub(super) fn product(&mut self, module: &Module, id: OpId, shapes: [Vec<i64>; 3], lines: &[Line]) {
        if self.products.iter().any(|(known, _)| *known == id) {
            return;
        }
        let multiplies =
            |line: &&Line| matches!(line, Line::Inst(Inst { op: Opcode::Mma { .. } | Opcode::Wgmma { .. }, .. }));
        let found: Vec<&Line> = lines.iter().filter(multiplies).collect();
        let (instruction, count) = match found.first() {
            Some(Line::Inst(inst)) => (inst.op.to_string(), found.len()),
            _ => ("fma".to_owned(), lines.iter().filter(|line| matches!(line, Line::Inst(_))).count()),
        };
        let op = module.op(id);
        let product = Product { place: module.location(op.loc).cloned(), shapes, instruction, count: count as u32 };
        self.products.push((id, product));
    }

    /// Notes what loops do not get.
    pub(super) fn unmet(&mut self, module: &Module, unmet: Vec<(OpId, String)>) {
        let at = |id: OpId| module.location(module.op(id).loc).cloned();
        self.loops.extend(unmet.into_iter().map(|(id, what)| (at(id), what)));
    }

    /// Adds what only the finished code tells.
    pub(super) fn finish(&mut self, function: &Function, warps: u32) {
        let barrier = |line: &&Line| matches!(line, Line::Inst(Inst { op: Opcode::BarSync, .. }));
        self.barriers = function.lines.iter().filter(barrier).count() as u32;
        self.warps = warps;
        self.producer_warps =
            (function.threads / WARP_SIZE).saturating_sub(warps * self.teams.or(self.bands).unwrap_or(1));
        self.live_registers = super::opt::register_pressure::live_registers(function);
        // Warps that compute beside a producer take registers that it gives up.
        let taken = function.lines.iter().filter_map(|line| match line {
            Line::Inst(Inst { op: Opcode::SetMaxNReg { inc: true }, srcs, .. }) => match srcs[..] {
                [Arg::One(Operand::Imm(count))] => u32::try_from(count).ok(),
                _ => None,
            },
            _ => None,
        });
        let share = (REGISTERS_PER_SM / function.threads.max(1)).min(MAX_REGISTERS_PER_THREAD);
        self.available_registers = taken.fold(share, u32::max);
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = |count: u32| if count == 1 { "once".to_owned() } else { format!("{count} times") };
        match *self {
            Way::Threads { count, bytes, ragged } => {
                write!(f, "by threads, {bytes} bytes {}", times(count))?;
                if ragged { write!(f, "; tiles at the end element by element") } else { Ok(()) }
            }
            Way::Ahead { bytes, stages } => write!(f, "cp.async of {bytes} bytes into {stages} stages"),
            Way::Streamed { boxes: 0, stages, .. } => {
                write!(f, "TMA into {stages} stages by a producer, in the boxes of its neighbour")
            }
            Way::Streamed { boxes, stages, blocks } => {
                write!(f, "TMA into {stages} stages by a producer, boxes: {boxes}")?;
                if blocks > 1 { write!(f, ", multicast over {blocks} blocks") } else { Ok(()) }
            }
            Way::Boxes { boxes } => write!(f, "TMA, boxes: {boxes}"),
        }
    }
}

/// Extents as in `64x32`.
fn extents(shape: &[i64]) -> String {
    shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
}

fn place(place: &Option<Location>) -> String {
    place.as_ref().map_or_else(|| "?".to_owned(), ToString::to_string)
}

impl fmt::Display for CodeRemarks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for access in self.accesses() {
            let verb = if access.writes { "store" } else { "load" };
            let (at, shape) = (place(&access.place), extents(&access.shape));
            writeln!(f, "  {at}: {verb} {shape} {}: {}", access.elem, access.way)?;
        }
        for product in self.products() {
            let [a, b, c] = product.shapes.each_ref().map(|shape| extents(shape));
            writeln!(
                f,
                "  {}: {a} times {b} to {c}: {} x {}",
                place(&product.place),
                product.count,
                product.instruction
            )?;
        }
        let kinds = [
            (self.through_shared, "changes of layout through shared memory"),
            (self.shuffled, "changes of layout by shuffles"),
            (self.across_warps, "reductions across warps"),
            (self.barriers, "barriers"),
        ];
        let found: Vec<String> =
            kinds.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{what}: {count}")).collect();
        if !found.is_empty() {
            writeln!(f, "  {}", found.join(", "))?;
        }
        if let Some(reason) = self.alone {
            writeln!(f, "  no clusters: {reason}")?;
        }
        if let Some(reason) = &self.whole {
            writeln!(f, "  no bands of rows: {reason}")?;
        }
        for (at, what) in &self.loops {
            writeln!(f, "  {}: loop: {what}", place(at))?;
        }
        if let Some([wished, possible]) = self.crowded {
            writeln!(f, "  occupancy: {possible}, for registers and shared memory do not allow {wished}")?;
        }
        if let Some(reason) = &self.plain {
            writeln!(f, "  no copy engine: {reason}")?;
        }
        write!(f, "  warps: {}", self.warps)?;
        if let Some(teams) = self.teams {
            write!(f, " in each of {teams} teams, which take tiles in turn")?;
        }
        if let Some(bands) = self.bands {
            write!(f, " in each of {bands} bands of rows")?;
        }
        if self.producer_warps > 0 {
            write!(f, " and {} that only move data", self.producer_warps)?;
        }
        writeln!(f, ", live registers: {}", self.live_registers)?;
        self.considered.iter().try_for_each(|plan| writeln!(f, "  plan: {plan}"))?;
        self.overfull(1).map_or(Ok(()), |what| writeln!(f, "  {what}"))
    }
}
