//! Which memory each op touches: alias sets, read or write, and whether the iterations of a loop
//! touch different tiles.
//!
//! Memory is told apart by where its address comes from: a parameter, a global, an `alloca`. Distinct
//! parameters are distinct memory unless all accesses are loads: the launch lends each array either
//! to readers or to one writer. An address of unknown origin may be any of them, and then there is one set.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ir::op_table::Effect;
use crate::ir::{
    Attr, AttrKind, BlockId, ConstData, Def, Entry, MemOrder, Module, Op, OpId, Opcode, Overflow, Type, Value,
};
use crate::pass::IntRanges;

/// Number of an alias set.
pub(super) type Set = usize;

/// What an op, or everything in its regions, does to one set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Touch {
    pub reads: bool,
    pub writes: bool,
}

impl Touch {
    fn add(&mut self, other: Touch) {
        self.reads |= other.reads;
        self.writes |= other.writes;
    }

    /// Must one of the two come before the other?
    pub fn conflicts(self, other: Touch) -> bool {
        (self.writes && (other.reads || other.writes)) || (other.writes && self.reads)
    }
}

/// Where an address comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Root {
    Param(Value),
    Global(String),
    Alloca(Value),
    Unknown,
    /// What prints write to.
    Output,
}

/// The accesses of one entry, by op.
pub(super) struct Accesses {
    /// Sets that need an order: all that something writes. Others have no number.
    pub num_sets: usize,
    touched: FxHashMap<OpId, Vec<(Set, Touch)>>,
    fences: FxHashSet<OpId>,
}

impl Accesses {
    pub fn of(module: &Module, entry: &Entry) -> Accesses {
        let mut found: Vec<(OpId, Root, Touch)> = Vec::new();
        let mut fences = FxHashSet::default();
        module.walk(entry.body, &mut |id| {
            let op = module.op(id);
            if is_fence(op) {
                fences.insert(id);
            }
            if let Some((root, touch)) = access(module, op) {
                found.push((id, root, touch));
            }
        });
        if found.iter().any(|(_, root, _)| *root == Root::Unknown) {
            for (_, root, _) in found.iter_mut().filter(|(_, root, _)| *root != Root::Output) {
                *root = Root::Unknown;
            }
        }
        let mut whole: FxHashMap<&Root, Touch> = FxHashMap::default();
        found.iter().for_each(|(_, root, touch)| whole.entry(root).or_default().add(*touch));
        // With fences, even loads of memory that nobody here writes have to stay on their side.
        let ordered = |root: &Root| whole[root].writes || !fences.is_empty();
        let mut numbers: FxHashMap<&Root, Set> = FxHashMap::default();
        let mut touched: FxHashMap<OpId, Vec<(Set, Touch)>> = FxHashMap::default();
        for (id, root, touch) in &found {
            if ordered(root) {
                let next = numbers.len();
                let set = *numbers.entry(root).or_insert(next);
                touched.insert(*id, vec![(set, *touch)]);
            }
        }
        let num_sets = numbers.len();
        for &id in &fences {
            let all = Touch { reads: true, writes: true };
            touched.insert(id, (0..num_sets).map(|set| (set, all)).collect());
        }
        let mut accesses = Accesses { num_sets, touched, fences };
        accesses.sum_up(module, entry.body);
        accesses
    }

    /// Gives each op with regions the sum of what they do.
    fn sum_up(&mut self, module: &Module, block: BlockId) -> Vec<(Set, Touch)> {
        let mut sum = vec![Touch::default(); self.num_sets];
        for &id in &module.block(block).ops {
            let mut own = vec![Touch::default(); self.num_sets];
            for &region in &module.op(id).regions {
                self.sum_up(module, region).into_iter().for_each(|(set, touch)| own[set].add(touch));
            }
            if !module.op(id).regions.is_empty() {
                let list = own.into_iter().enumerate().filter(|(_, touch)| *touch != Touch::default());
                self.touched.insert(id, list.collect());
            }
            self.touched(id).iter().for_each(|(set, touch)| sum[*set].add(*touch));
        }
        sum.into_iter().enumerate().filter(|(_, touch)| *touch != Touch::default()).collect()
    }

    /// The sets that an op with everything in its regions touches.
    pub fn touched(&self, id: OpId) -> &[(Set, Touch)] {
        self.touched.get(&id).map_or(&[], Vec::as_slice)
    }

    /// What an op with everything in its regions does to one set.
    pub fn touch(&self, id: OpId, set: Set) -> Touch {
        self.touched(id).iter().find(|(s, _)| *s == set).map_or(Touch::default(), |(_, touch)| *touch)
    }

    /// Loads and stores of tiles in sets that the entry also writes element by element. (Sums of tiles into views go
    /// through the copy engine as well, in order.)
    pub fn tiles_beside_elements(&self, module: &Module, entry: &Entry) -> Vec<OpId> {
        let mut by_element = FxHashSet::default();
        let mut tiles = Vec::new();
        module.walk(entry.body, &mut |id| {
            let op = module.op(id);
            if !op.regions.is_empty() || self.fences.contains(&id) && access(module, op).is_none() {
                return;
            }
            for &(set, touch) in self.touched(id) {
                match op.code {
                    Opcode::LoadView | Opcode::StoreView => tiles.push((set, id)),
                    Opcode::AtomicRedView => {}
                    _ if touch.writes => drop(by_element.insert(set)),
                    _ => {}
                }
            }
        });
        tiles.retain(|(set, _)| by_element.contains(set));
        tiles.into_iter().map(|(_, id)| id).collect()
    }

    /// Does each iteration of this `for` touch tiles of the set that no other iteration touches?
    ///
    /// So when every access goes through one partition of one array, with an index that is the same
    /// injective function of the loop counter along the same dimension. (The memory of an array that is
    /// written does not overlap itself.)
    pub fn iterations_are_disjoint(&self, module: &Module, facts: &IntRanges, id: OpId, set: Set) -> bool {
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
            if module.op(inner).regions.is_empty() && self.touch(inner, set) != Touch::default() {
                list.push(inner);
            }
        });
        if list.iter().any(|inner| self.fences.contains(inner)) {
            return false;
        }
        let Some(&first) = list.first() else { return false };
        let Some((view, index)) = partition_access(module, first) else { return false };
        // An array that is described anew in each iteration may begin elsewhere.
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

/// Memory and direction of an op that touches memory by itself.
fn access(module: &Module, op: &Op) -> Option<(Root, Touch)> {
    let is_weak = op.attr(AttrKind::MemOrder) == Some(&Attr::MemOrder(MemOrder::Weak));
    let touch = match op.code.spec().effect {
        // Of two reads of what others write, the second one must not see less.
        Effect::Read => Touch { reads: true, writes: !is_weak },
        Effect::Write => Touch { reads: false, writes: true },
        Effect::ReadWrite => Touch { reads: true, writes: true },
        Effect::Other if op.code == Opcode::Print => {
            return Some((Root::Output, Touch { reads: true, writes: true }));
        }
        Effect::Pure | Effect::Region | Effect::Other | Effect::Terminator => return None,
    };
    let address = ["view", "pointers", "source", "destination"];
    let group = op.code.spec().operands.iter().position(|o| address.contains(&o.name))?;
    Some((root(module, op.group(group)[0]), touch))
}

/// Follows an address to where it comes from.
fn root(module: &Module, address: Value) -> Root {
    let base = module.base(address);
    match module.def(base) {
        Def::Arg(block, _) if module.block(block).parent.is_none() => Root::Param(base),
        Def::Arg(..) => Root::Unknown,
        Def::Result(id, _) => match (module.op(id).code, module.op(id).attr(AttrKind::Text)) {
            (Opcode::GetGlobal, Some(Attr::Text(name))) => Root::Global(name.to_string()),
            (Opcode::Alloca, _) => Root::Alloca(base),
            // Loaded, chosen or computed addresses may point anywhere.
            _ => Root::Unknown,
        },
    }
}

/// View and index of a load or store through a partition view.
fn partition_access(module: &Module, id: OpId) -> Option<(Value, &[Value])> {
    let op = module.op(id);
    if !matches!(op.code, Opcode::LoadView | Opcode::StoreView | Opcode::AtomicRedView) {
        return None;
    }
    let view = op.operand_group("view")[0];
    matches!(module.ty(view), Type::PartitionView { .. }).then(|| (view, op.operand_group("index")))
}

/// The op that describes the array behind a partition view.
fn array_of(module: &Module, view: Value) -> Option<OpId> {
    let cut = module.op(module.defining_op(view)?);
    let mut tensor = module.defining_op(cut.operands[0])?;
    while module.op(tensor).code == Opcode::Assume {
        tensor = module.defining_op(module.op(tensor).operands[0])?;
    }
    Some(tensor)
}

/// Do two partition views cut the same array in the same way?
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

    /// Does the value differ between any two iterations?
    fn is_injective(&self, value: Value, depth: u32) -> bool {
        if value == self.counter {
            return true;
        }
        let Some(id) = self.module.defining_op(value).filter(|id| self.inside.contains(id)) else { return false };
        let op = self.module.op(id);
        let deeper = |v: Value| depth < 8 && self.is_injective(v, depth + 1);
        match op.code {
            Opcode::Assume | Opcode::ExtI | Opcode::Reshape => deeper(op.operands[0]),
            // Sums and differences with a fixed value are injective even where they wrap.
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

    /// Odd factors are invertible modulo a power of two; others are harmless if nothing wraps.
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
