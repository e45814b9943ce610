//! Harness of the suite: a test is written once and run in several modes: on the cpu back end, on a
//! GPU, and as PTX through the assembler. A test makes arrays, launches, and states its
//! expectations. [`Session`] is the mode.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail, ensure};
use cutlet as ct;
use cutlet::backend::PlanOverride;
use cutlet::backend::cpu::{Memory, Program, RunOptions};
use cutlet::backend::ptx::{rewritten, rewritten_persistent};
use cutlet::backend::tileir::read;
use cutlet::dtype::DType;
use cutlet::element::Element;
use cutlet::ir::{Module, verify};
use cutlet::kernel::{AnyArgs, Arguments, Bound, Call, Kernel, KernelArgs};
use cutlet::pass::{Fault, optimize};
use cutlet::{Device, DeviceArray, Target};

use crate::exact;
use crate::passes::{self, Launched};
use crate::planted;
use crate::ptxas::{self, Demand, is_too_small};
use crate::runner::{Completion, Trial};
use crate::schedules;
use crate::sums;
use crate::test_sample::one_in;
use crate::tileiras;
pub use crate::want::Want;

/// One way to run a test.
#[derive(Clone, Copy, Debug)]
pub enum Session {
    /// Launches run on this device.
    Run(Device),
    /// Launches run on this GPU, through Tile IR.
    RunTileIr(Device),
    /// Launches write bytecode for this target, read it, and execute it on the cpu back end.
    InterpretTileIr(Target),
    /// Launches run their trace on the cpu back end, without rewrites, as the ptx back end rewrites
    /// it, or as it schedules it.
    Interpret(Stage),
    /// Launches only compile for this target, and the assembler judges the code.
    Assemble(Target, Demand),
    /// Launches only compile to Tile IR for this target, and NVIDIA's tools judge the bytecode.
    AssembleTileIr(Target),
}

/// Stage of a kernel whose module is interpreted.
#[derive(Clone, Copy, Debug)]
pub enum Stage {
    /// The trace, before any pass.
    Traced,
    /// The module after the rewrites of the ptx back end, before instruction selection.
    Rewritten,
    /// The schedules for old and new GPUs, step by step, in several orders. Their memory must equal
    /// that of the interpreter.
    Scheduled,
    /// Before and after each pass, with equal memory; a planted fault changes the result of a pass.
    Passes(Option<Fault>),
}

impl Session {
    /// Returns the device of the arrays of this test.
    pub fn device(self) -> Device {
        match self {
            Session::Run(device) | Session::RunTileIr(device) => device,
            Session::InterpretTileIr(_)
            | Session::Interpret(_)
            | Session::Assemble(..)
            | Session::AssembleTileIr(_) => Device::cpu(),
        }
    }

    /// Returns true if the code is Tile IR.
    pub fn through_tile_ir(self) -> bool {
        matches!(self, Session::RunTileIr(_) | Session::InterpretTileIr(_) | Session::AssembleTileIr(_))
    }

    /// Returns true if the code is only compiled.
    pub fn only_compiles(self) -> bool {
        matches!(self, Session::Assemble(..) | Session::AssembleTileIr(_))
    }

    /// Returns true if products of 8-bit floats are summed in about 14 bits. The tensor cores of
    /// Ada and Hopper do so. On Ada, the ptx back end multiplies f16 instead.
    pub fn keeps_few_bits(self) -> bool {
        let within = |device: Device, archs: std::ops::Range<u32>| {
            device.target().is_some_and(|target| archs.contains(&target.arch))
        };
        match self {
            Session::RunTileIr(device) => within(device, 89..100),
            Session::Run(device) => within(device, 90..91),
            Session::InterpretTileIr(_)
            | Session::Interpret(_)
            | Session::Assemble(..)
            | Session::AssembleTileIr(_) => false,
        }
    }

    /// Returns the reason of a test's failure if the target of Tile IR lacks an element type.
    fn lacks(self, error: &anyhow::Error) -> Option<String> {
        let through_tile_ir = self.through_tile_ir();
        let Some(cutlet::Error::Unsupported(problems)) = error.downcast_ref() else { return None };
        let missing =
            |p: &cutlet::Diagnostic| p.message.starts_with("element type") && p.message.contains("does not exist on");
        let all = through_tile_ir && problems.iter().all(missing);
        all.then(|| problems.iter().map(|p| p.message.as_str()).collect::<Vec<_>>().join("; "))
    }

    /// An array with this content, row-major.
    pub fn array<T: Element, const R: usize>(self, data: &[T], shape: [usize; R]) -> Result<DeviceArray<T, R>> {
        Ok(self.device().array(data, shape)?)
    }

    /// An array whose every element has all bits set in the low byte of a word, so that unwritten
    /// elements are found.
    pub fn unwritten<T: Element, const R: usize>(self, shape: [usize; R]) -> Result<DeviceArray<T, R>> {
        self.array(&vec![unwritten::<T>(); shape.iter().product()], shape)
    }

    /// Launches and waits; or compiles and assembles.
    #[track_caller]
    pub fn launch<K, A, P, const N: usize>(self, kernel: K, grid: [usize; N], args: A) -> Result<()>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
        [usize; N]: Into<ct::Grid>,
    {
        let args = Arguments::new(args);
        self.call(ct::Hints::default(), &grid, grid.into(), &Bound::new(&kernel, &args).call())
    }

    /// [`Session::launch`] with hints.
    #[track_caller]
    pub fn launch_with<K, A, P, const N: usize>(
        self,
        hints: ct::Hints,
        kernel: K,
        grid: [usize; N],
        args: A,
    ) -> Result<()>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
        [usize; N]: Into<ct::Grid>,
    {
        let args = Arguments::new(args);
        self.call(hints, &grid, grid.into(), &Bound::new(&kernel, &args).call())
    }

    /// Without the types of kernel and arguments, for the sake of the time that it takes to compile
    /// the suite.
    #[track_caller]
    fn call(self, hints: ct::Hints, grid: &[usize], blocks: ct::Grid, call: &Call<'_>) -> Result<()> {
        let launch = ct::Launch::new(blocks).hints(hints);
        match self {
            Session::Run(device) => {
                launch.hints(persistent(hints)).run_call(call)?;
                Ok(device.synchronize()?)
            }
            Session::RunTileIr(device) => {
                launch.backend(ct::Backend::TileIr).run_call(call)?;
                Ok(device.synchronize()?)
            }
            Session::InterpretTileIr(target) => {
                let (words, memory) = words_and_memory(call.args());
                interpret(&launch.exported_call(call, target, ct::aot::Format::TileIr(None))?, grid, &words, &memory)
            }
            Session::Interpret(stage) => {
                let (words, memory) = words_and_memory(call.args());
                let mut module = call.trace("kernel")?;
                planted::plant(&mut module, grid);
                exact::rewrite(&mut module)?;
                match stage {
                    Stage::Traced => interpret_module(&module, grid, &words, &memory),
                    Stage::Rewritten => {
                        optimize(&mut module);
                        let positive = passes::has_positive_params(&module, &words);
                        match rewritten_persistent(&module, positive) {
                            Some(persistent) => {
                                let extents = to_blocks(grid)?;
                                let words = [words, extents.map(u64::from).to_vec()].concat();
                                interpret_module(&persistent, &[PERSISTENT_CTAS], &words, &memory)
                            }
                            None => interpret_module(&rewritten(&module, positive), grid, &words, &memory),
                        }
                    }
                    Stage::Passes(fault) => {
                        let launched = Launched { grid: to_blocks(grid)?, words: &words, memory: &memory };
                        passes::check(&module, hints, &launched, fault)
                    }
                    Stage::Scheduled => {
                        optimize(&mut module);
                        schedules::simulate(&module, hints, to_blocks(grid)?, &words, &memory)
                    }
                }
            }
            Session::AssembleTileIr(target) => {
                let code = launch.exported_call(call, target, ct::aot::Format::TileIr(None))?;
                check_tile_ir(&code, target)?;
                match target.arch {
                    // The code for launches that break the kernel's promises; guards are equal for
                    // all targets.
                    90 => check_tile_ir(&code.guarded()?, target),
                    _ => Ok(()),
                }
            }
            Session::Assemble(target, demand) => {
                let ptx = match launch.ptx_of_call(call, target) {
                    Err(error) if is_too_small(target, &error) => return Ok(()),
                    ptx => ptx?,
                };
                ptxas::assemble(&ptx, &target.to_string(), demand)
            }
        }
    }

    /// Compares an array with a reference of each element.
    pub fn check<T: Element, const R: usize>(
        self,
        what: &str,
        array: &DeviceArray<T, R>,
        want: &dyn Fn([usize; R]) -> Want,
    ) -> Result<()> {
        self.check_results(what, array, want, &|_| String::new())
    }

    /// Compares an array with a reference of each element; `inputs` describes its operands.
    pub fn check_results<T: Element, const R: usize>(
        self,
        what: &str,
        array: &DeviceArray<T, R>,
        want: &dyn Fn([usize; R]) -> Want,
        inputs: &dyn Fn([usize; R]) -> String,
    ) -> Result<()> {
        if self.only_compiles() {
            return Ok(());
        }
        let shape = array.shape();
        let got = array.to_vec()?;
        if exact::is_active() {
            return exact::check(what, got.into_iter().map(T::to_bits).collect());
        }
        let mut wrong = 0;
        let mut report = String::new();
        for (position, &got) in got.iter().enumerate() {
            let index = unravel(position, shape);
            let want = want(index);
            if want.accepts(got) {
                continue;
            }
            wrong += 1;
            if wrong <= 4 {
                write!(report, "\n  at {index:?}: {} instead of {want} {}", show(got), inputs(index))?;
            }
        }
        if wrong > 0 {
            bail!("{what} ({} {shape:?}): {wrong} of {} elements are wrong{report}", T::NAME, got.len());
        }
        Ok(())
    }
}

/// The parameters of a launch, and the memory that they point to.
fn words_and_memory(given: &dyn AnyArgs) -> (Vec<u64>, Memory) {
    given.make(Some(Device::cpu())).expect("room for what the launch makes");
    let mut words = Vec::new();
    given.pack(&mut |word| words.push(word));
    let mut memory = Memory::new();
    given.memory(&mut |used| {
        let start = std::ptr::with_exposed_provenance_mut(used.memory().address() as usize);
        // Tile IR changes halves by whole words, of which every allocation has all.
        let bytes = used.memory().len().next_multiple_of(4);
        // SAFETY: the test owns the arrays, which outlive this launch, and runs no other work at
        // the same time.
        unsafe { memory.add(start, bytes, used.writes()) };
    });
    // SAFETY: kernels make addresses by unsafe functions alone, which ask for this.
    unsafe { memory.allow_any() };
    (words, memory)
}

/// Verifies a module and runs it on the cpu back end.
fn interpret_module(module: &Module, grid: &[usize], words: &[u64], memory: &Memory) -> Result<()> {
    verify(module).map_err(|problems| anyhow!("{}\n{module}", problems[0]))?;
    let mut options = RunOptions::default();
    options.until = exact::time_limit();
    Ok(Program::compile(module)?.run(to_blocks(grid)?, words, memory, &options)?)
}

/// Adds the hint for persistent forms with few CTAs, if `CUTLET_SUITE_PERSISTENT` is set.
fn persistent(hints: ct::Hints) -> ct::Hints {
    match std::env::var_os("CUTLET_SUITE_PERSISTENT") {
        Some(_) => hints.persistent(true).plan(PlanOverride { max_ctas: PERSISTENT_CTAS as u32, ..hints.plan }),
        None => hints,
    }
}

/// CTAs that compute the tile blocks of a persistent form.
pub const PERSISTENT_CTAS: usize = 3;

fn to_blocks(grid: &[usize]) -> Result<[u32; 3]> {
    let mut blocks = [1; 3];
    for (to, &n) in blocks.iter_mut().zip(grid) {
        *to = u32::try_from(n)?;
    }
    Ok(blocks)
}

/// Runs exported bytecode on the cpu back end: the kernel that relies on the launch if it may, and
/// the guarded one if not.
fn interpret(code: &ct::aot::ExportedKernel, grid: &[usize], words: &[u64], memory: &Memory) -> Result<()> {
    let extents = to_blocks(grid)?;
    let guarded;
    let code = match code.fits(extents, words) {
        true => code,
        false => {
            guarded = code.guarded()?;
            ensure!(guarded.fits(extents, words), "grid {extents:?} is beyond the limits");
            &guarded
        }
    };
    interpret_module(&read(&code.bytes)?, grid, words, memory)
}

fn check_tile_ir(code: &ct::aot::ExportedKernel, target: Target) -> Result<()> {
    tileiras::check(&code.bytes, target, &|assembler| match tileiras::keeps_cubins() {
        true => Ok(code.assemble(target)?),
        false => Ok(assembler.assemble(&code.entry, &code.bytes, target)?),
    })
}

/// Returns the content of unwritten elements.
pub fn unwritten<T: Element>() -> T {
    T::from_bits(match T::DTYPE {
        DType::I1 => 1,
        // Its pattern is that of an f32 whose low bits are zero.
        DType::TF32 => 0x5b << 13,
        other => 0x5b & ((1 << other.bits().min(8)) - 1),
    })
}

fn show<T: Element>(value: T) -> String {
    format!("{value:?} (bits {:#x})", value.to_bits())
}

/// The index of an element from its row-major position.
pub fn unravel<const R: usize>(mut position: usize, shape: [usize; R]) -> [usize; R] {
    let mut index = [0; R];
    for axis in (0..R).rev() {
        index[axis] = position % shape[axis];
        position /= shape[axis];
    }
    index
}

/// The row-major position of an element.
pub fn ravel<const R: usize>(index: [usize; R], shape: [usize; R]) -> usize {
    index.iter().zip(shape).fold(0, |position, (&i, extent)| position * extent + i)
}

/// Targets of assembled code, and names of modes. The last two have instructions and shared memory
/// of their own, which products and examples use.
const ASSEMBLED: [&str; 4] = ["sm_80", "sm_90a", "sm_86", "sm_89"];

/// End of the name of a mode with 64-bit indices of all arrays.
const INDEX64: &str = "_index64";

type Body = dyn Fn(Session) -> Result<()> + Send + Sync;

/// The tests of this suite.
#[derive(Default)]
pub struct Suite {
    tests: Vec<Test>,
}

struct Test {
    name: String,
    demand: Demand,
    /// On a GPU in a process of its own: a failure there would be the error of another waiting
    /// test.
    alone: bool,
    body: std::sync::Arc<Body>,
}

/// Distance of the sampled tests: `CUTLET_SUITE_SAMPLE`, else 1 if a name selects tests, and 3 of
/// all tests if a sample is sufficient.
fn sample() -> usize {
    let selected = std::env::args().skip(1).any(|argument| !argument.starts_with('-'));
    let named = std::env::var("CUTLET_SUITE_SAMPLE").ok().and_then(|text| text.parse().ok());
    named.unwrap_or(if selected { 1 } else { one_in(3) })
}

impl Suite {
    /// Adds a test; the assembler may spill (rarely used ops on large tiles are allowed to).
    pub fn test(&mut self, name: impl Into<String>, body: impl Fn(Session) -> Result<()> + Send + Sync + 'static) {
        self.tests.push(Test {
            name: name.into(),
            demand: Demand::Accepted,
            alone: false,
            body: std::sync::Arc::new(body),
        });
    }

    /// Adds a test of a kernel whose hints may be unwise.
    pub fn hinted(&mut self, name: impl Into<String>, body: impl Fn(Session) -> Result<()> + Send + Sync + 'static) {
        self.tests.push(Test {
            name: name.into(),
            demand: Demand::Assembled,
            alone: false,
            body: std::sync::Arc::new(body),
        });
    }

    /// Adds a test that runs on a GPU in a process of its own.
    pub fn alone(&mut self, name: impl Into<String>, body: impl Fn(Session) -> Result<()> + Send + Sync + 'static) {
        self.test(name, body);
        self.tests.last_mut().expect("just added").alone = true;
    }

    /// Adds a test whose code must not spill.
    pub fn lean(&mut self, name: impl Into<String>, body: impl Fn(Session) -> Result<()> + Send + Sync + 'static) {
        self.tests.push(Test {
            name: name.into(),
            demand: Demand::NoSpills,
            alone: false,
            body: std::sync::Arc::new(body),
        });
    }

    /// Every test in each of its modes. Tests that this machine cannot run are marked as skipped.
    pub fn trials(self) -> Vec<Trial> {
        let gpu = Device::gpu(0);
        let required = std::env::var_os("CUTLET_REQUIRE_GPU").is_some_and(|value| value != "0");
        let mut trials: Vec<Trial> = planted::trials();
        let tests: Vec<Test> = self.tests.into_iter().step_by(sample().max(1)).collect();
        if sums::wanted() {
            return tests.into_iter().flat_map(sum_trials).collect();
        }
        for (index, Test { name, demand, alone, body }) in tests.into_iter().enumerate() {
            let trial = |way: &str, session: Option<Session>| {
                let index64 = way.ends_with(INDEX64);
                let (body, name) = (body.clone(), format!("{way}::{name}"));
                let (running, running_name) = (name.clone(), name.clone());
                let runner = move || {
                    let session = session.ok_or_else(|| anyhow!("this machine lacks what the test needs"))?;
                    let _running = Running::start(running);
                    tileiras::begin_test();
                    if alone && matches!(session, Session::Run(device) if device.target().is_some()) && !is_alone() {
                        return in_a_process(&running_name);
                    }
                    match index64 {
                        true => cutlet::with_index64(|| outcome(&*body, session)),
                        false => outcome(&*body, session),
                    }
                };
                Trial::new(name, runner)
            };
            trials.push(trial("cpu", Some(Session::Run(Device::cpu()))));
            // The target that has all types.
            let target = "sm_100".parse().expect("a target");
            trials.push(trial("cpu_tileir", Some(Session::InterpretTileIr(target))));
            if ["random", "extents/", "mma_loops/"].iter().any(|part| name.starts_with(part)) {
                // Random programs contain unforeseen combinations; and tiles are cut by one.
                trials.push(trial("cpu_traced", Some(Session::Interpret(Stage::Traced))));
                trials.push(trial("cpu_rewritten", Some(Session::Interpret(Stage::Rewritten))));
            }
            if passes::are_checked(&name) {
                trials.push(trial("cpu_passes", Some(Session::Interpret(Stage::Passes(None)))));
            }
            if schedules::are_simulated(&name) {
                trials.push(trial("cpu_schedule", Some(Session::Interpret(Stage::Scheduled))));
            }
            let on_gpu = gpu.as_ref().ok().map(|device| Session::Run(*device));
            trials.push(trial("gpu", on_gpu).ignored(on_gpu.is_none() && !required));
            trials.push(trial(&format!("gpu{INDEX64}"), on_gpu).ignored(on_gpu.is_none() && !required));
            let through_tile_ir = std::env::var_os("CUTLET_SUITE_TILEIR").is_some();
            let on_gpu = gpu.as_ref().ok().filter(|_| through_tile_ir).map(|device| Session::RunTileIr(*device));
            trials.push(trial("gpu_tileir", on_gpu).ignored(on_gpu.is_none()));
            let exact_gpu = gpu.as_ref().ok().copied().filter(|_| !alone);
            for (way, session) in exact::ways(&name, exact_gpu) {
                trials.push(exact_trial(way, &name, session, body.clone()));
            }
            for target in tileiras::targets_of(&name) {
                let session = tileiras::found().then(|| Session::AssembleTileIr(target.parse().expect("a target")));
                trials.push(trial(&format!("tile_{target}"), session).ignored(session.is_none()));
            }
            if index.is_multiple_of(10) {
                if index.is_multiple_of(40) {
                    trials.push(trial(&format!("cpu{INDEX64}"), Some(Session::Run(Device::cpu()))));
                }
                let session = ptxas::find().map(|_| Session::Assemble(Target::SM_90A, Demand::Accepted));
                trials.push(trial(&format!("sm_90a{INDEX64}"), session).ignored(session.is_none()));
            }
            for target in ASSEMBLED {
                if matches!(target, "sm_86" | "sm_89")
                    && !["product/", "example/"].iter().any(|part| name.starts_with(part))
                {
                    continue;
                }
                let session = ptxas::find().map(|_| Session::Assemble(target.parse().expect("a target"), demand));
                trials.push(trial(target, session).ignored(session.is_none()));
            }
        }
        if let Err(error) = &gpu {
            let skipped = trials.iter().filter(|trial| trial.name().starts_with("gpu::")).count();
            eprintln!("skipped: no GPU ({error}): {skipped} tests");
        }
        if ptxas::find().is_none() {
            let skipped = trials.iter().filter(|trial| trial.name().starts_with("sm_")).count();
            eprintln!("skipped: no ptxas (scripts/tools installs it): {skipped} tests");
        }
        if !tileiras::found() {
            let skipped = trials.iter().filter(|trial| trial.name().starts_with("tile_")).count();
            eprintln!("skipped: no tileiras (scripts/tools installs it): {skipped} tests");
        }
        trials
    }
}

/// A test in exact mode.
fn exact_trial(way: &str, name: &str, session: Session, body: std::sync::Arc<Body>) -> Trial {
    let (whole, name) = (format!("{way}::{name}"), name.to_owned());
    Trial::new(whole.clone(), move || {
        let _running = Running::start(whole);
        tileiras::begin_test();
        let completion = Cell::new(None);
        let run = |session| exact::run(&name, session, &*body).map(|done| completion.set(Some(done)));
        match outcome(&run, session)? {
            Completion::Completed => Ok(counted(completion.take().unwrap_or(Completion::Completed))),
            skipped => Ok(skipped),
        }
    })
}

/// A test for every target, which only compiles, and compares the sums of the compiled code.
fn sum_trials(test: Test) -> impl Iterator<Item = Trial> {
    ASSEMBLED.into_iter().map(move |target| {
        let (body, name) = (test.body.clone(), format!("sums_{target}::{}", test.name));
        let session = Session::Assemble(target.parse().expect("a target"), Demand::Noted);
        Trial::new(name.clone(), move || sums::checked(&name, || body(session)).map(|()| Completion::Completed))
    })
}

/// Set in a process that runs one test alone.
const ALONE: &str = "CUTLET_SUITE_ALONE";

fn is_alone() -> bool {
    std::env::var_os(ALONE).is_some()
}

/// Runs one test in a process of its own.
fn in_a_process(name: &str) -> Result<Completion> {
    let mut program = std::process::Command::new(std::env::current_exe()?);
    let output = program.args(["--exact", name]).env(ALONE, "1").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && text.contains("1 passed"), "{text}");
    Ok(Completion::Completed)
}

fn outcome(body: &dyn Fn(Session) -> Result<()>, session: Session) -> Result<Completion> {
    match body(session) {
        Ok(()) => Ok(Completion::Completed),
        Err(error) => match session.lacks(&error) {
            Some(reason) => Ok(counted(Completion::Skipped(reason))),
            None => Err(error.context(format!("{session:?}"))),
        },
    }
}

/// Counts the reason of a skipped test.
fn counted(completion: Completion) -> Completion {
    if let Completion::Skipped(reason) = &completion {
        *SKIPPED.lock().unwrap().entry(reason.clone()).or_default() += 1;
    }
    completion
}

/// Tests that run now, with the time of their start.
static RUNNING: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());

/// A test is listed as running while this lives.
struct Running(String);

impl Running {
    fn start(name: String) -> Running {
        RUNNING.lock().unwrap().insert(name.clone(), Instant::now());
        Running(name)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let start = RUNNING.lock().unwrap().remove(&self.0);
        if let (Some(start), Some(path)) = (start, std::env::var_os("CUTLET_SUITE_TIMES")) {
            // Nothing depends on the list, so an error of the file is ignored.
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            let line = format!("{:.2} {}\n", start.elapsed().as_secs_f64(), self.0);
            let _ = file.and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes()));
        }
    }
}

/// Ends the process, with the names of the running tests, if a test needs more than the seconds of
/// `CUTLET_SUITE_TIMEOUT`: a kernel that never ends blocks all tests on its GPU. The names are in
/// the order of the starts.
pub fn watch() {
    let wish: Option<u64> = std::env::var("CUTLET_SUITE_TIMEOUT").ok().and_then(|text| text.parse().ok());
    let Some(seconds) = wish.filter(|&seconds| seconds > 0) else { return };
    let limit = Duration::from_secs(seconds);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let running = RUNNING.lock().unwrap();
            let mut ages: Vec<(Duration, &String)> =
                running.iter().map(|(name, start)| (start.elapsed(), name)).collect();
            ages.sort_by(|a, b| b.cmp(a));
            if ages.first().is_some_and(|(age, _)| *age >= limit) {
                eprintln!("\nnot done after {seconds} s (CUTLET_SUITE_TIMEOUT):");
                ages.iter().for_each(|(age, name)| eprintln!("    {name}: {:.1} s", age.as_secs_f64()));
                // Leaving in order would wait for the GPU.
                std::process::abort();
            }
        }
    });
}

/// Tests that found out on their way that the target lacks something, by reason.
static SKIPPED: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

/// Prints the number of skipped tests for each reason.
pub fn report_skipped() {
    for (reason, count) in &*SKIPPED.lock().unwrap() {
        println!("skipped: {reason}: {count} tests");
    }
}
