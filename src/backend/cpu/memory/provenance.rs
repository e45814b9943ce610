//! Provenance of the addresses of accesses.

use rustc_hash::FxHashSet;

use crate::ir::{BlockId, Def, Module, Opcode, Value};

/// Returns the views and pointers of unknown provenance: their addresses were computed, loaded or
/// selected. All other addresses are in an array of the launch, a global, or memory of the tile
/// block.
pub(crate) fn foreign(module: &Module, body: BlockId) -> FxHashSet<Value> {
    let mut found = FxHashSet::default();
    module.walk(body, &mut |id| {
        let op = module.op(id);
        let names = ["view", "pointers", "source", "destination"];
        let group = op.code.spec().operands.iter().position(|operand| names.contains(&operand.name));
        found.extend(group.and_then(|group| op.group(group).first().copied()).filter(|&v| is_foreign(module, v)));
    });
    found
}

fn is_foreign(module: &Module, address: Value) -> bool {
    match module.def(module.base(address)) {
        Def::Arg(block, _) => module.block(block).parent.is_some(),
        Def::Result(id, _) => !matches!(module.op(id).code, Opcode::Alloca | Opcode::GetGlobal),
    }
}
