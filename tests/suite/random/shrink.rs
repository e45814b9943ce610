//! Shrinks a program that fails to one in which nothing more can go (after Zeller and Hildebrandt,
//! "Simplifying and isolating failure-inducing input", 2002): steps go, become constants or one of
//! their operands, regions are unwrapped, numbers and shapes become small, as long as a predicate
//! says that the program still fails.

use std::time::{Duration, Instant};

use super::kind::Kind;
use super::ops::named;
use super::program::{Form, Id, Program, Step};

/// Reduces a program.
pub struct Reducer<'a> {
    fails: &'a mut dyn FnMut(&Program) -> bool,
    until: Instant,
    program: Program,
}

/// The smallest program found within the time for which the predicate holds. It holds for the first
/// one.
pub fn reduced(program: &Program, limit: Duration, fails: &mut dyn FnMut(&Program) -> bool) -> Program {
    let mut reducer = Reducer { fails, until: Instant::now() + limit, program: program.clone() };
    loop {
        let before = reducer.program.clone();
        reducer.drop_runs();
        reducer.drop_dead();
        reducer.shrink_shapes();
        reducer.each_step(Reducer::replace);
        reducer.each_step(Reducer::unwrap);
        reducer.drop_dead();
        reducer.each_step(Reducer::shrink_numbers);
        if reducer.program == before || reducer.is_late() {
            return reducer.program;
        }
    }
}

/// The list that holds the n-th step, outer ones before those inside, and its place there.
fn find(steps: &mut Vec<Step>, n: &mut usize, then: &mut dyn FnMut(&mut Vec<Step>, usize)) -> bool {
    for place in 0..steps.len() {
        if *n == 0 {
            then(steps, place);
            return true;
        }
        *n -= 1;
        if steps[place].regions.iter_mut().any(|region| find(&mut region.steps, n, then)) {
            return true;
        }
    }
    false
}

/// Calls a function with each place where a value is used.
fn uses(steps: &mut [Step], visit: &mut dyn FnMut(&mut Id)) {
    for step in steps {
        step.args.iter_mut().for_each(&mut *visit);
        for region in &mut step.regions {
            uses(&mut region.steps, visit);
            region.results.iter_mut().for_each(&mut *visit);
        }
    }
}

/// Removes steps with unused results.
pub fn without_dead(program: &Program) -> Program {
    fn clean(steps: &mut Vec<Step>, used: &[bool]) {
        steps.retain(|step| step.out.is_empty() || has_effect(step) || step.out.iter().any(|&id| used[id]));
        steps.iter_mut().flat_map(|step| &mut step.regions).for_each(|region| clean(&mut region.steps, used));
    }
    let mut program = program.clone();
    loop {
        let mut used = vec![false; program.count];
        uses(&mut program.steps, &mut |id| used[*id] = true);
        let before = program.clone();
        clean(&mut program.steps, &used);
        if program == before {
            return program;
        }
    }
}

/// Returns true if a step has an effect in addition to its results.
fn has_effect(step: &Step) -> bool {
    step.op.text.given().iter().any(|(name, _)| name.ends_with("output"))
        || step.op.name.starts_with("return_if")
        || step.regions.iter().any(|region| region.steps.iter().any(has_effect))
}

impl Reducer<'_> {
    fn is_late(&self) -> bool {
        Instant::now() > self.until
    }

    /// Takes the candidate if it makes sense, is another one, and fails.
    fn accept(&mut self, candidate: Program) -> bool {
        let taken =
            !self.is_late() && candidate != self.program && candidate.forms().is_some() && (self.fails)(&candidate);
        if taken {
            self.program = candidate;
        }
        taken
    }

    fn count(&self) -> usize {
        let mut count = 0;
        self.program.each(&mut |_| count += 1);
        count
    }

    /// The program with the n-th step edited.
    fn edited(&self, n: usize, mut edit: impl FnMut(&mut Vec<Step>, usize)) -> Program {
        let mut candidate = self.program.clone();
        find(&mut candidate.steps, &mut n.clone(), &mut |steps, place| edit(steps, place));
        candidate
    }

    fn step(&self, n: usize) -> Option<Step> {
        let mut found = None;
        find(&mut self.program.steps.clone(), &mut n.clone(), &mut |steps, place| found = Some(steps[place].clone()));
        found
    }

    /// Tries something with every step, the last one first.
    fn each_step(&mut self, attempt: fn(&mut Self, usize)) {
        for n in (0..self.count()).rev() {
            if n < self.count() && !self.is_late() {
                attempt(self, n);
            }
        }
    }

    /// Takes out runs of steps without results, long ones first.
    fn drop_runs(&mut self) {
        let mut length = self.program.steps.len().next_power_of_two();
        while length > 0 && !self.is_late() {
            let mut from = 0;
            while from < self.program.steps.len() {
                let mut candidate = self.program.clone();
                let mut place = 0;
                candidate.steps.retain(|step| {
                    place += 1;
                    !((from..from + length).contains(&(place - 1)) && step.out.is_empty())
                });
                if !self.accept(without_dead(&candidate)) && !self.accept(candidate) {
                    from += length;
                }
            }
            length /= 2;
        }
        self.each_step(|this, n| {
            if this.step(n).is_some_and(|step| step.out.is_empty()) {
                let candidate = this.edited(n, |steps, place| drop(steps.remove(place)));
                this.accept(candidate);
            }
        });
    }

    fn drop_dead(&mut self) {
        if self.accept(without_dead(&self.program)) {
            return;
        }
        self.each_step(|this, n| {
            let candidate = this.edited(n, |steps, place| drop(steps.remove(place)));
            this.accept(candidate);
        });
    }

    /// Results become operands, other values of their form, or constants.
    fn replace(&mut self, n: usize) {
        let (Some(step), Some(forms)) = (self.step(n), self.program.forms()) else { return };
        if step.out.is_empty() || step.op.name == "constant" {
            return;
        }
        // Results of loops are like the state that they begin with.
        let like = |id: Id| step.args.iter().copied().find(|&arg| forms[arg] == forms[id]);
        let others: Option<Vec<Id>> = step.out.iter().map(|&id| like(id)).collect();
        if let Some(others) = others {
            let mut candidate = self.edited(n, |steps, place| drop(steps.remove(place)));
            uses(&mut candidate.steps, &mut |used| {
                if let Some(at) = step.out.iter().position(|id| id == used) {
                    *used = others[at];
                }
            });
            if self.accept(without_dead(&candidate)) {
                return;
            }
        }
        let constants: Vec<Step> = step.out.iter().map(|&id| constant(forms[id].expect("a value"), id)).collect();
        let candidate = self.edited(n, |steps, place| drop(steps.splice(place..=place, constants.iter().cloned())));
        let _ = self.accept(without_dead(&candidate)) || self.accept(candidate);
    }

    /// Replaces a step by its regions: one side of a branch, one iteration of a loop.
    fn unwrap(&mut self, n: usize) {
        let Some(step) = self.step(n) else { return };
        let is_loop = step.regions.first().is_some_and(|region| !region.params.is_empty());
        let bodies = if is_loop { vec![&step.regions[..]] } else { step.regions.chunks(1).collect() };
        for regions in bodies {
            let mut inside: Vec<Step> = regions.iter().flat_map(|region| region.steps.clone()).collect();
            let params = &regions[0].params;
            // The first state is the last of the operands; the number of the iteration becomes 0.
            let init = step.args[step.args.len().saturating_sub(params.len().saturating_sub(1))..].to_vec();
            if let Some(&round) = params.last() {
                inside.insert(0, constant(Form::new(Kind::I32, [1, 1]), round));
            }
            let results = &regions[regions.len() - 1].results;
            let last = results[results.len() - step.out.len()..].to_vec();
            let mut candidate =
                self.edited(n, |steps, place| drop(steps.splice(place..=place, inside.iter().cloned())));
            // From the inside out, for a result may be a parameter.
            for (from, to) in step.out.iter().zip(&last).chain(params.iter().zip(&init)) {
                uses(&mut candidate.steps, &mut |used| {
                    if used == from {
                        *used = *to;
                    }
                });
            }
            if self.accept(without_dead(&candidate)) || self.accept(candidate) {
                return;
            }
        }
    }

    fn shrink_numbers(&mut self, n: usize) {
        let Some(step) = self.step(n).filter(|step| step.op.name != "constant") else { return };
        for at in 0..step.numbers.len() {
            let (low, high) = step.op.numbers[at];
            for number in [0, 1, low, step.numbers[at] / 2] {
                let current = self.step(n).map_or(0, |step| step.numbers[at]);
                if !(low..=high).contains(&number) || number.abs() >= current.abs() {
                    continue;
                }
                let candidate = self.edited(n, |steps, place| steps[place].numbers[at] = number);
                if self.accept(candidate) {
                    break;
                }
            }
        }
    }

    fn shrink_shapes(&mut self) {
        for axis in [0, 1] {
            let least = [1, 4][axis];
            while self.program.tile[axis] > least {
                let whole = self.program.tile[axis];
                // Half of it, or the next power of two.
                let smaller = [whole / 2, 1 << (whole - 1).ilog2()];
                let accepted = smaller.into_iter().filter(|&extent| extent >= least).any(|extent| {
                    let mut candidate = self.program.clone();
                    candidate.tile[axis] = extent;
                    candidate.shape[axis] = (candidate.shape[axis] * extent).div_ceil(whole);
                    adapt(&mut candidate.steps, axis, whole as i64, extent as i64);
                    self.accept(candidate)
                });
                if !accepted {
                    break;
                }
            }
            let tile = self.program.tile[axis];
            for extent in [1, tile, 2 * tile, tile / 2] {
                if extent > 0 && extent < self.program.shape[axis] {
                    let mut candidate = self.program.clone();
                    candidate.shape[axis] = extent;
                    if self.accept(candidate) {
                        break;
                    }
                }
            }
        }
    }
}

/// A step that makes zeros.
fn constant(form: Form, id: Id) -> Step {
    let numbers = form.shape.map(|n| n as i64).to_vec();
    Step { op: named("constant"), kind: form.kind, args: vec![], numbers, regions: vec![], out: vec![id] }
}

/// Constants of a tile's extent shrink with it.
fn adapt(steps: &mut [Step], axis: usize, whole: i64, extent: i64) {
    for step in steps {
        if step.op.name == "constant" && step.numbers[axis] == whole {
            step.numbers[axis] = extent;
        }
        step.regions.iter_mut().for_each(|region| adapt(&mut region.steps, axis, whole, extent));
    }
}
