//! The decoder on several ranks of the cpu device, compared with the decoder on one device with the
//! same weights.

use cutlet as ct;
use cutlet::Device;
use cutlet::element::bf16;
use cutlet_models::llama::parallel::{ParallelDecoding, ParallelPrompts, Shard};
use cutlet_models::llama::step::Choice;
use cutlet_models::llama::{Config, Decoding, Kind, Llama, Method, Parallel, Part, Plan, Product, Prompts, Real, Rope};

/// Four key heads, groups of packed inputs for two ranks, and a vocabulary that is no multiple of a
/// grain.
const CONFIG: Config = Config {
    layers: 2,
    hidden: 128,
    heads: 8,
    key_heads: 4,
    dim: 16,
    inner: 256,
    vocabulary: 203,
    epsilon: 1e-5,
    rope: Rope { theta: 1000.0, factor: 8.0, low: 1.0, high: 4.0, original: 64.0 },
};

/// Heads of two ranks fill the groups of packed inputs.
const PACKED: Config = Config { heads: 16, key_heads: 2, ..CONFIG };

const CAPACITY: usize = 32;

fn tokens(count: usize, seed: usize) -> Vec<i32> {
    (0..count).map(|at| ((at * 31 + seed * 17 + at * at) % CONFIG.vocabulary) as i32).collect()
}

/// Logits and tokens of a prefill, and of steps after it.
type Passes = Vec<(Vec<f64>, Vec<i32>)>;

fn wide<T: Real>(logits: Vec<T>) -> Vec<f64> {
    logits.into_iter().map(|x| x.to_f64()).collect()
}

fn on_one_device<T: Real>(config: Config, kind: Kind, sequences: &[Vec<i32>]) -> ct::Result<Passes> {
    let device = Device::cpu();
    let stream = device.default_stream();
    let model = Llama::<T>::random(device, config, kind, CAPACITY, 7)?;
    let mut state = Decoding::new(&model, sequences.len(), CAPACITY, Choice::Greedy)?;
    let mut prompts = Prompts::new(&model, &state, sequences)?;
    model.prefill(&stream, &mut prompts, &mut state, &Plan::default())?;
    let mut passes = vec![(wide(state.logits().to_vec()?), state.tokens().to_vec()?)];
    for _ in 0..2 {
        model.step(&stream, &mut state, &Plan::default())?;
        passes.push((wide(state.logits().to_vec()?), state.tokens().to_vec()?));
    }
    Ok(passes)
}

fn on_ranks<T: Real>(
    config: Config,
    kind: Kind,
    sequences: &[Vec<i32>],
    ranks: usize,
    method: Method,
) -> ct::Result<Passes> {
    let model = Parallel::<T>::random(&vec![Device::cpu(); ranks], config, kind, CAPACITY, 7, method)?;
    let mut state = ParallelDecoding::new(&model, sequences.len(), CAPACITY)?;
    let mut prompts = ParallelPrompts::new(&model, &state, sequences)?;
    model.prefill(&mut prompts, &mut state, &Plan::default())?;
    let mut passes = vec![(wide(model.logits(&state)?), model.tokens(&state)?)];
    for _ in 0..2 {
        model.step(&mut state, &Plan::default())?;
        passes.push((wide(model.logits(&state)?), model.tokens(&state)?));
    }
    Ok(passes)
}

/// Compares ranks with one device: logits within the tolerance, and the same tokens.
fn check<T: Real>(config: Config, kind: Kind, lengths: &[usize], counts: &[usize], tolerance: f64) -> ct::Result<()> {
    let sequences: Vec<Vec<i32>> = lengths.iter().enumerate().map(|(at, &count)| tokens(count, at)).collect();
    let one = on_one_device::<T>(config, kind, &sequences)?;
    for &ranks in counts {
        for (name, method) in [("words", Method::Peers { rows: 1000 }), ("flags", Method::Peers { rows: 0 })]
            .into_iter()
            .chain([("host", Method::Host)])
            .take(if ranks == 4 { 1 } else { 3 })
            .skip(if ranks == 1 { 2 } else { 0 })
        {
            let several = on_ranks::<T>(config, kind, &sequences, ranks, method)?;
            for (pass, (want, got)) in one.iter().zip(&several).enumerate() {
                let text = format!("{ranks} ranks by {name}, pass {pass}");
                assert_eq!(got.0.len(), want.0.len(), "{text}");
                let error = got.0.iter().zip(&want.0).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(error <= tolerance, "{text}: {error}");
                assert_eq!(got.1, want.1, "{text}");
            }
        }
    }
    Ok(())
}

#[test]
fn ranks_have_the_results_of_one_device() -> ct::Result<()> {
    check::<f32>(CONFIG, Kind::Plain, &[1, 13, 6], &[1, 2, 4], 1e-4)
}

#[test]
fn ranks_have_the_results_of_one_device_for_one_sequence() -> ct::Result<()> {
    check::<f32>(CONFIG, Kind::Plain, &[7], &[2], 1e-4)
}

#[test]
fn packed_weights_are_those_of_one_device() -> ct::Result<()> {
    check::<f32>(PACKED, Kind::Packed, &[3, 2], &[2], 1e-4)
}

#[test]
fn parts_of_16_bits_are_rounded_before_the_sum() -> ct::Result<()> {
    check::<bf16>(CONFIG, Kind::Plain, &[5], &[2], 0.5)
}

#[test]
fn weights_of_ranks_are_those_of_one_device() -> ct::Result<()> {
    let device = Device::cpu();
    let whole = Llama::<f32>::random(device, CONFIG, Kind::Plain, CAPACITY, 7)?;
    let [hidden, inner] = [CONFIG.hidden, CONFIG.inner];
    let parts: Vec<Llama<f32>> = (0..2)
        .map(|rank| Llama::part(device, CONFIG, Shard { rank, ranks: 2 }, Kind::Plain, CAPACITY, 7))
        .collect::<ct::Result<_>>()?;
    let of = |model: &Llama<f32>, product| model.layers()[1].weight(product).expect("weights").to_f64();
    // Rows of the outputs of both ranks, one after another.
    let gated = [of(&parts[0], Product::Gated)?, of(&parts[1], Product::Gated)?].concat();
    assert_eq!(gated, of(&whole, Product::Gated)?);
    // Values of the second rank are the last rows of queries, keys and values.
    let (all, part) = (of(&whole, Product::Qkv)?, of(&parts[1], Product::Qkv)?);
    let values = CONFIG.key_heads / 2 * CONFIG.dim * hidden;
    assert_eq!(part[part.len() - values..], all[all.len() - values..]);
    // Inputs of the second rank are the last columns.
    let (all, part) = (of(&whole, Product::Down)?, of(&parts[1], Product::Down)?);
    for row in [0, hidden - 1] {
        assert_eq!(part[row * inner / 2..][..inner / 2], all[row * inner + inner / 2..][..inner / 2]);
    }
    Ok(())
}

#[test]
fn graphs_of_several_ranks_are_refused_on_the_cpu() -> ct::Result<()> {
    let model = Parallel::<f32>::random(&[Device::cpu(); 2], CONFIG, Kind::Plain, CAPACITY, 7, Method::peers())?;
    let error = model.graph(ParallelDecoding::new(&model, 1, CAPACITY)?, Plan::default()).err().expect("refused");
    assert!(error.to_string().contains("use `Parallel::step`"), "{error}");
    let model = Parallel::<f32>::random(&[Device::cpu()], CONFIG, Kind::Plain, CAPACITY, 7, Method::Host)?;
    let error = model.graph(ParallelDecoding::new(&model, 1, CAPACITY)?, Plan::default()).err().expect("refused");
    assert!(error.to_string().contains("sums by peers"), "{error}");
    Ok(())
}

#[test]
fn the_graph_of_one_rank_has_the_tokens_of_steps() -> ct::Result<()> {
    let model = Parallel::<f32>::random(&[Device::cpu()], CONFIG, Kind::Plain, CAPACITY, 7, Method::peers())?;
    let mut state = ParallelDecoding::new(&model, 2, CAPACITY)?;
    state.set_tokens(&[3, 4])?;
    (0..3).try_for_each(|_| model.step(&mut state, &Plan::default()))?;
    let mut other = ParallelDecoding::new(&model, 2, CAPACITY)?;
    other.set_tokens(&[3, 4])?;
    let mut graph = model.graph(other, Plan::default())?;
    (0..3).try_for_each(|_| graph.replay())?;
    assert_eq!(graph.tokens()?, [model.tokens(&state)?]);
    Ok(())
}

#[test]
fn sums_alone_wait_for_no_rank_in_vain() -> ct::Result<()> {
    let model = Parallel::<f32>::random(&[Device::cpu(); 2], CONFIG, Kind::Plain, CAPACITY, 7, Method::peers())?;
    let mut state = ParallelDecoding::new(&model, 1, CAPACITY)?;
    let plan = Plan { only: Some(Part::Sum), ..Plan::default() };
    (0..3).try_for_each(|_| model.step(&mut state, &plan))?;
    model.tokens(&state).map(drop)
}

#[test]
#[cfg(feature = "nccl")]
fn nccl_needs_gpus() -> ct::Result<()> {
    let error = cutlet_models::llama::parallel::Nccl::new(&[Device::cpu().stream()?]).err().expect("refused");
    assert!(matches!(&error, ct::Error::NoDevice(text) if text.contains("adds on GPUs")), "{error}");
    Ok(())
}
