//! A family: one computation, written in several forms that a user may choose.

use anyhow::{Context, Result, ensure};
use cutlet as ct;
use cutlet::aot::Format;
use cutlet::kernel::{Kernel, KernelArgs};
use cutlet::prelude::Element;
use cutlet::{Backend, Bench, Device, DeviceArray, Hints, Target};

use super::assembled;

/// More than the tensor cores of an H100 or H200 compute (NVIDIA's data sheets: 989 TFLOP/s of
/// f16).
const FLOPS_PER_MICROSECOND: f64 = 1e9;
/// More than the memory of an H200 transfers (NVIDIA's data sheet: 4.8 TB/s), and than the error of
/// the cost model.
const BYTES_PER_MICROSECOND: f64 = 7e6;

/// Extents of the arrays and tiles of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Those of the figures.
    Full,
    /// Those that the interpreter computes in a moment.
    Small,
}

/// Maker of the arrays of a family.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub device: Device,
    /// Plans read no values, and their arrays are zeros.
    pub has_values: bool,
}

impl Source {
    /// Returns an array of zeros.
    pub fn zeros<T: Element, const R: usize>(self, shape: [usize; R]) -> ct::Result<DeviceArray<T, R>> {
        self.device.zeros(shape)
    }

    /// Returns an array of a function of the position in row-major order.
    pub fn numbers<T: Element, const R: usize>(
        self,
        shape: [usize; R],
        number: impl Fn(usize) -> f64,
    ) -> ct::Result<DeviceArray<T, R>> {
        if !self.has_values {
            return self.zeros(shape);
        }
        let numbers: Vec<T> = (0..shape.iter().product()).map(|at| T::from_f64(number(at))).collect();
        self.device.array(&numbers, shape)
    }

    /// Returns an array of pseudorandom numbers, almost normally distributed.
    pub fn normal<T: Element, const R: usize>(
        self,
        shape: [usize; R],
        seed: u64,
        deviation: f32,
    ) -> ct::Result<DeviceArray<T, R>> {
        if !self.has_values {
            return self.zeros(shape);
        }
        self.device.array(&normal(seed, shape.iter().product(), deviation), shape)
    }

    /// Returns a matrix of pseudorandom numbers, and its transpose.
    pub fn both<T: Element>(self, shape: [usize; 2], seed: u64, deviation: f32) -> ct::Result<[DeviceArray<T, 2>; 2]> {
        let [m, n] = shape;
        if !self.has_values {
            return Ok([self.zeros([m, n])?, self.zeros([n, m])?]);
        }
        let numbers: Vec<T> = normal(seed, m * n, deviation);
        let transposed: Vec<T> = (0..m * n).map(|at| numbers[at % m * n + at / m]).collect();
        Ok([self.device.array(&numbers, [m, n])?, self.device.array(&transposed, [n, m])?])
    }
}

/// Returns some elements of a result, at least 64.
pub fn some<T: Element, const R: usize>(array: &DeviceArray<T, R>) -> ct::Result<Vec<f64>> {
    let all = array.to_vec()?;
    let step = (all.len() / 64).clamp(1, 997);
    Ok(all.iter().step_by(step).map(|x| x.to_f64()).collect())
}

/// Returns pseudorandom numbers whose distribution is almost normal.
fn normal<T: Element>(seed: u64, n: usize, deviation: f32) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    let mut number = || ((0..4).map(|_| uniform()).sum::<f32>() * 1.7 - 3.4) * deviation;
    (0..n).map(|_| T::from_f64(number().into())).collect()
}

/// Action of a call on its kernel.
enum Action {
    Launch,
    /// Plans for a target: microseconds by the cost model, and the schedules.
    Plan(Target, Option<(f64, String)>),
    /// Assembles for a target: notes of ptxas on each kernel.
    Assemble(Target, Vec<String>),
}

/// One use of a form.
pub struct Call {
    device: Device,
    action: Action,
}

impl Call {
    /// Launches or plans a kernel. The times of the kernels of a call are added.
    pub fn run<K, A, P>(&mut self, grid: [usize; 3], kernel: K, args: A) -> ct::Result<()>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        self.run_with(Hints::new(), grid, kernel, args)
    }

    /// Launches or plans a kernel with hints.
    pub fn run_with<K, A, P>(&mut self, hints: Hints, grid: [usize; 3], kernel: K, args: A) -> ct::Result<()>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        let launch = ct::Launch::new(grid).hints(hints);
        match &mut self.action {
            Action::Launch => launch.backend(self.device.backend()).launch(kernel, args),
            Action::Plan(target, plan) => {
                let chosen = launch.plans(kernel, args, *target, false)?;
                for chosen in chosen.into_iter().take(1) {
                    let (time, schedule) = plan.get_or_insert_default();
                    *time += chosen.model;
                    *schedule += &chosen.schedule;
                }
                Ok(())
            }
            Action::Assemble(target, notes) => {
                let exported = launch.export(kernel, args, *target, Format::Ptx)?;
                // A fault of the assembler is a note, too.
                notes.push(assembled::notes(&exported.bytes, *target).unwrap_or_else(|fault| format!("{fault:#}")));
                Ok(())
            }
        }
    }

    /// Copies an array before a launch that adds to it.
    pub fn copy<T: Element, const R: usize>(
        &mut self,
        from: &DeviceArray<T, R>,
        to: &mut DeviceArray<T, R>,
    ) -> ct::Result<()> {
        match self.action {
            Action::Launch => to.copy_from_array(&from.view()),
            Action::Plan(..) | Action::Assemble(..) => Ok(()),
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

/// An estimate of a form by the cost model.
pub struct Estimate {
    pub form: &'static str,
    /// Microseconds; none where the cost model does not know the trip counts.
    pub time: Option<f64>,
    /// Warps, stages, MMAs in flight, order barriers and barriers.
    pub plan: String,
}

/// A launch of a form.
type FormLaunch<'a, S> = &'a dyn Fn(&mut S) -> ct::Result<()>;

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
    pub arrays: Box<dyn Fn(Source) -> ct::Result<S>>,
    /// A sample of the result.
    pub result: fn(&S) -> ct::Result<Vec<f64>>,
    pub cases: Vec<Case<S>>,
}

/// Options of the command line.
pub struct Selection {
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

    /// Verifies the forms on a GPU, and prints their times.
    fn measure(&self, device: Device, selection: &Selection) -> Result<()>;

    /// Verifies the forms on a device, without times.
    fn verify(&self, device: Device, selection: &Selection) -> Result<()>;

    /// Prints the times of the cost model for a target.
    fn plan(&self, target: Target, selection: &Selection) -> Result<()>;

    /// Prints the notes of ptxas on the forms for a target.
    fn assemble(&self, target: Target, selection: &Selection) -> Result<()>;

    /// Returns the estimates of the cost model for a target.
    fn estimates(&self, target: Target, selection: &Selection) -> Result<Vec<Estimate>>;
}

impl<S> Family<S> {
    fn chosen<'a>(&'a self, selection: &'a Selection) -> impl Iterator<Item = &'a Case<S>> {
        let takes =
            |name: &str| selection.patterns.is_empty() || selection.patterns.iter().any(|part| name.contains(&**part));
        self.cases.iter().filter(move |case| takes(case.name))
    }

    /// Returns the least time that any GPU of the cost model needs, in microseconds.
    fn least_time(&self) -> f64 {
        (self.flops / FLOPS_PER_MICROSECOND).max(self.bytes / BYTES_PER_MICROSECOND)
    }

    fn print_head(&self, times: impl Iterator<Item = f64> + Clone) {
        let count = times.clone().count();
        let ratio = times.clone().fold(0.0, f64::max) / best(times);
        println!("{}: {count} forms, the slowest takes {ratio:.2} times the fastest", self.name);
    }

    /// Returns a form as a line, with the ratio of the smallest time and its time.
    fn line(&self, name: &str, time: f64, best: f64) -> String {
        let rate = match self.flops > 0.0 {
            true => format!("{:6.0} TFLOP/s", self.flops / time * 1e-6),
            false => format!("{:6.0} GB/s", self.bytes / time * 1e-3),
        };
        format!("{time:9.1} us {rate} {:6.3}  {name}", best / time)
    }

    /// Launches each form once, compares the results within each class, and returns the forms
    /// without a fault. Faults are printed.
    fn compare<'a>(&self, device: Device, cases: &[&'a Case<S>], state: &mut S) -> Vec<&'a Case<S>> {
        let mut results: Vec<(usize, Vec<f64>)> = Vec::new();
        let mut is_right = |case: &Case<S>| -> Result<()> {
            (case.run)(&mut Call { device, action: Action::Launch }, state)?;
            let result = (self.result)(state)?;
            ensure!(result.iter().all(|x| x.is_finite()), "a result is not finite");
            let Some((_, first)) = results.iter().find(|(class, _)| *class == case.class) else {
                results.push((case.class, result));
                return Ok(());
            };
            let error = first.iter().zip(&result).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
            ensure!(error <= self.tolerance, "the result differs by {error}");
            Ok(())
        };
        let mut right = Vec::new();
        for &case in cases {
            match is_right(case) {
                Ok(()) => right.push(case),
                Err(fault) => println!("FAULT: {}, {}: {fault:#}", self.name, case.name),
            }
        }
        right
    }
}

/// Returns the smallest time.
fn best(times: impl Iterator<Item = f64>) -> f64 {
    times.fold(f64::INFINITY, f64::min)
}

/// Steps of a loop of a schedule, without those of inner loops.
#[derive(Default)]
struct Steps {
    /// MMA groups that stay in flight, for each wait.
    pending: Vec<String>,
    order_waits: usize,
    barriers: usize,
}

/// Returns a summary of a schedule: the stages of the pipelines, the warps of the roles, and of the
/// consumer's loops with MMAs (without one: of all loops) the MMA groups in flight after each wait,
/// the order barriers and the barriers.
fn summary(schedule: &str) -> String {
    let (mut pipelines, mut warps) = (Vec::new(), Vec::new());
    let mut loops: Vec<Steps> = Vec::new();
    // Indent and number of each loop around a line.
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut is_consumer = false;
    for line in schedule.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let indent = line.len() - line.trim_start().len();
        open.retain(|&(of_loop, _)| of_loop < indent);
        let inner = open.last().map(|&(_, number)| number);
        match *words {
            ["pipeline", _, stages, "stages", "of", bytes, ..] => pipelines.push(format!("{stages}x{bytes}")),
            ["partition", _, "warps", range, ..] => {
                let mut ends = range.trim_end_matches(',').split("..").filter_map(|end| end.parse::<usize>().ok());
                let [start, end] = [(); 2].map(|()| ends.next().unwrap_or(0));
                warps.push((end - start).to_string());
            }
            ["program", role, ..] => is_consumer = role != "producer",
            [_, ..] if !is_consumer => {}
            ["for" | "loop", ..] => {
                open.push((indent, loops.len()));
                loops.push(Steps::default());
            }
            ["mma_wait", _, "pending", count, ..] | ["mma_read_wait", "pending", count, ..] => {
                inner.inspect(|&at| loops[at].pending.push(count.trim_end_matches(',').to_owned()));
            }
            ["order_wait", ..] => {
                inner.inspect(|&at| loops[at].order_waits += 1);
            }
            ["barrier", ..] => {
                inner.inspect(|&at| loops[at].barriers += 1);
            }
            _ => {}
        }
    }
    if loops.iter().any(|steps| !steps.pending.is_empty()) {
        loops.retain(|steps| !steps.pending.is_empty());
    }
    let mut parts = vec![format!("warps {}", warps.join("+"))];
    if !pipelines.is_empty() {
        parts.push(format!("stages {}", pipelines.join(" ")));
    }
    for steps in loops {
        let mut part = format!("loop: barriers {}", steps.barriers);
        if !steps.pending.is_empty() {
            part += &format!(", in flight {}, ordered {}", steps.pending.join(" "), steps.order_waits);
        }
        parts.push(part);
    }
    parts.join("; ").replace(": ", " ")
}

impl<S> AnyFamily for Family<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn measure(&self, device: Device, selection: &Selection) -> Result<()> {
        let mut state = (self.arrays)(Source { device, has_values: true })?;
        let all: Vec<&Case<S>> = self.chosen(selection).collect();
        let cases = self.compare(device, &all, &mut state);
        let ways: Vec<_> = cases
            .iter()
            .map(|case| move |state: &mut S| (case.run)(&mut Call { device, action: Action::Launch }, state))
            .collect();
        let ways: Vec<FormLaunch<'_, S>> = ways.iter().map(|way| way as _).collect();
        let compared = Bench::new().runs(selection.runs).compare(&device.default_stream(), &mut state, &ways)?;
        let time = |times: &cutlet::bench::Times| times.median().as_secs_f64() * 1e6;
        let times: Vec<f64> = compared.times().iter().map(time).collect();
        self.print_head(times.iter().copied());
        for (case, &time) in cases.iter().zip(&times) {
            println!("  {}", self.line(case.name, time, best(times.iter().copied())));
        }
        ensure!(cases.len() == all.len(), "{}: {} forms have faults", self.name, all.len() - cases.len());
        Ok(())
    }

    fn verify(&self, device: Device, selection: &Selection) -> Result<()> {
        let cases: Vec<&Case<S>> = self.chosen(selection).collect();
        let right = self.compare(device, &cases, &mut (self.arrays)(Source { device, has_values: true })?);
        ensure!(right.len() == cases.len(), "{}: {} forms have faults", self.name, cases.len() - right.len());
        println!("{}: {} forms, equal results", self.name, cases.len());
        Ok(())
    }

    fn plan(&self, target: Target, selection: &Selection) -> Result<()> {
        let estimates = self.estimates(target, selection)?;
        let times = || estimates.iter().filter_map(|estimate| estimate.time);
        self.print_head(times());
        for Estimate { form, time, plan } in &estimates {
            match *time {
                Some(time) => println!("  {}; {plan}", self.line(form, time, best(times()))),
                None => println!("  no estimate {form}; {plan}"),
            }
        }
        Ok(())
    }

    fn assemble(&self, target: Target, selection: &Selection) -> Result<()> {
        let device = Device::cpu();
        let mut state = (self.arrays)(Source { device, has_values: false })?;
        println!("{}", self.name);
        for case in self.chosen(selection) {
            let mut call = Call { device, action: Action::Assemble(target, Vec::new()) };
            (case.run)(&mut call, &mut state).with_context(|| format!("{}, {}", self.name, case.name))?;
            let Action::Assemble(_, notes) = call.action else { continue };
            println!("  {}: {}", case.name, notes.join("; "));
        }
        Ok(())
    }

    fn estimates(&self, target: Target, selection: &Selection) -> Result<Vec<Estimate>> {
        let device = Device::cpu();
        let mut state = (self.arrays)(Source { device, has_values: false })?;
        let mut estimates = Vec::new();
        for case in self.chosen(selection) {
            let mut call = Call { device, action: Action::Plan(target, None) };
            (case.run)(&mut call, &mut state).with_context(|| format!("{}, {}", self.name, case.name))?;
            let Action::Plan(_, Some((time, schedule))) = call.action else { continue };
            let time = Some(time).filter(|&time| time >= self.least_time());
            estimates.push(Estimate { form: case.name, time, plan: summary(&schedule) });
            if selection.schedules {
                println!("## {}, {}\n{schedule}", self.name, case.name);
            }
        }
        Ok(estimates)
    }
}
