//! A family: one computation, written in several forms that a user may choose.

use anyhow::{Result, ensure};
use cutlet as ct;
use cutlet::kernel::{IntoKernelArg, Kernel};
use cutlet::{Backend, Bench, Device, Hints, Target};

/// Action of a call on its kernel.
enum Action {
    Launch,
    /// Plans for a target: microseconds by the cost model, and the schedule.
    Plan(Target, Option<(f64, String)>),
}

/// One use of a form.
pub struct Call {
    device: Device,
    action: Action,
}

impl Call {
    /// Launches or plans a kernel.
    pub fn run<K, A, P>(&mut self, grid: [usize; 3], kernel: K, args: A) -> ct::Result<()>
    where
        K: Kernel<P>,
        A: IntoKernelArg<P>,
    {
        let launch = ct::Launch::new(grid);
        match &mut self.action {
            Action::Launch => launch.backend(self.device.backend()).launch(kernel, args),
            Action::Plan(target, plan) => {
                let chosen = launch.hints(Hints::new()).plans(kernel, args, *target, false)?;
                *plan = chosen.into_iter().next().map(|plan| (plan.model, plan.schedule));
                Ok(())
            }
        }
    }

    /// Multiprocessors of the device, or of an H100.
    pub fn num_multiprocessors(&self) -> usize {
        match self.device.backend() {
            Backend::Cpu => 132,
            Backend::Ptx | Backend::TileIr => self.device.num_multiprocessors(),
        }
    }
}

/// A launch of a form.
type Way<'a, S> = &'a dyn Fn(&mut S) -> ct::Result<()>;

type Run<S> = Box<dyn Fn(&mut Call, &mut S) -> ct::Result<()>>;

/// A form of a family, with its arrays `S`.
pub struct Case<S> {
    name: &'static str,
    /// Forms of the same class have equal results, up to rounding.
    class: usize,
    run: Run<S>,
}

impl<S> Case<S> {
    /// A form whose result is that of the first form of its class.
    pub fn new(
        name: &'static str,
        class: usize,
        run: impl Fn(&mut Call, &mut S) -> ct::Result<()> + 'static,
    ) -> Case<S> {
        Case { name, class, run: Box::new(run) }
    }
}

/// The forms of one computation, with arrays `S`.
pub struct Family<S> {
    /// Name, with types and sizes.
    pub name: String,
    /// Operations of one launch.
    pub flops: f64,
    /// Bytes that one launch reads and writes at least.
    pub bytes: f64,
    /// Largest difference of two results.
    pub tolerance: f64,
    /// Makes the arrays.
    pub arrays: Box<dyn Fn(Device) -> ct::Result<S>>,
    /// A sample of the result.
    pub result: fn(&S) -> ct::Result<Vec<f64>>,
    pub cases: Vec<Case<S>>,
}

/// Options of the command line.
pub struct Wish {
    /// Parts of names of forms; none: all.
    pub patterns: Vec<String>,
    pub runs: usize,
    /// Prints the schedule of each form.
    pub schedules: bool,
}

/// A family with arrays of any type.
pub trait AnyFamily {
    /// The name of the family.
    fn name(&self) -> &str;

    /// Verifies the forms beside each other on a GPU, and prints their times.
    fn measure(&self, device: Device, wish: &Wish) -> Result<()>;

    /// Prints the times of the cost model for a target.
    fn plan(&self, target: Target, wish: &Wish) -> Result<()>;
}

impl<S> Family<S> {
    fn chosen<'a>(&'a self, wish: &'a Wish) -> impl Iterator<Item = &'a Case<S>> {
        let takes = |name: &str| wish.patterns.is_empty() || wish.patterns.iter().any(|part| name.contains(&**part));
        self.cases.iter().filter(move |case| takes(case.name))
    }

    /// Prints the forms, each with the ratio of its time and the smallest one.
    fn print(&self, times: &[(&str, f64)]) {
        let best = times.iter().map(|&(_, time)| time).fold(f64::INFINITY, f64::min);
        let worst = times.iter().map(|&(_, time)| time).fold(0.0, f64::max);
        println!("{}: {} forms, the slowest takes {:.2} times the fastest", self.name, times.len(), worst / best);
        for (name, time) in times {
            let rate = match self.flops > 0.0 {
                true => format!("{:6.0} TFLOP/s", self.flops / time * 1e-6),
                false => format!("{:6.0} GB/s", self.bytes / time * 1e-3),
            };
            println!("  {time:9.1} us {rate} {:6.3}  {name}", best / time);
        }
    }
}

impl<S> AnyFamily for Family<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn measure(&self, device: Device, wish: &Wish) -> Result<()> {
        let mut state = (self.arrays)(device)?;
        let cases: Vec<&Case<S>> = self.chosen(wish).collect();
        let mut results: Vec<(usize, Vec<f64>)> = Vec::new();
        for case in &cases {
            (case.run)(&mut Call { device, action: Action::Launch }, &mut state)?;
            let result = (self.result)(&state)?;
            let Some((_, first)) = results.iter().find(|(class, _)| *class == case.class) else {
                ensure!(result.iter().all(|x| x.is_finite()), "{}: a result is not finite", case.name);
                results.push((case.class, result));
                continue;
            };
            let error = first.iter().zip(&result).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            // A NaN is an error, too.
            ensure!(error <= self.tolerance, "{}, {}: differs by {error}", self.name, case.name);
        }
        let ways: Vec<_> = cases
            .iter()
            .map(|case| move |state: &mut S| (case.run)(&mut Call { device, action: Action::Launch }, state))
            .collect();
        let ways: Vec<Way<'_, S>> = ways.iter().map(|way| way as _).collect();
        let compared = Bench::new().runs(wish.runs).compare(&device.default_stream(), &mut state, &ways)?;
        let time = |times: &cutlet::bench::Times| times.median().as_secs_f64() * 1e6;
        let times = cases.iter().zip(compared.times()).map(|(case, times)| (case.name, time(times)));
        self.print(&times.collect::<Vec<_>>());
        Ok(())
    }

    fn plan(&self, target: Target, wish: &Wish) -> Result<()> {
        let device = Device::cpu();
        let mut state = (self.arrays)(device)?;
        let mut times = Vec::new();
        for case in self.chosen(wish) {
            let mut call = Call { device, action: Action::Plan(target, None) };
            (case.run)(&mut call, &mut state)?;
            let Action::Plan(_, Some((time, schedule))) = call.action else { continue };
            times.push((case.name, time));
            if wish.schedules {
                println!("## {}, {}\n{schedule}", self.name, case.name);
            }
        }
        self.print(&times);
        Ok(())
    }
}
