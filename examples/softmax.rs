//! Softmax of the rows of a matrix: `cargo run --release --example softmax`.

mod harness;

use anyhow::Result;
use clap::Parser;
use cutlet as ct;
use cutlet::prelude::*;
use harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};
use rayon::prelude::*;

/// Softmax along the rows of an m x n matrix (f32), one row a block.
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
}

/// A block takes a row, in one tile.
pub fn softmax(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize) {
    let row = ct::bid(0);
    // Beyond the end of the row stands -inf, whose exponential adds nothing to the sum.
    let x = x.load_with((row, 0), [1, tile], ct::LoadOptions::new().padding(Padding::NegInf));
    let e = (x - x.reduce_max(1)).exp();
    y.store((row, 0), e / e.sum(1));
}

/// Does what the options say.
pub fn run(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    let device = options.device()?;
    let m = options.size(cli.m, &device, 4096, 512);
    let n = options.size(cli.n, &device, 4096, 1024);
    let tile = Constant(n.next_power_of_two());
    if options.emits() {
        let spec = ct::ArraySpec::new([m, n]);
        return options.emit(softmax, (spec, spec.mutable(), tile));
    }
    let host = normal(1, m * n, |x| x as f32);
    let mut rotation =
        Rotation::new(device, 8 * m * n, || Ok((device.array(&host, [m, n])?, device.zeros::<f32, 2>([m, n])?)))?;
    let time = rotation.time(options, |(x, y)| options.launch([m]).launch(softmax, (&*x, y, tile)))?;
    let result = rotation.first().1.to_vec()?;
    let largest: Vec<f64> =
        host.par_chunks(n).map(|row| row.iter().copied().fold(f32::NEG_INFINITY, f32::max).into()).collect();
    let exp = |i: usize| (f64::from(host[i]) - largest[i / n]).exp();
    let sums: Vec<f64> = (0..m).into_par_iter().map(|row| (row * n..(row + 1) * n).map(exp).sum()).collect();
    let error = largest_error(
        m * n,
        |i| result[i].into(),
        |i| {
            let value = exp(i) / sums[i / n];
            Expected { value, scale: value }
        },
    );
    Report {
        what: format!("softmax f32 {m}x{n}"),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(8.0 * (m * n) as f64),
        error,
        tolerance: 4e-6,
        relative_to: "the element",
    }
    .finish()
}

fn main() -> Result<()> {
    run(&Cli::parse())
}
