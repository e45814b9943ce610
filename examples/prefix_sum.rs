//! The sums of all first elements of an array, in one pass: `cargo run --release --example prefix_sum`.

mod harness;

use anyhow::{Result, ensure};
use clap::Parser;
use cutlet as ct;
use cutlet::element::BitcastTo;
use cutlet::prelude::*;
use harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};
use rayon::prelude::*;

/// Inclusive prefix sums of n numbers.
#[derive(Parser, Debug)]
pub struct Cli {
    #[command(flatten)]
    options: Options,
    /// Numbers.
    #[arg(long)]
    n: Option<usize>,
    /// Their type.
    #[arg(long = "type", value_enum, default_value_t = Type::F32)]
    element: Type,
    /// Numbers of a tile.
    #[arg(long, default_value_t = 16384)]
    tile: usize,
}

/// Element types.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Type {
    F32,
    I32,
}

// What is known of a tile: nothing, the sum of its own elements, or that of all up to its end.
const UNKNOWN: u32 = 0;
const OWN: u32 = 1;
const ALL: u32 = 2;

/// Tiles that are looked back at together.
const WINDOW: usize = 32;

/// State and sum of a tile in one word, so that one load reads both.
fn packed<T: Number + BitcastTo<u32>>(state: u32, sum: Scalar<T>) -> Scalar<u64> {
    sum.bitcast::<u32>().cast::<u64>() | (u64::from(state) << 32)
}

/// A block takes the next tile, whichever block it is, says what the tile sums up to, and looks back until it finds the
/// sum of all before (Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016). Who has
/// a tile has begun, and waits for earlier tiles alone: some block always goes on, however few run at a time.
pub fn prefix_sum<T>(x: Array<T, 1>, y: ArrayMut<T, 1>, next: ArrayMut<i32, 1>, tiles: ArrayMut<u64, 1>, tile: usize)
where
    T: Number + BitcastTo<u32>,
    u32: BitcastTo<T>,
{
    let mine = next.entry(0).atomic_add_with(1, ct::AtomicOptions::new().relaxed(ct::Scope::Device));
    let x = x.load([mine], [tile]);
    let own = x.sum(0).item();
    let publish = |word| tiles.entry(mine).store_with(word, ct::ScatterOptions::new().relaxed(ct::Scope::Device));
    publish(packed(OWN, own));
    let sums = x.cumsum(0);
    // Before the first tile all is known, and nothing.
    let options = ct::GatherOptions::new().relaxed(ct::Scope::Device).padding(u64::from(ALL) << 32);
    let (zero, nearest_first) = (T::from_f64(0.0), ct::arange::<i32>(WINDOW, 0, 1));
    let before = ct::loop_flow((mine - 1, ct::scalar(zero)), |(last, sum), flow| {
        let words = tiles.gather_with(last - nearest_first, options);
        let (states, parts) = ((words >> 32).cast::<u32>(), words.wrapping_cast::<u32>().bitcast::<T>());
        // From the nearest tile to the first of which not only its own sum is known.
        let (state, part) = ct::reduce((states, parts), 0, (OWN, zero), |(state, sum), (further, part)| {
            let goes_on = state.eq(OWN);
            (goes_on.select(further, state), goes_on.select(sum + part, sum))
        });
        let (state, part) = (state.item(), part.item());
        flow.continue_if(state.eq(UNKNOWN), (last, sum));
        flow.break_if(state.eq(ALL), (last, part + sum));
        (last - WINDOW, part + sum)
    });
    publish(packed(ALL, before.1 + own));
    y.store([mine], sums + before.1);
}

/// The largest error of sums, each measured against the sum of magnitudes.
fn error<T: Number>(x: &[T], y: &[T]) -> f64 {
    const CHUNK: usize = 1 << 16;
    let further = |(sum, scale): (f64, f64), x: &T| (sum + x.to_f64(), scale + x.to_f64().abs());
    let totals: Vec<(f64, f64)> = x.par_chunks(CHUNK).map(|chunk| chunk.iter().fold((0.0, 0.0), further)).collect();
    let mut starts = vec![(0.0, 0.0)];
    for (i, total) in totals.iter().enumerate() {
        starts.push((starts[i].0 + total.0, starts[i].1 + total.1));
    }
    let of_chunk = |chunk: usize| {
        let (part, mut sums, mut worst) = (chunk * CHUNK..y.len().min((chunk + 1) * CHUNK), starts[chunk], 0.0);
        for (x, y) in x[part.clone()].iter().zip(&y[part]) {
            sums = further(sums, x);
            let error = (y.to_f64() - sums.0).abs() / sums.1.max(f64::MIN_POSITIVE);
            worst = if error > worst || error.is_nan() { error } else { worst };
        }
        worst
    };
    largest_error(totals.len(), of_chunk, |_| Expected { value: 0.0, scale: 1.0 })
}

fn check<T>(cli: &Cli, name: &str, from: impl Fn(f64) -> T + Sync) -> Result<()>
where
    T: Number + BitcastTo<u32> + Default,
    u32: BitcastTo<T>,
{
    // Tiles are on their way in many blocks at a time, or the memory waits.
    let options = &cli.options.with_occupancy(2);
    let device = options.device()?;
    let n = options.size(cli.n, &device, 1 << 28, 1 << 20);
    ensure!(n > 0 && n < 1 << 31, "--n {n}: from 1 to 2^31 - 1");
    let blocks = n.div_ceil(cli.tile);
    let tile = Constant(cli.tile);
    if options.emits() {
        let (x, tiles) = (ct::ArraySpec::<T, 1>::new([n]), ct::ArraySpec::<u64, 1>::new([blocks]).mutable());
        let next = ct::ArraySpec::<i32, 1>::new([1]).mutable();
        return options.emit(prefix_sum::<T>, (x, x.mutable(), next, tiles, tile));
    }
    let host = normal(1, n, from);
    let mut rotation = Rotation::new(device, 8 * n, || {
        let state = (device.zeros::<i32, 1>([1])?, device.zeros::<u64, 1>([blocks])?);
        Ok((device.array(&host, [n])?, device.zeros::<T, 1>([n])?, state))
    })?;
    let time = rotation.time(options, |(x, y, (next, tiles))| {
        options.launch([blocks.div_ceil(1024)]).launch(forget, (&mut *next, &mut *tiles))?;
        options.launch([blocks]).launch(prefix_sum::<T>, (&*x, y, next, tiles, tile))
    })?;
    let result = rotation.first().1.to_vec()?;
    Report {
        what: format!("prefix_sum {name} {n}"),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(8.0 * n as f64),
        error: error(&host, &result),
        tolerance: if T::DTYPE.is_float() { 1e-6 } else { 0.0 },
        relative_to: "the sum of magnitudes",
    }
    .finish()
}

/// No tile is taken, and nothing known of any.
pub fn forget(next: ArrayMut<i32, 1>, tiles: ArrayMut<u64, 1>) {
    tiles.store([ct::bid(0)], ct::zeros([1024]));
    next.store([ct::bid(0)], ct::zeros([1]));
}

/// Does what the options say.
pub fn run(cli: &Cli) -> Result<()> {
    match cli.element {
        Type::F32 => check::<f32>(cli, "f32", |x| x as f32),
        Type::I32 => check::<i32>(cli, "i32", |x| (x * 10.0) as i32),
    }
}

fn main() -> Result<()> {
    run(&Cli::parse())
}
