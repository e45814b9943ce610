//! Product with packed weights of 1 to 8 bits: `cargo run --release --example quantized_matmul -- --type f6e3m2`.

mod harness;

use anyhow::{Result, bail, ensure};
use clap::Parser;
use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{Narrow, NarrowFormat, PackedArray, PackedSpec};
use harness::{Options, Report, Rotation, Work, expected_rows, largest_error, normal, sample_rows};
use rayon::prelude::*;

/// Multiplies an m x k matrix of f16 with a k x n matrix of narrow weights; each column has a scale for so many rows of
/// them as a group has.
#[derive(Parser, Debug)]
pub struct Cli {
    #[command(flatten)]
    options: Options,
    /// Type of the weights: u1, i2 to i7, u4, f3e1m1, f4e2m1, f5e2m2, f6e3m2, f7e3m3, i8, f8e4m3fn.
    #[arg(long = "type", default_value = "i4")]
    element: String,
    /// Rows of the result.
    #[arg(long)]
    m: Option<usize>,
    /// Columns of the result.
    #[arg(long)]
    n: Option<usize>,
    /// Length of the sums.
    #[arg(long)]
    k: Option<usize>,
    /// Extents of a tile: rows, columns, and terms of the sums.
    #[arg(long, num_args = 3, default_values_t = [128, 128, 64])]
    tile: Vec<usize>,
    /// Weights of a column that share a scale, a multiple of the tile's. Default: as many as a tile has.
    #[arg(long)]
    group: Option<usize>,
}

/// What unsigned codes are counted from: the middle of their range.
fn center<F: Narrow>() -> f64 {
    match F::FORMAT {
        NarrowFormat::UInt(bits) => f64::from((1u32 << bits) - 1) / 2.0,
        _ => 0.0,
    }
}

/// Extents of a tile of the result and of the sums, and how many weights of a column share a scale: some tiles of them.
pub type Extents = ([usize; 3], usize);

/// A tile of weights, as numbers.
pub fn unpacked<F: Narrow>(
    weights: PackedArray<F, 2>,
    scales: Array<f16, 2>,
    (k, j): (Scalar<i32>, Scalar<i32>),
    ([_, tn, tk], group): Extents,
) -> Tile<f16, 2> {
    let codes = weights.load((k, j), [tk, tn]).cast::<f16>();
    let codes = if center::<F>() == 0.0 { codes } else { codes - center::<F>() };
    codes * scales.load((k / (group / tk), j), [1, tn])
}

/// A tile of the result a block.
pub fn quantized_matmul<F: Narrow>(
    x: Array<f16, 2>,
    weights: PackedArray<F, 2>,
    scales: Array<f16, 2>,
    y: ArrayMut<f16, 2>,
    extents: Extents,
) {
    let ([tm, tn, tk], _) = extents;
    let (i, j) = (ct::bid(0), ct::bid(1));
    let sum = ct::for_each(..x.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |k, sum| {
        ct::mma(x.load((i, k), [tm, tk]), unpacked(weights, scales, (k, j), extents), sum)
    });
    y.store((i, j), sum.cast::<f16>());
}

/// Weights by columns: of `group` below each other the scale, such that the largest is the largest code, and the codes.
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
    let tile = [cli.tile[0], cli.tile[1], cli.tile[2]];
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
        // Half a unit in the last place of each weight and of the result, and what f32 sums lose.
        tolerance: 2.0 * 2f64.powi(-11) + 2e-6,
        relative_to: "the magnitude of the terms",
    }
    .finish()
}

/// Does what the options say.
pub fn run(cli: &Cli) -> Result<()> {
    macro_rules! by_name {
        ($($name:ident)+) => {
            match cli.element.as_str() {
                $(stringify!($name) => run_as::<ct::$name>(cli),)+
                "i8" => run_as::<i8>(cli),
                other => bail!("there are no weights of type {other} here"),
            }
        };
    }
    by_name!(u1 i2 i3 i4 u4 i5 i6 i7 f3e1m1 f4e2m1 f5e2m2 f6e3m2 f7e3m3 f8e4m3fn)
}

fn main() -> Result<()> {
    run(&Cli::parse())
}
