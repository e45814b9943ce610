//! Rows of softmax, norms, rotation, gates and sparsemax.

use cutlet as ct;
use cutlet::Stream;
use cutlet::element::bf16;
use cutlet_kernels::norms::{Gate, gated, rotary_pair, sparsemax};
use cutlet_kernels::{Number, Pairs, layer_norm, rms_norm, softmax};

use crate::case::{Case, Data, Functions, difference, matrix, matrix_mut, places, poison_all, random, values};

const EPSILON: f32 = 1e-5;

/// A row over the rows of matrices. `inputs` have a matrix or a row each; extents are known from
/// their lengths.
fn of_rows<T: Number>(
    name: &str,
    [m, n]: [usize; 2],
    inputs: &'static [(&'static str, bool, f32)],
    ours: fn(&Stream, &mut Data<T>) -> ct::Result<()>,
    error: fn(&Data<T>) -> ct::Result<f64>,
) -> Case {
    let matrices = 1 + inputs.iter().filter(|input| input.1).count();
    let data = move |device: ct::Device| {
        let inputs = inputs.iter().zip(1..).map(|(&(name, whole, scale), seed)| {
            Ok((name, random::<T>(device, seed, if whole { m * n } else { n }, scale)?))
        });
        Ok(Data {
            inputs: inputs.collect::<ct::Result<_>>()?,
            outputs: vec![("y", device.zeros([m * n])?)],
            numbers: vec![("rstd", device.zeros([m])?), ("mean", device.zeros([m])?)],
            integers: vec![],
            kept: None,
        })
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    let bytes = (matrices * m * n * size_of::<T>()) as f64;
    let tolerance = if size_of::<T>() == 4 { 1e-5 } else { 8e-3 };
    Case::new(format!("{name} {} {m} {n}", T::NAME), tolerance, bytes, 0.0, functions)
}

/// Extents of the matrices of a row.
fn extents<T: ct::Element>(data: &Data<T>) -> ct::Result<[usize; 2]> {
    let of = data.outputs[0].1.len();
    let m = data.numbers[0].1.len();
    Ok([m, of / m])
}

/// Compares some rows of the first result with a function of the same rows of the inputs.
fn by_rows<T: Number>(data: &Data<T>, reference: impl Fn(&[Vec<f64>]) -> Vec<f64>) -> ct::Result<f64> {
    let [m, n] = extents(data)?;
    let mut worst = 0.0f64;
    for row in places(m) {
        let inputs: ct::Result<Vec<_>> =
            data.inputs.iter().map(|(_, array)| values(array, if array.len() == n { 0 } else { row * n }, n)).collect();
        worst = worst.max(difference(&values(&data.outputs[0].1, row * n, n)?, &reference(&inputs?)));
    }
    Ok(worst)
}

fn of_softmax<T: Number>(shape: [usize; 2]) -> Case {
    let ours = |stream: &Stream, data: &mut Data<T>| {
        let shape = extents(data)?;
        softmax(stream, matrix(&data.inputs[0].1, shape)?, matrix_mut(&mut data.outputs[0].1, shape)?)
    };
    of_rows("softmax", shape, &[("x", true, 4.0)], ours, |data| {
        by_rows(data, |inputs| {
            let most = inputs[0].iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let e: Vec<f64> = inputs[0].iter().map(|x| (x - most).exp()).collect();
            let sum: f64 = e.iter().sum();
            e.iter().map(|e| e / sum).collect()
        })
    })
}

fn of_rms_norm<T: Number>(shape: [usize; 2]) -> Case {
    let ours = |stream: &Stream, data: &mut Data<T>| {
        let shape = extents(data)?;
        let (x, w) = (matrix(&data.inputs[0].1, shape)?, data.inputs[1].1.view());
        rms_norm(stream, x, w, matrix_mut(&mut data.outputs[0].1, shape)?, EPSILON)
    };
    of_rows("rms_norm", shape, &[("x", true, 2.0), ("w", false, 1.0)], ours, |data| {
        by_rows(data, |inputs| {
            let squares = inputs[0].iter().map(|x| x * x).sum::<f64>() / inputs[0].len() as f64;
            let scale = 1.0 / (squares + f64::from(EPSILON)).sqrt();
            inputs[0].iter().zip(&inputs[1]).map(|(x, w)| x * scale * w).collect()
        })
    })
}

fn of_layer_norm<T: Number>(shape: [usize; 2]) -> Case {
    let ours = |stream: &Stream, data: &mut Data<T>| {
        let shape = extents(data)?;
        let (x, by) = (matrix(&data.inputs[0].1, shape)?, [data.inputs[1].1.view(), data.inputs[2].1.view()]);
        layer_norm(stream, x, by, matrix_mut(&mut data.outputs[0].1, shape)?, EPSILON)
    };
    of_rows("layer_norm", shape, &[("x", true, 2.0), ("w", false, 1.0), ("b", false, 1.0)], ours, |data| {
        by_rows(data, |inputs| {
            let count = inputs[0].len() as f64;
            let mean = inputs[0].iter().sum::<f64>() / count;
            let variance = inputs[0].iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            let scale = 1.0 / (variance + f64::from(EPSILON)).sqrt();
            inputs[0]
                .iter()
                .zip(inputs[1].iter().zip(&inputs[2]))
                .map(|(x, (w, b))| (x - mean) * scale * w + b)
                .collect()
        })
    })
}

fn of_swiglu<T: Number>(shape: [usize; 2]) -> Case {
    let ours = |stream: &Stream, data: &mut Data<T>| {
        let shape = extents(data)?;
        let operands = [matrix(&data.inputs[0].1, shape)?, matrix(&data.inputs[1].1, shape)?];
        gated(stream, operands, matrix_mut(&mut data.outputs[0].1, shape)?, Gate::Silu)
    };
    of_rows("swiglu", shape, &[("a", true, 4.0), ("b", true, 2.0)], ours, |data| {
        by_rows(data, |inputs| inputs[0].iter().zip(&inputs[1]).map(|(a, b)| a / (1.0 + (-a).exp()) * b).collect())
    })
}

/// Rotation of queries and keys: the original rotates in place, so that the results begin as the
/// operands.
fn of_rope<const LENGTH: usize>() -> Case {
    const BATCH: usize = 4;
    const HEADS: [usize; 2] = [32, 8];
    const DIM: usize = 128;
    let lens = HEADS.map(|heads| BATCH * heads * LENGTH * DIM);
    let data = move |device: ct::Device| {
        let angles = |of: fn(f64) -> f64| {
            let angle =
                |at: usize| (at / DIM) as f64 * 1e4f64.powf(-((at % DIM % (DIM / 2)) as f64) / (DIM / 2) as f64);
            device.from_fn([LENGTH * DIM], |[at]| bf16::from_f64(of(angle(at))))
        };
        let [q, k] = [0, 1].map(|of| random::<bf16>(device, 1 + of as i32, lens[of], 2.0));
        Ok(Data {
            inputs: vec![
                ("operand of q", q?),
                ("operand of k", k?),
                ("cos", angles(f64::cos)?),
                ("sin", angles(f64::sin)?),
            ],
            outputs: vec![("q", device.zeros([lens[0]])?), ("k", device.zeros([lens[1]])?)],
            numbers: vec![],
            integers: vec![],
            kept: None,
        })
    };
    let reset = |_: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, .. } = data;
        outputs.iter_mut().zip(inputs).try_for_each(|((_, to), (_, from))| to.copy_from_array(&from.view()))
    };
    let ours = |stream: &Stream, data: &mut Data<bf16>| {
        let Data { inputs, outputs, .. } = data;
        let [(_, q), (_, k)] = &mut outputs[..] else { return Ok(()) };
        let [of_q, of_k] = HEADS.map(|heads| [BATCH, heads, LENGTH, DIM]);
        let operands = [matrix(&inputs[0].1, of_q)?, matrix(&inputs[1].1, of_k)?];
        let half = |of: usize| matrix(&inputs[of].1, [LENGTH, DIM])?.slice(1, 0..DIM / 2);
        rotary_pair(stream, operands, [half(2)?, half(3)?], [matrix_mut(q, of_q)?, matrix_mut(k, of_k)?], Pairs::Halves)
    };
    let error = |data: &Data<bf16>| {
        let mut worst = 0.0f64;
        for (of, result) in data.outputs.iter().enumerate() {
            for row in places(result.1.len() / DIM) {
                let x = values(&data.inputs[of].1, row * DIM, DIM)?;
                let [cos, sin] =
                    [data.read("cos", row % LENGTH * DIM, DIM)?, data.read("sin", row % LENGTH * DIM, DIM)?];
                let turned = |i: usize| if i < DIM / 2 { -x[i + DIM / 2] } else { x[i - DIM / 2] };
                let want: Vec<f64> = (0..DIM).map(|i| x[i] * cos[i] + turned(i) * sin[i]).collect();
                worst = worst.max(difference(&values(&result.1, row * DIM, DIM)?, &want));
            }
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset };
    let bytes = (2 * 2 * (lens[0] + lens[1])) as f64;
    Case::new(format!("rope bf16 {BATCH} {}+{} {LENGTH} {DIM}", HEADS[0], HEADS[1]), 2e-2, bytes, 0.0, functions)
}

/// Sparsemax of rows in descending order: the original reads them a second time, as the result of a
/// sort.
fn of_sparsemax<const M: usize, const N: usize>() -> Case {
    let data = |device: ct::Device| {
        let element = |at: usize| -0.01 * (at % N) as f32 * (1.0 + (at / N % 5) as f32 / 5.0);
        let rows = || device.from_fn([M * N], |[at]| element(at));
        Ok(Data {
            inputs: vec![("x", rows()?), ("sorted", rows()?)],
            outputs: vec![("y", device.zeros([M * N])?)],
            numbers: vec![],
            integers: vec![],
            kept: None,
        })
    };
    let ours = |stream: &Stream, data: &mut Data<f32>| {
        sparsemax(stream, matrix(&data.inputs[0].1, [M, N])?, matrix_mut(&mut data.outputs[0].1, [M, N])?)
    };
    let error = |data: &Data<f32>| {
        let mut worst = 0.0f64;
        for row in places(M) {
            let x = data.read("x", row * N, N)?;
            let (mut sum, mut limit) = (0.0, 0.0);
            for (z, j) in x.iter().zip(1..) {
                sum += z;
                if 1.0 + f64::from(j) * z > sum {
                    limit = (sum - 1.0) / f64::from(j);
                }
            }
            let want: Vec<f64> = x.iter().map(|x| (x - limit).max(0.0)).collect();
            worst = worst.max(difference(&values(&data.outputs[0].1, row * N, N)?, &want));
        }
        Ok(worst)
    };
    let functions = Functions { data: Box::new(data), ours, error, reset: poison_all };
    Case::new(format!("sparsemax f32 {M} {N}"), 1e-4, (8 * M * N) as f64, 0.0, functions)
}

/// The rows at sizes for the CPU.
pub fn small() -> Vec<Case> {
    vec![
        of_softmax::<bf16>([16, 100]),
        of_softmax::<f32>([16, 100]),
        of_rms_norm::<bf16>([16, 100]),
        of_layer_norm::<bf16>([16, 100]),
        of_rope::<32>(),
        of_swiglu::<bf16>([16, 100]),
        of_sparsemax::<16, 128>(),
    ]
}

/// The rows.
pub fn cases() -> Vec<Case> {
    vec![
        of_softmax::<bf16>([8192, 8192]),
        of_softmax::<bf16>([32768, 1024]),
        of_softmax::<f32>([4096, 32768]),
        of_rms_norm::<bf16>([8192, 8192]),
        of_rms_norm::<bf16>([32768, 2048]),
        of_layer_norm::<bf16>([8192, 8192]),
        of_layer_norm::<bf16>([32768, 2048]),
        of_rope::<4096>(),
        of_swiglu::<bf16>([8192, 14336]),
        of_swiglu::<bf16>([4096, 8192]),
        of_sparsemax::<4096, 8192>(),
    ]
}
