//! The sentence-embedding model with random weights and odd extents, against f64 on the host.

use std::collections::HashMap;

use cutlet as ct;
use cutlet::element::f16;
use cutlet::{Device, Graph};
use cutlet_kernels::Number;
use cutlet_models::MiniLm;
use cutlet_models::minilm::Batch;
use safetensors::{Dtype, tensor::TensorView};

const WIDTH: usize = 36;
const INNER: usize = 52;
const HEADS: usize = 3;
const LAYERS: usize = 2;
const EPSILON: f64 = 1e-5;

/// Tensors by name, as (shape, elements).
type Tensors = HashMap<String, (Vec<usize>, Vec<f32>)>;

/// Pseudorandom tensors of a model (xorshift64*; Vigna, 2016).
fn tensors() -> Tensors {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut number = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let mut all = Tensors::new();
    let mut add = |name: String, shape: &[usize], scale: f32, shift: f32| {
        let values = (0..shape.iter().product()).map(|_| number() * scale + shift).collect();
        all.insert(name, (shape.to_vec(), values));
    };
    for (name, rows) in [("word", 50), ("position", 40), ("token_type", 2)] {
        add(format!("embeddings.{name}_embeddings.weight"), &[rows, WIDTH], 1.0, 0.0);
    }
    let mut norms = vec!["embeddings.LayerNorm".to_owned()];
    for layer in 0..LAYERS {
        let name = |part: &str| format!("encoder.layer.{layer}.{part}");
        for (part, outputs, inputs) in [
            ("attention.self.query", WIDTH, WIDTH),
            ("attention.self.key", WIDTH, WIDTH),
            ("attention.self.value", WIDTH, WIDTH),
            ("attention.output.dense", WIDTH, WIDTH),
            ("intermediate.dense", INNER, WIDTH),
            ("output.dense", WIDTH, INNER),
        ] {
            add(name(part) + ".weight", &[outputs, inputs], 0.4, 0.0);
            add(name(part) + ".bias", &[outputs], 0.5, 0.0);
        }
        norms.extend(["attention.output.LayerNorm", "output.LayerNorm"].map(name));
    }
    for norm in norms {
        add(norm.clone() + ".weight", &[WIDTH], 0.3, 1.0);
        add(norm + ".bias", &[WIDTH], 0.3, 0.0);
    }
    all
}

fn file(tensors: &Tensors) -> Vec<u8> {
    let bytes: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, (shape, values))| {
            (name.clone(), shape.clone(), values.iter().flat_map(|x| x.to_le_bytes()).collect())
        })
        .collect();
    let views = bytes.iter().map(|(name, shape, data)| {
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), data).expect("a tensor of this shape"))
    });
    safetensors::serialize(views, None).expect("a file of safetensors")
}

/// The model by its formulas, for one sentence.
struct Reference<'a>(&'a Tensors);

impl Reference<'_> {
    fn linear(&self, x: &[Vec<f64>], name: &str) -> Vec<Vec<f64>> {
        let ((shape, weight), (_, bias)) = (&self.0[&format!("{name}.weight")], &self.0[&format!("{name}.bias")]);
        let (outputs, inputs) = (shape[0], shape[1]);
        let dot = |row: &[f64], j: usize| (0..inputs).map(|k| row[k] * f64::from(weight[j * inputs + k])).sum::<f64>();
        x.iter().map(|row| (0..outputs).map(|j| dot(row, j) + f64::from(bias[j])).collect()).collect()
    }

    fn norm(&self, x: &[Vec<f64>], name: &str) -> Vec<Vec<f64>> {
        let (weight, bias) = (&self.0[&format!("{name}.weight")].1, &self.0[&format!("{name}.bias")].1);
        let one = |row: &Vec<f64>| {
            let mean = row.iter().sum::<f64>() / WIDTH as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / WIDTH as f64;
            let scaled = row.iter().map(|x| (x - mean) / (variance + EPSILON).sqrt());
            scaled.zip(weight.iter().zip(bias)).map(|(x, (&w, &b))| x * f64::from(w) + f64::from(b)).collect()
        };
        x.iter().map(one).collect()
    }

    fn attention(&self, x: &[Vec<f64>], name: &str) -> Vec<Vec<f64>> {
        let [q, k, v] = ["query", "key", "value"].map(|part| self.linear(x, &format!("{name}.{part}")));
        let dim = WIDTH / HEADS;
        let mut y = vec![vec![0.0; WIDTH]; x.len()];
        for (i, head) in (0..x.len()).flat_map(|i| (0..HEADS).map(move |head| (i, head))) {
            let of = head * dim..(head + 1) * dim;
            let score = |j: usize| of.clone().map(|c| q[i][c] * k[j][c]).sum::<f64>() / (dim as f64).sqrt();
            let weights: Vec<f64> = (0..x.len()).map(|j| score(j).exp()).collect();
            let sum: f64 = weights.iter().sum();
            for c in of.clone() {
                y[i][c] = (0..x.len()).map(|j| weights[j] * v[j][c]).sum::<f64>() / sum;
            }
        }
        y
    }

    fn embed(&self, ids: &[u32]) -> Vec<f64> {
        let row = |name: &str, at: usize, c: usize| {
            f64::from(self.0[&format!("embeddings.{name}_embeddings.weight")].1[at * WIDTH + c])
        };
        let token = |(at, &id): (usize, &u32)| {
            (0..WIDTH).map(|c| row("word", id as usize, c) + row("position", at, c) + row("token_type", 0, c)).collect()
        };
        let add = |x: &[Vec<f64>], y: Vec<Vec<f64>>| -> Vec<Vec<f64>> {
            x.iter().zip(y).map(|(x, y)| x.iter().zip(y).map(|(x, y)| x + y).collect()).collect()
        };
        let mut x = self.norm(&ids.iter().enumerate().map(token).collect::<Vec<_>>(), "embeddings.LayerNorm");
        for layer in 0..LAYERS {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            let y = self.linear(&self.attention(&x, &name("attention.self")), &name("attention.output.dense"));
            x = self.norm(&add(&x, y), &name("attention.output.LayerNorm"));
            let mut y = self.linear(&x, &name("intermediate.dense"));
            y.iter_mut().flatten().for_each(|x| *x *= 0.5 + normal(*x));
            x = self.norm(&add(&x, self.linear(&y, &name("output.dense"))), &name("output.LayerNorm"));
        }
        let mean: Vec<f64> = (0..WIDTH).map(|c| x.iter().map(|row| row[c]).sum::<f64>() / ids.len() as f64).collect();
        let norm = mean.iter().map(|x| x * x).sum::<f64>().sqrt();
        mean.iter().map(|x| x / norm).collect()
    }
}

/// The integral of the density of the normal distribution from 0 to x, by Simpson's rule.
fn normal(x: f64) -> f64 {
    const PARTS: usize = 200;
    let density = |t: f64| (-t * t / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let step = x / PARTS as f64;
    let weight = |i: usize| if i == 0 || i == PARTS { 1.0 } else { (2 + i % 2 * 2) as f64 };
    (0..=PARTS).map(|i| weight(i) * density(i as f64 * step)).sum::<f64>() * step / 3.0
}

/// The configuration of the model.
fn config() -> String {
    format!(
        r#"{{"hidden_size": {WIDTH}, "intermediate_size": {INNER}, "num_hidden_layers": {LAYERS},
            "num_attention_heads": {HEADS}, "vocab_size": 50, "max_position_embeddings": 40, "layer_norm_eps": {EPSILON}}}"#
    )
}

fn compare<T: Number>(tolerance: f64) -> Result<(), Box<dyn std::error::Error>> {
    let tensors = tensors();
    let model = MiniLm::<T>::new(Device::first()?, &file(&tensors), &config())?;
    // Batches with padding, a token alone, and as many tokens as there are places.
    let sentences: Vec<Vec<u32>> =
        [1, 7, 16, 3, 40, 17].map(|length| (0..length).map(|at| (at * 13 + length) % 50).collect()).to_vec();
    for (ids, row) in sentences.iter().zip(model.embed(&sentences)?) {
        for (x, want) in row.iter().zip(Reference(&tensors).embed(ids)) {
            assert!((f64::from(*x) - want).abs() < tolerance, "{} tokens: {x}, not {want}", ids.len());
        }
    }
    assert!(model.embed(&[])?.is_empty());
    Ok(())
}

#[test]
fn embeddings_of_f32_equal_the_formulas() -> Result<(), Box<dyn std::error::Error>> {
    compare::<f32>(1e-5)
}

#[test]
fn embeddings_of_f16_are_near_the_formulas() -> Result<(), Box<dyn std::error::Error>> {
    compare::<f16>(5e-3)
}

#[test]
fn a_graph_of_launches_borrows_the_model() -> Result<(), Box<dyn std::error::Error>> {
    let device = Device::first()?;
    let model = MiniLm::<f32>::new(device, &file(&tensors()), &config())?;
    let tokens = vec![vec![1, 2, 3], vec![4]];
    let want = model.embed(&tokens)?.concat();
    let batch = Batch::new(device, &tokens)?;
    let space = model.activations(batch.shape())?;
    let out = device.zeros::<f32, 2>([2, model.width()])?;
    let mut graph = Graph::capture((&model, batch, space, out), |(model, batch, space, out)| {
        model.forward(&device.default_stream(), batch, space, out.view_mut())
    })?;
    graph.replay()?;
    let result = graph.state().3.to_vec()?;
    assert!(result.iter().zip(&want).all(|(x, want)| (x - want).abs() < 1e-5), "{result:?}, not {want:?}");
    Ok(())
}

#[test]
fn missing_tensors_are_named() -> ct::Result<()> {
    let mut tensors = tensors();
    tensors.remove("encoder.layer.1.output.dense.bias");
    let fault = MiniLm::<f32>::new(Device::first()?, &file(&tensors), &config()).err().expect("a tensor is missing");
    assert!(fault.to_string().contains("encoder.layer.1.output.dense.bias"), "{fault}");
    Ok(())
}
