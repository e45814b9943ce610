//! The steps of `docs/matmul.md`: `cargo run --release --example matmul_steps`. Checks each step,
//! and measures it on a GPU. Argument: the size of the matrices (8192).

use cutlet as ct;
use cutlet::prelude::*;

/// Step 1: a row of the result per block; each iteration adds a multiple of a row of `b`.
pub fn rows(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, [_, tn, _]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let sum = ct::fold(..a.extent(1), ct::zeros::<f32, 2>([1, tn]), |sum, k| {
        sum + b.load((k, j), [1, tn]).cast::<f32>() * a.load_scalar((i, k)).cast::<f32>()
    });
    c.store((i, j), sum.cast::<f16>());
}

/// Step 2: a tile of the result per block; each iteration adds an outer product.
pub fn outer_products(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, [tm, tn, _]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let sum = ct::fold(..a.extent(1), ct::zeros::<f32, 2>([tm, tn]), |sum, k| {
        sum + a.load((i, k), [tm, 1]).cast::<f32>() * b.load((k, j), [1, tn]).cast::<f32>()
    });
    c.store((i, j), sum.cast::<f16>());
}

/// Step 3: each iteration multiplies two tiles, in f32.
pub fn tiles_f32(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, [tm, tn, tk]: [usize; 3]) {
    let (i, j) = (ct::bid(0), ct::bid(1));
    let sum = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |sum, k| {
        ct::mma(a.load((i, k), [tm, tk]).cast::<f32>(), b.load((k, j), [tk, tn]).cast::<f32>(), sum)
    });
    c.store((i, j), sum.cast::<f16>());
}

/// A tile of the result, by tensor cores.
fn tile(a: Array<f16, 2>, b: Array<f16, 2>, c: &ArrayMut<f16, 2>, [i, j]: [Scalar<i32>; 2], [tm, tn, tk]: [usize; 3]) {
    let sum = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |sum, k| {
        ct::mma(a.load((i, k), [tm, tk]), b.load((k, j), [tk, tn]), sum)
    });
    c.store((i, j), sum.cast::<f16>());
}

/// Steps 4 and 5: a tile per block.
pub fn tensor_cores(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, form: [usize; 3]) {
    tile(a, b, &c, [ct::bid(0), ct::bid(1)], form);
}

/// Step 6: concurrent blocks compute a square of tiles, which share operands in the cache.
pub fn grouped(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, form: [usize; 3]) {
    let [rows, columns] = [0, 1].map(|axis| c.num_tiles(axis, [form[0], form[1]]));
    tile(a, b, &c, ct::swizzle_2d(ct::bid(0), rows, columns, 8), form);
}

/// Step 7: one block per multiprocessor. The loads of its next tile overlap with its store.
pub fn persistent(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, form: [usize; 3]) {
    let [rows, columns] = [0, 1].map(|axis| c.num_tiles(axis, [form[0], form[1]]));
    let mine = ct::range(ct::bid(0), rows * columns).step(ct::num_blocks(0));
    ct::fold(mine, (), |(), index| tile(a, b, &c, ct::swizzle_2d(index, rows, columns, 8), form));
}

fn main() -> ct::Result<()> {
    let device = ct::Device::first()?;
    let size = std::env::args().nth(1).map_or(8192, |size| size.parse().expect("a size"));
    let measured = (device.backend() != ct::Backend::Cpu).then_some(size);
    if measured.is_some() {
        println!("f16, {size} x {size} x {size}, {}\n", device.name());
        println!("| step | kernel | tile | TFLOP/s | over the step before |\n|---|---|---|---|---|");
    }
    let mut steps = Steps { device, measured, rates: Vec::new() };
    let grid = |form: [usize; 3]| move |m: usize, n: usize| [m.div_ceil(form[0]), n.div_ceil(form[1])];
    let line = |form: [usize; 3]| move |m: usize, n: usize| [m.div_ceil(form[0]) * n.div_ceil(form[1]), 1];
    let (row, small, large) = ([1, 256, 1], [64, 64, 32], [128, 256, 64]);
    steps.step("rows", rows, row, grid(row))?;
    steps.step("outer products", outer_products, small, grid(small))?;
    steps.step("tiles in f32", tiles_f32, small, grid(small))?;
    steps.step("tensor cores", tensor_cores, small, grid(small))?;
    steps.step("large tiles", tensor_cores, large, grid(large))?;
    steps.step("groups of tiles", grouped, large, line(large))?;
    let processors = steps.device.num_multiprocessors();
    steps.step("persistent blocks", persistent, large, |m, n| [line(large)(m, n)[0].min(processors), 1])
}

/// Parameters of the kernels.
type Parameters = (Array<f16, 2>, Array<f16, 2>, ArrayMut<f16, 2>, [usize; 3]);

/// The matrices of a check, those of a measurement, and the table.
struct Steps {
    device: ct::Device,
    measured: Option<usize>,
    rates: Vec<f64>,
}

impl Steps {
    /// Checks a step, and measures it on a GPU. `blocks` is the grid for m rows and n columns.
    fn step<K>(
        &mut self,
        title: &str,
        kernel: K,
        form: [usize; 3],
        blocks: impl Fn(usize, usize) -> [usize; 2],
    ) -> ct::Result<()>
    where
        K: ct::kernel::Kernel<Parameters> + Copy,
    {
        let [m, n, k] = [208, 304, 160];
        let (x, y) = (|i: usize, j: usize| (i * 7 + j * 3) % 11, |i: usize, j: usize| (i * 5 + j) % 7);
        let small = |x: usize| f16::from_f32(x as f32 / 8.0);
        let a = self.device.from_fn([m, k], |[i, j]| small(x(i, j)))?;
        let b = self.device.from_fn([k, n], |[i, j]| small(y(i, j)))?;
        let mut c = self.device.zeros([m, n])?;
        ct::launch(kernel, blocks(m, n), (&a, &b, &mut c, Constant(form)))?;
        // All sums of these numbers are exact in f32.
        let want = |at: usize| f16::from_f32((0..k).map(|l| x(at / n, l) * y(l, at % n)).sum::<usize>() as f32 / 64.0);
        assert!(c.to_vec()?.iter().enumerate().all(|(at, &c)| c == want(at)), "step {title}: wrong results");

        let number = self.rates.len() + 1;
        let Some(size) = self.measured else {
            println!("matmul_steps: {number}. {title}: {m} x {n} x {k}, {}, exact", self.device.name());
            self.rates.push(0.0);
            return Ok(());
        };
        let a = self.device.random([size, size], ct::random::Random::Normal, 1)?;
        let b = self.device.random([size, size], ct::random::Random::Normal, 2)?;
        let mut c = self.device.zeros([size, size])?;
        let how = ct::Bench::new().warm_up(2).runs(10);
        // On Hopper the form of step 7 is the default of large launches, so earlier steps disable
        // it.
        let launch = ct::Launch::new(blocks(size, size)).hints(ct::Hints::new().persistent(false));
        let time = launch.bench(how, kernel, [(&a, &b, &mut c, Constant(form))])?.times().median();
        let rate = 2.0 * (size as f64).powi(3) / time.as_secs_f64() / 1e12;
        let gain = self.rates.last().map_or("-".to_string(), |before| format!("{:.2}", rate / before));
        println!("| {number} | {title} | {form:?} | {rate:.1} | {gain} |");
        self.rates.push(rate);
        Ok(())
    }
}
