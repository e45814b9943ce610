//! Mistakes between two accesses: adjacent elements in place, halves, atomics and stores.

use cutlet as ct;
use cutlet::Property::{self, *};
use cutlet::prelude::*;

use crate::planted;

fn in_place(kernel: impl Fn(ArrayMut<f32, 1>), blocks: usize) -> ct::Result<ct::Proof> {
    let y = ct::ArraySpec::<f32, 1>::new([blocks * 16]).mutable();
    ct::prove(move |y: ArrayMut<f32, 1>| kernel(y), blocks, (y,), Property::ALL)
}

#[test]
fn adjacent_in_place() {
    planted(NoRace, |fault| {
        in_place(
            |y| {
                let i = ct::bid(0);
                let other = if fault { (i + 1) % ct::num_blocks(0) } else { i };
                y.store(i, y.load(other, [16]) * 2.0);
            },
            10,
        )
    });
}

#[test]
fn reversal_in_place() {
    planted(NoRace, |fault| {
        in_place(
            |y| {
                let i = ct::arange(0..16) + ct::bid(0) * 16;
                let from = if fault { y.extent(0) - 1 - i } else { i };
                y.store(ct::bid(0), y.gather(from));
            },
            10,
        )
    });
}

#[test]
fn rotation_of_the_own_tile() {
    planted(NoRace, |fault| {
        in_place(
            |y| {
                let j = (ct::arange(0..16) + 5) % if fault { 17 } else { 16 };
                y.store(ct::bid(0), y.gather(j + ct::bid(0) * 16));
            },
            10,
        )
    });
}

#[test]
fn two_halves() {
    planted(UniqueWrites, |fault| {
        in_place(
            |y| {
                let (i, half) = (ct::bid(0), ct::num_blocks(0) / 2);
                let second = || y.store(i - if fault { half } else { ct::scalar(0) }, ct::zeros([16]));
                ct::if_else(i.lt(half), || y.store(i, ct::ones([16])), second);
            },
            10,
        )
    });
}

#[test]
fn first_block_prepares() {
    planted(NoRace, |fault| {
        let kernel = move |x: ArrayMut<f32, 1>, y: ArrayMut<f32, 1>| {
            let i = ct::bid(0);
            let writer = if fault { i.eq(0) } else { i.lt(ct::num_blocks(0)) };
            ct::if_then(writer, || x.store(i, ct::ones([16])));
            y.store(i, x.load(if fault { ct::scalar(0) } else { i }, [16]));
        };
        let x = ct::ArraySpec::<f32, 1>::new([160]).mutable();
        ct::prove(kernel, 10, (x, x), Property::ALL)
    });
}

#[test]
fn atomic_with_a_store() {
    planted(NoRace, |fault| {
        let kernel = move |sum: ArrayMut<f32, 1>, y: ArrayMut<f32, 1>| {
            let i = ct::bid(0);
            if fault {
                ct::if_then(i.eq(0), || sum.store_scalar(0, 0.0));
            }
            sum.entry(0).atomic_add(1.0);
            y.store(i, ct::ones([16]));
        };
        let (sum, y) = (ct::ArraySpec::<f32, 1>::new([1]), ct::ArraySpec::<f32, 1>::new([160]));
        ct::prove(kernel, 10, (sum.mutable(), y.mutable()), Property::ALL)
    });
}

#[test]
fn stores_of_different_tiles() {
    planted(UniqueWrites, |fault| {
        in_place(
            |y| {
                let i = ct::bid(0);
                ct::if_else(
                    (i % 2).eq(0),
                    || y.store(i / 2, ct::ones([32])),
                    || y.store(if fault { i - 1 } else { i }, y.load(i, [16])),
                );
                if !fault {
                    // The wide tiles cover all; odd tile blocks would overlap with them.
                    ct::return_if(i.ge(0));
                }
            },
            if fault { 10 } else { 1 },
        )
    });
}
