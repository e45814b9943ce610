//! Attention of 8-bit floats, forward: `cargo bench --bench kernels -- attention_f8`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::attention_f8::{GROUP, attention_f8, turned};
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal, sample_rows};

options! {
    /// softmax(Q Kᵀ / √dim) V for arrays of batch x heads x sequence x dim of e4m3, with a result
    /// of bf16. A first kernel turns V.
    {
        /// Sequences.
        "batch" batch: Option<usize> = None,
        /// Heads.
        "heads" heads: Option<usize> = None,
        /// Length of the sequences.
        "seq" seq: Option<usize> = None,
        /// Numbers of a query, key or value.
        "dim" dim: usize = 64,
        /// A query sees only the keys up to its own position.
        "causal" causal: bool = false,
        /// Extents of a tile: queries that a block takes at a time, and keys.
        "tile" tile: [usize; 2] = [128, 128],
        /// The kernel whose code is emitted.
        "part" part: Part = Part::Attention,
    }
}

choice! {
    /// The kernels.
    Part {
        Attention = "attention",
        Turned = "turned",
    }
}

/// Rows of attention in f64, by their position in batch x heads x sequence. The scale of an element
/// is the sum of the magnitudes of its terms.
fn expected(
    [q, k, v]: [&[f8e4m3fn]; 3],
    [seq, dim]: [usize; 2],
    causal: bool,
    [of_scores, of_values]: [f64; 2],
    rows: &[usize],
) -> Vec<Expected> {
    let one = |&row: &usize| {
        let (query, start) = (&q[row * dim..][..dim], row / seq * seq * dim);
        let seen = if causal { row % seq + 1 } else { seq };
        let dot = |key: &[f8e4m3fn]| query.iter().zip(key).map(|(q, k)| q.to_f64() * k.to_f64()).sum::<f64>();
        let scores: Vec<f64> =
            k[start..].chunks(dim).take(seen).map(|key| dot(key) * of_scores / (dim as f64).sqrt()).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let mut sums = vec![Expected { value: 0.0, scale: 0.0 }; dim];
        for (weight, value) in weights.iter().zip(v[start..].chunks(dim)) {
            for (sum_of, v) in sums.iter_mut().zip(value) {
                let term = weight * v.to_f64() * of_values / sum;
                sum_of.value += term;
                sum_of.scale += term.abs();
            }
        }
        sums
    };
    rows.par_iter().flat_map_iter(one).collect()
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    let device = options.device()?;
    let batch = options.size(cli.batch, &device, 4, 2);
    let heads = options.size(cli.heads, &device, 32, 2);
    let seq = options.size(cli.seq, &device, 4096, 200);
    let (dim, causal, tile) = (cli.dim, cli.causal, cli.tile);
    let form = Constant(([tile[0], tile[1], dim], causal));
    let (shape, along) = ([batch, heads, seq, dim], [batch, heads, dim, seq.next_multiple_of(GROUP)]);
    // Keys that are transposed at a time.
    let part = Constant([128, dim]);
    let (of_scores, of_values) = (0.75f32, 1.25f32);
    let scale = of_scores * (std::f64::consts::LOG2_E / (dim as f64).sqrt()) as f32;
    if options.emits() {
        let (x, v) = (ct::ArraySpec::new(shape), ct::ArraySpec::new(along));
        let scales = ct::ArraySpec::new([batch, heads]);
        return match cli.part {
            Part::Attention => {
                let out = ct::ArraySpec::new(shape).mutable();
                options.emit(attention_f8, ((x, x, v), out, [scales, scales], form))
            }
            Part::Turned => options.emit(turned, (x, v.mutable(), part)),
        };
    }
    let size = shape.iter().product();
    let [q, k, v] = [1, 2, 3].map(|seed| normal(seed, size, f8e4m3fn::from_f64));
    let mut rotation = Rotation::new(device, 6 * size, || {
        let inputs = [device.array(&q, shape)?, device.array(&k, shape)?, device.array(&v, shape)?];
        Ok((inputs, device.zeros::<f8e4m3fn, 4>(along)?, device.zeros::<bf16, 4>(shape)?))
    })?;
    let scales = [device.full([batch, heads], scale)?, device.full([batch, heads], of_values)?];
    let time = rotation.time(options, |([q, k, v], along, out)| {
        options.launch([seq.div_ceil(128), heads, batch]).launch(turned, (&*v, &mut *along, part))?;
        let arguments = ((&*q, &*k, &*along), out, [&scales[0], &scales[1]], form);
        options.launch([seq.div_ceil(tile[0]), heads, batch]).launch(attention_f8, arguments)
    })?;
    let result = rotation.first().2.to_vec()?;
    let rows = sample_rows(batch * heads * seq);
    let want = expected([&q, &k, &v], [seq, dim], causal, [of_scores.into(), of_values.into()], &rows);
    let error = largest_error(want.len(), |i| result[rows[i / dim] * dim + i % dim].to_f64(), |i| want[i]);
    Report {
        what: format!(
            "attention_f8 e4m3 {} {batch}x{heads}x{seq}x{dim}, tile {}x{}",
            if causal { "causal" } else { "full" },
            tile[0],
            tile[1]
        ),
        device: device.name().to_owned(),
        time,
        // Two products; half of each is above the diagonal.
        work: Work::Flops(if causal { 2.0 } else { 4.0 } * (batch * heads * seq * seq * dim) as f64),
        error,
        // Weights are rounded by half a unit in the last place, the result to bf16; tensor cores
        // keep some 13 bits of their sums.
        tolerance: 2f64.powi(-4) + 2f64.powi(-8) + 2f64.powi(-9),
        relative_to: "the magnitude of the terms",
    }
    .finish()
}
