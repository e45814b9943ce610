//! The sums of all first elements of an array, in one pass: `cargo run --example prefix_sum`.

use cutlet as ct;
use cutlet::element::BitcastTo;
use cutlet::prelude::*;

// What is known of a tile: nothing, the sum of its own elements, or that of all up to its end.
const UNKNOWN: u32 = 0;
const OWN: u32 = 1;
const ALL: u32 = 2;

/// Tiles that are looked back at together.
const WINDOW: usize = 32;

/// State and sum of a tile in one word, so that one load reads both.
fn packed<T: Number + BitcastTo<u32>>(state: u32, sum: Scalar<T>) -> Scalar<u64> {
    sum.bitcast::<u32>().cast::<u64>() | (u64::from(state) << 32)
}

/// A block takes the next tile, whichever block it is, says what the tile sums up to, and looks back until it finds the
/// sum of all before (Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016). Who has
/// a tile has begun, and waits for earlier tiles alone: some block always goes on, however few run at a time.
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
    // Before the first tile all is known, and nothing.
    let options = ct::GatherOptions::new().relaxed(ct::Scope::Device).padding(u64::from(ALL) << 32);
    let (zero, nearest_first) = (T::from_f64(0.0), ct::arange(0..WINDOW));
    let before = ct::loop_with_control((mine - 1, ct::scalar(zero)), |(last, sum), control| {
        let words = tiles.gather_with(last - nearest_first, options);
        let (states, parts) = ((words >> 32).cast::<u32>(), words.wrapping_cast::<u32>().bitcast::<T>());
        // From the nearest tile to the first of which not only its own sum is known.
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

/// No tile is taken, and nothing known of any.
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
