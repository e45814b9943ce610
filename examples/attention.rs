//! Attention, forward: `cargo run --release --example attention -- --causal`.

mod harness;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::ops::FloatMode;
use cutlet::prelude::*;
use harness::{Expected, Options, Report, Rotation, Work, largest_error, normal, sample_rows};
use rayon::prelude::*;

/// softmax(Q Kᵀ / √dim) V for arrays of batch x heads x sequence x dim.
#[derive(Parser, Debug)]
pub struct Cli {
    #[command(flatten)]
    options: Options,
    /// Element type of the arrays.
    #[arg(long = "type", value_enum, default_value_t = ElementType::F16)]
    element: ElementType,
    /// Sequences.
    #[arg(long)]
    batch: Option<usize>,
    /// Heads of queries.
    #[arg(long)]
    heads: Option<usize>,
    /// Heads of keys and values: a divisor of the heads. Default: as many.
    #[arg(long)]
    kv_heads: Option<usize>,
    /// Length of the sequences.
    #[arg(long)]
    seq: Option<usize>,
    /// Numbers of a query, key or value: a power of two.
    #[arg(long, default_value_t = 64)]
    dim: usize,
    /// A query sees only the keys up to its own position.
    #[arg(long)]
    causal: bool,
    /// Extents of a tile: queries that a block takes at a time, and keys.
    #[arg(long, num_args = 2)]
    tile: Option<Vec<usize>>,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum ElementType {
    F16,
    Bf16,
}

/// What the code is made for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Form {
    /// Queries that a block takes at a time, and keys.
    pub tile: [usize; 2],
    /// Numbers of a query, key or value.
    pub dim: usize,
    /// Heads of queries that share a head of keys and values.
    pub group: usize,
    /// A query sees only the keys up to its own position.
    pub causal: bool,
}

/// Keys and values that may stand in a GPU's second-level cache, in bytes.
const CACHE_BYTES: usize = 32 << 20;

/// Blocks for so many tiles on a GPU that runs `most` at a time: where all tiles take as long, no more than it takes
/// to be done as soon.
pub fn blocks(tiles: usize, most: usize, causal: bool) -> usize {
    if causal { tiles.min(most) } else { tiles.div_ceil(tiles.div_ceil(most)) }
}

/// How many heads are gone through at a time, with keys and values of elements of `bytes` each: one, since its tiles of
/// queries share them; if it is causal, as many as stay in the cache, so that there are tiles of all lengths.
pub fn section(seq: usize, dim: usize, bytes: usize, causal: bool) -> i32 {
    let heads = CACHE_BYTES / (2 * seq * dim * bytes);
    if causal { heads.clamp(1, 1 << 20) as i32 } else { 1 }
}

/// The head (of those of all sequences) and the tile of queries that come `index`-th if it is causal: section after
/// section of heads, and within a section all heads' last tiles first, since they see most keys.
fn place(
    index: Scalar<i32>,
    section: Scalar<i32>,
    heads: Scalar<i32>,
    tiles: Scalar<i32>,
) -> (Scalar<i32>, Scalar<i32>) {
    let first = index / (section * tiles) * section;
    let (count, index) = ((heads - first).min(section), index - first * tiles);
    (first + index % count, tiles - 1 - index / count)
}

/// Blocks take tiles of queries in turn, each past all keys that it sees. `scale` is log₂ e / √dim, since the
/// exponentials are powers of two.
pub fn attention<T>(
    q: Array<T, 4>,
    k: Array<T, 4>,
    v: Array<T, 4>,
    out: ArrayMut<T, 4>,
    scale: Scalar<f32>,
    section: Scalar<i32>,
    form: Form,
) where
    T: MmaInput<T, f32>,
    f32: CastTo<T>,
{
    let [batch, heads, _, _] = q.shape();
    let tiles = q.num_tiles(2, [1, 1, form.tile[0], form.dim]);
    let all = ct::range(ct::bid(0), batch * heads * tiles).step(ct::num_blocks(0));
    ct::for_each(all, (), |index, ()| {
        let (head, tile) = match form.causal {
            true => place(index, section, batch * heads, tiles),
            false => (index / tiles, index % tiles),
        };
        attend(q, k, v, out, scale, [head / heads, head % heads, tile], form);
    });
}

/// Attention of one tile of queries.
fn attend<T>(
    q: Array<T, 4>,
    k: Array<T, 4>,
    v: Array<T, 4>,
    out: ArrayMut<T, 4>,
    scale: Scalar<f32>,
    [batch, head, tile]: [Scalar<i32>; 3],
    Form { tile: [m, n], dim, group, causal }: Form,
) where
    T: MmaInput<T, f32>,
    f32: CastTo<T>,
{
    let q = q.load((batch, head, tile, 0), [1, 1, m, dim]).reshape([m, dim]);

    // How many keys each row sees; how many tiles every row sees all of, and how many some row sees any of.
    let keys = k.extent(2);
    let (first, last) = (tile * m, (tile * m + m).min(keys));
    let (seen, full, some) = match causal {
        true => (first + ct::arange(m, 1, 1), (first + 1) / n, (last + (n - 1)) / n),
        false => (ct::full([m], keys), keys / n, (keys + (n - 1)) / n),
    };

    let step = |j: Scalar<i32>, (acc, max, sum): (Tile<f32, 2>, Tile<f32, 2>, Tile<f32, 2>)| {
        let k = k.load((batch, head / group, j, 0), [1, 1, n, dim]).reshape([n, dim]);
        let v = v.load((batch, head / group, j, 0), [1, 1, n, dim]).reshape([n, dim]);
        let scores = ct::mma(q, k.transpose(), ct::zeros::<f32, 2>([m, n]));
        let masked = || {
            let key = (j * n + ct::arange(n, 0, 1)).unsqueeze(0);
            ct::select(key.lt(seen.unsqueeze(1)), scores, f32::NEG_INFINITY)
        };
        let scores = ct::if_else(j.lt(full), || scores, masked);
        let flush = FloatMode::new().flush_to_zero();
        let above = max.max(scores.reduce_max(1));
        let weights = scores.fma(scale, -above * scale).exp2_with(flush);
        let fade = ((max - above) * scale).exp2_with(flush);
        let sum = sum * fade + weights.sum(1);
        (ct::mma(weights.cast::<T>(), v, acc * fade), above, sum)
    };
    let start = (ct::zeros([m, dim]), ct::full([m, 1], f32::NEG_INFINITY), ct::zeros([m, 1]));
    let (acc, _, sum) = ct::for_each(..some, start, step);
    out.store((batch, head, tile, 0), (acc * (1.0 / sum)).cast::<T>().reshape([1, 1, m, dim]));
}

/// Rows of attention in f64, by their position in batch x heads x sequence. The scale of an element is
/// the sum of the magnitudes of its terms.
fn expected<T: Element>(q: &[T], k: &[T], v: &[T], seq: usize, form: Form, rows: &[usize]) -> Vec<Expected> {
    let Form { dim, group, causal, .. } = form;
    let one = |&row: &usize| {
        let query = &q[row * dim..][..dim];
        let start = row / seq / group * seq;
        let seen = if causal { row % seq + 1 } else { seq };
        let scores: Vec<f64> = k[start * dim..]
            .chunks(dim)
            .take(seen)
            .map(|key| query.iter().zip(key).map(|(q, k)| q.to_f64() * k.to_f64()).sum::<f64>() / (dim as f64).sqrt())
            .collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let (mut values, mut scales) = (vec![0.0; dim], vec![0.0; dim]);
        for (weight, value) in weights.iter().zip(v[start * dim..].chunks(dim)) {
            for (column, v) in value.iter().enumerate() {
                let term = weight * v.to_f64() / sum;
                values[column] += term;
                scales[column] += term.abs();
            }
        }
        values.into_iter().zip(scales).map(|(value, scale)| Expected { value, scale }).collect::<Vec<_>>()
    };
    rows.par_iter().flat_map_iter(one).collect()
}

fn run_as<T>(cli: &Cli, rounding: f64) -> Result<()>
where
    T: MmaInput<T, f32> + Default,
    f32: CastTo<T>,
{
    let options = &cli.options;
    let device = options.device()?;
    let batch = options.size(cli.batch, &device, 8, 2);
    let heads = options.size(cli.heads, &device, 16, 2);
    let seq = options.size(cli.seq, &device, 1024, 200);
    let (dim, causal, kv_heads) = (cli.dim, cli.causal, cli.kv_heads.unwrap_or(heads));
    ensure!(heads.is_multiple_of(kv_heads), "{kv_heads} heads of keys for {heads} of queries");
    let tile = cli.tile.as_ref().map_or(if dim > 64 { [128, 128] } else { [256, 64] }, |tile| [tile[0], tile[1]]);
    let form = Form { tile, dim, group: heads / kv_heads, causal };
    let scale = (std::f64::consts::LOG2_E / (dim as f64).sqrt()) as f32;
    let section = section(seq, dim, size_of::<T>(), causal);
    let tiles = batch * heads * seq.div_ceil(tile[0]);
    let (shape, kv_shape) = ([batch, heads, seq, dim], [batch, kv_heads, seq, dim]);
    let kernel = attention::<T>;
    if options.emits() {
        let (q, kv) = (ct::ArraySpec::new(shape), ct::ArraySpec::new(kv_shape));
        return options.emit(kernel, (q, kv, kv, q.mutable(), scale, section, Constant(form)));
    }
    let (size, kv_size) = (shape.iter().product(), kv_shape.iter().product());
    let host_q = normal(1, size, T::from_f64);
    let (host_k, host_v) = (normal(2, kv_size, T::from_f64), normal(3, kv_size, T::from_f64));
    let mut rotation = Rotation::new(device, 2 * size_of::<T>() * (size + kv_size), || {
        let (k, v) = (device.array(&host_k, kv_shape)?, device.array(&host_v, kv_shape)?);
        Ok((device.array(&host_q, shape)?, k, v, device.zeros::<T, 4>(shape)?))
    })?;
    let blocks = blocks(tiles, device.num_multiprocessors() * options.blocks_each(), causal);
    let time = rotation.time(options, |(q, k, v, out)| {
        options.launch(blocks).launch(kernel, (&*q, &*k, &*v, out, scale, section, Constant(form)))
    })?;
    let result = rotation.first().3.to_vec()?;
    let rows = sample_rows(batch * heads * seq);
    let want = expected(&host_q, &host_k, &host_v, seq, form, &rows);
    let error = largest_error(want.len(), |i| result[rows[i / dim] * dim + i % dim].to_f64(), |i| want[i]);
    let element = cli.element.to_possible_value().expect("no type is hidden");
    Report {
        what: format!(
            "attention {} {} {batch}x{heads}x{seq}x{dim}, tile {}x{}",
            element.get_name(),
            if causal { "causal" } else { "full" },
            form.tile[0],
            form.tile[1]
        ),
        device: device.name().to_owned(),
        time,
        // Two products; half of each lies above the diagonal.
        work: Work::Flops(if causal { 2.0 } else { 4.0 } * (batch * heads * seq * seq * dim) as f64),
        error,
        tolerance: 2.0 * rounding + 1e-5,
        relative_to: "the magnitude of the terms",
    }
    .finish()
}

/// Does what the options say.
pub fn run(cli: &Cli) -> Result<()> {
    // Weights and results are rounded by half a unit in the last place; scores and sums are f32.
    match cli.element {
        ElementType::F16 => run_as::<f16>(cli, 2f64.powi(-11)),
        ElementType::Bf16 => run_as::<bf16>(cli, 2f64.powi(-8)),
    }
}

fn main() -> Result<()> {
    run(&Cli::parse())
}
