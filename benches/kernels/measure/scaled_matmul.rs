//! Product of 8-bit floats with scales for blocks of them:
//! `cargo bench --bench kernels -- scaled_matmul`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::scaled_matmul::{BLOCK, scaled_matmul};
use super::harness::{Options, Report, Rotation, Work, expected_rows, largest_error, normal, sample_rows};

options! {
    /// Multiplies an m x k with a k x n matrix of e4m3. In each 128 terms a row of the first has a
    /// scale, and 128 columns of the second.
    {
        /// Rows of the result.
        "m" m: Option<usize> = None,
        /// Columns of the result.
        "n" n: Option<usize> = None,
        /// Length of the sums.
        "k" k: Option<usize> = None,
        /// Rows and columns of a tile; of columns a multiple of 64.
        "tile" tile: [usize; 2] = [128, 128],
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    let device = options.device()?;
    let size = |given| options.size(given, &device, 8192, 256);
    let (m, n, k) = (size(cli.m), size(cli.n), size(cli.k));
    let tile = cli.tile;
    anyhow::ensure!(
        tile[1].is_multiple_of(BLOCK / 2),
        "--tile {} {}: columns are a multiple of {}",
        tile[0],
        tile[1],
        BLOCK / 2
    );
    let extents = Constant(tile);
    let (of_a, of_b) = ([k.div_ceil(BLOCK), m], [k.div_ceil(BLOCK), n.div_ceil(BLOCK)]);
    if options.emits() {
        let (a, b) = (ct::ArraySpec::new([m, k]), ct::ArraySpec::new([k, n]).strides([1, k])?);
        let scales = (ct::ArraySpec::new(of_a), ct::ArraySpec::new(of_b));
        return options.emit(scaled_matmul, ((a, b), scales, ct::ArraySpec::new([m, n]).mutable(), extents));
    }
    let tiles = m.div_ceil(tile[0]) * n.div_ceil(tile[1]);
    let blocks = tiles.min(device.num_multiprocessors() * options.blocks_each());
    let positive = |x: f64| (x.abs() + 0.5) as f32;
    let [rows, columns] = [(3, of_a), (4, of_b)].map(|(seed, shape)| normal(seed, shape.iter().product(), positive));
    let (host_a, host_b) = (normal(1, m * k, f8e4m3fn::from_f64), normal(2, k * n, f8e4m3fn::from_f64));
    let (device_rows, device_columns) = (device.array(&rows, of_a)?, device.array(&columns, of_b)?);
    let mut rotation = Rotation::new(device, m * k + k * n + 2 * m * n, || {
        let mut b = device.zeros([n, k])?;
        b.view_mut().transpose()?.copy_from(&host_b)?;
        Ok((device.array(&host_a, [m, k])?, b, device.zeros([m, n])?))
    })?;
    let time = rotation.time(options, |(a, b, c)| {
        let arguments = ((&*a, b.transpose()?), (&device_rows, &device_columns), c, extents);
        options.launch(blocks).launch(scaled_matmul, arguments)
    })?;
    let result = rotation.first().2.to_vec()?;
    let sampled = sample_rows(m);
    let scaled = |at: usize, columns: usize, scale: &dyn Fn(usize, usize) -> f32, x: f8e4m3fn| {
        x.to_f64() * f64::from(scale(at / columns, at % columns))
    };
    let a = (0..m * k).into_par_iter().map(|at| scaled(at, k, &|i, l| rows[l / BLOCK * m + i], host_a[at]));
    let b = (0..k * n)
        .into_par_iter()
        .map(|at| scaled(at, n, &|l, j| columns[l / BLOCK * of_b[1] + j / BLOCK], host_b[at]));
    let want = expected_rows(&a.collect::<Vec<f64>>(), &b.collect::<Vec<f64>>(), k, n, &sampled);
    let error = largest_error(want.len(), |i| result[sampled[i / n] * n + i % n].to_f64(), |i| want[i]);
    Report {
        what: format!("scaled_matmul e4m3 {m}x{n}x{k}, tile {}x{}", tile[0], tile[1]),
        device: device.name().to_owned(),
        time,
        work: Work::Flops(2.0 * m as f64 * n as f64 * k as f64),
        error,
        // Half a unit in the last place of the result, and the error of tensor cores in a block.
        tolerance: 2f64.powi(-8) + 2f64.powi(-10),
        relative_to: "the magnitude of the terms",
    }
    .finish()
}
