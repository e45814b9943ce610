//! Roles of the warps of a tile block: which loads a producer streams to the consumers.
//!
//! On sm_90a a load whose tile goes only to operands of `wgmma` need not pass through registers: one thread
//! of a further warpgroup, the *producer*, has the copy engine bring it to shared memory, while the
//! *consumers*, the warps that all layouts speak of, multiply what came before. The producer runs the same
//! program, reduced to the control flow around such loads and the scalars that their indices depend on
//! (the *slice*). So it runs ahead over loop iterations, and over whole tiles of a persistent kernel.
//!
//! Loads of one block that feed the same products share a *channel*: a ring of stages in shared memory
//! (`ring`). Here is decided what is streamed; nothing is emitted.

use std::collections::{HashMap, HashSet};

use super::Lowering;
use super::cluster::Pairs;
use super::print::PRINT_BYTES;
use super::slice::Slicer;
use crate::backend::ptx::infer::{Source, ViewShape, as_axes, contiguous_axis, stored};
use crate::backend::ptx::mma::{OperandPlan, Panels};
use crate::backend::ptx::plan::WARP;
use crate::backend::ptx::tensor_map::{Swizzle, TensorMap};
use crate::dtype::DType;
use crate::ir::{BlockId, Module, OpId, Opcode, Rounding, Value};
use crate::layout::{Conversion, Layout};

/// Most threads of a tile block.
const MOST_THREADS: u32 = 1024;
/// Most rows of one box of the copy engine.
const BOX_ROWS: i64 = 256;
/// Rows of a swizzle pattern.
const PATTERN_ROWS: i64 = 8;
/// Alignment of an operand in a stage: a whole swizzle pattern.
const ALIGN: u32 = 1024;
/// Stages with which an innermost loop runs far enough ahead that other loads may have theirs.
const AHEAD_STAGES: u32 = 4;
/// Most stages of a ring; more do not hide more.
const MOST_STAGES: u32 = 8;
/// Shared memory that is left for layout changes, if there are any.
const CONVERSION_BYTES: u32 = 32 << 10;
/// Shared memory for barriers, and lost to alignment.
const SLACK_BYTES: u32 = 2 << 10;

/// What is streamed.
pub struct Roles {
    /// Loads that arrive together, in program order.
    pub channels: Vec<Channel>,
    /// The rings.
    pub rings: Vec<RingPlan>,
    /// Channel of each streamed load.
    pub members: HashMap<OpId, usize>,
    /// Ops that the producer runs.
    pub slice: HashSet<OpId>,
    /// Carried values and results of region ops that the producer needs.
    pub carried: HashSet<Value>,
    /// What pairs of tile blocks share, if they are launched in pairs.
    pub pairs: Option<Pairs>,
}

/// Loads that arrive together.
pub struct Channel {
    /// The block that they stand in.
    pub block: BlockId,
    /// In program order.
    pub loads: Vec<Streamed>,
    /// Bytes of a stage.
    pub stage_bytes: u32,
    /// The ring that they go through.
    pub ring: usize,
    /// The last op of the block that uses them (or has a region that does).
    pub last: OpId,
    /// Some use is in a region of its own: the tile is waited for where it is loaded.
    pub early: bool,
}

/// Stages of shared memory. Channels of loops that follow each other share a ring: the producer may then
/// fill stages for the next loop before the one before has ended.
#[derive(Clone, Copy, Debug)]
pub struct RingPlan {
    /// Bytes of a stage.
    pub stage_bytes: u32,
    /// Number of stages.
    pub stages: u32,
    /// A pair of tile blocks fills them together.
    pub paired: bool,
    repeats: Repeats,
}

/// How often the loads of a ring are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeats {
    /// Once.
    Once,
    /// In each iteration of a loop that contains other loops with loads.
    Outer,
    /// Again and again while others stay.
    Inner,
}

/// Bytes of all stages.
fn used_bytes(rings: &[RingPlan]) -> u32 {
    rings.iter().map(|ring| ring.stages * ring.stage_bytes).sum()
}

/// A load that the producer makes.
pub struct Streamed {
    /// The op.
    pub load: OpId,
    /// Where its tile stands in a stage.
    pub offset: u32,
    /// What the copy engine is told.
    pub map: TensorMap,
    /// The parts of its tile, and of those that stand with it; none of a tile that stands with another one.
    pub boxes: Vec<Box>,
    bytes: u32,
    /// Rows of the panels that it stands in.
    pub rows: i64,
    feed: Feed,
}

/// A box that the copy engine moves at once.
#[derive(PartialEq, Eq)]
pub struct Box {
    /// Its first element in the tile, by tile dimension.
    pub place: Vec<i64>,
    /// Its first byte within the tile's place in the stage.
    pub at: u32,
}

impl Channel {
    /// Bytes that arrive in a stage.
    pub fn bytes(&self) -> u32 {
        self.loads.iter().map(|load| load.bytes).sum()
    }

    /// Do both load the same boxes of the same arrays?
    fn has_loads_of(&self, other: &Channel) -> bool {
        let same = |(a, b): (&Streamed, &Streamed)| a.map == b.map && a.boxes == b.boxes;
        self.loads.len() == other.loads.len() && self.loads.iter().zip(&other.loads).all(same)
    }
}

/// Ops by what they stand in and who uses them.
pub struct Structure {
    /// The op that a block is a region of.
    pub owners: HashMap<BlockId, OpId>,
    users: HashMap<Value, Vec<OpId>>,
}

/// A candidate: the products that it feeds, and how they want it.
#[derive(Clone)]
struct Feed {
    products: Vec<OpId>,
    panels: Panels,
    /// Tile dimensions of the view: the contiguous one, and that of the rows.
    axes: [usize; 2],
    /// The array has f32, the products want tf32.
    rounded: bool,
    /// Do instructions read it where it is, in panels of any number of rows?
    direct: bool,
    bytes: u32,
}

impl Feed {
    fn wants_the_same(&self, other: &Feed) -> bool {
        (self.panels, self.axes, self.rounded) == (other.panels, other.axes, other.rounded)
    }
}

impl Lowering<'_> {
    /// The roles of the warps. As many blocks as wished may leave too little shared memory for one stage, and then they
    /// do not fit without roles either: so fewer blocks are taken.
    pub fn plan_roles_within_wish(&mut self, body: BlockId) -> Option<Roles> {
        let wished = self.options.occupancy;
        for blocks in (1..=self.blocks_of_roles()).rev() {
            self.options.occupancy = wished.map(|_| blocks);
            if let Some(roles) = self.plan_paired_roles(body) {
                return Some(roles);
            }
        }
        self.options.occupancy = wished;
        None
    }

    /// The loads that a producer should make, if there are any in a loop. `pairs`: what tile blocks may share, of
    /// which there should be two boxes.
    pub fn plan_roles(&self, body: BlockId, pairs: Option<&Pairs>) -> Option<Roles> {
        let target = self.inference.target;
        let options = &self.options;
        let threads = (self.inference.num_warps as u32 + self.producer_warps()) * WARP;
        let able = target.arch == 90 && target.accelerated && threads <= MOST_THREADS;
        if !able || !options.tma || options.stages == Some(1) || self.has_print(body) || self.leaves_amid(body) {
            return None;
        }
        let structure = self.structure(body);
        let mut roles = Roles {
            channels: Vec::new(),
            rings: Vec::new(),
            members: HashMap::new(),
            slice: HashSet::new(),
            carried: HashSet::new(),
            pairs: None,
        };
        let mut keys: Vec<(BlockId, Vec<OpId>)> = Vec::new();
        let mut loads = Vec::new();
        self.module.walk(body, &mut |id| loads.push(id));
        loads.retain(|&id| self.module.op(id).code == Opcode::LoadView && self.allows_copy_engine(id));
        for load in loads {
            let Some(feed) = self.feed_of(load, &structure) else { continue };
            let halved = pairs.is_some_and(|pairs| pairs.may_share(load));
            let Some((map, boxes)) = self.boxes_of(load, &feed, halved) else { continue };
            let Some(slice) = Slicer::of_load(self, &structure, load) else { continue };
            roles.slice.extend(slice.ops);
            roles.carried.extend(slice.carried);
            let block = self.op_blocks[load.index()]?;
            // Products that are issued together are done with what they read at the same time.
            let mut products: Vec<OpId> = feed.products.iter().map(|&product| self.bundles.last(product)).collect();
            products.dedup();
            let key = (block, products.clone());
            let index = keys.iter().position(|k| *k == key).unwrap_or_else(|| {
                keys.push(key);
                let (last, early) = self.lifetime(block, &products, &structure);
                roles.channels.push(Channel { block, loads: Vec::new(), stage_bytes: 0, ring: 0, last, early });
                keys.len() - 1
            });
            let (bytes, rows) = (feed.bytes, feed.panels.rows);
            roles.channels[index].loads.push(Streamed { load, offset: 0, map, boxes, bytes, rows, feed });
            roles.members.insert(load, index);
        }
        for channel in &mut roles.channels {
            self.place_loads(channel, pairs);
        }
        let in_loop = |channel: &Channel| self.loop_of(channel.block, &structure).is_some();
        (roles.channels.iter().any(in_loop) && self.choose_stages(body, &mut roles, &structure)).then_some(roles)
    }

    fn structure(&self, body: BlockId) -> Structure {
        let mut structure = Structure { owners: HashMap::new(), users: HashMap::new() };
        self.module.walk(body, &mut |id| {
            let op = self.module.op(id);
            structure.owners.extend(op.regions.iter().map(|&region| (region, id)));
            for &operand in &op.operands {
                structure.users.entry(operand).or_default().push(id);
            }
        });
        structure
    }

    /// The products that a load feeds, if it feeds nothing else, as tiles that all have the same panels.
    fn feed_of(&self, load: OpId, structure: &Structure) -> Option<Feed> {
        let module = self.module;
        let result = module.op(load).results[0];
        let identity = (0..module.shape(result).len()).map(Some).collect();
        let mut feed: Option<Feed> = None;
        let mut pending: Vec<(Value, Vec<Option<usize>>, bool)> = vec![(result, identity, false)];
        while let Some((value, axes, rounded)) = pending.pop() {
            for &user in structure.users.get(&value)? {
                let op = module.op(user);
                match op.code {
                    Opcode::Assume => pending.push((op.results[0], axes.clone(), rounded)),
                    Opcode::FToF if rounds_to_tf32(module, user) => pending.push((op.results[0], axes.clone(), true)),
                    Opcode::Permute => {
                        let permutation = as_axes(op.permutation());
                        let axes = permutation.iter().map(|&axis| axes[axis]).collect();
                        pending.push((op.results[0], axes, rounded));
                    }
                    Opcode::Reshape => {
                        let (from, to) = (module.shape(value), module.shape(op.results[0]));
                        pending.push((op.results[0], without_unit_axes(from, to, &axes)?, rounded));
                    }
                    Opcode::MmaF | Opcode::MmaI => {
                        let plan = self.inference.products.get(&user)?.as_ref().ok()?;
                        if op.operands[2] == value || op.operands[0] == op.operands[1] {
                            return None;
                        }
                        let is_left = op.operands[0] == value;
                        let operand = if is_left { &plan.a } else { &plan.b };
                        let this = Feed {
                            rounded,
                            direct: !operand.rounds,
                            ..self.operand_feed(user, operand, is_left, &axes, value)?
                        };
                        match &mut feed {
                            None => feed = Some(this),
                            Some(feed) if feed.wants_the_same(&this) => feed.products.push(user),
                            Some(_) => return None,
                        }
                    }
                    _ => return None,
                }
            }
        }
        let mut feed = feed?;
        feed.products.sort_by_key(|op| op.index());
        Some(feed)
    }

    fn operand_feed(
        &self,
        product: OpId,
        plan: &OperandPlan,
        is_left: bool,
        axes: &[Option<usize>],
        value: Value,
    ) -> Option<Feed> {
        let panels = plan.panels?;
        if plan.dtype != self.module.dtype(value) {
            return None;
        }
        let last = axes.len() - 1;
        let (k, other) = if is_left { (last, last - 1) } else { (last - 1, last) };
        let (contiguous, rows) = if panels.along_k { (k, other) } else { (other, k) };
        let bytes = plan.shared.bytes() as u32;
        let axes = [axes[contiguous]?, axes[rows]?];
        Some(Feed { products: vec![product], panels, axes, rounded: false, direct: true, bytes })
    }

    /// The boxes of a load, if the copy engine can bring its tile as it is wanted. `halved`: a single box is cut in
    /// two, if the halves are whole swizzle patterns.
    fn boxes_of(&self, load: OpId, feed: &Feed, halved: bool) -> Option<(TensorMap, Vec<Box>)> {
        let module = self.module;
        let op = module.op(load);
        let view = op.group(0)[0];
        let shape = ViewShape::of(module, view)?;
        let [contiguous, rows] = feed.axes;
        if !self.is_steady(load) || contiguous_axis(module, &shape) != Some(contiguous) {
            return None;
        }
        let Panels { span, rows: count, count: panels, .. } = feed.panels;
        let row = span / i64::from(shape.elem.storage_bits() / 8);
        let parts = |least: i64| {
            let fits = |parts: &i64| {
                let high = count / parts;
                count % parts == 0 && high <= BOX_ROWS && (*parts == 1 || high % PATTERN_ROWS == 0)
            };
            (least..=count / PATTERN_ROWS).find(fits)
        };
        let fewest = parts(1)?;
        let pair = if halved && panels * fewest == 1 { parts(2).filter(|parts| parts % 2 == 0) } else { None };
        let high = count / pair.unwrap_or(fewest);
        let mut extents = vec![1; shape.tile.len()];
        extents[contiguous] = row;
        extents[rows] = high;
        let swizzle = match span {
            128 => Swizzle::B128,
            64 => Swizzle::B64,
            _ => Swizzle::B32,
        };
        let map = self.tma_map(view, &extents, swizzle, feed.rounded)?;
        let mut boxes = Vec::new();
        for panel in 0..panels {
            for part in 0..count / high {
                let mut place = vec![0; shape.tile.len()];
                place[contiguous] = panel * row;
                place[rows] = part * high;
                boxes.push(Box { place, at: ((panel * count + part * high) * span) as u32 });
            }
        }
        Some((map, boxes))
    }

    /// Gives the loads of a channel their places in a stage. Tiles that are neighbours in their array along the rows of
    /// panels become panels of all their rows, which are copied together.
    fn place_loads(&self, channel: &mut Channel, pairs: Option<&Pairs>) {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (index, load) in channel.loads.iter().enumerate() {
            let fits = |group: &&mut Vec<usize>| {
                let first = &channel.loads[group[0]];
                let before: i64 = group.iter().map(|&other| channel.loads[other].rows).sum();
                let alike = Panels { rows: first.rows, ..load.feed.panels } == first.feed.panels
                    && (first.feed.axes, first.feed.rounded) == (load.feed.axes, load.feed.rounded);
                let axis = load.feed.axes[1];
                // The tiles of all of them do not overlap with those at the next index.
                let step =
                    ViewShape::of(self.module, self.module.op(first.load).group(0)[0]).map(|shape| shape.steps[axis]);
                alike
                    && first.feed.direct
                    && load.feed.direct
                    && step.is_some_and(|step| before + load.rows <= step)
                    && self.lies_behind(load.load, first.load, axis, before)
            };
            match groups.iter_mut().find(fits) {
                Some(group) => group.push(index),
                None => groups.push(vec![index]),
            }
        }
        let mut end = 0;
        for group in groups {
            let first = &channel.loads[group[0]];
            let span = first.feed.panels.span;
            let rows = group.iter().map(|&index| channel.loads[index].rows).sum();
            let bytes = group.iter().map(|&index| channel.loads[index].bytes).sum();
            let whole = Feed { panels: Panels { rows, ..first.feed.panels }, ..first.feed.clone() };
            let halved = pairs.is_some_and(|pairs| pairs.may_share(first.load));
            let together = if group.len() > 1 { self.boxes_of(first.load, &whole, halved) } else { None };
            let mut offset = u32::next_multiple_of(end, (PATTERN_ROWS * span) as u32);
            for (number, &index) in group.iter().enumerate() {
                let load = &mut channel.loads[index];
                load.offset = offset;
                match &together {
                    Some((map, _)) => {
                        offset += (load.rows * span) as u32;
                        (load.rows, load.bytes, load.boxes) = (rows, 0, Vec::new());
                        load.map = map.clone();
                    }
                    None if number + 1 < group.len() => offset = (offset + load.bytes).next_multiple_of(ALIGN),
                    None => offset += load.bytes,
                }
            }
            if let Some((_, boxes)) = together {
                let first = &mut channel.loads[group[0]];
                (first.bytes, first.boxes) = (bytes, boxes);
                offset = first.offset + bytes;
            }
            end = offset;
        }
        channel.stage_bytes = end.next_multiple_of(ALIGN);
    }

    /// The last op of a block that these products stand in, and whether one is in a region of its own.
    fn lifetime(&self, block: BlockId, products: &[OpId], structure: &Structure) -> (OpId, bool) {
        let mut early = false;
        let mut users = HashSet::new();
        for &product in products {
            let mut op = product;
            while self.op_blocks[op.index()] != Some(block) {
                early = true;
                let inner = self.op_blocks[op.index()].expect("a block of the entry");
                op = structure.owners[&inner];
            }
            users.insert(op);
        }
        let last = self.module.block(block).ops.iter().rfind(|op| users.contains(op));
        (*last.expect("a product in the block"), early)
    }

    /// The innermost loop around a block.
    fn loop_of(&self, block: BlockId, structure: &Structure) -> Option<OpId> {
        let mut block = block;
        loop {
            let owner = *structure.owners.get(&block)?;
            if matches!(self.module.op(owner).code, Opcode::For | Opcode::Loop) {
                return Some(owner);
            }
            block = self.op_blocks[owner.index()]?;
        }
    }

    /// Divides shared memory among the rings; false if it is too small for one stage each.
    ///
    /// What innermost loops load gets stages until it runs far enough ahead; then what a loop around them
    /// loads gets a second one, so that it is there when its next iteration begins; then innermost loops
    /// get the rest.
    fn choose_stages(&self, body: BlockId, roles: &mut Roles, structure: &Structure) -> bool {
        let streamed = |load| roles.members.contains_key(&load);
        let rest = self.other_shared_bytes(body, &streamed, true) + SLACK_BYTES;
        let Some(room) = self.room_for_stages().checked_sub(rest) else { return false };
        self.share_rings(roles, structure);
        for ring in &mut roles.rings {
            ring.stages = if ring.repeats == Repeats::Inner { 2 } else { 1 };
        }
        if used_bytes(&roles.rings) > room {
            roles.rings.iter_mut().for_each(|ring| ring.stages = 1);
        }
        if used_bytes(&roles.rings) > room {
            return false;
        }
        let wanted: Vec<u32> = (0..roles.rings.len()).map(|ring| self.stages_of_ring(roles, ring)).collect();
        for (repeats, limit) in [(Repeats::Inner, AHEAD_STAGES), (Repeats::Outer, 2), (Repeats::Inner, u32::MAX)] {
            let mut grown = true;
            while std::mem::take(&mut grown) {
                for (index, &wanted) in wanted.iter().enumerate() {
                    let fits = used_bytes(&roles.rings) + roles.rings[index].stage_bytes <= room;
                    let ring = &mut roles.rings[index];
                    let most = if repeats == Repeats::Outer { limit } else { limit.min(wanted) };
                    if ring.repeats == repeats && ring.stages < most && fits {
                        ring.stages += 1;
                        grown = true;
                    }
                }
            }
        }
        true
    }

    /// Stages that a ring in an innermost loop should have.
    fn stages_of_ring(&self, roles: &Roles, ring: usize) -> u32 {
        let channels = roles.channels.iter().filter(|channel| channel.ring == ring);
        let loads = channels.flat_map(|channel| channel.loads.iter().map(|streamed| streamed.load));
        self.options.stages.or_else(|| self.stages_by_latency(loads)).unwrap_or(MOST_STAGES).max(2)
    }

    /// Gives each channel a ring. Two channels share one if neither holds a stage while the other one goes
    /// round; best are channels of the same array, such as a loop and what was peeled off it.
    fn share_rings(&self, roles: &mut Roles, structure: &Structure) {
        let blocks: Vec<BlockId> = roles.channels.iter().map(|channel| channel.block).collect();
        let is_inner = |block: BlockId| {
            // A loop that contains another channel's loop is an outer one.
            self.loop_of(block, structure).is_some_and(|around| {
                let inside = |&other: &BlockId| {
                    self.loop_of(other, structure).is_some_and(|l| l != around && self.contains(around, l))
                };
                !blocks.iter().any(inside)
            })
        };
        let mut shared: Vec<Vec<usize>> = Vec::new();
        for (index, channel) in roles.channels.iter().enumerate() {
            let fits = |alike: bool, users: &Vec<usize>| {
                let users = users.iter().map(|&user| &roles.channels[user]);
                users.clone().all(|user| {
                    user.stage_bytes == channel.stage_bytes
                        && (!alike || user.has_loads_of(channel))
                        && (alike || is_inner(user.block) == is_inner(channel.block))
                        && self.are_apart(user, channel, structure)
                })
            };
            let found = shared.iter().position(|users| fits(true, users));
            match found.or_else(|| shared.iter().position(|users| fits(false, users))) {
                Some(ring) => shared[ring].push(index),
                None => shared.push(vec![index]),
            }
        }
        for (ring, users) in shared.iter().enumerate() {
            users.iter().for_each(|&user| roles.channels[user].ring = ring);
            let nested = users.iter().any(|&a| users.iter().any(|&b| self.encloses(blocks[a], blocks[b], structure)));
            let mut around = users.iter().map(|&user| blocks[user]);
            let repeats = if nested || around.clone().any(is_inner) {
                Repeats::Inner
            } else if around.any(|block| self.loop_of(block, structure).is_some()) {
                Repeats::Outer
            } else {
                Repeats::Once
            };
            let stage_bytes = roles.channels[users[0]].stage_bytes;
            roles.rings.push(RingPlan { stage_bytes, stages: 1, paired: false, repeats });
        }
    }

    /// Is one channel done with its stage before the other one takes any? (The product that used it may still
    /// run, unless they stand in blocks of which neither contains the other.)
    fn are_apart(&self, a: &Channel, b: &Channel, structure: &Structure) -> bool {
        let outside = |outer: &Channel, inner: &Channel| match self.op_around(outer.block, inner.block, structure) {
            Some(op) => {
                let ops = &self.module.block(outer.block).ops;
                let place = |id: OpId| ops.iter().position(|&other| other == id);
                place(op) < place(outer.loads[0].load) || place(op) > place(outer.last)
            }
            None => true,
        };
        a.block != b.block && outside(a, b) && outside(b, a)
    }

    /// The op of block `outer` whose regions lead to block `inner`.
    fn op_around(&self, outer: BlockId, inner: BlockId, structure: &Structure) -> Option<OpId> {
        let mut block = inner;
        loop {
            let owner = *structure.owners.get(&block)?;
            block = self.op_blocks[owner.index()]?;
            if block == outer {
                return Some(owner);
            }
        }
    }

    /// Does a region of an op of block `outer` lead to block `inner`?
    fn encloses(&self, outer: BlockId, inner: BlockId, structure: &Structure) -> bool {
        self.op_around(outer, inner, structure).is_some()
    }

    fn contains(&self, outer: OpId, inner: OpId) -> bool {
        let mut found = false;
        for &region in &self.module.op(outer).regions {
            self.module.walk(region, &mut |id| found |= id == inner);
        }
        found
    }

    /// Shared memory for operands that are not fetched ahead and for layout changes, perhaps also for stores by the
    /// copy engine.
    pub fn other_shared_bytes(&self, body: BlockId, fetched: &dyn Fn(OpId) -> bool, boxes: bool) -> u32 {
        let module = self.module;
        let mut operands = 0;
        let mut converts = 0;
        module.walk(body, &mut |id| {
            let op = module.op(id);
            match op.code {
                Opcode::MmaF | Opcode::MmaI => {
                    let fetched = |value| self.load_behind(value).is_some_and(fetched);
                    operands = operands.max(self.operand_bytes(&self.bundles.with(id), &fetched));
                }
                Opcode::StoreView | Opcode::AtomicRedView => {
                    let value = stored(op);
                    let boxed = self.box_stores.contains_key(&id);
                    let moved = match (self.inference.natural(value), self.inference.accesses.get(&id)) {
                        _ if boxed && !boxes => false,
                        (Some(natural), Some(access)) => !natural.is_same(access) || boxed,
                        _ => false,
                    };
                    if moved {
                        let bits = self.element_type(value).storage_bits() as usize;
                        converts = converts.max((self.inference.num_elements(value) * bits / 8) as u32);
                    }
                }
                Opcode::Reduce | Opcode::Scan => converts = converts.max(4 << 10),
                Opcode::Print => converts = converts.max(PRINT_BYTES),
                code if code.is_elementwise() => {
                    let Some(layout) = self.inference.layout(op.results[0]) else { return };
                    let each = op.operands.iter().map(|&operand| self.conversion_bytes(operand, layout));
                    converts = each.fold(converts, u32::max);
                }
                _ => {}
            }
        });
        let blocks = self.options.occupancy.unwrap_or(1).max(1);
        operands + converts.min(CONVERSION_BYTES / (blocks * blocks))
    }

    /// Shared memory that brings a value to another layout, at its best.
    fn conversion_bytes(&self, value: Value, wanted: &Layout) -> u32 {
        let maker = self.module.defining_op(value);
        match (self.inference.source(value), maker, self.inference.natural(value)) {
            (_, _, Some(natural)) if self.inference.num_elements(value) > 1 => {
                let bits = self.element_type(value).storage_bits();
                match Conversion::plan(&natural, wanted, bits, CONVERSION_BYTES as usize) {
                    Some(Conversion::Shared(plan)) => plan.bytes as u32,
                    _ => 0,
                }
            }
            (Source::Virtual, Some(id), _) => {
                self.conversion_bytes(self.module.op(id).operands[0], &self.inference.demand(id, wanted))
            }
            _ => 0,
        }
    }

    /// Bytes of a buffer for an operand.
    pub fn buffer_bytes(&self, plan: &OperandPlan) -> u32 {
        plan.shared.bytes().next_multiple_of(ALIGN as usize) as u32
    }

    /// Does an operand need no shared memory?
    pub fn comes_in_registers(&self, operand: Value, plan: &OperandPlan) -> bool {
        let (Some(wanted), Some(natural)) = (&plan.registers, self.inference.natural(operand)) else { return false };
        matches!(
            Conversion::plan(&natural, wanted, plan.dtype.storage_bits(), 0),
            Some(Conversion::Identity | Conversion::Registers(_))
        )
    }

    /// The load that a value is another view of, perhaps rounded to tf32.
    pub fn load_behind(&self, value: Value) -> Option<OpId> {
        let mut id = self.module.defining_op(value)?;
        while self.passes_on(id) {
            id = self.module.defining_op(self.module.op(id).operands[0])?;
        }
        (self.module.op(id).code == Opcode::LoadView).then_some(id)
    }

    /// Does this op pass its operand on as whoever fetches it can: as it is, or rounded to tf32?
    pub fn passes_on(&self, id: OpId) -> bool {
        let renames = matches!(self.module.op(id).code, Opcode::Permute | Opcode::Reshape | Opcode::Assume);
        renames || rounds_to_tf32(self.module, id)
    }
}

/// Is this the conversion of f32 that the copy engine and the products make themselves?
pub fn rounds_to_tf32(module: &Module, id: OpId) -> bool {
    let op = module.op(id);
    op.code == Opcode::FToF
        && module.dtype(op.operands[0]) == DType::F32
        && module.dtype(op.results[0]) == DType::TF32
        && op.rounding() == Rounding::NearestEven
}

/// Axes after a reshape that only adds or drops axes of extent 1.
fn without_unit_axes(from: &[i64], to: &[i64], axes: &[Option<usize>]) -> Option<Vec<Option<usize>>> {
    let mut rest = from.iter().zip(axes).filter(|(extent, _)| **extent > 1);
    let mut result = Vec::new();
    for &extent in to {
        result.push(match extent {
            1 => None,
            _ => {
                let (&before, &axis) = rest.next()?;
                (before == extent).then_some(axis)?
            }
        });
    }
    rest.next().is_none().then_some(result)
}
