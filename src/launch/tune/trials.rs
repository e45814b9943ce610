//! Trials of configurations: one execution of each with a check of its result, then alternating
//! measurements.

use crate::util::collect::CollectVec as _;
use std::fmt;
use std::fmt::Debug;
use std::time::Duration;

use super::interleave::{Candidate, PARTS, interleaved};
use super::key::text_of;
use super::options::Tuner;
use super::precompile::compiled;
use super::prune::{Qualities, reasons};
use super::result::{Outcome, TuningResult};
use super::time_limit::Ended;
use super::workspaces::Sets;
use crate::error::{Error, Result};
use crate::runtime::{Bench, Device, Times, in_user_code};

/// Work of a configuration.
pub(super) type Work<'a, S, C> = &'a dyn Fn(&mut S, &C) -> Result<()>;

/// Relative difference of a tie. In a tie, the first configuration wins if it is one of the two.
const TIE: f64 = 0.01;

/// Limit of the configurations that are measured again, and of their ratio to the fastest one, by
/// minimum or by median. On a GPU at its power limit, some executions are slow because of the
/// preceding work.
const FINALISTS: usize = 12;
const CLOSE: f64 = 1.03;

/// Time of a part of the second measurement. A GPU at its power limit needs a part of it to adapt
/// its clock to the current work.
const PART_TIME: Duration = Duration::from_millis(50);

/// Limit of the executions of one configuration in a part.
const MAX_RUNS: usize = 50;

/// Measurements, the fastest first, and the index of the winner.
type Ranked<C> = (Vec<(C, Times)>, usize);

impl<S, C: fmt::Debug> Tuner<S, C> {
    /// Returns the configuration with the least estimated time, if requested and known.
    pub(super) fn estimated(&self, device: Device, state: &mut S, all: &[C]) -> Option<usize> {
        let describe = self.most.and(self.kernels.as_ref())?;
        let all: Vec<Option<Qualities>> =
            compiled(device, state, all, describe, self.limit).into_iter().map(Result::ok).collect_vec();
        let known: Vec<Qualities> = all.iter().map(|q| q.unwrap_or_default()).collect_vec();
        let reasons = reasons(&known, None);
        let estimate = |at: &usize| known[*at].estimate;
        (0..known.len()).filter(|&at| reasons[at].is_none() && estimate(&at).is_some()).min_by_key(estimate)
    }

    /// Tries all configurations except those in `no_good`, which has the reasons.
    #[track_caller]
    pub(super) fn tried(
        &self,
        device: Device,
        state: &mut S,
        all: Vec<C>,
        no_good: &[(String, String)],
        work: Work<'_, S, C>,
    ) -> Result<TuningResult<C>, Ended> {
        let total = all.len();
        let mut tuned = TuningResult::nothing();
        let mut reasons = self.reasons(device, state, &all, no_good);
        let mut reference = None;
        let mut running: Vec<(usize, C)> = Vec::new();
        let mut sets = Sets::new(device, state, self.copies.as_ref())?;
        for (number, configuration) in all.into_iter().enumerate() {
            if let Some(why) = reasons[number].take() {
                self.tell(number + 1, total, &configuration, Outcome::LeftOut(&why));
                tuned.left_out.push((configuration, why));
                continue;
            }
            self.doing(number + 1, total, &text_of(&configuration));
            self.restored(&mut sets)?;
            let once = || self.once(device, &mut sets, &configuration, &mut reference, work);
            match self.attempt(device, &configuration, once)? {
                Ok(()) => {
                    self.tell(number + 1, total, &configuration, Outcome::Runs);
                    running.push((number, configuration));
                }
                Err(error) => {
                    self.tell(number + 1, total, &configuration, Outcome::Failed(&error));
                    tuned.failures.push((configuration, error));
                }
            }
        }
        let measured = self.measured(device, &mut sets, running, work, &mut tuned.failures);
        self.done();
        if !matches!(&measured, Err(Ended { stuck: Some(_), .. })) {
            self.left_restored(&mut sets)?;
        }
        let (all, winner) = measured?;
        if all.is_empty() {
            return Err(none_runs(tuned.failures).into());
        }
        tuned.winner = winner;
        for (done, (configuration, times)) in all.into_iter().enumerate() {
            self.tell(done + 1, total, &configuration, Outcome::Measurement(&times));
            tuned.successes.push((configuration, times));
        }
        Ok(tuned)
    }

    /// Returns the reason to reject each configuration.
    fn reasons(&self, device: Device, state: &mut S, all: &[C], no_good: &[(String, String)]) -> Vec<Option<String>> {
        let stuck = |c: &C| no_good.iter().find(|(text, _)| *text == text_of(c)).map(|(_, why)| why.clone());
        let stuck: Vec<Option<String>> = all.iter().map(stuck).collect_vec();
        let Some(describe) = &self.kernels else { return stuck };
        self.doing(0, all.len(), "compiling");
        let known = compiled(device, state, all, describe, self.limit);
        let known: Vec<Qualities> = known.into_iter().map(Result::unwrap_or_default).collect_vec();
        stuck.into_iter().zip(reasons(&known, self.most)).map(|(stuck, reason)| stuck.or(reason)).collect_vec()
    }

    /// Executes a configuration once, and compares its result with that of the first one.
    #[track_caller]
    fn once(
        &self,
        device: Device,
        sets: &mut Sets<'_, S>,
        configuration: &C,
        reference: &mut Option<(String, Vec<f64>)>,
        work: Work<'_, S, C>,
    ) -> Result<()> {
        work(sets.next(), configuration)?;
        device.synchronize()?;
        let Some((result, tolerance)) = &self.check else { return Ok(()) };
        let numbers = in_user_code(|| result(sets.last()))?;
        match reference {
            None => {
                *reference = Some((text_of(configuration), numbers));
                Ok(())
            }
            Some((first, expected)) => same(&numbers, expected, *tolerance, first),
        }
    }

    /// Measures configurations alternately, then those that are close to the fastest again, for a
    /// longer time. Returns them with the fastest first, and the index of the winner.
    fn measured(
        &self,
        device: Device,
        sets: &mut Sets<'_, S>,
        running: Vec<(usize, C)>,
        work: Work<'_, S, C>,
        failures: &mut Vec<(C, Error)>,
    ) -> Result<Ranked<C>, Ended> {
        let stream = device.default_stream();
        let restore = |sets: &mut Sets<'_, S>| self.restored(sets);
        let measure = |bench: Bench, sets: &mut Sets<'_, S>, all: &[&C]| {
            let ways: Vec<_> = all.iter().map(|&c| move |sets: &mut Sets<'_, S>| work(sets.next(), c)).collect_vec();
            let ways: Vec<Candidate<'_, Sets<'_, S>>> = ways.iter().map(|way| way as _).collect_vec();
            interleaved(bench, &stream, sets, &ways, &restore, &|at, part| {
                self.doing(at + 1, all.len(), &format!("measuring {}", text_of(all[at])));
                self.attempt(device, all[at], part)
            })
        };
        let times = measure(self.bench, sets, &running.iter().map(|(_, c)| c).collect_vec())?;
        let mut all = Vec::new();
        for ((number, configuration), times) in running.into_iter().zip(times) {
            match times {
                Ok(times) => all.push((number, configuration, times)),
                Err(error) => failures.push((configuration, error)),
            }
        }
        // The sort is stable: of equal medians, the first configuration is first.
        crate::util::sort::by_key(&mut all, |(_, _, times)| times.median());
        let finalists = close(&all.iter().map(|(_, _, times)| [times.min(), times.median()]).collect_vec());
        let mut winner = 0;
        if finalists.len() > 1 {
            let bench = longer(self.bench, all[0].2.median());
            let again = measure(bench, sets, &finalists.iter().map(|&at| &all[at].1).collect_vec())?;
            let times = finalists.iter().zip(&again).map(|(&at, times)| {
                let times = times.as_ref().ok()?;
                Some((all[at].0 == 0, times.median().as_secs_f64()))
            });
            winner = finalists[winner_of(times)];
        }
        Ok((all.into_iter().map(|(_, configuration, times)| (configuration, times)).collect_vec(), winner))
    }
}

/// Returns the indices of the configurations that are close to the fastest one. `times`: minimum
/// and median of each, sorted by median.
fn close(times: &[[Duration; 2]]) -> Vec<usize> {
    let least = [0, 1].map(|which| times.iter().map(|of| of[which]).min().unwrap_or_default().mul_f64(CLOSE));
    let is_close = |of: &[Duration; 2]| of[0] <= least[0] || of[1] <= least[1];
    times.iter().enumerate().filter(|(_, of)| is_close(of)).map(|(at, _)| at).take(FINALISTS).collect_vec()
}

/// Increases the number of executions so that a part has sufficient time; `each`: the time of one
/// execution.
fn longer(bench: Bench, each: Duration) -> Bench {
    let run = each.as_secs_f64().max(1e-6) * bench.num_repeats() as f64;
    let runs = (PART_TIME.as_secs_f64() / run).ceil() as usize;
    bench.runs(bench.num_runs().max(PARTS * runs.min(MAX_RUNS)))
}

/// Returns the index of the best one. Items: whether it is the default, and its time; `None` if it
/// failed.
fn winner_of(all: impl Iterator<Item = Option<(bool, f64)>>) -> usize {
    let all = all.enumerate().filter_map(|(at, one)| Some((at, one?)));
    all.reduce(|best, next| if second_wins(best.1, next.1) { next } else { best }).map_or(0, |(at, _)| at)
}

/// Returns true if the second one is better. Arguments: whether it is the default, and its time.
fn second_wins((first_is_default, first): (bool, f64), (second_is_default, second): (bool, f64)) -> bool {
    let tie = (first - second).abs() <= TIE * first.max(second);
    if tie && (first_is_default || second_is_default) { second_is_default } else { second < first }
}

/// Returns the error of a search in which no configuration succeeds: that of the configurations, or
/// a list of their errors if these differ. Configurations with the same error are listed together.
#[track_caller]
pub(super) fn none_runs<C: Debug>(failures: Vec<(C, Error)>) -> Error {
    let count = failures.len();
    let mut texts: Vec<(String, String)> = Vec::new();
    for (configuration, error) in &failures {
        let (configuration, text) = (format!("{configuration:?}"), error.to_string());
        match texts.iter_mut().find(|(_, known)| *known == text) {
            Some((names, _)) => *names = format!("{names}, {configuration}"),
            None => texts.push((configuration, text)),
        }
    }
    if texts.len() > 1
        && let Error::Argument(mut all) = Error::argument(format!("none of the {count} configurations runs"))
    {
        for (names, text) in texts {
            all = all.note(format!("{names}: {}", text.replace('\n', "\n  ")));
        }
        return Error::Argument(all);
    }
    let first = failures.into_iter().next().map(|(_, error)| error);
    first.unwrap_or_else(|| Error::argument("there is no configuration to try"))
}

/// Compares two results.
///
/// # Errors
/// The first number that differs.
#[track_caller]
fn same(numbers: &[f64], expected: &[f64], tolerance: f64, first: &str) -> Result<()> {
    if numbers.len() != expected.len() {
        let (here, there) = (numbers.len(), expected.len());
        return Err(Error::argument(format!("the result has {here} numbers, that of `{first}` has {there}")));
    }
    let close = |x: f64, y: f64| x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= tolerance * y.abs().max(1.0);
    match numbers.iter().zip(expected).position(|(&x, &y)| !close(x, y)) {
        None => Ok(()),
        Some(at) => Err(Error::argument(format!(
            "number {at} of the result is {}, that of `{first}` is {}",
            numbers[at], expected[at]
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_select_the_default() {
        assert!(!second_wins((false, 1.0), (false, 1.001)));
        assert!(second_wins((false, 1.001), (false, 1.0)));
        assert!(second_wins((false, 1.0), (true, 1.009)));
        assert!(!second_wins((true, 1.009), (false, 1.0)));
        assert!(second_wins((true, 1.02), (false, 1.0)));
        assert!(!second_wins((false, 1.0), (true, 1.02)));
    }

    #[test]
    fn the_best_of_those_that_ran_wins() {
        assert_eq!(winner_of([Some((false, 2.0)), Some((false, 1.0)), Some((false, 1.5))].into_iter()), 1);
        assert_eq!(winner_of([None, Some((false, 1.0)), Some((true, 1.005))].into_iter()), 2);
        assert_eq!(winner_of([None, None].into_iter()), 0);
    }

    #[test]
    fn those_that_are_as_fast_at_best_are_close() {
        let times = |of: [[u64; 2]; 4]| close(&of.map(|both| both.map(Duration::from_micros)));
        assert_eq!(times([[1000, 1010], [1020, 1040], [1010, 1200], [1050, 1300]]), [0, 1, 2]);
        assert_eq!(times([[1000, 1000], [2000, 2000], [3000, 3000], [4000, 4000]]), [0]);
        assert!(close(&[]).is_empty());
        assert_eq!(close(&[[Duration::ZERO; 2]; 20]).len(), FINALISTS);
    }

    #[test]
    fn parts_of_the_fastest_have_a_minimum_time() {
        let runs =
            |each, repeats| longer(Bench::new().runs(10).repeats(repeats), Duration::from_micros(each)).num_runs();
        assert_eq!([runs(1, 1), runs(1500, 1), runs(150_000, 1)], [PARTS * MAX_RUNS, PARTS * 34, 10]);
        assert_eq!(runs(1500, 3), PARTS * 12);
    }

    #[test]
    fn results_are_compared_number_by_number() {
        assert!(same(&[1.0, f64::NAN, 1000.5], &[1.0, f64::NAN, 1000.0], 1e-3, "a").is_ok());
        assert!(same(&[1.0], &[1.1], 1e-3, "a").is_err() && same(&[f64::NAN], &[0.0], 1.0, "a").is_err());
        assert!(same(&[1.0], &[], 1.0, "a").unwrap_err().to_string().contains("has 1 numbers, that of `a` has 0"));
    }
}
