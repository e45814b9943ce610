//! Layer normalization in loops over chunks of a row, its gradients with locks, and the gate of
//! experts.

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::prelude::*;

use crate::family::{AnyFamily, Case, Family, Size, some};

const EPSILON: f32 = 1e-5;

/// Input, weight and bias.
type Inputs = (Array<bf16, 2>, Array<bf16, 1>, Array<bf16, 1>);

/// Result, mean and inverse deviation.
type Outputs = (ArrayMut<bf16, 2>, ArrayMut<f32, 1>, ArrayMut<f32, 1>);

/// Three loops over chunks of a row.
fn forward((x, weight, bias): Inputs, (y, means, deviations): Outputs, tile: usize) {
    let row = ct::bid(0);
    let (shape, columns) = ([1, tile], x.extent(1));
    let chunks = x.num_tiles(1, shape);
    let n = columns.cast::<f32>();
    let load = |j: Scalar<i32>| x.load((row, j), shape).cast::<f32>();
    let sum = ct::fold(..chunks, ct::zeros::<f32, 2>(shape), |sum, j| sum + load(j));
    let mean = sum.sum(1) / n;
    means.store(row, mean.squeeze(1));
    let squares = ct::fold(..chunks, ct::zeros::<f32, 2>(shape), |sum, j| {
        let inside = (j * tile + ct::arange(0..tile)).lt(columns).unsqueeze(0);
        let centred = ct::select(inside, load(j) - mean, 0.0);
        sum + centred * centred
    });
    let deviation = 1.0 / (squares.sum(1) / n + EPSILON).sqrt();
    deviations.store(row, deviation.squeeze(1));
    ct::fold(..chunks, (), |(), j| {
        let [weight, bias] = [weight, bias].map(|vector| vector.load(j, [tile]).cast::<f32>().unsqueeze(0));
        y.store((row, j), ((load(j) - mean) * deviation * weight + bias).cast::<bf16>());
    });
}

/// A row in one tile.
fn forward_row((x, weight, bias): Inputs, (y, means, deviations): Outputs, columns: usize) {
    let row = ct::bid(0);
    let x = x.load((row, 0), [1, columns]).cast::<f32>();
    let mean = x.sum(1) * (1.0 / columns as f32);
    let centred = x - mean;
    let deviation = ((centred * centred).sum(1) * (1.0 / columns as f32) + EPSILON).rsqrt();
    means.store(row, mean.squeeze(1));
    deviations.store(row, deviation.squeeze(1));
    let [weight, bias] = [weight, bias].map(|vector| vector.load(0, [columns]).cast::<f32>().unsqueeze(0));
    y.store((row, 0), (centred * deviation * weight + bias).cast::<bf16>());
}

struct Forward {
    x: DeviceArray<bf16, 2>,
    weight: DeviceArray<bf16, 1>,
    bias: DeviceArray<bf16, 1>,
    y: DeviceArray<bf16, 2>,
    mean: DeviceArray<f32, 1>,
    deviation: DeviceArray<f32, 1>,
}

fn of_forward([m, n]: [usize; 2], tile: usize) -> Family<Forward> {
    let grid = [m, 1, 1];
    Family {
        name: format!("samples, layernorm bf16 {m}x{n}"),
        flops: 0.0,
        bytes: (4 * m * n + 4 * n + 8 * m) as f64,
        tolerance: 0.07,
        arrays: Box::new(move |source| {
            Ok(Forward {
                x: source.normal([m, n], 1, 1.0)?,
                weight: source.normal([n], 2, 1.0)?,
                bias: source.normal([n], 3, 1.0)?,
                y: source.zeros([m, n])?,
                mean: source.zeros([m])?,
                deviation: source.zeros([m])?,
            })
        }),
        result: |arrays| Ok([some(&arrays.y)?, some(&arrays.mean)?, some(&arrays.deviation)?].concat()),
        cases: vec![
            Case::new("chunks of 1024", 0, move |call, Forward { x, weight, bias, y, mean, deviation }| {
                call.run(grid, forward, ((&*x, &*weight, &*bias), (y, mean, deviation), Constant(tile)))
            }),
            Case::new("row in a tile", 0, move |call, Forward { x, weight, bias, y, mean, deviation }| {
                call.run(grid, forward_row, ((&*x, &*weight, &*bias), (y, mean, deviation), Constant(n)))
            }),
        ],
    }
}

/// Gradient of the result, input and weight.
type Gradients = (Array<bf16, 2>, Array<bf16, 2>, Array<bf16, 1>);

/// Mean and inverse deviation of each row.
type Moments = (Array<f32, 1>, Array<f32, 1>);

/// Partial sums of the gradients of weight and bias.
type Parts = (ArrayMut<f32, 2>, ArrayMut<f32, 2>);

/// Gradient of a row. Rows of one group add their parts under a lock.
fn backward(
    (dy, x, weight): Gradients,
    (means, deviations): Moments,
    dx: ArrayMut<bf16, 2>,
    (dweight, dbias): Parts,
    locks: ArrayMut<i32, 1>,
    tile: usize,
) {
    let row = ct::bid(0);
    let (shape, columns) = ([1, tile], x.extent(1));
    let chunks = x.num_tiles(1, shape);
    let n = columns.cast::<f32>();
    let group = row % dweight.extent(0);
    let mean = means.load(row, [1]).unsqueeze(1);
    let deviation = deviations.load(row, [1]).unsqueeze(1);
    let load = |j: Scalar<i32>| {
        let [x, dy] = [x, dy].map(|array| array.load((row, j), shape).cast::<f32>());
        let weight = weight.load(j, [tile]).cast::<f32>().unsqueeze(0);
        let inside = (j * tile + ct::arange(0..tile)).lt(columns).unsqueeze(0);
        let normalized = ct::select(inside, (x - mean) * deviation, 0.0);
        (dy, normalized, ct::select(inside, weight * dy, 0.0))
    };
    let zeros = || ct::zeros::<f32, 2>(shape);
    let (along, level) = ct::fold(..chunks, (zeros(), zeros()), |(along, level), j| {
        let (_, normalized, weighted) = load(j);
        (along + normalized * weighted, level + weighted)
    });
    let (along, level) = (along.sum(1) / n, level.sum(1) / n);
    ct::fold(..chunks, (), |(), j| {
        let (dy, normalized, weighted) = load(j);
        dx.store((row, j), ((weighted - (normalized * along + level)) * deviation).cast::<bf16>());
        ct::Lock::new(locks.entry(group)).with(|| {
            let before = [dweight, dbias].map(|array| array.as_array().load((group, j), shape));
            dweight.store((group, j), before[0] + dy * normalized);
            dbias.store((group, j), before[1] + dy);
        });
    });
}

/// Gradients of the rows at a distance of the number of tile blocks, each in one tile.
fn backward_rows(
    (dy, x, weight): Gradients,
    (means, deviations): Moments,
    dx: ArrayMut<bf16, 2>,
    (dweight, dbias): Parts,
    columns: usize,
) {
    let (block, shape) = (ct::bid(0), [1, columns]);
    let factor = 1.0 / columns as f32;
    let weight = weight.load(0, [columns]).cast::<f32>().unsqueeze(0);
    let zeros = || ct::zeros::<f32, 2>(shape);
    let rows = ct::range(block, dy.extent(0)).step(ct::num_blocks(0));
    let (of_weight, of_bias) = ct::fold(rows, (zeros(), zeros()), |(of_weight, of_bias), row| {
        let [dy, x] = [dy, x].map(|array| array.load((row, 0), shape).cast::<f32>());
        let (mean, deviation) = (means.load_scalar(row), deviations.load_scalar(row));
        let normalized = (x - mean) * deviation;
        let weighted = dy * weight;
        let along = (weighted * normalized).sum(1) * factor;
        let level = weighted.sum(1) * factor;
        dx.store((row, 0), ((weighted - level - normalized * along) * deviation).cast::<bf16>());
        (of_weight + dy * normalized, of_bias + dy)
    });
    dweight.store((block, 0), of_weight);
    dbias.store((block, 0), of_bias);
}

/// Sums of the columns of the partial sums.
fn columns(parts: (Array<f32, 2>, Array<f32, 2>), sums: (ArrayMut<bf16, 1>, ArrayMut<bf16, 1>), tile: [usize; 2]) {
    let j = ct::bid(0);
    let zeros = || ct::zeros::<f32, 2>(tile);
    let (a, b) = ct::fold(..parts.0.num_tiles(0, tile), (zeros(), zeros()), |(a, b), i| {
        (a + parts.0.load([i, j], tile), b + parts.1.load([i, j], tile))
    });
    sums.0.store(j, a.sum(0).squeeze(0).cast::<bf16>());
    sums.1.store(j, b.sum(0).squeeze(0).cast::<bf16>());
}

/// Rows of the partial sums.
const GROUPS: usize = 64;

struct Backward {
    dy: DeviceArray<bf16, 2>,
    x: DeviceArray<bf16, 2>,
    weight: DeviceArray<bf16, 1>,
    mean: DeviceArray<f32, 1>,
    deviation: DeviceArray<f32, 1>,
    dx: DeviceArray<bf16, 2>,
    zeros: DeviceArray<f32, 2>,
    dweight: DeviceArray<f32, 2>,
    dbias: DeviceArray<f32, 2>,
    locks: DeviceArray<i32, 1>,
    parts: [DeviceArray<f32, 2>; 2],
    sums: [DeviceArray<bf16, 1>; 2],
}

fn of_backward([m, n]: [usize; 2], tile: usize) -> Family<Backward> {
    /// Rows of the partial sums of the second form.
    const BLOCKS: usize = 264;
    Family {
        name: format!("samples, layernorm gradients bf16 {m}x{n}"),
        flops: 0.0,
        bytes: (6 * m * n) as f64,
        // One unit in the last place of sums below 32.
        tolerance: 0.15,
        arrays: Box::new(move |source| {
            Ok(Backward {
                dy: source.normal([m, n], 1, 0.1)?,
                x: source.normal([m, n], 2, 1.0)?,
                weight: source.normal([n], 3, 1.0)?,
                mean: source.zeros([m])?,
                deviation: source.numbers([m], |_| 1.0)?,
                dx: source.zeros([m, n])?,
                zeros: source.zeros([GROUPS, n])?,
                dweight: source.zeros([GROUPS, n])?,
                dbias: source.zeros([GROUPS, n])?,
                locks: source.zeros([GROUPS])?,
                parts: [source.zeros([BLOCKS, n])?, source.zeros([BLOCKS, n])?],
                sums: [source.zeros([n])?, source.zeros([n])?],
            })
        }),
        result: |arrays| Ok([some(&arrays.dx)?, some(&arrays.sums[0])?, some(&arrays.sums[1])?].concat()),
        cases: vec![
            Case::new("locks", 0, move |call, state: &mut Backward| {
                let Backward { dy, x, weight, mean, deviation, dx, zeros, dweight, dbias, locks, sums, .. } = state;
                call.copy(zeros, dweight)?;
                call.copy(zeros, dbias)?;
                let gradients = (&*dy, &*x, &*weight);
                let parts = (&mut *dweight, &mut *dbias);
                let arguments = (gradients, (&*mean, &*deviation), dx, parts, locks, Constant(tile));
                call.run([m, 1, 1], backward, arguments)?;
                let [a, b] = sums;
                let arguments = ((&*dweight, &*dbias), (a, b), Constant([32, tile]));
                call.run([n.div_ceil(tile), 1, 1], columns, arguments)
            }),
            Case::new("rows in turn", 0, move |call, state: &mut Backward| {
                let Backward { dy, x, weight, mean, deviation, dx, parts: [a, b], sums, .. } = state;
                let gradients = (&*dy, &*x, &*weight);
                let parts = (&mut *a, &mut *b);
                call.run([BLOCKS, 1, 1], backward_rows, (gradients, (&*mean, &*deviation), dx, parts, Constant(n)))?;
                let [sum_a, sum_b] = sums;
                call.run([n.div_ceil(32), 1, 1], columns, ((&*a, &*b), (sum_a, sum_b), Constant([64, 32])))
            }),
        ],
    }
}

/// The gate of experts: the left half of a row by `silu`, times the right half.
fn gate(a: Array<bf16, 2>, b: Array<bf16, 2>, c: ArrayMut<bf16, 2>, columns: usize) {
    let at = (ct::bid(0), 0);
    let mode = ct::FloatMode::new().flush_to_zero();
    let [a, b] = [a, b].map(|array| array.load(at, [1, columns]).cast::<f32>());
    let sigmoid = ct::ones::<f32, 2>([1, columns]).div_with((-a).exp().add_with(1.0, mode), mode.approx());
    c.store(at, a.mul_with(sigmoid, mode).mul_with(b, mode).cast::<bf16>());
}

fn gate_method(a: Array<bf16, 2>, b: Array<bf16, 2>, c: ArrayMut<bf16, 2>, columns: usize) {
    let at = (ct::bid(0), 0);
    let [a, b] = [a, b].map(|array| array.load(at, [1, columns]).cast::<f32>());
    c.store(at, (a.silu() * b).cast::<bf16>());
}

fn gate_whole(both: Array<bf16, 2>, c: ArrayMut<bf16, 2>, columns: usize) {
    let row = ct::bid(0);
    let [a, b] = [0, 1].map(|half| both.load((row, half), [1, columns]).cast::<f32>());
    c.store((row, 0), (a.silu() * b).cast::<bf16>());
}

fn of_gate([m, n]: [usize; 2]) -> Family<[DeviceArray<bf16, 2>; 2]> {
    let grid = [m, 1, 1];
    Family {
        name: format!("samples, gate of experts bf16 {m}x{n}"),
        flops: 0.0,
        bytes: (6 * m * n) as f64,
        tolerance: 0.07,
        arrays: Box::new(move |source| Ok([source.normal([m, 2 * n], 1, 1.0)?, source.zeros([m, n])?])),
        result: |[_, c]| some(c),
        cases: vec![
            Case::new("approximate", 0, move |call, [ab, c]: &mut [DeviceArray<bf16, 2>; 2]| {
                let (a, b) = (ab.slice(1, ..n)?, ab.slice(1, n..)?);
                call.run(grid, gate, (a, b, c, Constant(n)))
            }),
            Case::new("silu", 0, move |call, [ab, c]: &mut [DeviceArray<bf16, 2>; 2]| {
                let (a, b) = (ab.slice(1, ..n)?, ab.slice(1, n..)?);
                call.run(grid, gate_method, (a, b, c, Constant(n)))
            }),
            Case::new("silu, one array", 0, move |call, [ab, c]: &mut [DeviceArray<bf16, 2>; 2]| {
                call.run(grid, gate_whole, (&*ab, c, Constant(n)))
            }),
        ],
    }
}

pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    let (shape, tile, of_experts) = match size {
        Size::Full => ([4096, 4096], 1024, [32768, 1024]),
        Size::Small => ([20, 64], 16, [12, 64]),
    };
    vec![Box::new(of_forward(shape, tile)), Box::new(of_backward(shape, tile)), Box::new(of_gate(of_experts))]
}
