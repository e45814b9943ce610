//! Forms of a product whose terms several tile blocks share: split-K and Stream-K, with the plain
//! product.

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::prelude::*;
use cutlet::{AtomicOptions, GatherOptions, Scope};

use crate::family::{AnyFamily, Case, Family, Size, some};

/// Assignment of the terms of a product to tile blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Share {
    /// One tile of the result for each tile block.
    Tiles,
    /// Every n-th tile, where n is the number of tile blocks.
    Persistent,
    /// Equal parts of the terms of each tile. The last tile block adds them.
    Split(usize),
    /// Equal parts of the terms of all tiles. The first tile block of a tile adds the sums of the
    /// later ones.
    StreamK,
    /// Whole tiles as long as each tile block has one, then Stream-K. Tile blocks with whole tiles
    /// load the same operands at the same time.
    Hybrid,
}

/// A form of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    tile: [usize; 3],
    share: Share,
}

type Factors = (Array<f16, 2>, Array<f16, 2>);

/// Sums of parts, one for each tile block, and flags or tickets. Flags and tickets are zero between
/// two launches.
type Shared = (ArrayMut<f32, 3>, ArrayMut<i32, 1>);

fn product(factors: Factors, (parts, flags): Shared, c: ArrayMut<f16, 2>, Form { tile, share }: Form) {
    let (a, b) = factors;
    let [tm, tn, tk] = tile;
    let [rows, columns] = [0, 1].map(|axis| c.num_tiles(axis, [tm, tn]));
    let steps = a.num_tiles(1, [tm, tk]);
    let sums = |[i, j]: [Scalar<i32>; 2], begin: Scalar<i32>, end: Scalar<i32>| {
        ct::fold(begin..end, ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
            ct::mma(a.load([i, k], [tm, tk]), b.load([k, j], [tk, tn]), acc)
        })
    };
    let place = |index| ct::swizzle_2d(index, rows, columns, 8);
    let whole = |index| {
        let at = place(index);
        c.store(at, sums(at, ct::scalar(0), steps).cast::<f16>());
    };
    match share {
        Share::Tiles => whole(ct::bid(0)),
        Share::Persistent => {
            let all = ct::range(ct::bid(0), rows * columns).step(ct::num_blocks(0));
            ct::fold(all, (), |(), index| whole(index));
        }
        Share::Split(splits) => {
            let splits = splits as i32;
            let (index, split) = (ct::bid(0) / splits, ct::bid(0) % splits);
            let at = place(index);
            let each = steps.ceil_div(splits);
            let acc = sums(at, split * each, ((split + 1) * each).min(steps));
            parts.store((ct::bid(0), 0, 0), acc.reshape([1, tm, tn]));
            let ticket = flags.entry(index).atomic_add(1);
            ct::if_then(ticket.eq(splits - 1), || {
                let acc = ct::fold(index * splits..(index + 1) * splits, ct::zeros::<f32, 2>([tm, tn]), |acc, part| {
                    acc + parts.load((part, 0, 0), [1, tm, tn]).reshape([tm, tn])
                });
                c.store(at, acc.cast::<f16>());
                flags.entry(index).atomic_xchg(0);
            });
        }
        Share::StreamK => stream_k(ct::scalar(0), [rows * columns, steps], (parts, flags), (sums, place), c),
        Share::Hybrid => {
            let begin = rows * columns / ct::num_blocks(0) * ct::num_blocks(0);
            let all = ct::range(ct::bid(0), begin).step(ct::num_blocks(0));
            ct::fold(all, (), |(), index| whole(index));
            stream_k(begin, [rows * columns, steps], (parts, flags), (sums, place), c);
        }
    }
}

/// Shares the terms of the tiles from `begin` on. `sums`: the sums of some steps of a tile;
/// `place`: the tile of an index.
fn stream_k(
    begin: Scalar<i32>,
    [tiles, steps]: [Scalar<i32>; 2],
    (parts, flags): Shared,
    (sums, place): (
        impl Fn([Scalar<i32>; 2], Scalar<i32>, Scalar<i32>) -> Tile<f32, 2>,
        impl Fn(Scalar<i32>) -> [Scalar<i32>; 2],
    ),
    c: ArrayMut<f16, 2>,
) {
    // Tile blocks wait for tile blocks of lower numbers.
    let (blocks, share) = (ct::num_blocks(0), ct::num_blocks(0) - 1 - ct::bid(0));
    let before = begin * steps;
    let all = tiles * steps;
    let each = (all - before).ceil_div(blocks);
    let start = |share: Scalar<i32>| (before + share * each).min(all);
    let end = start(share + 1);
    ct::while_loop(
        start(share),
        |term| term.lt(end),
        |term| {
            let (index, first) = (term / steps, term % steps);
            let last = steps.min(first + end - term);
            let at = place(index);
            let acc = sums(at, first, last);
            let [tm, tn] = acc.shape();
            ct::if_else(
                first.gt(0),
                || {
                    parts.store((share, 0, 0), acc.reshape([1, tm, tn]));
                    flags.entry(share).atomic_xchg_with(1, AtomicOptions::new().release(Scope::Device));
                },
                || {
                    let behind = (index * steps + steps - 1 - before) / each;
                    let acc = ct::fold(share + 1..behind + 1, acc, |acc, other| {
                        let flag = flags.entry(other);
                        let acquire = GatherOptions::new().acquire(Scope::Device);
                        ct::while_loop((), |()| flag.load_with(acquire).ne(1), |()| ());
                        flag.atomic_xchg_with(0, AtomicOptions::new().relaxed(Scope::Device));
                        acc + parts.load((other, 0, 0), [1, tm, tn]).reshape([tm, tn])
                    });
                    c.store(at, acc.cast::<f16>());
                },
            );
            term + last - first
        },
    );
}

struct Arrays {
    factors: [DeviceArray<f16, 2>; 2],
    parts: DeviceArray<f32, 1>,
    flags: DeviceArray<i32, 1>,
    c: DeviceArray<f16, 2>,
}

fn family([m, n, k]: [usize; 3], tiles: &[[usize; 3]], split: usize) -> Family<Arrays> {
    let mut cases = Vec::new();
    // Elements of the largest array of sums of parts. A GPU has at most 256 multiprocessors.
    let (mut room, mut tickets) = (0, 256);
    for &tile in tiles {
        let count = m.div_ceil(tile[0]) * n.div_ceil(tile[1]);
        room = room.max(count.max(256).max(count * split) * tile[0] * tile[1]);
        tickets = tickets.max(count);
        for share in [Share::Tiles, Share::Persistent, Share::Split(split), Share::StreamK, Share::Hybrid] {
            let name = match share {
                Share::Tiles => "plain".to_owned(),
                Share::Persistent => "persistent".to_owned(),
                Share::Split(parts) => format!("split by {parts}"),
                Share::StreamK => "stream-k".to_owned(),
                Share::Hybrid => "whole tiles, then stream-k".to_owned(),
            };
            let name: &'static str = format!("{name}, {}x{}x{}", tile[0], tile[1], tile[2]).leak();
            cases.push(Case::new(name, 0, move |call, Arrays { factors: [a, b], parts, flags, c }: &mut Arrays| {
                let grid = match share {
                    Share::Tiles => count,
                    Share::Persistent | Share::StreamK | Share::Hybrid => {
                        call.num_multiprocessors().min(count * k.div_ceil(tile[2]))
                    }
                    Share::Split(parts) => count * parts,
                };
                let whole = parts.len() / (tile[0] * tile[1]);
                let [tm, tn, _] = tile;
                let mut parts = parts.slice_mut(0, ..whole * tm * tn)?.reshape([whole, tm, tn])?;
                call.run([grid, 1, 1], product, ((&*a, &*b), (&mut parts, flags), c, Constant(Form { tile, share })))
            }));
        }
    }
    Family {
        name: format!("shared product f16 {m}x{n}x{k}"),
        flops: 2.0 * (m * n * k) as f64,
        bytes: 2.0 * (m * k + k * n + m * n) as f64,
        tolerance: 0.02,
        arrays: Box::new(move |source| {
            let deviation = (k as f32).sqrt().recip();
            Ok(Arrays {
                factors: [source.normal([m, k], 1, 1.0)?, source.normal([k, n], 2, deviation)?],
                parts: source.zeros([room])?,
                flags: source.zeros([tickets])?,
                c: source.zeros([m, n])?,
            })
        }),
        result: |arrays| some(&arrays.c),
        cases,
    }
}

/// The families of shared products, and of a product with few terms.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    let wide = [[128, 256, 64], [128, 128, 64]];
    match size {
        Size::Full => vec![
            Box::new(family([4096; 3], &wide, 2)),
            Box::new(family([1536, 4096, 4096], &wide, 2)),
            Box::new(family([128, 4096, 14336], &wide, 8)),
            Box::new(family([65536, 1024, 1024], &[[128, 256, 64], [256, 128, 64], [192, 256, 64]], 2)),
        ],
        Size::Small => vec![Box::new(family([64, 96, 80], &[[32, 32, 16]], 2))],
    }
}
