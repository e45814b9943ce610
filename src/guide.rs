//! Guides: the pages of `docs/`. All Rust blocks in them are compiled and run.
//!
//! Only rustdoc reads the pages; programs do not build with them.

/// The folder of the repository that pages link to.
macro_rules! repository_file {
    ($path:expr) => {
        concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/", $path)
    };
}

// A page links to other pages and files by references; these definitions replace those of the page.
macro_rules! pages {
    ($($(#[$doc:meta])+ $name:ident = $file:literal;)+) => {$(
        $(#[$doc])+
        #[doc = "[benchmarks]: crate::guide::benchmarks"]
        #[doc = "[common_errors]: crate::guide::common_errors"]
        #[doc = "[debugging]: crate::guide::debugging"]
        #[doc = "[ecosystem]: crate::guide::ecosystem"]
        #[doc = "[environment]: crate::guide::environment"]
        #[doc = "[exact]: crate::guide::exact"]
        #[doc = "[features]: crate::guide::features"]
        #[doc = "[from_cubecl]: crate::guide::from_cubecl"]
        #[doc = "[from_cuda]: crate::guide::from_cuda"]
        #[doc = "[from_cuda_tile_cpp]: crate::guide::from_cuda_tile_cpp"]
        #[doc = "[from_cutile_jl]: crate::guide::from_cutile_jl"]
        #[doc = "[from_cutile_python]: crate::guide::from_cutile_python"]
        #[doc = "[from_triton]: crate::guide::from_triton"]
        #[doc = "[glossary]: crate::guide::glossary"]
        #[doc = "[kernels]: crate::guide::kernels"]
        #[doc = "[missing]: crate::guide::missing"]
        #[doc = "[operations]: crate::guide::operations"]
        #[doc = "[speed]: crate::guide::speed"]
        #[doc = "[testing]: crate::guide::testing"]
        #[doc = "[proofs]: crate::guide::proofs"]
        #[doc = "[tutorial]: crate::guide::tutorial"]
        #[doc = concat!("[changelog]: ", repository_file!("CHANGELOG.md"))]
        #[doc = concat!("[candle]: ", repository_file!("integrations/candle/README.md"))]
        #[doc = concat!("[compare]: ", repository_file!("benches/compare/README.md"))]
        #[doc = concat!("[comparison]: ", repository_file!("docs/comparison.svg?raw=true"))]
        #[doc = concat!("[criterion]: ", repository_file!("integrations/criterion/README.md"))]
        #[doc = concat!("[nccl]: ", repository_file!("integrations/nccl/README.md"))]
        #[doc = concat!("[roofline]: ", repository_file!("docs/roofline.svg?raw=true"))]
        #[doc = ""]
        #[cfg_attr(doc, doc = include_str!($file))]
        pub mod $name {}
    )+};
}

pages! {
    /// Tutorial: seven kernels, from vector addition to attention, with the compiler's remarks.
    ///
    /// [matmul]: crate::guide::matmul
    tutorial = "../docs/tutorial.md";
    /// Common errors: messages, their meaning, and the form to write.
    ///
    common_errors = "../docs/common_errors.md";
    /// Writing kernels, and the exact results of operations.
    ///
    kernels = "../docs/kernels.md";
    /// List of all operations by family, with links.
    ///
    #[cfg_attr(doc, doc = include_str!("../docs/operations_links.md"))]
    operations = "../docs/operations.md";
    /// List of all features, and their support by back end.
    ///
    features = "../docs/features.md";
    /// Performance of kernels, and its measurement.
    ///
    /// [matmul]: crate::guide::matmul
    speed = "../docs/speed.md";
    /// Matrix multiplication in seven steps, from a naive kernel to the speed of cuBLAS.
    ///
    matmul = "../docs/matmul.md";
    /// Benchmarks: rates of all kernels, next to those of other implementations.
    ///
    benchmarks = "../docs/benchmarks.md";
    /// Debugging of kernels.
    ///
    debugging = "../docs/debugging.md";
    /// Property tests of kernels.
    ///
    testing = "../docs/testing.md";
    /// Exact mode: comparison of kernels without tolerances.
    ///
    exact = "../docs/exact.md";
    /// Proofs of properties of kernels.
    ///
    proofs = "../docs/proofs.md";
    /// Correctness in numbers: planted faults, random programs, errors of functions.
    ///
    correctness = "../docs/correctness.md";
    /// Environment variables.
    ///
    environment = "../docs/environment.md";
    /// Guide for users of cuTile Python.
    ///
    from_cutile_python = "../docs/from_cutile_python.md";
    /// Guide for users of cuTile.jl.
    ///
    from_cutile_jl = "../docs/from_cutile_jl.md";
    /// Guide for users of Triton.
    ///
    from_triton = "../docs/from_triton.md";
    /// Guide for users of CUDA C++.
    ///
    from_cuda = "../docs/from_cuda.md";
    /// Guide for users of CUDA Tile C++.
    ///
    from_cuda_tile_cpp = "../docs/from_cuda_tile_cpp.md";
    /// Guide for users of cubecl.
    ///
    from_cubecl = "../docs/from_cubecl.md";
    /// Comparison with cutile, cudarc, candle and burn.
    ///
    #[doc = concat!("[`with`]: ", repository_file!("src/runtime/foreign/cudarc.rs"))]
    ecosystem = "../docs/ecosystem.md";
    /// Glossary.
    ///
    glossary = "../docs/glossary.md";
    /// Missing features and their replacements.
    ///
    missing = "../docs/missing.md";
}

// The links of the gallery to the examples.
macro_rules! gallery {
    ($($name:literal)+; $($folder:literal)+) => {
        /// Gallery of the examples: one line and one figure each.
        ///
        /// [benchmarks]: crate::guide::benchmarks
        /// [page]: crate::guide::matmul
        $(#[doc = concat!("[", $name, "]: ", repository_file!(concat!("examples/", $name, ".rs")))])+
        $(#[doc = concat!("[", $folder, "]: ", repository_file!(concat!("examples/", $folder)))])+
        #[doc = ""]
        #[cfg_attr(doc, doc = include_str!("../docs/examples.md"))]
        pub mod examples {}
    };
}

gallery! {
    "ahead" "argmax" "attention" "attention_backward" "attention_f8" "attention_queries"
    "batched_matmul" "checks" "doctor" "dropout" "embedding" "experts" "fft" "future" "graph" "hello"
    "histogram" "layernorm" "layernorm_backward" "matmul" "matmul_steps" "mutex" "ndarray" "padding"
    "prefix_sum" "quantized_matmul" "races" "safetensors" "saxpy" "scaled_matmul" "softmax" "stencil"
    "transpose" "tune" "vadd" "vocabulary" "welford";
    "bundle" "dlpack"
}
