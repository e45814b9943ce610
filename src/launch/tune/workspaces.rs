//! States that configurations work on: the state of the program, or copies of it, used in rotation.

use crate::error::{Error, Result};
use crate::runtime::{Bench, Device, Scratch};

/// Functions that copy a state.
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

/// State of a program, and its copies, if requested.
pub(super) struct Sets<'a, S> {
    given: &'a mut S,
    copies: Vec<S>,
    last: usize,
}

impl<'a, S> Sets<'a, S> {
    /// Allocates a number of copies for which the caches of the device hold no copy at its next
    /// use. The available memory limits the number.
    ///
    /// # Errors
    /// Errors of the first copy.
    #[track_caller]
    pub fn new(device: Device, given: &'a mut S, copies: Option<&Copies<S>>) -> Result<Sets<'a, S>> {
        let Some(how) = copies else { return Ok(Sets { given, copies: Vec::new(), last: 0 }) };
        let mut copies = match (how.copy)(given) {
            Ok(copy) => vec![copy],
            // The error has the location of the search.
            Err(Error::Argument(problem)) => return Err(Error::argument(problem.message)),
            Err(error) => return Err(error),
        };
        for _ in 1..Bench::cold_sets(device, (how.bytes)(given)) {
            match (how.copy)(given) {
                Ok(copy) => copies.push(copy),
                Err(_) => {
                    // The memory of the last copy is reserved for kernels.
                    copies.truncate((copies.len() - 1).max(1));
                    break;
                }
            }
        }
        Ok(Sets { given, copies, last: 0 })
    }

    /// Returns the state for the next execution.
    pub fn next(&mut self) -> &mut S {
        if self.copies.is_empty() {
            return self.given;
        }
        self.last = (self.last + 1) % self.copies.len();
        &mut self.copies[self.last]
    }

    /// Returns the state of the last execution.
    pub fn last(&self) -> &S {
        self.copies.get(self.last).unwrap_or(self.given)
    }

    /// Restores the state that the work has changed: refreshes the copies, and calls `restore`.
    ///
    /// # Errors
    /// Errors of copying and of `restore`.
    pub fn restore(&mut self, how: Option<&Copies<S>>, restore: impl Fn(&mut S) -> Result<()>) -> Result<()> {
        let Some(how) = how else { return restore(self.given) };
        self.copies.iter_mut().try_for_each(|copy| {
            (how.refresh)(copy, self.given)?;
            restore(copy)
        })
    }

    /// Returns true if there are copies.
    pub fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }
}
