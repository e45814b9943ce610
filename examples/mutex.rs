//! A lock by compare-and-swap and exchange: `cargo run --example mutex`.

use cutlet as ct;
use cutlet::prelude::*;

/// Each block acquires the lock, updates the sums by ordinary loads and stores, and releases the
/// lock.
pub fn mutex(lock: ArrayMut<i32, 1>, sums: ArrayMut<f32, 1>, tile: usize) {
    let lock = lock.entry(0);
    // 0: free, 1: acquired. The block that reads 0 owns the lock, and sees all writes of the
    // previous owner.
    ct::while_loop((), |()| lock.atomic_cas(0, 1).ne(0), |()| ());
    sums.store(0, sums.load(0, [tile]) + ct::arange_from(tile, 1.0, 1.0));
    lock.atomic_xchg(0);
}

fn main() -> ct::Result<()> {
    let (blocks, n) = (100, 200);
    let device = ct::Device::first()?;
    let (mut lock, mut sums) = (device.zeros([1])?, device.zeros([n])?);
    ct::launch(mutex, blocks, (&mut lock, &mut sums, Constant(n.next_power_of_two())))?;

    let sums = sums.to_vec()?;
    let wrong = (0..n).filter(|&i| f64::from(sums[i]) != (blocks * (i + 1)) as f64).count();
    println!("mutex: {blocks} blocks, {}, {wrong} wrong sums", device.name());
    assert_eq!(wrong, 0);
    Ok(())
}
