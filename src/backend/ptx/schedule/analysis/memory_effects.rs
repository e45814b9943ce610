//! Memory effects: which elements of which array an op reads or writes.

use std::collections::HashSet;

use crate::backend::ptx::layout_inference::ViewShape;
use crate::ir::{AtomicMode, Attr, AttrKind, BlockId, Def, Module, OpId, Opcode, Value};
use crate::layout::Layout;

/// Which thread touches which element of an array, as far as it decides about races inside a block.
#[derive(Clone, Debug, PartialEq)]
struct ThreadElementMap {
    tensor: OpId,
    tile: Vec<i64>,
    dim_map: Vec<usize>,
    layout: Layout,
}

/// Where addresses come from, as far as it tells accesses apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryRoot {
    /// A parameter.
    Param(Value),
    /// Memory of the block's own.
    BlockLocal(Value),
    /// A global array.
    Global,
    /// It may be anywhere.
    Unknown,
}

impl MemoryRoot {
    /// May both be the same memory?
    fn may_alias(self, other: MemoryRoot) -> bool {
        self == other || self == MemoryRoot::Unknown || other == MemoryRoot::Unknown
    }
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AccessKind {
    Load,
    Store,
    /// An atomic whose result nobody reads: those of one mode need no order.
    CommutativeAtomic(AtomicMode),
}

/// An access to an array.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryEffect {
    root: MemoryRoot,
    kind: AccessKind,
    element_map: Option<ThreadElementMap>,
}

impl MemoryEffect {
    /// May different threads access one element, one of them writing?
    ///
    /// Two accesses of one pattern need no order between threads: an element always belongs to the
    /// same thread. Where several hold it, one of them stores but all of them load.
    pub fn may_race(&self, other: &MemoryEffect) -> bool {
        let same_kind = self.kind == other.kind;
        if !self.root.may_alias(other.root) || (same_kind && self.kind != AccessKind::Store) {
            return false;
        }
        match &self.element_map {
            Some(element_map) if self.element_map == other.element_map => {
                !same_kind && element_map.layout.replication() > 1
            }
            _ => true,
        }
    }

    /// May both be accesses to the same memory, by whichever threads?
    #[cfg(any(test, feature = "_suite"))]
    pub fn may_alias_across_threads(&self, other: &MemoryEffect) -> bool {
        self.root.may_alias(other.root)
    }
}

/// What a kernel writes.
///
/// Arrays are told apart by their base parameter: the arguments of a launch do not overlap where
/// one of them is written.
#[derive(Clone, Debug, Default)]
pub struct WrittenMemory {
    stored_roots: HashSet<MemoryRoot>,
    /// Has the block memory of its own?
    has_block_local: bool,
}

impl WrittenMemory {
    /// By the kernel with this body.
    pub fn of(module: &Module, body: BlockId) -> WrittenMemory {
        let (mut stored_roots, mut has_block_local) = (HashSet::new(), false);
        module.walk(body, &mut |id| {
            has_block_local |= module.op(id).code == Opcode::Alloca;
            if let Some((address, kind)) = address_and_kind(module, id)
                && kind != AccessKind::Load
            {
                stored_roots.insert(memory_root(module, address));
            }
            if module.op(id).code == Opcode::MemoryFenceAlias {
                // One memory under two addresses: what is only read may be written.
                stored_roots.insert(MemoryRoot::Unknown);
            }
        });
        WrittenMemory { stored_roots, has_block_local }
    }

    /// Is this global memory that the kernel never writes?
    fn is_root_read_only(&self, root: MemoryRoot) -> bool {
        let own = matches!(root, MemoryRoot::BlockLocal(_)) || (root == MemoryRoot::Unknown && self.has_block_local);
        !own && !self.stored_roots.iter().any(|&stored_roots| stored_roots.may_alias(root))
    }

    /// Is the array behind this view or these pointers never written by this kernel?
    pub fn is_read_only(&self, module: &Module, address: Value) -> bool {
        self.is_root_read_only(memory_root(module, address))
    }

    /// Is what this touches never written?
    pub fn does_not_modify(&self, effect: &MemoryEffect) -> bool {
        self.is_root_read_only(effect.root)
    }
}

/// May a view or pointers lead anywhere?
pub fn has_unknown_root(module: &Module, address: Value) -> bool {
    memory_root(module, address) == MemoryRoot::Unknown
}

/// Where the memory behind a view or pointers is.
fn memory_root(module: &Module, address: Value) -> MemoryRoot {
    let root = module.base(address);
    match module.def(root) {
        Def::Arg(block, _) if module.block(block).parent.is_none() => MemoryRoot::Param(root),
        Def::Arg(..) => MemoryRoot::Unknown,
        Def::Result(op, _) => match module.op(op).code {
            Opcode::Alloca => MemoryRoot::BlockLocal(root),
            Opcode::GetGlobal => MemoryRoot::Global,
            _ => MemoryRoot::Unknown,
        },
    }
}

/// The address that an op accesses by itself, and what it does there.
fn address_and_kind(module: &Module, id: OpId) -> Option<(Value, AccessKind)> {
    let op = module.op(id);
    let mode = match op.attr(AttrKind::AtomicMode) {
        Some(Attr::AtomicMode(mode)) => AccessKind::CommutativeAtomic(*mode),
        _ => AccessKind::Store,
    };
    let kind = match op.code {
        Opcode::LoadView | Opcode::LoadPtr => AccessKind::Load,
        Opcode::StoreView | Opcode::StorePtr | Opcode::AtomicCas => AccessKind::Store,
        Opcode::AtomicRmw | Opcode::AtomicRedView => mode,
        _ => return None,
    };
    Some((op.address()?, kind))
}

impl MemoryEffect {
    /// What an op does by itself, if it is an access. `is_read`: somebody reads a number that it
    /// gives. `layout`: the one in which it touches memory, by a view that is described once.
    pub fn of(
        module: &Module,
        id: OpId,
        is_read: bool,
        layout: impl FnOnce(OpId) -> Option<Layout>,
    ) -> Option<MemoryEffect> {
        let (view, mut kind) = address_and_kind(module, id)?;
        if matches!(kind, AccessKind::CommutativeAtomic(_)) && is_read {
            kind = AccessKind::Store;
        }
        let element_map = ViewShape::of(module, view).filter(ViewShape::is_partition).and_then(|shape| {
            let ViewShape { tensor, tile, dim_map, .. } = shape;
            layout(tensor).map(|layout| ThreadElementMap { tensor, tile, dim_map, layout })
        });
        Some(MemoryEffect { root: memory_root(module, view), kind, element_map })
    }
}
