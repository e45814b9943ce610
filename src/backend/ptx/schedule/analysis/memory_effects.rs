//! Memory effects: the elements of arrays that an op reads or writes.

use rustc_hash::FxHashSet;

use crate::backend::ptx::layout_inference::ViewShape;
use crate::ir::{AtomicMode, Attr, AttrKind, BlockId, Def, Module, OpId, Opcode, Value};
use crate::layout::Layout;

/// Map from threads to the accessed elements of an array, for races inside a CTA.
#[derive(Clone, Debug, PartialEq)]
struct ThreadElementMap {
    tensor: OpId,
    tile: Vec<i64>,
    steps: Vec<i64>,
    dim_map: Vec<usize>,
    layout: Layout,
}

/// Coordinates of the elements of an access along a dimension of its array, modulo a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Residues {
    /// The tensor view and its dimension.
    pub tensor: OpId,
    pub dim: usize,
    pub modulus: i128,
    /// First coordinate, and one past the last, at most the modulus.
    pub range: (i128, i128),
}

impl Residues {
    /// Returns true if no coordinate belongs to both.
    fn is_disjoint_from(&self, other: &Residues) -> bool {
        (self.tensor, self.dim, self.modulus) == (other.tensor, other.dim, other.modulus)
            && (self.range.1 <= other.range.0 || other.range.1 <= self.range.0)
    }
}

/// Origin of an address, by which accesses are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryRoot {
    /// A parameter.
    Param(Value),
    /// Memory that the CTA allocates.
    BlockLocal(Value),
    /// A global array.
    Global,
    /// Possibly any memory.
    Unknown,
}

impl MemoryRoot {
    /// Returns true if both may be the same memory.
    fn may_alias(self, other: MemoryRoot) -> bool {
        self == other || self == MemoryRoot::Unknown || other == MemoryRoot::Unknown
    }
}

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq)]
enum AccessKind {
    Load,
    Store,
    /// An atomic without a used result. Atomics of one mode need no order.
    CommutativeAtomic(AtomicMode),
}

/// An access to an array.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryEffect {
    root: MemoryRoot,
    kind: AccessKind,
    element_map: Option<ThreadElementMap>,
    residues: Vec<Residues>,
}

impl MemoryEffect {
    /// Returns true if different threads may access one element and one of them writes.
    ///
    /// Two accesses with equal maps need no order between threads: the same thread accesses an
    /// element. If the element is replicated, one thread stores it but all of them load it.
    pub fn may_race(&self, other: &MemoryEffect) -> bool {
        let same_kind = self.kind == other.kind;
        if !self.root.may_alias(other.root) || (same_kind && self.kind != AccessKind::Store) {
            return false;
        }
        if self.residues.iter().any(|own| other.residues.iter().any(|theirs| own.is_disjoint_from(theirs))) {
            return false;
        }
        match &self.element_map {
            Some(element_map) if self.element_map == other.element_map => {
                !same_kind && element_map.layout.replication() > 1
            }
            _ => true,
        }
    }

    /// Returns true if both may access the same memory, in any threads.
    #[cfg(any(test, feature = "_suite"))]
    pub fn may_alias_across_threads(&self, other: &MemoryEffect) -> bool {
        self.root.may_alias(other.root)
    }
}

/// Memory that a kernel writes.
///
/// Arrays are distinguished by their base parameter: arguments of a launch do not overlap if one of
/// them is written.
#[derive(Clone, Debug, Default)]
pub struct WrittenMemory {
    stored_roots: FxHashSet<MemoryRoot>,
    /// True if the CTA allocates memory.
    has_block_local: bool,
    /// True if the kernel waits for the preceding one, which writes memory while this kernel runs.
    has_grid_wait: bool,
}

impl WrittenMemory {
    /// Returns the memory that the kernel with this body writes.
    pub fn new(module: &Module, body: BlockId) -> WrittenMemory {
        let (mut stored_roots, mut has_block_local, mut has_grid_wait) = (FxHashSet::default(), false, false);
        module.walk(body, &mut |id| {
            has_block_local |= module.op(id).code == Opcode::Alloca;
            has_grid_wait |= module.op(id).code == Opcode::GdcWait;
            if let Some((address, kind)) = address_and_kind(module, id)
                && kind != AccessKind::Load
            {
                stored_roots.insert(memory_root(module, address));
            }
            if module.op(id).code == Opcode::MemoryFenceAlias {
                // Memory with two addresses may be written through the other one.
                stored_roots.insert(MemoryRoot::Unknown);
            }
        });
        WrittenMemory { stored_roots, has_block_local, has_grid_wait }
    }

    /// Returns true if this is global memory that the kernel never writes.
    fn is_root_read_only(&self, root: MemoryRoot) -> bool {
        let own = matches!(root, MemoryRoot::BlockLocal(_)) || (root == MemoryRoot::Unknown && self.has_block_local);
        !own && !self.stored_roots.iter().any(|&stored_roots| stored_roots.may_alias(root))
    }

    /// Returns true if the kernel never writes the array of this view or these pointers.
    pub fn is_read_only(&self, module: &Module, address: Value) -> bool {
        self.is_root_read_only(memory_root(module, address))
    }

    /// Returns true if nothing writes the array of this view or these pointers while the kernel
    /// runs: the condition of `ld.global.nc`. ptxas 13.5 moves such a load across
    /// `griddepcontrol.wait`, in both directions (test `loads_around_a_grid_wait_are_coherent`).
    pub fn is_constant(&self, module: &Module, address: Value) -> bool {
        !self.has_grid_wait && self.is_read_only(module, address)
    }

    /// Returns true if the kernel never writes the memory of this effect.
    pub fn does_not_modify(&self, effect: &MemoryEffect) -> bool {
        self.is_root_read_only(effect.root)
    }
}

/// Returns true if the memory root of a view or pointers is unknown.
pub fn has_unknown_root(module: &Module, address: Value) -> bool {
    memory_root(module, address) == MemoryRoot::Unknown
}

/// Returns the memory root of a view or pointers.
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

/// Returns the address that an op itself accesses, and the kind of the access.
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
    /// Returns the effect of an op itself, if it is an access. `is_read`: a result of it is used.
    /// `layout`: the layout of the access, if its tensor is defined outside of loops. `residues`:
    /// those of the elements of such a tensor.
    pub fn of(
        module: &Module,
        id: OpId,
        is_read: bool,
        layout: impl FnOnce(OpId) -> Option<Layout>,
        residues: Vec<Residues>,
    ) -> Option<MemoryEffect> {
        let (view, mut kind) = address_and_kind(module, id)?;
        if matches!(kind, AccessKind::CommutativeAtomic(_)) && is_read {
            kind = AccessKind::Store;
        }
        let element_map = ViewShape::of(module, view).filter(ViewShape::has_disjoint_tiles).and_then(|shape| {
            let ViewShape { tensor, tile, steps, dim_map, .. } = shape;
            layout(tensor).map(|layout| ThreadElementMap { tensor, tile, steps, dim_map, layout })
        });
        Some(MemoryEffect { root: memory_root(module, view), kind, element_map, residues })
    }
}
