//! Loads and stores: ranks 1 to 4, odd extents, strided views on both sides, padding, tiles outside
//! of the array, axis orders.

use anyhow::Result;
use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceView, DeviceViewMut, LoadOptions};

use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, ravel, unwritten};

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    macro_rules! each {
        ($function:ident: $($name:ident)+) => {$(
            suite.lean(concat!("memory/", stringify!($function), "/", stringify!($name)), $function::<$name>);
        )+};
    }
    each!(copies: f64 f32 tf32 f16 bf16 f8e4m3fn f8e5m2 f8e8m0fnu f8e5m3fnu i8 i16 i32 i64 u8 u16 u32 u64 bool);
    each!(strided: f64 f32 f16 u8 bool);
    each!(padding: f64 f32 tf32 f16 bf16);
    each!(assumed: f64 f32 f16 u8 bool);
    suite.lean("memory/copies/f4e2m1fn", pairs);
    suite.lean("memory/outside", outside);
    suite.lean("memory/no_dimensions", no_dimensions);
    suite.lean("memory/orders", orders);
    suite.lean("memory/extents", extents);
    suite.lean("memory/elements", elements);
    suite.lean("memory/in_place", in_place);
    suite.lean("memory/large", large);
    suite.test("memory/wide_indices", wide_indices);
    suite.test("memory/caches", caches);
}

/// The tile index of a block in a one-dimensional grid over all tiles of an array.
fn tile_index<T: Element, const R: usize>(array: Array<T, R>, tile: [usize; R]) -> [Scalar<i32>; R] {
    let mut rest = ct::bid(0);
    let mut index = [rest; R];
    for axis in (0..R).rev() {
        let count = array.num_tiles(axis, tile);
        index[axis] = rest % count;
        rest /= count;
    }
    index
}

fn num_tiles<const R: usize>(shape: [usize; R], tile: [usize; R]) -> usize {
    shape.iter().zip(tile).map(|(extent, tile)| extent.div_ceil(tile)).product()
}

fn copy<T: Element, const R: usize>(x: Array<T, R>, y: ArrayMut<T, R>, tile: [usize; R]) {
    let at = tile_index(x, tile);
    y.store(at, x.load(at, tile));
}

fn check_copy<T: Element, const R: usize>(session: Session, shape: [usize; R], tile: [usize; R]) -> Result<()> {
    let data = random::<T>(1, shape.iter().product(), Spread::Any);
    let x = session.array(&data, shape)?;
    let mut y = session.unwritten::<T, R>(shape)?;
    session.launch(copy::<T, R>, [num_tiles(shape, tile)], (&x, &mut y, Constant(tile)))?;
    let want = |at| Want::SameBits(data[ravel(at, shape)].to_bits());
    session.check(&format!("copy by tiles {tile:?}"), &y, &want)
}

fn copies<T: Element>(session: Session) -> Result<()> {
    check_copy::<T, 1>(session, [1], [1])?;
    check_copy::<T, 1>(session, [1000], [128])?;
    check_copy::<T, 1>(session, [4096], [1024])?;
    check_copy::<T, 1>(session, [7], [64])?;
    check_copy::<T, 2>(session, [37, 53], [16, 16])?;
    check_copy::<T, 2>(session, [64, 128], [32, 64])?;
    check_copy::<T, 2>(session, [5, 1030], [1, 512])?;
    check_copy::<T, 2>(session, [100, 3], [64, 4])?;
    check_copy::<T, 3>(session, [3, 17, 9], [2, 8, 4])?;
    check_copy::<T, 4>(session, [2, 3, 5, 33], [1, 2, 4, 16])
}

/// Four-bit elements are copied several at a time: rows are multiples of 16.
fn pairs(session: Session) -> Result<()> {
    check_copy::<f4e2m1fn, 1>(session, [1008], [256])?;
    check_copy::<f4e2m1fn, 2>(session, [9, 64], [4, 32])
}

/// A copy between views of every kind on both sides: elements outside of the view do not change.
fn strided<T: Element>(session: Session) -> Result<()> {
    // Each row: shape of the base array, the view of it, and the base index of a view element.
    macro_rules! views {
        ($($name:literal $base:expr, $view:expr, $origin:expr;)+) => {$(
            for tile in [[16, 32], [32, 4]] {
                let base: [usize; 2] = $base;
                let origin: fn([usize; 2]) -> [usize; 2] = $origin;
                let data = random::<T>(2, base.iter().product(), Spread::Any);
                // Strided to contiguous.
                let x = session.array(&data, base)?;
                let view: DeviceView<'_, T, 2> = $view(x.view())?;
                let shape = view.shape();
                let grid = [num_tiles(shape, tile)];
                let mut y = session.unwritten::<T, 2>(shape)?;
                session.launch(copy::<T, 2>, grid, (view, &mut y, Constant(tile)))?;
                let want = |at| Want::SameBits(data[ravel(origin(at), base)].to_bits());
                session.check(&format!("copy from {} by tiles {tile:?}", $name), &y, &want)?;
                // Contiguous to strided.
                let content = random::<T>(3, shape.iter().product(), Spread::Any);
                let x = session.array(&content, shape)?;
                let mut z = session.unwritten::<T, 2>(base)?;
                let view: DeviceViewMut<'_, T, 2> = $view(z.view_mut())?;
                session.launch(copy::<T, 2>, grid, (&x, view, Constant(tile)))?;
                let mut wanted = vec![unwritten::<T>(); data.len()];
                for (position, &value) in content.iter().enumerate() {
                    let at = [position / shape[1], position % shape[1]];
                    wanted[ravel(origin(at), base)] = value;
                }
                let want = |at| Want::SameBits(wanted[ravel(at, base)].to_bits());
                session.check(&format!("copy to {} by tiles {tile:?}", $name), &z, &want)?;
            }
        )+};
    }
    views! {
        "a transposed array" [37, 53], transposed, |[i, j]| [j, i];
        "a transposed array of even extents" [64, 128], transposed, |[i, j]| [j, i];
        "a slice" [40, 80], |v| sliced(v, 3..36, 5..66), |[i, j]| [i + 3, j + 5];
        "an aligned slice" [48, 96], |v| sliced(v, 16..48, 32..96), |[i, j]| [i + 16, j + 32];
        "every third column" [21, 100], |v| stepped(v, 1, 3), |[i, j]| [i, 3 * j];
        "every second row" [41, 64], |v| stepped(v, 0, 2), |[i, j]| [2 * i, j];
    }
    Ok(())
}

/// The view methods that arrays to read and arrays to write have in common.
trait Viewed: Sized {
    fn cut(self, axis: usize, range: std::ops::Range<usize>) -> cutlet::Result<Self>;
    fn every(self, axis: usize, step: usize) -> cutlet::Result<Self>;
    fn flipped(self) -> cutlet::Result<Self>;
}

macro_rules! viewed {
    ($($name:ident)+) => {$(
        impl<T: Element> Viewed for $name<'_, T, 2> {
            fn cut(self, axis: usize, range: std::ops::Range<usize>) -> cutlet::Result<Self> {
                self.slice(axis, range)
            }
            fn every(self, axis: usize, step: usize) -> cutlet::Result<Self> {
                self.step(axis, step)
            }
            fn flipped(self) -> cutlet::Result<Self> {
                self.transpose()
            }
        }
    )+};
}
viewed!(DeviceView DeviceViewMut);

fn transposed<V: Viewed>(view: V) -> cutlet::Result<V> {
    view.flipped()
}

fn sliced<V: Viewed>(view: V, rows: std::ops::Range<usize>, columns: std::ops::Range<usize>) -> cutlet::Result<V> {
    view.cut(0, rows)?.cut(1, columns)
}

fn stepped<V: Viewed>(view: V, axis: usize, step: usize) -> cutlet::Result<V> {
    view.every(axis, step)
}

/// Tile `at + shift` of x, which may be outside on any side, at tile `at` of y.
fn shift_kernel<T: Element>(
    x: Array<T, 2>,
    y: ArrayMut<T, 2>,
    (shift, tile, padding): ([i32; 2], [usize; 2], Padding),
) {
    let at = [ct::bid(0), ct::bid(1)];
    let from = [at[0] + shift[0], at[1] + shift[1]];
    y.store(at, x.load_with(from, tile, LoadOptions::new().padding(padding)));
}

const SHIFTS: [[i32; 2]; 5] = [[0, 0], [-1, 0], [0, -2], [1, 2], [i32::MAX / 2, i32::MIN / 2]];

fn padding<T: Element>(session: Session) -> Result<()> {
    let (shape, tile) = ([29, 45], [8, 16]);
    let data = random::<T>(4, shape[0] * shape[1], Spread::Moderate);
    let x = session.array(&data, shape)?;
    let paddings: [(Padding, f64); 5] = [
        (Padding::Zero, 0.0),
        (Padding::NegZero, -0.0),
        (Padding::NaN, f64::NAN),
        (Padding::PosInf, f64::INFINITY),
        (Padding::NegInf, f64::NEG_INFINITY),
    ];
    // The output covers whole tiles, so that all padding is seen.
    let out = [32, 48];
    for (padding, value) in paddings {
        for shift in SHIFTS {
            let mut y = session.unwritten::<T, 2>(out)?;
            let grid = [out[0] / tile[0], out[1] / tile[1]];
            session.launch(shift_kernel::<T>, grid, (&x, &mut y, Constant((shift, tile, padding))))?;
            let want = |at: [usize; 2]| {
                let source: [i64; 2] = std::array::from_fn(|d| at[d] as i64 + i64::from(shift[d]) * tile[d] as i64);
                let inside = source.iter().zip(shape).all(|(&i, extent)| i >= 0 && i < extent as i64);
                let element = || data[ravel(source.map(|i| i as usize), shape)];
                if inside { Want::exactly(element()) } else { Want::nearest(value) }
            };
            session.check(&format!("load shifted by {shift:?}, padded {padding:?}"), &y, &want)?;
        }
    }
    Ok(())
}

/// Tiles that are promised to be inside, in arrays whose extents are no known multiple of a vector.
fn assumed<T: Element>(session: Session) -> Result<()> {
    fn kernel<T: Element>(x: Array<T, 2>, y: ArrayMut<T, 2>, tile: [usize; 2]) {
        let at = tile_index(x, tile);
        // SAFETY: tiles divide the arrays, and there is one block for each.
        let (load, store) =
            unsafe { (LoadOptions::new().check_bounds(false), ct::StoreOptions::new().check_bounds(false)) };
        y.store_with(at, x.load_with(at, tile, load), store);
    }
    for (shape, tile) in [([24, 72], [8, 8]), ([6, 200], [2, 8]), ([3, 5], [1, 1])] {
        let data = random::<T>(10, shape[0] * shape[1], Spread::Any);
        let x = session.array(&data, shape)?;
        let mut y = session.unwritten::<T, 2>(shape)?;
        session.launch(kernel::<T>, [num_tiles(shape, tile)], (&x, &mut y, Constant(tile)))?;
        let want = |at| Want::SameBits(data[ravel(at, shape)].to_bits());
        session.check(&format!("copy of {shape:?} by tiles {tile:?} without guards"), &y, &want)?;
    }
    Ok(())
}

/// Arrays of one element, without an axis.
fn no_dimensions(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 0>, y: ArrayMut<f32, 0>, z: ArrayMut<f32, 1>) {
        let tile: Tile<f32, 0> = x.load([0; 0], []);
        y.store([0; 0], tile * 3.0);
        z.store([ct::bid(0)], ct::full::<f32, 1>([8], x.load_scalar([0; 0])));
    }
    let x = session.array(&[2.5f32], [])?;
    let (mut y, mut z) = (session.unwritten::<f32, 0>([])?, session.unwritten::<f32, 1>([13])?);
    session.launch(kernel, [2], (&x, &mut y, &mut z))?;
    session.check("an element", &y, &|[]| Want::exactly(7.5f32))?;
    session.check("an element in a tile", &z, &|[_]| Want::exactly(2.5f32))
}

fn scatter_kernel(x: Array<i32, 2>, y: ArrayMut<i32, 2>, (shift, tile): ([i32; 2], [usize; 2])) {
    let at = [ct::bid(0), ct::bid(1)];
    y.store([at[0] + shift[0], at[1] + shift[1]], x.load(at, tile));
}

/// Stores outside of the array write nothing, on any side.
fn outside(session: Session) -> Result<()> {
    let (shape, tile) = ([29, 45], [8, 16]);
    let data = random::<i32>(5, shape[0] * shape[1], Spread::Any);
    let x = session.array(&data, shape)?;
    for shift in SHIFTS {
        let mut y = session.unwritten::<i32, 2>(shape)?;
        let grid = [shape[0].div_ceil(tile[0]), shape[1].div_ceil(tile[1])];
        session.launch(scatter_kernel, grid, (&x, &mut y, Constant((shift, tile))))?;
        let want = |at: [usize; 2]| {
            let source: [i64; 2] = std::array::from_fn(|d| at[d] as i64 - i64::from(shift[d]) * tile[d] as i64);
            // Blocks exist for tiles that begin inside; beyond the edge of x they carry zeros.
            let covered = |d: usize| source[d] >= 0 && source[d] < (grid[d] * tile[d]) as i64;
            let inside = |d: usize| source[d] < shape[d] as i64;
            if !covered(0) || !covered(1) {
                Want::exactly(unwritten::<i32>())
            } else if inside(0) && inside(1) {
                Want::exactly(data[ravel(source.map(|i| i as usize), shape)])
            } else {
                Want::exactly(0)
            }
        };
        session.check(&format!("store shifted by {shift:?}"), &y, &want)?;
    }
    Ok(())
}

/// Axis orders of a load, permuted arrays inside of a kernel.
fn orders(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 3>, y: ArrayMut<f32, 3>, z: ArrayMut<f32, 3>, tile: [usize; 3]) {
        let at = [ct::bid(0), ct::bid(1), ct::bid(2)];
        // y[i, j, k] = x[j, k, i]
        y.store(at, x.load_with(at, tile, LoadOptions::new().order([2, 0, 1])));
        z.store(at, x.permute([2, 0, 1]).load(at, tile));
    }
    let (shape, tile) = ([11, 21, 6], [2, 4, 8]);
    let out = [6, 11, 21];
    let data = random::<f32>(6, shape.iter().product(), Spread::Moderate);
    let x = session.array(&data, shape)?;
    let (mut y, mut z) = (session.unwritten::<f32, 3>(out)?, session.unwritten::<f32, 3>(out)?);
    let grid: [usize; 3] = std::array::from_fn(|d| out[d].div_ceil(tile[d]));
    session.launch(kernel, grid, (&x, &mut y, &mut z, Constant(tile)))?;
    let want = |[i, j, k]: [usize; 3]| Want::exactly(data[ravel([j, k, i], shape)]);
    session.check("load in another order", &y, &want)?;
    session.check("load of a permuted array", &z, &want)
}

/// Extents, numbers of tiles and of blocks, as a kernel sees them.
fn extents(session: Session) -> Result<()> {
    fn kernel(x: Array<f32, 3>, y: ArrayMut<i32, 1>) {
        let shape = x.shape();
        let tile = [2, 16, 64];
        let mut values: Vec<Scalar<i32>> = shape.to_vec();
        values.extend((0..3).map(|axis| x.num_tiles(axis, tile)));
        values.extend((0..3).map(ct::num_blocks));
        values.push(x.extent(1) - x.extent64(1).cast::<i32>());
        for (position, value) in values.into_iter().enumerate() {
            y.store_scalar([position], value);
        }
    }
    let x = session.array(&vec![0f32; 5 * 33 * 64], [5, 33, 64])?;
    let mut y = session.unwritten::<i32, 1>([10])?;
    session.launch(kernel, [3, 2, 4], (&x, &mut y))?;
    let wanted = [5, 33, 64, 3, 3, 1, 3, 2, 4, 0];
    session.check("extents", &y, &|[i]| Want::exactly(wanted[i]))
}

/// Single elements, addressed by values loaded before.
fn elements(session: Session) -> Result<()> {
    fn kernel(index: Array<i32, 1>, x: Array<f64, 1>, y: ArrayMut<f64, 1>) {
        let from = index.load_scalar(ct::bid(0));
        y.store_scalar(ct::bid(0), x.load_scalar(from) * 2.0);
    }
    let count = 50;
    let index: Vec<i32> = (0..count).map(|i| (i * 7) % 61 - 5).collect();
    let data = random::<f64>(7, 50, Spread::Moderate);
    let mut y = session.unwritten::<f64, 1>([50])?;
    let (device_index, x) = (session.array(&index, [50])?, session.array(&data, [50])?);
    session.launch(kernel, [50], (&device_index, &x, &mut y))?;
    let want = |[i]: [usize; 1]| {
        let source = usize::try_from(index[i]).ok().and_then(|from| data.get(from));
        Want::exactly(source.map_or(0.0, |x| x * 2.0))
    };
    session.check_results("gathered elements", &y, &want, &|[i]| format!("of index {}", index[i]))
}

/// Many rows of run-time stride in one tile: their addresses are not all held at once. (Other
/// compilers take minutes.)
fn large(session: Session) -> Result<()> {
    if matches!(session, Session::AssembleTileIr(_) | Session::RunTileIr(_)) {
        return Ok(());
    }
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: [usize; 2]) {
        let at = [ct::bid(0), ct::bid(1)];
        y.store(at, x.load(at, tile) * 2.0 + 1.0);
    }
    for tile in [[512, 512], [4096, 64], [2048, 128]] {
        let shape = [tile[0] + 3, tile[1] + 16];
        let input = random::<f32>(17, shape[0] * shape[1], Spread::Whole(1000));
        let x = session.array(&input, shape)?;
        let mut y = session.unwritten::<f32, 2>(shape)?;
        session.launch(kernel, [2, 2], (&x, &mut y, ct::Constant(tile)))?;
        session.check("2 x + 1", &y, &|at| Want::exactly(2.0 * input[ravel(at, shape)] + 1.0))?;
    }
    Ok(())
}

/// Loads and stores of one array keep their order.
fn in_place(session: Session) -> Result<()> {
    fn kernel(x: ArrayMut<f32, 2>) {
        let (at, tile) = ([ct::bid(0), ct::scalar(0)], [4, 64]);
        let before = x.load(at, tile);
        x.store(at, before * 2.0);
        let after = x.load(at, tile);
        x.store(at, after + before);
    }
    let shape = [13, 50];
    let data = random::<f32>(8, shape[0] * shape[1], Spread::Moderate);
    let mut x = session.array(&data, shape)?;
    session.launch(kernel, [4], (&mut x,))?;
    session.check("twice in place", &x, &|at| Want::exactly(data[ravel(at, shape)] * 3.0))
}

/// An array whose last element is 2^31 elements after its first one: indices are 64-bit numbers.
fn wide_indices(session: Session) -> Result<()> {
    let (shape, row, tile) = ([3, 50], (1 << 30) + 16, Constant([2, 32]));
    if let Session::InterpretTileIr(_) | Session::Interpret(_) = session {
        return Ok(());
    }
    let (Session::Run(device) | Session::RunTileIr(device)) = session else {
        // The same arrays, which exceed the memory.
        let near = ct::ArraySpec::<u8, 2>::new(shape);
        let far = ct::ArraySpec::<u8, 2>::new(shape).strides([row, 1])?.unaligned();
        session.launch(copy::<u8, 2>, [4], (near, far.mutable(), tile))?;
        return session.launch(copy::<u8, 2>, [4], (far, near.mutable(), tile));
    };
    if device.backend() == ct::Backend::Cpu {
        // Two gigabytes are too much for a test that many machines run.
        return Ok(());
    }
    let mut far = device.zeros::<u8, 2>([3, row])?;
    let data = random::<u8>(9, 3 * 50, Spread::Any);
    let x = session.array(&data, shape)?;
    session.launch(copy::<u8, 2>, [4], (&x, far.view_mut().slice(1, 7..57)?, tile))?;
    let mut y = session.unwritten::<u8, 2>(shape)?;
    session.launch(copy::<u8, 2>, [4], (far.slice(1, 7..57)?, &mut y, tile))?;
    session.check("far apart", &y, &|at| Want::exactly(data[ravel(at, shape)]))
}

/// Cache hints do not change values.
fn caches(session: Session) -> Result<()> {
    use ct::{Cache, GatherOptions, LoadOptions, ScatterOptions, StoreOptions};
    fn kernel(x: Array<f32, 2>, y: ArrayMut<f32, 2>, z: ArrayMut<f32, 2>, cache: Cache) {
        let i = ct::bid(0);
        let tile = x.load_with((i, 0), [4, 64], LoadOptions::new().cache(cache));
        y.store_with((i, 0), tile + 1.0, StoreOptions::new().cache(cache));
        let (rows, columns) = (i * 4 + ct::arange(0..4).unsqueeze(1), (ct::arange(0..64) * 7 % 64).unsqueeze(0));
        let gathered = x.gather_with((rows, columns), GatherOptions::new().cache(cache));
        z.scatter_with((rows, columns), gathered * 2.0, ScatterOptions::new().cache(cache));
        // Ordered accesses take them, too.
        let own = z.load_with((i * 4, 0), [1, 32], LoadOptions::new().relaxed(ct::Scope::Device).cache(cache));
        z.store_with((i * 4, 0), own, StoreOptions::new().relaxed(ct::Scope::System).cache(cache));
    }
    let (rows, columns) = (10, 61);
    let data = random::<f32>(21, rows * columns, Spread::Moderate);
    let x = session.array(&data, [rows, columns])?;
    for (name, cache) in [
        ("evict first", Cache::EvictFirst),
        ("evict last", Cache::EvictLast),
        ("no allocate", Cache::NoAllocate),
        ("streaming", Cache::Streaming),
        ("second level", Cache::SecondLevel),
    ] {
        let (mut y, mut z) = (session.unwritten([rows, columns])?, session.unwritten([rows, columns])?);
        session.launch(kernel, [3], (&x, &mut y, &mut z, Constant(cache)))?;
        session.check(name, &y, &|[i, j]| Want::exactly(data[i * columns + j] + 1.0))?;
        session.check(name, &z, &|[i, j]| Want::exactly(data[i * columns + j] * 2.0))?;
    }
    Ok(())
}
