//! Clusters: two tile blocks that are neighbours along x fetch only once what both need.
//!
//! A streamed load whose tile is the same in both blocks of a pair is *shared*: one block has the copy engine fetch
//! the even boxes of it, the other one the odd ones, and the engine writes each into the shared memory of both. So a
//! stage is filled by two producers, and may be filled again once the consumers of both blocks have said so.
//!
//! For that the blocks go round the rings in step: nothing that decides how often a producer comes to a load depends
//! on the block's place along x. Whether a load is shared may depend on it: the producer computes the indices of its
//! tile for the peer, too (the *mirrored* ops), and compares.

use std::collections::{HashMap, HashSet};

use super::ring::Role;
use super::roles::{Box, Roles, Streamed};
use super::tensor_map::box_order;
use super::{Lowered, Lowering, Tile};
use crate::backend::ptx::builder::LoadRoute;
use crate::backend::ptx::infer::{ViewShape, contiguous_axis, is_elementwise};
use crate::backend::ptx::inst::{Addr, Cmp, Operand, Reg, RegClass, Ty};
use crate::dtype::DType;
use crate::ir::{BlockId, Module, Op, OpId, Opcode, Type, Value};

/// Tile blocks of a cluster.
pub const BLOCKS: u32 = 2;
/// Mask of the blocks that a shared box is written to: both.
const BOTH: u32 = 0b11;

/// What the blocks of a pair share.
pub struct Pairs {
    /// Loads that may be the same in both blocks, and those of their indices that decide it.
    shared: HashMap<OpId, Vec<Value>>,
    /// Ops that the producer computes for the peer, too.
    mirrored: HashSet<OpId>,
}

impl Pairs {
    /// May both blocks need the tile of this load?
    pub fn may_share(&self, load: OpId) -> bool {
        self.shared.contains_key(&load)
    }
}

/// What the producer knows of its peer.
#[derive(Default)]
pub struct Peer {
    /// Results of mirrored ops; while the peer is computed for, the own ones.
    tiles: HashMap<Value, Option<Tile>>,
    /// Is the peer computed for?
    pub active: bool,
    /// Is this index the peer's, too?
    same: HashMap<Value, Reg>,
}

/// The values that may differ between the blocks of a pair.
struct Differing<'m> {
    module: &'m Module,
    values: HashSet<Value>,
}

impl<'m> Differing<'m> {
    fn of(module: &'m Module, body: BlockId) -> Differing<'m> {
        let mut differing = Differing { module, values: HashSet::new() };
        let mut known = usize::MAX;
        while known != differing.values.len() {
            known = differing.values.len();
            differing.block(body, &mut Vec::new());
        }
        differing
    }

    /// Tokens are no values: they only say what comes first.
    fn any(&self, values: &[Value]) -> bool {
        values.iter().any(|value| self.values.contains(value) && !matches!(self.module.ty(*value), Type::Token))
    }

    fn block(&mut self, block: BlockId, around: &mut Vec<OpId>) {
        let module = self.module;
        for &id in &module.block(block).ops {
            let op = module.op(id);
            match op.code {
                Opcode::GetTileBlockId => drop(self.values.insert(op.results[0])),
                Opcode::For | Opcode::Loop | Opcode::If => {
                    self.enter(op);
                    around.push(id);
                    op.regions.iter().for_each(|&region| self.block(region, around));
                    around.pop();
                }
                Opcode::Continue | Opcode::Break | Opcode::Yield => self.leave(op, around),
                _ if self.any(&op.operands) || !op.regions.is_empty() => self.values.extend(&op.results),
                _ => {}
            }
        }
    }

    /// What a loop or branch gets from outside.
    fn enter(&mut self, op: &'m Op) {
        let args = op.regions.first().map_or(&[][..], |&region| &self.module.block(region).args);
        match op.code {
            Opcode::For => {
                if (0..3).any(|group| self.any(op.group(group))) {
                    self.values.extend(args.iter().chain(&op.results));
                }
                for (position, &start) in op.group(3).iter().enumerate() {
                    if self.any(&[start]) {
                        self.values.extend([args[position + 1], op.results[position]]);
                    }
                }
            }
            Opcode::Loop => {
                for (&arg, &start) in args.iter().zip(op.group(0)) {
                    if self.any(&[start]) {
                        self.values.insert(arg);
                    }
                }
            }
            _ if self.any(&op.operands) => self.values.extend(&op.results),
            _ => {}
        }
    }

    /// What a terminator passes on.
    fn leave(&mut self, op: &Op, around: &[OpId]) {
        let module = self.module;
        let ends = |&&id: &&OpId| match op.code {
            Opcode::Continue => matches!(module.op(id).code, Opcode::For | Opcode::Loop),
            Opcode::Break => module.op(id).code == Opcode::Loop,
            _ => module.op(id).code == Opcode::If,
        };
        let Some(owner) = around.iter().rfind(ends).map(|&id| module.op(id)) else { return };
        let args = &module.block(owner.regions[0]).args;
        for (position, value) in op.operands.iter().enumerate() {
            if !self.values.contains(value) {
                continue;
            }
            match (op.code, owner.code) {
                (Opcode::Continue, Opcode::For) => {
                    self.values.extend([args[position + 1], owner.results[position]]);
                }
                (Opcode::Continue, _) => drop(self.values.insert(args[position])),
                _ => drop(self.values.insert(owner.results[position])),
            }
        }
    }

    /// Adds the ops that the peer's value comes from; false if it cannot be computed here.
    fn mirror(&self, value: Value, ops: &mut HashSet<OpId>) -> bool {
        if !self.values.contains(&value) {
            return true;
        }
        let Some(id) = self.module.defining_op(value) else { return false };
        let op = self.module.op(id);
        let renames = matches!(op.code, Opcode::Assume | Opcode::Broadcast | Opcode::Reshape | Opcode::Permute);
        (renames || is_elementwise(op.code) || op.code == Opcode::GetTileBlockId)
            && (!ops.insert(id) || op.operands.iter().all(|&operand| self.mirror(operand, ops)))
    }

    /// Is this value certainly another one in the peer? The block's place is, and a sum with what is the same.
    fn always(&self, value: Value) -> bool {
        let Some(op) = self.module.defining_op(value).map(|id| self.module.op(id)) else { return false };
        match op.code {
            Opcode::GetTileBlockId => self.values.contains(&value),
            Opcode::Assume | Opcode::Broadcast | Opcode::Reshape | Opcode::ExtI => self.always(op.operands[0]),
            Opcode::AddI | Opcode::SubI => {
                let [left, right] = [op.operands[0], op.operands[1]];
                (!self.values.contains(&left) && self.always(right))
                    || (!self.values.contains(&right) && self.always(left))
            }
            _ => false,
        }
    }
}

impl Lowering<'_> {
    /// The roles of the warps, in pairs of blocks where that is wished and possible.
    pub fn plan_paired_roles(&mut self, body: BlockId) -> Option<Roles> {
        let roles = self.plan_roles(body, None);
        if self.options.num_ctas.unwrap_or(1) < BLOCKS {
            return roles;
        }
        let paired = match &roles {
            Some(roles) => self.pairs_of(body, roles),
            None => Err("no load is streamed"),
        };
        let paired = paired.and_then(|pairs| self.paired_roles(body, pairs).ok_or("no load has two boxes"));
        match paired {
            Ok(paired) => Some(paired),
            Err(reason) => {
                self.remarks.alone = Some(reason);
                roles
            }
        }
    }

    /// What pairs of blocks share, or why they share nothing.
    fn pairs_of(&self, body: BlockId, roles: &Roles) -> Result<Pairs, &'static str> {
        let module = self.module;
        let differing = Differing::of(module, body);
        let in_step = |&id: &OpId| {
            let op = module.op(id);
            match op.code {
                Opcode::For => (0..3).all(|group| !differing.any(op.group(group))),
                Opcode::If => !differing.any(&op.operands),
                _ => true,
            }
        };
        if !roles.slice.iter().all(in_step) {
            return Err("the way of a block depends on its place");
        }
        let mut pairs = Pairs { shared: HashMap::new(), mirrored: HashSet::new() };
        for &load in roles.members.keys() {
            let op = module.op(load);
            let deciding: Vec<Value> =
                op.group(1).iter().copied().filter(|value| differing.values.contains(value)).collect();
            let mut ops = HashSet::new();
            let known = deciding.iter().all(|&index| !differing.always(index) && differing.mirror(index, &mut ops));
            if known && !differing.any(op.group(0)) {
                pairs.mirrored.extend(ops);
                pairs.shared.insert(load, deciding);
            }
        }
        if pairs.shared.is_empty() { Err("no load is the same in two blocks") } else { Ok(pairs) }
    }

    /// The roles with two boxes at least of what is shared.
    fn paired_roles(&self, body: BlockId, mut pairs: Pairs) -> Option<Roles> {
        let mut roles = self.plan_roles(body, Some(&pairs))?;
        let loads = || roles.channels.iter().flat_map(|channel| &channel.loads);
        pairs.shared.retain(|&id, _| loads().any(|load| load.load == id && load.boxes.len() > 1));
        for channel in &roles.channels {
            roles.rings[channel.ring].paired |= channel.loads.iter().any(|load| pairs.may_share(load.load));
        }
        let any = !pairs.shared.is_empty();
        roles.pairs = Some(pairs);
        any.then_some(roles)
    }

    fn pairs(&self) -> Option<&Pairs> {
        self.rings.as_ref().and_then(|rings| rings.roles.pairs.as_ref())
    }

    /// Tile blocks of a cluster.
    pub fn cluster(&self) -> u32 {
        if self.pairs().is_some() { BLOCKS } else { 1 }
    }

    /// Blocks of the pair that may share the tile of this load.
    pub fn sharing_blocks(&self, load: OpId) -> u32 {
        if self.pairs().is_some_and(|pairs| pairs.may_share(load)) { BLOCKS } else { 1 }
    }

    /// After an op of the producer: computes it for the peer, and compares what decides about loads.
    pub fn mirror(&mut self, id: OpId) -> Lowered {
        let Some(pairs) = self.pairs().filter(|pairs| self.role == Role::Producer && pairs.mirrored.contains(&id))
        else {
            return Ok(());
        };
        let results = &self.module.op(id).results;
        let decides = |value: &&Value| pairs.shared.values().any(|deciding| deciding.contains(value));
        let deciding: Vec<Value> = results.iter().filter(decides).copied().collect();
        for &result in results {
            self.peer.tiles.entry(result).or_default();
        }
        self.as_peer(|lowering| lowering.op(id))?;
        for value in deciding {
            let own = self.scalar(value)?;
            let other = self.as_peer(|lowering| lowering.scalar(value))?;
            let ty = if self.module.dtype(value) == DType::I64 { Ty::U64 } else { Ty::U32 };
            let same = self.b.setp(Cmp::Eq, ty, own, other);
            self.peer.same.insert(value, same);
        }
        Ok(())
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
        load: &Streamed,
        deciding: &[Value],
        stage: Reg,
        barrier: &Addr,
        peer: Reg,
    ) -> Lowered {
        let same: Vec<Reg> = deciding.iter().filter_map(|value| self.peer.same.get(value).copied()).collect();
        if same.len() != deciding.len() {
            return Err("an index is unknown for the other block".to_owned());
        }
        let same = same.into_iter().reduce(|all, one| self.b.and(Ty::Pred, all, one).reg());
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
        for boxes in load.boxes.chunks(BLOCKS as usize) {
            let (first, last) = (&boxes[0], &boxes[boxes.len() - 1]);
            // The first of the two where the peer's rank is 0, the other one where it is 1.
            let mut choose = |of: &dyn Fn(&Box) -> i64, base: Operand| {
                let (first, last) = (of(first), of(last));
                let base = self.b.add(Ty::S32, base, first);
                if first == last { base } else { self.b.mad(Ty::S32, peer, last - first, base) }
            };
            let axes = box_order(start.len(), fastest);
            let coords: Vec<Operand> =
                axes.zip(&start).map(|(axis, &start)| choose(&|part| part.place[axis], start)).collect();
            let target = choose(&|part| i64::from(load.offset + part.at), stage.into());
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
    pub fn issue(&mut self, load: &Streamed, stage: Reg, barrier: &Addr, cluster: bool) -> Lowered {
        let op = self.module.op(load.load);
        let map = self.tensor_map_address(&load.map);
        for part in &load.boxes {
            let coords = self.tma_coords(op.group(0)[0], op.group(1), &part.place)?;
            let target = Addr::new(stage, i64::from(load.offset + part.at));
            self.b.tma_load(&target, map, &coords, barrier, LoadRoute { cluster, ..LoadRoute::default() });
        }
        Ok(())
    }

    /// Indices that decide whether a load is shared; `None` if it never is.
    pub fn deciding(roles: &Roles, load: OpId) -> Option<&[Value]> {
        roles.pairs.as_ref()?.shared.get(&load).map(Vec::as_slice)
    }

    /// Before the producer of a pair ends: waits until the consumers of both blocks have given back all stages. From
    /// then on nobody writes into the shared memory of this block, nor tells it anything.
    pub fn drain_rings(&mut self) {
        let Some(rings) = self.rings.as_ref().filter(|_| self.role == Role::Producer) else { return };
        let mut channels = Vec::new();
        for (index, ring) in rings.roles.rings.iter().enumerate().filter(|(_, ring)| ring.paired) {
            let channel = rings.roles.channels.iter().position(|channel| channel.ring == index);
            channels.extend(channel.map(|channel| (channel, ring.stages)));
        }
        for (channel, stages) in channels {
            (0..stages).for_each(|_| drop(self.free_stage(channel)));
        }
    }
}
