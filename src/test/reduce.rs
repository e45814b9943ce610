//! Reduction of a failing case: smaller draws, then simpler elements (delta debugging, Zeller and
//! Hildebrandt, 2002).
//!
//! A step is accepted if the case still has a failure of the same kind. The number of steps and the
//! time are limited.

use crate::util::collect::CollectVec as _;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::arrays::array::Role;
use super::draw::Case;
use super::examine::{Requirements, Verdict, examine};
use super::failure::Failure;
use super::instance::{Subject, prepare};

/// Maximum number of examinations.
const MAX_RUNS: usize = 400;

/// Maximum time of a reduction.
const MAX_TIME: Duration = Duration::from_secs(3);

/// A reduced case with its failure.
pub(super) struct Reduced {
    pub case: Case,
    pub failure: Failure,
    /// Number of examined cases.
    pub runs: usize,
}

struct Reduction<'s> {
    subject: &'s dyn Subject,
    required: &'s Requirements,
    best: Reduced,
    until: Instant,
}

/// Returns a smaller case with a failure of the same kind.
pub(super) fn reduce(subject: &dyn Subject, required: &Requirements, case: Case, failure: Failure) -> Reduced {
    let best = Reduced { case, failure, runs: 0 };
    if best.failure.is_final {
        return best;
    }
    let mut reduction = Reduction { subject, required, best, until: Instant::now() + MAX_TIME };
    loop {
        while reduction.reduce_draws() {}
        if !reduction.reduce_elements() {
            return reduction.best;
        }
    }
}

impl Reduction<'_> {
    fn is_over(&self) -> bool {
        self.best.runs >= MAX_RUNS || Instant::now() >= self.until
    }

    /// Accepts a case if it has a failure of the same kind.
    fn accepts(&mut self, case: Case) -> bool {
        if self.is_over() {
            return false;
        }
        self.best.runs += 1;
        match examine(self.subject, &case, self.required) {
            Verdict::Failed(failure) if failure.kind == self.best.failure.kind => {
                self.best = Reduced { case, failure, runs: self.best.runs };
                true
            }
            _ => false,
        }
    }

    /// Tries smaller values of each draw; returns true if one is accepted.
    fn reduce_draws(&mut self) -> bool {
        let mut has_changed = false;
        let names: Vec<String> = self.drawn().into_iter().map(|(name, ..)| name).collect_vec();
        for name in names {
            while let Some((_, value, least)) = self.drawn().into_iter().find(|(other, ..)| *other == name) {
                let candidates = [least, least + (value - least) / 2, value.saturating_sub(1).max(least)];
                let smaller = candidates.into_iter().filter(|&candidate| candidate < value);
                let accepted = smaller.collect_vec().into_iter().any(|candidate| {
                    let mut case = self.best.case.clone();
                    case.forced.insert(name.clone(), candidate);
                    self.accepts(case)
                });
                if !accepted {
                    break;
                }
                has_changed = true;
            }
        }
        has_changed && !self.is_over()
    }

    fn drawn(&self) -> Vec<(String, usize, usize)> {
        let prepared = prepare(self.subject, &self.best.case);
        prepared.drawn.into_iter().map(|drawn| (drawn.name, drawn.value, drawn.least)).collect_vec()
    }

    /// Replaces ranges of elements by simple ones, in smaller and smaller ranges; returns true if
    /// one is replaced.
    fn reduce_elements(&mut self) -> bool {
        let (mut arrays, mut has_changed) = (Vec::new(), false);
        prepare(self.subject, &self.best.case).for_each_array(|number, array| {
            if array.role() != Role::Write {
                arrays.push((number, (array.shape(), array.bits()), array.simple_bits()));
            }
        });
        for (number, mut contents, simple) in arrays {
            let count = contents.1.len();
            let mut length = count;
            while length > 0 {
                for first in (0..count).step_by(length) {
                    let range = first..count.min(first + length);
                    has_changed |= self.simplify(number, &mut contents, range, simple);
                }
                length /= 2;
            }
        }
        has_changed
    }

    /// Replaces a range of elements by the first simple one with a failure; returns true if there
    /// is one.
    fn simplify(
        &mut self,
        number: usize,
        contents: &mut (Vec<usize>, Vec<u64>),
        range: Range<usize>,
        simple: [u64; 2],
    ) -> bool {
        for value in simple {
            // A simple element is not replaced by a less simple one.
            if contents.1[range.clone()].iter().all(|&other| other == value || other == simple[0]) {
                return false;
            }
            let mut trial = contents.clone();
            trial.1[range.clone()].fill(value);
            let mut case = self.best.case.clone();
            case.contents.insert(number, trial.clone());
            if self.accepts(case) {
                *contents = trial;
                return true;
            }
        }
        false
    }
}
