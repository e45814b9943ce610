//! Early returns of tile blocks with products whose operands TMA prefetches: before the first load,
//! between two products, in each iteration. Tiles that are loaded before the return and used
//! after it. Loops that wait for other tile blocks.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{AtomicOptions, GatherOptions, Scope};

use crate::data::{Spread, random};
use crate::expected::{Product, numbers};
use crate::harness::{Session, Suite, Want, unwritten};
use crate::schedules::says;

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    let (plain, hints) = (ct::Hints::new(), ct::Hints::new());
    for (name, tile, hints) in [
        ("one group", [64, 64, 64], plain),
        ("two groups", [128, 128, 64], plain),
        ("data partitions", [192, 64, 64], hints.num_warps(12)),
        ("a cluster", [128, 128, 64], hints.num_ctas(2)),
        ("persistent", [128, 64, 64], hints.persistent(true)),
    ] {
        suite.test(format!("early_returns/leading/{name}"), move |session| leading(session, tile, hints));
    }
    suite.test("early_returns/uniform in a cluster", uniform);
    suite.test("early_returns/attention", attention);
    suite.test("early_returns/between", between);
    suite.test("early_returns/in a loop", in_a_loop);
    suite.test("early_returns/tiles in turn", persistent_tiles);
    suite.test("early_returns/loaded before", loaded_before);
    suite.test("early_returns/waits", waits);
    suite.test("early_returns/stream_k", stream_k);
}

/// Matrices of whole numbers, on the host and on the device.
struct Factors {
    sides: [usize; 3],
    a: Vec<f64>,
    b: Vec<f64>,
    product: Product,
    on: (ct::DeviceArray<f16, 2>, ct::DeviceArray<f16, 2>),
}

impl Factors {
    fn new(session: Session, [m, n, k]: [usize; 3]) -> Result<Factors> {
        let (a, b) = (random::<f16>(1, m * k, Spread::Whole(3)), random::<f16>(2, k * n, Spread::Whole(3)));
        let on = (session.array(&a, [m, k])?, session.array(&b, [k, n])?);
        let (a, b) = (numbers(&a), numbers(&b));
        let product = session.expected(|| Product::of(&a, &b, [m, n, k]));
        Ok(Factors { sides: [m, n, k], a, b, product, on })
    }

    /// An element of the product.
    fn product(&self, at: [usize; 2]) -> f32 {
        self.product.at(at) as f32
    }
}

type Pair = (Array<f16, 2>, Array<f16, 2>);

/// The product of a row and a column of tiles.
fn product((a, b): Pair, (i, j): (Scalar<i32>, Scalar<i32>), [m, n, k]: [usize; 3]) -> Tile<f32, 2> {
    ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<f32, 2>([m, n]), |acc, l| {
        ct::mma(a.load((i, l), [m, k]), b.load((l, j), [k, n]), acc)
    })
}

/// Blocks beyond the end of their column of tiles do nothing.
fn leading(session: Session, tile: [usize; 3], hints: ct::Hints) -> Result<()> {
    fn kernel(factors: Pair, ends: Array<i32, 1>, c: ArrayMut<f32, 2>, tile: [usize; 3]) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        ct::return_if((i * tile[0]).ge(ends.load_scalar(j)));
        c.store((i, j), product(factors, (i, j), tile));
    }
    let [m, n, k] = [450, 208, 208];
    let factors = Factors::new(session, [m, n, k])?;
    let ends = [130, 0, 450, -5, 64];
    let (device_ends, (a, b)) = (session.array(&ends, [ends.len()])?, &factors.on);
    let mut c = session.unwritten::<f32, 2>([m, n])?;
    let grid = [m.div_ceil(tile[0]).next_multiple_of(2), n.div_ceil(tile[1])];
    let arguments = ((a, b), &device_ends, &mut c, ct::Constant(tile));
    session.launch_with(hints, kernel, grid, arguments)?;
    session.check("product", &c, &|[i, j]| {
        let done = ((i / tile[0] * tile[0]) as i32) < ends[j / tile[1]];
        Want::exactly(if done { factors.product([i, j]) } else { unwritten::<f32>() })
    })?;
    let arguments = ((a, b), &device_ends, &mut c, ct::Constant(tile));
    says(session, || ct::inspect(kernel, arguments).hints(hints).target(ct::Target::SM_90A).schedule(), &["tma_load"])
}

/// Both CTAs of a cluster end alike, so that they can share loads.
fn uniform(session: Session) -> Result<()> {
    fn kernel(factors: Pair, ends: Array<i32, 1>, c: ArrayMut<f32, 2>, tile: [usize; 3]) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        ct::return_if((j * tile[1]).ge(ends.load_scalar(0)));
        c.store((i, j), product(factors, (i, j), tile));
    }
    let ([m, n, k], tile) = ([256, 304, 208], [128, 64, 64]);
    let factors = Factors::new(session, [m, n, k])?;
    for end in [100, 0, 304] {
        let (ends, (a, b)) = (session.array(&[end as i32], [1])?, &factors.on);
        let mut c = session.unwritten::<f32, 2>([m, n])?;
        let hints = ct::Hints::new().num_ctas(2);
        let arguments = ((a, b), &ends, &mut c, ct::Constant(tile));
        session.launch_with(hints, kernel, [2, n.div_ceil(tile[1])], arguments)?;
        session.check("product", &c, &|[i, j]| {
            let done = j / tile[1] * tile[1] < end;
            Want::exactly(if done { factors.product([i, j]) } else { unwritten::<f32>() })
        })?;
        let arguments = ((a, b), &ends, &mut c, ct::Constant(tile));
        says(
            session,
            || ct::inspect(kernel, arguments).hints(hints).target(ct::Target::SM_90A).schedule(),
            &["cluster of 2"],
        )?;
    }
    Ok(())
}

/// Two products, one of which has a factor from outside of the loop.
fn attention(session: Session) -> Result<()> {
    fn kernel((q, k): Pair, ends: Array<i32, 1>, y: ArrayMut<f32, 2>, [m, n, d]: [usize; 3]) {
        let i = ct::bid(0);
        let end = ends.load_scalar(0);
        ct::return_if((i * m).ge(end));
        let a = q.load((i, 0), [m, d]);
        let sum = ct::fold(..k.num_tiles(0, [n, d]), ct::zeros::<f32, 2>([m, d]), |acc, j| {
            let b = k.load((j, 0), [n, d]);
            let scores = ct::mma(a, b.transpose(), ct::zeros::<f32, 2>([m, n]));
            ct::mma(scores.cast::<f16>(), b, acc)
        });
        y.store((i, 0), sum);
    }
    let [rows, keys, d] = [300, 200, 64];
    let (q, k) = (random::<f16>(5, rows * d, Spread::Whole(2)), random::<f16>(6, keys * d, Spread::Whole(2)));
    let (device_q, device_k) = (session.array(&q, [rows, d])?, session.array(&k, [keys, d])?);
    let (q, k) = (numbers(&q), numbers(&k));
    let scores = Product::new(session, [rows, keys, d], |i, l| q[i * d + l], |l, j| k[j * d + l]);
    let sums = Product::new(session, [rows, d, keys], |i, j| scores.at([i, j]), |j, c| k[j * d + c]);
    for (end, m) in [(130, 64), (130, 128), (0, 128), (300, 128)] {
        let ends = session.array(&[end as i32], [1])?;
        let mut y = session.unwritten::<f32, 2>([rows, d])?;
        let tile = ct::Constant([m, 64, d]);
        session.launch(kernel, [rows.div_ceil(m) + 1], ((&device_q, &device_k), &ends, &mut y, tile))?;
        session.check("sums", &y, &|[i, c]| {
            if i / m * m >= end {
                return Want::exactly(unwritten::<f32>());
            }
            Want::exactly(sums.at([i, c]) as f32)
        })?;
        let arguments = ((&device_q, &device_k), &ends, &mut y, tile);
        says(session, || ct::inspect(kernel, arguments).target(ct::Target::SM_90A).schedule(), &["tma_load"])?;
    }
    Ok(())
}

/// Blocks that end between two products, whose operands are both prefetched.
fn between(session: Session) -> Result<()> {
    fn kernel(factors: Pair, ends: Array<i32, 1>, [c, d]: [ArrayMut<f32, 2>; 2], tile: [usize; 3]) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        c.store((i, j), product(factors, (i, j), tile));
        ct::return_if((i + j).eq(ends.load_scalar(0)));
        d.store((i, j), product(factors, (j, i), tile));
    }
    let [m, n, k] = [208, 208, 144];
    let factors = Factors::new(session, [m, n, k])?;
    for tile in [[64, 64, 64], [128, 128, 64]] {
        let (ends, (a, b)) = (session.array(&[1], [1])?, &factors.on);
        let [mut c, mut d] = [session.unwritten::<f32, 2>([m, n])?, session.unwritten::<f32, 2>([m, n])?];
        let grid = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
        session.launch(kernel, grid, ((a, b), &ends, [&mut c, &mut d], ct::Constant(tile)))?;
        session.check("first", &c, &|place| Want::exactly(factors.product(place)))?;
        session.check("second", &d, &|[i, j]| {
            let blocks = [i / tile[0], j / tile[1]];
            let from = [blocks[1] * tile[0] + i % tile[0], blocks[0] * tile[1] + j % tile[1]];
            let inside = from[0] < m && from[1] < n;
            let value = if inside { factors.product(from) } else { 0.0 };
            Want::exactly(if blocks[0] + blocks[1] == 1 { unwritten::<f32>() } else { value })
        })?;
        let arguments = ((a, b), &ends, [&mut c, &mut d], ct::Constant(tile));
        let text = || ct::inspect(kernel, arguments).target(ct::Target::SM_90A).schedule();
        says(session, text, &["tma_load"])?;
    }
    Ok(())
}

/// Blocks that end in an iteration, before its loads.
fn in_a_loop(session: Session) -> Result<()> {
    fn kernel((a, b): Pair, ends: Array<i32, 1>, c: ArrayMut<f32, 2>, [m, n, k]: [usize; 3]) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let acc = ct::fold(..a.num_tiles(1, [m, k]), ct::zeros::<f32, 2>([m, n]), |acc, l| {
            ct::return_if((l * 2 + i).eq(ends.load_scalar(j)));
            ct::mma(a.load((i, l), [m, k]), b.load((l, j), [k, n]), acc)
        });
        c.store((i, j), acc);
    }
    let ([m, n, k], tile) = ([256, 128, 304], [64, 64, 64]);
    let factors = Factors::new(session, [m, n, k])?;
    let ends = [0, 5];
    let (device_ends, (a, b)) = (session.array(&ends, [ends.len()])?, &factors.on);
    let mut c = session.unwritten::<f32, 2>([m, n])?;
    session.launch(kernel, [4, 2], ((a, b), &device_ends, &mut c, ct::Constant(tile)))?;
    session.check("product", &c, &|[i, j]| {
        let ends_early = (0..k.div_ceil(tile[2])).any(|l| (l * 2 + i / tile[0]) as i32 == ends[j / tile[1]]);
        Want::exactly(if ends_early { unwritten::<f32>() } else { factors.product([i, j]) })
    })?;
    let arguments = ((a, b), &device_ends, &mut c, ct::Constant(tile));
    says(session, || ct::inspect(kernel, arguments).target(ct::Target::SM_90A).schedule(), &["tma_load"])
}

/// Blocks that compute several tiles one after another, without some of them.
fn persistent_tiles(session: Session) -> Result<()> {
    fn kernel(factors: Pair, left_out: Array<i32, 1>, c: ArrayMut<f32, 2>, tile: [usize; 3]) {
        let columns = c.num_tiles(1, [tile[0], tile[1]]);
        let tiles = c.num_tiles(0, [tile[0], tile[1]]) * columns;
        let range = ct::range(ct::bid(0), tiles).step(ct::num_blocks(0));
        ct::fold_with_control(range, (), |(), at, flow| {
            flow.continue_if(left_out.load_scalar(at).ne(0), ());
            let place = (at / columns, at % columns);
            c.store(place, product(factors, place, tile));
        });
    }
    let [m, n, k] = [192, 160, 144];
    let factors = Factors::new(session, [m, n, k])?;
    for tile in [[64, 64, 64], [128, 128, 64]] {
        let (tiles, columns) = (m.div_ceil(tile[0]) * n.div_ceil(tile[1]), n.div_ceil(tile[1]));
        let left_out: Vec<i32> = (0..tiles as i32).map(|at| i32::from(at % 3 == 1)).collect();
        let (device_left_out, (a, b)) = (session.array(&left_out, [tiles])?, &factors.on);
        let mut c = session.unwritten::<f32, 2>([m, n])?;
        session.launch(kernel, [2], ((a, b), &device_left_out, &mut c, ct::Constant(tile)))?;
        session.check("product", &c, &|[i, j]| {
            let done = left_out[i / tile[0] * columns + j / tile[1]] == 0;
            Want::exactly(if done { factors.product([i, j]) } else { unwritten::<f32>() })
        })?;
        let arguments = ((a, b), &device_left_out, &mut c, ct::Constant(tile));
        says(session, || ct::inspect(kernel, arguments).target(ct::Target::SM_90A).schedule(), &["tma_load"])?;
    }
    Ok(())
}

/// A tile that is loaded before the end and used after it: its copy must not be in flight when the
/// block ends.
fn loaded_before(session: Session) -> Result<()> {
    fn kernel((a, b): Pair, ends: Array<i32, 1>, c: ArrayMut<f32, 2>, [m, n, k]: [usize; 3]) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let first = a.load((i, 0), [m, k]);
        ct::return_if(i.ge(ends.load_scalar(0)));
        let acc = ct::fold(..b.num_tiles(0, [k, n]), ct::zeros::<f32, 2>([m, n]), |acc, l| {
            ct::mma(first, b.load((l, j), [k, n]), acc)
        });
        c.store((i, j), acc);
    }
    let ([m, n, k], tile) = ([256, 128, 256], [64, 64, 64]);
    let factors = Factors::new(session, [m, n, k])?;
    let (ends, (a, b)) = (session.array(&[2], [1])?, &factors.on);
    let mut c = session.unwritten::<f32, 2>([m, n])?;
    session.launch(kernel, [4, 2], ((a, b), &ends, &mut c, ct::Constant(tile)))?;
    let left = |i: usize, l: usize| factors.a[i * k + l % tile[2]];
    let sums = Product::new(session, factors.sides, left, |l, j| factors.b[l * n + j]);
    session.check("product", &c, &|[i, j]| {
        Want::exactly(if i < 128 { sums.at([i, j]) as f32 } else { unwritten::<f32>() })
    })
}

/// The terms of a product in two blocks, the second of which waits for the sums of the first.
fn waits(session: Session) -> Result<()> {
    fn kernel(
        (a, b): Pair,
        (parts, flags): (ArrayMut<f32, 2>, ArrayMut<i32, 1>),
        c: ArrayMut<f32, 2>,
        [m, n, k]: [usize; 3],
    ) {
        let (half, i, j) = (ct::bid(0), ct::bid(1), ct::bid(2));
        let tiles = a.num_tiles(1, [m, k]);
        let middle = tiles / 2;
        let range = ct::range(half * middle, middle + half * (tiles - middle));
        let acc = ct::fold(range, ct::zeros::<f32, 2>([m, n]), |acc, l| {
            ct::mma(a.load((i, l), [m, k]), b.load((l, j), [k, n]), acc)
        });
        let flag = flags.entry(i * ct::num_blocks(2) + j);
        ct::if_else(
            half.eq(0),
            || {
                parts.store((i, j), acc);
                flag.atomic_xchg_with(1, AtomicOptions::new().release(Scope::Device));
            },
            || {
                let acquire = GatherOptions::new().acquire(Scope::Device);
                ct::while_loop((), |()| flag.load_with(acquire).ne(1), |()| ());
                c.store((i, j), acc + parts.load((i, j), [m, n]));
            },
        );
    }
    let [m, n, k] = [128, 256, 320];
    let factors = Factors::new(session, [m, n, k])?;
    for tile in [[64, 64, 64], [128, 128, 64], [128, 256, 64]] {
        let (a, b) = &factors.on;
        let grid = [2, m / tile[0], n / tile[1]];
        let [mut parts, mut c] = [session.unwritten::<f32, 2>([m, n])?, session.unwritten::<f32, 2>([m, n])?];
        let mut flags = session.device().zeros([grid[1] * grid[2]])?;
        session.launch(kernel, grid, ((a, b), (&mut parts, &mut flags), &mut c, ct::Constant(tile)))?;
        session.check("product", &c, &|place| Want::exactly(factors.product(place)))?;
        let arguments = ((a, b), (&mut parts, &mut flags), &mut c, ct::Constant(tile));
        says(session, || ct::inspect(kernel, arguments).target(ct::Target::SM_90A).schedule(), &["tma_load"])?;
    }
    Ok(())
}

/// Each block takes an equal share of all terms of all tiles (Stream-K). The first block of a tile
/// adds the sums of the later blocks, which have stored them.
fn stream_k(session: Session) -> Result<()> {
    fn kernel(
        (a, b): Pair,
        (parts, flags): (ArrayMut<f32, 3>, ArrayMut<i32, 1>),
        c: ArrayMut<f32, 2>,
        [m, n, k]: [usize; 3],
    ) {
        // Blocks wait for blocks of lower numbers.
        let (blocks, place) = (ct::num_blocks(0), ct::num_blocks(0) - 1 - ct::bid(0));
        let (columns, each) = (b.num_tiles(1, [k, n]), a.num_tiles(1, [m, k]));
        let all = a.num_tiles(0, [m, k]) * columns * each;
        let share = all.ceil_div(blocks);
        let (begin, end) = ((place * share).min(all), (place * share + share).min(all));
        ct::while_loop(
            begin,
            |at| at.lt(end),
            |at| {
                let (tile, first) = (at / each, at % each);
                let last = each.min(first + end - at);
                let (i, j) = (tile / columns, tile % columns);
                let acc = ct::fold(first..last, ct::zeros::<f32, 2>([m, n]), |acc, l| {
                    ct::mma(a.load((i, l), [m, k]), b.load((l, j), [k, n]), acc)
                });
                ct::if_else(
                    first.gt(0),
                    || {
                        parts.store((place, 0, 0), acc.reshape([1, m, n]));
                        flags.entry(place).atomic_xchg_with(1, AtomicOptions::new().release(Scope::Device));
                    },
                    || {
                        let behind = (tile * each + each - 1) / share;
                        let acc = ct::fold(place + 1..behind + 1, acc, |acc, other| {
                            let acquire = GatherOptions::new().acquire(Scope::Device);
                            let flag = flags.entry(other);
                            ct::while_loop((), |()| flag.load_with(acquire).ne(1), |()| ());
                            acc + parts.load((other, 0, 0), [1, m, n]).reshape([m, n])
                        });
                        c.store((i, j), acc);
                    },
                );
                at + last - first
            },
        );
    }
    let [m, n, k] = [128, 256, 320];
    let factors = Factors::new(session, [m, n, k])?;
    for tile in [[64, 64, 64], [128, 128, 64], [128, 256, 64]] {
        let ((a, b), blocks) = (&factors.on, 3);
        let (mut parts, mut c) =
            (session.unwritten::<f32, 3>([blocks, tile[0], tile[1]])?, session.unwritten::<f32, 2>([m, n])?);
        let mut flags = session.device().zeros([blocks])?;
        session.launch(kernel, [blocks], ((a, b), (&mut parts, &mut flags), &mut c, ct::Constant(tile)))?;
        session.check("product", &c, &|place| Want::exactly(factors.product(place)))?;
        let arguments = ((a, b), (&mut parts, &mut flags), &mut c, ct::Constant(tile));
        says(session, || ct::inspect(kernel, arguments).target(ct::Target::SM_90A).schedule(), &["tma_load"])?;
    }
    Ok(())
}
