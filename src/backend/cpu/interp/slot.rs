//! Slots: the contents of the values of the IR during the execution of a tile block.

use std::rc::Rc;

use super::value::{Array, Words};
use crate::backend::cpu::checks::poison::Poison;

/// Content of a value of the IR during the execution of a tile block.
#[derive(Clone, Debug, Default)]
pub(crate) enum Val {
    /// Before the definition or after the last use.
    #[default]
    Dead,
    Tile(Rc<Words>),
    /// A tile with poisoned elements.
    Poisoned(Rc<Words>, Rc<Poison>),
    View(Rc<Array>),
    Token,
}

impl Val {
    pub fn tile(words: Words) -> Val {
        Val::Tile(Rc::new(words))
    }
}
