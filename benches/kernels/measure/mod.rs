//! The examples' kernels at any size: with command lines, hints and tile sizes, timed, and compared
//! with f64 on the host; or their code, printed. The kernels themselves are those of `examples/`.

#[macro_use]
mod harness;

mod argmax;
mod attention;
mod attention_backward;
mod attention_f8;
mod batched_matmul;
mod dropout;
mod embedding;
pub mod examples;
mod experts;
mod fft;
mod hello;
mod histogram;
mod layernorm;
mod layernorm_backward;
mod matmul;
mod mutex;
mod padding;
mod prefix_sum;
mod quantized_matmul;
mod saxpy;
mod scaled_matmul;
mod softmax;
mod stencil;
mod transpose;
mod vadd;
mod vocabulary;
mod welford;

use anyhow::Result;

/// Runs a kernel with the options of a command line.
pub type Start = fn(&[String]) -> Result<()>;

macro_rules! all {
    ($($name:ident)+) => {
        /// All of them by name.
        pub const ALL: &[(&str, Start)] = &[$((stringify!($name), $name::start),)+];
    };
}

all! {
    argmax attention attention_backward attention_f8 batched_matmul dropout embedding experts fft hello histogram layernorm layernorm_backward matmul mutex padding prefix_sum quantized_matmul saxpy scaled_matmul softmax stencil transpose vadd vocabulary welford
}

/// The kernel of this name.
pub fn by_name(name: &str) -> Result<Start> {
    let found = ALL.iter().find(|(known, _)| *known == name);
    found.map(|(_, start)| *start).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
        anyhow::anyhow!("there is no kernel `{name}`; there are {}", names.join(", "))
    })
}
