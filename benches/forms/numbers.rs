//! Forms of numerical kernels: products of f64 and f32, the selective scan of state-space models,
//! and the row and column passes of Sinkhorn's algorithm.

use std::f32::consts::LOG2_E;

use cutlet as ct;
use cutlet::element::MmaInput;
use cutlet::prelude::*;
use cutlet::{DeviceArray, Hints};

use super::family::{AnyFamily, Case, Family, Size, some};

fn product<T: MmaInput<T, T>>(a: Array<T, 2>, b: Array<T, 2>, c: ArrayMut<T, 2>, [tm, tn, tk]: [usize; 3]) {
    let [i, j] = ct::swizzle_2d(ct::bid(0), c.num_tiles(0, [tm, tn]), c.num_tiles(1, [tm, tn]), 8);
    let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<T, 2>([tm, tn]), |acc, k| {
        ct::mma(a.load([i, k], [tm, tk]), b.load([k, j], [tk, tn]), acc)
    });
    c.store([i, j], acc);
}

/// A tile and hints of a product: warps, stages.
type Plan = (&'static str, [usize; 3], Option<u32>, Option<u32>);

/// Plans of f64. A warp tile of 32 x 32 reads half of the bytes that shared memory transfers while
/// the tensor cores multiply; 64 x 32 reads 3/8.
const PLANS_F64: [Plan; 12] = [
    ("128x128x16", [128, 128, 16], None, None),
    ("128x128x16, 4 stages", [128, 128, 16], None, Some(4)),
    ("128x128x16, 5 stages", [128, 128, 16], None, Some(5)),
    ("128x128x16, 16 warps, 4 stages", [128, 128, 16], Some(16), Some(4)),
    ("128x128x16, 4 warps, 4 stages", [128, 128, 16], Some(4), Some(4)),
    ("128x128x32, 3 stages", [128, 128, 32], None, Some(3)),
    ("128x128x8, 5 stages", [128, 128, 8], None, Some(5)),
    ("128x64x16, 4 stages", [128, 64, 16], None, Some(4)),
    ("128x64x16, 8 warps, 4 stages", [128, 64, 16], Some(8), Some(4)),
    ("64x128x16, 4 stages", [64, 128, 16], None, Some(4)),
    ("64x64x16, 4 stages", [64, 64, 16], None, Some(4)),
    ("256x64x16, 8 warps, 4 stages", [256, 64, 16], Some(8), Some(4)),
];

/// Plans of f32, by FMA: a thread with 8 x 8 or 8 x 16 sums.
const PLANS_F32: [Plan; 12] = [
    ("128x128x16", [128, 128, 16], None, None),
    ("128x128x8", [128, 128, 8], None, None),
    ("128x128x32", [128, 128, 32], None, None),
    ("128x128x16, 4 stages", [128, 128, 16], None, Some(4)),
    ("128x128x8, 4 stages", [128, 128, 8], None, Some(4)),
    ("128x128x32, 3 stages", [128, 128, 32], None, Some(3)),
    ("128x128x16, 4 warps", [128, 128, 16], Some(4), None),
    ("256x128x16, 8 warps", [256, 128, 16], Some(8), None),
    ("128x256x16, 8 warps", [128, 256, 16], Some(8), None),
    ("128x256x8, 8 warps", [128, 256, 8], Some(8), None),
    ("128x64x16, 4 warps", [128, 64, 16], Some(4), None),
    ("256x128x8, 8 warps", [256, 128, 8], Some(8), None),
];

fn products<T: MmaInput<T, T>>(n: usize, plans: &[Plan], small: bool) -> Family<[DeviceArray<T, 2>; 3]> {
    let case = |&(name, tile, warps, stages): &Plan| {
        let tile = if small { tile.map(|extent| extent / 4) } else { tile };
        let mut hints = Hints::new();
        (hints.num_warps, hints.num_stages) = (warps, stages);
        Case::new(name, 0, move |call, [a, b, c]: &mut [DeviceArray<T, 2>; 3]| {
            let grid = [n.div_ceil(tile[0]) * n.div_ceil(tile[1]), 1, 1];
            call.run_with(hints, grid, product::<T>, (&*a, &*b, c, Constant(tile)))
        })
    };
    Family {
        name: format!("numbers {} {n}x{n}x{n}", T::NAME),
        flops: 2.0 * (n as f64).powi(3),
        bytes: (3 * n * n * size_of::<T>()) as f64,
        tolerance: if size_of::<T>() == 8 { 1e-10 } else { 1e-2 },
        arrays: Box::new(move |source| {
            Ok([source.normal([n, n], 1, 1.0)?, source.normal([n, n], 2, 1.0)?, source.zeros([n, n])?])
        }),
        result: |[_, _, c]| some(c),
        cases: plans.iter().map(case).collect(),
    }
}

/// Loop of the selective scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scan {
    /// Tiles of steps, channels and states, by `ct::scan`.
    Tiles { steps: usize, channels: usize },
    /// As `Tiles`, with the state before the tile added to the input of its first step.
    Carried { steps: usize, channels: usize },
    /// One step an iteration, with a state of channels and states.
    Steps { channels: usize },
}

/// `x`, `dt` and the result: batch, steps, channels; `b` and `c`: batch, steps, states.
type ScanArrays = (Array<bf16, 3>, Array<bf16, 3>, Array<f32, 2>, Array<bf16, 3>, Array<bf16, 3>);

const STATES: usize = 16;

fn selective_scan(arrays: ScanArrays, y: ArrayMut<bf16, 3>, form: Scan) {
    let mode = ct::FloatMode::new().contract().flush_to_zero();
    ct::with_mode(mode, || scan_of_channels(arrays, y, form));
}

fn scan_of_channels((x, dt, a, b, c): ScanArrays, y: ArrayMut<bf16, 3>, form: Scan) {
    let (batch, block) = (ct::bid(1), ct::bid(0));
    let channels = match form {
        Scan::Tiles { channels, .. } | Scan::Carried { channels, .. } | Scan::Steps { channels } => channels,
    };
    let steps = match form {
        Scan::Tiles { steps, .. } | Scan::Carried { steps, .. } => steps,
        Scan::Steps { .. } => 1,
    };
    let rate = a.load((block, 0), [channels, STATES]) * LOG2_E;
    let start = ct::zeros::<f32, 2>([channels, STATES]);
    ct::fold(..x.num_tiles(1, [1, steps, channels]), start, |state, i| {
        let of_channel = |from: Array<bf16, 3>| {
            from.load([batch, i, block], [1, steps, channels]).cast::<f32>().reshape([steps, channels, 1])
        };
        let of_state = |from: Array<bf16, 3>| {
            from.load((batch, i, 0), [1, steps, STATES]).cast::<f32>().reshape([steps, 1, STATES])
        };
        let (x, dt, b, c) = (of_channel(x), of_channel(dt), of_state(b), of_state(c));
        let decay = (dt * rate.unsqueeze(0)).exp2();
        let input = dt * x * b;
        let (all, state) = match form {
            Scan::Steps { .. } => {
                let state = state.unsqueeze(0) * decay + input;
                (state, state.reshape([channels, STATES]))
            }
            Scan::Tiles { .. } | Scan::Carried { .. } => {
                let carries = matches!(form, Scan::Carried { .. });
                let is_first = ct::indices([steps, 1, 1], 0).eq(0);
                let before = state.unsqueeze(0);
                let input = if carries { ct::select(is_first, decay * before + input, input) } else { input };
                let (product, sum) =
                    ct::scan((decay, input), 0, (1.0, 0.0), |(a1, b1), (a2, b2)| (a1 * a2, a2 * b1 + b2));
                let all = if carries { sum } else { product * before + sum };
                let last = all.extract([steps - 1, 0, 0], [1, channels, STATES]);
                (all, last.reshape([channels, STATES]))
            }
        };
        let result = (all * c).sum(2).reshape([1, steps, channels]);
        y.store([batch, i, block], result.cast::<bf16>());
        state
    });
}

/// The arrays of a selective scan.
struct ScanState {
    x: DeviceArray<bf16, 3>,
    dt: DeviceArray<bf16, 3>,
    a: DeviceArray<f32, 2>,
    b: DeviceArray<bf16, 3>,
    c: DeviceArray<bf16, 3>,
    y: DeviceArray<bf16, 3>,
}

fn scans([batch, steps, channels]: [usize; 3], forms: &[(&'static str, Scan, Option<u32>)]) -> Family<ScanState> {
    let case = |&(name, form, warps): &(&'static str, Scan, Option<u32>)| {
        let each = match form {
            Scan::Tiles { channels, .. } | Scan::Carried { channels, .. } | Scan::Steps { channels } => channels,
        };
        let mut hints = Hints::new();
        hints.num_warps = warps;
        Case::new(name, 0, move |call, s: &mut ScanState| {
            let grid = [channels.div_ceil(each), batch, 1];
            call.run_with(hints, grid, selective_scan, ((&s.x, &s.dt, &s.a, &s.b, &s.c), &mut s.y, Constant(form)))
        })
    };
    let bytes = 2 * batch * steps * (3 * channels + 2 * STATES) + 4 * channels * STATES;
    Family {
        name: format!("numbers selective scan bf16 {batch}x{steps}x{channels}x{STATES}"),
        flops: 0.0,
        bytes: bytes as f64,
        tolerance: 0.1,
        arrays: Box::new(move |source| {
            Ok(ScanState {
                x: source.normal([batch, steps, channels], 1, 1.0)?,
                dt: source.numbers([batch, steps, channels], |at| 0.01 + (at * 7 % 64) as f64 / 640.0)?,
                a: source.numbers([channels, STATES], |at| -1.0 - (at % STATES) as f64)?,
                b: source.normal([batch, steps, STATES], 2, 1.0)?,
                c: source.normal([batch, steps, STATES], 3, 1.0)?,
                y: source.zeros([batch, steps, channels])?,
            })
        }),
        result: |s| some(&s.y),
        cases: forms.iter().map(case).collect(),
    }
}

/// Source of the costs of a pass of Sinkhorn's algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Costs {
    /// The tile of the array.
    Rows,
    /// The tile of the transposed array.
    ArrayTransposed,
    /// The transposed tile of the array.
    TileTransposed,
    /// The tile of the array, reduced along its first axis.
    Columns,
}

/// One pass of Sinkhorn's algorithm by logarithms: `-log sum exp(other - cost)` of each row (or
/// column), in units of the logarithm to base 2.
fn sinkhorn(
    cost: Array<f32, 2>,
    other: Array<f32, 1>,
    result: ArrayMut<f32, 1>,
    (costs, [rows, columns]): (Costs, [usize; 2]),
) {
    let i = ct::bid(0);
    let load = |j: Scalar<i32>| match costs {
        Costs::Rows | Costs::ArrayTransposed => cost.load([i, j], [rows, columns]),
        Costs::TileTransposed => cost.load([j, i], [columns, rows]).transpose(),
        Costs::Columns => cost.load([j, i], [columns, rows]),
    };
    let mode = ct::FloatMode::new().contract().flush_to_zero();
    let (axis, start) = if costs == Costs::Columns { (0, [1, rows]) } else { (1, [rows, 1]) };
    let first = (ct::full::<f32, 2>(start, -1e30), ct::zeros::<f32, 2>(start));
    let (max, sum) = ct::with_mode(mode, || {
        ct::fold(..other.num_tiles(0, [columns]), first, |(max, sum), j| {
            let potential = other.load(j, [columns]).unsqueeze(1 - axis);
            let x = (potential - load(j)) * LOG2_E;
            let above = max.max(x.reduce_max(axis));
            (above, sum * (max - above).exp2() + (x - above).exp2().sum(axis))
        })
    });
    result.store(i, -(max + sum.log2()).reshape([rows]));
}

type Potentials = (DeviceArray<f32, 2>, DeviceArray<f32, 1>, DeviceArray<f32, 1>);

fn sinkhorns(n: usize, forms: &[(&'static str, Costs, [usize; 2])]) -> Family<Potentials> {
    let case = |&(name, costs, tile): &(&'static str, Costs, [usize; 2])| {
        let class = usize::from(costs != Costs::Rows);
        Case::new(name, class, move |call, (cost, other, result): &mut Potentials| {
            let tile = tile.map(|extent| extent.min(n));
            let (grid, form) = ([n.div_ceil(tile[0]), 1, 1], Constant((costs, tile)));
            let view = if costs == Costs::ArrayTransposed { cost.transpose()? } else { cost.view() };
            call.run(grid, sinkhorn, (view, &*other, result, form))
        })
    };
    Family {
        name: format!("numbers sinkhorn f32 {n}x{n}"),
        flops: 0.0,
        bytes: (4 * n * (n + 2)) as f64,
        tolerance: 1e-3,
        arrays: Box::new(move |source| {
            Ok((source.normal([n, n], 1, 1.0)?, source.normal([n], 2, 1.0)?, source.zeros([n])?))
        }),
        result: |(_, _, result)| some(result),
        cases: forms.iter().map(case).collect(),
    }
}

/// The families of numerical kernels.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    let small = size == Size::Small;
    let scanned = if small { [2, 48, 40] } else { [8, 4096, 2048] };
    let tiles = |steps, channels| Scan::Tiles { steps, channels };
    let carried = |steps, channels| Scan::Carried { steps, channels };
    let scan_forms = [
        ("scan 64x4", tiles(64, 4), None),
        ("scan 64x8", tiles(64, 8), None),
        ("scan 16x16", tiles(16, 16), None),
        ("scan 16x32", tiles(16, 32), None),
        ("scan 16x32, 2 warps", tiles(16, 32), Some(2)),
        ("scan 32x16", tiles(32, 16), None),
        ("scan 8x64", tiles(8, 64), None),
        ("scan 16x64", tiles(16, 64), None),
        ("carried 16x16", carried(16, 16), None),
        ("carried 16x32", carried(16, 32), None),
        ("carried 16x32, 2 warps", carried(16, 32), Some(2)),
        ("carried 32x16", carried(32, 16), None),
        ("carried 32x16, 2 warps", carried(32, 16), Some(2)),
        ("carried 8x64", carried(8, 64), None),
        ("carried 8x64, 2 warps", carried(8, 64), Some(2)),
        ("carried 16x64, 4 warps", carried(16, 64), Some(4)),
        ("carried 4x128", carried(4, 128), None),
        ("steps 16", Scan::Steps { channels: 16 }, None),
        ("steps 32", Scan::Steps { channels: 32 }, None),
        ("steps 64", Scan::Steps { channels: 64 }, None),
        ("steps 128", Scan::Steps { channels: 128 }, None),
        ("steps 64, 1 warp", Scan::Steps { channels: 64 }, Some(1)),
        ("steps 128, 4 warps", Scan::Steps { channels: 128 }, Some(4)),
    ];
    let passes = [
        ("rows 1x2048", Costs::Rows, [1, 2048]),
        ("rows 4x1024", Costs::Rows, [4, 1024]),
        ("columns, array transposed, 128x32", Costs::ArrayTransposed, [128, 32]),
        ("columns, array transposed, 32x128", Costs::ArrayTransposed, [32, 128]),
        ("columns, array transposed, 32x256", Costs::ArrayTransposed, [32, 256]),
        ("columns, array transposed, 16x512", Costs::ArrayTransposed, [16, 512]),
        ("columns, tile transposed, 32x128", Costs::TileTransposed, [32, 128]),
        ("columns, first axis, 32x128", Costs::Columns, [32, 128]),
        ("columns, first axis, 32x256", Costs::Columns, [32, 256]),
        ("columns, first axis, 64x64", Costs::Columns, [64, 64]),
        ("columns, first axis, 128x32", Costs::Columns, [128, 32]),
    ];
    let mut families: Vec<Box<dyn AnyFamily>> = Vec::new();
    for n in if small { vec![72] } else { vec![2048, 4096] } {
        families.push(Box::new(products::<f64>(n, &PLANS_F64, small)));
        families.push(Box::new(products::<f32>(n, &PLANS_F32, small)));
    }
    families.push(Box::new(scans(scanned, &scan_forms)));
    families.push(Box::new(sinkhorns(if small { 64 } else { 8192 }, &passes)));
    families
}
