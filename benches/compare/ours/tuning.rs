//! The fastest configuration of a row, by the tuner of the crate.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use cutlet as ct;
use cutlet::Backend;

use super::configuration::{Call, Configurations, Step};
use super::fill::Fill;

/// A configuration of a row.
#[derive(Clone, PartialEq, Eq)]
pub struct Choice {
    index: usize,
    /// Its name.
    pub label: String,
}

/// As records have it.
impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

/// How rows are tuned.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// The back end of all launches.
    pub backend: Backend,
    /// Runs of each configuration.
    pub runs: usize,
    /// How long a configuration may take.
    pub limit: Duration,
    /// Where answers are kept.
    pub record: Option<PathBuf>,
    /// Is it measured also where the record has an answer?
    pub afresh: bool,
}

/// A row that can be tuned.
pub trait Tune {
    /// Tries all configurations of the row of this name. `plain` is the default: a label, or what stands in it before a
    /// comma; where there is no such one, the first.
    fn tune(
        self: Box<Self>,
        name: &str,
        plain: &str,
        how: &Tuning,
    ) -> ct::Result<(Choice, ct::tune::TuningResult<Choice>)>;
}

impl<S: Send + Fill + ct::tune::Scratch + 'static> Tune for Configurations<S> {
    fn tune(
        self: Box<Self>,
        name: &str,
        plain: &str,
        how: &Tuning,
    ) -> ct::Result<(Choice, ct::tune::TuningResult<Choice>)> {
        let Configurations { sets, list, .. } = *self;
        let set = sets.into_iter().next().expect("a row has a set of arrays");
        let mut arrays = set.into_inner().unwrap_or_else(PoisonError::into_inner);
        arrays.fill(&mut 0)?;
        let list = Arc::new(list);
        let mut all: Vec<Choice> =
            list.iter().enumerate().map(|(index, (label, ..))| Choice { index, label: label.clone() }).collect();
        let is_plain = |c: &Choice| c.label == plain || c.label.strip_prefix(plain).is_some_and(|l| l.starts_with(','));
        let first = all.iter().position(is_plain).unwrap_or(0);
        all[..=first].rotate_right(1);
        let (default, backend) = (all[0].clone(), how.backend);

        let kernels_of = list.clone();
        let mut tuner = ct::Tuner::new()
            .name(name)
            .scratch()
            .bench(ct::Bench::new().warm_up(1).runs(how.runs))
            .limit(how.limit)
            .show_progress()
            .kernels(move |arrays: &mut S, choice: &Choice, kernels| {
                let (_, hints, body) = &kernels_of[choice.index];
                let mut held = Some(kernels);
                let mut call = Call::new(backend, *hints, Step::CompileSummary(&mut held));
                // What fails here fails again when it is run.
                let _ = body(arrays, &mut call);
                held.unwrap_or_else(|| ct::aot::Kernels::on(ct::Device::cpu()))
            });
        if let Some(path) = &how.record {
            tuner = tuner.record(path);
        }
        if how.afresh {
            tuner = tuner.ignore_cache();
        }
        let device = match backend {
            Backend::Cpu => ct::Device::cpu(),
            _ => ct::Device::gpu(0)?,
        };
        let tuned = tuner.run(device, &mut arrays, all, |arrays, choice| {
            let (_, hints, body) = &list[choice.index];
            body(arrays, &mut Call::new(backend, *hints, Step::Launch))
        })?;
        Ok((default, tuned))
    }
}
