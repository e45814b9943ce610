//! Mean and variance of the rows of a matrix, read once: `cargo run --release --example welford [-- --pairs]`.

mod harness;

use anyhow::Result;
use clap::Parser;
use cutlet as ct;
use cutlet::prelude::*;
use harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};
use rayon::prelude::*;

/// Mean and variance of each row of an m x n matrix (f32), one row a block.
#[derive(Parser, Debug)]
pub struct Cli {
    #[command(flatten)]
    options: Options,
    /// Rows.
    #[arg(long)]
    m: Option<usize>,
    /// Columns; a tile holds a whole row.
    #[arg(long)]
    n: Option<usize>,
    /// By one reduction over pairs of moments, which needs no second look at the numbers.
    #[arg(long)]
    pairs: bool,
}

/// Mean, sum of squared distances from it, and count of some numbers.
type Moments = (Scalar<f32>, Scalar<f32>, Scalar<f32>);

/// Those of two sets of numbers together (Chan, Golub and LeVeque's form of Welford's method): nothing is lost
/// where the mean is far from zero, as it is by the sums of the numbers and of their squares.
fn together((mean_a, squares_a, a): Moments, (mean_b, squares_b, b): Moments) -> Moments {
    let n = a + b;
    // No numbers on either side: everything stays zero. What rounds to nearest would take three times as long.
    let share = ct::with_mode(ct::FloatMode::new().approx(), || b / n.max(1.0));
    let step = mean_b - mean_a;
    (mean_a + step * share, squares_a + squares_b + step * step * a * share, n)
}

/// A block takes a row, in one tile: the mean first, then the distances from it, of numbers that stay in registers.
pub fn moments(x: Array<f32, 2>, mean: ArrayMut<f32, 2>, variance: ArrayMut<f32, 2>, tile: usize) {
    let row = ct::bid(0);
    let n = x.extent(1);
    let counts = ct::indices([1, tile], 1).lt(n);
    let x = x.load((row, 0), [1, tile]);
    let n = n.cast::<f32>();
    let m = x.sum(1) / n;
    // What lies beyond the end of the row was read as zero and counts for nothing.
    let distance = counts.select(x - m, 0.0);
    mean.store((row, 0), m);
    variance.store((row, 0), (distance * distance).sum(1) / n);
}

/// The same by one reduction of all three moments, as where the numbers come one after the other.
pub fn welford(x: Array<f32, 2>, mean: ArrayMut<f32, 2>, variance: ArrayMut<f32, 2>, tile: usize) {
    let row = ct::bid(0);
    let n = x.extent(1);
    // What lies beyond the end of the row counts for nothing.
    let counts = ct::indices([1, tile], 1).lt(n).select(1.0, 0.0);
    let x = x.load((row, 0), [1, tile]);
    let (m, squares, n) = ct::reduce((x, ct::zeros([1, tile]), counts), 1, (0.0, 0.0, 0.0), together);
    mean.store((row, 0), m);
    variance.store((row, 0), squares / n);
}

/// Does what the options say.
pub fn run(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    let device = options.device()?;
    let m = options.size(cli.m, &device, 32768, 512);
    let n = options.size(cli.n, &device, 4096, 1024);
    let tile = Constant(n.next_power_of_two());
    if options.emits() {
        let (spec, row) = (ct::ArraySpec::<f32, 2>::new([m, n]), ct::ArraySpec::<f32, 2>::new([m, 1]));
        let arguments = (spec, row.mutable(), row.mutable(), tile);
        return if cli.pairs { options.emit(welford, arguments) } else { options.emit(moments, arguments) };
    }
    // Far from zero, where the plain sum of squares would lose the variance.
    let host = normal(1, m * n, |x| (1000.0 + x) as f32);
    let mut rotation = Rotation::new(device, 4 * m * n, || {
        Ok((device.array(&host, [m, n])?, (device.zeros::<f32, 2>([m, 1])?, device.zeros::<f32, 2>([m, 1])?)))
    })?;
    let time = rotation.time(options, |(x, (mean, var))| match cli.pairs {
        true => options.launch([m]).launch(welford, (&*x, mean, var, tile)),
        false => options.launch([m]).launch(moments, (&*x, mean, var, tile)),
    })?;
    let (mean, variance) = &rotation.first().1;
    let (mean, variance) = (mean.to_vec()?, variance.to_vec()?);
    let moments = |row: &[f32]| {
        let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64;
        (mean, row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n as f64)
    };
    let expected: Vec<(f64, f64)> = host.par_chunks(n).map(moments).collect();
    let error = largest_error(
        2 * m,
        |i| if i < m { mean[i].into() } else { variance[i - m].into() },
        // The numbers themselves are rounded to 2^-14 of their distance from the mean.
        |i| match i < m {
            true => Expected { value: expected[i].0, scale: expected[i].0 },
            false => Expected { value: expected[i - m].1, scale: 1e3 * (expected[i - m].1 + 1e-3) },
        },
    );
    Report {
        what: format!("{} f32 {m}x{n}", if cli.pairs { "welford" } else { "moments" }),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(4.0 * (m * n) as f64),
        error,
        tolerance: 1e-6,
        relative_to: "the mean, and of a thousand variances",
    }
    .finish()
}

fn main() -> Result<()> {
    run(&Cli::parse())
}
