//! Gradients of attention: `cargo bench --bench kernels -- attention_backward`.

use anyhow::Result;
use cutlet as ct;
use cutlet::DeviceArray;
use cutlet::element::{CastTo, MmaInput};
use cutlet::prelude::*;
use rayon::prelude::*;

use super::examples::attention::{self, attention};
use super::examples::attention_backward::{of_keys, row_sums};
use super::examples::attention_queries::{Form, of_queries};
use super::harness::{Expected, Options, Report, Rotation, Work, largest_error, normal, sample_rows};

options! {
    /// The gradients of attention with respect to queries, keys and values, of batch x heads x
    /// sequence x dim.
    ///
    /// One kernel computes all of them, those of queries by atomic additions. Alternatively it
    /// computes those of keys and values, and another kernel those of queries, always in the same
    /// order.
    {
        /// Element type of the arrays.
        "type" element: ElementType = ElementType::F16,
        /// Sequences.
        "batch" batch: Option<usize> = None,
        /// Heads.
        "heads" heads: Option<usize> = None,
        /// Length of the sequences.
        "seq" seq: Option<usize> = None,
        /// Numbers of a query, key or value.
        "dim" dim: usize = 64,
        /// A query sees only the keys up to its own position.
        "causal" causal: bool = false,
        /// Extents of a tile of the gradients of keys and values: queries, and keys.
        "tile" tile: [usize; 2] = [64, 128],
        /// Extents of a tile of the gradients of queries.
        "query-tile" query_tile: [usize; 2] = [128, 64],
        /// The kernel of the queries computes the gradients of weights after the weights, and not
        /// at the same time.
        "late" late: bool = false,
        /// A kernel of its own makes the gradients of queries.
        "apart" apart: bool = false,
        /// The kernel whose code is emitted.
        "part" part: Part = Part::Keys,
    }
}

choice! {
    /// Element types.
    ElementType {
        F16 = "f16",
        Bf16 = "bf16",
    }
}

choice! {
    /// The kernels.
    Part {
        Rows = "rows",
        Keys = "keys",
        Queries = "queries",
        Narrowed = "narrowed",
    }
}

/// Rows of the tiles in which sums over rows are made.
const ROWS: usize = 64;

/// Stores the sums of the gradients of queries, times the scale, in their type.
fn narrowed<T: Element>(sums: Array<f32, 4>, dq: ArrayMut<T, 4>, scale: Scalar<f32>, [rows, dim]: [usize; 2])
where
    f32: CastTo<T>,
{
    let at = (ct::bid(2), ct::bid(1), ct::bid(0), 0);
    dq.store(at, (sums.load(at, [1, 1, rows, dim]) * (scale * std::f32::consts::LN_2)).cast::<T>());
}

/// Inputs, stored results of the forward pass, and results.
struct Set<T: Element> {
    inputs: [DeviceArray<T, 4>; 4],
    out: DeviceArray<T, 4>,
    logs: DeviceArray<f32, 3>,
    sums: DeviceArray<f32, 3>,
    gradients: [DeviceArray<T, 4>; 3],
    all: Option<DeviceArray<f32, 4>>,
}

fn run_as<T>(cli: &Cli, rounding: f64, least: f64) -> Result<()>
where
    T: MmaInput<T, f32> + Default + CastTo<f32>,
    f32: CastTo<T>,
{
    let (options, device) = (&cli.options, cli.options.device()?);
    let batch = options.size(cli.batch, &device, 4, 1);
    let heads = options.size(cli.heads, &device, 32, 2);
    let seq = options.size(cli.seq, &device, 4096, 200);
    let (dim, causal) = (cli.dim, cli.causal);
    let (shape, of_rows) = ([batch, heads, seq, dim], [batch, heads, seq]);
    let keys = Constant(([cli.tile[0], cli.tile[1], dim], causal));
    let queries = Constant(Form { tile: [cli.query_tile[0], cli.query_tile[1], dim], causal, early: !cli.late });
    let rows = Constant([ROWS, dim]);
    let scale = (std::f64::consts::LOG2_E / (dim as f64).sqrt()) as f32;
    if options.emits() {
        let (x, row) = (ct::ArraySpec::<T, 4>::new(shape), ct::ArraySpec::<f32, 3>::new(of_rows));
        let (inputs, sums, wide) = ((x, x, x, x), (row, row), ct::ArraySpec::<f32, 4>::new(shape));
        let all = (!cli.apart).then_some(wide.mutable());
        return match cli.part {
            Part::Rows => options.emit(row_sums::<T>, ((x, x), (row.mutable(), all), rows)),
            Part::Keys => options.emit(of_keys::<T>, (inputs, sums, (x.mutable(), x.mutable(), all), scale, keys)),
            Part::Queries => options.emit(of_queries::<T>, (inputs, sums, x.mutable(), scale, queries)),
            Part::Narrowed => options.emit(narrowed::<T>, (wide, x.mutable(), scale, rows)),
        };
    }
    let size = shape.iter().product();
    let host: Vec<Vec<T>> = (1..=4).map(|seed| normal(seed, size, T::from_f64)).collect();
    let bytes = size_of::<T>() * 8 * size;
    let mut rotation = Rotation::new(device, bytes, || {
        let array = |index: usize| device.array(&host[index], shape);
        Ok(Set {
            inputs: [array(0)?, array(1)?, array(2)?, array(3)?],
            out: device.zeros(shape)?,
            logs: device.zeros(of_rows)?,
            sums: device.zeros(of_rows)?,
            gradients: [device.zeros(shape)?, device.zeros(shape)?, device.zeros(shape)?],
            all: if cli.apart { None } else { Some(device.zeros(shape)?) },
        })
    })?;
    for set in rotation.all() {
        forward(set, dim, causal, scale)?;
    }
    let grid = |rows: usize| [seq.div_ceil(rows), heads, batch];
    let time = rotation.time(options, |set| {
        let Set { inputs: [q, k, v, dout], out, logs, sums, gradients: [dq, dk, dv], all } = set;
        let launch = |rows: usize| options.launch(grid(rows));
        launch(ROWS).launch(row_sums::<T>, ((&*dout, &*out), (&mut *sums, all.as_mut()), rows))?;
        let (inputs, of_rows) = ((&*q, &*k, &*v, &*dout), (&*logs, &*sums));
        launch(cli.tile[1]).launch(of_keys::<T>, (inputs, of_rows, (dk, dv, all.as_mut()), scale, keys))?;
        match all {
            Some(all) => launch(ROWS).launch(narrowed::<T>, (&*all, dq, scale, rows)),
            None => launch(cli.query_tile[0]).launch(of_queries::<T>, (inputs, of_rows, dq, scale, queries)),
        }
    })?;
    let set = rotation.first();
    // The heads that are compared: the first and the last.
    let chosen = [0, batch * heads - 1];
    let mut error = 0.0f64;
    for head in &chosen[..if chosen[0] == chosen[1] { 1 } else { 2 }] {
        let part = |index: usize| &host[index][head * seq * dim..(head + 1) * seq * dim];
        let want = Head::new([0, 1, 2, 3].map(part), dim, causal, least).gradients();
        for (got, want) in set.gradients.iter().zip(&want) {
            let got = got.view().reshape([batch * heads, seq * dim])?.slice(0, *head..head + 1)?.to_vec()?;
            let at = |i: usize| want.0[i / dim] * dim + i % dim;
            let worst = largest_error(want.1.len(), |i| got[at(i)].to_f64(), |i| want.1[i]);
            error = if worst.is_nan() || worst > error { worst } else { error };
        }
    }
    Report {
        what: format!(
            "attention_backward {} {} {batch}x{heads}x{seq}x{dim}, tiles {}x{}{}",
            cli.element.name(),
            if causal { "causal" } else { "full" },
            cli.tile[0],
            cli.tile[1],
            if cli.apart { format!(" {}x{}", cli.query_tile[0], cli.query_tile[1]) } else { " at once".into() },
        ),
        device: device.name().to_owned(),
        time,
        // Five products; half of each is above the diagonal.
        work: Work::Flops(if causal { 5.0 } else { 10.0 } * (batch * heads * seq * seq * dim) as f64),
        error,
        // Weights and their gradients are rounded, the result of the forward pass, and the
        // gradients.
        tolerance: 3.0 * rounding + 1e-4,
        relative_to: "the magnitude of the terms",
    }
    .finish()
}

/// The forward pass: a tile of queries a block.
fn forward<T>(set: &mut Set<T>, dim: usize, causal: bool, scale: f32) -> Result<()>
where
    T: MmaInput<T, f32>,
    f32: CastTo<T>,
{
    let form = Constant(attention::Form { tile: [64, 64, dim], group: 1, causal });
    let Set { inputs: [q, k, v, _], out, logs, .. } = set;
    let [batch, heads, seq, _] = q.shape();
    let arguments = ((&*q, &*k, &*v), (out, Some(logs)), scale, form);
    Ok(ct::launch(attention::<T>, [seq.div_ceil(64), heads, batch], arguments)?)
}

/// A head in f64.
struct Head {
    /// Queries, keys, values, gradients of the result.
    rows: [Vec<Vec<f64>>; 4],
    /// For each query: the log of the sum of its exponentials, its result times the gradient of the
    /// result, and the magnitude of this product.
    of_rows: Vec<[f64; 3]>,
    causal: bool,
    /// Smaller numbers have fewer bits.
    least: f64,
}

fn dot(a: &[f64], b: &[f64]) -> [f64; 2] {
    a.iter().zip(b).fold([0.0, 0.0], |[sum, size], (a, b)| [sum + a * b, size + (a * b).abs()])
}

impl Head {
    fn new<T: Element>(parts: [&[T]; 4], dim: usize, causal: bool, least: f64) -> Head {
        let seq = parts[0].len() / dim;
        let wide = |part: &[T]| part.chunks(dim).map(|row| row.iter().map(|x| x.to_f64()).collect()).collect();
        let mut head = Head { rows: parts.map(wide), of_rows: Vec::new(), causal, least };
        let of_row = |i: usize| {
            let [_, _, v, dout] = &head.rows;
            let scores: Vec<f64> = (0..head.seen(i)).map(|j| head.score(i, j)).collect();
            let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - most).exp()).sum();
            let log = most + sum.ln();
            let mut out = vec![0.0; dim];
            for (score, v) in scores.iter().zip(v) {
                out.iter_mut().zip(v).for_each(|(out, v)| *out += (score - log).exp() * v);
            }
            let [level, size] = dot(&dout[i], &out);
            [log, level, size]
        };
        head.of_rows = (0..seq).into_par_iter().map(of_row).collect();
        head
    }

    fn seen(&self, query: usize) -> usize {
        if self.causal { query + 1 } else { self.rows[1].len() }
    }

    fn score(&self, i: usize, j: usize) -> f64 {
        dot(&self.rows[0][i], &self.rows[1][j])[0] / (self.rows[0][i].len() as f64).sqrt()
    }

    /// A weight and its gradient, each with its magnitude.
    fn weight(&self, i: usize, j: usize) -> [[f64; 2]; 2] {
        let [_, _, v, dout] = &self.rows;
        let [log, level, size] = self.of_rows[i];
        let ([slope, slope_size], weight) = (dot(&dout[i], &v[j]), (self.score(i, j) - log).exp());
        let step = [weight * (slope - level), (weight * (slope_size + size)).max(self.least)];
        [[weight, weight.max(self.least)], step.map(|x| x / (v[j].len() as f64).sqrt())]
    }

    /// For each gradient the rows that are compared, and their references.
    fn gradients(&self) -> [(Vec<usize>, Vec<Expected>); 3] {
        let [q, k, _, dout] = &self.rows;
        let (rows, seq) = (sample_rows(q.len()), q.len());
        // Terms: by which factor, of which magnitude, of which row.
        let sum = |terms: &mut dyn Iterator<Item = (f64, f64, &Vec<f64>)>| {
            let mut sums = vec![Expected { value: 0.0, scale: self.least }; q[0].len()];
            for (factor, size, row) in terms {
                for (sum, x) in sums.iter_mut().zip(row) {
                    sum.value += factor * x;
                    sum.scale += size * x.abs();
                }
            }
            sums
        };
        let of_query = |&i: &usize| {
            sum(&mut (0..self.seen(i)).map(|j| {
                let [_, [step, size]] = self.weight(i, j);
                (step, size, &k[j])
            }))
        };
        let queries = |j: usize| if self.causal { j..seq } else { 0..seq };
        let of_key = |&j: &usize| {
            sum(&mut queries(j).map(|i| {
                let [_, [step, size]] = self.weight(i, j);
                (step, size, &q[i])
            }))
        };
        let of_value = |&j: &usize| {
            sum(&mut queries(j).map(|i| {
                let [[weight, size], _] = self.weight(i, j);
                (weight, size, &dout[i])
            }))
        };
        let all =
            |of: &(dyn Fn(&usize) -> Vec<Expected> + Sync)| (rows.clone(), rows.par_iter().flat_map_iter(of).collect());
        [all(&of_query), all(&of_key), all(&of_value)]
    }
}

/// Runs the kernel with these options.
pub fn run(cli: &Cli) -> Result<()> {
    match cli.element {
        ElementType::F16 => run_as::<f16>(cli, 2f64.powi(-11), 2f64.powi(-14)),
        ElementType::Bf16 => run_as::<bf16>(cli, 2f64.powi(-8), 2f64.powi(-126)),
    }
}
