//! The kernels of `examples/` at full size, timed and verified, or their code: `cargo bench --bench kernels -- NAME [OPTION]...`.
//!
//! `cargo bench --bench kernels -- matmul --help` says which options there are; without a name, all kernels run, on a GPU at
//! their full sizes. `--tune` tries configurations instead, and says what fraction of the best the plain launches reach. `--disable-each` measures the gain
//! of each optimization of the ptx back end.

mod ablation;
mod compared;
mod measure;
mod tune;

use anyhow::Result;

fn main() -> Result<()> {
    // cargo says that this is a benchmark.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match words.split_first() {
        Some((name, options)) if name == "--tune" => tune::start(options),
        Some((name, options)) if name == "--disable-each" => ablation::start(options),
        Some((name, options)) => measure::by_name(name)?(options),
        None => measure::ALL.iter().try_for_each(|(_, start)| start(&[])),
    }
}
