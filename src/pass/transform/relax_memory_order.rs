//! Relaxation of memory orders that are not observable: atomics whose results are unused become
//! relaxed.
//!
//! An order between two accesses is observed by a thread that reads both. If a kernel reads no
//! array that it writes, no tile block can observe the order of the writes. After the kernel, its
//! end orders all of them. A written array is accessed by this launch alone. Accesses with system
//! scope may be observed by other devices and are unchanged. No pass has to run before; unused
//! results should have been removed.

use crate::util::collect::CollectVec as _;
use rustc_hash::FxHashSet;

use crate::ir::op_table::Effect;
use crate::ir::{Attr, AttrKind, BlockId, Def, MemOrder, MemScope, Module, OpId, Opcode, Type, Value};

/// Relaxes the atomics of each entry.
pub(crate) fn run(module: &mut Module) {
    let entries: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect_vec();
    for body in entries {
        for id in unobservable_atomics(module, body) {
            for attr in &mut module.op_mut(id).attrs {
                if let Attr::MemOrder(order) = attr {
                    *order = MemOrder::Relaxed;
                }
            }
        }
    }
}

/// Returns the atomics whose order is not observable.
fn unobservable_atomics(module: &Module, body: BlockId) -> Vec<OpId> {
    let mut used: FxHashSet<Value> = FxHashSet::default();
    let mut ops = Vec::new();
    module.walk(body, &mut |id| {
        used.extend(&module.op(id).operands);
        ops.push(id);
    });
    let mut found = Vec::new();
    let (mut read, mut written) = (FxHashSet::default(), FxHashSet::default());
    for id in ops {
        let op = module.op(id);
        let effect = op.code.spec().effect;
        let is_read = op.results.iter().any(|v| used.contains(v) && matches!(module.ty(*v), Type::Tile { .. }));
        let reads = effect == Effect::Read || (effect == Effect::ReadWrite && is_read);
        let writes = matches!(effect, Effect::Write | Effect::ReadWrite);
        if reads || writes {
            let Some(root) = op.address().and_then(|address| root_parameter(module, address)) else {
                // The address may be in any array.
                return Vec::new();
            };
            read.extend(reads.then_some(root));
            written.extend(writes.then_some(root));
        } else if effect == Effect::Other && op.code != Opcode::Assert && op.code != Opcode::Print {
            return Vec::new();
        }
        let system = op.attr(AttrKind::MemScope) == Some(&Attr::MemScope(MemScope::System));
        if effect == Effect::ReadWrite && !is_read && !system {
            found.push(id);
        }
    }
    if read.is_disjoint(&written) { found } else { Vec::new() }
}

/// Returns the parameter from which an address is derived.
fn root_parameter(module: &Module, address: Value) -> Option<Value> {
    let base = module.base(address);
    matches!(module.def(base), Def::Arg(block, _) if module.block(block).parent.is_none()).then_some(base)
}
