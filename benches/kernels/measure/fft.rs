//! Fourier transforms of rows of complex numbers (c64: two f32):
//! `cargo bench --bench kernels -- fft`.
//!
//! `--batch 4096 --n 256` are the defaults, also those of the comparison with other libraries;
//! `--n` takes powers of two up to 8192. `--inverse` turns the other way.

use anyhow::{Result, ensure};
use cutlet as ct;
use cutlet::math::{Interleaved, c64};
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::fft::fft;
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// Transforms each row of a batch x n array of complex numbers.
    {
        /// Rows.
        "batch" batch: Option<usize> = None,
        /// Points of each transform.
        "n" n: usize = 256,
        /// The inverse transform.
        "inverse" inverse: bool = false,
        /// Rows of a block.
        "rows" rows: Option<usize> = None,
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let n = cli.n;
    ensure!(n.is_power_of_two() && n <= 8192, "--n {n}: a power of two of at most 8192");
    let rows = cli.rows.unwrap_or((2048 / n).max(1));
    let options = &cli.options;
    let device = options.device()?;
    let batch = options.size(cli.batch, &device, 4096, 16);
    let constants = (Constant([rows, n]), Constant(cli.inverse));
    if options.emits() {
        let array = ct::ArraySpec::new([batch, 2 * n]);
        return options.emit(fft, (Interleaved(array), Interleaved(array.mutable()), constants.0, constants.1));
    }
    let parts = normal(1, 2 * batch * n, |x| x as f32);
    let host: Vec<c64> = parts.chunks_exact(2).map(|pair| c64::new(pair[0], pair[1])).collect();
    let bytes = 2 * size_of::<c64>() * batch * n;
    let mut rotation = Rotation::new(device, bytes, || {
        Ok((device.complex(&host, [batch, n])?, device.complex_zeros::<f32, 2>([batch, n])?))
    })?;
    let grid = batch.div_ceil(rows);
    let time = rotation.time(options, |(x, y)| options.launch(grid).launch(fft, (&*x, y, constants.0, constants.1)))?;
    let result = rotation.first().1.to_vec()?;
    let expected: Vec<Vec<Expected>> =
        (0..batch).into_par_iter().map(|i| dft(&host[i * n..][..n], cli.inverse)).collect();
    let error = largest_error(
        2 * batch * n,
        |at| {
            let z = result[at / 2];
            f64::from(if at % 2 == 0 { z.re } else { z.im })
        },
        |at| expected[at / 2 / n][at % (2 * n)],
    );
    Report {
        what: format!("fft c64 {batch}x{n}{}, {rows} rows a block", if cli.inverse { ", inverse" } else { "" }),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(bytes as f64),
        error,
        tolerance: 2e-6,
        relative_to: "the root mean square",
    }
    .finish()
}

/// The transform of one row in f64, halving it again and again: the parts one after another.
fn dft(row: &[c64], inverse: bool) -> Vec<Expected> {
    fn halves(row: &[[f64; 2]], sign: f64) -> Vec<[f64; 2]> {
        let n = row.len();
        if n == 1 {
            return row.to_vec();
        }
        let part = |first: usize| halves(&row.iter().skip(first).step_by(2).copied().collect::<Vec<_>>(), sign);
        let (even, odd) = (part(0), part(1));
        let mut result = vec![[0.0; 2]; n];
        for k in 0..n / 2 {
            let (sine, cosine) = (sign * std::f64::consts::TAU * k as f64 / n as f64).sin_cos();
            let [re, im] = odd[k];
            let turned = [re * cosine - im * sine, re * sine + im * cosine];
            for part in 0..2 {
                result[k][part] = even[k][part] + turned[part];
                result[k + n / 2][part] = even[k][part] - turned[part];
            }
        }
        result
    }
    let numbers: Vec<[f64; 2]> = row.iter().map(|z| [z.re.into(), z.im.into()]).collect();
    let factor = if inverse { 1.0 / row.len() as f64 } else { 1.0 };
    let values: Vec<f64> =
        halves(&numbers, if inverse { 1.0 } else { -1.0 }).into_iter().flatten().map(|part| part * factor).collect();
    let scale = (values.iter().map(|part| part * part).sum::<f64>() / row.len() as f64).sqrt();
    values.into_iter().map(|value| Expected { value, scale }).collect()
}
