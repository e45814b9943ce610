//! The table of promises of `kernels/README.md`, from one list. A test compares the list with the
//! functions of the crate that launch kernels, and the table with the list:
//! `cargo test -p cutlet-kernels --test kernels promises -- --ignored` writes it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Independence of the rows of a function.
#[derive(Clone, Copy)]
enum Rows {
    /// The compiler proves `ct::require_rowwise` in the kernel.
    Proved,
    /// Bits and code for one row and in a batch are compared.
    Tested,
    /// As `Tested`, in a call of `batch_invariant`.
    Option,
    /// Each element is computed on its own, by one expression.
    Elements,
    /// No promise, and why.
    No(&'static str),
}

/// Determinism of launches with equal arguments on one device.
#[derive(Clone, Copy)]
enum Runs {
    /// One order of sums.
    Equal,
    /// One order of sums with an option.
    Option(&'static str),
    /// The order of tile blocks determines this result.
    No(&'static str),
}

use Rows::{Elements, Option as InvariantOnly, Proved, Tested};
use Runs::Equal;

const OF_BATCH: Rows = Rows::No("the result is of all rows");

/// Module, functions, the axis that is the batch, and the promises.
const PROMISES: &[(&str, &str, &str, Rows, Runs)] = &[
    ("attention", "Prefill::launch, Attention::launch", "sequences", Tested, Equal),
    (
        "attention",
        "Prefill::launch_packed, Decode::launch, PackedDecode::launch, Latent::launch",
        "sequences",
        InvariantOnly,
        Equal,
    ),
    ("attention", "PrefillF8::launch, Sparse::launch", "sequences", Tested, Equal),
    ("attention", "store_packed", "tokens", Tested, Equal),
    ("attention", "Gradients::launch", "sequences", Tested, Runs::Option("`.deterministic(true)`")),
    ("attention", "Gradients::launch_packed", "sequences", InvariantOnly, Runs::Option("`.deterministic(true)`")),
    ("attention", "Gradients::launch_sinks", "sequences", OF_BATCH, Equal),
    ("images", "max_pool, average_pool", "images", Proved, Equal),
    ("images", "resize_bilinear", "images", Elements, Equal),
    ("images", "Convolution::forward, Convolution::forward_with", "images", InvariantOnly, Equal),
    ("images", "Convolution::input_gradient", "images", InvariantOnly, Equal),
    ("images", "Convolution::weight_gradient", "images", OF_BATCH, Equal),
    ("linalg", "cholesky, lu, qr", "matrices", InvariantOnly, Equal),
    (
        "linalg",
        "solve, solve_positive, solve_triangular, inverse_unit_lower, determinant, least_squares",
        "matrices",
        InvariantOnly,
        Equal,
    ),
    (
        "losses",
        "CrossEntropy::forward, CrossEntropy::with_gradient, CrossEntropy::backward",
        "rows",
        InvariantOnly,
        Equal,
    ),
    ("losses", "CrossEntropy::linear_forward", "tokens", InvariantOnly, Equal),
    ("losses", "CrossEntropy::linear_backward", "tokens", OF_BATCH, Equal),
    ("losses", "divergence", "rows", InvariantOnly, Equal),
    ("losses", "FusedGrpo::forward, FusedGrpo::backward", "sequences", InvariantOnly, Equal),
    ("losses", "Grpo::launch", "tokens", Tested, Equal),
    ("losses", "Dpo::launch", "pairs", Proved, Equal),
    ("moe", "Router::launch, Router::backward", "tokens", Proved, Equal),
    ("moe", "Alignment::launch", "tokens", Rows::No("an order of all tokens"), Equal),
    ("moe", "gather", "tokens", Elements, Equal),
    ("moe", "product, gated_product, combine, Experts::forward, Experts::forward_saved", "tokens", Tested, Equal),
    ("moe", "Experts::backward", "tokens", OF_BATCH, Equal),
    (
        "moe",
        "activation_gradients",
        "tokens, `operands` and `weighted`",
        Tested,
        Runs::No("gradients of router weights: float atomics"),
    ),
    ("norms", "softmax, log_softmax, softmax_backward, log_softmax_backward", "rows", Proved, Equal),
    ("norms", "rms_norm, add_rms_norm, layer_norm, add_layer_norm", "rows", Proved, Equal),
    ("norms", "rms_norm_backward, layer_norm_backward", "rows, `dx`", Tested, Equal),
    ("norms", "sparsemax, sparsemax_backward", "rows", Proved, Equal),
    ("norms", "sinkhorn", "matrices", Proved, Equal),
    ("norms", "gated, gated_backward", "rows", Proved, Equal),
    ("norms", "rotary, rotary_backward, rotary_pair", "tokens", Elements, Equal),
    ("norms", "group_norm", "images", InvariantOnly, Equal),
    ("norms", "group_norm_backward", "images, `dx`", InvariantOnly, Equal),
    ("norms", "HyperConnections::weights", "tokens", InvariantOnly, Equal),
    ("norms", "HyperConnections::apply", "tokens", Tested, Equal),
    ("numbers", "hadamard, Fft::run", "rows", Proved, Equal),
    ("numbers", "quantize_rows, quantize_groups, quantize_nvfp4", "rows, `Rounded::Nearest`", Tested, Equal),
    ("numbers", "quantize_blocks", "rows, or 128 rows of `Block128x128`, `Rounded::Nearest`", Tested, Equal),
    ("numbers", "quantize_e5m6", "rows", Tested, Equal),
    ("numbers", "dequantize_blocks, dequantize_groups, dequantize_nvfp4, dequantize_e5m6", "rows", Elements, Equal),
    ("numbers", "nvfp4_tensor_scale", "rows", OF_BATCH, Equal),
    ("numbers", "fill_random, fill_integers", "elements", Elements, Equal),
    ("order", "greedy", "rows", Proved, Equal),
    ("order", "top_k", "rows of at most 4096 columns", Proved, Equal),
    ("order", "Sampling::sample", "rows", Tested, Equal),
    (
        "order",
        "prefix",
        "elements",
        OF_BATCH,
        Runs::No("sums of floats: groups of published tiles; integers are equal"),
    ),
    ("order", "compact, compact_if, histogram, histogram_even, largest_of_groups", "elements", OF_BATCH, Equal),
    (
        "order",
        "RadixSort::keys, RadixSort::pairs, RadixSort::positions, sort_keys, sort_pairs, argsort",
        "elements",
        OF_BATCH,
        Equal,
    ),
    ("order", "segmented_sort_keys, segmented_sort_pairs", "segments, keys without NaN", Tested, Equal),
    (
        "products",
        "Matmul::launch, Matmul::launch_batched, Matmul::launch_packed",
        "rows, matrices",
        InvariantOnly,
        Equal,
    ),
    (
        "products",
        "Matmul::launch_grouped, Matmul::launch_grouped_packed, Matmul::launch_scaled, Matmul::launch_scaled_grouped",
        "rows",
        InvariantOnly,
        Equal,
    ),
    ("products", "Matmul::launch_vector", "rows", Rows::No("another kernel than that of many rows"), Equal),
    ("products", "quantized::Product::launch, quantized::Product::tiles", "rows", InvariantOnly, Equal),
    ("products", "quantized::Product::dequantize", "weights", Elements, Equal),
    ("products", "gguf::product_with", "rows", InvariantOnly, Equal),
    ("products", "epilogue::RowSums, epilogue::ColumnSums", "rows", OF_BATCH, Runs::No("float atomics")),
    ("recurrent", "GatedDeltaRule::chunks, KimiDelta::chunks, Mamba2::chunks", "sequences", InvariantOnly, Equal),
    ("recurrent", "log_linear_attention", "sequences", Tested, Equal),
    ("recurrent", "SelectiveScan::tokens, SelectiveScan::step", "sequences", Proved, Equal),
    ("recurrent", "GatedDeltaRule::step, KimiDelta::step, Mamba2::step", "sequences", Tested, Equal),
    ("recurrent", "GatedDeltaRule::gradients, KimiDelta::gradients", "sequences", InvariantOnly, Equal),
    (
        "recurrent",
        "Mamba2::gradients",
        "sequences, `x` and `dt`; `b` and `c` for at most 8 heads of a group",
        Tested,
        Runs::No("gradients of `b` and `c` for more heads of a group: float atomics"),
    ),
];

const BEGIN: &str = "<!-- table of tests/kernels/promises.rs -->\n";
const END: &str = "<!-- end -->";

/// Returns the table.
fn table() -> String {
    let mut text = String::from(
        "| module | functions | batch | a row alone and in a batch | several launches |\n|---|---|---|---|---|\n",
    );
    for (module, functions, axis, rows, runs) in PROMISES {
        let rows = match rows {
            Proved => "equal: proved".to_owned(),
            Tested => "equal: tested".to_owned(),
            InvariantOnly => "equal in `batch_invariant`: tested".to_owned(),
            Elements => "equal: no sums".to_owned(),
            Rows::No(why) => format!("no promise: {why}"),
        };
        let runs = match runs {
            Equal => "equal".to_owned(),
            Runs::Option(option) => format!("equal with {option}"),
            Runs::No(what) => format!("not equal: {what}"),
        };
        let functions: Vec<String> = functions.split(", ").map(|name| format!("`{name}`")).collect();
        text += &format!("| `{module}` | {} | {axis} | {rows} | {runs} |\n", functions.join(", "));
    }
    text
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Returns the text of the README before the table, the table, and the rest.
fn readme() -> [String; 3] {
    let text = std::fs::read_to_string(folder().join("README.md")).expect("README.md");
    let (before, rest) = text.split_once(BEGIN).expect("the begin of the table");
    let (table, after) = rest.split_once(END).expect("the end of the table");
    [before, table, after].map(str::to_owned)
}

#[test]
fn the_table_is_that_of_the_list() {
    let [_, found, _] = readme();
    assert!(
        found == table(),
        "the table of kernels/README.md differs from the list: write it by this test with --ignored"
    );
}

#[test]
#[ignore = "writes kernels/README.md"]
fn write_the_table() {
    let [before, _, after] = readme();
    std::fs::write(folder().join("README.md"), [&before, BEGIN, &table(), END, &after].concat()).expect("README.md");
}

/// Functions that launch kernels for others.
const INTERNAL: [&str; 10] = [
    "of_bytes",
    "queue",
    "queue_phases",
    "expanded",
    "weight_sums",
    "factor",
    "sum_rows",
    "target",
    "num_multiprocessors",
    "tile",
];

/// Returns the names of public functions with a stream, of a source file.
fn launching(text: &str) -> impl Iterator<Item = &str> {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    text.split("pub fn ").skip(1).filter_map(|rest| {
        let arguments = rest.split(") ->").next()?;
        let name = rest.split(['<', '(']).next()?;
        arguments.contains("stream: &Stream").then_some(name)
    })
}

fn sources(folder: &Path, all: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        match entry.is_dir() {
            true => sources(&entry, all),
            false => all.push(std::fs::read_to_string(entry).expect("a source file")),
        }
    }
}

#[test]
fn each_function_has_promises() {
    let mut texts = Vec::new();
    sources(&folder().join("src"), &mut texts);
    let found: BTreeSet<&str> = texts
        .iter()
        .flat_map(|text| launching(text))
        .filter(|name| !INTERNAL.contains(name) && *name != "new")
        .collect();
    let listed = PROMISES.iter().flat_map(|(_, functions, ..)| functions.split(", "));
    let listed: BTreeSet<&str> = listed.filter_map(|name| name.split("::").last()).collect();
    let missing: Vec<_> = found.difference(&listed).collect();
    assert!(missing.is_empty(), "functions without promises: {missing:?}");
    let gone: Vec<_> =
        listed.difference(&found).filter(|name| !["tiles", "RowSums", "ColumnSums"].contains(name)).collect();
    assert!(gone.is_empty(), "promises of functions that are gone: {gone:?}");
}

/// Kernels that promise rows have the promise in their source.
#[test]
fn proved_promises_are_in_kernels() {
    let mut texts = Vec::new();
    sources(&folder().join("src"), &mut texts);
    let promising: Vec<_> =
        texts.iter().filter(|text| text.contains("require_rowwise") || text.contains("form.promise")).collect();
    let shared = ["rms_norm", "add_rms_norm", "layer_norm", "add_layer_norm"];
    for (_, functions, _, rows, _) in PROMISES {
        for name in functions.split(", ").filter_map(|name| name.split("::").last()) {
            let is_promised = promising.iter().any(|text| launching(text).any(|found| found == name));
            assert!(!matches!(rows, Proved) || is_promised || shared.contains(&name), "`{name}` has no proof");
        }
    }
}
