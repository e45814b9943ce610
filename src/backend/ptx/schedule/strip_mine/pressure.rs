//! Register pressure of a sequence, whole-tile and strip-mined.
//!
//! Units are 32-bit registers of a thread. The result of an op reuses the registers of a tile that
//! the op reads last, register by register.

use crate::util::collect::CollectVec as _;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::backend::ptx::layout_inference::ValueOrigin;
use crate::backend::ptx::plan::num_warps;
use crate::backend::ptx::schedule::KernelInfo;
use crate::ir::{BlockId, Def, OpId, Opcode, Value};
use crate::layout::Layout;

/// Registers of a sequence of ops on whole tiles.
struct Pressure {
    /// Tiles that the sequence reads.
    before: u64,
    /// The maximum.
    most: u64,
    /// Tiles that later ops read.
    after: u64,
    /// Broadcast tiles, which are complete before the first strip iteration.
    broadcast: u64,
}

impl KernelInfo<'_> {
    /// Returns true if strip mining of these ops, with these live-out tiles, is profitable: whole
    /// tiles would leave too few registers, and strip iterations need fewer.
    pub fn is_profitable(&self, (block, layout): (BlockId, &Layout), ops: &[OpId], live_out: &[Value]) -> bool {
        let Pressure { before, most, after, broadcast } = self.pressure((block, layout), ops, live_out);
        most > after.max(before + broadcast) && num_warps::fills_registers(most, self.inference.num_warps as u32)
    }

    /// Returns true if a tile that is reduced, the tiles that it is computed from, and those of
    /// them that later ops read, leave too few registers.
    pub fn reduction_fills_registers(&self, id: OpId, layout: &Layout) -> bool {
        let Some(block) = self.regions.block_of(id) else { return false };
        let (mut chain, mut pending) = (vec![id], self.module.op(id).operands.clone());
        while let Some(name) = pending.pop() {
            let Some(value) = self.register_tile(name) else { continue };
            let Some(maker) = self.module.defining_op(value) else { continue };
            let op = self.module.op(maker);
            let is_inside = op.code.is_elementwise() && self.regions.block_of(maker) == Some(block);
            if is_inside && self.uses.count(value) == 1 && !chain.contains(&maker) {
                chain.push(maker);
                pending.extend(&op.operands);
            }
        }
        let ops = &self.module.block(block).ops;
        let chain: Vec<OpId> = ops.iter().copied().filter(|id| chain.contains(id)).collect_vec();
        let Pressure { most, .. } = self.pressure((block, layout), &chain, &[]);
        num_warps::fills_registers(most, self.inference.num_warps as u32)
    }

    /// Returns the registers of these ops, with these live-out tiles.
    fn pressure(&self, (block, layout): (BlockId, &Layout), ops: &[OpId], live_out: &[Value]) -> Pressure {
        let mut uses: FxHashMap<Value, usize> = FxHashMap::default();
        ops.iter().flat_map(|&id| &self.module.op(id).operands).for_each(|&name| *uses.entry(name).or_default() += 1);
        let mut names: FxHashMap<Value, Value> = FxHashMap::default();
        let mut reads = |id: OpId| {
            let op = self.module.op(id);
            let values = if op.code == Opcode::StoreView { op.group(0) } else { &op.operands[..] };
            let read = values.iter().filter_map(|&name| Some((self.register_tile(name)?, name)));
            read.map(|(value, name)| *names.entry(value).insert_entry(name).key()).collect::<Vec<Value>>()
        };
        let makes = |id: OpId| {
            let results = self.module.op(id).results.iter().copied();
            results.filter(|&value| self.register_tile(value) == Some(value)).collect::<Vec<Value>>()
        };
        let accesses: Vec<(Vec<Value>, Vec<Value>)> = ops.iter().map(|&id| (reads(id), makes(id))).collect_vec();
        let inside: FxHashSet<Value> = accesses.iter().flat_map(|(_, makes)| makes).copied().collect();
        let mut ends: FxHashMap<Value, usize> = FxHashMap::default();
        for (position, (reads, makes)) in accesses.iter().enumerate() {
            ends.extend(reads.iter().chain(makes).map(|&value| (value, position)));
        }
        let stays = |value: &Value| match inside.contains(value) {
            true => live_out.contains(value),
            false => !self.is_last_used_in(names[value], block, &uses),
        };
        ends.retain(|value, _| !stays(value));
        let outside: FxHashSet<Value> =
            accesses.iter().flat_map(|(reads, _)| reads).copied().filter(|value| !inside.contains(value)).collect();
        let sum = |values: &mut dyn Iterator<Item = Value>| values.map(|value| self.words(value)).sum::<u64>();
        let before = sum(&mut outside.iter().copied());
        let after = sum(&mut outside.iter().copied().filter(stays).chain(live_out.iter().copied()));
        let (mut live, mut most) = (before, before);
        for (position, (reads, makes)) in accesses.iter().enumerate() {
            let ended: FxHashSet<Value> =
                reads.iter().copied().filter(|value| ends.get(value) == Some(&position)).collect();
            let (ended, made) = (sum(&mut ended.into_iter()), sum(&mut makes.iter().copied()));
            live -= ended;
            most = most.max(live + ended.max(made));
            live += made - sum(&mut makes.iter().copied().filter(|value| ends.get(value) == Some(&position)));
        }
        let broadcast = self.broadcast_words(uses.keys().copied(), layout);
        Pressure { before, most, after, broadcast }
    }

    /// Returns the tile in registers that a value is a view of, or the value itself. `None` for
    /// values of one element, and for values that are computed at their use.
    fn register_tile(&self, name: Value) -> Option<Value> {
        let value = self.through_views(name);
        let is_tile = self.module.ty(value).as_tile().is_some() && self.inference.num_elements(value) > 1;
        (is_tile && self.inference.origin(value) == ValueOrigin::Register).then_some(value)
    }

    /// Returns the value of which this value is a view of registers, or the value itself.
    pub fn through_views(&self, mut value: Value) -> Value {
        while let Some(id) = self.module.defining_op(value).filter(|_| self.is_view_of_registers(value)) {
            value = self.module.op(id).operands[0];
        }
        value
    }

    /// Returns true if a value has the same elements in the same registers as another value.
    pub fn is_view_of_registers(&self, value: Value) -> bool {
        let code = self.module.defining_op(value).map(|id| self.module.op(id).code);
        matches!(code, Some(Opcode::Reshape | Opcode::Assume | Opcode::WithLayout))
            && self.inference.origin(value) == ValueOrigin::View
    }

    /// Returns true if the ops with these numbers of uses have all uses of a tile, including its
    /// views, and the tile is defined in their block.
    fn is_last_used_in(&self, name: Value, block: BlockId, uses: &FxHashMap<Value, usize>) -> bool {
        let mut value = name;
        let mut required = uses.get(&name).copied();
        while required == Some(self.uses.count(value)) && self.is_view_of_registers(value) {
            let Some(id) = self.module.defining_op(value) else { return false };
            (value, required) = (self.module.op(id).operands[0], Some(1));
        }
        let is_here = match self.module.def(value) {
            Def::Arg(owner, _) => owner == block,
            Def::Result(maker, _) => self.regions.block_of(maker) == Some(block),
        };
        is_here && required == Some(self.uses.count(value))
    }

    /// Returns the words of tiles from outside that are broadcast or permuted. They are complete
    /// before the first strip iteration.
    fn broadcast_words(&self, names: impl Iterator<Item = Value>, layout: &Layout) -> u64 {
        let words = |value: Value| {
            let id = self.module.defining_op(self.through_views(value))?;
            let op = self.module.op(id);
            let value = op.results[0];
            let stretched = matches!(op.code, Opcode::Broadcast | Opcode::Permute);
            if !stretched || self.inference.origin(value) != ValueOrigin::View {
                return None;
            }
            let registers = self.inference.demand(id, &layout.reshape(self.module.shape(value))).num_registers();
            Some(registers as u64 * u64::from(self.element_type(value).storage_bits()) / 32)
        };
        names.filter_map(words).sum()
    }

    fn words(&self, value: Value) -> u64 {
        let registers = self.inference.natural(value).map_or(0, |layout| layout.num_registers());
        registers as u64 * u64::from(self.element_type(value).storage_bits()) / 32
    }
}
