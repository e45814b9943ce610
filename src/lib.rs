//! GPU kernels as plain Rust functions over tiles.
//!
//! * [`Tile`] is a block of elements that a kernel computes with as a whole: of one element type and rank, in registers.
//! * [`Array`] (to be written: [`ArrayMut`]) is an array in memory as a kernel sees it, from which it loads tiles by their place.
//! * [`Device`] is a GPU or the host's interpreter: it makes the arrays ([`DeviceArray`]) and runs the kernels.
//! * [`launch`] runs a kernel, an ordinary function or closure, over a grid of tile blocks.
//!
//! Which thread does what is the compiler's affair. The launch runs the function once on traced values, which
//! records its operations as CUDA Tile IR ([`ir`]); passes simplify that ([`pass`]); a back end runs it
//! ([`backend`]): generated PTX on a GPU, through the driver alone, or an interpreter on any machine. [`guide::tutorial`]
//! goes from here to attention in seven kernels.
//!
//! ```
//! use cutlet as ct;
//! use cutlet::prelude::*;
//!
//! fn vadd(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>, tile: usize) {
//!     let i = ct::bid(0);
//!     c.store([i], a.load([i], [tile]) + b.load([i], [tile]));
//! }
//!
//! let device = ct::Device::first()?; // a GPU, or else the host
//! let (a, b) = (device.full([1000], 1.5f32)?, device.from_fn([1000], |[i]| i as f32)?);
//! let mut c = device.zeros([1000])?;
//! ct::launch(vadd, 1000usize.div_ceil(256), (&a, &b, &mut c, ct::Constant(256)))?;
//! assert_eq!(c.to_vec()?[999], 1000.5);
//! # Ok::<(), ct::Error>(())
//! ```
//!
//! Arrays need not be multiples of tiles: loads pad, stores drop. Reductions keep the reduced axis with
//! extent 1, and operators stretch such extents:
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
//! ct::launch(softmax, 3, (&x, &mut y, ct::Constant(128)))?;
//! assert!((y.to_vec()?.iter().sum::<f32>() - 3.0).abs() < 1e-4);
//! # Ok::<(), ct::Error>(())
//! ```
//!
//! Loops and branches that depend on run-time values are functions of closures; their state goes in and
//! comes out by value. Ordinary Rust (`if`, `for`, generics, host numbers) decides while tracing:
//!
//! ```
//! use cutlet as ct;
//! use cutlet::prelude::*;
//!
//! fn matmul(a: Array<f16, 2>, b: Array<f16, 2>, c: ArrayMut<f16, 2>, [tm, tn, tk]: [usize; 3]) {
//!     let (i, j) = (ct::bid(0), ct::bid(1));
//!     let acc = ct::fold(..a.num_tiles(1, [tm, tk]), ct::zeros::<f32, 2>([tm, tn]), |acc, k| {
//!         ct::mma(a.load([i, k], [tm, tk]), b.load([k, j], [tk, tn]), acc)
//!     });
//!     c.store([i, j], acc.cast::<f16>());
//! }
//!
//! let device = ct::Device::cpu();
//! let (a, b) = (device.full([70, 30], f16::ONE)?, device.full([30, 50], f16::ONE)?);
//! let mut c = device.zeros([70, 50])?;
//! ct::launch(matmul, [3, 2], (&a, &b, &mut c, ct::Constant([32, 32, 16])))?;
//! assert!(c.to_vec()?.iter().all(|x| x.to_f32() == 30.0));
//! # Ok::<(), ct::Error>(())
//! ```
//!
//! Where to look: [`ops`] for everything that can be done with tiles, [`mod@pointer`] for what arrays cannot say, [`element`] for the element types,
//! [`Device`] and [`DeviceArray`] for memory, [`Launch`] for streams and hints, [`inspect`]
//! for the code of a kernel without a device, [`layout`] for how tiles lie in registers, [`guide`] for everything else: a list of
//! all operations, coming from other languages, debugging, a glossary.

pub mod backend;
pub mod cache;
pub mod codec;
mod complex;
pub mod dtype;
pub mod element;
mod error;
pub mod guide;
pub mod ir;
pub mod kernel;
mod launch;
pub mod layout;
mod narrow;
pub mod ops;
pub mod pass;
pub mod prelude;
mod process;
pub mod runtime;
#[cfg(test)]
mod sample;
mod target;
mod task;
mod temporary;
pub mod tile;

pub use backend::Hints;
pub use backend::cpu::Checks;
#[doc(inline)]
pub use cache::{CacheEntry, cache_entries};
pub use complex::{Complex, ComplexPart, c32, c64, c128};
pub use element::{bf16, f4e2m1fn, f8e4m3fn, f8e5m2, f8e5m3fnu, f8e8m0fnu, f16, tf32};
pub use error::{Diagnostic, Error, Location, Note, Result};
pub use ir::{Padding, Rounding};
pub use kernel::{Constant, IntoKernelArg, RawPtr};
pub use launch::{
    ArrayExpr, Bundle, BundledKernel, Bundler, CacheCheck, CompileSummary, CompiledKernel, DoctorReport,
    ExportedKernel, ExportedParam, Format, FusedExpr, GpuCheck, Grid, Inspection, Kernels, Launch, LoadedKernel, Map,
    MapWith, Measurement, Progress, Random, RandomElement, RawLaunch, Remarks, Tuner, TuningResult, Zip, bench,
    compile, compile_all, doctor, export, inspect, launch, launch_with_outputs, load,
};
pub use narrow::{
    FloatN, IntN, Narrow, NarrowFormat, UIntN, f3e1m1, f4e1m2, f4e2m1, f5e1m3, f5e2m2, f5e3m1, f6e1m4, f6e2m3, f6e3m2,
    f6e4m1, f7e1m5, f7e2m4, f7e3m3, f7e4m2, f7e5m1, i1, i2, i3, i4, i5, i6, i7, u1, u2, u3, u4, u5, u6, u7,
};
pub use ops::*;
pub use pass::Work;
pub use runtime::foreign;
#[cfg(feature = "_suite")]
#[doc(hidden)]
pub use runtime::with_index64;
#[doc(inline)]
pub use runtime::{
    ArraySpec, ArraySpecMut, ArrayTable, ArrayTableMut, Backend, Bench, ByPointer, Comparison, ComplexDeviceArray,
    Device, DeviceArray, DeviceView, DeviceViewMut, Event, Graph, GraphResource, Interleaved, NewArray,
    PackedDeviceArray, PackedSpec, PackedSpecMut, PackedView, Partition, Stream, StreamFuture, StreamPool, Times,
};
pub use target::{ByTarget, Target};
#[doc(inline)]
pub use tile::{Array, ArrayMut, Arrays, ArraysMut, Ptr, PtrTile, Scalar, Tile};

/// Searching for the fastest configuration: a [`Tuner`], spaces, and records that are kept beside the source.
pub mod tune {
    #[doc(inline)]
    pub use crate::runtime::Scratch;

    #[doc(inline)]
    pub use crate::launch::{
        Chosen, Origin, Outcome, Ranges, Record, Records, Trial, TuneKey, TuneStep, Tuner, TuningResult, space,
    };
}

/// The examples of the README compile and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
