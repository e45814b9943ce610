//! Result and progress of a search.

use std::fmt;

use crate::error::Error;
use crate::runtime::Times;

/// Source of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// Selected by the program.
    Explicit,
    /// Measured by this search.
    Measurement,
    /// A record in a file or in the program.
    Record,
    /// The user's cache on the disk.
    Cache,
    /// Estimated from properties of the code.
    Estimate,
    /// The first one of the configurations.
    Default,
}

/// Configuration that [`Tuner::choose`](crate::Tuner::choose) selected without a measurement.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Chosen<C> {
    /// Selected configuration.
    pub configuration: C,
    /// Source of the configuration.
    pub origin: Origin,
    /// Reasons for which better sources had no configuration.
    pub notes: Vec<String>,
}

/// Result of one configuration.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<'a> {
    /// The execution succeeded, and its result is correct if a check was requested.
    Runs,
    /// It was not executed, for this reason.
    LeftOut(&'a str),
    /// The execution failed.
    Failed(&'a Error),
    /// It was measured.
    Measurement(&'a Times),
}

/// Step of a search, passed to [`Tuner::on_progress`](crate::Tuner::on_progress). `Display` writes
/// one line without its end.
#[derive(Debug)]
#[non_exhaustive]
pub struct TuneStep<'a, C> {
    /// Number of configurations in this state, including this one.
    pub done: usize,
    /// Total number of configurations. If it is not known: the same as `done`.
    pub total: usize,
    /// Configuration of the step.
    pub configuration: &'a C,
    /// Result of the configuration.
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
    /// Result of an earlier search, and its source.
    pub(super) known: Option<(C, Origin)>,
    /// Fastest first. Not empty if `known` is `None`.
    pub(super) successes: Vec<(C, Times)>,
    /// Index of the selected one.
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

    /// Returns the configuration with the least median. Those close to the fastest are measured
    /// again in alternation. If one of two medians within 1 % is that of the first configuration
    /// (the default), it is preferred.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// assert_eq!(tuner.run(ct::Device::cpu(), &mut (), [64usize], |(), _| Ok(()))?.best(), &64);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn best(&self) -> &C {
        self.known.as_ref().map_or_else(|| &self.successes[self.winner].0, |(known, _)| known)
    }

    /// Returns the source of the best configuration: [`Origin::Measurement`], or an earlier search.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// assert_eq!(tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?.origin(), ct::tune::Origin::Measurement);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn origin(&self) -> Origin {
        self.known.as_ref().map_or(Origin::Measurement, |(_, origin)| *origin)
    }

    /// Returns the successful configurations and their times, the fastest first. Empty if the
    /// result is that of an earlier search.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// let tuned = tuner.run(ct::Device::cpu(), &mut (), [64usize, 128], |(), _| Ok(()))?;
    /// assert!(tuned.successes()[0].1.median() <= tuned.successes()[1].1.median());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn successes(&self) -> &[(C, Times)] {
        &self.successes
    }

    /// Returns the failed configurations and their errors.
    ///
    /// ```
    /// # use cutlet::doctest::*;
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

    /// Returns the configurations that were rejected without an execution, and the reasons; see
    /// [`Tuner::kernels`](crate::Tuner::kernels).
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// assert!(tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?.left_out().is_empty());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn left_out(&self) -> &[(C, String)] {
        &self.left_out
    }

    /// Returns the reasons for which no earlier result was used.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// assert!(tuner.run(ct::Device::cpu(), &mut (), [1, 2], |(), _| Ok(()))?.notes().is_empty());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns true if the result is that of an earlier search.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// assert!(!tuner.run(ct::Device::cpu(), &mut (), [64usize], |(), _| Ok(()))?.is_cached());
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn is_cached(&self) -> bool {
        self.known.is_some()
    }
}

/// Writes one line for each configuration: its times, its error, or the reason of its rejection.
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
