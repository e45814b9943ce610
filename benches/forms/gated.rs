//! Forms of the gated product `silu(x w1) * (x w2)` (SwiGLU).

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::prelude::*;

use super::family::{AnyFamily, Case, Family, Size, some};

/// Arrays of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Weights {
    /// Two arrays.
    Two,
    /// One array with all columns, two tile indices.
    Columns,
    /// One array with all columns, and slices of it.
    Slices,
    /// One array with three axes.
    Stacked,
}

/// Form of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Loop {
    /// Both products in one loop, one load of `x`.
    One,
    /// All tiles are loaded before the first product.
    LoadsFirst,
    /// A load of `x` for each product.
    Twice,
    /// A loop for each product.
    Two,
    /// One product with both tiles of weights, which `cat` puts together.
    Joined,
    /// The second product first.
    UpFirst,
    /// The second accumulator is the first of the state.
    StateSwapped,
}

/// Form of the activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Silu {
    Method,
    Sigmoid,
    Formula,
}

/// A form of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    tile: [usize; 3],
    weights: Weights,
    body: Loop,
    silu: Silu,
    /// Every n-th tile by `swizzle_2d`, where n is the number of tile blocks.
    persistent: bool,
    /// One grid axis, by `swizzle_2d`.
    grouped: bool,
    /// Weights have their columns as rows, and loaded tiles are transposed.
    transposed: bool,
}

/// The kernel as a textbook writes it.
const TEXTBOOK: Form = Form {
    tile: [128, 128, 64],
    weights: Weights::Two,
    body: Loop::One,
    silu: Silu::Method,
    persistent: false,
    grouped: false,
    transposed: false,
};

/// Weights of the gate and of the rest, all columns, both stacked, and the transposes of the first
/// two.
type Inputs = ([Array<f16, 2>; 2], Array<f16, 2>, Array<f16, 3>, [Array<f16, 2>; 2]);

fn gated(x: Array<f16, 2>, weights: Inputs, out: ArrayMut<f16, 2>, form: Form) {
    let [tm, tn, _] = form.tile;
    let [rows, columns] = [0, 1].map(|axis| out.num_tiles(axis, [tm, tn]));
    let make = |at: [Scalar<i32>; 2]| one_tile(x, weights, out, at, form);
    match (form.persistent, form.grouped) {
        (true, _) => {
            let all = ct::range(ct::bid(0), rows * columns).step(ct::num_blocks(0));
            ct::fold(all, (), |(), at| make(ct::swizzle_2d(at, rows, columns, 8)));
        }
        (false, true) => make(ct::swizzle_2d(ct::bid(0), rows, columns, 8)),
        (false, false) => make([ct::bid(0), ct::bid(1)]),
    }
}

fn one_tile(
    x: Array<f16, 2>,
    (two, all, stacked, transposed): Inputs,
    out: ArrayMut<f16, 2>,
    [i, j]: [Scalar<i32>; 2],
    form: Form,
) {
    let [tm, tn, tk] = form.tile;
    let (steps, width) = (x.num_tiles(1, [tm, tk]), out.extent(1));
    let load = |k: Scalar<i32>| x.load([i, k], [tm, tk]);
    let weight = |which: usize, k: Scalar<i32>| match form.weights {
        _ if form.transposed => transposed[which].load([j, k], [tn, tk]).transpose(),
        Weights::Two => two[which].load([k, j], [tk, tn]),
        Weights::Columns if which == 0 => all.load([k, j], [tk, tn]),
        Weights::Columns => all.load([k, j + width / tn as i32], [tk, tn]),
        Weights::Slices if which == 0 => all.slice(1, ct::range(0, width)).load([k, j], [tk, tn]),
        Weights::Slices => all.slice(1, width..).load([k, j], [tk, tn]),
        Weights::Stacked => stacked.load((which, k, j), [1, tk, tn]).squeeze(0),
    };
    let zeros = || ct::zeros::<f32, 2>([tm, tn]);
    let (gate, up) = match form.body {
        Loop::One => ct::fold(..steps, (zeros(), zeros()), |(gate, up), k| {
            let x = load(k);
            (ct::mma(x, weight(0, k), gate), ct::mma(x, weight(1, k), up))
        }),
        Loop::LoadsFirst => ct::fold(..steps, (zeros(), zeros()), |(gate, up), k| {
            let (x, of_gate, of_up) = (load(k), weight(0, k), weight(1, k));
            (ct::mma(x, of_gate, gate), ct::mma(x, of_up, up))
        }),
        Loop::Twice => ct::fold(..steps, (zeros(), zeros()), |(gate, up), k| {
            let gate = ct::mma(load(k), weight(0, k), gate);
            (gate, ct::mma(load(k), weight(1, k), up))
        }),
        Loop::Two => {
            let gate = ct::fold(..steps, zeros(), |gate, k| ct::mma(load(k), weight(0, k), gate));
            (gate, ct::fold(..steps, zeros(), |up, k| ct::mma(load(k), weight(1, k), up)))
        }
        Loop::Joined => {
            let both = ct::fold(..steps, ct::zeros::<f32, 2>([tm, 2 * tn]), |both, k| {
                ct::mma(load(k), ct::cat([weight(0, k), weight(1, k)], 1), both)
            });
            let [gate, up] = both.split(1);
            (gate, up)
        }
        Loop::UpFirst => ct::fold(..steps, (zeros(), zeros()), |(gate, up), k| {
            let x = load(k);
            let up = ct::mma(x, weight(1, k), up);
            (ct::mma(x, weight(0, k), gate), up)
        }),
        Loop::StateSwapped => {
            let (up, gate) = ct::fold(..steps, (zeros(), zeros()), |(up, gate), k| {
                let x = load(k);
                let gate = ct::mma(x, weight(0, k), gate);
                (ct::mma(x, weight(1, k), up), gate)
            });
            (gate, up)
        }
    };
    let gate = match form.silu {
        Silu::Method => gate.silu(),
        Silu::Sigmoid => gate * gate.sigmoid(),
        Silu::Formula => gate / (1.0 + (-gate).exp()),
    };
    out.store([i, j], (gate * up).cast::<f16>());
}

/// The forms, with their names.
fn forms() -> Vec<(&'static str, Form)> {
    let b = TEXTBOOK;
    vec![
        ("textbook", b),
        ("loads first", Form { body: Loop::LoadsFirst, ..b }),
        ("x loaded twice", Form { body: Loop::Twice, ..b }),
        ("two loops", Form { body: Loop::Two, ..b }),
        ("second product first", Form { body: Loop::UpFirst, ..b }),
        ("state swapped", Form { body: Loop::StateSwapped, ..b }),
        ("one product of joined tiles", Form { body: Loop::Joined, ..b }),
        ("weights in one array", Form { weights: Weights::Columns, ..b }),
        ("weights in one array, slices", Form { weights: Weights::Slices, ..b }),
        ("weights stacked", Form { weights: Weights::Stacked, ..b }),
        ("weights transposed", Form { transposed: true, ..b }),
        ("sigmoid", Form { silu: Silu::Sigmoid, ..b }),
        ("formula", Form { silu: Silu::Formula, ..b }),
        ("grouped", Form { grouped: true, ..b }),
        ("persistent", Form { persistent: true, ..b }),
        (
            "persistent, weights in one array, formula",
            Form { persistent: true, weights: Weights::Columns, silu: Silu::Formula, ..b },
        ),
    ]
}

struct Arrays {
    x: DeviceArray<f16, 2>,
    two: [DeviceArray<f16, 2>; 2],
    all: DeviceArray<f16, 2>,
    stacked: DeviceArray<f16, 3>,
    transposed: [DeviceArray<f16, 2>; 2],
    out: DeviceArray<f16, 2>,
}

fn family([m, n, k]: [usize; 3], tile: [usize; 3]) -> Family<Arrays> {
    let case = |(name, form): (&'static str, Form)| {
        let form = Form { tile, ..form };
        let [rows, columns] = [m.div_ceil(tile[0]), n.div_ceil(tile[1])];
        Case::new(name, 0, move |call, Arrays { x, two, all, stacked, transposed, out }| {
            let grid = match (form.persistent, form.grouped) {
                (true, _) => [call.num_multiprocessors().min(rows * columns), 1, 1],
                (false, true) => [rows * columns, 1, 1],
                (false, false) => [rows, columns, 1],
            };
            let weights = ([&two[0], &two[1]], &*all, &*stacked, [&transposed[0], &transposed[1]]);
            call.run(grid, gated, (&*x, weights, out, Constant(form)))
        })
    };
    Family {
        name: format!("gated product f16 {m}x{n}x{k}"),
        flops: 4.0 * (m * n * k) as f64,
        bytes: 0.0,
        tolerance: 0.02,
        arrays: Box::new(move |source| {
            let number = |which: usize, row: usize, column: usize| {
                let at = ((row * n + column) * 2 + which) as u64;
                let mixed = at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
                (mixed as f64 / f64::from(1u32 << 24) - 0.5) * 4.0 / (k as f64).sqrt()
            };
            let two = |which| source.numbers([k, n], move |at| number(which, at / n, at % n));
            let transposed = |which| source.numbers([n, k], move |at| number(which, at % k, at / k));
            Ok(Arrays {
                x: source.normal([m, k], 1, 1.0)?,
                two: [two(0)?, two(1)?],
                all: source.numbers([k, 2 * n], |at| number(at % (2 * n) / n, at / (2 * n), at % n))?,
                stacked: source.numbers([2, k, n], |at| number(at / (k * n), at % (k * n) / n, at % n))?,
                transposed: [transposed(0)?, transposed(1)?],
                out: source.zeros([m, n])?,
            })
        }),
        result: |arrays| some(&arrays.out),
        cases: forms().into_iter().map(case).collect(),
    }
}

/// The families of gated products.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    vec![match size {
        Size::Full => Box::new(family([4096; 3], TEXTBOOK.tile)),
        Size::Small => Box::new(family([64, 64, 64], [32, 32, 16])),
    }]
}
