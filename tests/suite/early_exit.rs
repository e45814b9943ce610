//! Loops that go down or backwards or count in other types, and bodies that end early: breaks, next
//! iterations and returns between loads, reductions and products.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, ravel, unwritten};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    suite.test("early_exit/directions", directions);
    suite.test("early_exit/wide_counters", wide_counters);
    suite.test("early_exit/host_steps", host_steps);
    suite.test("early_exit/exits", exits);
    suite.test("early_exit/nested", nested);
    suite.test("early_exit/products", products);
    suite.test("early_exit/returns", returns);
    suite.test("early_exit/endless", endless);
    suite.test("early_exit/hints", hints);
    suite.test("early_exit/known", known);
}

/// The numbers from `start` by `step` to before `end`.
fn numbers(start: i128, end: i128, step: i128) -> Vec<i128> {
    let mut all = Vec::new();
    let mut i = start;
    while (i < end && step > 0) || (i > end && step < 0) {
        all.push(i);
        i += step;
    }
    all
}

/// Returns the combination of the visited numbers, as the kernels compute it.
fn mixed(numbers: &[i128]) -> i64 {
    numbers.iter().fold(1i64, |acc, &i| acc.wrapping_mul(31).wrapping_add(i as i64))
}

const ENDS: [[i32; 3]; 16] = [
    [0, 9, 1],
    [9, 0, -1],
    [9, -9, -4],
    [-3, 20, 7],
    [0, 9, 0],
    [0, 9, -1],
    [9, 0, 1],
    [5, 5, -1],
    [i32::MAX, i32::MAX - 7, -3],
    [i32::MIN + 7, i32::MIN, -3],
    [i32::MAX, i32::MIN, i32::MIN],
    [i32::MIN, i32::MAX, i32::MAX],
    [i32::MAX, i32::MIN, -(1 << 30)],
    [i32::MIN, i32::MAX, 1 << 30],
    [-1, i32::MIN, i32::MIN],
    [i32::MAX - 1, i32::MAX, i32::MAX],
];

/// Steps that are known only at run time, forwards and backwards.
fn directions(session: Session) -> Result<()> {
    fn kernel(ends: Array<i32, 1>, y: ArrayMut<i64, 2>) {
        let row = ct::bid(0);
        let [start, end, step] = [0, 1, 2].map(|i| ends.load_scalar(row * 3 + i));
        let range = ct::range(start, end).step(step);
        let mix = |acc: Scalar<i64>, i: Scalar<i32>| acc * 31 + i.cast::<i64>();
        let one = ct::scalar(1i64);
        let (seen, _) = ct::fold_while(range, (one, ct::scalar(0)), |(acc, n), i| (n.lt(3), (mix(acc, i), n + 1)));
        let (rest, _) = ct::fold_with_control(range.rev(), (one, ct::scalar(0)), |(acc, n), i, flow| {
            flow.break_if(n.ge(4), (acc, n));
            flow.continue_if((i & 1).eq(0), (acc * 7, n + 1));
            (mix(acc, i), n + 1)
        });
        let all = [ct::fold(range, one, mix), ct::fold(range.rev(), one, mix), seen, rest];
        for (column, value) in all.into_iter().enumerate() {
            y.store_scalar((row, column), value);
        }
    }
    let ends = session.array(ENDS.as_flattened(), [3 * ENDS.len()])?;
    let mut y = session.unwritten::<i64, 2>([ENDS.len(), 4])?;
    session.launch(kernel, [ENDS.len()], (&ends, &mut y))?;
    session.check("numbers", &y, &|[row, column]| {
        let [start, end, step] = ENDS[row].map(i128::from);
        let forwards = numbers(start, end, step);
        let backwards: Vec<i128> = forwards.iter().rev().copied().collect();
        Want::exactly(match column {
            0 => mixed(&forwards),
            1 => mixed(&backwards),
            2 => mixed(&forwards[..forwards.len().min(4)]),
            _ => backwards.iter().take(4).fold(1i64, |acc, &i| match i & 1 {
                0 => acc.wrapping_mul(7),
                _ => acc.wrapping_mul(31).wrapping_add(i as i64),
            }),
        })
    })
}

/// Loops over i64, u32 and u64, beyond the range of 32 bits or of signed integers.
fn wide_counters(session: Session) -> Result<()> {
    type Three<T> = (Scalar<T>, Scalar<T>, Scalar<T>);
    fn kernel(y: ArrayMut<i64, 1>, wide: Three<i64>, small: Three<u32>, large: (Scalar<u64>, Scalar<u64>)) {
        let one = ct::scalar(1i64);
        let mix = |acc: Scalar<i64>, i: Scalar<i64>| acc * 31 + i;
        let (start, end, step) = wide;
        let (first, last, by) = small;
        let all = [
            ct::fold(ct::range(start, end).step(step), one, mix),
            ct::fold(ct::range(start, end).step(step).rev(), one, mix),
            ct::fold(ct::range(first, last).step(by), one, |acc, i| mix(acc, i.cast())),
            ct::fold(ct::range(last, first).step(-3), one, |acc, i| mix(acc, i.cast())),
            ct::fold(large.0..large.1, one, |acc, i| mix(acc, i.cast())),
            ct::fold(ct::range(large.0, large.1).rev(), one, |acc, i| mix(acc, i.cast())),
            ct::fold(ct::range(0, by), one, |acc, i| mix(acc, i.cast())),
            ct::fold_with_control(ct::range(0, end), one, |acc, i, flow| {
                flow.break_if(i.ge(5), acc);
                mix(acc, i)
            }),
        ];
        for (place, value) in all.into_iter().enumerate() {
            y.store_scalar(place, value);
        }
    }
    let wide = [1i64 << 40, (1 << 40) + 10_000_000_000, 3_000_000_001];
    let small = [3_000_000_000u32, 3_000_000_020, 7];
    let large = [u64::MAX - 5, u64::MAX];
    let mut y = session.unwritten::<i64, 1>([8])?;
    let arguments = (&mut y, wide.into(), small.into(), large.into());
    session.launch::<_, (_, (i64, i64, i64), (u32, u32, u32), (u64, u64)), _, 1>(kernel, [1], arguments)?;
    session.check("numbers", &y, &|[place]| {
        let ([a, b, c], [d, e, f], [g, h]) = (wide.map(i128::from), small.map(i128::from), large.map(i128::from));
        let reversed = |mut all: Vec<i128>| {
            all.reverse();
            all
        };
        Want::exactly(mixed(&match place {
            0 => numbers(a, b, c),
            1 => reversed(numbers(a, b, c)),
            2 => numbers(d, e, f),
            3 => numbers(e, d, -3),
            4 => numbers(g, h, 1),
            5 => reversed(numbers(g, h, 1)),
            6 => numbers(0, f, 1),
            _ => numbers(0, 5, 1),
        }))
    })
}

/// Steps of the host, downwards and backwards, over tiles.
fn host_steps(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 2>, y: ArrayMut<i32, 2>) {
        let row = ct::bid(0);
        let tiles = x.num_tiles(1, [1, 32]);
        let sum = |range: ct::StepRange<i32>| {
            ct::fold(range, ct::zeros::<i32, 2>([1, 32]), |sum, j| sum * 3 + x.load((row, j), [1, 32]))
        };
        let all = [
            sum(ct::range(tiles - 1, -1).step(-1)),
            sum(ct::range(0, tiles).rev()),
            sum(ct::range(tiles - 1, 0).step(-2)),
            sum(ct::range(1, tiles).step(3).rev()),
            sum(ct::range(6, 1).step(-2)),
            sum(ct::range(2, 2).rev()),
        ];
        for (column, tile) in all.into_iter().enumerate() {
            y.store((row, column), tile);
        }
    }
    let shape = [3, 32 * 7 + 9];
    let data = random::<i32>(1, 3 * shape[1], Spread::Whole(99));
    let x = session.array(&data, shape)?;
    let mut y = session.unwritten::<i32, 2>([3, 6 * 32])?;
    session.launch(kernel, [3], (&x, &mut y))?;
    session.check("sums", &y, &|[row, column]| {
        let order: &[usize] = match column / 32 {
            0 | 1 => &[7, 6, 5, 4, 3, 2, 1, 0],
            2 => &[7, 5, 3, 1],
            3 => &[7, 4, 1],
            4 => &[6, 4, 2],
            _ => &[],
        };
        let element = |tile: usize| match 32 * tile + column % 32 {
            inside if inside < shape[1] => data[ravel([row, inside], shape)],
            _ => 0,
        };
        Want::exactly(order.iter().fold(0i32, |sum, &tile| sum.wrapping_mul(3).wrapping_add(element(tile))))
    })
}

/// Exits between loads, reductions across the block and stores.
fn exits(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 3>, y: ArrayMut<i32, 2>, log: ArrayMut<i32, 2>) {
        let (row, shape) = (ct::bid(0), [1, 16, 32]);
        let tiles = x.extent(1) / 16;
        let start = (ct::zeros::<i32, 3>(shape), ct::scalar(0));
        let (sum, rounds) = ct::fold_with_control(..tiles, start, |(sum, rounds), k, flow| {
            let tile = x.load((row, k, 0), shape);
            let largest = tile.reduce_max(..).item();
            flow.continue_if(largest.lt(50), (sum, rounds));
            log.store_scalar((row, k), largest);
            let turned = tile.reshape([16, 32]).permute([1, 0]).reshape([32, 16]).sum(1).reshape([32]);
            flow.break_if(largest.gt(99), (sum + largest, rounds + 1));
            let sum = sum + tile + turned.reshape([1, 1, 32]);
            flow.continue_if(largest.gt(90), (sum * 2, rounds + 100));
            (sum, rounds + 1)
        });
        y.store((row, 0), sum.reshape([16, 32]).sum(0).squeeze(0).unsqueeze(0));
        log.store_scalar((row, 10), rounds);
    }
    let shape = [12, 160, 32];
    let mut data = random::<i32>(2, shape.iter().product(), Spread::Whole(40));
    let mut largest = [[0; 10]; 12];
    for (row, of_row) in largest.iter_mut().enumerate() {
        for (k, largest) in of_row.iter_mut().enumerate() {
            *largest = [40, 45, 60, 70, 95, 55, 45, 80, 65, if row % 3 == 0 { 100 } else { 52 }][(k * 7 + row) % 10];
            data[ravel([row, 16 * k + (row + k) % 16, (3 * row + k) % 32], shape)] = *largest;
        }
    }
    let x = session.array(&data, shape)?;
    let (mut y, mut log) = (session.unwritten::<i32, 2>([12, 32])?, session.unwritten::<i32, 2>([12, 11])?);
    session.launch(kernel, [12], (&x, &mut y, &mut log))?;
    let run = |row: usize| {
        let mut sum = vec![0i32; 512];
        let (mut rounds, mut logged) = (0, [unwritten::<i32>(); 11]);
        for k in 0..10 {
            let tile: Vec<i32> = (0..512).map(|e| data[ravel([row, 16 * k + e / 32, e % 32], shape)]).collect();
            let largest = *tile.iter().max().expect("elements");
            if largest < 50 {
                continue;
            }
            logged[k] = largest;
            if largest > 99 {
                sum.iter_mut().for_each(|s| *s += largest);
                rounds += 1;
                break;
            }
            let columns: Vec<i32> = (0..32).map(|j| (0..16).map(|i| tile[32 * i + j]).sum()).collect();
            for (e, s) in sum.iter_mut().enumerate() {
                *s += tile[e] + columns[e % 32];
                if largest > 90 {
                    *s *= 2;
                }
            }
            rounds += if largest > 90 { 100 } else { 1 };
        }
        logged[10] = rounds;
        (sum, logged)
    };
    session.check("sums", &y, &|[row, j]| {
        let sum = run(row).0;
        Want::exactly((0..16).map(|i| sum[32 * i + j]).sum::<i32>())
    })?;
    session.check("log", &log, &|[row, k]| Want::exactly(run(row).1[k]))
}

/// Exits in branches inside of loops inside of loops.
fn nested(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<i32, 1>) {
        let block = ct::bid(0);
        let total = ct::fold_with_control(..8, ct::scalar(0), |total, i, outer| {
            let inner = ct::fold_with_control(ct::range(8, 0).step(-1), ct::scalar(0), |sum, j, flow| {
                ct::if_then((i + j).eq(block), || flow.break_if(j.gt(2), sum + 1000));
                let sum = ct::if_else(
                    (j % 3).eq(0),
                    || {
                        flow.continue_if((i % 2).eq(0), sum + 100);
                        sum + 10
                    },
                    || sum,
                );
                sum + 1
            });
            outer.break_if((total + inner).gt(4000), total + inner);
            ct::if_then(inner.gt(1000), || outer.continue_if((block % 2).eq(0), total - 1));
            total + inner
        });
        y.store_scalar(block, total);
    }
    let mut y = session.unwritten::<i32, 1>([20])?;
    session.launch(kernel, [20], (&mut y,))?;
    session.check("totals", &y, &|[block]| {
        let mut total = 0;
        for i in 0..8 {
            let mut sum = 0;
            for j in (1..=8).rev() {
                if i + j == block as i32 && j > 2 {
                    sum += 1000;
                    break;
                }
                if j % 3 == 0 {
                    if i % 2 == 0 {
                        sum += 100;
                        continue;
                    }
                    sum += 10;
                }
                sum += 1;
            }
            if total + sum > 4000 {
                total += sum;
                break;
            }
            total = if sum > 1000 && block % 2 == 0 { total - 1 } else { total + sum };
        }
        Want::exactly(total)
    })
}

/// Products of f16 in loops that skip iterations and stop, by flags in memory: loads of other
/// warps, and multistage copies, are complete or skipped, but never exchanged.
fn products(session: Session) -> Result<()> {
    const TILE: usize = 64;
    fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, flags: Array<i32, 1>, c: ArrayMut<f32, 2>, early: bool) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let tiles = a.num_tiles(1, [TILE, TILE]);
        let acc = ct::fold_with_control(..tiles, ct::zeros::<f32, 2>([TILE, TILE]), |acc, k, flow| {
            let flag = flags.load_scalar(k);
            if early {
                flow.break_if(flag.eq(2), acc);
                flow.continue_if(flag.eq(1), acc);
            }
            let (a, b) = (a.load((i, k), [TILE, TILE]), b.load((k, j), [TILE, TILE]));
            if !early {
                flow.break_if(flag.eq(2), acc);
                flow.continue_if(flag.eq(1), acc);
            }
            ct::mma(a, b, acc)
        });
        c.store((i, j), acc);
    }
    fn skips(a: Array<f16, 2>, b: Array<f16, 2>, flags: Array<i32, 1>, c: ArrayMut<f32, 2>, early: bool) {
        let (i, j) = (ct::bid(0), ct::bid(1));
        let tiles = a.num_tiles(1, [TILE, TILE]);
        let acc = ct::fold_with_control(..tiles, ct::zeros::<f32, 2>([TILE, TILE]), |acc, k, flow| {
            let skip = flags.load_scalar(k).ne(0);
            if early {
                flow.continue_if(skip, acc);
            }
            let next = ct::mma(a.load((i, k), [TILE, TILE]), b.load((k, j), [TILE, TILE]), acc);
            flow.continue_if(skip, acc);
            next
        });
        c.store((i, j), acc);
    }
    let [m, n, k] = [128, 192, 10 * TILE];
    let (a, b) = (random::<f16>(3, m * k, Spread::Whole(3)), random::<f16>(4, k * n, Spread::Whole(3)));
    let flags = [0, 1, 0, 0, 1, 1, 0, 2, 0, 1];
    let (device_a, device_b) = (session.array(&a, [m, k])?, session.array(&b, [k, n])?);
    let device_flags = session.array(&flags, [flags.len()])?;
    for (stops, early) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut c = session.unwritten::<f32, 2>([m, n])?;
        let (grid, early) = ([m / TILE, n / TILE], ct::Constant(early));
        match stops {
            true => session.launch(kernel, grid, (&device_a, &device_b, &device_flags, &mut c, early))?,
            false => session.launch(skips, grid, (&device_a, &device_b, &device_flags, &mut c, early))?,
        }
        session.check("products", &c, &|[i, j]| {
            let end = if stops { 7 } else { flags.len() };
            let rounds = (0..end).filter(|&round| flags[round] == 0);
            let terms = rounds.flat_map(|round| round * TILE..(round + 1) * TILE);
            let sum: f64 = terms.map(|l| a[i * k + l].to_f64() * b[l * n + j].to_f64()).sum();
            Want::exactly(sum as f32)
        })?;
    }
    Ok(())
}

/// Blocks that end in loops, in loops in loops, and before them.
fn returns(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>) {
        let block = ct::bid(0);
        y.store((block, 0), ct::full::<f32, 2>([1, 64], 1.0));
        ct::return_if(block.eq(0));
        let sum = ct::fold(..4, ct::zeros::<f32, 2>([1, 64]), |sum, k| {
            let tile = x.load((k, 0), [1, 64]);
            ct::if_then((block - k).eq(1), || {
                y.store((block, 0), tile);
                ct::return_if(tile.sum(..).gt(0.0).item());
            });
            ct::fold(..3, sum + tile, |sum, j| {
                ct::return_if((k * 3 + j).eq(block));
                sum * 2.0
            })
        });
        y.store((block, 0), sum);
    }
    let shape = [4, 64];
    let mut x = random::<f32>(5, 256, Spread::Whole(9));
    for (row, sign) in [1.0, -1.0, 1.0, -1.0].into_iter().enumerate() {
        x[row * 64] = sign * 1000.0;
    }
    let device_x = session.array(&x, shape)?;
    let mut y = session.unwritten::<f32, 2>([16, 64])?;
    session.launch(kernel, [16], (&device_x, &mut y))?;
    session.check("rows", &y, &|[block, j]| {
        let mut stored = 1.0;
        let mut run = || {
            let mut sum = 0f32;
            for k in 0..4 {
                let tile = x[k * 64 + j];
                if block == k + 1 {
                    stored = tile;
                    if k % 2 == 0 {
                        return;
                    }
                }
                sum += tile;
                for i in 0..3 {
                    if k * 3 + i == block {
                        return;
                    }
                    sum *= 2.0;
                }
            }
            stored = sum;
        };
        if block > 0 {
            run();
        }
        Want::exactly(stored)
    })
}

/// Loops without an end of their own, with tiles as state.
fn endless(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>) {
        let at = ct::bid(0);
        let (tile, turns) = ct::loop_with_control((x.load(at, [128]), ct::scalar(0)), |(tile, turns), flow| {
            let sum = tile.sum(0).item();
            flow.break_if(sum.gt(10_000), (tile - 1, turns));
            flow.continue_if((sum & 1).eq(0), (tile + 1, turns + 1));
            let tile = tile * 2 + ct::arange(0..128);
            flow.break_if(turns.gt(200), (tile, turns));
            (tile, turns + 1)
        });
        y.store(at, tile + turns);
    }
    let data = random::<i32>(6, 128 * 9, Spread::Whole(20));
    let x = session.array(&data, [data.len()])?;
    let mut y = session.unwritten::<i32, 1>([data.len()])?;
    session.launch(kernel, [9], (&x, &mut y))?;
    session.check("tiles", &y, &|[i]| {
        let mut tile = data[i / 128 * 128..][..128].to_vec();
        let mut turns = 0;
        loop {
            let sum = tile.iter().fold(0i32, |sum, &x| sum.wrapping_add(x));
            if sum > 10_000 {
                tile.iter_mut().for_each(|x| *x = x.wrapping_sub(1));
                break;
            }
            if sum & 1 == 0 {
                tile.iter_mut().for_each(|x| *x = x.wrapping_add(1));
                turns += 1;
                continue;
            }
            tile.iter_mut().enumerate().for_each(|(j, x)| *x = x.wrapping_mul(2).wrapping_add(j as i32));
            if turns > 200 {
                break;
            }
            turns += 1;
        }
        Want::exactly(tile[i % 128].wrapping_add(turns))
    })
}

/// Hints change nothing about the results.
fn hints(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 2>, y: ArrayMut<f32, 2>, stages: u32) {
        let tiles = ct::range(0, a.num_tiles(1, [64, 64])).num_stages(stages).unroll(stages);
        let acc = ct::fold(tiles, ct::zeros::<f32, 2>([64, 64]), |acc, k| {
            let a = a.load((0, k), [64, 64]);
            ct::mma(a, a.permute([1, 0]), acc)
        });
        y.store([0, 0], acc);
    }
    let data = random::<f16>(7, 64 * 500, Spread::Whole(3));
    let a = session.array(&data, [64, 500])?;
    for stages in 1..=4 {
        let mut y = session.unwritten::<f32, 2>([64, 64])?;
        session.launch(kernel, [1], (&a, &mut y, ct::Constant(stages)))?;
        session.check("products", &y, &|[i, j]| {
            let terms = (0..500).map(|k| data[i * 500 + k].to_f64() * data[j * 500 + k].to_f64());
            Want::exactly(terms.sum::<f64>() as f32)
        })?;
    }
    Ok(())
}

/// Conditions that are known while tracing.
fn known(session: Session) -> Result<()> {
    fn kernel(y: ArrayMut<i32, 1>, leaves: bool) {
        let (block, count) = (ct::bid(0), ct::bid(0) + 3);
        let sum = ct::fold_with_control(..count, ct::scalar(0), |sum, i, flow| {
            flow.continue_if(!leaves, sum + 1);
            flow.break_if(leaves, sum + 100 + i);
            sum + 1000
        });
        y.store_scalar(block, sum);
        ct::return_if(leaves);
        y.store_scalar(block, sum * 2);
    }
    for leaves in [false, true] {
        let mut y = session.unwritten::<i32, 1>([3])?;
        session.launch(kernel, [3], (&mut y, ct::Constant(leaves)))?;
        session.check("sums", &y, &|[i]| Want::exactly(if leaves { 100 } else { 2 * (i as i32 + 3) }))?;
    }
    Ok(())
}
