//! Times of the decoder on several devices and on one of them, by the clock of the host, and a
//! comparison of the logits.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cutlet::element::bf16;
use cutlet::{Device, Graph};
use cutlet_models::llama::parallel::{ParallelDecoding, ParallelGraph, ParallelPrompts};
use cutlet_models::llama::step::Choice;
use cutlet_models::llama::{Config, Decoding, Early, Kind, Llama, Method, Parallel, Part, Plan, Prompts};

use super::{Options, PARTS};

/// Steps of a measurement, and measurements of which the fastest one is printed.
const STEPS: usize = 32;
const REPEATS: usize = 4;
/// Tokens of prompts, which every vocabulary has.
const TOKENS: usize = 4001;
/// Passes of a comparison after the prefill, and the largest difference of logits, relative to the
/// root of their mean square.
const COMPARED: usize = 4;
const LIMIT: f64 = 0.05;

/// Logits of a prefill and of steps after it, and the chosen tokens.
type Passes = Vec<(Vec<bf16>, Vec<i32>)>;

/// Prints checks and times of the ranks.
pub fn run(options: &Options, mut config: Config, count: usize) -> Result<()> {
    let devices = match (&options.devices, Device::num_gpus()) {
        (Some(devices), _) => devices.iter().map(|&at| Device::gpu(at)).collect::<Result<Vec<_>, _>>()?,
        (None, 0) => vec![Device::cpu(); count],
        (None, gpus) => {
            ensure!(gpus >= count, "{count} ranks need as many GPUs, there are {gpus}: `--devices 0,0` shares one");
            (0..count).map(Device::gpu).collect::<Result<_, _>>()?
        }
    };
    ensure!(devices.len() == count, "{} devices for {count} ranks", devices.len());
    if devices.contains(&Device::cpu()) {
        config =
            Config { layers: 1, hidden: 128, heads: 8, key_heads: 4, dim: 16, inner: 256, vocabulary: 4096, ..config };
        println!("the cpu device interprets kernels: one layer of {} elements", config.hidden);
    }
    for (at, device) in devices.iter().enumerate() {
        let access: Vec<_> = devices.iter().map(|other| device.can_access(*other)).collect::<Result<_, _>>()?;
        println!("rank {at}: {device}, access to the memory of the ranks: {access:?}");
    }
    for &(kind, name) in &options.kinds {
        let of_one = One::measure(options, config, kind, name, devices[0]).context("one device")?;
        let streams = devices.iter().map(Device::stream).collect::<Result<Vec<_>, _>>()?;
        let capacity = options.prompt.max(options.context) + 256;
        let mut model = Parallel::<bf16>::on_streams(&streams, config, kind, capacity, 1, Method::Host)?;
        for sums in &options.sums {
            let method = match method(sums, &streams) {
                Ok(method) => method,
                Err(error) => {
                    println!("{name} {count} ranks by {sums}: not measured: {error}");
                    continue;
                }
            };
            model.set_method(method);
            let ranks = Ranks { model: &model, options, text: format!("{name} {count} ranks by {sums}"), one: &of_one };
            // Other ways are measured after an error.
            if let Err(error) = ranks.measure() {
                println!("{}: FAILED: {error:#}", ranks.text);
            }
        }
    }
    Ok(())
}

fn method(name: &str, streams: &[cutlet::Stream]) -> Result<Method> {
    match name {
        "peers" => Ok(Method::peers()),
        "words" => Ok(Method::Peers { rows: 128 }),
        "flags" => Ok(Method::Peers { rows: 0 }),
        "host" => Ok(Method::Host),
        #[cfg(feature = "nccl")]
        "nccl" => {
            let nccl = cutlet_models::llama::parallel::Nccl::new(streams)?;
            println!("NCCL {}", nccl.version()?);
            Ok(Method::Nccl(nccl))
        }
        #[cfg(not(feature = "nccl"))]
        "nccl" => bail!("{} streams by NCCL need the feature nccl", streams.len()),
        _ => bail!("there is no sum by {name}"),
    }
}

/// Sequences of a comparison.
fn prompts() -> Vec<Vec<i32>> {
    [37, 5].map(|count| (0..count).map(|at| (at * 37 + count) % TOKENS as i32).collect()).to_vec()
}

/// Inputs of a step of a comparison.
fn inputs(step: usize) -> Vec<i32> {
    vec![11 + step as i32, 3000 - step as i32]
}

fn first_tokens(batch: usize) -> Vec<i32> {
    (0..batch).map(|at| (at * 37 % 1000) as i32).collect()
}

fn long_prompt(count: usize) -> Vec<i32> {
    (0..count).map(|at| (at * 37 % TOKENS) as i32).collect()
}

/// Results and times of one device.
struct One {
    passes: Passes,
    /// Seconds of a prefill, and of a step for each number of sequences.
    prefill: Option<f64>,
    steps: Vec<f64>,
}

impl One {
    fn measure(options: &Options, config: Config, kind: Kind, name: &str, device: Device) -> Result<One> {
        let capacity = options.prompt.max(options.context) + 256;
        let model = Llama::<bf16>::random(device, config, kind, capacity, 1)?;
        let passes = compared(&model)?;
        let mut one = One { passes, prefill: None, steps: Vec::new() };
        if options.prompt > 0 {
            let stream = device.default_stream();
            let mut state = Decoding::new(&model, 1, options.prompt, Choice::Greedy)?;
            let mut prompts = Prompts::new(&model, &state, &[long_prompt(options.prompt)])?;
            let time = fastest(REPEATS + 1, || {
                let start = Instant::now();
                model.prefill(&stream, &mut prompts, &mut state, &Plan::default())?;
                stream.synchronize()?;
                Ok(start.elapsed())
            })?;
            println!("{name} 1 rank, prefill {}\t{:.1} us", options.prompt, time * 1e6);
            one.prefill = Some(time);
        }
        for &batch in &options.batches {
            let mut state = Decoding::new(&model, batch, options.context + 256, Choice::Greedy)?;
            state.set_tokens(&first_tokens(batch))?;
            state.cache().set_lengths(&vec![options.context as i32; batch])?;
            let mut graph = state.graph(&model, options.plan)?;
            let time = fastest(REPEATS, || steps_of_one(&mut graph, options.context))? / STEPS as f64;
            println!("{name} 1 rank, decode {batch} x {}\t{:.1} us", options.context, time * 1e6);
            one.steps.push(time);
        }
        Ok(one)
    }
}

fn compared(model: &Llama<bf16>) -> Result<Passes> {
    let (stream, prompts) = (model.device().default_stream(), prompts());
    let mut state = Decoding::new(model, prompts.len(), 128, Choice::Greedy)?;
    let mut prompts = Prompts::new(model, &state, &prompts)?;
    model.prefill(&stream, &mut prompts, &mut state, &Plan::default())?;
    let mut passes = vec![(state.logits().to_vec()?, state.tokens().to_vec()?)];
    for step in 0..COMPARED {
        state.set_tokens(&inputs(step))?;
        model.step(&stream, &mut state, &Plan::default())?;
        passes.push((state.logits().to_vec()?, state.tokens().to_vec()?));
    }
    Ok(passes)
}

fn steps_of_one(graph: &mut Graph<'_, (&Llama<bf16>, Decoding<bf16>)>, context: usize) -> Result<Duration> {
    let stream = graph.device().default_stream();
    let lengths = vec![context as i32; graph.state().1.tokens().len()];
    graph.state_mut().1.cache().set_lengths(&lengths)?;
    graph.update()?;
    (0..2).try_for_each(|_| graph.replay_on(&stream))?;
    stream.synchronize()?;
    let start = Instant::now();
    (0..STEPS).try_for_each(|_| graph.replay_on(&stream))?;
    stream.synchronize()?;
    Ok(start.elapsed())
}

/// Returns the seconds of the fastest of some runs.
fn fastest(runs: usize, mut run: impl FnMut() -> Result<Duration>) -> Result<f64> {
    let mut least = Duration::MAX;
    for _ in 0..runs {
        least = least.min(run()?);
    }
    Ok(least.as_secs_f64())
}

/// Measurements of a way of the sums.
struct Ranks<'a> {
    model: &'a Parallel<bf16>,
    options: &'a Options,
    text: String,
    one: &'a One,
}

/// Steps of the ranks: as graphs, or queued one by one.
enum Stepper<'m> {
    Graph(ParallelGraph<'m, bf16>),
    Queued(&'m Parallel<bf16>, ParallelDecoding<bf16>, Box<Plan>),
}

impl Stepper<'_> {
    fn step(&mut self) -> cutlet::Result<()> {
        match self {
            Stepper::Graph(graph) => graph.replay(),
            Stepper::Queued(model, state, plan) => model.step(state, plan),
        }
    }

    fn set_lengths(&mut self, lengths: &[i32]) -> cutlet::Result<()> {
        match self {
            Stepper::Graph(graph) => graph.set_lengths(lengths),
            Stepper::Queued(_, state, _) => state.set_lengths(lengths),
        }
    }

    fn set_tokens(&mut self, tokens: &[i32]) -> cutlet::Result<()> {
        match self {
            Stepper::Graph(graph) => graph.set_tokens(tokens),
            Stepper::Queued(_, state, _) => state.set_tokens(tokens),
        }
    }

    fn synchronize(&self) -> cutlet::Result<()> {
        match self {
            Stepper::Graph(graph) => graph.synchronize(),
            Stepper::Queued(model, state, _) => model.tokens(state).map(drop),
        }
    }

    fn results(&self) -> cutlet::Result<(Vec<bf16>, Vec<i32>)> {
        match self {
            Stepper::Graph(graph) => Ok((graph.logits()?, graph.tokens()?.swap_remove(0))),
            Stepper::Queued(model, state, _) => Ok((model.logits(state)?, model.tokens(state)?)),
        }
    }

    fn text(&self) -> String {
        match self {
            Stepper::Graph(graph) => format!("graphs of {} launches", graph.len()),
            Stepper::Queued(..) => "no graph".to_owned(),
        }
    }
}

impl<'a> Ranks<'a> {
    fn stepper(&self, state: ParallelDecoding<bf16>, plan: Plan) -> Result<Stepper<'a>> {
        let is_on_gpu = self.model.streams()[0].device() != Device::cpu();
        Ok(match self.model.method() {
            Method::Peers { .. } if is_on_gpu => Stepper::Graph(self.model.graph(state, plan)?),
            _ => Stepper::Queued(self.model, state, Box::new(plan)),
        })
    }

    fn measure(&self) -> Result<()> {
        self.compare().context("comparison with one device")?;
        for (&batch, &of_one) in self.options.batches.iter().zip(&self.one.steps) {
            self.decode(batch, of_one).with_context(|| format!("decode {batch}"))?;
        }
        if let Some(of_one) = self.one.prefill {
            self.prefill(of_one).context("prefill")?;
        }
        Ok(())
    }

    /// Compares logits with those of one device.
    fn compare(&self) -> Result<()> {
        let sequences = prompts();
        let mut state = ParallelDecoding::new(self.model, sequences.len(), 128)?;
        let mut prompts = ParallelPrompts::new(self.model, &state, &sequences)?;
        self.model.prefill(&mut prompts, &mut state, &Plan::default())?;
        let mut passes = vec![(self.model.logits(&state)?, self.model.tokens(&state)?)];
        drop(prompts);
        let mut stepper = self.stepper(state, self.options.plan)?;
        for step in 0..COMPARED {
            stepper.set_tokens(&inputs(step))?;
            stepper.step()?;
            passes.push(stepper.results()?);
        }
        let (mut largest, mut equal, mut tokens) = (0.0f64, 0, 0);
        for ((logits, chosen), (want, want_chosen)) in passes.iter().zip(&self.one.passes) {
            let norm = want.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
            let error = logits.iter().zip(want).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>();
            ensure!(logits.len() == want.len() && norm > 0.0, "{} logits", logits.len());
            largest = if error.is_nan() { f64::NAN } else { largest.max((error / norm).sqrt()) };
            tokens += chosen.len();
            equal += chosen.iter().zip(want_chosen).filter(|(a, b)| a == b).count();
        }
        println!("{}: difference of logits {largest:.5}, {equal} of {tokens} tokens equal", self.text);
        ensure!(largest <= LIMIT, "a difference of logits above {LIMIT}");
        Ok(())
    }

    fn decode(&self, batch: usize, of_one: f64) -> Result<()> {
        let context = self.options.context;
        let sum = Plan { only: Some(Part::Sum), ..self.options.plan };
        let after = Plan { early: Early::After, ..self.options.plan };
        let whole = [(String::new(), self.options.plan), (", each kernel after the preceding one".to_owned(), after)];
        let mut variants = [&whole[..], &[(", sums alone".to_owned(), sum)]].concat();
        if self.options.timeline {
            let alone =
                |(part, what): &(Part, &str)| (format!(", {what}"), Plan { only: Some(*part), ..self.options.plan });
            variants.extend(PARTS.iter().map(alone));
        }
        for (what, plan) in variants {
            let mut state = ParallelDecoding::new(self.model, batch, context + 256)?;
            state.set_tokens(&first_tokens(batch))?;
            state.set_lengths(&vec![context as i32; batch])?;
            let mut stepper = self.stepper(state, plan)?;
            let time = fastest(REPEATS, || {
                stepper.set_lengths(&vec![context as i32; batch])?;
                (0..2).try_for_each(|_| stepper.step())?;
                stepper.synchronize()?;
                let start = Instant::now();
                (0..STEPS).try_for_each(|_| stepper.step())?;
                self.model.synchronize()?;
                let time = start.elapsed();
                stepper.synchronize()?;
                Ok(time)
            })? / STEPS as f64;
            let (text, kind) = (&self.text, stepper.text());
            let ratio = if plan.only.is_none() { format!("\t{:.2} of one", of_one / time) } else { String::new() };
            println!("{text}, decode {batch} x {context}{what}\t{:.1} us{ratio}\t{kind}", time * 1e6);
        }
        Ok(())
    }

    fn prefill(&self, of_one: f64) -> Result<()> {
        let count = self.options.prompt;
        for (what, only) in [("", None), (", sums alone", Some(Part::Sum))] {
            let plan = Plan { only, ..Plan::default() };
            let mut state = ParallelDecoding::new(self.model, 1, count)?;
            let mut prompts = ParallelPrompts::new(self.model, &state, &[long_prompt(count)])?;
            let time = fastest(REPEATS + 1, || {
                let start = Instant::now();
                self.model.prefill(&mut prompts, &mut state, &plan)?;
                self.model.synchronize()?;
                Ok(start.elapsed())
            })?;
            self.model.tokens(&state)?;
            println!("{}, prefill {count}{what}\t{:.1} us\t{:.2} of one", self.text, time * 1e6, of_one / time);
        }
        Ok(())
    }
}
