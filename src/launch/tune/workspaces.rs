//! What candidates work on: the state that the program gives, or copies of it in turn.

use crate::error::{Error, Result};
use crate::runtime::{Bench, Device, Scratch};

/// How copies of a state are made.
pub(super) struct Copies<S> {
    copy: fn(&S) -> Result<S>,
    refresh: fn(&mut S, &S) -> Result<()>,
    bytes: fn(&S) -> usize,
}

impl<S: Scratch> Copies<S> {
    pub fn new() -> Copies<S> {
        Copies { copy: S::copy, refresh: S::refresh, bytes: S::bytes }
    }
}

/// The state of a program, and copies of it, if there are to be any.
pub(super) struct Sets<'a, S> {
    given: &'a mut S,
    copies: Vec<S>,
    last: usize,
}

impl<'a, S> Sets<'a, S> {
    /// As many copies as it takes that the caches of the device hold none when its turn comes, or as there is memory for.
    ///
    /// # Errors
    /// Those of the first copy.
    #[track_caller]
    pub fn new(device: Device, given: &'a mut S, copies: Option<&Copies<S>>) -> Result<Sets<'a, S>> {
        let Some(how) = copies else { return Ok(Sets { given, copies: Vec::new(), last: 0 }) };
        let mut copies = match (how.copy)(given) {
            Ok(copy) => vec![copy],
            // The place of the search.
            Err(Error::Argument(problem)) => return Err(Error::argument(problem.message)),
            Err(error) => return Err(error),
        };
        for _ in 1..Bench::cold_sets(device, (how.bytes)(given)) {
            match (how.copy)(given) {
                Ok(copy) => copies.push(copy),
                Err(_) => {
                    // What the last copy took is left to kernels.
                    copies.truncate((copies.len() - 1).max(1));
                    break;
                }
            }
        }
        Ok(Sets { given, copies, last: 0 })
    }

    /// What work is done on next.
    pub fn next(&mut self) -> &mut S {
        if self.copies.is_empty() {
            return self.given;
        }
        self.last = (self.last + 1) % self.copies.len();
        &mut self.copies[self.last]
    }

    /// What work was done on last.
    pub fn last(&self) -> &S {
        self.copies.get(self.last).unwrap_or(self.given)
    }

    /// Brings back what work has changed: copies, and what `restore` knows of.
    ///
    /// # Errors
    /// Those of copying and of `restore`.
    pub fn restore(&mut self, how: Option<&Copies<S>>, restore: impl Fn(&mut S) -> Result<()>) -> Result<()> {
        let Some(how) = how else { return restore(self.given) };
        self.copies.iter_mut().try_for_each(|copy| {
            (how.refresh)(copy, self.given)?;
            restore(copy)
        })
    }

    /// Are there copies?
    pub fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }
}
