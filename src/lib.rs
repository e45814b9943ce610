//! GPU kernels as plain Rust functions over tiles.
//!
//! * [`Tile`]: an immutable block of elements in registers, of one element type and rank. A kernel
//!   computes with whole tiles.
//! * [`Array`] (writable: [`ArrayMut`]): an array in memory, as a kernel sees it. A kernel loads
//!   its tiles by tile index.
//! * [`Device`]: a GPU or the interpreter of the host. It creates arrays ([`DeviceArray`]) and runs
//!   kernels.
//! * [`launch`]: runs a kernel, which is an ordinary function or closure, over a grid of tile
//!   blocks.
//!
//! The compiler maps tiles to threads. A launch calls the function once with traced values, which
//! record its operations as CUDA Tile IR. Passes optimize the IR, and a back end executes it:
//! generated PTX on a GPU, which needs only the driver, or an interpreter on any machine.
//!
//! # Getting started
//!
//! ```toml
//! [dependencies]
//! cutlet = { git = "https://github.com/cutlet-rs/cutlet" } # from the Rust registry: cutlet = "0.1"
//! [profile] # faster builds; the speed of kernels does not depend on these lines
//! dev.package."*" = { debug = false, debug-assertions = false, overflow-checks = false }
//! release = { lto = "off", package.cutlet.opt-level = 1 }
//! ```
//!
//! On a slow shared machine `cargo run` builds for about 65 s of processor time, and
//! `cargo run --release` for about 195 s. Use `--release` to measure. No toolkit and no GPU are
//! needed for this program:
//!
//! ```
//! use cutlet as ct;
//! use cutlet::prelude::*;
//!
//! fn vadd(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
//!     let i = ct::bid(0);
//!     c.store(i, a.load(i, [tile]) + b.load(i, [tile]));
//! }
//!
//! let device = ct::Device::first()?; // a GPU, or else the host
//! let (a, b) = (device.full([1000], 1.5f32)?, device.from_fn([1000], |[i]| i as f32)?);
//! let mut c = device.zeros([1000])?;
//! ct::launch(vadd, 1000usize.div_ceil(256), (&a, &b, &mut c, Constant(256)))?;
//! assert_eq!(c.to_vec()?[999], 1000.5);
//! # Ok::<(), ct::Error>(())
//! ```
//!
//! Next: [`guide::tutorial`] explains seven kernels, the last one of which is attention;
//! [`guide::common_errors`] explains messages; [`guide::operations`] lists all operations.
//!
//! # Kernels
//!
//! Array sizes need not be multiples of the tile size: loads fill out-of-range elements with zeros,
//! and stores skip them. Reductions keep the reduced axis with size 1, and operators broadcast it:
//!
//! ```
//! use cutlet as ct;
//! use cutlet::prelude::*;
//!
//! fn softmax(x: Array<f32, 2>, y: ArrayMut<f32, 2>, tile: usize) {
//!     let row = ct::bid(0);
//!     let x = x.load_with((row, 0), [1, tile], ct::LoadOptions::new().padding(Padding::NegInf));
//!     let e = (x - x.reduce_max(1)).exp();
//!     y.store((row, 0), e / e.sum(1));
//! }
//!
//! let device = ct::Device::cpu();
//! let x = device.from_fn([3, 100], |[i, j]| (i * j) as f32 / 100.0)?;
//! let mut y = device.zeros([3, 100])?;
//! ct::launch(softmax, 3, (&x, &mut y, Constant(128)))?;
//! assert!((y.to_vec()?.iter().sum::<f32>() - 3.0).abs() < 1e-4);
//! # Ok::<(), ct::Error>(())
//! ```
//!
//! Loops and branches that depend on run-time values are functions of closures. They receive and
//! return their state by value. Ordinary Rust (`if`, `for`, generics, host numbers) is evaluated
//! during tracing:
//!
//! ```
//! use cutlet as ct;
//! use cutlet::prelude::*;
//!
//! fn matmul(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, [tm, tn, tk]: [usize; 3]) {
//!     let (i, j) = (ct::bid(0), ct::bid(1));
//!     let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
//!         ct::mma(a.load((i, k), [tm, tk]), b.load((k, j), [tk, tn]), acc)
//!     });
//!     c.store((i, j), acc.cast::<f16>());
//! }
//!
//! let device = ct::Device::cpu();
//! let (a, b) = (device.full([70, 30], f16::ONE)?, device.full([30, 50], f16::ONE)?);
//! let mut c = device.zeros([70, 50])?;
//! ct::launch(matmul, [3, 2], (&a, &b, &mut c, Constant([32, 32, 16])))?;
//! assert!(c.to_vec()?.iter().all(|x| x.to_f32() == 30.0));
//! # Ok::<(), ct::Error>(())
//! ```
//!
//! # Modules
//!
//! The crate root exports the names for kernels and the entry points of the host. Modules by
//! subject export other names:
//!
//! * [`ops`]: all operations on tiles, with their traits; [`element`]: element types;
//!   [`mod@pointer`]: pointers.
//! * [`math`], [`random`], [`packed`]: complex numbers and modes of floats, random numbers, numbers
//!   of 1 to 8 bits.
//! * [`runtime`]: devices, arrays, streams and graphs; [`foreign`]: memory of other libraries;
//!   [`expr`]: whole arrays.
//! * [`mod@test`]: property tests of kernels.
//! * [`mod@inspect`], [`mod@bench`], [`tune`], [`cache`]: code, time, configurations, files of
//!   compiled kernels.
//! * [`aot`]: kernels in files; [`layout`]: layouts of tiles in registers; [`kernel`]: traits of
//!   kernels and arguments.
//! * [`guide`]: all pages of the documentation: tutorial, operations, other languages, debugging.
//!
//! # Features of the package
//!
//! On by default; `default-features = false` switches them off:
//!
//! * `tileir`: the back end that generates Tile IR. Without it, Blackwell runs generated PTX.
//! * `tune`: [`Tuner`] and the module [`tune`].
//! * `bundle`: [`Bundler`](aot::Bundler) and [`Bundle`](aot::Bundle).
//! * `test`: the module [`mod@test`].
//!
//! Off by default:
//!
//! * `cudarc`: arrays from and to the slices, views and streams of cudarc.
//! * `ndarray`: arrays from and to the arrays and views of ndarray, with their strides.
//! * `safetensors`: arrays from and to the tensors of files of safetensors.
//! * `log`: warnings go to the program's logger, with the target `cutlet`. Without the feature,
//!   they go to standard error.
//! * `tracing`: the spans `compile` (level info) and `launch` (level debug) with the kernel's name,
//!   with the target `cutlet`. A launch span is the time on the host.
//!
//! Without a logger, the feature `log` silences the warning of [`Device::first`] that there is no
//! GPU. Each logger can filter by the target:
//!
#![cfg_attr(feature = "log", doc = "```")]
#![cfg_attr(not(feature = "log"), doc = "```ignore")]
//! struct Logger;
//!
//! impl log::Log for Logger {
//!     fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
//!         metadata.target() == "cutlet"
//!     }
//!
//!     fn log(&self, record: &log::Record<'_>) {
//!         println!("[{}] {}", record.level(), record.args());
//!     }
//!
//!     fn flush(&self) {}
//! }
//!
//! log::set_logger(&Logger).unwrap();
//! log::set_max_level(log::LevelFilter::Warn);
//! let device = cutlet::Device::first()?; // [WARN] no GPU (…); kernels run on the cpu back end
//! # Ok::<(), cutlet::Error>(())
//! ```

// A part that only an absent feature uses has no user.
#![cfg_attr(
    not(all(feature = "tileir", feature = "tune", feature = "bundle", feature = "test")),
    allow(dead_code, unused_imports)
)]

#[doc(hidden)]
pub mod backend;
pub mod cache;
#[doc(hidden)]
pub mod doctest;
mod error;
// Pages of the documentation. Programs do not carry them in their metadata.
#[cfg(doc)]
pub mod guide;
#[doc(hidden)]
pub mod ir;
pub mod kernel;
mod launch;
pub mod layout;
pub mod ops;
#[doc(hidden)]
pub mod pass;
pub mod prelude;
pub mod runtime;
mod sealed;
mod target;
#[cfg(feature = "test")]
pub mod test;
pub mod tile;
mod types;
mod util;

#[doc(inline)]
pub use crate::element::{
    AnyFloat, Bits, ByteSized, Comparable, Element, Float, Int, Number, Signed, bf16, f4e2m1fn, f8e4m3fn, f8e5m2,
    f8e5m3fnu, f8e8m0fnu, f16, tf32,
};
#[doc(inline)]
pub use backend::Hints;
#[doc(inline)]
pub use backend::cpu::Checks;
#[doc(inline)]
pub use error::{Awaited, Diagnostic, Error, Hang, Location, Note, Result, StuckWait, WaitRole};
#[doc(inline)]
pub use ir::{Padding, Rounding};
#[doc(inline)]
pub use kernel::{Constant, RawPtr};
#[cfg(feature = "tune")]
#[doc(inline)]
pub use launch::Tuner;
#[doc(inline)]
pub use launch::{
    ArrayExpr, CompiledKernel, Grid, Inspection, IntoGrid, Launch, Proof, bench, compile, compile_all, doctor, export,
    inspect, launch, launch_with_outputs, load, prove, prove_for_all, with_exact_mode,
};
#[doc(inline)]
pub use ops::pointer;
#[doc(inline)]
pub use ops::{
    AtomicOptions, Cache, Cluster, FloatMode, GatherOptions, Global, LoadOptions, Lock, LoopControl, Operand,
    Precision, Rowwise, ScanOptions, ScatterOptions, Scope, StepRange, StoreOptions, TiledView, TriangularOptions,
    alias_fence, arange, arange_from, assert, astile, at, bid, cat, clock, cluster, fold, fold_while,
    fold_with_control, for_each, from_fn, from_slice, full, global_timer, grid_dependency_control_launch_dependents,
    grid_dependency_control_wait, if_else, if_then, indices, loop_with_control, matmul, matvec, mma, mma_fast_acc,
    mma_scaled, mma_with, multiprocessor, num_blocks, ones, print, ptx_elementwise, range, reduce, require,
    require_rowwise, return_if, scalar, scan, scan_with, scratch, select, sort_by_key, span, stack, swizzle_2d, vecmat,
    while_loop, with_mode, zeros,
};
// The names above are inlined in the documentation; names that only the prelude has follow from it.
#[doc(inline)]
pub use pass::{Counterexample, Property, Symbol, Verdict};
#[allow(unused_imports)]
#[doc(inline)]
pub use prelude::*;
#[doc(inline)]
pub use runtime::foreign;
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub use runtime::with_index64;
#[doc(inline)]
pub use runtime::{
    ArraySpec, ArraySpecMut, ArrayTable, ArrayTableMut, Backend, Bench, ByPointer, Device, DeviceArray, DeviceView,
    DeviceViewMut, Event, Graph, NewArray, Partition, Stream, StreamPool, with_memory_checks,
};
#[doc(inline)]
pub use target::{ByTarget, Target};
#[doc(inline)]
pub use tile::{Array, ArrayMut, Arrays, ArraysMut, Ptr, PtrTile, Scalar, Tile, TileLike};
#[doc(hidden)]
pub use types::float_codec;
pub use types::{dtype, element};

/// Ahead-of-time compilation: kernels in files, bundles of kernels, and compilation in parallel.
pub mod aot {
    #[doc(inline)]
    pub use crate::kernel::ArgSignature;
    #[cfg(feature = "bundle")]
    #[doc(inline)]
    pub use crate::launch::{Bundle, BundledKernel, Bundler};
    #[doc(inline)]
    pub use crate::launch::{
        CompileSummary, ExportedKernel, ExportedParam, Format, Kernels, LoadedKernel, Progress, RawLaunch, StoredProof,
        compile_all, export, load, proofs_in,
    };
    #[doc(inline)]
    pub use crate::tile::ArrayInfo;
}

/// Measurement of launches and of host functions.
pub mod bench {
    #[doc(inline)]
    pub use crate::launch::{Measurement, bench};
    #[doc(inline)]
    pub use crate::runtime::{Bench, Comparison, Times};
}

/// Expressions over whole arrays, which are fused into one kernel.
pub mod expr {
    #[doc(inline)]
    pub use crate::launch::{ArrayExpr, FusedExpr, Map, MapWith, Zip};
}

/// Inspection of kernels: code, remarks, the least work of a launch, and the state of the machine.
pub mod inspect {
    #[doc(inline)]
    pub use crate::backend::ptx::{MeasuredEvent, MeasuredTrace, StepComparison, TraceComparison};
    #[doc(inline)]
    pub use crate::launch::{CacheCheck, DoctorReport, GpuCheck, Inspection, Remarks, Spills, doctor, inspect};
    #[doc(inline)]
    pub use crate::pass::Work;
    #[doc(inline)]
    pub use crate::runtime::SpilledLine;
}

/// Mathematics beyond methods of tiles: complex numbers, Fourier transforms, modes of floats, exact
/// division, promotion.
pub mod math {
    #[doc(inline)]
    pub use crate::ops::{
        ComplexArray, ComplexArrayMut, Divides, Divisor, FftElement, FloatMode, Promote, fft, ifft, promote, with_mode,
    };
    #[doc(inline)]
    pub use crate::runtime::{ComplexDeviceArray, Interleaved};
    #[doc(inline)]
    pub use crate::types::complex::{Complex, ComplexPart, c32, c64, c128};
}

/// Packed arrays of numbers of 1 to 8 bits, and tiles of them.
pub mod packed {
    #[doc(inline)]
    pub use crate::element::{f4e2m1fn, f8e4m3fn, f8e5m2, f8e5m3fnu, f8e8m0fnu};
    #[doc(inline)]
    pub use crate::ops::{NarrowTile, Packed, PackedArray, PackedArrayMut};
    #[doc(inline)]
    pub use crate::runtime::{PackedDeviceArray, PackedSpec, PackedSpecMut, PackedView, PackedViewMut};
    #[doc(inline)]
    pub use crate::types::packed_formats::{
        FloatN, IntN, Narrow, NarrowFormat, UIntN, f3e1m1, f4e1m2, f4e2m1, f5e1m3, f5e2m2, f5e3m1, f6e1m4, f6e2m3,
        f6e3m2, f6e4m1, f7e1m5, f7e2m4, f7e3m3, f7e4m2, f7e5m1, i1, i2, i3, i4, i5, i6, i7, u1, u2, u3, u4, u5, u6, u7,
    };
}

/// Random numbers: a counter-based generator in kernels, and random arrays.
pub mod random {
    #[doc(inline)]
    pub use crate::launch::{Random, RandomElement};
    #[doc(inline)]
    pub use crate::ops::{Philox, RandomFloat, StochasticFloat};
}

#[cfg(feature = "tune")]
/// Search for the fastest configuration: a [`Tuner`], spaces, and record files next to the source.
pub mod tune {
    #[doc(inline)]
    pub use crate::runtime::Scratch;

    #[doc(inline)]
    pub use crate::launch::{
        Chosen, Origin, Outcome, Ranges, Record, Records, Trial, TuneKey, TuneStep, Tuner, TuningResult, space,
    };
}

/// The examples of the README, which are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
