//! The guides: pages of `docs/`, each of them also a file of the repository. Every block of Rust in them is compiled and
//! run.

// What a page defines a second time, its links to other pages as files, gives way to these.
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
    /// Seven kernels, from the sum of two vectors to attention, and what the compiler says about each.
    ///
    tutorial = "../docs/tutorial.md";
    /// How kernels are written, and what operations mean to the last bit.
    ///
    kernels = "../docs/kernels.md";
    /// Every operation by family, with links.
    ///
    operations = "../docs/operations.md";
    /// Every feature, and what each back end does of it.
    ///
    features = "../docs/features.md";
    /// What makes a kernel fast, and how to see it.
    ///
    speed = "../docs/speed.md";
    /// How to find what is wrong with a kernel.
    ///
    debugging = "../docs/debugging.md";
    /// For users of cuTile Python.
    ///
    from_cutile_python = "../docs/from_cutile_python.md";
    /// For users of cuTile.jl.
    ///
    from_cutile_jl = "../docs/from_cutile_jl.md";
    /// For users of Triton.
    ///
    from_triton = "../docs/from_triton.md";
    /// For users of CUDA C++.
    ///
    from_cuda = "../docs/from_cuda.md";
    /// Beside cutile, cudarc, candle, burn.
    ///
    ecosystem = "../docs/ecosystem.md";
    /// What the words mean.
    ///
    glossary = "../docs/glossary.md";
    /// What is not there, and what to do instead.
    ///
    missing = "../docs/missing.md";
}
