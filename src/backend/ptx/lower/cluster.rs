//! Clusters: two tile blocks that are neighbours along x fetch only once what both need.
//!
//! A streamed load whose tile is the same in both blocks of a pair is *shared*: one block has the copy engine fetch
//! the even boxes of it, the other one the odd ones, and the engine writes each into the shared memory of both. So a
//! stage is filled by two producers, and may be filled again once the consumers of both blocks have said so.
//!
//! For that the blocks go round the rings in step: nothing that decides how often a producer comes to a load depends
//! on the block's place along x (`schedule/analysis/cta_uniformity`), but for where an outermost loop starts; of such a loop the blocks count
//! the iterations beforehand, and share nothing where these differ.
//!
//! Whether a load is shared may depend on the place: the producer computes the indices of its tile for the peer, too
//! (the *mirrored* ops), and compares.

use std::collections::HashMap;
use std::rc::Rc;

use super::control::{counter_type, unsigned};
use super::ring::Role;
use super::{Lowered, Lowering, Tile};
use crate::backend::ptx::isa::builder::LoadRoute;
use crate::backend::ptx::isa::inst::{Addr, Cmp, Operand, Reg, RegClass, Ty};
use crate::backend::ptx::layout_inference::{ViewShape, contiguous_axis};
use crate::backend::ptx::schedule::{CLUSTER_SIZE, ClusterMulticast, TmaBox, TmaLoad, WarpSpecialization, box_order};
use crate::dtype::DType;
use crate::ir::{BlockId, Flag, OpId, Value};
use crate::layout::Layout;

/// Mask of the blocks that a shared box is written to: both.
const BOTH: u32 = 0b11;

/// What the producer knows of its peer.
#[derive(Default)]
pub struct Peer {
    /// Results of mirrored ops; while the peer is computed for, the own ones.
    tiles: HashMap<Value, Option<Tile>>,
    /// Is the peer computed for?
    pub active: bool,
    /// Is this index the peer's, too?
    same: HashMap<Value, Reg>,
    /// Do the blocks of the pair go the same way? `None`: always.
    pub in_step: Option<Reg>,
}

impl Lowering<'_> {
    fn pairs(&self) -> Option<&ClusterMulticast> {
        self.rings.as_ref().and_then(|rings| rings.roles.multicast.as_ref())
    }

    /// Tile blocks of a cluster.
    pub fn cluster(&self) -> u32 {
        if self.pairs().is_some() { CLUSTER_SIZE } else { 1 }
    }

    /// Blocks of the pair that may share the tile of this load.
    pub fn sharing_blocks(&self, load: OpId) -> u32 {
        if self.pairs().is_some_and(|pairs| pairs.can_multicast(load)) { CLUSTER_SIZE } else { 1 }
    }

    /// After an op of the producer: computes it for the peer, and compares what decides about loads.
    pub fn mirror(&mut self, id: OpId) -> Lowered {
        if self.role != Role::Producer || !self.pairs().is_some_and(|pairs| pairs.peer_ops.contains(&id)) {
            return Ok(());
        }
        self.op_of_peer(id)?;
        self.compare(&self.module.op(id).results)
    }

    fn op_of_peer(&mut self, id: OpId) -> Lowered {
        for &result in &self.module.op(id).results {
            self.peer.tiles.entry(result).or_default();
        }
        self.as_peer(|lowering| lowering.op(id))
    }

    /// Of those among these values that decide about loads: are they the peer's?
    fn compare(&mut self, values: &[Value]) -> Lowered {
        let Some(pairs) = self.pairs() else { return Ok(()) };
        let decides = |value: &&Value| pairs.multicast_loads.values().any(|deciding| deciding.contains(value));
        let deciding: Vec<Value> = values.iter().filter(decides).copied().collect();
        for value in deciding {
            let (own, other) = self.both(value)?;
            let ty = if self.module.dtype(value) == DType::I64 { Ty::U64 } else { Ty::U32 };
            let same = self.b.setp(Cmp::Eq, ty, own, other);
            self.peer.same.insert(value, same);
        }
        Ok(())
    }

    /// A scalar of this block, and of its peer.
    fn both(&mut self, value: Value) -> Lowered<(Operand, Operand)> {
        Ok((self.scalar(value)?, self.as_peer(|lowering| lowering.scalar(value))?))
    }

    /// At the head of a loop of the producer: where the peer is.
    pub fn mirror_counter(&mut self, id: OpId, counter: Reg, ty: Ty) -> Lowered {
        if self.role != Role::Producer || !self.pairs().is_some_and(|pairs| pairs.outer_loops.contains(&id)) {
            return Ok(());
        }
        let op = self.module.op(id);
        let arg = self.module.block(op.regions[0]).args[0];
        let (own, other) = self.both(op.group(0)[0])?;
        let apart = self.b.sub(ty, other, own);
        let counter = self.b.add(ty, counter, apart);
        let layout = Layout::replicated(&[], self.context.inference.num_warps);
        self.peer.tiles.insert(arg, Some(Tile { layout, slots: Rc::from([counter]) }));
        self.compare(&[arg])
    }

    /// Before the roles part: do the blocks of a pair go round their outermost loops equally often?
    pub fn compare_ways(&mut self, body: BlockId, roles: &WarpSpecialization) -> Lowered {
        let Some(pairs) = &roles.multicast else { return Ok(()) };
        let module = self.module;
        for &id in module.block(body).ops.iter().filter(|id| pairs.bound_ops.contains(id)) {
            self.op(id)?;
            if pairs.peer_ops.contains(&id) {
                self.op_of_peer(id)?;
            }
        }
        for &id in &pairs.outer_loops {
            let op = module.op(id);
            let start = op.group(0)[0];
            let ty = counter_type(module.dtype(start), op.flag(Flag::UnsignedCmp))?;
            let (end, step) = (self.scalar(op.group(1)[0])?, self.scalar(op.group(2)[0])?);
            let (own, other) = self.both(start)?;
            let [own, other] = [own, other].map(|start| self.num_iterations(start, end, step, ty));
            let mut same = self.b.setp(Cmp::Eq, ty, own, other);
            if let Some(before) = self.peer.in_step {
                same = self.b.and(Ty::Pred, before, same).reg();
            }
            self.peer.in_step = Some(same);
        }
        Ok(())
    }

    /// How often a loop goes round.
    pub fn num_iterations(&mut self, start: Operand, end: Operand, step: Operand, ty: Ty) -> Operand {
        let ty_unsigned = unsigned(ty);
        let some = self.b.setp(Cmp::Lt, ty, start, end);
        let span = self.b.sub(ty, end, start);
        let last = self.b.sub(ty, span, 1);
        let full = self.b.div(ty_unsigned, last, step);
        let count = self.b.add(ty, full, 1);
        self.b.select(ty.class(), some, count, 0)
    }

    /// Lowers something with the peer's place in the grid.
    fn as_peer<T>(&mut self, lower: impl FnOnce(&mut Self) -> Lowered<T>) -> Lowered<T> {
        let cached = std::mem::take(&mut self.cached);
        self.change_places();
        let result = lower(self);
        self.change_places();
        self.cached = cached;
        result
    }

    fn change_places(&mut self) {
        self.peer.active = !self.peer.active;
        for (value, tile) in &mut self.peer.tiles {
            std::mem::swap(&mut self.tiles[value.index()], tile);
        }
    }

    /// The producer's copies of a load that may be shared. `peer`: the rank of the other block of the pair.
    pub fn issue_shared(
        &mut self,
        load: &TmaLoad,
        deciding: &[Value],
        stage: Reg,
        barrier: &Addr,
        peer: Reg,
    ) -> Lowered {
        let same: Vec<Reg> = deciding.iter().filter_map(|value| self.peer.same.get(value).copied()).collect();
        if same.len() != deciding.len() {
            return Err("an index is unknown for the other block".to_owned());
        }
        let same = same.into_iter().chain(self.peer.in_step).reduce(|all, one| self.b.and(Ty::Pred, all, one).reg());
        let (apart, end) = (self.b.new_label(), self.b.new_label());
        if let Some(same) = same {
            self.b.bra_if(same, true, apart, true);
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
            // The first of the two where the peer's rank is 0, the other one where it is 1.
            let mut choose = |of: &dyn Fn(&TmaBox) -> i64, base: Operand| {
                let (first, last) = (of(first), of(last));
                let base = self.b.add(Ty::S32, base, first);
                if first == last { base } else { self.b.mad(Ty::S32, peer, last - first, base) }
            };
            let axes = box_order(start.len(), fastest);
            let coords: Vec<Operand> =
                axes.zip(&start).map(|(axis, &start)| choose(&|part| part.coord[axis], start)).collect();
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
            self.b.place(apart);
            self.issue(load, stage, barrier, true)?;
            self.b.place(end);
        }
        Ok(())
    }

    /// The producer's copies of a load for this block. `cluster`: it is one of a cluster.
    pub fn issue(&mut self, load: &TmaLoad, stage: Reg, barrier: &Addr, cluster: bool) -> Lowered {
        let op = self.module.op(load.load);
        let map = self.tensor_map_address(&load.map);
        for part in &load.boxes {
            let coords = self.tma_coords(op.group(0)[0], op.group(1), &part.coord)?;
            let target = Addr::new(stage, i64::from(load.smem_offset + part.smem_offset));
            self.b.tma_load(&target, map, &coords, barrier, LoadRoute { cluster, ..LoadRoute::default() });
        }
        Ok(())
    }

    /// Indices that decide whether a load is shared; `None` if it never is.
    pub fn deciding(roles: &WarpSpecialization, load: OpId) -> Option<&[Value]> {
        roles.multicast.as_ref()?.multicast_loads.get(&load).map(Vec::as_slice)
    }

    /// Before the producer of a pair ends: waits until the consumers of both blocks have given back all stages. From
    /// then on nobody writes into the shared memory of this block, nor tells it anything.
    pub fn drain_rings(&mut self) {
        let Some(rings) = self.rings.as_ref().filter(|_| self.role == Role::Producer) else { return };
        let mut channels = Vec::new();
        for (index, ring) in rings.roles.pipelines.iter().enumerate().filter(|(_, ring)| ring.clustered) {
            let channel = rings.roles.channels.iter().position(|channel| channel.pipeline == index);
            channels.extend(channel.map(|channel| (channel, ring.num_stages)));
        }
        for (channel, stages) in channels {
            (0..stages).for_each(|_| drop(self.free_stage(channel)));
        }
    }
}
