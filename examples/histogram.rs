//! Number of occurrences of each byte: `cargo run --example histogram`.

use cutlet as ct;
use cutlet::prelude::*;

/// Counts tiles at a distance of the number of blocks.
pub fn histogram(x: Array<u8, 1>, bins: ArrayMut<i32, 1>, tile: usize) {
    let tiles = ct::range(ct::bid(0), x.num_tiles(0, [tile])).step(ct::num_blocks(0));
    ct::fold(tiles, (), |(), i| {
        // Elements after the end are not counted.
        let inside = (ct::arange(0..tile) + i * tile).lt(x.extent(0));
        let options = ct::AtomicOptions::new().relaxed(ct::Scope::Device).mask(inside);
        bins.atomic_add_with(x.load(i, [tile]).cast::<i32>(), 1, options);
    });
}

fn main() -> ct::Result<()> {
    let (n, tile, blocks) = (100_000, 4096, 8);
    let byte = |i: usize| (i.wrapping_mul(0x9E37_79B9) >> 11) as u8;
    let device = ct::Device::first()?;
    let x = device.from_fn([n], |[i]| byte(i))?;
    let mut bins = device.zeros([256])?;
    ct::launch(histogram, blocks, (&x, &mut bins, Constant(tile)))?;

    let mut counts = [0; 256];
    (0..n).for_each(|i| counts[usize::from(byte(i))] += 1);
    let wrong = bins.to_vec()?.iter().zip(counts).filter(|(bin, count)| **bin != *count).count();
    println!("histogram: {n} bytes, {}, {wrong} wrong counts", device.name());
    assert_eq!(wrong, 0);
    Ok(())
}
