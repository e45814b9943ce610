//! The search: among all configurations, among those that a function names, or without a device.

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
    /// Finds the fastest configuration: in a record, in the user's cache, or by trying all.
    ///
    /// `work` queues the work on the default stream of the device.
    ///
    /// # Errors
    /// [`Error::Argument`] where there is no configuration, and for a record that cannot be read; the error of the
    /// first one where all fail, and what restoring answers; [`Error::Io`] where the record cannot be written.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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
        let texts: Vec<String> = all.iter().map(text_of).collect();
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

    /// A configuration without a measurement: `explicit`, if there is one; else the winner of a
    /// record that is good here, else that of the user's cache; else the one that is estimated to
    /// be the fastest, where [`Tuner::max_trials`] wishes for estimates; else the first one.
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
    /// [`Error::Argument`] where there is no configuration, and for a record that cannot be read.
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

    /// Tries the configurations that `next` names, one after another, until it names none: a search of one's own. It
    /// sees what has been measured so far, in the order in which it was tried. Nothing of it is kept.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
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
        tuned.successes.sort_by_key(|(_, times)| times.median());
        Ok(tuned)
    }

    /// [`Tuner::search`] on what a record has instead of a device: how good a search is can be tried anywhere.
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
    /// That of the first configuration, where the record has times of none.
    #[track_caller]
    pub fn replay(&self, record: &Record, next: impl FnMut(&[(C, Times)]) -> Option<C>) -> Result<TuningResult<C>> {
        let measured = |configuration: &C| {
            let text = text_of(configuration);
            match record.trial(&text) {
                Some(Trial::Times(times)) => Ok(Times::of(times.clone())),
                Some(Trial::Failed(why) | Trial::LeftOut(why)) => Err(Error::argument(why)),
                None => Err(Error::argument(format!("the record has no `{text}`"))),
            }
        };
        let mut tuned = self.searched(next, |c| Ok(measured(c))).map_err(|ended| ended.error)?;
        if tuned.successes.is_empty() {
            return Err(none_runs(tuned.failures));
        }
        tuned.successes.sort_by_key(|(_, times)| times.median());
        Ok(tuned)
    }

    /// What `next` names, measured one after another.
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
        let all: Vec<C> = configurations.into_iter().filter(|c| self.keep.iter().all(|keep| keep(c))).collect();
        if all.is_empty() { Err(Error::argument("there is no configuration to try")) } else { Ok(all) }
    }
}
