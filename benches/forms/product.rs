//! Forms of a matrix product with a bias and an activation.

use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::prelude::*;

use super::family::{AnyFamily, Case, Family, Size, some};

/// Assignment of tiles of the result to tile blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Grid {
    /// Rows on the first grid axis, columns on the second one.
    Axes,
    /// Columns on the first grid axis, rows on the second one.
    AxesSwapped,
    /// One grid axis, by quotient and remainder.
    Division,
    /// One grid axis, by `swizzle_2d`.
    Grouped,
    /// Every n-th tile by quotient and remainder, where n is the number of tile blocks.
    Persistent,
    /// Every n-th tile by `swizzle_2d`.
    PersistentGrouped,
}

/// Source of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operands {
    /// The array has the order of the product.
    Plain,
    /// The loaded tile is transposed.
    TileTransposed,
    /// The array is transposed.
    ArrayTransposed,
    /// The order of the axes is an option of the load.
    Order,
}

/// Form of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Loop {
    /// `..n`, loads in the place of the operands.
    Fold,
    /// `ct::range(0, n)`.
    Range,
    /// A range of elements with a step, loads by `ct::at`.
    Elements,
    /// `while_loop` with a counter.
    While,
    /// The loop carries the tile index in addition to the accumulator.
    Counter,
    /// Both tiles are loaded before the product, the right one first.
    LoadsFirst,
    /// `acc + ct::matmul(a, b)`.
    Added,
    /// Two loops, one after the other.
    Halves,
    /// Two products of half the depth in each iteration.
    HalfDepth,
    /// Views that are made before the loop.
    Views,
}

/// Source of the bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bias {
    /// A tile of one axis after the loop, `unsqueeze`.
    Row,
    /// A tile of one axis after the loop, broadcast by the operator.
    OneAxis,
    /// A tile of one axis before the loop.
    Before,
    /// A tile of an array with two axes.
    Matrix,
    /// By positions.
    Gather,
    /// The first value of the accumulator.
    Start,
}

/// First value of the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Start {
    Zeros,
    Full,
}

/// Place of a factor in the formula.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Scale {
    None,
    /// A product with the sums, before the bias.
    Product,
    /// A fused multiply-add of the sums and the bias.
    Fused,
    /// A product with the result of the activation.
    After,
}

/// Place of the conversion to the type of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cast {
    /// After the activation.
    Last,
    /// After the activation, by the store.
    Store,
    /// Before the bias.
    First,
    /// Before the activation.
    Middle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Activation {
    Relu,
    Gelu,
    Silu,
}

/// Source of the residual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Residual {
    None,
    /// Loaded after the loop.
    After,
    /// Loaded before the loop.
    Before,
    /// Loaded after the activation.
    Last,
}

/// A form of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Form {
    tile: [usize; 3],
    activation: Activation,
    /// The activation is written as its formula.
    spelled: bool,
    grid: Grid,
    left: Operands,
    right: Operands,
    body: Loop,
    start: Start,
    bias: Bias,
    scale: Scale,
    cast: Cast,
    residual: Residual,
}

/// The kernel as a textbook writes it.
const TEXTBOOK: Form = Form {
    tile: [128, 256, 64],
    activation: Activation::Relu,
    spelled: false,
    grid: Grid::Axes,
    left: Operands::Plain,
    right: Operands::Plain,
    body: Loop::Fold,
    start: Start::Zeros,
    bias: Bias::Row,
    scale: Scale::None,
    cast: Cast::Last,
    residual: Residual::None,
};

/// Both operands, each also as its transpose.
type Inputs = ([Array<f16, 2>; 2], [Array<f16, 2>; 2]);

/// The bias with one axis and with two axes, the residual, and the scale.
type Extras = (Array<f16, 1>, Array<f16, 2>, Array<f16, 2>, Scalar<f32>);

fn product(inputs: Inputs, extras: Extras, out: ArrayMut<f16, 2>, form: Form) {
    let [tm, tn, _] = form.tile;
    let [rows, columns] = [0, 1].map(|axis| out.num_tiles(axis, [tm, tn]));
    let make = |at: [Scalar<i32>; 2]| one_tile(inputs, extras, out, at, form);
    let all = || ct::range(ct::bid(0), rows * columns).step(ct::num_blocks(0));
    match form.grid {
        Grid::Axes => make([ct::bid(0), ct::bid(1)]),
        Grid::AxesSwapped => make([ct::bid(1), ct::bid(0)]),
        Grid::Division => make([ct::bid(0) / columns, ct::bid(0) % columns]),
        Grid::Grouped => make(ct::swizzle_2d(ct::bid(0), rows, columns, 8)),
        Grid::Persistent => ct::fold(all(), (), |(), at| make([at / columns, at % columns])),
        Grid::PersistentGrouped => ct::fold(all(), (), |(), at| make(ct::swizzle_2d(at, rows, columns, 8))),
    }
}

fn one_tile(inputs: Inputs, extras: Extras, out: ArrayMut<f16, 2>, [i, j]: [Scalar<i32>; 2], form: Form) {
    let ([a, a_transposed], [b, b_transposed]) = inputs;
    let (bias, bias_row, residual, scale) = extras;
    let [tm, tn, tk] = form.tile;
    let steps = a.num_tiles(1, [tm, tk]);
    let order = || ct::LoadOptions::new().order([1, 0]);
    let left = |k: Scalar<i32>| match form.left {
        Operands::Plain => a.load([i, k], [tm, tk]),
        Operands::TileTransposed => a_transposed.load([k, i], [tk, tm]).transpose(),
        Operands::ArrayTransposed => a_transposed.transpose().load([i, k], [tm, tk]),
        Operands::Order => a_transposed.load_with([i, k], [tm, tk], order()),
    };
    let right = |k: Scalar<i32>| match form.right {
        Operands::Plain => b.load([k, j], [tk, tn]),
        Operands::TileTransposed => b_transposed.load([j, k], [tn, tk]).transpose(),
        Operands::ArrayTransposed => b_transposed.transpose().load([k, j], [tk, tn]),
        Operands::Order => b_transposed.load_with([k, j], [tk, tn], order()),
    };
    let row = || bias.load(j, [tn]).cast::<f32>().unsqueeze(0);
    let early = (form.bias == Bias::Before).then(row);
    let load_residual = || residual.load([i, j], [tm, tn]).cast::<f32>();
    let early_residual = (form.residual == Residual::Before).then(load_residual);
    let start = match (form.bias, form.start) {
        (Bias::Start, _) => row().broadcast_to([tm, tn]),
        (_, Start::Zeros) => ct::zeros::<f32, 2>([tm, tn]),
        (_, Start::Full) => ct::full([tm, tn], 0.0),
    };
    let multiply = |acc: Tile<f32, 2>, k: Scalar<i32>| ct::mma(left(k), right(k), acc);
    let acc = match form.body {
        Loop::Fold => ct::fold(..steps, start, multiply),
        Loop::Range => ct::fold(ct::range(0, steps), start, multiply),
        Loop::Elements => ct::fold(ct::range(0, a.extent(1)).step(tk), start, |acc, k| {
            ct::mma(a.load((i, ct::at(k)), [tm, tk]), b.load((ct::at(k), j), [tk, tn]), acc)
        }),
        Loop::While => {
            let first = (start, ct::scalar(0));
            ct::while_loop(first, |(_, k)| k.lt(steps), |(acc, k)| (multiply(acc, k), k + 1)).0
        }
        Loop::Counter => ct::fold(..steps, (ct::scalar(0), start), |(k, acc), _| (k + 1, multiply(acc, k))).1,
        Loop::LoadsFirst => ct::fold(..steps, start, |acc, k| {
            let y = right(k);
            let x = left(k);
            ct::mma(x, y, acc)
        }),
        Loop::Added => ct::with_mode(ct::FloatMode::new().contract(), || {
            ct::fold(..steps, start, |acc, k| acc + ct::matmul(left(k), right(k)))
        }),
        Loop::Halves => {
            let half = steps / 2;
            ct::fold(half..steps, ct::fold(..half, start, multiply), multiply)
        }
        Loop::HalfDepth => ct::fold(..steps, start, |acc, k| {
            let half = |acc, k: Scalar<i32>| ct::mma(a.load([i, k], [tm, tk / 2]), b.load([k, j], [tk / 2, tn]), acc);
            half(half(acc, k * 2), k * 2 + 1)
        }),
        Loop::Views => {
            let (a, b) = (a.tiled([tm, tk]), b.tiled([tk, tn]));
            ct::fold(..a.num_tiles(1), start, |acc, k| ct::mma(a.load([i, k]), b.load([k, j]), acc))
        }
    };
    if form.cast == Cast::First {
        let sum = acc.cast::<f16>() + bias.load(j, [tn]).unsqueeze(0);
        out.store([i, j], activate(sum.cast::<f32>(), form).cast::<f16>());
        return;
    }
    let acc = if form.scale == Scale::Product { acc * scale } else { acc };
    let sum = match form.bias {
        Bias::Start => acc,
        Bias::Row if form.scale == Scale::Fused => acc.fma(scale, row()),
        Bias::Row => acc + row(),
        Bias::OneAxis => acc + bias.load(j, [tn]).cast::<f32>(),
        Bias::Before => acc + early.unwrap_or_else(row),
        Bias::Matrix => acc + bias_row.load((0, j), [1, tn]).cast::<f32>(),
        Bias::Gather => acc + bias.gather(ct::span(j * tn, tn)).cast::<f32>().unsqueeze(0),
    };
    let sum = if form.cast == Cast::Middle { sum.cast::<f16>().cast::<f32>() } else { sum };
    let late_residual = (form.residual == Residual::After).then(load_residual);
    let result = activate(sum, form);
    let result = if form.scale == Scale::After { result * scale } else { result };
    let result = match form.residual {
        Residual::None => result,
        Residual::Before => result + early_residual.unwrap_or_else(load_residual),
        Residual::After => result + late_residual.unwrap_or_else(load_residual),
        Residual::Last => result + load_residual(),
    };
    match form.cast {
        Cast::Store => out.store_as([i, j], result),
        Cast::Last | Cast::First | Cast::Middle => out.store([i, j], result.cast::<f16>()),
    }
}

fn activate(x: Tile<f32, 2>, form: Form) -> Tile<f32, 2> {
    match (form.activation, form.spelled) {
        (Activation::Relu, false) => x.relu(),
        (Activation::Relu, true) => ct::select(x.gt(0.0), x, 0.0),
        (Activation::Gelu, false) => x.gelu_tanh(),
        (Activation::Gelu, true) => 0.5 * x * (1.0 + (0.797_884_6 * (x + 0.044_715 * x * x * x)).tanh()),
        (Activation::Silu, false) => x.silu(),
        (Activation::Silu, true) => x / (1.0 + (-x).exp()),
    }
}

/// Forms of the loop, the grid, the operands and the epilogue.
fn relu() -> Vec<(&'static str, Form)> {
    let b = TEXTBOOK;
    vec![
        ("textbook", b),
        ("range from 0", Form { body: Loop::Range, ..b }),
        ("range of elements", Form { body: Loop::Elements, ..b }),
        ("while", Form { body: Loop::While, ..b }),
        ("counter carried", Form { body: Loop::Counter, ..b }),
        ("loads first", Form { body: Loop::LoadsFirst, ..b }),
        ("product added", Form { body: Loop::Added, ..b }),
        ("two loops", Form { body: Loop::Halves, ..b }),
        ("two products of half the depth", Form { body: Loop::HalfDepth, ..b }),
        ("views", Form { body: Loop::Views, ..b }),
        ("accumulator from full", Form { start: Start::Full, ..b }),
        ("grid swapped", Form { grid: Grid::AxesSwapped, ..b }),
        ("grid by division", Form { grid: Grid::Division, ..b }),
        ("grid grouped", Form { grid: Grid::Grouped, ..b }),
        ("persistent", Form { grid: Grid::Persistent, ..b }),
        ("persistent, grouped", Form { grid: Grid::PersistentGrouped, ..b }),
        ("right tile transposed", Form { right: Operands::TileTransposed, ..b }),
        ("right array transposed", Form { right: Operands::ArrayTransposed, ..b }),
        ("right by order", Form { right: Operands::Order, ..b }),
        ("left tile transposed", Form { left: Operands::TileTransposed, ..b }),
        ("left array transposed", Form { left: Operands::ArrayTransposed, ..b }),
        ("bias of one axis", Form { bias: Bias::OneAxis, ..b }),
        ("bias before the loop", Form { bias: Bias::Before, ..b }),
        ("bias of two axes", Form { bias: Bias::Matrix, ..b }),
        ("bias by positions", Form { bias: Bias::Gather, ..b }),
        ("accumulator from the bias", Form { bias: Bias::Start, ..b }),
        ("scaled", Form { scale: Scale::Product, ..b }),
        ("scaled, fused", Form { scale: Scale::Fused, ..b }),
        ("scaled after the activation", Form { scale: Scale::After, ..b }),
        ("cast by the store", Form { cast: Cast::Store, ..b }),
        ("cast before the bias", Form { cast: Cast::First, ..b }),
        ("cast before the activation", Form { cast: Cast::Middle, ..b }),
        ("select", Form { spelled: true, ..b }),
        (
            "persistent, grouped, bias before the loop, cast by the store",
            Form { grid: Grid::PersistentGrouped, bias: Bias::Before, cast: Cast::Store, ..b },
        ),
        (
            "persistent, two loops, right tile transposed",
            Form { grid: Grid::Persistent, body: Loop::Halves, right: Operands::TileTransposed, ..b },
        ),
    ]
}

/// Forms with an activation of several operations and a residual.
fn gelu() -> Vec<(&'static str, Form)> {
    let b = Form { activation: Activation::Gelu, residual: Residual::After, ..TEXTBOOK };
    vec![
        ("textbook", b),
        ("formula", Form { spelled: true, ..b }),
        ("residual before the loop", Form { residual: Residual::Before, ..b }),
        ("residual last", Form { residual: Residual::Last, ..b }),
        ("bias before the loop", Form { bias: Bias::Before, ..b }),
        ("accumulator from the bias", Form { bias: Bias::Start, ..b }),
        ("cast by the store", Form { cast: Cast::Store, ..b }),
        ("counter carried", Form { body: Loop::Counter, ..b }),
        ("grid grouped", Form { grid: Grid::Grouped, ..b }),
        ("persistent, grouped", Form { grid: Grid::PersistentGrouped, ..b }),
        (
            "persistent, grouped, residual before the loop",
            Form { grid: Grid::PersistentGrouped, residual: Residual::Before, ..b },
        ),
        ("right tile transposed", Form { right: Operands::TileTransposed, ..b }),
    ]
}

/// Forms with an activation that divides.
fn silu() -> Vec<(&'static str, Form)> {
    let b = Form { activation: Activation::Silu, ..TEXTBOOK };
    vec![
        ("textbook", b),
        ("formula", Form { spelled: true, ..b }),
        ("persistent, grouped", Form { grid: Grid::PersistentGrouped, ..b }),
        ("persistent, grouped, formula", Form { grid: Grid::PersistentGrouped, spelled: true, ..b }),
    ]
}

/// Both operands and their transposes, the bias with one and two axes, the residual, the result.
struct Arrays {
    a: [DeviceArray<f16, 2>; 2],
    b: [DeviceArray<f16, 2>; 2],
    bias: DeviceArray<f16, 1>,
    bias_row: DeviceArray<f16, 2>,
    residual: DeviceArray<f16, 2>,
    out: DeviceArray<f16, 2>,
}

fn family(
    what: &str,
    forms: Vec<(&'static str, Form)>,
    [m, n, k]: [usize; 3],
    tile: Option<[usize; 3]>,
) -> Family<Arrays> {
    let case = |(name, form): (&'static str, Form)| {
        let form = Form { tile: tile.unwrap_or(form.tile), ..form };
        let [rows, columns] = [m.div_ceil(form.tile[0]), n.div_ceil(form.tile[1])];
        Case::new(name, 0, move |call, Arrays { a, b, bias, bias_row, residual, out }| {
            let grid = match form.grid {
                Grid::Axes => [rows, columns, 1],
                Grid::AxesSwapped => [columns, rows, 1],
                Grid::Division | Grid::Grouped => [rows * columns, 1, 1],
                Grid::Persistent | Grid::PersistentGrouped => [call.num_multiprocessors().min(rows * columns), 1, 1],
            };
            let inputs = ([&a[0], &a[1]], [&b[0], &b[1]]);
            call.run(grid, product, (inputs, (&*bias, &*bias_row, &*residual, 1.0f32), out, Constant(form)))
        })
    };
    Family {
        name: format!("product f16 {m}x{n}x{k} {what}"),
        flops: 2.0 * (m * n * k) as f64,
        bytes: 0.0,
        tolerance: 0.02,
        arrays: Box::new(move |source| {
            let deviation = (k as f32).sqrt().recip();
            let bias = source.normal([n], 3, 1.0)?;
            Ok(Arrays {
                a: source.both([m, k], 1, 1.0)?,
                b: source.both([k, n], 2, deviation)?,
                bias_row: source.normal([1, n], 3, 1.0)?,
                bias,
                residual: source.normal([m, n], 4, 1.0)?,
                out: source.zeros([m, n])?,
            })
        }),
        result: |arrays| some(&arrays.out),
        cases: forms.into_iter().map(case).collect(),
    }
}

/// The families of products.
pub fn families(size: Size) -> Vec<Box<dyn AnyFamily>> {
    let (extents, tile) = match size {
        Size::Full => ([4096; 3], None),
        Size::Small => ([64, 128, 64], Some([32, 64, 16])),
    };
    [("relu", relu()), ("gelu, residual", gelu()), ("silu", silu())]
        .map(|(what, forms)| Box::new(family(what, forms, extents, tile)) as Box<dyn AnyFamily>)
        .into()
}
