//! Sentence embeddings of all-MiniLM-L6-v2: `cargo run -p cutlet-models --example minilm -- FOLDER
//! [OPTION]... [SENTENCE]...`.
//!
//! FOLDER has the weights, the configuration and the vocabulary
//! (`models/tests/check --keep FOLDER`). The similarity of the first sentence with each one is
//! printed.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use cutlet::element::f16;
use cutlet::{Bench, Device, Graph};
use cutlet_kernels::Number;
use cutlet_models::MiniLm;
use cutlet_models::minilm::{Batch, Tokenizer};

const HELP: &str = "
  --f16          elements of weights and activations are f16 (default f32)
  --check FILE   compare the tokens and embeddings of the sentences of a file with those of FOLDER
  --time         measure batches of many sizes on a GPU";

/// The largest difference of an element of an embedding from the reference.
const TOLERANCE: f32 = 1e-3;
/// Tokens of the longest sentence, as the published model has it.
const LONGEST: usize = 256;

fn main() -> Result<()> {
    let (mut half, mut check, mut time, mut words) = (false, None, false, Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match &*arg {
            "--f16" => half = true,
            "--check" => check = Some(args.next().context("--check needs a file")?),
            "--time" => time = true,
            option if option.starts_with("--") => bail!("there is no option {option}; there are{HELP}"),
            _ => words.push(arg),
        }
    }
    ensure!(!words.is_empty(), "the first argument is the folder of the model; options are{HELP}");
    let folder = words.remove(0);
    match half {
        true => run::<f16>(Path::new(&folder), check, time, &words),
        false => run::<f32>(Path::new(&folder), check, time, &words),
    }
}

fn run<T: Number>(folder: &Path, check: Option<String>, time: bool, sentences: &[String]) -> Result<()> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).with_context(|| format!("{name} of the model"));
    let tokenizer = Tokenizer::new(&read("vocab.txt")?).map_err(anyhow::Error::msg)?;
    let tensors = std::fs::read(folder.join("model.safetensors"))?;
    let device = Device::first()?;
    let model = MiniLm::<T>::new(device, &tensors, &read("config.json")?).map_err(|fault| anyhow!("{fault}"))?;
    if let Some(file) = check {
        let lines = std::fs::read_to_string(file)?;
        let sentences: Vec<&str> = lines.lines().collect();
        compare(&model, &tokenizer, &sentences, &read("ids.txt")?, &std::fs::read(folder.join("expected.f32"))?)?;
    }
    if time {
        measure(&model, device)?;
    }
    let ids: Vec<_> = sentences.iter().map(|sentence| tokenizer.encode(sentence, LONGEST)).collect();
    let rows = model.embed(&ids)?;
    for (row, sentence) in rows.iter().zip(sentences) {
        let similarity: f32 = row.iter().zip(&rows[0]).map(|(a, b)| a * b).sum();
        println!("{similarity:.4}\t{sentence}");
    }
    Ok(())
}

/// Compares tokens and embeddings with a reference.
fn compare<T: Number>(
    model: &MiniLm<T>,
    tokenizer: &Tokenizer,
    sentences: &[&str],
    ids: &str,
    expected: &[u8],
) -> Result<()> {
    let start = Instant::now();
    let mut tokens = Vec::new();
    for (sentence, line) in sentences.iter().zip(ids.lines()) {
        let want: Vec<u32> = line.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let ids = tokenizer.encode(sentence, LONGEST);
        ensure!(ids == want, "tokens of {sentence:?}: {ids:?}, the reference has {want:?}");
        tokens.push(ids);
    }
    let expected: Vec<f32> = expected.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    let result = model.embed(&tokens)?.concat();
    ensure!(result.len() == expected.len(), "{} elements, the reference has {}", result.len(), expected.len());
    let error = result.iter().zip(&expected).map(|(a, b)| if a.is_nan() { f32::MAX } else { (a - b).abs() });
    let error = error.max_by(f32::total_cmp).unwrap_or(0.0);
    let (count, seconds) = (tokens.iter().map(Vec::len).sum::<usize>(), start.elapsed().as_secs_f32());
    println!(
        "minilm: {} sentences, {count} tokens, {}, {}: largest error {error:.1e}, {seconds:.1} s",
        sentences.len(),
        std::any::type_name::<T>(),
        Device::first()?.name()
    );
    ensure!(error <= TOLERANCE, "an embedding differs by {error} from the reference");
    Ok(())
}

/// Prints the times of batches, each as a graph of launches.
fn measure<T: Number>(model: &MiniLm<T>, device: Device) -> Result<()> {
    for (sentences, length) in [(1, 16), (1, 128), (32, 32), (32, 128), (256, 32), (256, 128), (1024, 128), (256, 256)]
    {
        let tokens = vec![(0..length as u32).map(|at| 1000 + at * 37).collect::<Vec<u32>>(); sentences];
        let batch = Batch::new(device, &tokens)?;
        let out = device.zeros::<f32, 2>([sentences, model.width()])?;
        let space = model.activations(batch.shape())?;
        let state = (model, batch, space, out);
        let mut graph = Graph::capture(state, |(model, batch, space, out)| {
            model.forward(&device.default_stream(), batch, space, out.view_mut())
        })?;
        let stream = device.default_stream();
        let times = Bench::new().runs(20).run(&stream, || graph.replay_on(&stream))?;
        let seconds = times.median().as_secs_f64();
        println!(
            "minilm {sentences} x {length}\t{:.1} us\t{:.0} sentences/s\t{:.1} TFLOP/s of products",
            seconds * 1e6,
            sentences as f64 / seconds,
            model.flops(sentences * length) / seconds / 1e12
        );
    }
    Ok(())
}
