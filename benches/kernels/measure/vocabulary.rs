//! The most probable words of a large vocabulary: `cargo bench --bench kernels -- vocabulary`.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::vocabulary::{LEFT, choose};
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// The 50 largest of each row of logits (f32), and their positions: rounds of blocks that each
    /// leave 64 of their logits.
    {
        /// Rows.
        "m" m: Option<usize> = None,
        /// Words of the vocabulary.
        "n" n: Option<usize> = None,
        /// Logits that a block chooses from.
        "tile" tile: usize = 512,
    }
}

/// Words that are wanted.
const WANTED: usize = 50;
/// Logits and words that remain of a row after each round.
type Rounds = Vec<(ct::DeviceArray<f32, 2>, ct::DeviceArray<i32, 2>)>;

/// Rounds until one block processes a whole row.
fn rounds(device: ct::Device, m: usize, n: usize, tile: usize) -> ct::Result<Rounds> {
    let (mut rounds, mut width) = (Vec::new(), n);
    while rounds.is_empty() || width > LEFT {
        width = width.div_ceil(tile) * LEFT;
        rounds.push((device.zeros([m, width])?, device.zeros([m, width])?));
    }
    Ok(rounds)
}

fn launch_all(options: &Options, logits: &ct::DeviceArray<f32, 2>, rounds: &mut Rounds, tile: usize) -> ct::Result<()> {
    let mut words = None;
    let mut from = logits;
    for (largest, chosen) in rounds {
        let grid = [from.shape()[1].div_ceil(tile), from.shape()[0]];
        let first = words.is_none();
        // Without words of a previous round there is nothing to read.
        let none = chosen.device().zeros([0, 0])?;
        let of = words.unwrap_or(&none);
        let constants = Constant((tile, first));
        options.launch(grid).launch(choose, ((from, of), (&mut *largest, &mut *chosen), constants))?;
        (from, words) = (largest, Some(&*chosen));
    }
    Ok(())
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let options = &cli.options;
    let device = options.device()?;
    let m = options.size(cli.m, &device, 64, 2);
    let n = options.size(cli.n, &device, 128 * 1024, 128 * 1024);
    let tile = cli.tile;
    if options.emits() {
        let (logits, words) = (ct::ArraySpec::<f32, 2>::new([m, n]), ct::ArraySpec::<i32, 2>::new([m, n]));
        let width = n.div_ceil(tile) * LEFT;
        let (largest, chosen) = (ct::ArraySpec::<f32, 2>::new([m, width]), ct::ArraySpec::<i32, 2>::new([m, width]));
        let outputs = (largest.mutable(), chosen.mutable());
        return options.emit(choose, ((logits, words), outputs, Constant((tile, false))));
    }
    let host = normal(1, m * n, |x| (x * 4096.0).round() as f32 / 4096.0);
    let mut rotation =
        Rotation::new(device, 4 * m * n, || Ok((device.array(&host, [m, n])?, rounds(device, m, n, tile)?)))?;
    let time = rotation.time(options, |(logits, rounds)| launch_all(options, logits, rounds, tile))?;
    let (largest, chosen) = rotation.first().1.last().expect("a round");
    let (largest, chosen) = (largest.to_vec()?, chosen.to_vec()?);
    let wanted = WANTED.min(n);
    let expected: Vec<usize> = host.par_chunks(n).flat_map_iter(|row| most_probable(row, wanted)).collect();
    let error = largest_error(
        2 * expected.len(),
        |i| {
            let at = i / 2 / wanted * LEFT + i / 2 % wanted;
            if i % 2 == 0 { chosen[at].into() } else { largest[at].into() }
        },
        |i| {
            let word = expected[i / 2];
            let value = if i % 2 == 0 { word as f64 } else { host[i / 2 / wanted * n + word].into() };
            Expected { value, scale: 1.0 }
        },
    );
    Report {
        what: format!("{wanted} of {n} words, f32, {m} rows"),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(4.0 * (m * n) as f64),
        error,
        tolerance: 0.0,
        relative_to: "a logit, or an index",
    }
    .finish()
}

/// The positions of the largest, of equal ones the first ones.
fn most_probable(row: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
    order.truncate(count);
    order
}
