//! Slots: the contents of the values of the IR during the execution of a tile block.

use std::rc::Rc;

use super::value::{Array, Words};
use crate::backend::cpu::checks::poison::Poison;

/// Content of a value of the IR during the execution of a tile block.
#[derive(Clone, Debug, Default)]
pub(crate) enum Slot {
    /// Before the definition or after the last use.
    #[default]
    Empty,
    Tile(Rc<Words>),
    /// A tile with poisoned elements.
    Poisoned(Rc<Words>, Rc<Poison>),
    View(Rc<Array>),
    Token,
}

impl Slot {
    pub fn tile(words: Words) -> Slot {
        Slot::Tile(Rc::new(words))
    }
}
