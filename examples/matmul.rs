//! Matrix product: `cargo run --release --example matmul -- --type bf16`.

mod harness;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use cutlet as ct;
use cutlet::element::{CastTo, MmaInput, Number};
use cutlet::prelude::*;
use harness::{Options, Report, Rotation, Work, expected_rows, largest_error, normal, sample_rows};

/// Multiplies an m x k with a k x n matrix.
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
    /// As many blocks as the GPU has multiprocessors, each making one tile after another, instead of one tile a block.
    #[arg(long)]
    persistent: bool,
    /// The second matrix lies column by column in memory, as 8-bit floats are multiplied fastest.
    #[arg(long)]
    columns: bool,
    /// Sums of 8-bit floats may keep fewer bits than f32 has; implies `--persistent`.
    #[arg(long)]
    fast_acc: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum ElementType {
    F16,
    Bf16,
    /// 8-bit floats, with a result of f16.
    E4m3,
    /// 8-bit integers, with a result of i32.
    I8,
    Tf32,
    F32,
    F64,
}

/// Rows of tiles that are gone through together.
const GROUP: i32 = 8;

/// The row and column of the tile of the result that comes `index`-th. A group of rows of tiles is gone through
/// column by column, so that tiles that are made at the same time share what they read.
fn place_in(index: Scalar<i32>, rows: Scalar<i32>, columns: Scalar<i32>, group: i32) -> (Scalar<i32>, Scalar<i32>) {
    let in_group = columns * group;
    let first = index / in_group * group;
    let height = (rows - first).min(group);
    (first + index % in_group % height, index % in_group / height)
}

/// [`place_in`] so that neighbours share the longer side of their tiles: it is what blocks that run in pairs fetch
/// together.
fn place(index: Scalar<i32>, [rows, columns]: [Scalar<i32>; 2], [tm, tn, _]: [usize; 3]) -> (Scalar<i32>, Scalar<i32>) {
    if tm > tn {
        let (j, i) = place_in(index, columns, rows, 2 * GROUP);
        return (i, j);
    }
    place_in(index, rows, columns, GROUP)
}

/// One tile of the result: arrays of `T`, multiplied as `I`, added up as `Acc` (`FAST`: perhaps with fewer bits),
/// stored as `O`.
fn product<T, I, Acc, O, const FAST: bool>(
    a: Array<T, 2>,
    b: Array<T, 2>,
    c: ArrayMut<O, 2>,
    [tm, tn, tk]: [usize; 3],
    (i, j): (Scalar<i32>, Scalar<i32>),
) where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, Acc>,
    Acc: Number + CastTo<O>,
    O: Element,
{
    let acc = ct::for_each(..a.num_tiles(1, [tm, tk]), ct::zeros::<Acc, 2>([tm, tn]), |k, acc| {
        let a = a.load([i, k], [tm, tk]).cast::<I>();
        let b = b.load([k, j], [tk, tn]).cast::<I>();
        if FAST { ct::mma_fast_acc(a, b, acc) } else { ct::mma(a, b, acc) }
    });
    c.store([i, j], acc.cast::<O>());
}

/// One tile of the result a block.
pub fn matmul<T, I, Acc, O>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<O, 2>, tile: [usize; 3])
where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, Acc>,
    Acc: Number + CastTo<O>,
    O: Element,
{
    let tiles = [0, 1].map(|axis| c.num_tiles(axis, [tile[0], tile[1]]));
    product::<T, I, Acc, O, false>(a, b, c, tile, place(ct::bid(0), tiles, tile));
}

/// As many blocks as run at a time; each makes one tile after another.
fn persistent<T, I, Acc, O, const FAST: bool>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<O, 2>, tile: [usize; 3])
where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, Acc>,
    Acc: Number + CastTo<O>,
    O: Element,
{
    let tiles = [0, 1].map(|axis| c.num_tiles(axis, [tile[0], tile[1]]));
    ct::for_each(ct::range(ct::bid(0), tiles[0] * tiles[1]).step(ct::num_blocks(0)), (), |index, ()| {
        product::<T, I, Acc, O, FAST>(a, b, c, tile, place(index, tiles, tile));
    });
}

/// As many blocks as run at a time; each makes one tile after another.
pub fn matmul_persistent<T, I, Acc, O>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<O, 2>, tile: [usize; 3])
where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, Acc>,
    Acc: Number + CastTo<O>,
    O: Element,
{
    persistent::<T, I, Acc, O, false>(a, b, c, tile);
}

/// [`matmul_persistent`] with sums of 8-bit floats in as many bits as the tensor cores like.
pub fn matmul_fast_acc<T, I, Acc, O>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<O, 2>, tile: [usize; 3])
where
    T: Element + CastTo<I>,
    I: Element + MmaInput<I, Acc>,
    Acc: Number + CastTo<O>,
    O: Element,
{
    persistent::<T, I, Acc, O, true>(a, b, c, tile);
}

fn run_as<T, I, Acc, O>(cli: &Cli, tile: [usize; 3], input_error: f64, output_error: f64) -> Result<()>
where
    T: Element + CastTo<I> + Default,
    I: Element + MmaInput<I, Acc>,
    Acc: Number + CastTo<O>,
    O: Element,
{
    let options = &cli.options;
    let device = options.device()?;
    let size = |given| options.size(given, &device, 4096, 256);
    let (m, n, k) = (size(cli.m), size(cli.n), size(cli.k));
    let tile = cli.tile.as_ref().map_or(tile, |tile| [tile[0], tile[1], tile[2]]);
    let tiles = m.div_ceil(tile[0]) * n.div_ceil(tile[1]);
    // Function items have types of their own; one pointer type would be traced at every launch.
    let (kernel, persistent) = (matmul::<T, I, Acc, O>, matmul_persistent::<T, I, Acc, O>);
    let fast = matmul_fast_acc::<T, I, Acc, O>;
    if options.emits() {
        let (a, c) = (ct::ArraySpec::new([m, k]), ct::ArraySpec::new([m, n]).mutable());
        let b = ct::ArraySpec::new([k, n]);
        let b = if cli.columns { b.strides([1, k])? } else { b };
        let arguments = (a, b, c, Constant(tile));
        return match (cli.fast_acc, cli.persistent) {
            (true, _) => options.emit(fast, arguments),
            (false, true) => options.emit(persistent, arguments),
            (false, false) => options.emit(kernel, arguments),
        };
    }
    let blocks = if cli.persistent || cli.fast_acc {
        tiles.min(device.num_multiprocessors() * options.blocks_each())
    } else {
        tiles
    };
    let (host_a, host_b) = (normal(1, m * k, T::from_f64), normal(2, k * n, T::from_f64));
    let bytes = size_of::<T>() * (m * k + k * n) + size_of::<O>() * m * n;
    let mut rotation = Rotation::new(device, bytes, || {
        let mut b = device.zeros([k, n])?.into_shape(if cli.columns { [n, k] } else { [k, n] })?;
        let mut view = b.view_mut();
        view = if cli.columns { view.transpose()? } else { view };
        view.copy_from(&host_b)?;
        Ok((device.array(&host_a, [m, k])?, b, device.zeros::<O, 2>([m, n])?))
    })?;
    let time = rotation.time(options, |(a, b, c)| {
        let b = if cli.columns { b.transpose()? } else { b.view() };
        let arguments = (&*a, b, c, Constant(tile));
        let launch = options.launch(blocks);
        match (cli.fast_acc, cli.persistent) {
            (true, _) => launch.launch(fast, arguments),
            (false, true) => launch.launch(persistent, arguments),
            (false, false) => launch.launch(kernel, arguments),
        }
    })?;
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
        ElementType::F16 => run_as::<f16, f16, f32, f16>(cli, [128, 128, 32], exact, 2f64.powi(-11) + sums),
        ElementType::Bf16 => run_as::<bf16, bf16, f32, bf16>(cli, [128, 128, 32], exact, 2f64.powi(-8) + sums),
        // Tensor cores keep about 13 bits of a sum of products of 8-bit floats: of runs of it, or of all.
        ElementType::E4m3 => run_as::<f8e4m3fn, f8e4m3fn, f32, f16>(cli, [128, 128, 128], exact, 2f64.powi(-10)),
        ElementType::I8 => run_as::<i8, i8, i32, i32>(cli, [128, 128, 128], exact, exact),
        ElementType::Tf32 => run_as::<f32, tf32, f32, f32>(cli, [256, 128, 32], 2f64.powi(-11), sums),
        ElementType::F32 => run_as::<f32, f32, f32, f32>(cli, [64, 64, 16], exact, sums),
        ElementType::F64 => run_as::<f64, f64, f64, f64>(cli, [64, 64, 16], exact, 4e-15),
    }
}

fn main() -> Result<()> {
    run(&Cli::parse())
}
