//! A row's arrays and configurations, and the actions on one of them.
//!
//! Relies on the launch interface and the tuner of the crate. Which kernels there are is not known
//! here.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cutlet as ct;
use cutlet::aot::{ExportedKernel, Format};
use cutlet::backend::PlanOverride;
use cutlet::kernel::{Kernel, KernelArgs};
use cutlet::{Backend, Device, Hints, Target};

use super::fill::Fill;
use super::tuning::{Choice, Tune, Tuning};

/// Action on a configuration.
pub enum Step<'a> {
    /// Queue it once.
    Launch,
    /// Queue it this many times.
    Launches(usize),
    /// Only compile, and report on each kernel.
    Compile(&'a mut Vec<String>),
    /// Only name the kernels, to be compiled before the launches.
    CompileSummary(&'a mut Option<ct::aot::Kernels>),
    /// Only return the plans, and their costs by the model of a target's GPU.
    Plans {
        /// The target.
        target: Target,
        /// Not only the plan that is taken, but all that hints leave open.
        all: bool,
        /// A list for each kernel.
        out: &'a mut Vec<Vec<PlanOfKernel>>,
    },
    /// Only generate PTX, as a launch on a GPU of a target does.
    Ptx {
        /// Target of the code.
        target: Target,
        /// A text for each kernel.
        out: &'a mut Vec<String>,
    },
    /// Only generate code.
    Export {
        /// Target of the code.
        target: Target,
        /// Form of the code.
        format: Format,
        /// One file a kernel.
        out: &'a mut Vec<ExportedKernel>,
    },
}

/// A plan of a kernel by the cost model.
pub struct PlanOfKernel {
    /// Difference from the default plan.
    pub what: String,
    /// Hints that select the plan.
    pub hints: Hints,
    /// Microseconds by the cost model.
    pub model: f64,
    /// The plan is the selected one.
    pub chosen: bool,
    /// Schedule as text.
    pub schedule: String,
}

/// One use of a configuration, handed to its kernels.
pub struct Call<'a> {
    backend: Backend,
    hints: Hints,
    step: Step<'a>,
}

impl<'a> Call<'a> {
    /// A use with a back end and hints.
    pub fn new(backend: Backend, hints: Hints, step: Step<'a>) -> Call<'a> {
        Call { backend, hints, step }
    }

    /// Executes the action of the call on a kernel.
    pub fn run<K, A, P>(&mut self, grid: impl Into<ct::Grid>, kernel: K, args: A) -> ct::Result<()>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        let launch = ct::Launch::new(grid).hints(self.hints);
        match &mut self.step {
            Step::Launch | Step::Launches(_) => launch.backend(self.backend).launch(kernel, args),
            Step::Compile(reports) => {
                let compiled = launch.backend(self.backend).compile(kernel, args)?;
                let (registers, local) = (compiled.num_registers()?, compiled.local_bytes()?);
                let mut report = format!("{registers} registers, {local} B local");
                compiled.remarks().notes().iter().for_each(|remark| report += &format!(", {remark}"));
                reports.push(report);
                Ok(())
            }
            Step::CompileSummary(kernels) => {
                let launch = launch.backend(self.backend);
                **kernels = kernels.take().map(|kernels| kernels.add_with(&launch, kernel, args));
                Ok(())
            }
            Step::Plans { target, all, out } => {
                let plans = launch.plans(kernel, args, *target, *all)?.into_iter();
                let plans = plans.map(|plan| PlanOfKernel {
                    what: plan.what,
                    hints: plan.hints,
                    model: plan.model,
                    chosen: plan.chosen,
                    schedule: plan.schedule,
                });
                out.push(plans.collect());
                Ok(())
            }
            Step::Ptx { target, out } => {
                out.push(ct::inspect(kernel, args).target(*target).hints(self.hints).ptx()?);
                Ok(())
            }
            Step::Export { target, format, out } => {
                out.push(launch.export(kernel, args, *target, *format)?);
                Ok(())
            }
        }
    }
}

/// Hints that leave all choices to the compiler.
pub const NO_HINTS: Hints = Hints::new();

/// Choices of warps for kernels whose tile is given by the problem: a row a block.
pub fn warps() -> impl Iterator<Item = (String, Hints)> {
    let chosen = |n| (format!("{n} warps"), NO_HINTS.num_warps(n));
    [("no hints".to_string(), NO_HINTS)].into_iter().chain([4, 8, 16].map(chosen))
}

/// Choices of the tileir back end for such kernels: warps, tile blocks of a multiprocessor, TMA.
pub fn tileir_rows() -> impl Iterator<Item = (String, Hints)> {
    let no_tma = NO_HINTS.plan(PlanOverride { disable_tma_loads: true, ..NO_HINTS.plan });
    [4, 8].into_iter().flat_map(move |n| {
        [
            (format!("{n} warps occupancy 4"), NO_HINTS.num_warps(n).occupancy(4)),
            (format!("no TMA {n} warps"), no_tma.num_warps(n)),
            (format!("no TMA {n} warps occupancy 4"), no_tma.num_warps(n).occupancy(4)),
        ]
    })
}

/// Device of a row's arrays, and the number of their sets.
#[derive(Clone, Copy)]
pub struct Place {
    /// A GPU, or the cpu device for exporting.
    pub device: Device,
    /// Sets that launches use in rotation.
    pub sets: usize,
}

impl Place {
    /// Multiprocessors of the device; of an H200, where nothing runs on a GPU.
    pub fn num_multiprocessors(&self) -> usize {
        match self.device.backend() {
            Backend::Cpu => 132,
            Backend::Ptx | Backend::TileIr => self.device.num_multiprocessors(),
        }
    }
}

/// A kernel at one size, of any arrays.
pub trait Row: Tune + Send + Sync {
    /// Names of the configurations.
    fn labels(&self) -> Vec<String>;
    /// Returns true if a configuration is measured with a back end.
    fn serves(&self, configuration: usize, backend: Backend) -> bool;
    /// The hints of a configuration.
    fn hints(&self, configuration: usize) -> Hints;
    /// Addresses of the arrays of a set, in the order of the arguments.
    fn addresses(&self, set: usize) -> Vec<u64>;
    /// Takes a step with a configuration and a set of arrays.
    fn call(&self, configuration: usize, set: usize, backend: Backend, step: Step<'_>) -> ct::Result<()>;
    /// The same with other hints.
    fn call_with(&self, place: [usize; 2], backend: Backend, hints: Hints, step: Step<'_>) -> ct::Result<()>;
    /// Fills the arrays of a set.
    fn fill(&self, set: usize) -> ct::Result<()>;
}

type Body<S> = Box<dyn Fn(&mut S, &mut Call) -> ct::Result<()> + Send + Sync>;

/// The usual row: sets of arrays `S`.
pub struct Configurations<S> {
    sets: Vec<Mutex<S>>,
    addresses: fn(&S) -> Vec<u64>,
    list: Vec<(String, Hints, Body<S>)>,
    /// The configurations of one back end only.
    only: HashMap<usize, Backend>,
}

impl<S: Send> Configurations<S> {
    /// A row without configurations yet.
    pub fn new(
        place: Place,
        addresses: fn(&S) -> Vec<u64>,
        make: impl Fn(Device) -> ct::Result<S>,
    ) -> ct::Result<Configurations<S>> {
        let sets = (0..place.sets).map(|_| Ok(Mutex::new(make(place.device)?))).collect::<ct::Result<_>>()?;
        Ok(Configurations { sets, addresses, list: Vec::new(), only: HashMap::new() })
    }

    /// With one more configuration.
    pub fn with(
        mut self,
        label: impl Into<String>,
        hints: Hints,
        body: impl Fn(&mut S, &mut Call) -> ct::Result<()> + Send + Sync + 'static,
    ) -> Configurations<S> {
        self.list.push((label.into(), hints, Box::new(body)));
        self
    }

    /// With one more configuration, of the tileir back end only.
    pub fn with_tileir(
        mut self,
        label: impl Into<String>,
        hints: Hints,
        body: impl Fn(&mut S, &mut Call) -> ct::Result<()> + Send + Sync + 'static,
    ) -> Configurations<S> {
        self.only.insert(self.list.len(), Backend::TileIr);
        self.with(label, hints, body)
    }
}

impl<S: Send + Fill + ct::tune::Scratch + 'static> Row for Configurations<S> {
    fn labels(&self) -> Vec<String> {
        self.list.iter().map(|(label, ..)| label.clone()).collect()
    }

    fn serves(&self, configuration: usize, backend: Backend) -> bool {
        match self.only.get(&configuration) {
            Some(&only) => only == backend,
            // Tile IR has no stages, and 4 or 8 warps: others are the default once more.
            None => {
                let hints = self.list[configuration].1;
                backend != Backend::TileIr
                    || hints.num_stages.is_none() && hints.num_warps.is_none_or(|n| [4, 8].contains(&n))
            }
        }
    }

    fn hints(&self, configuration: usize) -> Hints {
        self.list[configuration].1
    }

    fn addresses(&self, set: usize) -> Vec<u64> {
        (self.addresses)(&self.sets[set].lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn call(&self, configuration: usize, set: usize, backend: Backend, step: Step<'_>) -> ct::Result<()> {
        self.call_with([configuration, set], backend, self.list[configuration].1, step)
    }

    fn fill(&self, set: usize) -> ct::Result<()> {
        self.sets[set].lock().unwrap_or_else(PoisonError::into_inner).fill(&mut 0)
    }

    fn call_with(
        &self,
        [configuration, set]: [usize; 2],
        backend: Backend,
        hints: Hints,
        step: Step<'_>,
    ) -> ct::Result<()> {
        let (.., body) = &self.list[configuration];
        let mut arrays = self.sets[set].lock().unwrap_or_else(PoisonError::into_inner);
        let count = if let Step::Launches(count) = step { count } else { 1 };
        let mut call = Call::new(backend, hints, step);
        (0..count).try_for_each(|_| body(&mut arrays, &mut call))
    }
}

impl<S: Send + Fill + ct::tune::Scratch + 'static> Tune for Configurations<S> {
    fn tune(
        self: Box<Self>,
        name: &str,
        plain: &str,
        how: &Tuning,
    ) -> ct::Result<(Choice, ct::tune::TuningResult<Choice>)> {
        let served: Vec<bool> = (0..self.list.len()).map(|index| self.serves(index, how.backend)).collect();
        let Configurations { sets, list, .. } = *self;
        let set = sets.into_iter().next().expect("a row has a set of arrays");
        let mut arrays = set.into_inner().unwrap_or_else(PoisonError::into_inner);
        arrays.fill(&mut 0)?;
        let list = Arc::new(list);
        let mut all: Vec<Choice> =
            list.iter().enumerate().map(|(index, (label, ..))| Choice { index, label: label.clone() }).collect();
        all.retain(|choice| served[choice.index]);
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
                // A failure here is repeated by the launch.
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
