//! Warp specialization: the loads that the producer issues, and their pipelines.
//!
//! On sm_90a a load whose tile is only an operand of `wgmma` needs no registers. One thread of a
//! further warp group, the *producer*, issues it as TMA loads to shared memory. The *consumers*,
//! the warps of all layouts, multiply earlier tiles at the same time. The producer executes the
//! same program, reduced to the control flow of these loads and the scalars of their indices (the
//! producer slice). It executes loop iterations, and the tiles of a persistent kernel, before the
//! consumers.
//!
//! Loads of one block that feed the same MMAs share a *channel*, and channels share pipelines.
//! Nothing is emitted here.

use crate::util::collect::CollectVec as _;
use rustc_hash::{FxHashMap, FxHashSet};

use super::cluster_multicast::CLUSTER_SIZE;
use super::joined_operands::{OperandPart, Position, tile_bytes};
use super::operand_axes::{AxisPart, OperandAxes, TileBoxes, tile_boxes};
use super::producer_slice::{ProducerSlice, SliceBuilder};
use crate::backend::ptx::hardware::{MAX_THREADS_PER_CTA, SWIZZLE_ATOM_BYTES, SWIZZLE_ATOM_ROWS, WARP_SIZE};
use crate::backend::ptx::layout_inference::{ViewShape, as_axes, contiguous_axis};
use crate::backend::ptx::mma::{OperandPlan, Panels};
use crate::backend::ptx::optimizations::Optimization;
use crate::backend::ptx::schedule::KernelInfo;
use crate::backend::ptx::schedule::analysis::kernel_info::rounds_to_tf32;
use crate::backend::ptx::schedule::ir::load_path::LoadPath;
use crate::backend::ptx::schedule::ir::pipelines::{
    Channel, ClusterMulticast, PINGPONG_GROUPS, TmaBox, TmaLoad, WarpSpecialization,
};
use crate::backend::ptx::schedule::ir::rejected_loads::{ProducerRejection, RejectedLoads};
use crate::backend::ptx::smem::allocation::SharedMemory;
use crate::backend::ptx::tensor_map::{Swizzle, TensorMap};
use crate::ir::{BlockId, OpId, Opcode, Value};
use crate::util::sort;

/// Use of a loaded tile as an MMA operand, in one form.
#[derive(Clone)]
struct OperandUse {
    mmas: Vec<OpId>,
    panels: Panels,
    /// Offset in an operand that `cat` concatenates. The panels are those of the part alone.
    part: Option<OperandPart>,
    /// Tile dimensions of the view along the rows of panels, and across them.
    axes: [Vec<AxisPart>; 2],
    /// The array has f32, and the MMAs read tf32.
    rounds_to_tf32: bool,
    /// True if instructions read the tile in its stage, in panels of any number of rows.
    direct: bool,
    /// Bytes of the loaded tile.
    bytes: u32,
}

/// A load of the producer: its MMAs, its boxes, and its slice.
struct ProducerLoad {
    operand_use: OperandUse,
    map: TensorMap,
    boxes: Vec<TmaBox>,
    slice: ProducerSlice,
}

impl OperandUse {
    /// Returns true if the tile has the same offsets and swizzle in shared memory for both uses.
    /// The sum of one MMA may be along the rows of panels, and that of the other one across them.
    fn has_same_form(&self, other: &OperandUse) -> bool {
        let panels = Panels { along_k: self.panels.along_k, ..other.panels };
        (self.panels, &self.axes, self.rounds_to_tf32) == (panels, &other.axes, other.rounds_to_tf32)
            && self.part == other.part
    }

    /// Returns the dimension of the panel rows, if it is a single one.
    fn row_dim(&self) -> Option<usize> {
        if let [AxisPart { dim, step: 1, .. }] = self.axes[1][..] { Some(dim) } else { None }
    }
}

/// The warp specialization, with the reasons for rejections.
pub struct WarpSpecializationPlan {
    pub warp_spec: Option<WarpSpecialization>,
    /// The reason why a requested cluster shares no loads.
    pub cluster_rejected: Option<&'static str>,
    pub rejected_loads: RejectedLoads,
}

impl KernelInfo<'_> {
    /// Plans the warp specialization. With the requested occupancy, shared memory may be too small
    /// for one stage. Then the kernel does not fit without warp specialization either, so the
    /// occupancy is reduced.
    pub fn plan_warp_specialization(&mut self, body: BlockId, smem: &SharedMemory) -> WarpSpecializationPlan {
        let (requested, mut cluster_rejected, mut rejected_loads) =
            (self.options.occupancy, None, RejectedLoads::default());
        for blocks in (1..=self.warp_specialized_occupancy()).rev() {
            self.options.occupancy = requested.map(|_| blocks);
            match self.plan_with_cluster(body, smem, &mut cluster_rejected) {
                Ok((warp_spec, rejected_loads)) => {
                    return WarpSpecializationPlan {
                        warp_spec: Some(self.with_pingpong(body, smem, warp_spec)),
                        cluster_rejected,
                        rejected_loads,
                    };
                }
                Err(reasons) => rejected_loads = reasons,
            }
        }
        self.options.occupancy = requested;
        WarpSpecializationPlan { warp_spec: None, cluster_rejected, rejected_loads }
    }

    /// Returns the warp specialization, with ping-pong if it is possible and profitable.
    fn with_pingpong(
        &mut self,
        body: BlockId,
        smem: &SharedMemory,
        warp_spec: WarpSpecialization,
    ) -> WarpSpecialization {
        if self.plan_pingpong(body, &warp_spec).is_none() {
            return warp_spec;
        }
        self.pingpong_groups = PINGPONG_GROUPS;
        let pingpong = self.plan_with_cluster(body, smem, &mut None).ok();
        let pingpong = pingpong.and_then(|(pingpong, _)| {
            Some(WarpSpecialization { pingpong: Some(self.plan_pingpong(body, &pingpong)?), ..pingpong })
        });
        pingpong.unwrap_or_else(|| {
            self.pingpong_groups = 1;
            warp_spec
        })
    }

    /// Returns the warp specialization, with clusters if they are requested and possible.
    fn plan_with_cluster(
        &self,
        body: BlockId,
        smem: &SharedMemory,
        cluster_rejected: &mut Option<&'static str>,
    ) -> Result<(WarpSpecialization, RejectedLoads), RejectedLoads> {
        let planned = self.plan_channels(body, None, smem);
        if self.options.num_ctas.unwrap_or(1) < CLUSTER_SIZE || !self.is_enabled(Optimization::ClusterMulticast) {
            return planned;
        }
        if self.data_partitions > 1 {
            *cluster_rejected = Some("data partitions share the loads");
            return planned;
        }
        let clustered = match &planned {
            Ok((warp_spec, _)) => self.plan_multicast(
                body,
                &warp_spec.producer_ops,
                warp_spec.load_paths.keys().copied().filter(|&load| warp_spec.operand_channel(load).is_some()),
            ),
            Err(_) => Err("no load is streamed"),
        };
        let clustered =
            clustered.and_then(|multicast| self.plan_clustered(body, multicast, smem).ok_or("no load has two boxes"));
        match clustered {
            Ok(clustered) => planned.map(|(_, rejected_loads)| (clustered, rejected_loads)),
            Err(reason) => {
                *cluster_rejected = Some(reason);
                planned
            }
        }
    }

    /// Returns the warp specialization with at least two boxes per multicast load.
    fn plan_clustered(
        &self,
        body: BlockId,
        mut multicast: ClusterMulticast,
        smem: &SharedMemory,
    ) -> Option<WarpSpecialization> {
        let (mut warp_spec, _) = self.plan_channels(body, Some(&multicast), smem).ok()?;
        let loads = || warp_spec.channels.iter().flat_map(|channel| &channel.loads);
        multicast.multicast_loads.retain(|&id, _| loads().any(|load| load.load == id && load.boxes.len() > 1));
        for channel in &warp_spec.channels {
            warp_spec.pipelines[channel.pipeline].clustered |=
                channel.loads.iter().any(|load| multicast.can_multicast(load.load));
        }
        let any = !multicast.multicast_loads.is_empty();
        warp_spec.multicast = Some(multicast);
        any.then_some(warp_spec)
    }

    /// Returns the channels of the producer, if there are any in a loop, and the reasons for
    /// rejected loads. `multicast`: the loads that CTAs of a cluster share, each with two boxes if
    /// possible.
    fn plan_channels(
        &self,
        body: BlockId,
        multicast: Option<&ClusterMulticast>,
        smem: &SharedMemory,
    ) -> Result<(WarpSpecialization, RejectedLoads), RejectedLoads> {
        self.can_specialize(body).map_err(RejectedLoads::all)?;
        let mut warp_spec =
            WarpSpecialization { data_partitions: self.data_partitions, ..WarpSpecialization::default() };
        let mut keys: Vec<(BlockId, Vec<OpId>)> = Vec::new();
        let mut operand_uses = FxHashMap::default();
        let (planned, rejected_loads) = self.producer_loads(multicast);
        for (load, block, ProducerLoad { operand_use, map, boxes, slice }) in planned {
            warp_spec.producer_ops.extend(slice.ops);
            warp_spec.producer_live.extend(slice.live);
            // MMAs of one group release the stages that they read at the same time.
            let mut mmas: Vec<OpId> = operand_use.mmas.iter().map(|&mma| self.mma_groups.last_of(mma)).collect_vec();
            mmas.dedup();
            let key = (block, mmas.clone());
            let index = keys.iter().position(|k| *k == key).unwrap_or_else(|| {
                keys.push(key);
                let (last, wait_at_acquire) = self.last_use_in_block(block, &mmas);
                let (loads, stage_bytes, pipeline) = (Vec::new(), 0, 0);
                warp_spec.channels.push(Channel {
                    block,
                    loads,
                    stage_bytes,
                    pipeline,
                    last_use: last,
                    wait_at_acquire,
                    staging_for: None,
                });
                keys.len() - 1
            });
            let rows = operand_use.part.map_or(operand_use.panels.rows, |part| part.panel_rows);
            let bytes = operand_use.bytes;
            let one = TmaLoad { load, smem_offset: 0, map, boxes, bytes, panel_rows: rows, partitions: 1 };
            warp_spec.channels[index].loads.push(self.for_all_partitions(one));
            operand_uses.insert(load, operand_use);
            warp_spec.load_paths.insert(load, LoadPath::TmaOperand { channel: index as u32 });
        }
        for channel in &mut warp_spec.channels {
            self.assign_smem_offsets(channel, &operand_uses, multicast);
        }
        self.add_aux_loads(&mut warp_spec);
        self.add_prefetches(&mut warp_spec);
        if !warp_spec.channels.iter().any(|channel| self.regions.loop_of_block(channel.block).is_some()) {
            return Err(rejected_loads);
        }
        match self.assign_stage_counts(body, &mut warp_spec, smem) {
            Ok(()) => Ok((warp_spec, rejected_loads)),
            Err(reason) => Err(RejectedLoads { all: Some(reason), ..rejected_loads }),
        }
    }

    /// Returns an error if the kernel can have no producer: because of the target, the number of
    /// threads, or the body.
    fn can_specialize(&self, body: BlockId) -> Result<(), ProducerRejection> {
        let target = self.inference.target;
        let count = (self.consumer_warps() + self.producer_warps()) * WARP_SIZE;
        match () {
            () if target.arch != 90 || !target.accelerated => Err(ProducerRejection::Target),
            () if !(self.options.tma && self.is_enabled(Optimization::WarpSpecialization)) => {
                Err(ProducerRejection::Disabled)
            }
            () if count > MAX_THREADS_PER_CTA => Err(ProducerRejection::Threads { count, most: MAX_THREADS_PER_CTA }),
            () if self.module.cluster_size(body).is_some() => Err(ProducerRejection::ClusterExchange),
            () if self.has_print() => Err(ProducerRejection::Prints),
            () if self.waits_for_kernel_in_region(body) => Err(ProducerRejection::WaitsForKernel),
            () => Ok(()),
        }
    }

    /// Returns the loads of the producer in program order, each with its block, and the reasons for
    /// the others.
    fn producer_loads(
        &self,
        multicast: Option<&ClusterMulticast>,
    ) -> (Vec<(OpId, BlockId, ProducerLoad)>, RejectedLoads) {
        let (mut planned, mut rejected_loads) = (Vec::new(), RejectedLoads::default());
        for &load in self.regions.ops().iter().filter(|&&id| self.module.op(id).code == Opcode::LoadView) {
            let Some(block) = self.regions.block_of(load) else { continue };
            match self.producer_load(load, block, multicast) {
                Ok(producer_load) => planned.push((load, block, producer_load)),
                Err(reason) => drop(rejected_loads.loads.insert(load, reason)),
            }
        }
        reject_incomplete(&mut planned, &mut rejected_loads);
        (planned, rejected_loads)
    }

    /// Returns the parts of a producer load, or the reason why the producer cannot issue it.
    fn producer_load(
        &self,
        load: OpId,
        block: BlockId,
        multicast: Option<&ClusterMulticast>,
    ) -> Result<ProducerLoad, ProducerRejection> {
        if !self.allows_tma(load) {
            return Err(ProducerRejection::LoadHint);
        }
        self.can_use_producer(self.regions.loop_of_block(block))?;
        let operand_use = self.operand_use(load)?;
        if operand_use.part.is_some() && self.partitioned_axis(load).is_some() {
            return Err(ProducerRejection::Joined);
        }
        let groups: Vec<OpId> = operand_use.mmas.iter().map(|&mma| self.mma_groups.last_of(mma)).collect_vec();
        if self.has_exit_between(block, load, self.last_use_in_block(block, &groups).0) {
            return Err(ProducerRejection::EarlyExit);
        }
        let halved = multicast.is_some_and(|multicast| multicast.can_multicast(load));
        if !self.is_invariant_load(load) {
            return Err(ProducerRejection::Written);
        }
        let (map, boxes) = self.tma_boxes(load, &operand_use, halved).map_err(ProducerRejection::View)?;
        let slice = SliceBuilder::for_load(self, load).ok_or(ProducerRejection::Index)?;
        Ok(ProducerLoad { operand_use, map, boxes, slice })
    }

    /// Returns the MMAs that read a loaded tile, if there are no other uses and all need the same
    /// panels.
    fn operand_use(&self, load: OpId) -> Result<OperandUse, ProducerRejection> {
        let module = self.module;
        let result = module.op(load).results[0];
        let mut operand_use: Option<OperandUse> = None;
        let tile = module.shape(result);
        let mut pending = vec![(result, OperandAxes::of_tile(tile), Position::whole(tile.len()), false)];
        while let Some((value, axes, position, rounded)) = pending.pop() {
            if self.uses.count(value) == 0 {
                return Err(ProducerRejection::Unused);
            }
            for &(user, number) in self.uses.users(value) {
                let op = module.op(user);
                match op.code {
                    Opcode::Assume => pending.push((op.results[0], axes.clone(), position.clone(), rounded)),
                    Opcode::FToF if rounds_to_tf32(module, user) => {
                        pending.push((op.results[0], axes.clone(), position.clone(), true));
                    }
                    Opcode::Permute => {
                        let order = as_axes(op.permutation());
                        pending.push((op.results[0], axes.permuted(&order), position.permuted(&order), rounded));
                    }
                    Opcode::Reshape => {
                        let shape = module.shape(op.results[0]);
                        let reshaped = axes.reshaped(shape).zip(position.reshaped(shape.len()));
                        let (axes, position) = reshaped.ok_or(ProducerRejection::ReadBy(op.code))?;
                        pending.push((op.results[0], axes, position, rounded));
                    }
                    Opcode::Cat => {
                        let position = position.joined(module, user, number);
                        pending.push((op.results[0], axes.clone(), position, rounded));
                    }
                    code if code.is_mma() => {
                        let plan = self.inference.mma_plans.get(&user).and_then(|plan| plan.as_ref().ok());
                        let plan = plan.ok_or(ProducerRejection::NotInSharedMemory)?;
                        if op.operands[2] == value || op.operands[0] == op.operands[1] {
                            return Err(ProducerRejection::NotInSharedMemory);
                        }
                        let is_left = op.operands[0] == value;
                        let operand = if is_left { &plan.a } else { &plan.b };
                        let operand_use_here = OperandUse {
                            rounds_to_tf32: rounded,
                            direct: !operand.may_be_unrounded,
                            ..self
                                .mma_operand_use(user, operand, is_left, (&axes, &position), value)
                                .ok_or(ProducerRejection::NotInSharedMemory)?
                        };
                        match &mut operand_use {
                            None => operand_use = Some(operand_use_here),
                            Some(operand_use) if operand_use.has_same_form(&operand_use_here) => {
                                operand_use.direct &= operand_use_here.direct;
                                operand_use.mmas.push(user);
                            }
                            Some(_) => return Err(ProducerRejection::Layouts),
                        }
                    }
                    code => return Err(ProducerRejection::ReadBy(code)),
                }
            }
        }
        let mut operand_use = operand_use.ok_or(ProducerRejection::Unused)?;
        sort::by_key(&mut operand_use.mmas, |op| op.index());
        Ok(operand_use)
    }

    fn mma_operand_use(
        &self,
        mma: OpId,
        plan: &OperandPlan,
        is_left: bool,
        (axes, position): (&OperandAxes, &Position),
        value: Value,
    ) -> Option<OperandUse> {
        let panels = plan.panels?;
        if plan.dtype != self.module.dtype(value) {
            return None;
        }
        let last = axes.rank() - 1;
        let (k, other) = if is_left { (last, last - 1) } else { (last - 1, last) };
        let (contiguous, rows) = if panels.along_k { (k, other) } else { (other, k) };
        let (whole, element_bytes) = (plan.shared.bytes() as u32, i64::from(plan.dtype.storage_bits() / 8));
        let (panels, part) = position.in_panels(axes, [contiguous, rows], (panels, whole), element_bytes)?;
        let bytes = if part.is_some() { tile_bytes(axes, element_bytes) } else { whole };
        let axes = [contiguous, rows].map(|axis| axes.parts(axis).to_vec());
        Some(OperandUse { mmas: vec![mma], panels, part, axes, rounds_to_tf32: false, direct: true, bytes })
    }

    /// Returns the boxes of a load. `halved`: a single box is divided in two, if the halves are
    /// whole swizzle patterns.
    ///
    /// # Errors
    /// The reason why TMA cannot load the tile in the form that its use needs.
    fn tma_boxes(
        &self,
        load: OpId,
        operand_use: &OperandUse,
        halved: bool,
    ) -> Result<(TensorMap, Vec<TmaBox>), &'static str> {
        const NO_BOXES: &str = "the tile does not consist of TMA boxes";
        let module = self.module;
        let op = module.op(load);
        let view = op.group(0)[0];
        let shape = ViewShape::of(module, view).ok_or(NO_BOXES)?;
        let [along, across] = &operand_use.axes;
        let panels = operand_use.panels;
        let row = panels.swizzle_bytes / i64::from(shape.elem.storage_bits() / 8);
        let fastest = contiguous_axis(module, &shape).ok_or("no dimension is contiguous")?;
        let TileBoxes { extents, mut boxes } =
            tile_boxes([along, across], (shape.tile.len(), fastest), (panels, row), halved).ok_or(NO_BOXES)?;
        let swizzle = u32::try_from(panels.swizzle_bytes).ok().and_then(Swizzle::from_span).ok_or(NO_BOXES)?;
        let map = self.tma_map((view, op.group(1)), &extents, swizzle, operand_use.rounds_to_tf32)?;
        if let Some(part) = &operand_use.part {
            part.move_boxes(&mut boxes, panels);
        }
        Ok((map, boxes))
    }

    /// Assigns offsets in a stage to the loads of a channel. Tiles that are adjacent in their array
    /// along the rows of panels become one tile with panels of all rows, which TMA loads together.
    fn assign_smem_offsets(
        &self,
        channel: &mut Channel,
        operand_uses: &FxHashMap<OpId, OperandUse>,
        multicast: Option<&ClusterMulticast>,
    ) {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (index, load) in channel.loads.iter().enumerate() {
            let fits = |group: &&mut Vec<usize>| {
                let first = &channel.loads[group[0]];
                let (operand_use, next) = (&operand_uses[&first.load], &operand_uses[&load.load]);
                if operand_use.part.or(next.part).is_some() {
                    return operand_use.part.map(|part| part.cat) == next.part.map(|part| part.cat);
                }
                let before: i64 = group.iter().map(|&other| channel.loads[other].panel_rows).sum();
                let alike = Panels { rows: first.panel_rows, ..next.panels } == operand_use.panels
                    && (&operand_use.axes[0], operand_use.row_dim()) == (&next.axes[0], next.row_dim())
                    && operand_use.rounds_to_tf32 == next.rounds_to_tf32;
                let Some(axis) = next.row_dim() else { return false };
                // The combined tile does not overlap with the one at the next index.
                // Operands of different arrays may have different ranks.
                let step = ViewShape::of(self.module, self.module.op(first.load).group(0)[0])
                    .and_then(|shape| shape.steps.get(axis).copied());
                alike
                    && self.is_enabled(Optimization::FusedBoxes)
                    && first.partitions.max(load.partitions) == 1
                    && operand_use.direct
                    && next.direct
                    && step.is_some_and(|step| before + load.panel_rows <= step)
                    && self.is_adjacent_after(load.load, first.load, axis, before)
            };
            match groups.iter_mut().find(fits) {
                Some(group) => group.push(index),
                None => groups.push(vec![index]),
            }
        }
        let mut end = 0;
        for group in groups {
            let first = &channel.loads[group[0]];
            let operand_use = &operand_uses[&first.load];
            let swizzle_bytes = operand_use.panels.swizzle_bytes;
            let mut offset = u32::next_multiple_of(end, (i64::from(SWIZZLE_ATOM_ROWS) * swizzle_bytes) as u32);
            if operand_use.part.is_some() {
                end = set_part_offsets(channel, &group, offset, operand_uses);
                continue;
            }
            let rows = group.iter().map(|&index| channel.loads[index].panel_rows).sum();
            let bytes = group.iter().map(|&index| channel.loads[index].bytes).sum();
            let whole = OperandUse { panels: Panels { rows, ..operand_use.panels }, ..operand_use.clone() };
            let halved = multicast.is_some_and(|multicast| multicast.can_multicast(first.load));
            let fused = if group.len() > 1 { self.tma_boxes(first.load, &whole, halved).ok() } else { None };
            for (number, &index) in group.iter().enumerate() {
                let load = &mut channel.loads[index];
                load.smem_offset = offset;
                match &fused {
                    Some((map, _)) => {
                        offset += (load.panel_rows * swizzle_bytes) as u32;
                        (load.panel_rows, load.bytes, load.boxes) = (rows, 0, Vec::new());
                        load.map = map.clone();
                    }
                    None if number + 1 < group.len() => {
                        offset = (offset + load.bytes).next_multiple_of(SWIZZLE_ATOM_BYTES)
                    }
                    None => offset += load.bytes,
                }
            }
            if let Some((_, boxes)) = fused {
                let first = &mut channel.loads[group[0]];
                (first.bytes, first.boxes) = (bytes, boxes);
                offset = first.smem_offset + bytes;
            }
            end = offset;
        }
        channel.stage_bytes = end.next_multiple_of(SWIZZLE_ATOM_BYTES);
    }

    /// Returns the last op of a block that is or contains one of the MMAs. The flag is true if an
    /// MMA is in a region of the op.
    fn last_use_in_block(&self, block: BlockId, mmas: &[OpId]) -> (OpId, bool) {
        let mut wait_at_acquire = false;
        let mut users = FxHashSet::default();
        for &mma in mmas {
            let op = self.regions.ancestor_in(block, mma).expect("an op of the block");
            wait_at_acquire |= op != mma;
            users.insert(op);
        }
        let last = self.module.block(block).ops.iter().rfind(|op| users.contains(op));
        (*last.expect("a product in the block"), wait_at_acquire)
    }
}

/// Rejects the loads of operands that are not loaded entirely, in one block and for the same MMAs.
fn reject_incomplete(planned: &mut Vec<(OpId, BlockId, ProducerLoad)>, rejected_loads: &mut RejectedLoads) {
    loop {
        let mut loaded: FxHashMap<(OpId, BlockId), u32> = FxHashMap::default();
        for (_, block, load) in &*planned {
            if let Some(part) = load.operand_use.part {
                *loaded.entry((part.cat, *block)).or_default() += load.operand_use.bytes;
            }
        }
        let count = planned.len();
        planned.retain(|(load, block, ProducerLoad { operand_use, .. })| {
            let is_complete = operand_use.part.is_none_or(|part| loaded[&(part.cat, *block)] == part.bytes);
            if !is_complete {
                rejected_loads.loads.insert(*load, ProducerRejection::Joined);
            }
            is_complete
        });
        if planned.len() == count {
            return;
        }
    }
}

/// Sets the offsets of the parts of an operand, the first byte of which is `start` in the stage.
/// Returns the end of the operand.
fn set_part_offsets(
    channel: &mut Channel,
    group: &[usize],
    start: u32,
    operand_uses: &FxHashMap<OpId, OperandUse>,
) -> u32 {
    let mut end = start;
    for &index in group {
        let load = &mut channel.loads[index];
        if let Some(part) = operand_uses[&load.load].part {
            load.smem_offset = start + part.smem_offset;
            end = start + part.bytes;
        }
    }
    end
}
