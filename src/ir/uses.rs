//! Uses of values in a block and its nested blocks.

use super::handle::{BlockId, OpId, Value};
use super::module::Module;

/// Uses of values as operands, by value.
#[derive(Clone, Debug)]
pub struct Uses {
    /// Uses of all values, ordered by value.
    users: Vec<(OpId, usize)>,
    /// By value: the end of its uses.
    ends: Vec<usize>,
}

impl Uses {
    /// Collects the uses by ops of this block and its nested blocks.
    pub fn new(module: &Module, block: BlockId) -> Uses {
        let mut all = Vec::new();
        module.walk(block, &mut |id| {
            let operands = module.op(id).operands.iter().enumerate();
            all.extend(operands.map(|(position, &value)| (value, (id, position))));
        });
        // Counting sort. The first pass sets the start of each value, the second one advances it.
        let mut ends = vec![0; module.num_values() + 1];
        all.iter().for_each(|(value, _)| ends[value.index() + 1] += 1);
        (1..ends.len()).for_each(|index| ends[index] += ends[index - 1]);
        let mut users = vec![(OpId(0), 0); all.len()];
        for (value, user) in all {
            let next = &mut ends[value.index()];
            users[*next] = user;
            *next += 1;
        }
        Uses { users, ends }
    }

    /// Returns the ops that use a value, with the operand position, in program order.
    pub fn users(&self, value: Value) -> &[(OpId, usize)] {
        let index = value.index();
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.users[start..self.ends[index]]
    }

    /// Returns the number of uses of a value.
    pub fn count(&self, value: Value) -> usize {
        self.users(value).len()
    }
}
