//! Attention, forward: `cargo bench --bench kernels -- attention`.

use anyhow::{Result, ensure};
use cutlet as ct;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::attention::{Form, NO_LOGS, attention};
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal, sample_rows};

options! {
    /// softmax(Q Kᵀ / √dim) V for arrays of batch x heads x sequence x dim.
    {
        /// Element type of the arrays.
        "type" element: ElementType = ElementType::F16,
        /// Sequences.
        "batch" batch: Option<usize> = None,
        /// Heads of queries.
        "heads" heads: Option<usize> = None,
        /// Heads of keys and values: a divisor of the heads. Default: as many.
        "kv-heads" kv_heads: Option<usize> = None,
        /// Length of the sequences.
        "seq" seq: Option<usize> = None,
        /// Numbers of a query, key or value.
        "dim" dim: usize = 64,
        /// A query sees only the keys up to its own position.
        "causal" causal: bool = false,
        /// Extents of a tile: queries that a block takes at a time, and keys.
        "tile" tile: Option<[usize; 2]> = None,
    }
}

choice! {
    /// Element types.
    ElementType {
        F16 = "f16",
        Bf16 = "bf16",
    }
}

/// Rows of attention in f64, by their position in batch x heads x sequence. The scale of an element
/// is the sum of the magnitudes of its terms.
fn expected<T: Element>(q: &[T], k: &[T], v: &[T], seq: usize, form: Form, rows: &[usize]) -> Vec<Expected> {
    let Form { tile: [_, _, dim], group, causal } = form;
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
    // With a small dim, three data partitions have their own queries on Hopper and share the keys.
    // On other GPUs, and if there are too few tiles, two blocks fit on a multiprocessor: one
    // computes while the other one multiplies.
    let shares_keys = options.is_for_hopper(&device) && seq >= if causal { 2048 } else { 1024 };
    let small = dim <= 64 && cli.tile.is_none() && !shares_keys;
    let options = if small { options.with_occupancy(2) } else { options.clone() };
    let tile = cli.tile.unwrap_or(match dim {
        _ if small => [64, 128],
        ..=64 => [192, 128],
        // Rows of 256 numbers leave registers and shared memory for 80 keys.
        129.. => [128, 80],
        _ => [128, 128],
    });
    let form = Form { tile: [tile[0], tile[1], dim], group: heads / kv_heads, causal };
    let scale = (std::f64::consts::LOG2_E / (dim as f64).sqrt()) as f32;
    let (shape, kv_shape) = ([batch, heads, seq, dim], [batch, kv_heads, seq, dim]);
    let kernel = attention::<T>;
    if options.emits() {
        let (q, kv) = (ct::ArraySpec::new(shape), ct::ArraySpec::new(kv_shape));
        return options
            .emit(kernel, ((q, kv, kv), (q.mutable(), None::<ct::ArraySpecMut<f32, 3>>), scale, Constant(form)));
    }
    let (size, kv_size) = (shape.iter().product(), kv_shape.iter().product());
    let host_q = normal(1, size, T::from_f64);
    let (host_k, host_v) = (normal(2, kv_size, T::from_f64), normal(3, kv_size, T::from_f64));
    let mut rotation = Rotation::new(device, 2 * size_of::<T>() * (size + kv_size), || {
        let (k, v) = (device.array(&host_k, kv_shape)?, device.array(&host_v, kv_shape)?);
        Ok((device.array(&host_q, shape)?, k, v, device.zeros::<T, 4>(shape)?))
    })?;
    let grid = [seq.div_ceil(tile[0]), heads, batch];
    let time = rotation.time(&options, |(q, k, v, out)| {
        options.launch(grid).launch(kernel, ((&*q, &*k, &*v), (out, NO_LOGS), scale, Constant(form)))
    })?;
    let result = rotation.first().3.to_vec()?;
    let rows = sample_rows(batch * heads * seq);
    let want = expected(&host_q, &host_k, &host_v, seq, form, &rows);
    let error = largest_error(want.len(), |i| result[rows[i / dim] * dim + i % dim].to_f64(), |i| want[i]);
    Report {
        what: format!(
            "attention {} {} {batch}x{heads}x{seq}x{dim}, tile {}x{}",
            cli.element.name(),
            if causal { "causal" } else { "full" },
            form.tile[0],
            form.tile[1]
        ),
        device: device.name().to_owned(),
        time,
        // Two products; half of each is above the diagonal.
        work: Work::Flops(if causal { 2.0 } else { 4.0 } * (batch * heads * seq * seq * dim) as f64),
        error,
        tolerance: 2.0 * rounding + 1e-5,
        relative_to: "the magnitude of the terms",
    }
    .finish()
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    // Weights and results are rounded by half a unit in the last place; scores and sums are f32.
    match cli.element {
        ElementType::F16 => run_as::<f16>(cli, 2f64.powi(-11)),
        ElementType::Bf16 => run_as::<bf16>(cli, 2f64.powi(-8)),
    }
}
