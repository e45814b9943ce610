//! What a search found, and how far it is.

use std::fmt;

use crate::error::Error;
use crate::runtime::Times;

/// Where a configuration comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// Named by the program.
    Explicit,
    /// Measurement now.
    Measurement,
    /// A record beside the source.
    Record,
    /// The user's cache.
    Cache,
    /// Estimated by what the code is.
    Estimate,
    /// The first of the configurations.
    Default,
}

/// A configuration that [`Tuner::choose`](crate::Tuner::choose) took without measuring.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Chosen<C> {
    /// The configuration.
    pub configuration: C,
    /// Where it comes from.
    pub origin: Origin,
    /// Why it comes from no better place.
    pub notes: Vec<String>,
}

/// What became of a configuration.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// It runs, and its result is right as far as that is checked.
    Runs,
    /// It is not run, for this reason.
    LeftOut(&'a str),
    /// It fails.
    Failed(&'a Error),
    /// It was measured.
    Measurement(&'a Times),
}

/// A step of a search, told to [`Tuner::on_progress`](crate::Tuner::on_progress); its `Display` is
/// a line without its end.
#[derive(Debug)]
#[non_exhaustive]
pub struct TuneStep<'a, C> {
    /// Configurations that are so far, this one among them.
    pub done: usize,
    /// Configurations in all; so many as were tried so far where that is not known.
    pub total: usize,
    /// The configuration.
    pub configuration: &'a C,
    /// What became of it.
    pub outcome: Outcome<'a>,
}

impl<C: fmt::Debug> fmt::Display for TuneStep<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}: {:?}: ", self.done, self.total, self.configuration)?;
        match self.outcome {
            Outcome::Runs => write!(f, "runs"),
            Outcome::LeftOut(why) => write!(f, "left out: {why}"),
            Outcome::Failed(error) => write!(f, "fails: {}", error.to_string().lines().next().unwrap_or_default()),
            Outcome::Measurement(times) => write!(f, "{times}"),
        }
    }
}

/// Result of a search: the best configuration, and times or errors of all.
#[derive(Debug)]
pub struct TuningResult<C> {
    /// The winner of an earlier search, and where it was kept.
    pub(super) known: Option<(C, Origin)>,
    /// The fastest first; not empty where none is known.
    pub(super) successes: Vec<(C, Times)>,
    /// The winner among them.
    pub(super) winner: usize,
    pub(super) failures: Vec<(C, Error)>,
    pub(super) left_out: Vec<(C, String)>,
    pub(super) notes: Vec<String>,
}

impl<C> TuningResult<C> {
    pub(super) fn nothing() -> TuningResult<C> {
        let (successes, failures, left_out, notes) = Default::default();
        TuningResult { known: None, successes, winner: 0, failures, left_out, notes }
    }

    pub(super) fn known(configuration: C, origin: Origin, notes: Vec<String>) -> TuningResult<C> {
        TuningResult { known: Some((configuration, origin)), notes, ..TuningResult::nothing() }
    }

    /// The configuration with the least median; of two that are within 1 %, measured again in alternation, the first of
    /// all configurations, if it is one of them.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// assert_eq!(tuner.run(ct::Device::cpu(), &mut (), [64usize], |(), _| Ok(()))?.best(), &64);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn best(&self) -> &C {
        self.known.as_ref().map_or_else(|| &self.successes[self.winner].0, |(known, _)| known)
    }

    /// Where the best one comes from: [`Origin::Measurement`], or an earlier search.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// assert_eq!(tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?.origin(), ct::tune::Origin::Measurement);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn origin(&self) -> Origin {
        self.known.as_ref().map_or(Origin::Measurement, |(_, origin)| *origin)
    }

    /// All that ran, with their times, the fastest first. None, if the winner was known.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// let tuned = tuner.run(ct::Device::cpu(), &mut (), [64usize, 128], |(), _| Ok(()))?;
    /// assert!(tuned.successes()[0].1.median() <= tuned.successes()[1].1.median());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn successes(&self) -> &[(C, Times)] {
        &self.successes
    }

    /// All that failed, and why.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn odd(x: ArrayMut<f32, 1>, tile: usize) {
    ///     x.store(0, ct::zeros([tile]));
    /// }
    ///
    /// let mut x = ct::Device::cpu().zeros([128])?;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// let tuned = tuner.run(ct::Device::cpu(), &mut x, [64usize, 1000], |x, &tile| ct::launch(odd, 1, (x, ct::Constant(tile))))?;
    /// assert_eq!(tuned.failures()[0].0, 1000); // no sum of three powers of two
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn failures(&self) -> &[(C, Error)] {
        &self.failures
    }

    /// All that were not run, and why: see [`Tuner::kernels`](crate::Tuner::kernels).
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// assert!(tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?.left_out().is_empty());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn left_out(&self) -> &[(C, String)] {
        &self.left_out
    }

    /// Why an earlier search did not answer.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// assert!(tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?.notes().is_empty());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Was the winner that of an earlier search?
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// assert!(!tuner.run(ct::Device::cpu(), &mut (), [64usize], |(), _| Ok(()))?.is_cached());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn is_cached(&self) -> bool {
        self.known.is_some()
    }
}

/// One line for each configuration: its times, its error, or why it was not run.
impl<C: fmt::Debug> fmt::Display for TuningResult<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((best, _)) = &self.known {
            writeln!(f, "{best:?}: as found earlier")?;
        }
        self.successes.iter().try_for_each(|(c, times)| writeln!(f, "{c:?}: {times}"))?;
        self.failures.iter().try_for_each(|(c, error)| writeln!(f, "{c:?}: {error}"))?;
        self.left_out.iter().try_for_each(|(c, why)| writeln!(f, "{c:?}: left out: {why}"))
    }
}
