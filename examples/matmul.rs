//! Matrix product: `cargo run --release --example matmul -- --type bf16`.

mod harness;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use cutlet as ct;
use cutlet::element::{CastTo, MmaInput, Number};
use cutlet::prelude::*;
use harness::{Options, Report, Rotation, Work, expected_rows, largest_error, normal, sample_rows};

/// Multiplies an m x k with a k x n matrix, one tile of the result a block.
#[derive(Parser, Debug)]
pub struct Cli {
    #[command(flatten)]
    options: Options,
    /// Element type of the arrays; tf32 are f32 arrays multiplied in tf32.
    #[arg(long = "type", value_enum, default_value_t = ElementType::F16)]
    element: ElementType,
    /// Rows of the result.
    #[arg(long)]
    m: Option<usize>,
    /// Columns of the result.
    #[arg(long)]
    n: Option<usize>,
    /// Length of the sums.
    #[arg(long)]
    k: Option<usize>,
    /// Extents of a tile: rows, columns, and how much of the sums is taken at a time.
    #[arg(long, num_args = 3)]
    tile: Option<Vec<usize>>,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum ElementType {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
}

/// Arrays of `T`, multiplied as `I`, added up as `Acc`.
fn matmul<T, I, Acc>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<T, 2>, [tm, tn, tk]: [usize; 3])
where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, Acc>,
    Acc: Number + CastTo<T>,
{
    let (i, j) = (ct::bid(0), ct::bid(1));
    let acc = ct::for_each(..a.num_tiles(1, [tm, tk]), ct::zeros::<Acc, 2>([tm, tn]), |k, acc| {
        let a = a.load([i, k], [tm, tk]).cast::<I>();
        let b = b.load([k, j], [tk, tn]).cast::<I>();
        ct::mma(a, b, acc)
    });
    c.store([i, j], acc.cast::<T>());
}

fn run_as<T, I, Acc>(cli: &Cli, tile: [usize; 3], input_error: f64, output_error: f64) -> Result<()>
where
    T: Element + CastTo<I> + Default,
    I: Element + MmaInput<I, Acc>,
    Acc: Number + CastTo<T>,
{
    let options = &cli.options;
    let device = options.device()?;
    let size = |given| options.size(given, &device, 4096, 256);
    let (m, n, k) = (size(cli.m), size(cli.n), size(cli.k));
    let tile = cli.tile.as_ref().map_or(tile, |tile| [tile[0], tile[1], tile[2]]);
    let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
    let kernel = matmul::<T, I, Acc>;
    if options.emits() {
        let (a, b, c) = (ct::ArraySpec::new([m, k]), ct::ArraySpec::new([k, n]), ct::ArraySpec::new([m, n]));
        return options.emit(kernel, (a, b, c.mutable(), Constant(tile)));
    }
    let (host_a, host_b) = (normal(1, m * k, T::from_f64), normal(2, k * n, T::from_f64));
    let bytes = size_of::<T>() * (m * k + k * n + m * n);
    let mut rotation = Rotation::new(device, bytes, || {
        Ok((device.array(&host_a, [m, k])?, device.array(&host_b, [k, n])?, device.zeros::<T, 2>([m, n])?))
    })?;
    let time = rotation.time(options, |(a, b, c)| ct::launch(kernel, grid, (&*a, &*b, c, Constant(tile))))?;
    let result = rotation.first().2.to_vec()?;
    let rows = sample_rows(m);
    let want = expected_rows(&host_a, &host_b, k, n, &rows);
    let error = largest_error(want.len(), |i| result[rows[i / n] * n + i % n].to_f64(), |i| want[i]);
    let name = cli.element.to_possible_value().expect("no type is hidden");
    Report {
        what: format!("matmul {} {m}x{n}x{k}, tile {}x{}x{}", name.get_name(), tile[0], tile[1], tile[2]),
        device: device.name().to_owned(),
        time,
        work: Work::Flops(2.0 * m as f64 * n as f64 * k as f64),
        error,
        tolerance: 2.0 * input_error + output_error,
        relative_to: "the magnitude of the terms",
    }
    .finish()
}

/// Does what the options say.
pub fn run(cli: &Cli) -> Result<()> {
    // Half a unit in the last place of tf32 inputs and of the result, and what f32 sums lose.
    let (exact, sums) = (0.0, 2e-6);
    match cli.element {
        ElementType::F16 => run_as::<f16, f16, f32>(cli, [128, 128, 32], exact, 2f64.powi(-11) + sums),
        ElementType::Bf16 => run_as::<bf16, bf16, f32>(cli, [128, 128, 32], exact, 2f64.powi(-8) + sums),
        ElementType::Tf32 => run_as::<f32, tf32, f32>(cli, [128, 128, 32], 2f64.powi(-11), sums),
        ElementType::F32 => run_as::<f32, f32, f32>(cli, [64, 64, 16], exact, sums),
        ElementType::F64 => run_as::<f64, f64, f64>(cli, [64, 64, 16], exact, 4e-15),
    }
}

fn main() -> Result<()> {
    run(&Cli::parse())
}
