//! The sums of all first elements of an array, in one pass:
//! `cargo bench --bench kernels -- prefix_sum`.

use anyhow::{Result, ensure};
use cutlet as ct;
use cutlet::element::BitcastTo;
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::prefix_sum::{forget, prefix_sum};
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// Inclusive prefix sums of n numbers.
    {
        /// Numbers.
        "n" n: Option<usize> = None,
        /// Their type.
        "type" element: Type = Type::F32,
        /// Numbers of a tile.
        "tile" tile: usize = 16384,
    }
}

choice! {
    /// Element types.
    Type {
        F32 = "f32",
        I32 = "i32",
    }
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

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    match cli.element {
        Type::F32 => check::<f32>(cli, "f32", |x| x as f32),
        Type::I32 => check::<i32>(cli, "i32", |x| (x * 10.0) as i32),
    }
}
