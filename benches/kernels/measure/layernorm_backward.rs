//! Gradients of layer normalisation: `cargo bench --bench kernels -- layernorm_backward`.

use anyhow::Result;
use cutlet::prelude::*;
use cutlet::{ArraySpec, DeviceArray};
use rayon::prelude::*;

use super::examples::layernorm_backward::{columns, rows};
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// Gradients of the rows' normalisation (f32) with respect to its input, its weight and its
    /// bias.
    ///
    /// Each block processes rows at a distance of the number of blocks and keeps its part of the
    /// sums over rows in registers. A second kernel adds the parts, always in the same order.
    {
        /// Rows.
        "m" m: Option<usize> = None,
        /// Columns; a tile holds a whole row.
        "n" n: Option<usize> = None,
        /// Blocks of the first kernel.
        "blocks" blocks: usize = 264,
        /// Rows and columns of the tiles in which the second kernel adds up.
        "tile" tile: [usize; 2] = [64, 32],
        /// The kernel whose code is emitted.
        "part" part: Part = Part::Rows,
    }
}

choice! {
    /// The kernels.
    Part {
        Rows = "rows",
        Columns = "columns",
    }
}

const EPSILON: f64 = 1e-5;

/// Arrays of one run.
struct Set {
    dy: DeviceArray<f32, 2>,
    x: DeviceArray<f32, 2>,
    dx: DeviceArray<f32, 2>,
    dweight_parts: DeviceArray<f32, 2>,
    dbias_parts: DeviceArray<f32, 2>,
    dweight: DeviceArray<f32, 1>,
    dbias: DeviceArray<f32, 1>,
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let Cli { options, blocks, .. } = cli;
    let (blocks, tile) = (*blocks, cli.tile);
    let device = options.device()?;
    let m = options.size(cli.m, &device, 4096, 256);
    let n = options.size(cli.n, &device, 4096, 512);
    if options.emits() {
        let (matrix, parts, stripe) = (ArraySpec::new([m, n]), ArraySpec::new([blocks, n]), ArraySpec::new([n]));
        let (vector, column) = (ArraySpec::new([n]), ArraySpec::new([m]));
        let outputs = (matrix.mutable(), parts.mutable(), parts.mutable());
        return match cli.part {
            Part::Rows => options
                .emit(rows, (matrix, matrix, vector, column, column, outputs.0, outputs.1, outputs.2, Constant(n))),
            Part::Columns => options.emit(columns, (parts, parts, stripe.mutable(), stripe.mutable(), Constant(tile))),
        };
    }
    let (dy, x, weight) = (normal(1, m * n, |x| x as f32), normal(2, m * n, |x| x as f32), normal(3, n, |x| x as f32));
    let (mean, rstd): (Vec<f32>, Vec<f32>) = x.par_chunks(n).map(moments).unzip();
    let device_weight = device.array(&weight, [n])?;
    let (device_mean, device_rstd) = (device.array(&mean, [m])?, device.array(&rstd, [m])?);
    let mut rotation = Rotation::new(device, 12 * m * n, || {
        Ok(Set {
            dy: device.array(&dy, [m, n])?,
            x: device.array(&x, [m, n])?,
            dx: device.zeros([m, n])?,
            dweight_parts: device.zeros([blocks, n])?,
            dbias_parts: device.zeros([blocks, n])?,
            dweight: device.zeros([n])?,
            dbias: device.zeros([n])?,
        })
    })?;
    let time = rotation.time(options, |set| {
        let Set { dy, x, dx, dweight_parts, dbias_parts, dweight, dbias } = set;
        options.launch([blocks]).launch(
            rows,
            (
                &*dy,
                &*x,
                &device_weight,
                &device_mean,
                &device_rstd,
                dx,
                &mut *dweight_parts,
                &mut *dbias_parts,
                Constant(n),
            ),
        )?;
        options
            .launch([n.div_ceil(tile[1])])
            .launch(columns, (&*dweight_parts, &*dbias_parts, dweight, dbias, Constant(tile)))
    })?;
    let set = rotation.first();
    let expected = Expectation::of(&dy, &x, &weight, &mean, &rstd);
    let errors = [
        error(&set.dx.to_vec()?, &expected.dx),
        error(&set.dweight.to_vec()?, &expected.dweight),
        error(&set.dbias.to_vec()?, &expected.dbias),
    ];
    Report {
        what: format!("layernorm backward f32 {m}x{n}, {blocks} blocks"),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(12.0 * (m * n) as f64),
        error: errors.into_iter().fold(0.0, |a, b| if a.is_nan() || a > b { a } else { b }),
        tolerance: 4e-6,
        relative_to: "the magnitude of the terms",
    }
    .finish()
}

/// Mean and reciprocal standard deviation of a row, as the forward pass keeps them.
fn moments(row: &[f32]) -> (f32, f32) {
    let mean = row.iter().copied().map(f64::from).sum::<f64>() / row.len() as f64;
    let variance = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / row.len() as f64;
    (mean as f32, (1.0 / (variance + EPSILON).sqrt()) as f32)
}

fn error(result: &[f32], expected: &[Expected]) -> f64 {
    largest_error(result.len(), |i| result[i].into(), |i| expected[i])
}

/// The gradients in f64; errors are measured against the magnitudes of the terms that they are sums
/// of.
struct Expectation {
    dx: Vec<Expected>,
    dweight: Vec<Expected>,
    dbias: Vec<Expected>,
}

impl Expectation {
    fn of(dy: &[f32], x: &[f32], weight: &[f32], mean: &[f32], rstd: &[f32]) -> Expectation {
        let n = weight.len();
        let normalised = |i: usize| (f64::from(x[i]) - f64::from(mean[i / n])) * f64::from(rstd[i / n]);
        let dx = (0..mean.len()).into_par_iter().flat_map_iter(|row| {
            let scaled = move |j: usize| f64::from(dy[row * n + j]) * f64::from(weight[j]);
            let along = (0..n).map(|j| scaled(j) * normalised(row * n + j)).sum::<f64>() / n as f64;
            let level = (0..n).map(scaled).sum::<f64>() / n as f64;
            let scale = f64::from(rstd[row]);
            (0..n).map(move |j| {
                let term = normalised(row * n + j) * along;
                let value = (scaled(j) - level - term) * scale;
                Expected { value, scale: (scaled(j).abs() + 1.0 + term.abs()) * scale }
            })
        });
        let sum = |term: &(dyn Fn(usize) -> f64 + Sync), j: usize| {
            let terms = || (0..mean.len()).map(|row| term(row * n + j));
            Expected { value: terms().sum(), scale: terms().map(f64::abs).sum() }
        };
        let weighted = |i: usize| f64::from(dy[i]) * normalised(i);
        let plain = |i: usize| f64::from(dy[i]);
        Expectation {
            dx: dx.collect(),
            dweight: (0..n).into_par_iter().map(|j| sum(&weighted, j)).collect(),
            dbias: (0..n).into_par_iter().map(|j| sum(&plain, j)).collect(),
        }
    }
}
