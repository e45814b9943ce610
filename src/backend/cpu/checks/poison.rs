//! Doubts about elements of tiles: which came of something that a check on request finds wrong, and of what.
//!
//! A doubt travels with the elements, through arithmetic and through tiles that are made of others, and ends where
//! `select` leaves an element out. It knows no op.

use std::rc::Rc;

use crate::backend::cpu::interp::value::{Width, Word, Words};
use crate::ir::Loc;

/// Where doubts come from: one op, when it ran.
pub(crate) struct Source {
    pub loc: Loc,
    /// What is wrong with an element.
    pub tell: Box<dyn Fn(usize) -> String>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source({:?})", self.loc)
    }
}

/// The doubts about a tile.
#[derive(Clone, Debug)]
pub(crate) struct Poison {
    /// For each element 0, or where its doubt comes from: see [`mark`].
    marks: Words,
    sources: Vec<Rc<Source>>,
}

/// An element of what a source made.
fn mark(source: usize, element: usize) -> u64 {
    ((source as u64) << 32 | element as u64) + 1
}

impl Poison {
    /// About the elements of a source for which this is true; none if there is no such element.
    pub fn new(source: impl FnOnce() -> Source, count: usize, poisoned: impl Fn(usize) -> bool) -> Option<Poison> {
        let marks: Vec<u64> = (0..count).map(|i| if poisoned(i) { mark(0, i) } else { 0 }).collect();
        let any = marks.iter().any(|&mark| mark != 0);
        any.then(|| Poison { marks: Words::W64(marks), sources: vec![Rc::new(source())] })
    }

    /// The doubts that stand in a list of marks.
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

    /// Is there one about this element? An only one stands for all.
    pub fn is_poisoned(&self, element: usize) -> bool {
        self.word(element) != 0
    }

    fn word(&self, element: usize) -> u64 {
        self.marks.get(if self.marks.len() == 1 { 0 } else { element })
    }

    /// The source of the first doubt about an element for which `used` is true, and what is wrong.
    pub fn first(&self, used: impl Fn(usize) -> bool) -> Option<(Loc, String)> {
        let first = (0..self.marks.len()).find(|&i| self.is_poisoned(i) && used(i))?;
        let (source, element) = ((self.word(first) - 1) >> 32, (self.word(first) - 1) as u32);
        let source = &self.sources[source as usize];
        Some((source.loc, (source.tell)(element as usize)))
    }

    /// The doubts of several tiles as lists of marks, over the sources of all. `counts`: the elements of those that have none.
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
            marks.push(Words::W64(shifted.collect()));
            sources.extend(poison.sources.iter().cloned());
        }
        (marks, sources)
    }

    /// These doubts, and where there are none, others.
    pub fn or(self, other: Poison) -> Poison {
        let counts = [self.marks.len(), other.marks.len()];
        let (marks, sources) = Poison::concat_marks(&[Some(Rc::new(self)), Some(Rc::new(other))], &counts);
        let both =
            crate::backend::cpu::interp::value::zip(
                u64::of(&marks[0]),
                u64::of(&marks[1]),
                |a, b| if a != 0 { a } else { b },
            );
        Poison::from_marks(Words::W64(both), &sources).expect("poisons that were there")
    }
}
