//! Random products: every form in which tiles are multiplied, generated from its number and
//! compared with whole numbers on the host, exactly: tiles, views by slice, step, transpose and
//! offset, hints, element types, loops left early, indices that are loaded, epilogues, chained
//! products.
//!
//! `CUTLET_RANDOM_SEED` is the number of the first one (1), `CUTLET_RANDOM_COUNT` how many there
//! are (17).

mod form;
mod kernel;
mod reference;

use anyhow::{Context, Result};
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;
use cutlet::{Constant, DeviceArray, DeviceView};

use self::form::{Epilogue, Form, Limits, Loops, Order, Part, Product, Walk, Way, generate};
use self::kernel::Flip;
use self::reference::Matrix;
use crate::data::{Spread, random};
use crate::harness::{Session, Suite, Want, unwritten};

/// Products of which code was wrong once: a left operand that one product reads where it is, and
/// another one through registers.
const ONCE_WRONG: [u64; 1] = [641_000_733];
/// Products whose rows are cut in the kernel, between loaded numbers.
const RAGGED: [u64; 8] = [34, 35, 36, 37, 38, 40, 46, 50];

/// Adds the tests of this file.
pub fn register(suite: &mut Suite) {
    register_mixed(suite);
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("CUTLET_RANDOM_SEED").unwrap_or(1);
    let count = number("CUTLET_RANDOM_COUNT").unwrap_or(17);
    let special = ONCE_WRONG.into_iter().chain(RAGGED).collect::<Vec<u64>>();
    for seed in (first..first + count).filter(|seed| !special.contains(seed)).chain(special.iter().copied()) {
        suite.hinted(format!("random_product/{seed:05}"), move |session| match seed % 8 {
            // Code of arrays beyond 2^31 elements, of small ones.
            6 => cutlet::with_index64(|| run(session, seed)),
            _ => run(session, seed),
        });
    }
}

/// Products with small patterns of shared memory, one operand of which TMA loads, and threads the
/// other one.
fn register_mixed(suite: &mut Suite) {
    let whole = Part { turned: false, front: [0, 0], back: [0, 0], step: [1, 1] };
    // Rows that do not start at whole 16 bytes.
    let shifted = Part { front: [0, 1], back: [0, 15], ..whole };
    let tile = move |tile: [usize; 3]| Product {
        form: Form {
            tile,
            ways: [Way::Straight, Way::Straight],
            walk: Walk::Steps,
            order: Order::Rows,
            epilogue: Epilogue::Nothing,
            narrow: false,
            chained: false,
            loops: Loops::default(),
            ragged: false,
        },
        size: [144, 160, 176],
        parts: [whole; 3],
        hints: cutlet::Hints::default(),
        blocks: 1,
        limit: 1,
    };
    macro_rules! mixed {
        ($($ty:ident $tile:expr;)+) => {$(
            let name = format!("product/mixed/{} {:?}", stringify!($ty), $tile);
            suite.test(name, move |session| {
                for turned in [[false, false], [true, false], [false, true], [true, true]] {
                    for parts in [[whole, shifted, whole], [shifted, whole, whole]] {
                        let mut product = Product { parts, ..tile($tile) };
                        product.parts[0].turned = turned[0];
                        product.parts[1].turned = turned[1];
                        let what = || format!("{turned:?}, {parts:?}");
                        check::<$ty, $ty, $ty, $ty, f32, f32>(session, 1, &product, 3).with_context(what)?;
                    }
                }
                Ok(())
            });
        )+};
    }
    mixed! {
        f16 [128, 16, 16];
        f16 [64, 8, 16];
        f16 [64, 16, 32];
        f8e4m3fn [16, 128, 32];
        f8e4m3fn [64, 16, 64];
        f8e5m2 [64, 8, 32];
        tf32 [256, 8, 16];
        tf32 [64, 16, 8];
    }
    for walk in [Walk::Loaded, Walk::Limited, Walk::Enough] {
        suite.test(format!("product/walk/{walk:?}"), move |session| {
            for (limit, order) in [(1, Order::Rows), (3, Order::Persistent)] {
                let mut product = Product { limit, blocks: 5, ..tile([64, 64, 32]) };
                (product.form.walk, product.form.order) = (walk, order);
                check::<f16, f16, f16, f16, f32, f32>(session, 2, &product, 3)?;
            }
            Ok(())
        });
    }
    // The last one has room for one stage alone.
    for (num_warps, occupancy) in
        [(Some(32), None), (Some(32), Some(2)), (Some(16), Some(2)), (None, Some(2)), (None, Some(32)), (None, Some(3))]
    {
        suite.hinted(format!("product/hints/{num_warps:?} {occupancy:?}"), move |session| {
            for extents in [[256, 128, 64], [128, 256, 64], [64, 64, 256]] {
                let mut product = Product { size: [144, 160, 1024], ..tile(extents) };
                (product.hints.num_warps, product.hints.occupancy) = (num_warps, occupancy);
                check::<f16, f16, f16, f16, f32, f32>(session, 3, &product, 3)?;
            }
            Ok(())
        });
    }
}

/// Arrays of the left and the right operand, their types in the product, accumulator, result.
fn run(session: Session, seed: u64) -> Result<()> {
    macro_rules! types {
        ($($number:literal: $s:ident $q:ident $a:ident $b:ident $c:ident $o:ident $largest:literal $accumulators:expr;)+) => {
            match seed % 17 {
                $($number => {
                    let limits = Limits { accumulators: $accumulators, narrow: stringify!($c) != stringify!($o) };
                    let mut product = generate(seed, limits);
                    // tileiras 13.5 fails, without a reason, on some products of such extents by
                    // several blocks.
                    if session.through_tile_ir() && product.form.tile.iter().any(|extent| !extent.is_power_of_two()) {
                        product.hints.num_ctas = None;
                    }
                    check::<$s, $q, $a, $b, $c, $o>(session, seed, &product, $largest).with_context(|| {
                        format!("random product {seed} (CUTLET_RANDOM_SEED={seed}): {} {product:?}",
                            stringify!($s $q as $a $b, $c to $o))
                    })
                })+
                _ => unreachable!("all remainders are there"),
            }
        };
    }
    types! {
        0: f16 f16 f16 f16 f32 f32 3 128 << 8;
        1: f16 f16 f16 f16 f32 f16 3 128 << 8;
        2: bf16 bf16 bf16 bf16 f32 f32 3 128 << 8;
        3: bf16 bf16 bf16 bf16 f32 bf16 3 128 << 8;
        4: f32 f32 tf32 tf32 f32 f32 3 128 << 8;
        5: tf32 tf32 tf32 tf32 f32 f32 3 128 << 8;
        6: f8e4m3fn f8e4m3fn f8e4m3fn f8e4m3fn f32 f32 3 128 << 8;
        7: f8e4m3fn f8e4m3fn f8e4m3fn f8e4m3fn f32 f16 3 128 << 8;
        8: f8e5m2 f8e5m2 f8e5m2 f8e5m2 f32 f32 3 128 << 8;
        9: f8e5m2 f8e5m2 f8e5m2 f8e5m2 f32 f8e5m2 3 128 << 8;
        10: f16 f16 f16 f16 f16 f16 1 128 << 8;
        11: f32 f16 f16 f16 f32 f32 3 128 << 8;
        12: i8 i8 i8 i8 i32 i32 3 128 << 8;
        13: i8 u8 i8 u8 i32 i32 3 128 << 8;
        14: i8 i8 i8 i8 i32 i8 3 128 << 8;
        15: f32 f32 f32 f32 f32 f32 3 64 << 7;
        16: f64 f64 f64 f64 f64 f64 3 64 << 6;
    }
}

/// Extents of the whole array in memory.
fn stored(part: Part, size: [usize; 2]) -> [usize; 2] {
    let [rows, columns] = [0, 1].map(|axis| part.front[axis] + size[axis] * part.step[axis] + part.back[axis]);
    if part.turned { [columns, rows] } else { [rows, columns] }
}

/// Returns the index in the array of an element of its part.
fn place(part: Part, size: [usize; 2], at: [usize; 2]) -> usize {
    let [i, j] = [0, 1].map(|axis| part.front[axis] + at[axis] * part.step[axis]);
    let columns = stored(part, size)[1];
    if part.turned { j * columns + i } else { i * columns + j }
}

/// The part, without its ends along the rows if the kernel cuts them.
fn cut_by_host(part: Part, ragged: bool, size: [usize; 2]) -> (Part, [usize; 2]) {
    let rows = part.front[0] + size[0] + part.back[0];
    if ragged {
        (Part { front: [0, part.front[1]], back: [0, part.back[1]], ..part }, [rows, size[1]])
    } else {
        (part, size)
    }
}

macro_rules! cut {
    ($view:expr, $part:expr, $size:expr) => {{
        let (part, size) = ($part, $size);
        let mut view = $view;
        if part.turned {
            view = view.transpose()?;
        }
        for axis in [0, 1] {
            let (first, count) = (part.front[axis], size[axis] * part.step[axis]);
            view = view.slice(axis, first..first + count)?.step(axis, part.step[axis])?;
        }
        view
    }};
}

/// An operand: an array that holds more than the part, and the part's numbers.
struct Operand<T> {
    array: DeviceArray<T, 2>,
    part: Part,
    numbers: Matrix,
}

impl<T: Element> Operand<T> {
    fn new(session: Session, seed: u64, part: Part, size: [usize; 2], largest: i32) -> Result<Operand<T>> {
        let shape = stored(part, size);
        let host = random::<T>(seed, shape[0] * shape[1], Spread::Whole(largest));
        let cells = (0..size[0]).flat_map(|i| (0..size[1]).map(move |j| [i, j]));
        let data = cells.map(|at| host[place(part, size, at)].to_f64() as i64).collect();
        Ok(Operand { array: session.array(&host, shape)?, part, numbers: Matrix { size, data } })
    }

    fn view(&self, ragged: bool) -> Result<DeviceView<'_, T, 2>> {
        let (part, size) = cut_by_host(self.part, ragged, self.numbers.size);
        Ok(cut!(self.array.view(), part, size))
    }
}

fn negates<T: Element>() -> bool {
    T::SIGNED || T::DTYPE.is_float()
}

fn check<S, Q, A, B, C, O>(session: Session, seed: u64, product: &Product, largest: i32) -> Result<()>
where
    S: CastTo<A>,
    Q: CastTo<B>,
    A: MmaInput<B, C> + Flip + CastTo<C>,
    B: Flip,
    C: Number + CastTo<A> + CastTo<O>,
    O: Element,
{
    let Product { mut form, size: [m, n, k], parts, hints, blocks, limit } = *product;
    if session.through_tile_ir() {
        // It leaves roles to its compiler.
        form.loops = Loops { stages: form.loops.stages, ..Loops::default() };
    }
    let [tm, tn, tk] = form.tile;
    // A chained product has rows of one tile's width.
    let [left_size, right_size, size] =
        if form.chained { [[m, tk], [n, tk], [m, tk]] } else { [[m, k], [k, n], [m, n]] };
    let left = Operand::<S>::new(session, 3 * seed, parts[0], left_size, largest)?;
    let right = Operand::<Q>::new(session, 3 * seed + 1, parts[1], right_size, largest)?;
    let bias = random::<C>(3 * seed + 2, n, Spread::Whole(largest));
    let steps: Vec<i32> = (0..k.div_ceil(tk) as i32).rev().collect();
    let mut result = session.unwritten::<O, 2>(stored(parts[2], size))?;
    let (bias_array, steps_array) = (session.array(&bias, [n])?, session.array(&steps, [steps.len()])?);
    let (a, b) = (left.view(form.ragged)?, right.view(form.ragged)?);
    let (part, cut_size) = cut_by_host(parts[2], form.ragged, size);
    let c = cut!(result.view_mut(), part, cut_size);
    let ends = [left_size, right_size, size].into_iter().zip(parts);
    let ends: Vec<i32> =
        ends.flat_map(|(size, part)| [part.front[0], part.front[0] + size[0]]).map(|end| end as i32).collect();
    let ends = if form.ragged { Some(session.array(&ends, [3, 2])?) } else { None };
    let rows = m.div_ceil(tm) + if form.ragged { (seed % 3) as usize } else { 0 };
    let columns = if form.chained { 1 } else { n.div_ceil(tn) };
    let grid = match form.order {
        Order::Rows => [rows, columns],
        Order::Columns if !form.chained => [columns, rows],
        Order::Columns => [rows, 1],
        Order::Persistent => [blocks, 1],
    };
    let limit = (limit as i32, ends.as_ref());
    if form.chained {
        session.launch_with(hints, kernel::chained::<S, Q, A, B, C, O>, grid, (a, b, c, limit, Constant(form)))?;
    } else {
        let arguments = (a, b, &bias_array, &steps_array, c, limit, Constant(form));
        session.launch_with(hints, kernel::product::<S, Q, A, B, C, O>, grid, arguments)?;
    }
    if session.only_compiles() {
        return Ok(());
    }
    let (left, right) = (left.numbers.by(form.ways[0], negates::<A>()), right.numbers.by(form.ways[1], negates::<B>()));
    let bias: Vec<i64> = bias.iter().map(|x| x.to_f64() as i64).collect();
    let want = match form.chained {
        true => reference::chained(product, &left, &right),
        false => reference::product(product, &left, &right, &bias),
    };
    let shape = stored(parts[2], size);
    let mut expected = vec![None; shape[0] * shape[1]];
    for (index, &x) in want.data.iter().enumerate() {
        expected[place(parts[2], size, [index / size[1], index % size[1]])] = Some(x as f64);
    }
    session.check("product", &result, &|[i, j]| match expected[i * shape[1] + j] {
        Some(value) => Want::SumOf(value),
        None => Want::exactly(unwritten::<O>()),
    })
}
