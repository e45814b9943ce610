//! Measuring candidates in turn, so that all meet the same clocks, temperatures and neighbours.

use std::time::Duration;

use super::time_limit::Ended;
use crate::error::Result;
use crate::runtime::{Bench, Stream, Times};

/// Does the work on a state.
pub(super) type Way<'a, S> = &'a dyn Fn(&mut S) -> Result<()>;

/// Does a part of the runs of one way, by its number: its times, or why it fails.
pub(super) type Attempt<'a> = &'a dyn Fn(usize, &mut dyn FnMut() -> Result<Times>) -> Result<Result<Times>, Ended>;

/// Turns that each candidate has at most.
pub(super) const TURNS: usize = 5;

/// Measures each way to do the work on a state: a part of its runs, then the next one, and again in the other order.
/// Each part begins with what `restore` makes. A way that fails has no further turn.
///
/// # Errors
/// What restoring answers, and what `attempt` ends the search for.
pub(super) fn in_turns<S>(
    bench: Bench,
    stream: &Stream,
    state: &mut S,
    ways: &[Way<'_, S>],
    restore: &dyn Fn(&mut S) -> Result<()>,
    attempt: Attempt<'_>,
) -> Result<Vec<Result<Times>>, Ended> {
    let runs = bench.num_runs();
    let turns = runs.clamp(1, TURNS);
    let mut all: Vec<Result<Vec<Duration>>> = ways.iter().map(|_| Ok(Vec::new())).collect();
    for turn in 0..turns {
        let part = runs * (turn + 1) / turns - runs * turn / turns;
        // Warmed up before; one run makes the caches those of this way.
        let bench = if turn == 0 { bench.runs(part) } else { bench.warm_up(1).runs(part) };
        for place in 0..ways.len() {
            let at = if turn % 2 == 0 { place } else { ways.len() - 1 - place };
            let Ok(times) = &mut all[at] else { continue };
            restore(state)?;
            match attempt(at, &mut || bench.run(stream, || ways[at](state)))? {
                Ok(more) => times.extend(more.all()),
                Err(error) => all[at] = Err(error),
            }
        }
    }
    Ok(all.into_iter().map(|times| times.map(Times::of)).collect())
}
