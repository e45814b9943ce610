//! Warp specialization: which loads the producer issues, into which pipelines.
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

use super::cluster_multicast::CLUSTER_SIZE;
use super::producer_slice::{ProducerSlice, SliceBuilder};
use crate::backend::ptx::hardware::{
    MAX_THREADS_PER_CTA, MAX_TMA_BOX, SWIZZLE_ATOM_BYTES, SWIZZLE_ATOM_ROWS, WARP_SIZE,
};
use crate::backend::ptx::layout_inference::{ViewShape, as_axes, contiguous_axis};
use crate::backend::ptx::mma::{OperandPlan, Panels};
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::kernel_info::rounds_to_tf32;
use crate::backend::ptx::schedule::analysis::region_tree::RegionTree;
use crate::backend::ptx::schedule::ir::pipelines::{
    Channel, ClusterMulticast, PINGPONG_GROUPS, TmaBox, TmaLoad, WarpSpecialization,
};
use crate::backend::ptx::schedule::ir::rejected_loads::{Reason, Unstreamed};
use crate::backend::ptx::smem::allocation::SharedMemory;
use crate::backend::ptx::tensor_map::{Swizzle, TensorMap};
use crate::ir::{BlockId, OpId, Opcode, Value};

/// A candidate: the products that it feeds, and how they want it.
#[derive(Clone)]
struct OperandUse {
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

/// A load that a producer makes: its products, its boxes, and what the producer runs for it.
struct Stream {
    feed: OperandUse,
    map: TensorMap,
    boxes: Vec<TmaBox>,
    slice: ProducerSlice,
}

impl OperandUse {
    /// Does the tile stand in the same place for both? One may sum along the rows of its panels, and the other one across.
    fn wants_the_same(&self, other: &OperandUse) -> bool {
        let panels = Panels { along_k: self.panels.along_k, ..other.panels };
        (self.panels, self.axes, self.rounded) == (panels, other.axes, other.rounded)
    }
}

/// The roles of the warps, and what the decision leaves to say.
pub struct PlannedRoles {
    pub roles: Option<WarpSpecialization>,
    /// The reason why pairs of tile blocks share nothing although that is wished.
    pub alone: Option<&'static str>,
    pub unstreamed: Unstreamed,
}

impl KernelInfo<'_> {
    /// The roles of the warps. As many blocks as wished may leave too little shared memory for one stage, and then they
    /// do not fit without roles either: so fewer blocks are taken.
    pub fn plan_warp_specialization(&mut self, body: BlockId, shared: &SharedMemory) -> PlannedRoles {
        let (wished, mut alone, mut unstreamed) = (self.options.occupancy, None, Unstreamed::default());
        for blocks in (1..=self.blocks_of_roles()).rev() {
            self.options.occupancy = wished.map(|_| blocks);
            match self.plan_paired_roles(body, shared, &mut alone) {
                Ok((roles, unstreamed)) => {
                    return PlannedRoles { roles: Some(self.in_teams(body, shared, roles)), alone, unstreamed };
                }
                Err(reasons) => unstreamed = reasons,
            }
        }
        self.options.occupancy = wished;
        PlannedRoles { roles: None, alone, unstreamed }
    }

    /// The roles, with the iterations of a persistent loop dealt to teams where that is possible.
    fn in_teams(&mut self, body: BlockId, shared: &SharedMemory, roles: WarpSpecialization) -> WarpSpecialization {
        if self.deal(body, &roles).is_none() {
            return roles;
        }
        self.teams = PINGPONG_GROUPS;
        let dealt = self.plan_paired_roles(body, shared, &mut None).ok();
        let dealt =
            dealt.and_then(|(dealt, _)| Some(WarpSpecialization { pingpong: Some(self.deal(body, &dealt)?), ..dealt }));
        dealt.unwrap_or_else(|| {
            self.teams = 1;
            roles
        })
    }

    /// The roles of the warps, in pairs of blocks where that is wished and possible.
    fn plan_paired_roles(
        &self,
        body: BlockId,
        shared: &SharedMemory,
        alone: &mut Option<&'static str>,
    ) -> Result<(WarpSpecialization, Unstreamed), Unstreamed> {
        let planned = self.plan_roles(body, None, shared);
        if self.options.num_ctas.unwrap_or(1) < CLUSTER_SIZE {
            return planned;
        }
        if self.bands > 1 {
            *alone = Some("bands of rows share what is loaded");
            return planned;
        }
        let paired = match &planned {
            Ok((roles, _)) => self.plan_multicast(body, &roles.producer_ops, roles.operand_channel.keys().copied()),
            Err(_) => Err("no load is streamed"),
        };
        let paired = paired.and_then(|pairs| self.paired_roles(body, pairs, shared).ok_or("no load has two boxes"));
        match paired {
            Ok(paired) => planned.map(|(_, unstreamed)| (paired, unstreamed)),
            Err(reason) => {
                *alone = Some(reason);
                planned
            }
        }
    }

    /// The roles with two boxes at least of what is shared.
    fn paired_roles(
        &self,
        body: BlockId,
        mut pairs: ClusterMulticast,
        shared: &SharedMemory,
    ) -> Option<WarpSpecialization> {
        let (mut roles, _) = self.plan_roles(body, Some(&pairs), shared).ok()?;
        let loads = || roles.channels.iter().flat_map(|channel| &channel.loads);
        pairs.multicast_loads.retain(|&id, _| loads().any(|load| load.load == id && load.boxes.len() > 1));
        for channel in &roles.channels {
            roles.pipelines[channel.pipeline].clustered |=
                channel.loads.iter().any(|load| pairs.can_multicast(load.load));
        }
        let any = !pairs.multicast_loads.is_empty();
        roles.multicast = Some(pairs);
        any.then_some(roles)
    }

    /// The loads that a producer should make, if there are any in a loop, and the reasons why it makes no others. `pairs`: what
    /// tile blocks may share, of which there should be two boxes.
    fn plan_roles(
        &self,
        body: BlockId,
        pairs: Option<&ClusterMulticast>,
        shared: &SharedMemory,
    ) -> Result<(WarpSpecialization, Unstreamed), Unstreamed> {
        self.can_stream(body).map_err(Unstreamed::all)?;
        let structure = self.structure(body);
        let mut roles = WarpSpecialization {
            channels: Vec::new(),
            pipelines: Vec::new(),
            operand_channel: HashMap::new(),
            aux_channel: HashMap::new(),
            producer_ops: HashSet::new(),
            producer_live: HashSet::new(),
            multicast: None,
            pingpong: None,
            data_partitions: self.bands,
        };
        let mut keys: Vec<(BlockId, Vec<OpId>)> = Vec::new();
        let (mut loads, mut feeds, mut unstreamed) = (Vec::new(), HashMap::new(), Unstreamed::default());
        self.module.walk(body, &mut |id| loads.push(id));
        loads.retain(|&id| self.module.op(id).code == Opcode::LoadView);
        for load in loads {
            let Some(block) = self.op_blocks[load.index()] else { continue };
            let stream = match self.stream_of(load, block, (&structure, pairs)) {
                Ok(stream) => stream,
                Err(reason) => {
                    unstreamed.loads.insert(load, reason);
                    continue;
                }
            };
            let Stream { feed, map, boxes, slice } = stream;
            roles.producer_ops.extend(slice.ops);
            roles.producer_live.extend(slice.carried);
            // Products that are issued together are done with what they read at the same time.
            let mut products: Vec<OpId> = feed.products.iter().map(|&product| self.bundles.last(product)).collect();
            products.dedup();
            let key = (block, products.clone());
            let index = keys.iter().position(|k| *k == key).unwrap_or_else(|| {
                keys.push(key);
                let (last, early) = self.lifetime(block, &products, &structure);
                let (loads, stage_bytes, ring) = (Vec::new(), 0, 0);
                roles.channels.push(Channel {
                    block,
                    loads,
                    stage_bytes,
                    pipeline: ring,
                    last_use: last,
                    wait_at_acquire: early,
                    staging_for: None,
                });
                keys.len() - 1
            });
            let (bytes, rows) = (feed.bytes, feed.panels.rows);
            let one = TmaLoad { load, smem_offset: 0, map, boxes, bytes, panel_rows: rows, partitions: 1 };
            roles.channels[index].loads.push(self.of_all_bands(one));
            feeds.insert(load, feed);
            roles.operand_channel.insert(load, index);
        }
        for channel in &mut roles.channels {
            self.place_loads(channel, &feeds, pairs);
        }
        self.add_aux_loads(&structure, &mut roles, body);
        if !roles.channels.iter().any(|channel| self.enclosing_loop(channel.block, &structure).is_some()) {
            return Err(unstreamed);
        }
        match self.assign_stage_counts(body, &mut roles, &structure, shared) {
            Ok(()) => Ok((roles, unstreamed)),
            Err(reason) => Err(Unstreamed { all: Some(reason), ..unstreamed }),
        }
    }

    /// Returns the reason why the kernel can have no producer: of the target, the threads of a tile block, or its body.
    fn can_stream(&self, body: BlockId) -> Result<(), Reason> {
        let target = self.inference.target;
        let count = (self.consumer_warps() + self.producer_warps()) * WARP_SIZE;
        match () {
            () if target.arch != 90 || !target.accelerated => Err(Reason::Target),
            () if !self.options.tma => Err(Reason::NoMaps),
            () if count > MAX_THREADS_PER_CTA => Err(Reason::Threads { count, most: MAX_THREADS_PER_CTA }),
            () if self.has_print(body) => Err(Reason::Prints),
            () if self.leaves_amid(body) => Err(Reason::Exits),
            () => Ok(()),
        }
    }

    /// The parts of a load that a producer makes, or the reason why it cannot.
    fn stream_of(
        &self,
        load: OpId,
        block: BlockId,
        (structure, pairs): (&RegionTree, Option<&ClusterMulticast>),
    ) -> Result<Stream, Reason> {
        if !self.allows_copy_engine(load) {
            return Err(Reason::LoadHint);
        }
        self.may_stream(self.enclosing_loop(block, structure))?;
        let feed = self.feed_of(load, structure)?;
        let halved = pairs.is_some_and(|pairs| pairs.can_multicast(load));
        if !self.is_invariant_load(load) {
            return Err(Reason::Written);
        }
        let (map, boxes) = self.boxes_of(load, &feed, halved).ok_or(Reason::View)?;
        let slice = SliceBuilder::of_load(self, structure, load).ok_or(Reason::Index)?;
        Ok(Stream { feed, map, boxes, slice })
    }

    /// The products that a load feeds, if it feeds nothing else, as tiles that all have the same panels.
    fn feed_of(&self, load: OpId, structure: &RegionTree) -> Result<OperandUse, Reason> {
        let module = self.module;
        let result = module.op(load).results[0];
        let identity = (0..module.shape(result).len()).map(Some).collect();
        let mut feed: Option<OperandUse> = None;
        let mut pending: Vec<(Value, Vec<Option<usize>>, bool)> = vec![(result, identity, false)];
        while let Some((value, axes, rounded)) = pending.pop() {
            for &user in structure.users.get(&value).ok_or(Reason::Unused)? {
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
                        let axes = without_unit_axes(from, to, &axes).ok_or(Reason::ReadBy(op.code))?;
                        pending.push((op.results[0], axes, rounded));
                    }
                    Opcode::MmaF | Opcode::MmaI => {
                        let plan = self.inference.products.get(&user).and_then(|plan| plan.as_ref().ok());
                        let plan = plan.ok_or(Reason::Product)?;
                        if op.operands[2] == value || op.operands[0] == op.operands[1] {
                            return Err(Reason::Product);
                        }
                        let is_left = op.operands[0] == value;
                        let operand = if is_left { &plan.a } else { &plan.b };
                        let this = OperandUse {
                            rounded,
                            direct: !operand.rounds,
                            ..self.operand_feed(user, operand, is_left, &axes, value).ok_or(Reason::Product)?
                        };
                        match &mut feed {
                            None => feed = Some(this),
                            Some(feed) if feed.wants_the_same(&this) => {
                                feed.direct &= this.direct;
                                feed.products.push(user);
                            }
                            Some(_) => return Err(Reason::Forms),
                        }
                    }
                    code => return Err(Reason::ReadBy(code)),
                }
            }
        }
        let mut feed = feed.ok_or(Reason::Unused)?;
        feed.products.sort_by_key(|op| op.index());
        Ok(feed)
    }

    fn operand_feed(
        &self,
        product: OpId,
        plan: &OperandPlan,
        is_left: bool,
        axes: &[Option<usize>],
        value: Value,
    ) -> Option<OperandUse> {
        let panels = plan.panels?;
        if plan.dtype != self.module.dtype(value) {
            return None;
        }
        let last = axes.len() - 1;
        let (k, other) = if is_left { (last, last - 1) } else { (last - 1, last) };
        let (contiguous, rows) = if panels.along_k { (k, other) } else { (other, k) };
        let bytes = plan.shared.bytes() as u32;
        let axes = [axes[contiguous]?, axes[rows]?];
        Some(OperandUse { products: vec![product], panels, axes, rounded: false, direct: true, bytes })
    }

    /// The boxes of a load, if the copy engine can bring its tile as it is wanted. `halved`: a single box is cut in
    /// two, if the halves are whole swizzle patterns.
    fn boxes_of(&self, load: OpId, feed: &OperandUse, halved: bool) -> Option<(TensorMap, Vec<TmaBox>)> {
        let module = self.module;
        let op = module.op(load);
        let view = op.group(0)[0];
        let shape = ViewShape::of(module, view)?;
        let [contiguous, rows] = feed.axes;
        if contiguous_axis(module, &shape) != Some(contiguous) {
            return None;
        }
        let Panels { span, rows: count, count: panels, .. } = feed.panels;
        let row = span / i64::from(shape.elem.storage_bits() / 8);
        let parts = |least: i64| {
            let fits = |parts: &i64| {
                let high = count / parts;
                count % parts == 0
                    && high <= i64::from(MAX_TMA_BOX)
                    && (*parts == 1 || high % i64::from(SWIZZLE_ATOM_ROWS) == 0)
            };
            (least..=count / i64::from(SWIZZLE_ATOM_ROWS)).find(fits)
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
        let map = self.tma_map((view, op.group(1)), &extents, swizzle, feed.rounded)?;
        let mut boxes = Vec::new();
        for panel in 0..panels {
            for part in 0..count / high {
                let mut place = vec![0; shape.tile.len()];
                place[contiguous] = panel * row;
                place[rows] = part * high;
                boxes.push(TmaBox { coord: place, smem_offset: ((panel * count + part * high) * span) as u32 });
            }
        }
        Some((map, boxes))
    }

    /// Gives the loads of a channel their places in a stage. Tiles that are neighbours in their array along the rows of
    /// panels become panels of all their rows, which are copied together.
    fn place_loads(&self, channel: &mut Channel, feeds: &HashMap<OpId, OperandUse>, pairs: Option<&ClusterMulticast>) {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (index, load) in channel.loads.iter().enumerate() {
            let fits = |group: &&mut Vec<usize>| {
                let first = &channel.loads[group[0]];
                let (feed, next) = (&feeds[&first.load], &feeds[&load.load]);
                let before: i64 = group.iter().map(|&other| channel.loads[other].panel_rows).sum();
                let alike = Panels { rows: first.panel_rows, ..next.panels } == feed.panels
                    && (feed.axes, feed.rounded) == (next.axes, next.rounded);
                let axis = next.axes[1];
                // The tiles of all of them do not overlap with those at the next index.
                let step =
                    ViewShape::of(self.module, self.module.op(first.load).group(0)[0]).map(|shape| shape.steps[axis]);
                alike
                    && first.partitions.max(load.partitions) == 1
                    && feed.direct
                    && next.direct
                    && step.is_some_and(|step| before + load.panel_rows <= step)
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
            let feed = &feeds[&first.load];
            let span = feed.panels.span;
            let rows = group.iter().map(|&index| channel.loads[index].panel_rows).sum();
            let bytes = group.iter().map(|&index| channel.loads[index].bytes).sum();
            let whole = OperandUse { panels: Panels { rows, ..feed.panels }, ..feed.clone() };
            let halved = pairs.is_some_and(|pairs| pairs.can_multicast(first.load));
            let together = if group.len() > 1 { self.boxes_of(first.load, &whole, halved) } else { None };
            let mut offset = u32::next_multiple_of(end, (i64::from(SWIZZLE_ATOM_ROWS) * span) as u32);
            for (number, &index) in group.iter().enumerate() {
                let load = &mut channel.loads[index];
                load.smem_offset = offset;
                match &together {
                    Some((map, _)) => {
                        offset += (load.panel_rows * span) as u32;
                        (load.panel_rows, load.bytes, load.boxes) = (rows, 0, Vec::new());
                        load.map = map.clone();
                    }
                    None if number + 1 < group.len() => {
                        offset = (offset + load.bytes).next_multiple_of(SWIZZLE_ATOM_BYTES)
                    }
                    None => offset += load.bytes,
                }
            }
            if let Some((_, boxes)) = together {
                let first = &mut channel.loads[group[0]];
                (first.bytes, first.boxes) = (bytes, boxes);
                offset = first.smem_offset + bytes;
            }
            end = offset;
        }
        channel.stage_bytes = end.next_multiple_of(SWIZZLE_ATOM_BYTES);
    }

    /// The last op of a block that these products stand in, and whether one is in a region of its own.
    fn lifetime(&self, block: BlockId, products: &[OpId], structure: &RegionTree) -> (OpId, bool) {
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
