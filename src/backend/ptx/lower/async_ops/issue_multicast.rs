//! Clusters: multicast loads of tiles that two adjacent CTAs share.
//!
//! A tile that is equal in both CTAs of a cluster is loaded once. Each CTA issues one half of
//! the TMA boxes, and TMA writes each box to the shared memory of both CTAs. A stage is
//! therefore filled by two producers, and may be filled again when the consumers of both CTAs
//! have released it.
//!
//! Invariant: both CTAs advance their pipelines in lockstep. The number of loads does not depend
//! on the x coordinate of the CTA (`schedule/analysis/cta_uniformity`), except for the start of
//! outermost loops. For these loops the CTAs compare their trip counts first, and do not
//! multicast if they differ.
//!
//! Multicast may depend on the coordinate: the producer computes the tile indices of the peer
//! CTA, too, and compares them.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use crate::backend::ptx::isa::builder::LoadRoute;
use crate::backend::ptx::isa::inst::{Addr, Cmp, Operand, Reg, RegClass, Ty};
use crate::backend::ptx::layout_inference::{ViewShape, contiguous_axis};
use crate::backend::ptx::lower::loop_counter::{counter_type, num_iterations};
use crate::backend::ptx::lower::{Lowered, Lowering, Tile};
use crate::backend::ptx::schedule::{CLUSTER_SIZE, TmaBox, TmaLoad, WarpRole, WarpSpecialization, box_order};
use crate::dtype::DType;
use crate::ir::{BlockId, Flag, OpId, Value};
use crate::layout::Layout;

/// Multicast mask: both CTAs of the cluster.
const BOTH: u32 = 0b11;

impl Lowering<'_> {
    /// Computes an op of the producer for the peer CTA, too, and compares its results if loads
    /// depend on them.
    pub fn compute_for_peer(&mut self, id: OpId) -> Lowered {
        if self.sync.role != WarpRole::Producer
            || !self.sync.multicast().is_some_and(|multicast| multicast.peer_ops.contains(&id))
        {
            return Ok(());
        }
        self.op_for_peer(id)?;
        self.compare_with_peer(&self.module.op(id).results)
    }

    fn op_for_peer(&mut self, id: OpId) -> Lowered {
        for &result in &self.module.op(id).results {
            self.sync.peer.tiles.entry(result).or_default();
        }
        self.as_peer(|lowering| lowering.nested_op(id))
    }

    /// Emits comparisons with the peer CTA for those of the values that are indices of multicast
    /// loads.
    fn compare_with_peer(&mut self, values: &[Value]) -> Lowered {
        let Some(multicast) = self.sync.multicast() else { return Ok(()) };
        let decides = |value: &&Value| multicast.multicast_loads.values().any(|deciding| deciding.contains(value));
        let deciding: Vec<Value> = values.iter().filter(decides).copied().collect_vec();
        for value in deciding {
            let (own, other) = self.scalar_of_both_ctas(value)?;
            let ty = if self.module.dtype(value) == DType::I64 { Ty::U64 } else { Ty::U32 };
            let same = self.b.setp(Cmp::Eq, ty, own, other);
            self.sync.peer.equal_indices.insert(value, same);
        }
        Ok(())
    }

    /// Returns a scalar of this CTA and of its peer.
    fn scalar_of_both_ctas(&mut self, value: Value) -> Lowered<(Operand, Operand)> {
        Ok((self.scalar(value)?, self.as_peer(|lowering| lowering.scalar(value))?))
    }

    /// Computes the loop counter of the peer CTA, at the head of a loop of the producer.
    pub fn counter_of_peer(&mut self, id: OpId, counter: Reg, ty: Ty) -> Lowered {
        if self.sync.role != WarpRole::Producer
            || !self.sync.multicast().is_some_and(|multicast| multicast.outer_loops.contains(&id))
        {
            return Ok(());
        }
        let op = self.module.op(id);
        let arg = self.module.block(op.regions[0]).args[0];
        let (own, other) = self.scalar_of_both_ctas(op.group(0)[0])?;
        let distance = self.b.sub(ty, other, own);
        let counter = self.b.add(ty, counter, distance);
        let layout = Layout::replicated(&[], self.info.inference.num_warps);
        self.sync.peer.tiles.insert(arg, Some(Tile { layout, regs: Rc::from([counter]) }));
        self.compare_with_peer(&[arg])
    }

    /// Compares the trip counts of the outermost loops in both CTAs of a cluster, before the
    /// warps branch by role.
    pub fn compare_trip_counts(&mut self, body: BlockId, warp_spec: &WarpSpecialization) -> Lowered {
        let Some(multicast) = &warp_spec.multicast else { return Ok(()) };
        let module = self.module;
        for &id in module.block(body).ops.iter().filter(|id| multicast.bound_ops.contains(id)) {
            self.nested_op(id)?;
            if multicast.peer_ops.contains(&id) {
                self.op_for_peer(id)?;
            }
        }
        for &id in &multicast.outer_loops {
            let op = module.op(id);
            let start = op.group(0)[0];
            let ty = counter_type(module.dtype(start), op.flag(Flag::UnsignedCmp))?;
            let (end, step) = (self.scalar(op.group(1)[0])?, self.scalar(op.group(2)[0])?);
            let (own, other) = self.scalar_of_both_ctas(start)?;
            let [own, other] = [own, other].map(|start| num_iterations(&mut self.b, start, end, step, ty));
            let mut same = self.b.setp(Cmp::Eq, ty, own, other);
            if let Some(before) = self.sync.peer.in_lockstep {
                same = self.b.and(Ty::Pred, before, same).reg();
            }
            self.sync.peer.in_lockstep = Some(same);
        }
        Ok(())
    }

    /// Lowers with the grid coordinate of the peer CTA.
    fn as_peer<T>(&mut self, lower: impl FnOnce(&mut Self) -> Lowered<T>) -> Lowered<T> {
        let cached = std::mem::take(&mut self.values.conversions);
        self.swap_peer_tiles();
        let result = lower(self);
        self.swap_peer_tiles();
        self.values.conversions = cached;
        result
    }

    fn swap_peer_tiles(&mut self) {
        self.sync.peer.is_active = !self.sync.peer.is_active;
        for (value, tile) in &mut self.sync.peer.tiles {
            std::mem::swap(&mut self.values.tiles[value.index()], tile);
        }
    }

    /// Issues the multicast loads of a tile if the indices are equal in both CTAs, else the loads
    /// of this CTA alone.
    ///
    /// `peer` is the rank of the peer CTA in the cluster.
    pub fn issue_multicast(
        &mut self,
        load: &TmaLoad,
        deciding: &[Value],
        stage: Reg,
        barrier: &Addr,
        peer: Reg,
    ) -> Lowered {
        let same: Vec<Reg> =
            deciding.iter().filter_map(|value| self.sync.peer.equal_indices.get(value).copied()).collect_vec();
        if same.len() != deciding.len() {
            return Err("an index is unknown for the other block".to_owned());
        }
        let same =
            same.into_iter().chain(self.sync.peer.in_lockstep).reduce(|all, one| self.b.and(Ty::Pred, all, one).reg());
        let (separate, end) = (self.b.new_label(), self.b.new_label());
        if let Some(same) = same {
            self.b.bra_if(same, true, separate, true);
        }
        let op = self.module.op(load.load);
        let view = op.group(0)[0];
        let shape = ViewShape::of(self.module, view).ok_or("only partition views have tiles")?;
        let fastest = contiguous_axis(self.module, &shape).ok_or("no dimension is contiguous")?;
        let start = self.tma_coords(view, op.group(1), &vec![0; op.group(1).len()])?;
        let map = self.tensor_map_address(&load.map);
        let multicast = Some(self.b.copy(Operand::from(BOTH), RegClass::B16));
        let route = LoadRoute { cluster: true, multicast, policy: None };
        for boxes in load.boxes.chunks(CLUSTER_SIZE as usize) {
            let (first, last) = (&boxes[0], &boxes[boxes.len() - 1]);
            // The first box if the rank of the peer is 0, the second one if it is 1.
            let mut choose = |of: &dyn Fn(&TmaBox) -> i64, base: Operand| {
                let (first, last) = (of(first), of(last));
                let base = self.b.add(Ty::S32, base, first);
                if first == last { base } else { self.b.mad(Ty::S32, peer, last - first, base) }
            };
            let mut coords = start.clone();
            for (coord, axis) in coords.iter_mut().zip(box_order(shape.tile.len(), fastest)) {
                *coord = choose(&|part| part.coord[axis], *coord);
            }
            let target = choose(&|part| i64::from(load.smem_offset + part.smem_offset), stage.into());
            let target = Addr::new(target, 0);
            if boxes.len() > 1 {
                self.b.tma_load(&target, map, &coords, barrier, route);
            } else {
                let not_mine = self.b.setp(Cmp::Ne, Ty::U32, peer, 0);
                self.b.skip_if(not_mine, false, |b| b.tma_load(&target, map, &coords, barrier, route));
            }
        }
        if same.is_some() {
            self.b.bra(end, true);
            self.b.emit_label(separate);
            self.issue_loads(load, stage, barrier, true)?;
            self.b.emit_label(end);
        }
        Ok(())
    }

    /// Issues the TMA loads of a tile for this CTA. `cluster`: the kernel has clusters.
    pub fn issue_loads(&mut self, load: &TmaLoad, stage: Reg, barrier: &Addr, cluster: bool) -> Lowered {
        let op = self.module.op(load.load);
        let map = self.tensor_map_address(&load.map);
        for part in &load.boxes {
            let coords = self.tma_coords(op.group(0)[0], op.group(1), &part.coord)?;
            let target = Addr::new(stage, i64::from(load.smem_offset + part.smem_offset));
            self.b.tma_load(&target, map, &coords, barrier, LoadRoute { cluster, ..LoadRoute::default() });
        }
        Ok(())
    }
}
