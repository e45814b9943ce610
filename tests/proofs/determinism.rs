//! `Hints::deterministic`: planted mistakes, each with the operation that breaks it, and kernels
//! that pass.

use cutlet as ct;
use cutlet::prelude::*;

const TILE: usize = 16;

/// Returns the message for a kernel from `x` to `y`, with counters.
fn refused(kernel: impl Fn(Array<f32, 2>, ArrayMut<i32, 1>, ArrayMut<f32, 2>)) -> Option<String> {
    let (x, flags) = (ct::ArraySpec::<f32, 2>::new([64, 64]), ct::ArraySpec::<i32, 1>::new([64]));
    let kernel = move |x: Array<f32, 2>, flags: ArrayMut<i32, 1>, y: ArrayMut<f32, 2>| kernel(x, flags, y);
    let hints = ct::Hints::new().deterministic(true);
    let inspected = ct::inspect(kernel, (x, flags.mutable(), x.mutable())).hints(hints);
    inspected.ir().err().map(|error| error.to_string())
}

#[track_caller]
fn fails(how: &str, kernel: impl Fn(Array<f32, 2>, ArrayMut<i32, 1>, ArrayMut<f32, 2>)) {
    let text = refused(kernel).expect("the kernel depends on the order of tile blocks");
    assert!(text.contains(how) && text.contains("determinism.rs"), "{text}");
}

#[track_caller]
fn passes(kernel: impl Fn(Array<f32, 2>, ArrayMut<i32, 1>, ArrayMut<f32, 2>)) {
    assert_eq!(refused(kernel), None);
}

#[test]
fn atomic_sums() {
    let order = "adds floats in the order in which tile blocks run";
    fails(order, |x, _, y| {
        let sum = x.load((ct::bid(0), 0), [1, TILE]).sum(..).item();
        y.entry((0, 0)).atomic_add(sum);
    });
    fails(order, |x, _, y| y.atomic_store_add((0, 0), x.load((ct::bid(0), 0), [TILE, TILE])));
    // A histogram with weights, which shared memory privatizes.
    fails(order, |x, flags, y| {
        let bins = flags.load(ct::bid(0), [TILE]);
        let weights = x.load((ct::bid(0), 0), [1, TILE]).reshape([TILE]);
        y.atomic_add((0, bins), weights);
    });
    // Parts of the terms, in the order in which the tile blocks end.
    fails(order, |x, _, y| {
        let part = x.num_tiles(1, [TILE, TILE]) / ct::num_blocks(1);
        let first = ct::bid(1) * part;
        let sum = ct::fold(first..first + part, ct::zeros::<f32, 2>([TILE, TILE]), |sum, k| {
            sum + x.load((ct::bid(0), k), [TILE, TILE])
        });
        y.atomic_store_add((ct::bid(0), 0), sum);
    });
    // Counts are equal in every order.
    passes(|_, counts, _| counts.atomic_store_add(0, ct::ones::<i32, 1>([TILE])));
    passes(|_, counts, _| {
        let _ = counts.entry(0).atomic_add(1);
    });
    // A sum that no store has is no use.
    passes(|_, counts, _| {
        let _ = counts.entry(0).atomic_add(1) + 1;
    });
    fails("returns a value that the order of tile blocks decides", |_, counts, y| {
        let before = counts.entry(0).atomic_add(1) + 1;
        y.entry((0, 0)).store(before.cast::<f32>());
    });
}

#[test]
fn queues_and_locks() {
    fails("returns a value that the order of tile blocks decides", |x, next, y| {
        let tile = next.entry(0).atomic_add(1);
        y.store((tile, 0), x.load((ct::bid(0), 0), [1, TILE]));
    });
    fails("stores a value that the order of tile blocks decides", |x, _, y| {
        y.entry((0, 0)).atomic_xchg(x.load((ct::bid(0), 0), [1, TILE]).sum(..).item());
    });
    fails("stores a value that the order of tile blocks decides", |_, owner, _| {
        owner.entry(0).atomic_cas(0, ct::bid(0));
    });
}

/// Sums of a tile and of the tiles before it, as far as other tile blocks have published them.
#[test]
fn shares_of_other_blocks() {
    let seen = "another tile block may store at the same time";
    let relaxed = || ct::GatherOptions::new().relaxed(ct::Scope::Device);
    fails(seen, |x, _, y| {
        let own = x.load((ct::bid(0), 0), [1, TILE]).sum(..).item();
        let before = y.entry((ct::bid(0), 0)).load_with(relaxed());
        let options = ct::ScatterOptions::new().relaxed(ct::Scope::Device);
        y.entry((ct::bid(0) + 1, 0)).store_with(before + own, options);
    });
    // Stream-K: the first tile block of a tile waits for the shares of later ones. The order is
    // fixed, which no rule of operations shows: the kernel of `matmul` is tested by its bits
    // instead.
    fails(seen, |x, flags, y| {
        let acquire = ct::GatherOptions::new().acquire(ct::Scope::Device);
        ct::while_loop((), |()| flags.entry(1).load_with(acquire).ne(1), |()| ());
        y.store((0, 0), x.load((0, 0), [TILE, TILE]));
    });
    passes(|x, _, y| {
        let sum = ct::fold(..x.num_tiles(1, [TILE, TILE]), ct::zeros::<f32, 2>([TILE, TILE]), |sum, k| {
            sum + x.load((ct::bid(0), k), [TILE, TILE])
        });
        y.store((ct::bid(0), 0), sum);
    });
}
