//! Compiles the kernels for several targets: needs no GPU, no CUDA toolkit.

use cutlet::aot::Bundler;
use cutlet::{ArraySpec, Constant, Target};

#[path = "src/kernels.rs"]
mod kernels;

fn main() -> anyhow::Result<()> {
    println!("cargo::rerun-if-changed=src/kernels.rs");
    let targets = [Target::SM_80, "sm_89".parse().unwrap(), Target::SM_90A, "sm_100".parse().unwrap()];
    let mut bundler = Bundler::new(targets);
    // For any array, and faster code for arrays whose length is a multiple of 16.
    for x in [ArraySpec::<f32, 1>::new([1001]).unaligned(), ArraySpec::new([1024])] {
        bundler.add(kernels::saxpy, (1.0f32, x, x.mutable(), Constant(kernels::TILE)))?;
    }
    let bundle = bundler.finish()?;
    bundle.write(format!("{}/kernels.bundle", std::env::var("OUT_DIR")?))?;
    Ok(())
}
