//! Poison of the elements of a tile: marks of the elements that a requested check finds invalid.
//!
//! Poison propagates with the elements through arithmetic and the construction of tiles.
//! It ends at a `select` that discards the element. This file is independent of the ops.

use crate::util::collect::CollectVec as _;
use std::rc::Rc;

use crate::backend::cpu::interp::value::{Width, Word, Words};
use crate::ir::Loc;

/// Source of poison: one execution of an op.
pub(crate) struct Source {
    pub loc: Loc,
    /// Describes the fault of an element.
    pub tell: Box<dyn Fn(usize) -> String>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source({:?})", self.loc)
    }
}

/// Poison of one tile. Invariant: at least one element is poisoned, see [`Poison::new`].
#[derive(Clone, Debug)]
pub(crate) struct Poison {
    /// By element: 0, or the [`mark`] of its source. A single mark applies to all elements.
    marks: Words,
    sources: Vec<Rc<Source>>,
}

/// Returns the mark of an element that a source produced. A mark is never 0.
fn mark(source: usize, element: usize) -> u64 {
    ((source as u64) << 32 | element as u64) + 1
}

impl Poison {
    /// Creates the poison of the elements for which the predicate is true; `None` without such an
    /// element.
    pub fn new(source: impl FnOnce() -> Source, count: usize, poisoned: impl Fn(usize) -> bool) -> Option<Poison> {
        let marks: Vec<u64> = (0..count).map(|i| if poisoned(i) { mark(0, i) } else { 0 }).collect_vec();
        let any = marks.iter().any(|&mark| mark != 0);
        any.then(|| Poison { marks: Words::W64(marks), sources: vec![Rc::new(source())] })
    }

    /// Creates poison from marks over the sources `all`; unused sources are removed.
    pub fn from_marks(marks: Words, all: &[Rc<Source>]) -> Option<Poison> {
        let (mut sources, mut marks) = (Vec::new(), marks);
        let mut places = vec![None; all.len()];
        for word in u64::of_mut(&mut marks).iter_mut().filter(|word| **word != 0) {
            let (source, element) = (((*word - 1) >> 32) as usize, (*word - 1) as u32 as usize);
            let place = *places[source].get_or_insert_with(|| {
                sources.push(all[source].clone());
                sources.len() - 1
            });
            *word = mark(place, element);
        }
        (!sources.is_empty()).then_some(Poison { marks, sources })
    }

    /// Returns true if the element is poisoned. A single mark applies to all elements.
    pub fn is_poisoned(&self, element: usize) -> bool {
        self.word(element) != 0
    }

    fn word(&self, element: usize) -> u64 {
        self.marks.get(if self.marks.len() == 1 { 0 } else { element })
    }

    /// Returns the place and the fault of the first poisoned element for which `used` is true.
    pub fn first(&self, used: impl Fn(usize) -> bool) -> Option<(Loc, String)> {
        let first = (0..self.marks.len()).find(|&i| self.is_poisoned(i) && used(i))?;
        let (source, element) = ((self.word(first) - 1) >> 32, (self.word(first) - 1) as u32);
        let source = &self.sources[source as usize];
        Some((source.loc, (source.tell)(element as usize)))
    }

    /// Returns the marks of several tiles over one list of all their sources. `counts` has the
    /// number of elements of each tile; it is used for tiles without poison.
    pub fn concat_marks(poisons: &[Option<Rc<Poison>>], counts: &[usize]) -> (Vec<Words>, Vec<Rc<Source>>) {
        let mut sources: Vec<Rc<Source>> = Vec::new();
        let mut marks = Vec::new();
        for (poison, &count) in poisons.iter().zip(counts) {
            let Some(poison) = poison else {
                marks.push(Words::splat(Width::W64, 0, count));
                continue;
            };
            let base = (sources.len() as u64) << 32;
            let shifted = u64::of(&poison.marks).iter().map(|&word| if word == 0 { 0 } else { word + base });
            marks.push(Words::W64(shifted.collect_vec()));
            sources.extend(poison.sources.iter().cloned());
        }
        (marks, sources)
    }

    /// Combines the poison of two tiles by element. The marks of `self` have precedence.
    pub fn or(self, other: Poison) -> Poison {
        let counts = [self.marks.len(), other.marks.len()];
        let (marks, sources) = Poison::concat_marks(&[Some(Rc::new(self)), Some(Rc::new(other))], &counts);
        let both =
            crate::backend::cpu::interp::value::zip(
                u64::of(&marks[0]),
                u64::of(&marks[1]),
                |a, b| if a != 0 { a } else { b },
            );
        Poison::from_marks(Words::W64(both), &sources).expect("combined poison has a mark")
    }
}
