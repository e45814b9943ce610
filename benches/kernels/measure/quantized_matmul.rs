//! Product with packed weights of 1 to 8 bits: `cargo bench --bench kernels -- quantized_matmul`.

use anyhow::{Result, bail, ensure};
use cutlet as ct;
use cutlet::packed::{Narrow, NarrowFormat, PackedSpec};
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::quantized_matmul::{center, quantized_matmul};
use super::harness::{Options, Report, Rotation, Work, expected_rows, largest_error, normal, sample_rows};

options! {
    /// Multiplies an m x k matrix of f16 with a k x n matrix of narrow weights; each column has a
    /// scale for each group of rows.
    {
        /// Type of the weights: u1, i2 to i7, u4, f3e1m1, f4e2m1, f5e2m2, f6e3m2, f7e3m3, i8,
        /// f8e4m3fn.
        "type" element: String = "i4".to_string(),
        /// Rows of the result.
        "m" m: Option<usize> = None,
        /// Columns of the result.
        "n" n: Option<usize> = None,
        /// Length of the sums.
        "k" k: Option<usize> = None,
        /// Extents of a tile: rows, columns, and terms of the sums.
        "tile" tile: [usize; 3] = [256, 128, 64],
        /// Weights of a column that share a scale, a multiple of the rows of a tile. Default: the
        /// rows of a tile.
        "group" group: Option<usize> = None,
    }
}

/// Weights by columns: of `group` below each other the scale, such that the largest is the largest
/// code, and the codes.
fn quantize<F: Narrow>(weights: &[f64], [k, n]: [usize; 2], group: usize) -> (Vec<F>, Vec<f16>) {
    let most = (0..=255u8).map(|code| F::from_code(code).to_value()).filter(|x| x.is_finite());
    let most = most.fold(0.0, |most: f64, x| most.max(x - center::<F>()));
    let largest = |(index, scale): (usize, &mut f16)| {
        let (first, column) = (index / n * group, index % n);
        let rows = first..(first + group).min(k);
        let largest = rows.map(|row| weights[row * n + column].abs()).fold(0.0, f64::max);
        *scale = f16::from_f64(largest / most);
    };
    let mut scales = vec![f16::ZERO; k.div_ceil(group) * n];
    scales.par_iter_mut().enumerate().for_each(largest);
    let is_float = matches!(F::FORMAT, NarrowFormat::Float { .. } | NarrowFormat::Element(_));
    let code = |index: usize| {
        let value = weights[index] / scales[index / n / group * n + index % n].to_f64() + center::<F>();
        F::from_value(if is_float { value } else { value.round_ties_even() })
    };
    ((0..k * n).into_par_iter().map(code).collect(), scales)
}

fn run_as<F: Narrow>(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    let device = options.device()?;
    let size = |given| options.size(given, &device, 4096, 192);
    let (m, n, k) = (size(cli.m), size(cli.n), size(cli.k));
    let tile = cli.tile;
    let group = cli.group.unwrap_or(tile[2]);
    ensure!(group > 0 && group.is_multiple_of(tile[2]), "--group {group}: no multiple of the tile's {}", tile[2]);
    let extents = Constant((tile, group));
    let [groups, grid] = [[k.div_ceil(group), n], [m.div_ceil(tile[0]), n.div_ceil(tile[1])]];
    if options.emits() {
        let (x, scales) = (ct::ArraySpec::new([m, k]), ct::ArraySpec::new(groups));
        let y = ct::ArraySpec::new([m, n]).mutable();
        return options.emit(quantized_matmul::<F>, (x, PackedSpec::new([k, n]), scales, y, extents));
    }
    let host_x = normal(1, m * k, f16::from_f64);
    let (codes, scales) = quantize::<F>(&normal(2, k * n, |x| x), [k, n], group);
    let bytes = 2 * (m * k + m * n + scales.len()) + k * n * F::BITS as usize / 8;
    let mut rotation = Rotation::new(device, bytes, || {
        let weights = device.packed(&codes, [k, n])?;
        Ok((device.array(&host_x, [m, k])?, weights, device.array(&scales, groups)?, device.zeros::<f16, 2>([m, n])?))
    })?;
    let time = rotation.time(options, |(x, weights, scales, y)| {
        options.launch(grid).launch(quantized_matmul::<F>, (&*x, &*weights, &*scales, y, extents))
    })?;
    let result = rotation.first().3.to_vec()?;
    let rows = sample_rows(m);
    let wide: Vec<f64> = host_x.iter().map(|x| x.to_f64()).collect();
    let weight = |i: usize| (codes[i].to_value() - center::<F>()) * scales[i / n / group * n + i % n].to_f64();
    let weights: Vec<f64> = (0..k * n).into_par_iter().map(weight).collect();
    let want = expected_rows(&wide, &weights, k, n, &rows);
    let error = largest_error(want.len(), |i| result[rows[i / n] * n + i % n].to_f64(), |i| want[i]);
    Report {
        what: format!(
            "quantized_matmul {} {m}x{n}x{k}, tile {}x{}x{}, groups of {group}",
            F::NAME,
            tile[0],
            tile[1],
            tile[2]
        ),
        device: device.name().to_owned(),
        time,
        work: Work::Flops(2.0 * m as f64 * n as f64 * k as f64),
        error,
        // Half a unit in the last place of each weight and of the result, and the error of f32
        // sums.
        tolerance: 2.0 * 2f64.powi(-11) + 2e-6,
        relative_to: "the magnitude of the terms",
    }
    .finish()
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    macro_rules! by_name {
        ($($name:ident)+) => {
            match cli.element.as_str() {
                $(stringify!($name) => run_as::<ct::packed::$name>(cli),)+
                "i8" => run_as::<i8>(cli),
                other => bail!("there are no weights of type {other} here"),
            }
        };
    }
    by_name!(u1 i2 i3 i4 u4 i5 i6 i7 f3e1m1 f4e2m1 f5e2m2 f6e3m2 f7e3m3 f8e4m3fn)
}
