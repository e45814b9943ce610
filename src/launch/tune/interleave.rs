//! Alternating measurement of candidates, so that clocks, temperatures and other load are equal for
//! all.

use crate::util::collect::CollectVec as _;
use std::time::Duration;

use super::time_limit::Ended;
use crate::error::Result;
use crate::runtime::{Bench, Stream, Times};

/// Work of a candidate on a state.
pub(super) type Candidate<'a, S> = &'a dyn Fn(&mut S) -> Result<()>;

/// Executes a part of the measurement of one candidate, by index; returns its times or its failure.
pub(super) type Attempt<'a> = &'a dyn Fn(usize, &mut dyn FnMut() -> Result<Times>) -> Result<Result<Times>, Ended>;

/// Limit of the parts of the measurement of each candidate.
pub(super) const PARTS: usize = 5;

/// Measures candidates alternately: a part of the executions of each, then the next part in reverse
/// order. Each part begins with a state that `restore` has restored. A candidate that fails has no
/// further part.
///
/// # Errors
/// Errors of `restore`, and errors of `attempt` that end the search.
pub(super) fn interleaved<S>(
    bench: Bench,
    stream: &Stream,
    state: &mut S,
    ways: &[Candidate<'_, S>],
    restore: &dyn Fn(&mut S) -> Result<()>,
    attempt: Attempt<'_>,
) -> Result<Vec<Result<Times>>, Ended> {
    let runs = bench.num_runs();
    let turns = runs.clamp(1, PARTS);
    let mut all: Vec<Result<Vec<Duration>>> = ways.iter().map(|_| Ok(Vec::new())).collect_vec();
    for turn in 0..turns {
        let part = runs * (turn + 1) / turns - runs * turn / turns;
        // The device is warm after the first part; one execution fills the caches for this
        // candidate.
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
    Ok(all.into_iter().map(|times| times.map(Times::new)).collect_vec())
}
