//! Choice of the configuration of a kernel: tile, hints and division of the work, by the problem
//! and the device.
//!
//! The first launch of a problem on a device takes the configuration of the first source that has
//! one:
//!
//! 1. the explicit configuration of the caller;
//! 2. a record of an earlier search in `kernels/records`, of this device or of another one of its
//!    target;
//! 3. the user's cache of searches;
//! 4. on GPUs the least time of the cost model, for kernels that multiprocessors bound;
//! 5. the first configuration of the space, which is always the one of the cpu device.
//!
//! Later launches of the process look the problem up in a table. [`searched`] measures all
//! configurations instead:
//!
//! ```
//! use cutlet as ct;
//! use cutlet_kernels::choice::{Search, searched};
//!
//! let device = ct::Device::cpu();
//! let (x, mut y) = (device.zeros::<f32, 4>([1, 1, 2, 64])?, device.zeros([1, 1, 2, 64])?);
//! let stream = device.default_stream();
//! searched(&Search::new().runs(1), || cutlet_kernels::softmax(&stream, x.view(), y.view_mut()))?;
//! # Ok::<(), ct::Error>(())
//! ```

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use cutlet as ct;
use cutlet::tune::{Origin, Records};
use cutlet::{Bench, Stream, Target, Tuner};

use crate::check::require;
use crate::inspect::{Subject, inspect};
use crate::launch::{is_inspected, target};

/// A problem that has one configuration: kernel, element types and extents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem<'a> {
    pub kernel: &'static str,
    pub types: &'a [&'static str],
    pub extents: &'a [usize],
    /// The cost model ranks the configurations. It knows the multiprocessors alone: for a kernel
    /// that memory bounds, the first configuration is better.
    pub is_estimated: bool,
}

impl Problem<'_> {
    /// Returns the name of the problem in records: `matmul f16 4096 4096 4096`.
    fn name(&self) -> String {
        let types = self.types.iter().map(|word| (*word).to_owned());
        let extents = self.extents.iter().map(usize::to_string);
        [self.kernel.to_owned()].into_iter().chain(types).chain(extents).collect::<Vec<_>>().join(" ")
    }
}

/// Returns an extent above the given one with three significant bits, so that problems of similar
/// extents share a configuration.
pub(crate) fn bucket(extent: usize) -> usize {
    let unit = (extent.max(1).next_power_of_two() / 8).max(1);
    extent.div_ceil(unit) * unit
}

/// Options of a search, see [`searched`].
#[derive(Clone, Debug, Default)]
pub struct Search {
    runs: Option<usize>,
    limit: Option<Duration>,
    record: Option<PathBuf>,
}

impl Search {
    /// Returns the default options.
    #[must_use]
    pub fn new() -> Search {
        Search::default()
    }

    /// Sets the number of measured launches of each configuration.
    #[must_use]
    pub fn runs(self, runs: usize) -> Search {
        Search { runs: Some(runs), ..self }
    }

    /// Sets the limit of the time of a launch.
    #[must_use]
    pub fn limit(self, limit: Duration) -> Search {
        Search { limit: Some(limit), ..self }
    }

    /// Sets the file that receives the records, such as `kernels/records/h200.tune`.
    #[must_use]
    pub fn record(self, file: impl Into<PathBuf>) -> Search {
        Search { record: Some(file.into()), ..self }
    }
}

thread_local! {
    static SEARCH: RefCell<Option<Search>> = const { RefCell::new(None) };
}

/// Runs a call. Each kernel with a choice is launched in all its configurations, several times. The
/// fastest one is kept for the process and in the user's cache, and is launched last.
///
/// The call has to use the default stream of its device. Kernels that read their result add to it
/// repeatedly.
///
/// # Errors
/// Those of the call, and of the file of the records.
pub fn searched<R>(search: &Search, call: impl FnOnce() -> ct::Result<R>) -> ct::Result<R> {
    let outer = SEARCH.replace(Some(search.clone()));
    let result = call();
    SEARCH.replace(outer);
    result
}

/// A problem on a device, with its configuration.
struct Known {
    device: String,
    kernel: &'static str,
    types: Vec<&'static str>,
    extents: Vec<usize>,
    configuration: Box<dyn Any + Send>,
}

/// The configurations of this process, by the hash of the problem and the device.
static MEMO: Mutex<Option<HashMap<u64, Vec<Known>>>> = Mutex::new(None);

fn remembered<C: Clone + 'static>(device: &str, problem: Problem<'_>) -> Option<C> {
    let memo = MEMO.lock().unwrap_or_else(PoisonError::into_inner);
    let all = memo.as_ref()?.get(&hash(device, problem))?;
    let known = all.iter().filter(|known| same(known, device, problem));
    known.filter_map(|known| known.configuration.downcast_ref::<C>()).next().cloned()
}

fn remember<C: Send + 'static>(device: &str, problem: Problem<'_>, configuration: C) {
    let mut memo = MEMO.lock().unwrap_or_else(PoisonError::into_inner);
    let all = memo.get_or_insert_default().entry(hash(device, problem)).or_default();
    all.retain(|known| !(same(known, device, problem) && known.configuration.is::<C>()));
    all.push(Known {
        device: device.to_owned(),
        kernel: problem.kernel,
        types: problem.types.to_vec(),
        extents: problem.extents.to_vec(),
        configuration: Box::new(configuration),
    });
}

fn hash(device: &str, Problem { kernel, types, extents, .. }: Problem<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (device, kernel, types, extents).hash(&mut hasher);
    hasher.finish()
}

fn same(known: &Known, device: &str, Problem { kernel, types, extents, .. }: Problem<'_>) -> bool {
    (&*known.device, known.kernel, &*known.types, &*known.extents) == (device, kernel, types, extents)
}

/// Returns the records of the repository.
fn records() -> &'static [Records] {
    static RECORDS: OnceLock<Vec<Records>> = OnceLock::new();
    RECORDS.get_or_init(|| {
        let files =
            [("h100.tune", include_str!("../records/h100.tune")), ("h200.tune", include_str!("../records/h200.tune"))];
        files.into_iter().filter_map(|(file, text)| Records::parse(file, text).ok()).collect()
    })
}

/// Returns the configuration that a record names: a record of this device, or else of another one
/// of its target. Driver, version and hash of the kernel may differ.
fn recorded<C: Debug>(all: &[Records], device: &str, target: Target, name: &str, space: &[C]) -> Option<usize> {
    let target = target.to_string();
    let named = |device: Option<&str>| {
        let of_name = all.iter().flat_map(Records::all).filter(move |record| record.key.name == name);
        let mut winners = of_name
            .filter(|record| record.key.target == target && device.is_none_or(|device| record.key.device == device))
            .map(|record| &record.winner);
        winners.find_map(|winner| space.iter().position(|configuration| format!("{configuration:?}") == *winner))
    };
    named(Some(device)).or_else(|| named(None))
}

/// Returns the configuration with the least time of the cost model.
fn estimated<C>(target: Target, space: &[C], launch: &mut dyn FnMut(&C) -> ct::Result<()>) -> Option<usize> {
    let times = space.iter().enumerate().filter_map(|(at, configuration)| {
        let kernels = inspect(target, Subject::Plan, || launch(configuration)).ok()?;
        Some((kernels.iter().map(|kernel| kernel.model).sum::<f64>(), at))
    });
    times.filter(|(time, _)| *time > 0.0).min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, at)| at)
}

/// Returns the configuration of a problem. `space` has the candidates, the first of them is the
/// default. `launch` launches a candidate by [`crate::launch::Run::run`]; it is called by the cost
/// model and by searches.
///
/// # Errors
/// [`ct::Error::Argument`] for an empty space; those of searches.
#[track_caller]
pub(crate) fn choose<C: Clone + Debug + Send + 'static>(
    stream: &Stream,
    problem: Problem<'_>,
    explicit: Option<C>,
    space: impl FnOnce() -> Vec<C>,
    mut launch: impl FnMut(&C) -> ct::Result<()>,
) -> ct::Result<C> {
    if let Some(configuration) = explicit {
        return Ok(configuration);
    }
    let device = stream.device();
    let search = SEARCH.with_borrow(Clone::clone).filter(|_| !is_inspected());
    let inspected = is_inspected().then(|| target(stream)).flatten().map(|target| format!("inspection {target}"));
    let key = inspected.as_deref().unwrap_or(device.name());
    if search.is_none()
        && let Some(configuration) = remembered(key, problem)
    {
        return Ok(configuration);
    }
    let mut space = space();
    require(!space.is_empty(), || format!("`{}` has no configuration", problem.name()))?;
    let at = match (search, target(stream)) {
        (Some(search), _) => {
            let best = measured(&search, stream, &problem.name(), space, launch)?;
            remember(key, problem, best.clone());
            return Ok(best);
        }
        (None, None) => 0,
        (None, Some(_)) if space.len() == 1 => 0,
        (None, Some(target)) => {
            let name = problem.name();
            recorded(records(), key, target, &name, &space)
                .or_else(|| if is_inspected() { None } else { cached(stream, &name, &space) })
                .or_else(|| problem.is_estimated.then(|| estimated(target, &space, &mut launch)).flatten())
                .unwrap_or(0)
        }
    };
    let configuration = space.swap_remove(at);
    remember(key, problem, configuration.clone());
    Ok(configuration)
}

/// Returns the configuration of the user's cache.
fn cached<C: Debug>(stream: &Stream, name: &str, space: &[C]) -> Option<usize> {
    let texts = space.iter().map(|configuration| Text(format!("{configuration:?}")));
    let chosen = Tuner::new().cache_as(name).choose(stream.device(), &mut (), texts, None).ok()?;
    let of_cache = chosen.origin == Origin::Cache;
    space.iter().position(|one| of_cache && format!("{one:?}") == chosen.configuration.0)
}

/// The text of a configuration in place of the configuration.
struct Text(String);

impl Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Measures all configurations, and returns the fastest one.
#[track_caller]
fn measured<C: Clone + Debug>(
    search: &Search,
    stream: &Stream,
    name: &str,
    space: Vec<C>,
    mut launch: impl FnMut(&C) -> ct::Result<()>,
) -> ct::Result<C> {
    let bench = search.runs.map_or(Bench::new(), |runs| Bench::new().runs(runs));
    let mut tuner = Tuner::new().cache_as(name).ignore_cache().bench(bench);
    if let Some(limit) = search.limit {
        tuner = tuner.limit(limit);
    }
    if let Some(record) = &search.record {
        tuner = tuner.record(record);
    }
    // A search within the launch would not end.
    let outer = SEARCH.replace(None);
    let tuned = tuner.run(stream.device(), &mut launch, space, |launch, configuration| launch(configuration));
    SEARCH.replace(outer);
    Ok(tuned?.best().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROBLEM: Problem<'static> =
        Problem { kernel: "test", types: &["f16"], extents: &[64, 128], is_estimated: true };

    fn stream() -> Stream {
        ct::Device::cpu().default_stream()
    }

    #[test]
    fn the_first_configuration_is_that_of_the_cpu_device() -> ct::Result<()> {
        let problem = Problem { kernel: "first", ..PROBLEM };
        assert_eq!(choose(&stream(), problem, None, || vec![7, 8], |_| Ok(()))?, 7);
        // The second launch does not ask for the space.
        assert_eq!(choose(&stream(), problem, None, Vec::<i32>::new, |_| Ok(()))?, 7);
        assert_eq!(choose(&stream(), problem, Some(9), || vec![7, 8], |_| Ok(()))?, 9);
        let empty = choose(&stream(), Problem { kernel: "none", ..PROBLEM }, None, Vec::<i32>::new, |_| Ok(()));
        assert!(empty.unwrap_err().to_string().contains("`none f16 64 128` has no configuration"));
        Ok(())
    }

    #[test]
    fn a_search_is_remembered() -> ct::Result<()> {
        let problem = Problem { kernel: "slow", ..PROBLEM };
        let mut launches = 0;
        let launch = |&micros: &u64| {
            launches += 1;
            std::thread::sleep(Duration::from_micros(micros));
            Ok(())
        };
        let found = searched(&Search::new().runs(3), || choose(&stream(), problem, None, || vec![9000, 10], launch))?;
        assert_eq!(found, 10);
        assert!(launches > 2);
        assert_eq!(choose(&stream(), problem, None, || vec![9000u64, 10], |_| Ok(()))?, 10);
        Ok(())
    }

    #[test]
    fn records_of_the_device_precede_those_of_its_target() -> ct::Result<()> {
        let record = |device: &str, winner: &str| {
            format!(
                "\n[record]\nname \"test f16 64 128\"\ndevice \"{device}\"\nbackend \"ptx\"\ntarget \"sm_90a\"\ndriver \"1\"\n\
                 version \"1\"\nkernel \"\"\nspace \"\"\nwinner \"{winner}\"\ntrial \"{winner}\" 10\n"
            )
        };
        let text = ["# tuning records of cutlet, format 1\n", &record("A", "8"), &record("B", "9"), &record("C", "no")];
        let all = [Records::parse("test.tune", &text.concat())?];
        let name = PROBLEM.name();
        let found = |device, target| recorded(&all, device, target, &name, &[7, 8, 9]);
        assert_eq!(found("A", Target::SM_90A), Some(1));
        assert_eq!(found("B", Target::SM_90A), Some(2));
        // The record of C has no known winner.
        assert_eq!(found("C", Target::SM_90A), Some(1));
        assert_eq!(found("D", Target::SM_90A), Some(1));
        assert_eq!(found("A", Target::SM_80), None);
        Ok(())
    }

    #[test]
    fn the_records_of_the_repository_are_read() {
        assert_eq!(records().len(), 2);
    }

    #[test]
    fn extents_are_rounded_up() {
        let rounded = [1, 8, 9, 16, 17, 100, 1000, 4096, 5000].map(bucket);
        assert_eq!(rounded, [1, 8, 10, 16, 20, 112, 1024, 4096, 5120]);
    }

    #[test]
    fn the_cost_model_ranks_configurations() -> ct::Result<()> {
        use crate::launch::Run;
        fn copy(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>, [tile, times]: [usize; 2]) {
            let x = x.load(ct::bid(0), [tile]);
            y.store(ct::bid(0), ct::fold(..times as i32, x, |x, _| x.sin()));
        }
        let device = ct::Device::cpu();
        let (x, mut y) = (device.zeros::<f32, 1>([4096])?, device.zeros::<f32, 1>([4096])?);
        let mut launch =
            |&times: &usize| ct::Launch::new(16).run(copy, (x.view(), y.view_mut(), ct::Constant([256, times])));
        let best = estimated(Target::SM_90A, &[1000, 1, 100], &mut launch);
        assert_eq!(best, Some(1));
        Ok(())
    }
}
