//! Alias sets: the memory effects of each op, and the disjointness of loop iterations.
//!
//! Memory is distinguished by the root of its address: a parameter, a global, an `alloca`. Distinct
//! parameters are distinct memory, unless all accesses are loads: a launch borrows each array
//! either for readers or for one writer. An address of unknown root may be in any memory; then
//! there is one set.

use crate::util::collect::CollectVec as _;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::op_table::Effect;
use crate::ir::{
    Attr, AttrKind, BlockId, ConstData, Def, Entry, MemOrder, Module, Op, OpId, Opcode, Overflow, Type, Value,
};
use crate::pass::IntRanges;

/// Number of an alias set.
pub(super) type AliasSet = usize;

/// Effects of an op, including its regions, on one set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryEffect {
    pub reads: bool,
    pub writes: bool,
}

impl MemoryEffect {
    fn add(&mut self, other: MemoryEffect) {
        self.reads |= other.reads;
        self.writes |= other.writes;
    }

    /// Returns true if the two effects must be ordered.
    pub fn conflicts(self, other: MemoryEffect) -> bool {
        (self.writes && (other.reads || other.writes)) || (other.writes && self.reads)
    }
}

/// Root of an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Root {
    Param(Value),
    Global(String),
    Alloca(Value),
    Unknown,
    /// Output of prints.
    Output,
}

/// Memory effects of one entry, by op.
pub(super) struct EntryEffects {
    /// Number of the sets that need an order: those with a write. Other sets have no number.
    pub num_sets: usize,
    effects: FxHashMap<OpId, Vec<(AliasSet, MemoryEffect)>>,
    fences: FxHashSet<OpId>,
}

impl EntryEffects {
    pub fn new(module: &Module, entry: &Entry) -> EntryEffects {
        let mut found: Vec<(OpId, Root, MemoryEffect)> = Vec::new();
        let mut fences = FxHashSet::default();
        module.walk(entry.body, &mut |id| {
            let op = module.op(id);
            if is_fence(op) {
                fences.insert(id);
            }
            if let Some((root, effect)) = access(module, op) {
                found.push((id, root, effect));
            }
        });
        if found.iter().any(|(_, root, _)| *root == Root::Unknown) {
            for (_, root, _) in found.iter_mut().filter(|(_, root, _)| *root != Root::Output) {
                *root = Root::Unknown;
            }
        }
        let mut by_root: FxHashMap<&Root, MemoryEffect> = FxHashMap::default();
        found.iter().for_each(|(_, root, effect)| by_root.entry(root).or_default().add(*effect));
        // With fences, loads of memory that this entry never writes must also stay on their side of
        // the fence.
        let ordered = |root: &Root| by_root[root].writes || !fences.is_empty();
        let mut numbers: FxHashMap<&Root, AliasSet> = FxHashMap::default();
        let mut effects: FxHashMap<OpId, Vec<(AliasSet, MemoryEffect)>> = FxHashMap::default();
        for (id, root, effect) in &found {
            if ordered(root) {
                let next = numbers.len();
                let set = *numbers.entry(root).or_insert(next);
                effects.insert(*id, vec![(set, *effect)]);
            }
        }
        let num_sets = numbers.len();
        for &id in &fences {
            let all = MemoryEffect { reads: true, writes: true };
            effects.insert(id, (0..num_sets).map(|set| (set, all)).collect_vec());
        }
        let mut all = EntryEffects { num_sets, effects, fences };
        all.add_region_effects(module, entry.body);
        all
    }

    /// Assigns to each op with regions the sum of their effects.
    fn add_region_effects(&mut self, module: &Module, block: BlockId) -> Vec<(AliasSet, MemoryEffect)> {
        let mut sum = vec![MemoryEffect::default(); self.num_sets];
        for &id in &module.block(block).ops {
            let mut own = vec![MemoryEffect::default(); self.num_sets];
            for &region in &module.op(id).regions {
                self.add_region_effects(module, region).into_iter().for_each(|(set, effect)| own[set].add(effect));
            }
            if !module.op(id).regions.is_empty() {
                let list = own.into_iter().enumerate().filter(|(_, effect)| *effect != MemoryEffect::default());
                self.effects.insert(id, list.collect_vec());
            }
            self.effects(id).iter().for_each(|(set, effect)| sum[*set].add(*effect));
        }
        sum.into_iter().enumerate().filter(|(_, effect)| *effect != MemoryEffect::default()).collect_vec()
    }

    /// Returns the sets that an op accesses, including its regions.
    pub fn effects(&self, id: OpId) -> &[(AliasSet, MemoryEffect)] {
        self.effects.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Returns the effects of an op on one set, including its regions.
    pub fn effect(&self, id: OpId, set: AliasSet) -> MemoryEffect {
        self.effects(id).iter().find(|(s, _)| *s == set).map_or(MemoryEffect::default(), |(_, effect)| *effect)
    }

    /// Returns loads and stores of tiles in sets that the entry also writes by element. Atomic
    /// additions of tiles through views use TMA in order, and are excluded.
    pub fn tiles_mixed_with_elements(&self, module: &Module, entry: &Entry) -> Vec<OpId> {
        let mut by_element = FxHashSet::default();
        let mut tiles = Vec::new();
        module.walk(entry.body, &mut |id| {
            let op = module.op(id);
            if !op.regions.is_empty() || self.fences.contains(&id) && access(module, op).is_none() {
                return;
            }
            for &(set, effect) in self.effects(id) {
                match op.code {
                    Opcode::LoadView | Opcode::StoreView => tiles.push((set, id)),
                    Opcode::AtomicRedView => {}
                    _ if effect.writes => drop(by_element.insert(set)),
                    _ => {}
                }
            }
        });
        tiles.retain(|(set, _)| by_element.contains(set));
        tiles.into_iter().map(|(_, id)| id).collect_vec()
    }

    /// Returns true if each iteration of this `for` accesses tiles of the set that no other
    /// iteration accesses.
    ///
    /// This holds if all accesses use one partition of one array. Along one dimension, their
    /// indices are the same injective function of the loop counter. The memory of a written array
    /// does not overlap itself.
    pub fn iterations_are_disjoint(&self, module: &Module, facts: &IntRanges, id: OpId, set: AliasSet) -> bool {
        let op = module.op(id);
        if op.code != Opcode::For {
            return false;
        }
        let body = op.regions[0];
        let Some(&counter) = module.block(body).args.first() else { return false };
        let mut inside = FxHashSet::default();
        let mut list = Vec::new();
        module.walk(body, &mut |inner| {
            inside.insert(inner);
            if module.op(inner).regions.is_empty() && self.effect(inner, set) != MemoryEffect::default() {
                list.push(inner);
            }
        });
        if list.iter().any(|inner| self.fences.contains(inner)) {
            return false;
        }
        let Some(&first) = list.first() else { return false };
        let Some((view, index)) = partition_access(module, first) else { return false };
        // An array view that is created in each iteration may have another base address.
        if array_of(module, view).is_none_or(|id| inside.contains(&id)) {
            return false;
        }
        let rank = index.len();
        let same = |d: usize| {
            list.iter().all(|&other| {
                partition_access(module, other)
                    .is_some_and(|(v, i)| same_tiling(module, view, v) && i.get(d) == index.get(d))
            })
        };
        let loop_body = LoopBody { module, facts, counter, inside: &inside };
        (0..rank).any(|d| same(d) && loop_body.is_injective(index[d], 0))
    }
}

fn is_fence(op: &Op) -> bool {
    let ordering = matches!(
        op.attr(AttrKind::MemOrder),
        Some(Attr::MemOrder(MemOrder::Acquire | MemOrder::Release | MemOrder::AcqRel))
    );
    ordering || matches!(op.code, Opcode::GdcWait | Opcode::GdcLaunchDependents | Opcode::MemoryFenceAlias)
}

/// Returns the memory root and the effects of an op without regions.
fn access(module: &Module, op: &Op) -> Option<(Root, MemoryEffect)> {
    let is_weak = op.attr(AttrKind::MemOrder) == Some(&Attr::MemOrder(MemOrder::Weak));
    let effect = match op.code.spec().effect {
        // Two ordered reads of memory that other blocks write stay in order: the second one must
        // not read an older value.
        Effect::Read => MemoryEffect { reads: true, writes: !is_weak },
        Effect::Write => MemoryEffect { reads: false, writes: true },
        Effect::ReadWrite => MemoryEffect { reads: true, writes: true },
        Effect::Other if op.code == Opcode::Print => {
            return Some((Root::Output, MemoryEffect { reads: true, writes: true }));
        }
        Effect::Pure | Effect::Region | Effect::Other | Effect::Terminator => return None,
    };
    let address = ["view", "pointers", "source", "destination"];
    let group = op.code.spec().operands.iter().position(|o| address.contains(&o.name))?;
    Some((root(module, op.group(group)[0]), effect))
}

/// Returns the root of an address.
fn root(module: &Module, address: Value) -> Root {
    let base = module.base(address);
    match module.def(base) {
        Def::Arg(block, _) if module.block(block).parent.is_none() => Root::Param(base),
        Def::Arg(..) => Root::Unknown,
        Def::Result(id, _) => match (module.op(id).code, module.op(id).attr(AttrKind::Text)) {
            (Opcode::GetGlobal, Some(Attr::Text(name))) => Root::Global(name.to_string()),
            (Opcode::Alloca, _) => Root::Alloca(base),
            // Loaded, selected or computed addresses may point to any memory.
            _ => Root::Unknown,
        },
    }
}

/// Returns view and index of a load or store through a partition view.
fn partition_access(module: &Module, id: OpId) -> Option<(Value, &[Value])> {
    let op = module.op(id);
    if !matches!(op.code, Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView) {
        return None;
    }
    let view = op.operand_group("view")[0];
    matches!(module.ty(view), Type::PartitionView { .. }).then(|| (view, op.operand_group("index")))
}

/// Returns the op that creates the array view of a partition view.
fn array_of(module: &Module, view: Value) -> Option<OpId> {
    let cut = module.op(module.defining_op(view)?);
    let mut tensor = module.defining_op(cut.operands[0])?;
    while module.op(tensor).code == Opcode::Assume {
        tensor = module.defining_op(module.op(tensor).operands[0])?;
    }
    Some(tensor)
}

/// Returns true if two partition views divide the same array into the same tiles.
fn same_tiling(module: &Module, a: Value, b: Value) -> bool {
    let tensor = |view: Value| module.defining_op(view).map(|id| module.op(id).operands[0]);
    let cut = |view: Value| match module.ty(view) {
        Type::PartitionView { tile, dim_map, .. } => Some((tile, dim_map)),
        _ => None,
    };
    a == b || (tensor(a).is_some() && tensor(a) == tensor(b) && cut(a) == cut(b))
}

struct LoopBody<'a> {
    module: &'a Module,
    facts: &'a IntRanges,
    counter: Value,
    inside: &'a FxHashSet<OpId>,
}

impl LoopBody<'_> {
    fn is_invariant(&self, value: Value) -> bool {
        match self.module.def(value) {
            Def::Result(id, _) => !self.inside.contains(&id) || self.facts.constant(value).is_some(),
            Def::Arg(block, _) => match self.module.block(block).parent {
                None => true,
                Some(owner) => value != self.counter && !self.inside.contains(&owner) && !self.owns(block),
            },
        }
    }

    fn owns(&self, block: BlockId) -> bool {
        self.module.block(block).args.contains(&self.counter)
    }

    /// Returns true if the value differs between any two iterations.
    fn is_injective(&self, value: Value, depth: u32) -> bool {
        if value == self.counter {
            return true;
        }
        let Some(id) = self.module.defining_op(value).filter(|id| self.inside.contains(id)) else { return false };
        let op = self.module.op(id);
        let deeper = |v: Value| depth < 8 && self.is_injective(v, depth + 1);
        match op.code {
            code if code.has_operand_elements() || code == Opcode::ExtI => deeper(op.operands[0]),
            // Sums and differences with an invariant value are injective, also if they wrap.
            Opcode::AddI | Opcode::SubI => {
                let (a, b) = (op.operands[0], op.operands[1]);
                (deeper(a) && self.is_invariant(b)) || (self.is_invariant(a) && deeper(b))
            }
            Opcode::MulI => {
                let (a, b) = (op.operands[0], op.operands[1]);
                let (varying, factor) = if self.is_invariant(b) { (a, b) } else { (b, a) };
                self.is_invariant(factor) && deeper(varying) && self.multiplies_without_loss(op, factor)
            }
            _ => false,
        }
    }

    /// Returns true if the multiplication is injective. Odd factors are invertible modulo a power
    /// of two; other factors need a product that does not wrap.
    fn multiplies_without_loss(&self, op: &Op, factor: Value) -> bool {
        let constant = self.facts.constant(factor).or_else(|| splat(self.module, factor));
        let no_wrap = matches!(op.overflow(), Overflow::Nsw | Overflow::Nw);
        constant.is_some_and(|c| c & 1 == 1 || (c != 0 && no_wrap))
    }
}

fn splat(module: &Module, value: Value) -> Option<i64> {
    match module.op(module.defining_op(value)?).const_data()? {
        ConstData::Splat(bits) => Some(*bits as i64),
        ConstData::Dense(_) => None,
    }
}
