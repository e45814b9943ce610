//! Clusters: tiles of every element type and of odd extents, gathered, added and taken from
//! neighbours, in loops, by clusters of each size. A softmax of rows longer than a tile block
//! holds.

use anyhow::{Context, Result, ensure};
use cutlet as ct;
use cutlet::prelude::*;

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($($name:ident)+) => {$(
            suite.lean(concat!("cluster/gathered/", stringify!($name)), gathered::<$name>);
        )+};
    }
    each!(f64 f32 f16 bf16 f8e4m3fn i8 i16 i32 i64 u8 u64);
    suite.lean("cluster/in_a_loop", in_a_loop);
    suite.lean("cluster/odd_extents", odd_extents);
    suite.lean("cluster/softmax", softmax);
    suite.lean("cluster/large_tiles", large_tiles);
    suite.lean("cluster/split_product", split_product);
}

/// Neither Tile IR nor GPUs before sm_90 have clusters: `tests/hints.rs` and the tests of the back
/// ends.
fn has_clusters(session: Session) -> bool {
    match session {
        Session::Assemble(target, _) => target.arch >= 90,
        session => !session.through_tile_ir(),
    }
}

const SIZES: [usize; 3] = [2, 4, 8];

/// Tiles of all ranks, and of the next rank.
fn gathered<T: Element>(session: Session) -> Result<()> {
    fn kernel<T: Element>(x: Array<T, 1>, all: ArrayMut<T, 3>, next: ArrayMut<T, 1>, size: usize, tile: usize) {
        let cluster = ct::cluster(size);
        let x = x.load(ct::bid(0), [tile]);
        all.store((ct::bid(0), 0, 0), cluster.all_gather(x).reshape([1, size, tile]));
        next.store(ct::bid(0), cluster.peer(x, cluster.rank() + 1));
    }
    if !has_clusters(session) {
        return Ok(());
    }
    for (size, tile) in SIZES.into_iter().zip([64, 256, 16]) {
        let blocks = 3 * size;
        let data = random::<T>(size as u64, blocks * tile, Spread::Any);
        let x = session.array(&data, [data.len()])?;
        let mut all = session.unwritten::<T, 3>([blocks, size, tile])?;
        let mut next = session.unwritten::<T, 1>([data.len()])?;
        let constants = (Constant(size), Constant(tile));
        session.launch(kernel::<T>, [blocks], (&x, &mut all, &mut next, constants.0, constants.1))?;
        let of = |block: usize, rank: usize, i: usize| data[(block / size * size + rank % size) * tile + i];
        session.check("all", &all, &|[block, rank, i]| Want::SameBits(of(block, rank, i).to_bits()))?;
        let neighbour = |[at]: [usize; 1]| of(at / tile, at / tile % size + 1, at % tile);
        session.check("next", &next, &|at| Want::SameBits(neighbour(at).to_bits()))?;
    }
    Ok(())
}

/// Exchanges in a loop, each of the result of the previous one.
fn in_a_loop(session: Session) -> Result<()> {
    fn kernel(x: Array<i32, 1>, y: ArrayMut<i32, 1>, steps: Scalar<i32>, size: usize) {
        let cluster = ct::cluster(size);
        let start = x.load(ct::bid(0), [128]);
        let sum = ct::fold(..steps, start, |tile, k| {
            let largest = cluster.reduce_max(tile);
            cluster.sum(tile * 3 + k) ^ (largest + cluster.rank())
        });
        y.store(ct::bid(0), sum);
    }
    if !has_clusters(session) {
        return Ok(());
    }
    for (size, steps) in SIZES.into_iter().zip([5, 0, 3]) {
        let data = random::<i32>(7, 2 * size * 128, Spread::Any);
        let (x, mut y) = (session.array(&data, [data.len()])?, session.unwritten::<i32, 1>([data.len()])?);
        session.launch(kernel, [2 * size], (&x, &mut y, steps, Constant(size)))?;
        let mut tiles: Vec<Vec<i32>> = data.chunks(128).map(<[i32]>::to_vec).collect();
        for k in 0..steps {
            for cluster in tiles.chunks_mut(size) {
                let combined = |i: usize| {
                    let largest = cluster.iter().map(|tile| tile[i]).max().unwrap_or_default();
                    let terms = cluster.iter().map(|tile| tile[i].wrapping_mul(3).wrapping_add(k));
                    (terms.fold(0, i32::wrapping_add), largest)
                };
                let all: Vec<(i32, i32)> = (0..128).map(combined).collect();
                for (rank, tile) in cluster.iter_mut().enumerate() {
                    *tile = all.iter().map(|(sum, largest)| sum ^ largest.wrapping_add(rank as i32)).collect();
                }
            }
        }
        session.check("tiles", &y, &|[i]| Want::exactly(tiles[i / 128][i % 128]))?;
    }
    Ok(())
}

/// Tiles whose extents are no powers of two.
fn odd_extents(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 3>, y: ArrayMut<f32, 3>) {
        let cluster = ct::cluster(4);
        let x = x.load((ct::bid(0), 0, 0), [1, 5, 12]).squeeze(0);
        y.store((ct::bid(0), 0, 0), (cluster.sum(x) - cluster.reduce_min(x)).unsqueeze(0));
    }
    if !has_clusters(session) {
        return Ok(());
    }
    let data = random::<i32>(3, 8 * 60, Spread::Between(-99.0, 99.0));
    let floats: Vec<f32> = data.iter().map(|&x| x as f32).collect();
    let (x, mut y) = (session.array(&floats, [8, 5, 12])?, session.unwritten::<f32, 3>([8, 5, 12])?);
    session.launch(kernel, [8], (&x, &mut y))?;
    session.check("sums", &y, &|[block, i, j]| {
        let parts = (0..4).map(|rank| data[((block / 4 * 4 + rank) * 5 + i) * 12 + j]);
        Want::exactly((parts.clone().sum::<i32>() - parts.min().unwrap_or_default()) as f32)
    })
}

/// Rows that a cluster shares.
fn softmax(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>, size: usize, part: usize) {
        let cluster = ct::cluster(size);
        let at = (cluster.id(), cluster.rank());
        let x = x.load_with(at, [1, part], ct::LoadOptions::new().padding(Padding::NegInf));
        let largest = cluster.reduce_max(x.reduce_max(1));
        let weights = (x - largest).exp();
        y.store(at, weights / cluster.sum(weights.sum(1)));
    }
    if !has_clusters(session) {
        return Ok(());
    }
    for (size, part, columns) in [(2, 1024, 2000), (8, 4096, 30_001)] {
        let data = random::<f32>(5, 3 * columns, Spread::Between(-8.0, 8.0));
        let (x, mut y) = (session.array(&data, [3, columns])?, session.unwritten::<f32, 2>([3, columns])?);
        session.launch(kernel, [3 * size], (&x, &mut y, Constant(size), Constant(part)))?;
        let sums: Vec<f64> =
            data.chunks(columns).map(|row| row.iter().map(|&x| f64::from(x).exp()).sum::<f64>()).collect();
        session.check("weights", &y, &|[i, j]| {
            let weight = f64::from(data[i * columns + j]).exp() / sums[i];
            Want::Within { value: weight, error: 1e-5 * weight }
        })?;
    }
    Ok(())
}

/// Tiles that exceed the free shared memory, and are exchanged in several steps.
fn large_tiles(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 1>, y: ArrayMut<f32, 1>) {
        let cluster = ct::cluster(2);
        let x = x.load(ct::bid(0), [1 << 14]);
        y.store(ct::bid(0), cluster.peer(x, cluster.rank() + 1));
    }
    if !has_clusters(session) {
        return Ok(());
    }
    let data = random::<f32>(9, 2 << 14, Spread::Any);
    let (x, mut y) = (session.array(&data, [data.len()])?, session.unwritten::<f32, 1>([data.len()])?);
    session.launch(kernel, [2], (&x, &mut y))?;
    session.check("exchanged", &y, &|[i]| Want::SameBits(data[i ^ 1 << 14].to_bits().into()))
}

/// Products whose sums a cluster shares; the launch by the driver's arguments has the same cluster.
fn split_product(session: Session) -> Result<()> {
    fn kernel(a: Array<f16, 2>, b: Array<f16, 2>, y: ArrayMut<f32, 2>, size: usize) {
        let cluster = ct::cluster(size);
        let steps = ct::range(cluster.rank(), a.num_tiles(1, [64, 64])).step(size as i32);
        let part = ct::fold(steps, ct::zeros::<f32, 2>([64, 32]), |sum, k| {
            ct::mma(a.load((cluster.id(), k), [64, 64]), b.load((k, 0), [64, 32]), sum)
        });
        y.store((ct::bid(0), 0), cluster.sum(part));
    }
    if !has_clusters(session) {
        return Ok(());
    }
    let [m, k] = [2 * 64, 320];
    let data = [random::<f16>(1, m * k, Spread::Whole(4)), random::<f16>(2, k * 32, Spread::Whole(4))];
    let (a, b) = (session.array(&data[0], [m, k])?, session.array(&data[1], [k, 32])?);
    for size in SIZES {
        let mut y = session.unwritten::<f32, 2>([2 * size * 64, 32])?;
        session.launch(kernel, [2 * size], (&a, &b, &mut y, Constant(size)))?;
        session.check("sums", &y, &|[i, j]| {
            let row = i / (size * 64) * 64 + i % 64;
            let terms = (0..k).map(|p| data[0][row * k + p].to_f64() * data[1][p * 32 + j].to_f64());
            Want::exactly(terms.sum::<f64>() as f32)
        })?;
        if let Session::Run(device) = session
            && device.backend() == ct::Backend::Ptx
        {
            let compiled = ct::compile(kernel, (&a, &b, &mut y, Constant(size)))?;
            let mut raw = compiled.raw((&a, &b, &mut y, Constant(size)))?.context("a kernel of a GPU")?;
            ensure!(raw.cluster == size as u32 && !raw.params().is_empty(), "{} tile blocks", raw.cluster);
        }
    }
    Ok(())
}
