//! The decoder with seeded random weights at small extents, against f64 on the host.

use cutlet as ct;
use cutlet::Device;
use cutlet::element::bf16;
use cutlet_models::llama::step::Choice;
use cutlet_models::llama::{Config, Decoding, Kind, Llama, Plan, Product, Prompts, Real, Rope};

/// Three key heads and a vocabulary that is no multiple of a tile.
const CONFIG: Config = Config {
    layers: 2,
    hidden: 128,
    heads: 6,
    key_heads: 3,
    dim: 16,
    inner: 128,
    vocabulary: 203,
    epsilon: 1e-5,
    rope: Rope { theta: 1000.0, factor: 8.0, low: 1.0, high: 4.0, original: 64.0 },
};

/// Heads fill the groups of packed inputs.
const PACKED: Config = Config { heads: 8, key_heads: 2, ..CONFIG };

const CAPACITY: usize = 140;

/// The model by its formulas, for one sequence.
struct Reference {
    config: Config,
    words: Vec<f64>,
    head: Vec<f64>,
    norm: Vec<f64>,
    layers: Vec<[Vec<f64>; 4]>,
}

impl Reference {
    fn new<T: Real>(model: &Llama<T>) -> ct::Result<Reference> {
        let layer = |of: &cutlet_models::llama::Layer<T>| {
            let products = [Product::Qkv, Product::Out, Product::Gated, Product::Down];
            let [a, b, c, d] = products.map(|product| of.weight(product).expect("weights").to_f64());
            Ok([a?, b?, c?, d?])
        };
        Ok(Reference {
            config: *model.config(),
            words: model.words().to_f64()?,
            head: model.head().to_f64()?,
            norm: model.norm().to_vec()?.iter().map(|x| x.to_f64()).collect(),
            layers: model.layers().iter().map(layer).collect::<ct::Result<_>>()?,
        })
    }

    /// Returns weight · x for a matrix of rows of the length of x.
    fn product(weight: &[f64], x: &[f64]) -> Vec<f64> {
        weight.chunks(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum()).collect()
    }

    fn normalized(&self, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        x.iter().map(|x| x / (mean + f64::from(self.config.epsilon)).sqrt()).collect()
    }

    /// Rotates adjacent elements of heads.
    fn rotated(&self, x: &[f64], position: usize) -> Vec<f64> {
        let Config { dim, rope, .. } = self.config;
        let frequency = |pair: usize| {
            let plain = rope.theta.powf(-2.0 * pair as f64 / dim as f64);
            let wavelength = 2.0 * std::f64::consts::PI / plain;
            if wavelength < rope.original / rope.high {
                plain
            } else if wavelength > rope.original / rope.low {
                plain / rope.factor
            } else {
                let smooth = (rope.original / wavelength - rope.low) / (rope.high - rope.low);
                (1.0 - smooth) * plain / rope.factor + smooth * plain
            }
        };
        let mut y = x.to_vec();
        for at in (0..x.len()).step_by(2) {
            let (sin, cos) = (position as f64 * frequency(at % dim / 2)).sin_cos();
            (y[at], y[at + 1]) = (x[at] * cos - x[at + 1] * sin, x[at + 1] * cos + x[at] * sin);
        }
        y
    }

    /// Returns the logits of the last token.
    fn logits(&self, tokens: &[i32]) -> Vec<f64> {
        let Config { hidden, heads, key_heads, dim, .. } = self.config;
        let word = |&token: &i32| self.words[token as usize * hidden..][..hidden].to_vec();
        let mut states: Vec<Vec<f64>> = tokens.iter().map(word).collect();
        for [qkv, out, gated, down] in &self.layers {
            let (mut queries, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new());
            for (position, x) in states.iter().enumerate() {
                let all = Reference::product(qkv, &self.normalized(x));
                let (q, rest) = all.split_at(heads * dim);
                let (k, v) = rest.split_at(key_heads * dim);
                queries.push(self.rotated(q, position));
                keys.push(self.rotated(k, position));
                values.push(v.to_vec());
            }
            for (position, x) in states.iter_mut().enumerate() {
                let mut attended = Vec::new();
                for head in 0..heads {
                    let of = |row: &[f64], head: usize| row[head * dim..][..dim].to_vec();
                    let (q, shared) = (of(&queries[position], head), head * key_heads / heads);
                    let score = |k: &Vec<f64>| {
                        let sum: f64 = q.iter().zip(of(k, shared)).map(|(a, b)| a * b).sum();
                        (sum / (dim as f64).sqrt()).exp()
                    };
                    let weights: Vec<f64> = keys[..=position].iter().map(score).collect();
                    let total: f64 = weights.iter().sum();
                    let value = |at: usize| -> f64 {
                        weights.iter().zip(&values).map(|(w, v)| w / total * v[shared * dim + at]).sum()
                    };
                    attended.extend((0..dim).map(value));
                }
                add(x, &Reference::product(out, &attended));
                let both = Reference::product(gated, &self.normalized(x));
                let inner: Vec<f64> = both.chunks(2).map(|pair| pair[0] / (1.0 + (-pair[0]).exp()) * pair[1]).collect();
                add(x, &Reference::product(down, &inner));
            }
        }
        let last = self.normalized(states.last().expect("a token"));
        let last: Vec<f64> = last.iter().zip(&self.norm).map(|(x, w)| x * w).collect();
        Reference::product(&self.head, &last)
    }
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

fn tokens(count: usize, seed: usize) -> Vec<i32> {
    (0..count).map(|at| ((at * 31 + seed * 17 + at * at) % CONFIG.vocabulary) as i32).collect()
}

/// Compares the logits of sequences, and the choice of their largest one.
#[track_caller]
fn compare<T: Real>(
    reference: &Reference,
    state: &Decoding<T>,
    sequences: &[Vec<i32>],
    tolerance: f64,
) -> ct::Result<()> {
    let (logits, chosen) = (state.logits().to_vec()?, state.tokens().to_vec()?);
    for (at, sequence) in sequences.iter().enumerate() {
        let row = &logits[at * CONFIG.vocabulary..][..CONFIG.vocabulary];
        let want = reference.logits(sequence);
        for (token, (x, want)) in row.iter().zip(&want).enumerate() {
            let x = x.to_f64();
            let is_near = (x - want).abs() <= tolerance;
            assert!(is_near, "sequence {at} of {}, token {token}: {x}, the reference {want}", sequence.len());
        }
        let largest = want.iter().copied().fold(f64::MIN, f64::max);
        assert!(want[chosen[at] as usize] >= largest - 2.0 * tolerance, "sequence {at}: token {}", chosen[at]);
    }
    Ok(())
}

/// Prefill, and steps of sequences of different lengths.
fn check<T: Real>(config: Config, kind: Kind, lengths: &[usize], tolerance: f64) -> ct::Result<()> {
    let device = Device::first()?;
    let stream = device.default_stream();
    let model = Llama::<T>::random(device, config, kind, CAPACITY, 7)?;
    let reference = Reference::new(&model)?;
    let mut sequences: Vec<Vec<i32>> = lengths.iter().enumerate().map(|(at, &count)| tokens(count, at)).collect();
    let mut state = Decoding::new(&model, lengths.len(), CAPACITY, Choice::Greedy)?;
    let mut prompts = Prompts::new(&model, &state, &sequences)?;
    model.prefill(&stream, &mut prompts, &mut state, &Plan::default())?;
    compare(&reference, &state, &sequences, tolerance)?;
    let mut graph = state.graph(&model, Plan::default())?;
    for _ in 0..3 {
        let chosen = graph.state().1.tokens().to_vec()?;
        sequences.iter_mut().zip(chosen).for_each(|(sequence, token)| sequence.push(token));
        graph.replay_on(&stream)?;
        compare(&reference, &graph.state().1, &sequences, tolerance)?;
    }
    let (_, state) = graph.into_state();
    let history = state.history().to_vec()?;
    let capacity = state.history().shape()[1];
    for (at, sequence) in sequences.iter().enumerate() {
        let (from, end) = (lengths[at], sequence.len());
        assert_eq!(history[at * capacity + from..at * capacity + end], sequence[from..], "tokens of steps");
    }
    // The prefill of the longer sequences has the same results.
    let mut other = Decoding::new(&model, lengths.len(), CAPACITY, Choice::Greedy)?;
    let mut prompts = Prompts::new(&model, &other, &sequences)?;
    model.prefill(&stream, &mut prompts, &mut other, &Plan::default())?;
    compare(&reference, &other, &sequences, tolerance)
}

#[test]
fn one_sequence_is_that_of_the_reference() -> ct::Result<()> {
    check::<f32>(CONFIG, Kind::Plain, &[62], 2e-4)?;
    check::<f32>(PACKED, Kind::Packed, &[5], 2e-4)
}

#[test]
fn sequences_of_different_lengths_are_those_of_the_reference() -> ct::Result<()> {
    check::<f32>(CONFIG, Kind::Plain, &[1, 63, 7], 2e-4)?;
    check::<f32>(PACKED, Kind::Packed, &[9, 3], 2e-4)
}

#[test]
fn elements_of_16_bits_are_near_the_reference() -> ct::Result<()> {
    check::<bf16>(CONFIG, Kind::Plain, &[20], 0.5)?;
    check::<bf16>(PACKED, Kind::Packed, &[4, 12], 0.5)
}

#[test]
fn sampled_tokens_follow_the_seed() -> ct::Result<()> {
    let device = Device::first()?;
    let model = Llama::<f32>::random(device, CONFIG, Kind::Plain, CAPACITY, 7)?;
    let sampled = |seed: u64| -> ct::Result<Vec<i32>> {
        let mut state = Decoding::new(&model, 2, CAPACITY, Choice::Sampled(seed))?;
        state.set_tokens(&[3, 3])?;
        let mut graph = state.graph(&model, Plan::default())?;
        (0..4).try_for_each(|_| graph.replay())?;
        graph.state().1.history().to_vec()
    };
    let first = sampled(1)?;
    assert_eq!(first, sampled(1)?);
    assert_ne!(first, sampled(2)?);
    // Sequences of equal tokens have numbers of their own.
    assert_ne!(first[..4], first[first.len() / 2..][..4]);
    Ok(())
}

#[test]
fn prompts_that_do_not_fit_are_refused() -> ct::Result<()> {
    let model = Llama::<f32>::random(Device::first()?, CONFIG, Kind::Plain, CAPACITY, 7)?;
    let state = Decoding::new(&model, 2, 64, Choice::Greedy)?;
    for wrong in [vec![vec![1]], vec![vec![1], vec![]], vec![vec![1; 65], vec![1]]] {
        let error = Prompts::new(&model, &state, &wrong).err().expect("refused").to_string();
        assert!(error.contains("2 sequences of 1 to 64 tokens"), "{error}");
    }
    Ok(())
}
