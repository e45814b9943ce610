//! Times of a decoder of the shape of Llama-3.2-1B with seeded random weights:
//! `cargo run --release -p cutlet-models --example llama -- [OPTION]...`.

mod ranks;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cutlet::element::bf16;
use cutlet::{Bench, Device, Graph};
use cutlet_kernels::products::{Columns, Configuration, Share};
use cutlet_models::llama::step::Choice;
use cutlet_models::llama::{Config, Decoding, Early, Kind, Llama, Part, Plan, Product, Prompts};

const HELP: &str = "
  --kind NAME      bf16 or int4 (default both)
  --batch LIST     sequences of decode steps (default 1,16,64)
  --context N      tokens of each sequence before the steps (default 1024)
  --prompt N       tokens of the prefill (default 4096)
  --parts N        parts of the keys of a sequence in attention (default by shape)
  --columns LIST   outputs and warps of products of one row, in the order of a layer: 8x4,4x4,8x4,2x4,16x8
  --early NAME     after, start or weights (default): start of a kernel relative to the preceding one
  --timeline       the kernels of a decode step and of a prefill, as tables of Markdown
  --tune           times of the kernels of a decode step and of a prefill by configuration
  --ranks N        N devices with a part of the weights each, beside one of them
  --devices LIST   devices of the ranks (default 0,1,.., or the cpu device without GPUs)
  --sums LIST      ways of the sums over ranks: words, flags, peers, nccl, host (default words,flags,nccl)
  --small          few layers and a small vocabulary, for devices without much memory";

/// Bytes and operations a second of an H100 SXM (NVIDIA's data sheet).
const BANDWIDTH: f64 = 3.35e12;
const PEAK: f64 = 989e12;
/// Steps of a measurement.
const STEPS: usize = 16;

struct Options {
    kinds: Vec<(Kind, &'static str)>,
    batches: Vec<usize>,
    context: usize,
    prompt: usize,
    parts: Option<usize>,
    plan: Plan,
    timeline: bool,
    tune: bool,
    ranks: Option<usize>,
    devices: Option<Vec<usize>>,
    sums: Vec<String>,
    small: bool,
}

fn options() -> Result<Options> {
    let both = [(Kind::Plain, "bf16"), (Kind::Packed, "int4")];
    let mut options = Options {
        kinds: both.to_vec(),
        batches: vec![1, 16, 64],
        context: 1024,
        prompt: 4096,
        parts: None,
        plan: Plan::default(),
        timeline: false,
        tune: false,
        ranks: None,
        devices: None,
        sums: ["words", "flags", "nccl"].map(str::to_owned).to_vec(),
        small: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match &*arg {
            "--kind" => {
                let name = value()?;
                options.kinds = both.into_iter().filter(|(_, of)| *of == name).collect();
            }
            "--batch" => options.batches = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--context" => options.context = value()?.parse()?,
            "--prompt" => options.prompt = value()?.parse()?,
            "--parts" => options.parts = Some(value()?.parse()?),
            "--columns" => {
                for (columns, text) in options.plan.columns.iter_mut().zip(value()?.split(',')) {
                    let (outputs, warps) = text.split_once('x').context("--columns needs pairs as 8x4")?;
                    *columns = Some(Columns { outputs: outputs.parse()?, warps: warps.parse()? });
                }
            }
            "--early" => {
                options.plan.early = match &*value()? {
                    "after" => Early::After,
                    "start" => Early::Start,
                    _ => Early::Weights,
                }
            }
            "--timeline" => options.timeline = true,
            "--tune" => options.tune = true,
            "--ranks" => options.ranks = Some(value()?.parse()?),
            "--devices" => {
                options.devices = Some(value()?.split(',').map(str::parse).collect::<Result<_, _>>()?);
            }
            "--sums" => options.sums = value()?.split(',').map(str::to_owned).collect(),
            "--small" => options.small = true,
            _ => bail!("there is no option {arg}; there are{HELP}"),
        }
    }
    Ok(options)
}

fn main() -> Result<()> {
    let options = options()?;
    let device = Device::first()?;
    let mut config = Config::llama_3_2_1b();
    if options.small {
        config = Config { layers: 2, vocabulary: 4096, ..config };
    }
    if let Some(count) = options.ranks {
        return ranks::run(&options, config, count);
    }
    for &(kind, name) in &options.kinds {
        let capacity = options.prompt.max(options.context) + 256;
        let model = Llama::<bf16>::random(device, config, kind, capacity, 1)?;
        let run = Run { model: &model, name, options: &options };
        if options.prompt > 0 {
            run.prefill()?;
        }
        for &batch in &options.batches {
            run.decode(batch)?;
        }
    }
    Ok(())
}

/// Measurements of a model.
struct Run<'a> {
    model: &'a Llama<bf16>,
    name: &'a str,
    options: &'a Options,
}

/// Work of the launches of a kernel in a pass.
struct Work {
    launches: usize,
    bytes: f64,
    flops: f64,
}

impl Work {
    fn least(&self) -> f64 {
        (self.bytes / BANDWIDTH).max(self.flops / PEAK)
    }
}

const PARTS: [(Part, &str); 8] = [
    (Part::Embed, "embeddings"),
    (Part::Product(Product::Qkv), "norm, q k v, rotation, cache"),
    (Part::Attention, "attention"),
    (Part::Product(Product::Out), "projection, residual"),
    (Part::Product(Product::Gated), "norm, gate and factor, SwiGLU"),
    (Part::Product(Product::Down), "second product, residual"),
    (Part::Product(Product::Head), "norm, logits, largest"),
    (Part::Choice, "choice of the token"),
];

impl Run<'_> {
    /// Work of a part for `rows` tokens. `ends`: rows of logits, `keys`: pairs of queries and keys,
    /// `cached`: keys from memory.
    fn work(&self, part: Part, [rows, ends]: [usize; 2], [pairs, cached]: [f64; 2]) -> Work {
        let config = self.model.config();
        let layers = config.layers;
        match part {
            Part::Embed => Work { launches: 1, bytes: (4 * rows * config.hidden) as f64, flops: 0.0 },
            // One device has no sums.
            Part::Sum => Work { launches: 0, bytes: 0.0, flops: 0.0 },
            Part::Choice => Work { launches: 1, bytes: (ends * config.vocabulary / 8) as f64, flops: 0.0 },
            Part::Attention => {
                let width = (config.heads * config.dim) as f64;
                let bytes = cached * (4 * config.key_heads * config.dim) as f64 + 4.0 * rows as f64 * width;
                let flops = 4.0 * pairs * width;
                Work { launches: layers, bytes: bytes * layers as f64, flops: flops * layers as f64 }
            }
            Part::Product(product) => {
                let [outputs, inputs] = config.products()[product as usize];
                let (rows, launches, weight) = match self.model.layers()[0].weight(product) {
                    Some(weight) => (rows, layers, weight),
                    None => (ends, 1, self.model.head()),
                };
                let results = if product == Product::Gated { outputs / 2 } else { outputs };
                let bytes = (weight.bytes() + 2 * rows * (inputs + results)) as f64 * launches as f64;
                Work { launches, bytes, flops: 2.0 * (rows * outputs * inputs * launches) as f64 }
            }
        }
    }

    fn decode(&self, batch: usize) -> Result<()> {
        let Options { context, timeline, tune, .. } = *self.options;
        let name = self.name;
        let least: f64 = PARTS.iter().map(|(part, _)| self.of_step(*part, batch).least()).sum();
        if tune {
            return self.tune(batch);
        }
        let mut graph = self.graph(batch, self.options.plan)?;
        let time = steps(&mut graph, context)?;
        println!(
            "llama decode {name} {batch} x {context}\t{:.1} us\t{:.0} tokens/s\t{:.2}\t{} launches",
            time * 1e6,
            batch as f64 / time,
            least / time,
            graph.len()
        );
        drop(graph);
        if timeline {
            println!("\n| kernel | launches | us | fraction of the roofline |\n|---|---|---|---|");
            for (part, what) in PARTS {
                let plan = Plan { only: Some(part), ..self.options.plan };
                let time = steps(&mut self.graph(batch, plan)?, context)?;
                let work = self.of_step(part, batch);
                println!("| {what} | {} | {:.1} | {:.2} |", work.launches, time * 1e6, work.least() / time);
            }
            println!("| step | | {:.1} | {:.2} |\n", time * 1e6, least / time);
        }
        Ok(())
    }

    fn of_step(&self, part: Part, batch: usize) -> Work {
        let keys = (batch * self.options.context) as f64;
        self.work(part, [batch, batch], [keys, keys])
    }

    fn graph(&self, batch: usize, plan: Plan) -> Result<Graph<'_, (&Llama<bf16>, Decoding<bf16>)>> {
        self.graph_of_parts(batch, plan, self.options.parts)
    }

    fn graph_of_parts(
        &self,
        batch: usize,
        plan: Plan,
        parts: Option<usize>,
    ) -> Result<Graph<'_, (&Llama<bf16>, Decoding<bf16>)>> {
        let mut decoding = Decoding::new(self.model, batch, self.options.context + 256, Choice::Greedy)?;
        decoding.set_tokens(&(0..batch).map(|at| (at * 37 % 1000) as i32).collect::<Vec<_>>())?;
        if let Some(parts) = parts {
            decoding.set_parts(self.model, parts)?;
        }
        decoding.cache().set_lengths(&vec![self.options.context as i32; batch])?;
        Ok(decoding.graph(self.model, plan)?)
    }

    fn prefill(&self) -> Result<()> {
        if self.options.tune {
            return self.tune_prefill();
        }
        let (count, name) = (self.options.prompt, self.name);
        let stream = self.model.device().default_stream();
        let mut decoding = Decoding::new(self.model, 1, count, Choice::Greedy)?;
        let tokens = (0..count).map(|at| (at * 37 % 4001) as i32).collect();
        let mut prompts = Prompts::new(self.model, &decoding, &[tokens])?;
        let mut measure = |plan: Plan| -> Result<f64> {
            self.model.prefill(&stream, &mut prompts, &mut decoding, &plan)?;
            let pass = || self.model.prefill(&stream, &mut prompts, &mut decoding, &plan);
            Ok(Bench::new().runs(10).run(&stream, pass)?.median().as_secs_f64())
        };
        let pairs = (count * (count + 1) / 2) as f64;
        let work = |part| self.work(part, [count, 1], [pairs, count as f64]);
        let least: f64 = PARTS.iter().map(|(part, _)| work(*part).least()).sum();
        let time = measure(Plan::default())?;
        println!(
            "llama prefill {name} {count}\t{:.1} us\t{:.0} tokens/s\t{:.2}",
            time * 1e6,
            count as f64 / time,
            least / time
        );
        if self.options.timeline {
            println!("\n| kernel | launches | us | fraction of the roofline |\n|---|---|---|---|");
            for (part, what) in PARTS {
                let (time, work) = (measure(Plan { only: Some(part), ..Plan::default() })?, work(part));
                println!("| {what} | {} | {:.1} | {:.2} |", work.launches, time * 1e6, work.least() / time);
            }
            println!("| prefill | | {:.1} | {:.2} |\n", time * 1e6, least / time);
        }
        Ok(())
    }

    /// Prints times of the kernels of a step by configuration, the fastest first.
    fn tune(&self, batch: usize) -> Result<()> {
        for product in Product::ALL {
            let part = Part::Product(product);
            let all = plans(product, batch, self.name == "int4")
                .into_iter()
                .map(|(text, plan)| (text, Plan { only: Some(part), ..plan }));
            let all: Vec<(String, Plan)> = all.collect();
            let compile = |plan: &Plan| -> Result<()> {
                let mut decoding = Decoding::new(self.model, batch, 64, Choice::Greedy)?;
                Ok(self.model.step(&self.model.device().default_stream(), &mut decoding, plan)?)
            };
            compiled(&all, compile);
            let time = |plan: &Plan| steps(&mut self.graph(batch, *plan)?, self.options.context);
            self.ranked((&format!("{batch} {product:?}"), self.of_step(part, batch)), &all, time);
        }
        let all: Vec<(String, usize)> =
            [1, 2, 3, 4, 5, 8, 10, 16, 20].map(|parts| (format!("{parts} parts"), parts)).into();
        let time = |parts: &usize| {
            let plan = Plan { only: Some(Part::Attention), ..Plan::default() };
            steps(&mut self.graph_of_parts(batch, plan, Some(*parts))?, self.options.context)
        };
        self.ranked((&format!("{batch} Attention"), self.of_step(Part::Attention, batch)), &all, time);
        Ok(())
    }

    /// Prints the times of a kernel by configuration. Configurations that no kernel has are left
    /// out.
    fn ranked<C>(&self, (name, work): (&str, Work), all: &[(String, C)], time: impl Fn(&C) -> Result<f64>) {
        let each = work.launches as f64;
        let measured = all.iter().filter_map(|(text, one)| Some((time(one).ok()? / each, text)));
        let mut times: Vec<(f64, &String)> = measured.collect();
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (time, text) in times {
            println!("{} {name}\t{:.2} us\t{:.2}\t{text}", self.name, time * 1e6, work.least() / each / time);
        }
    }

    /// Prints times of the products of a prefill by configuration, the fastest first.
    fn tune_prefill(&self) -> Result<()> {
        let (count, stream) = (self.options.prompt, self.model.device().default_stream());
        let prepared = || -> Result<(Decoding<bf16>, Prompts<bf16>)> {
            let decoding = Decoding::new(self.model, 1, count, Choice::Greedy)?;
            let prompts = Prompts::new(self.model, &decoding, &[vec![1; count]])?;
            Ok((decoding, prompts))
        };
        for product in [Product::Qkv, Product::Out, Product::Gated, Product::Down] {
            let part = Part::Product(product);
            let all: Vec<(String, Plan)> = large_plans(product)
                .into_iter()
                .map(|(text, plan)| (text, Plan { only: Some(part), ..plan }))
                .collect();
            compiled(&all, |plan| {
                let (mut decoding, mut prompts) = prepared()?;
                Ok(self.model.prefill(&stream, &mut prompts, &mut decoding, plan)?)
            });
            let time = |plan: &Plan| -> Result<f64> {
                let (mut decoding, mut prompts) = prepared()?;
                let pass = || self.model.prefill(&stream, &mut prompts, &mut decoding, plan);
                Ok(Bench::new().warm_up(1).runs(5).run(&stream, pass)?.median().as_secs_f64())
            };
            let work = self.work(part, [count, 1], [0.0; 2]);
            self.ranked((&format!("prefill {product:?}"), work), &all, time);
        }
        Ok(())
    }
}

/// Compiles the kernels of configurations on several cores.
fn compiled<C: Sync>(all: &[(String, C)], compile: impl Fn(&C) -> Result<()> + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(12) {
            scope.spawn(|| {
                while let Some((_, one)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // A refused configuration has no time, which leaves it out.
                    let _ = compile(one);
                }
            });
        }
    });
}

/// Returns configurations of a product of a step, with their texts.
fn plans(product: Product, batch: usize, is_packed: bool) -> Vec<(String, Plan)> {
    let mut all = vec![("default".to_owned(), Plan::default())];
    let at = product as usize;
    if batch == 1 {
        for &outputs in if is_packed { &[8, 16, 32][..] } else { &[2, 4, 8, 16] } {
            for warps in [4, 8, 16] {
                let mut plan = Plan::default();
                let columns = Columns { outputs, warps };
                plan.columns[at] = Some(columns);
                all.push((format!("{outputs} outputs, {warps} warps"), plan));
            }
        }
        return all;
    }
    if is_packed && batch <= 16 {
        for outputs in [16, 32, 64] {
            for warps in [4, 8, 16] {
                let mut plan = Plan::default();
                plan.columns[at] = Some(Columns { outputs, warps });
                all.push((format!("{outputs} outputs, {warps} warps"), plan));
            }
        }
    }
    let rows = batch.next_power_of_two().max(16);
    if rows == 64 && !is_packed {
        // The rows are those of an instruction; pairs of tile blocks share them.
        for (columns, parts, cluster) in
            [(16, 1, 0), (16, 1, 2), (32, 1, 0), (32, 1, 2), (32, 2, 0), (64, 1, 2), (64, 4, 0)]
        {
            let share = if parts == 1 { Share::Tiles } else { Share::Split(parts) };
            let tiles = Configuration::new([rows, columns, 128]).share(share);
            all.push(with_tiles(product, Configuration { cluster, ..tiles }));
        }
        for columns in [64, 128] {
            let tiles = Configuration { turned: true, cluster: 2, ..Configuration::new([rows, columns, 64]) };
            all.push(with_tiles(product, tiles));
        }
    }
    let splits: &[usize] = match product {
        _ if is_packed && product != Product::Head => &[1, 2, 4, 8],
        Product::Qkv => &[1, 2, 4],
        Product::Out => &[2, 4, 8],
        Product::Down => &[4, 8, 16],
        Product::Gated => &[1, 2],
        Product::Head => &[1],
    };
    for (columns, depth) in [(64, 128), (64, 64), (128, 64), (128, 128)] {
        for &parts in splits {
            for &occupancy in if is_packed { &[1, 2, 4][..] } else { &[1, 2] } {
                let share = if parts == 1 { Share::Tiles } else { Share::Split(parts) };
                let tiles = Configuration {
                    turned: true,
                    occupancy,
                    ..Configuration::new([rows, columns, depth]).share(share)
                };
                all.push(with_tiles(product, tiles));
            }
        }
        if matches!(product, Product::Gated | Product::Head) {
            let tiles = Configuration::new([rows, columns, depth]).share(Share::Persistent);
            all.push(with_tiles(product, Configuration { turned: true, ..tiles }));
        }
    }
    all
}

/// Returns configurations of a product of a prefill, with their texts.
fn large_plans(product: Product) -> Vec<(String, Plan)> {
    let of = |tile: [usize; 2], warps, cluster| {
        let tiles = Configuration::new([tile[0], tile[1], 64]).share(Share::Persistent);
        with_tiles(product, Configuration { warps, cluster, ..tiles })
    };
    vec![
        ("default".to_owned(), Plan::default()),
        of([128, 256], 0, 0),
        of([128, 256], 0, 2),
        of([256, 128], 0, 0),
        of([256, 128], 0, 2),
        of([128, 192], 4, 0),
        of([128, 192], 0, 0),
        of([128, 128], 4, 0),
        of([128, 128], 0, 0),
    ]
}

/// Returns a plan with tiles of a product, and its text.
fn with_tiles(product: Product, tiles: Configuration) -> (String, Plan) {
    let mut plan = Plan::default();
    plan.tiles[product as usize] = Some(tiles);
    let Configuration { tile, share, warps, cluster, occupancy, turned } = tiles;
    (format!("{tile:?} {share:?} turned {turned} warps {warps} cluster {cluster} occupancy {occupancy}"), plan)
}

/// Returns the time of a step in seconds, of steps that follow one another.
fn steps(graph: &mut Graph<'_, (&Llama<bf16>, Decoding<bf16>)>, context: usize) -> Result<f64> {
    let stream = graph.device().default_stream();
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..5 {
        let lengths = vec![context as i32; graph.state().1.tokens().len()];
        graph.state_mut().1.cache().set_lengths(&lengths)?;
        graph.update()?;
        let run = || (0..STEPS).try_for_each(|_| graph.replay_on(&stream));
        times.push(Bench::new().warm_up(1).runs(2).run(&stream, run)?.median());
    }
    times.sort();
    Ok(times[0].as_secs_f64() / STEPS as f64)
}
