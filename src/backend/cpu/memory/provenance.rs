//! Where the addresses of accesses come from.

use rustc_hash::FxHashSet;

use crate::ir::{BlockId, Def, Module, Opcode, Value};

/// The views and pointers through which an entry accesses memory that may be any: their addresses were computed, loaded
/// or chosen. All others lead into an array of the launch, a global, or memory of the tile block's own.
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
