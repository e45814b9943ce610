//! Guides: the pages of `docs/`. All Rust blocks in them are compiled and run.

// A page links to other pages as files; these definitions replace the links.
macro_rules! pages {
    ($($(#[$doc:meta])+ $name:ident = $file:literal;)+) => {$(
        $(#[$doc])+
        #[doc = "[debugging]: crate::guide::debugging"]
        #[doc = "[ecosystem]: crate::guide::ecosystem"]
        #[doc = "[features]: crate::guide::features"]
        #[doc = "[from_cuda]: crate::guide::from_cuda"]
        #[doc = "[from_cutile_jl]: crate::guide::from_cutile_jl"]
        #[doc = "[from_cutile_python]: crate::guide::from_cutile_python"]
        #[doc = "[from_triton]: crate::guide::from_triton"]
        #[doc = "[glossary]: crate::guide::glossary"]
        #[doc = "[kernels]: crate::guide::kernels"]
        #[doc = "[missing]: crate::guide::missing"]
        #[doc = "[operations]: crate::guide::operations"]
        #[doc = "[speed]: crate::guide::speed"]
        #[doc = "[tutorial]: crate::guide::tutorial"]
        #[doc = ""]
        #[doc = include_str!($file)]
        pub mod $name {}
    )+};
}

pages! {
    /// Tutorial: seven kernels, from the sum of two vectors to attention, with the compiler's
    /// remarks.
    ///
    tutorial = "../docs/tutorial.md";
    /// Writing kernels, and the exact results of operations.
    ///
    kernels = "../docs/kernels.md";
    /// List of all operations by family, with links.
    ///
    operations = "../docs/operations.md";
    /// List of all features, and their support by back end.
    ///
    features = "../docs/features.md";
    /// Performance of kernels, and its measurement.
    ///
    speed = "../docs/speed.md";
    /// Debugging of kernels.
    ///
    debugging = "../docs/debugging.md";
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
    /// Comparison with cutile, cudarc, candle and burn.
    ///
    ecosystem = "../docs/ecosystem.md";
    /// Glossary.
    ///
    glossary = "../docs/glossary.md";
    /// Missing features and their replacements.
    ///
    missing = "../docs/missing.md";
}
