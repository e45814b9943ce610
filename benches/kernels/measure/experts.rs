//! Selection of experts for each token: `cargo bench --bench kernels -- experts`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::experts::{EXPERTS, TAKEN, experts};
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// The 8 largest of the 128 logits (f32) of each token, their experts, and the softmax of these
    /// 8 as weights.
    {
        /// Tokens.
        "m" m: Option<usize> = None,
        /// Tokens of a block.
        "tile" tile: usize = 8,
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    let device = options.device()?;
    let m = options.size(cli.m, &device, 65536, 512);
    let tile = Constant(cli.tile);
    if options.emits() {
        let (spec, expert) = (ct::ArraySpec::<f32, 2>::new([m, EXPERTS]), ct::ArraySpec::<i32, 2>::new([m, TAKEN]));
        let weight = ct::ArraySpec::<f32, 2>::new([m, TAKEN]);
        return options.emit(experts, (spec, expert.mutable(), weight.mutable(), tile));
    }
    // Rounded, so that some logits of a token are equal: of these the first expert is taken.
    let host = normal(1, m * EXPERTS, |x| (x * 32.0).round() as f32 / 32.0);
    let mut rotation = Rotation::new(device, 4 * m * (EXPERTS + 2 * TAKEN), || {
        let outputs = (device.zeros::<i32, 2>([m, TAKEN])?, device.zeros::<f32, 2>([m, TAKEN])?);
        Ok((device.array(&host, [m, EXPERTS])?, outputs))
    })?;
    let time = rotation.time(options, |(logits, (expert, weight))| {
        options.launch([m.div_ceil(cli.tile)]).launch(experts, (&*logits, expert, weight, tile))
    })?;
    let (expert, weight) = &rotation.first().1;
    let (expert, weight) = (expert.to_vec()?, weight.to_vec()?);
    let expected: Vec<(usize, f64)> = host.par_chunks(EXPERTS).flat_map_iter(taken).collect();
    let error = largest_error(
        2 * expected.len(),
        |i| if i % 2 == 0 { expert[i / 2].into() } else { weight[i / 2].into() },
        |i| {
            let (expert, weight) = expected[i / 2];
            // A wrong expert is an error of 1 at least.
            if i % 2 == 0 {
                Expected { value: expert as f64, scale: 1.0 }
            } else {
                Expected { value: weight, scale: weight }
            }
        },
    );
    Report {
        what: format!("{TAKEN} of {EXPERTS} experts, f32, {m} tokens"),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(4.0 * (m * (EXPERTS + 2 * TAKEN)) as f64),
        error,
        tolerance: 2e-6,
        relative_to: "a weight, or an index",
    }
    .finish()
}

/// Experts and weights of a token.
fn taken(logits: &[f32]) -> Vec<(usize, f64)> {
    let mut order: Vec<usize> = (0..EXPERTS).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    let power = |expert: usize| (f64::from(logits[expert]) - f64::from(logits[order[0]])).exp();
    let sum: f64 = order[..TAKEN].iter().map(|&expert| power(expert)).sum();
    order[..TAKEN].iter().map(|&expert| (expert, power(expert) / sum)).collect()
}
