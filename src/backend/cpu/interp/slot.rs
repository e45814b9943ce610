//! What a value of the IR holds while a tile block runs.

use std::rc::Rc;

use super::value::{Array, Words};
use crate::backend::cpu::checks::poison::Poison;

/// What a value of the IR holds while a tile block runs.
#[derive(Clone, Debug, Default)]
pub(crate) enum Val {
    /// Not defined yet, or not needed any more.
    #[default]
    Dead,
    Tile(Rc<Words>),
    /// A tile some of whose elements a check on request finds wrong.
    Poisoned(Rc<Words>, Rc<Poison>),
    View(Rc<Array>),
    Token,
}

impl Val {
    pub fn tile(words: Words) -> Val {
        Val::Tile(Rc::new(words))
    }
}
