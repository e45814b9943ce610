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
    fn meets(self, other: MemoryRoot) -> bool {
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
    deed: AccessKind,
    pattern: Option<ThreadElementMap>,
}

impl MemoryEffect {
    /// May different threads meet at one element, one of them writing?
    ///
    /// Two accesses of one pattern need no order between threads: an element always belongs to the same
    /// thread. Where several hold it, one of them stores but all of them load.
    pub fn conflicts(&self, other: &MemoryEffect) -> bool {
        let same_deed = self.deed == other.deed;
        if !self.root.meets(other.root) || (same_deed && self.deed != AccessKind::Store) {
            return false;
        }
        match &self.pattern {
            Some(pattern) if self.pattern == other.pattern => !same_deed && pattern.layout.replication() > 1,
            _ => true,
        }
    }

    /// May both be accesses to the same memory, by whichever threads?
    #[cfg(any(test, feature = "_suite"))]
    pub fn may_meet(&self, other: &MemoryEffect) -> bool {
        self.root.meets(other.root)
    }
}

/// What a kernel writes.
///
/// Arrays are told apart by their base parameter: the arguments of a launch do not overlap where one of them is written.
#[derive(Clone, Debug, Default)]
pub struct WrittenMemory {
    stored: HashSet<MemoryRoot>,
    /// Has the block memory of its own?
    has_own: bool,
}

impl WrittenMemory {
    /// By the kernel with this body.
    pub fn of(module: &Module, body: BlockId) -> WrittenMemory {
        let (mut stored, mut has_own) = (HashSet::new(), false);
        module.walk(body, &mut |id| {
            has_own |= module.op(id).code == Opcode::Alloca;
            if let Some((address, deed)) = deed(module, id)
                && deed != AccessKind::Load
            {
                stored.insert(place(module, address));
            }
            if module.op(id).code == Opcode::MemoryFenceAlias {
                // One memory under two addresses: what is only read may be written.
                stored.insert(MemoryRoot::Unknown);
            }
        });
        WrittenMemory { stored, has_own }
    }

    /// Is this global memory that the kernel never writes?
    fn read_only(&self, root: MemoryRoot) -> bool {
        let own = matches!(root, MemoryRoot::BlockLocal(_)) || (root == MemoryRoot::Unknown && self.has_own);
        !own && !self.stored.iter().any(|&stored| stored.meets(root))
    }

    /// Is the array behind this view or these pointers never written by this kernel?
    pub fn is_read_only(&self, module: &Module, address: Value) -> bool {
        self.read_only(place(module, address))
    }

    /// Is what this touches never written?
    pub fn does_not_modify(&self, touch: &MemoryEffect) -> bool {
        self.read_only(touch.root)
    }
}

/// May a view or pointers lead anywhere?
pub fn is_unknown(module: &Module, address: Value) -> bool {
    place(module, address) == MemoryRoot::Unknown
}

/// Where the memory behind a view or pointers is.
fn place(module: &Module, address: Value) -> MemoryRoot {
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
fn deed(module: &Module, id: OpId) -> Option<(Value, AccessKind)> {
    let op = module.op(id);
    let mode = match op.attr(AttrKind::AtomicMode) {
        Some(Attr::AtomicMode(mode)) => AccessKind::CommutativeAtomic(*mode),
        _ => AccessKind::Store,
    };
    let deed = match op.code {
        Opcode::LoadView | Opcode::LoadPtr => AccessKind::Load,
        Opcode::StoreView | Opcode::StorePtr | Opcode::AtomicCas => AccessKind::Store,
        Opcode::AtomicRmw | Opcode::AtomicRedView => mode,
        _ => return None,
    };
    Some((op.address()?, deed))
}

impl MemoryEffect {
    /// What an op does by itself, if it is an access. `is_read`: somebody reads a number that it gives. `layout`: the one in
    /// which it touches memory, by a view that is described once.
    pub fn of(
        module: &Module,
        id: OpId,
        is_read: bool,
        layout: impl FnOnce(OpId) -> Option<Layout>,
    ) -> Option<MemoryEffect> {
        let (view, mut deed) = deed(module, id)?;
        if matches!(deed, AccessKind::CommutativeAtomic(_)) && is_read {
            deed = AccessKind::Store;
        }
        let pattern = ViewShape::of(module, view).filter(ViewShape::is_partition).and_then(|shape| {
            let ViewShape { tensor, tile, dim_map, .. } = shape;
            layout(tensor).map(|layout| ThreadElementMap { tensor, tile, dim_map, layout })
        });
        Some(MemoryEffect { root: place(module, view), deed, pattern })
    }
}
