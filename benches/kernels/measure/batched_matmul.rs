//! Product of many pairs of matrices: `cargo bench --bench kernels -- batched_matmul`.

use anyhow::Result;
use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;

use super::examples::batched_matmul::{batched_matmul, batched_matmul_persistent};
use super::harness::{Options, Report, Rotation, Work, expected_rows, largest_error, normal, sample_rows};

options! {
    /// Multiplies `batch` pairs of an m x k with a k x n matrix.
    {
        /// Element type of the arrays; tf32 are f32 arrays multiplied in tf32.
        "type" element: ElementType = ElementType::Tf32,
        /// Number of products.
        "batch" batch: Option<usize> = None,
        /// Rows of a result.
        "m" m: Option<usize> = None,
        /// Columns of a result.
        "n" n: Option<usize> = None,
        /// Length of the sums.
        "k" k: Option<usize> = None,
        /// Extents of a tile: rows, columns, and how much of the sums is taken at a time.
        "tile" tile: [usize; 3] = [256, 128, 32],
        /// One block for each multiprocessor, which computes one tile after another, instead of one
        /// tile a block.
        "persistent" persistent: bool = false,
    }
}

choice! {
    /// Element types.
    ElementType {
        F16 = "f16",
        Tf32 = "tf32",
    }
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
    let tile = cli.tile;
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
    Report {
        what: format!(
            "batched_matmul {} {batch}x{m}x{n}x{k}, tile {}x{}x{}",
            cli.element.name(),
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

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    // Half a unit in the last place of tf32 inputs or of the result, and the error of f32 sums.
    match cli.element {
        ElementType::F16 => run_as::<f16, f16>(cli, 2f64.powi(-11) + 2e-6),
        ElementType::Tf32 => run_as::<f32, tf32>(cli, 2.0 * 2f64.powi(-11) + 2e-6),
    }
}
