//! Autotuning: search over a list of configurations, search by a function, replay of a record, and
//! selection without a device.

use crate::util::collect::CollectVec as _;
use std::fmt;

use super::key::text_of;
use super::memo::Known;
use super::options::Tuner;
use super::record::{Record, Trial};
use super::result::{Chosen, Origin, Outcome, TuningResult};
use super::time_limit::Ended;
use super::trials::none_runs;
use super::workspaces::Sets;
use crate::error::{Error, Result};
use crate::runtime::{Device, Times, in_user_code};

impl<S, C: fmt::Debug> Tuner<S, C> {
    /// Returns the fastest configuration: that of a record or of the user's cache, or the result of
    /// trials of all.
    ///
    /// `work` must queue its work on the default stream of the device.
    ///
    /// # Errors
    /// * [`Error::Argument`] without a configuration, and for a record that cannot be read;
    /// * the error of the first configuration, if all fail;
    /// * errors of the restore function;
    /// * [`Error::Io`] if the record cannot be written.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let mut seen = Vec::new();
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// tuner.run(ct::Device::cpu(), &mut seen, [64usize, 128], |seen, &tile| Ok(seen.push(tile)))?;
    /// assert_eq!(seen[..2], [64, 128]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[track_caller]
    pub fn run(
        &self,
        device: Device,
        state: &mut S,
        configurations: impl IntoIterator<Item = C>,
        work: impl Fn(&mut S, &C) -> Result<()>,
    ) -> Result<TuningResult<C>> {
        let mut all = self.kept(configurations)?;
        let key = self.key(device, state, &all)?;
        let asked = key.as_ref().filter(|_| !self.afresh);
        let Known { answer, notes, no_good } = self.known(asked, &all)?;
        if let Some((at, origin)) = answer {
            return Ok(TuningResult::known(all.swap_remove(at), origin, notes));
        }
        let texts: Vec<String> = all.iter().map(text_of).collect_vec();
        let work = |state: &mut S, configuration: &C| in_user_code(|| work(state, configuration));
        match self.tried(device, state, all, &no_good, &work) {
            Ok(tuned) => {
                if let Some(key) = key {
                    self.keep_found(key, &texts, &tuned)?;
                }
                Ok(TuningResult { notes, ..tuned })
            }
            Err(Ended { error, stuck }) => {
                if let (Some(key), Some(stuck)) = (key, stuck) {
                    self.keep_stuck(key, stuck, &error)?;
                }
                Err(error)
            }
        }
    }

    /// Selects a configuration without a measurement, from the first source that has one:
    /// 1. `explicit`;
    /// 2. a valid record;
    /// 3. the user's cache;
    /// 4. the least estimated time, if [`Tuner::max_trials`] is set;
    /// 5. the first configuration.
    ///
    /// ```
    /// # use cutlet as ct;
    /// let tuner = ct::Tuner::new().name("scale").record("none.tune");
    /// let chosen = tuner.choose(ct::Device::cpu(), &mut (), [64usize, 128], None)?;
    /// assert_eq!((chosen.configuration, chosen.origin), (64, ct::tune::Origin::Default));
    /// assert_eq!(chosen.notes, ["there is no record of `scale` for cpu (cpu)"]);
    /// assert_eq!(tuner.choose(ct::Device::cpu(), &mut (), [64, 128], Some(32))?.origin, ct::tune::Origin::Explicit);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] without a configuration, and for a record that cannot be read.
    #[track_caller]
    pub fn choose(
        &self,
        device: Device,
        state: &mut S,
        configurations: impl IntoIterator<Item = C>,
        explicit: Option<C>,
    ) -> Result<Chosen<C>> {
        if let Some(configuration) = explicit {
            return Ok(Chosen { configuration, origin: Origin::Explicit, notes: Vec::new() });
        }
        let mut all = self.kept(configurations)?;
        let key = self.key(device, state, &all)?;
        let Known { answer, notes, .. } = self.known(key.as_ref(), &all)?;
        let (at, origin) = answer.unwrap_or_else(|| match self.estimated(device, state, &all) {
            Some(at) => (at, Origin::Estimate),
            None => (0, Origin::Default),
        });
        Ok(Chosen { configuration: all.swap_remove(at), origin, notes })
    }

    /// Tries the configurations that `next` returns, until it returns `None`: a user-defined
    /// search. `next` receives the measurements, in the order of the trials. The result is not
    /// cached.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let tuner = ct::Tuner::new().bench(ct::Bench::new().warm_up(0).runs(1));
    /// let mut rest = [4, 5].into_iter();
    /// let tuned = tuner.search(ct::Device::cpu(), &mut (), |_| rest.next(), |(), _| Ok(()))?;
    /// assert_eq!(tuned.successes().len(), 2);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Tuner::run`].
    #[track_caller]
    pub fn search(
        &self,
        device: Device,
        state: &mut S,
        next: impl FnMut(&[(C, Times)]) -> Option<C>,
        work: impl Fn(&mut S, &C) -> Result<()>,
    ) -> Result<TuningResult<C>> {
        let stream = device.default_stream();
        let mut sets = Sets::new(device, state, self.copies.as_ref())?;
        let mut tuned = self
            .searched(next, |configuration| {
                self.restored(&mut sets)?;
                let measure = || self.bench.run(&stream, || in_user_code(|| work(sets.next(), configuration)));
                self.attempt(device, configuration, measure)
            })
            .map_err(|ended| ended.error)?;
        self.left_restored(&mut sets)?;
        if tuned.successes.is_empty() {
            return Err(none_runs(tuned.failures));
        }
        crate::util::sort::by_key(&mut tuned.successes, |(_, times)| times.median());
        Ok(tuned)
    }

    /// Executes [`Tuner::search`] on the measurements of a record. The quality of a search can be
    /// evaluated without its device.
    ///
    /// ```
    /// # let text = "# tuning records of cutlet, format 1\n\n[record]\nname \"n\"\ndevice \"NVIDIA H200\"\nbackend \"ptx\"\n\
    /// # target \"sm_90a\"\ndriver \"\"\nversion \"1\"\nkernel \"\"\nspace \"\"\nwinner \"64\"\ntrial \"64\" 10 20\ntrial \"32\" 30\n";
    /// let records = cutlet::tune::Records::parse("scale.tune", text)?; // of an H200
    /// let mut rest = [32, 64, 128].into_iter();
    /// let tuned = cutlet::Tuner::<(), i32>::new().replay(&records.all()[0], |_| rest.next())?;
    /// assert_eq!((tuned.best(), tuned.successes().len(), tuned.failures()[0].0), (&64, 2, 128));
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of the first configuration, if the record has no times of any of them.
    #[track_caller]
    pub fn replay(&self, record: &Record, next: impl FnMut(&[(C, Times)]) -> Option<C>) -> Result<TuningResult<C>> {
        let measured = |configuration: &C| {
            let text = text_of(configuration);
            match record.trial(&text) {
                Some(Trial::Times(times)) => Ok(Times::new(times.clone())),
                Some(Trial::Failed(why) | Trial::LeftOut(why)) => Err(Error::argument(why)),
                None => Err(Error::argument(format!("the record has no `{text}`"))),
            }
        };
        let mut tuned = self.searched(next, |c| Ok(measured(c))).map_err(|ended| ended.error)?;
        if tuned.successes.is_empty() {
            return Err(none_runs(tuned.failures));
        }
        crate::util::sort::by_key(&mut tuned.successes, |(_, times)| times.median());
        Ok(tuned)
    }

    /// Measures the configurations that `next` returns, in order.
    fn searched(
        &self,
        mut next: impl FnMut(&[(C, Times)]) -> Option<C>,
        mut measure: impl FnMut(&C) -> Result<Result<Times>, Ended>,
    ) -> Result<TuningResult<C>, Ended> {
        let mut tuned = TuningResult::nothing();
        while let Some(configuration) =
            std::iter::from_fn(|| next(&tuned.successes)).find(|c| self.keep.iter().all(|keep| keep(c)))
        {
            let done = tuned.successes.len() + tuned.failures.len() + 1;
            self.doing(done, done, &text_of(&configuration));
            match measure(&configuration)? {
                Ok(times) => {
                    self.tell(done, done, &configuration, Outcome::Measurement(&times));
                    tuned.successes.push((configuration, times));
                }
                Err(error) => {
                    self.tell(done, done, &configuration, Outcome::Failed(&error));
                    tuned.failures.push((configuration, error));
                }
            }
        }
        self.done();
        Ok(tuned)
    }

    #[track_caller]
    fn kept(&self, configurations: impl IntoIterator<Item = C>) -> Result<Vec<C>> {
        let all: Vec<C> = configurations.into_iter().filter(|c| self.keep.iter().all(|keep| keep(c))).collect_vec();
        if all.is_empty() { Err(Error::argument("there is no configuration to try")) } else { Ok(all) }
    }
}
