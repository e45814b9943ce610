//! The order of accesses to one array: which of them need a barrier between them.

use std::collections::HashSet;

use super::Lowering;
use crate::backend::ptx::infer::ViewShape;
use crate::ir::{AtomicMode, Attr, AttrKind, BlockId, Def, Module, OpId, Opcode, Type, Value};
use crate::layout::Layout;

/// Which thread touches which element of an array, as far as it decides about races inside a block.
#[derive(Clone, Debug, PartialEq)]
struct Pattern {
    tensor: OpId,
    tile: Vec<i64>,
    dim_map: Vec<usize>,
    layout: Layout,
}

/// Where addresses come from, as far as it tells accesses apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Root {
    /// A parameter.
    Of(Value),
    /// Memory of the block's own.
    Own(Value),
    /// A global array.
    Global,
    /// It may be anywhere.
    Unknown,
}

impl Root {
    /// May both be the same memory?
    fn meets(self, other: Root) -> bool {
        self == other || self == Root::Unknown || other == Root::Unknown
    }
}

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    Load,
    Store,
    /// An atomic whose result nobody reads: those of one mode need no order.
    Combine(AtomicMode),
}

/// An access to an array.
#[derive(Clone, Debug, PartialEq)]
pub struct Touch {
    root: Root,
    deed: Deed,
    pattern: Option<Pattern>,
}

impl Touch {
    /// May different threads meet at one element, one of them writing?
    ///
    /// Two accesses of one pattern need no order between threads: an element always belongs to the same
    /// thread. Where several hold it, one of them stores but all of them load.
    pub fn conflicts(&self, other: &Touch) -> bool {
        let same_deed = self.deed == other.deed;
        if !self.root.meets(other.root) || (same_deed && self.deed != Deed::Store) {
            return false;
        }
        match &self.pattern {
            Some(pattern) if self.pattern == other.pattern => !same_deed && pattern.layout.replication() > 1,
            _ => true,
        }
    }
}

/// Accesses to each written array since the last barrier.
///
/// Arrays are told apart by their base parameter: the arguments of a launch do not overlap where one
/// of them is written.
#[derive(Clone, Debug, Default)]
pub struct History {
    stored: HashSet<Root>,
    /// Has the block memory of its own?
    has_own: bool,
    touches: Vec<Touch>,
}

impl History {
    /// An empty history of the kernel with this body.
    pub fn of(module: &Module, body: BlockId) -> History {
        let (mut stored, mut has_own) = (HashSet::new(), false);
        module.walk(body, &mut |id| {
            has_own |= module.op(id).code == Opcode::Alloca;
            if let Some((address, deed)) = deed(module, id)
                && deed != Deed::Load
            {
                stored.insert(place(module, address));
            }
            if module.op(id).code == Opcode::MemoryFenceAlias {
                // One memory under two addresses: what is only read may be written.
                stored.insert(Root::Unknown);
            }
        });
        History { stored, has_own, touches: Vec::new() }
    }

    /// Is this global memory that the kernel never writes?
    fn read_only(&self, root: Root) -> bool {
        let own = matches!(root, Root::Own(_)) || (root == Root::Unknown && self.has_own);
        !own && !self.stored.iter().any(|&stored| stored.meets(root))
    }

    /// Is the array behind this view or these pointers never written by this kernel?
    pub fn is_read_only(&self, module: &Module, address: Value) -> bool {
        self.read_only(place(module, address))
    }

    /// All threads have done what came before.
    pub fn barrier(&mut self) {
        self.touches.clear();
    }

    /// Accesses that may have happened, or not.
    pub fn may_have_happened(&mut self, touches: impl IntoIterator<Item = Touch>) {
        for touch in touches {
            if !self.read_only(touch.root) && !self.touches.contains(&touch) {
                self.touches.push(touch);
            }
        }
    }

    /// Where two branches meet.
    pub fn join(&mut self, other: History) {
        self.may_have_happened(other.touches);
    }
}

/// May a view or pointers lead anywhere?
pub fn is_unknown(module: &Module, address: Value) -> bool {
    place(module, address) == Root::Unknown
}

/// Where the memory behind a view or pointers is.
fn place(module: &Module, address: Value) -> Root {
    let root = module.base(address);
    match module.def(root) {
        Def::Arg(block, _) if module.block(block).parent.is_none() => Root::Of(root),
        Def::Arg(..) => Root::Unknown,
        Def::Result(op, _) => match module.op(op).code {
            Opcode::Alloca => Root::Own(root),
            Opcode::GetGlobal => Root::Global,
            _ => Root::Unknown,
        },
    }
}

/// The address that an op accesses by itself, and what it does there.
fn deed(module: &Module, id: OpId) -> Option<(Value, Deed)> {
    let op = module.op(id);
    let mode = match op.attr(AttrKind::AtomicMode) {
        Some(Attr::AtomicMode(mode)) => Deed::Combine(*mode),
        _ => Deed::Store,
    };
    let deed = match op.code {
        Opcode::LoadView | Opcode::LoadPtr => Deed::Load,
        Opcode::StoreView | Opcode::StorePtr | Opcode::AtomicCas => Deed::Store,
        Opcode::AtomicRmw | Opcode::AtomicRedView => mode,
        _ => return None,
    };
    Some((op.address()?, deed))
}

impl Lowering<'_> {
    /// The access that an op makes, if it makes one.
    pub fn access_of(&self, id: OpId) -> Option<Touch> {
        let (view, mut deed) = deed(self.module, id)?;
        if matches!(deed, Deed::Combine(_)) && self.is_result_read(id) {
            deed = Deed::Store;
        }
        let pattern = match (ViewShape::of(self.module, view), self.inference.accesses.get(&id)) {
            // An array that is described anew in each iteration may begin elsewhere.
            (Some(shape), Some(layout)) if shape.is_partition() && !self.is_repeated(shape.tensor) => {
                Some(Pattern { tensor: shape.tensor, tile: shape.tile, dim_map: shape.dim_map, layout: layout.clone() })
            }
            _ => None,
        };
        Some(Touch { root: place(self.module, view), deed, pattern })
    }

    /// Does anybody read a number that this op gives?
    pub fn is_result_read(&self, id: OpId) -> bool {
        let results = self.module.op(id).results.iter();
        let mut numbers = results.filter(|&&result| matches!(self.module.ty(result), Type::Tile { .. }));
        numbers.any(|result| self.use_counts[result.index()] > 0)
    }

    /// Notes an access once more: a barrier may have come between its beginning and what it does.
    pub fn note_access(&mut self, id: OpId) {
        self.memory.may_have_happened(self.access_of(id));
    }

    /// A barrier, if other threads of the block may still be at work on the same elements.
    pub fn order(&mut self, id: OpId) {
        let Some(touch) = self.access_of(id) else { return };
        if self.memory.touches.iter().any(|earlier| earlier.conflicts(&touch)) {
            self.barrier();
        }
        self.memory.may_have_happened([touch]);
    }
}
