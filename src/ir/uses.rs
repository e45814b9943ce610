//! Who uses a value: computed for a block and everything nested in it, when asked.

use super::module::{BlockId, Module, OpId, Value};

/// Uses of values as operands, by value.
#[derive(Clone, Debug)]
pub struct Uses {
    users: Vec<Vec<(OpId, usize)>>,
}

impl Uses {
    /// All uses by ops of this block and of the blocks nested in it.
    pub fn of(module: &Module, block: BlockId) -> Uses {
        let mut users = vec![Vec::new(); module.num_values()];
        module.walk(block, &mut |id| {
            for (position, value) in module.op(id).operands.iter().enumerate() {
                users[value.index()].push((id, position));
            }
        });
        Uses { users }
    }

    /// Ops that use a value, with the operand position, in program order.
    pub fn users(&self, value: Value) -> &[(OpId, usize)] {
        &self.users[value.index()]
    }

    /// How often a value is used.
    pub fn count(&self, value: Value) -> usize {
        self.users(value).len()
    }
}
