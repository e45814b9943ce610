//! Cache of the results of searches, in records and on the disk.

use crate::util::collect::CollectVec as _;
use std::fmt;

use super::key::{TuneKey, text_of};
use super::options::Tuner;
use super::precompile::hash_of;
use super::record::{Record, Records, Trial};
use super::result::{Origin, TuningResult};
use crate::cache::disk::{ContentHash, DiskCache};
use crate::error::{Error, Result};
use crate::runtime::Device;

/// Result of earlier searches.
pub(super) struct Known {
    /// Index of the configuration, and the source of the result.
    pub answer: Option<(usize, Origin)>,
    /// Reasons for which no record is valid.
    pub notes: Vec<String>,
    /// Configurations that aborted an earlier search, and the reasons.
    pub no_good: Vec<(String, String)>,
}

impl<S, C: fmt::Debug> Tuner<S, C> {
    /// Returns the key of the result; `None` if results are not cached.
    pub(super) fn key(&self, device: Device, state: &mut S, all: &[C]) -> Result<Option<TuneKey>> {
        if !self.cached && self.record.is_none() && self.records.is_none() {
            return Ok(None);
        }
        // The error of a kernel that cannot be traced is reported by its execution.
        let kernel = self.kernels.as_ref().map(|describe| hash_of(device, state, &all[0], describe));
        let kernel = kernel.and_then(Result::ok).unwrap_or_default();
        TuneKey::of(device, &self.name, &kernel, all).map(Some)
    }

    /// Returns the result of an earlier search with this key, or the reasons for which there is
    /// none.
    pub(super) fn known(&self, key: Option<&TuneKey>, all: &[C]) -> Result<Known> {
        let Some(key) = key else { return Ok(Known { answer: None, notes: Vec::new(), no_good: Vec::new() }) };
        let (mut notes, mut no_good) = (Vec::new(), Vec::new());
        let file = self.record.as_ref().map(Records::read).transpose()?;
        for records in self.records.iter().chain(&file) {
            match records.find(key) {
                Ok(record) => match all.iter().position(|c| text_of(c) == record.winner) {
                    Some(at) => return Ok(Known { answer: Some((at, Origin::Record)), notes, no_good }),
                    None => notes.push(format!("the winner `{}` of the record is no configuration", record.winner)),
                },
                Err(why) => {
                    notes.push(why);
                    no_good.extend(records.stuck(key));
                }
            }
        }
        let cached = self.cached.then(DiskCache::from_env).flatten().and_then(|disk| disk.get(&content_key(key)));
        let at = cached.and_then(|bytes| place(&bytes)).filter(|&at| at < all.len());
        Ok(Known { answer: at.map(|at| (at, Origin::Cache)), notes, no_good })
    }

    /// Adds a configuration that aborted the search to the record, so that the next search skips
    /// it.
    pub(super) fn keep_stuck(&self, key: TuneKey, configuration: String, why: &Error) -> Result<()> {
        let Some(path) = &self.record else { return Ok(()) };
        let failed = |(text, why)| (text, Trial::Failed(why));
        Records::update(path, |records| {
            let stuck = records.stuck(&key).into_iter().filter(|(text, _)| *text != configuration);
            let mut trials: Vec<(String, Trial)> = stuck.map(failed).collect_vec();
            trials.push((configuration.clone(), Trial::Failed(why.to_string())));
            records.put(Record { key: key.clone(), winner: String::new(), trials });
        })
    }

    /// Writes the result of a search to the cache and the record.
    pub(super) fn keep_found(&self, key: TuneKey, texts: &[String], tuned: &TuningResult<C>) -> Result<()> {
        let winner = text_of(tuned.best());
        if let Some(disk) = self.cached.then(DiskCache::from_env).flatten()
            && let Some(at) = texts.iter().position(|text| *text == winner)
        {
            disk.put(&content_key(&key), &(at as u64).to_le_bytes());
        }
        let Some(path) = &self.record else { return Ok(()) };
        let times = tuned.successes.iter().map(|(c, times)| (text_of(c), Trial::Times(times.all().to_vec())));
        let failed = tuned.failures.iter().map(|(c, error)| (text_of(c), Trial::Failed(error.to_string())));
        let left_out = tuned.left_out.iter().map(|(c, why)| (text_of(c), Trial::LeftOut(why.clone())));
        let record = Record { key, winner, trials: times.chain(failed).chain(left_out).collect_vec() };
        Records::update(path, |records| records.put(record.clone()))
    }
}

fn content_key(key: &TuneKey) -> ContentHash {
    let parts = key.parts();
    let mut all = vec![&b"tune 2"[..]];
    all.extend(parts.iter().map(|(_, value)| value.as_bytes()));
    ContentHash::new(&all)
}

/// Decodes the index of the best configuration.
fn place(bytes: &[u8]) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
}
