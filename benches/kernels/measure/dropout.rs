//! Dropout and its gradient, by random numbers that are made twice:
//! `cargo bench --bench kernels -- dropout`.

use anyhow::{Result, ensure};
use cutlet as ct;
use cutlet::prelude::*;

use super::examples::dropout::{dropout, dropout_backward};
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal};

options! {
    /// Dropout of a vector (f32) and of the gradient that comes back, which loses the same
    /// elements.
    ///
    /// The mask is kept nowhere: it is a function of seed, offset and position, and the second
    /// kernel makes it again.
    {
        /// Elements.
        "n" n: Option<usize> = None,
        /// Elements of a tile.
        "tile" tile: usize = 1024,
        /// The likelihood with which an element stays.
        "keep" keep: f32 = 0.9,
        /// Seed of the random numbers.
        "seed" seed: u64 = 42,
        /// Offset of the random numbers, which differs for each layer and step of a training.
        "offset" offset: u64 = 0,
        /// The kernel whose code is emitted.
        "part" part: Part = Part::Forward,
    }
}

choice! {
    /// The kernels.
    Part {
        Forward = "forward",
        Backward = "backward",
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    let Cli { options, tile, keep, .. } = cli;
    let (tile, keep) = (*tile, *keep);
    ensure!(keep > 0.0 && keep <= 1.0, "--keep {keep}: a likelihood is above 0 and at most 1");
    let device = options.device()?;
    let n = options.size(cli.n, &device, 1 << 26, 50_000);
    let mask = (keep, cli.seed, cli.offset);
    if options.emits() {
        let spec = ct::ArraySpec::new([n]);
        let arguments = (spec, spec.mutable(), mask, Constant(tile));
        return match cli.part {
            Part::Forward => options.emit(dropout, arguments),
            Part::Backward => options.emit(dropout_backward, arguments),
        };
    }
    let (x, dy) = (normal(1, n, |x| x as f32), normal(2, n, |x| x as f32));
    let mut rotation = Rotation::new(device, 16 * n, || {
        let inputs = [device.array(&x, [n])?, device.array(&dy, [n])?];
        Ok((inputs, [device.zeros([n])?, device.zeros([n])?]))
    })?;
    let time = rotation.time(options, |([x, dy], [y, dx])| {
        let grid = n.div_ceil(tile);
        options.launch(grid).launch(dropout, (&*x, y, mask, Constant(tile)))?;
        options.launch(grid).launch(dropout_backward, (&*dy, dx, mask, Constant(tile)))
    })?;
    let [y, dx] = &rotation.first().1;
    let (y, dx) = (y.to_vec()?, dx.to_vec()?);
    let kept = |i: usize| uniform(cli.seed, cli.offset, i as u64) < keep;
    let error = largest_error(
        2 * n,
        |i| if i < n { y[i].into() } else { dx[i - n].into() },
        |i| {
            let value: f64 = if i < n { x[i].into() } else { dy[i - n].into() };
            let scale = value.abs() / f64::from(keep);
            Expected { value: if kept(i % n) { value / f64::from(keep) } else { 0.0 }, scale }
        },
    );
    Report {
        what: format!("dropout and its gradient, f32, {n} elements, {keep} of them kept, tile {tile}"),
        device: device.name().to_owned(),
        time,
        work: Work::Bytes(16.0 * n as f64),
        error,
        // The reciprocal is rounded, and so is the product.
        tolerance: 2.0 * 2f64.powi(-24),
        relative_to: "the element that is not dropped",
    }
    .finish()
}

/// The number from 0 to below 1 at a position, on the host: Philox4x32-10, whose counter is
/// position / 4 and the offset, and whose key is the seed.
fn uniform(seed: u64, offset: u64, position: u64) -> f32 {
    let halves = |x: u64| [x as u32, (x >> 32) as u32];
    let ([low, high], [mut k0, mut k1]) = (halves(offset), halves(seed));
    let mut words = [(position / 4) as u32, 0, low, high];
    for _ in 0..10 {
        let [low0, high0] = halves(u64::from(words[0]) * 0xD251_1F53);
        let [low1, high1] = halves(u64::from(words[2]) * 0xCD9E_8D57);
        words = [high1 ^ words[1] ^ k0, low1, high0 ^ words[3] ^ k1, low0];
        (k0, k1) = (k0.wrapping_add(0x9E37_79B9), k1.wrapping_add(0xBB67_AE85));
    }
    (words[position as usize % 4] >> 8) as f32 * 2f32.powi(-24)
}
