//! The kernels of `examples/` at full size, timed and verified, or their code:
//! `cargo bench --bench kernels -- NAME [OPTION]...`.
//!
//! `--help` lists the kernels, `cargo bench --bench kernels -- matmul --help` the options of one;
//! without a name, all kernels run, on a GPU at their full sizes. `--tune` tries configurations
//! instead, and prints the ratio of the plain launches to the best result. `--disable-each`
//! measures the gain of each optimization of the ptx back end.

mod ablation;
mod compared;
mod measure;
mod tune;

use anyhow::Result;

const HELP: &str = "
The kernels of examples/ at full size, timed and verified, or their code.

  cargo bench --bench kernels                    all kernels
  cargo bench --bench kernels -- NAME [OPTION].. one kernel; NAME --help lists its options
  cargo bench --bench kernels -- --tune ..       the best of many configurations; --tune --help
  cargo bench --bench kernels -- --disable-each ..
                                                 the gain of each optimization; --disable-each --help
";

fn main() -> Result<()> {
    // Argument of cargo for benchmarks.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    match words.split_first() {
        Some((name, _)) if matches!(name.as_str(), "--help" | "-h" | "help") => {
            let names: Vec<&str> = measure::ALL.iter().map(|(name, _)| *name).collect();
            println!("{HELP}\nkernels: {}", names.join(", "));
            Ok(())
        }
        Some((name, options)) if name == "--tune" => tune::start(options),
        Some((name, options)) if name == "--disable-each" => ablation::start(options),
        Some((name, options)) => measure::by_name(name)?(options),
        None => measure::ALL.iter().try_for_each(|(_, start)| start(&[])),
    }
}
