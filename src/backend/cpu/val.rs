//! What a value of the IR holds while a tile block runs.

use std::rc::Rc;

use super::doubt::Doubt;
use super::value::{Array, Words};

/// What a value of the IR holds while a tile block runs.
#[derive(Clone, Debug, Default)]
pub(super) enum Val {
    /// Not defined yet, or not needed any more.
    #[default]
    Dead,
    Tile(Rc<Words>),
    /// A tile some of whose elements a check on request finds wrong.
    Doubtful(Rc<Words>, Rc<Doubt>),
    View(Rc<Array>),
    Token,
}

impl Val {
    pub fn tile(words: Words) -> Val {
        Val::Tile(Rc::new(words))
    }
}
