//! Uses of values in a block and its nested blocks.

use super::module::{BlockId, Module, OpId, Value};

/// Uses of values as operands, by value.
#[derive(Clone, Debug)]
pub struct Uses {
    users: Vec<Vec<(OpId, usize)>>,
}

impl Uses {
    /// Collects the uses by ops of this block and its nested blocks.
    pub fn new(module: &Module, block: BlockId) -> Uses {
        let mut users = vec![Vec::new(); module.num_values()];
        module.walk(block, &mut |id| {
            for (position, value) in module.op(id).operands.iter().enumerate() {
                users[value.index()].push((id, position));
            }
        });
        Uses { users }
    }

    /// Returns the ops that use a value, with the operand position, in program order.
    pub fn users(&self, value: Value) -> &[(OpId, usize)] {
        &self.users[value.index()]
    }

    /// Returns the number of uses of a value.
    pub fn count(&self, value: Value) -> usize {
        self.users(value).len()
    }
}
