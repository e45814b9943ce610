//! Prefix sums of an array, in one pass: `cargo run --example prefix_sum`.

use cutlet as ct;
use cutlet::element::BitcastTo;
use cutlet::prelude::*;

// State of a tile: unknown, the sum of its own elements, or the sum of all elements up to its end.
const UNKNOWN: u32 = 0;
const OWN: u32 = 1;
const ALL: u32 = 2;

/// Number of tiles that one look-back reads.
const WINDOW: usize = 32;

/// State and sum of a tile in one word, so that one load reads both.
fn packed<T: Number + BitcastTo<u32>>(state: u32, sum: Scalar<T>) -> Scalar<u64> {
    sum.bitcast::<u32>().cast::<u64>() | (u64::from(state) << 32)
}

/// Decoupled look-back (Merrill and Garland, 2016). A block draws the next tile, publishes the sum
/// of the tile, and reads the states of earlier tiles up to a known prefix sum. A block only waits
/// for tiles of running blocks, so one block always makes progress.
pub fn prefix_sum<T>(x: Array<T, 1>, y: ArrayMut<T, 1>, next: ArrayMut<i32, 1>, tiles: ArrayMut<u64, 1>, tile: usize)
where
    T: Number + BitcastTo<u32>,
    u32: BitcastTo<T>,
{
    let mine = next.entry(0).atomic_add_with(1, ct::AtomicOptions::new().relaxed(ct::Scope::Device));
    let x = x.load(mine, [tile]);
    let own = x.sum(0).item();
    let publish = |word| tiles.entry(mine).store_with(word, ct::ScatterOptions::new().relaxed(ct::Scope::Device));
    publish(packed(OWN, own));
    let sums = x.cumsum(0);
    // The sum before the first tile is known and zero.
    let options = ct::GatherOptions::new().relaxed(ct::Scope::Device).padding(u64::from(ALL) << 32);
    let (zero, nearest_first) = (T::from_f64(0.0), ct::arange(0..WINDOW));
    let before = ct::loop_with_control((mine - 1, ct::scalar(zero)), |(last, sum), control| {
        let words = tiles.gather_with(last - nearest_first, options);
        let (states, parts) = ((words >> 32).cast::<u32>(), words.wrapping_cast::<u32>().bitcast::<T>());
        // From the nearest tile to the first one whose state is not `OWN`.
        let (state, part) = ct::reduce((states, parts), 0, (OWN, zero), |(state, sum), (further, part)| {
            let goes_on = state.eq(OWN);
            (goes_on.select(further, state), goes_on.select(sum + part, sum))
        });
        let (state, part) = (state.item(), part.item());
        control.continue_if(state.eq(UNKNOWN), (last, sum));
        control.break_if(state.eq(ALL), (last, part + sum));
        (last - WINDOW, part + sum)
    });
    publish(packed(ALL, before.1 + own));
    y.store(mine, sums + before.1);
}

/// Resets the counter and the states of all tiles.
pub fn forget(next: ArrayMut<i32, 1>, tiles: ArrayMut<u64, 1>) {
    tiles.store(ct::bid(0), ct::zeros([1024]));
    next.store(ct::bid(0), ct::zeros([1]));
}

fn main() -> ct::Result<()> {
    let (n, tile) = (100_000usize, 1024);
    let number = |i: usize| (i * 7919 % 211) as i32 - 100;
    let blocks = n.div_ceil(tile);
    let device = ct::Device::first()?;
    let x = device.from_fn([n], |[i]| number(i))?;
    let (mut y, mut next, mut tiles) = (device.zeros([n])?, device.zeros([1])?, device.zeros([blocks])?);
    ct::launch(forget, blocks.div_ceil(1024), (&mut next, &mut tiles))?;
    ct::launch(prefix_sum::<i32>, blocks, (&x, &mut y, &mut next, &mut tiles, Constant(tile)))?;

    let sums = (0..n).scan(0, |sum, i| {
        *sum += number(i);
        Some(*sum)
    });
    let wrong = sums.zip(y.to_vec()?).filter(|(want, got)| want != got).count();
    println!("prefix_sum: {n} numbers, {}, {wrong} wrong sums", device.name());
    assert_eq!(wrong, 0);
    Ok(())
}
