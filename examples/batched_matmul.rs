//! Product of many pairs of matrices: `cargo run --release --example batched_matmul`.

mod harness;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;
use harness::{Options, Report, Rotation, Work, expected_rows, largest_error, normal, sample_rows};

/// Multiplies `batch` pairs of an m x k with a k x n matrix.
#[derive(Parser, Debug)]
pub struct Cli {
    #[command(flatten)]
    options: Options,
    /// Element type of the arrays; tf32 are f32 arrays multiplied in tf32.
    #[arg(long = "type", value_enum, default_value_t = ElementType::Tf32)]
    element: ElementType,
    /// Number of products.
    #[arg(long)]
    batch: Option<usize>,
    /// Rows of a result.
    #[arg(long)]
    m: Option<usize>,
    /// Columns of a result.
    #[arg(long)]
    n: Option<usize>,
    /// Length of the sums.
    #[arg(long)]
    k: Option<usize>,
    /// Extents of a tile: rows, columns, and how much of the sums is taken at a time.
    #[arg(long, num_args = 3, default_values_t = [128, 128, 32])]
    tile: Vec<usize>,
    /// As many blocks as the GPU has multiprocessors, each making one tile after another, instead of one tile a block.
    #[arg(long)]
    persistent: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum ElementType {
    F16,
    Tf32,
}

/// One tile of one product: arrays of `T`, multiplied as `I`.
fn product<T, I>(
    a: Array<T, 3>,
    b: Array<T, 3>,
    c: ArrayMut<T, 3>,
    [tm, tn, tk]: [usize; 3],
    [batch, i, j]: [Scalar<i32>; 3],
) where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, f32>,
    f32: CastTo<T>,
{
    let acc = ct::for_each(..a.num_tiles(2, [1, tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |k, acc| {
        let a = a.load([batch, i, k], [1, tm, tk]).squeeze(0).cast::<I>();
        let b = b.load([batch, k, j], [1, tk, tn]).squeeze(0).cast::<I>();
        ct::mma(a, b, acc)
    });
    c.store([batch, i, j], acc.cast::<T>().reshape([1, tm, tn]));
}

/// A block makes one tile of one product.
pub fn batched_matmul<T, I>(a: Array<T, 3>, b: Array<T, 3>, c: ArrayMut<T, 3>, tile: [usize; 3])
where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, f32>,
    f32: CastTo<T>,
{
    product::<T, I>(a, b, c, tile, [ct::bid(2), ct::bid(0), ct::bid(1)]);
}

/// As many blocks as run at a time; each makes one tile after another, product by product.
pub fn batched_matmul_persistent<T, I>(a: Array<T, 3>, b: Array<T, 3>, c: ArrayMut<T, 3>, tile: [usize; 3])
where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, f32>,
    f32: CastTo<T>,
{
    let [batches, rows, columns] = [0, 1, 2].map(|axis| c.num_tiles(axis, [1, tile[0], tile[1]]));
    let each = rows * columns;
    ct::for_each(ct::range(ct::bid(0), batches * each).step(ct::num_blocks(0)), (), |index, ()| {
        let place = index % each;
        product::<T, I>(a, b, c, tile, [index / each, place % rows, place / rows]);
    });
}

fn run_as<T, I>(cli: &Cli, tolerance: f64) -> Result<()>
where
    T: Element + CastTo<I> + Default,
    I: Element + MmaInput<I, f32>,
    f32: CastTo<T>,
{
    let options = &cli.options;
    let device = options.device()?;
    let batch = options.size(cli.batch, &device, 8, 3);
    let m = options.size(cli.m, &device, 1024, 200);
    let n = options.size(cli.n, &device, 2048, 100);
    let k = options.size(cli.k, &device, 512, 150);
    let tile = [cli.tile[0], cli.tile[1], cli.tile[2]];
    let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1]), batch];
    let (kernel, persistent) = (batched_matmul::<T, I>, batched_matmul_persistent::<T, I>);
    if options.emits() {
        let spec = |rows, columns| ct::ArraySpec::new([batch, rows, columns]);
        let arguments = (spec(m, k), spec(k, n), spec(m, n).mutable(), Constant(tile));
        return if cli.persistent { options.emit(persistent, arguments) } else { options.emit(kernel, arguments) };
    }
    let blocks = grid.iter().product::<usize>().min(device.num_multiprocessors() * options.blocks_each());
    let (host_a, host_b) = (normal(1, batch * m * k, T::from_f64), normal(2, batch * k * n, T::from_f64));
    let mut rotation = Rotation::new(device, size_of::<T>() * batch * (m * k + k * n + m * n), || {
        let a = device.array(&host_a, [batch, m, k])?;
        Ok((a, device.array(&host_b, [batch, k, n])?, device.zeros::<T, 3>([batch, m, n])?))
    })?;
    let time = rotation.time(options, |(a, b, c)| {
        let arguments = (&*a, &*b, c, Constant(tile));
        match cli.persistent {
            true => options.launch(blocks).launch(persistent, arguments),
            false => options.launch(grid).launch(kernel, arguments),
        }
    })?;
    let result = rotation.first().2.to_vec()?;
    let rows = sample_rows(m);
    let mut want = Vec::new();
    for (a, b) in host_a.chunks(m * k).zip(host_b.chunks(k * n)) {
        want.extend(expected_rows(a, b, k, n, &rows));
    }
    let position = |i: usize| {
        let (matrix, row, column) = (i / (rows.len() * n), i / n % rows.len(), i % n);
        (matrix * m + rows[row]) * n + column
    };
    let error = largest_error(want.len(), |i| result[position(i)].to_f64(), |i| want[i]);
    let name = cli.element.to_possible_value().expect("no type is hidden");
    Report {
        what: format!(
            "batched_matmul {} {batch}x{m}x{n}x{k}, tile {}x{}x{}",
            name.get_name(),
            tile[0],
            tile[1],
            tile[2]
        ),
        device: device.name().to_owned(),
        time,
        work: Work::Flops(2.0 * (batch * m) as f64 * n as f64 * k as f64),
        error,
        tolerance,
        relative_to: "the magnitude of the terms",
    }
    .finish()
}

/// Does what the options say.
pub fn run(cli: &Cli) -> Result<()> {
    // Half a unit in the last place of tf32 inputs or of the result, and what f32 sums lose.
    match cli.element {
        ElementType::F16 => run_as::<f16, f16>(cli, 2f64.powi(-11) + 2e-6),
        ElementType::Tf32 => run_as::<f32, tf32>(cli, 2.0 * 2f64.powi(-11) + 2e-6),
    }
}

fn main() -> Result<()> {
    run(&Cli::parse())
}
