//! Export of kernels as Tile IR bytecode, cubin or PTX, without a device.

use crate::util::collect::CollectVec as _;
use std::sync::Arc;

use super::stored_proof::{StoredProof, append};
use crate::backend::ptx::ParamKind;
use crate::backend::ptx::tensor_map::{MAP_BYTES, TensorMap};
use crate::backend::tileir::{self, Guards, LaunchConditions, Limit, Version};
use crate::backend::{Hints, ParamWord};
use crate::error::Result;
use crate::ir::Module;
use crate::kernel::{Arguments, Bound, Call, Kernel, KernelArgs};
use crate::launch::compile::check_determinism;
use crate::launch::compile::check_hints::{assembly, check_hints};
use crate::launch::compile::guard_check::GuardCheck;
use crate::launch::compile::offline_ptxas::{machine_code, settled};
use crate::launch::compile::preconditions::Preconditions;
use crate::launch::compile::ptx::TensorMapUse;
use crate::launch::compile::tileir::assembled;
use crate::launch::compile::{PassMode, optimize};
use crate::launch::grid::IntoGrid;
use crate::launch::options::Launch;
use crate::launch::prove::{Proof, Scene};
use crate::runtime::Backend;
use crate::target::Target;

/// Form of the code of an exported kernel.
///
/// ```
/// # use cutlet::doctest::*;
/// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
/// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::zeros([1024]));
/// let exported = ct::export(fill, (x.mutable(),), ct::Target::SM_90A, ct::aot::Format::Ptx)?;
/// assert!(String::from_utf8_lossy(&exported.bytes).contains(".entry"));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Tile IR bytecode of this version, or of the lowest sufficient one.
    TileIr(Option<Version>),
    /// Machine code that `tileiras` generates from bytecode.
    Cubin,
    /// PTX of this crate: the code of a launch without clusters.
    ///
    /// An assembler determines whether the registers suffice: that of the driver if a GPU of the
    /// target is present, else `ptxas`. Without one, the code can differ from that of a launch.
    Ptx,
}

/// One parameter of an exported kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportedParam {
    /// Size in bytes: 1, 2, 4 or 8; 128 for a tensor map.
    pub bytes: u32,
    /// The parameter is an address in device memory.
    pub pointer: bool,
    /// Description of the tensor map, if the parameter is one.
    pub tensor_map: Option<TensorMap>,
}

/// Exported kernel: code in the form of a file, and the parameters and conditions of its launches.
///
/// # Launching it
/// Parameters are passed one after another, in the order of the arguments:
/// * a number: itself;
/// * a [`RawPtr`](crate::RawPtr): its address, a number of 8 bytes;
/// * an array of R dimensions: its address, R extents and R strides (in elements; i32, or i64 for
///   arrays whose offsets need it). Strides that are compiled in are passed, too;
/// * an [`ArrayTable`](crate::ArrayTable): the addresses of its list and of its first array, and
///   the number of arrays (i32). The list has 1 + 2 R numbers (i64) for each array: bytes from the
///   first array to this one, extents, strides.
///
/// The properties that the kernel was compiled for must hold: alignment of addresses to 16 bytes,
/// strides of 1 and divisibility by 16, as for the arguments of [`export`], and every [`Limit`].
///
/// [`Global`](crate::Global)s are in the file: each time that the file is loaded, it has a new
/// instance of them.
///
/// PTX of a kernel with assertions, or with [`Hints::wait_limit`](crate::Hints::wait_limit), has
/// one additional address. If it is 0, failures are not reported. Otherwise it addresses
/// [`ExportedKernel::failure_bytes`] zeroed bytes. After a failed assertion the first word (u32)
/// is 2. With a wait limit, any word that is not 0 is a failure.
///
/// PTX for sm_90 and later may have tensor maps after these parameters: 128 bytes each, passed by
/// value with an alignment of 64. The launcher encodes them from the preceding parameters.
/// [`TensorMap::resolve`] receives these as words, in the order above, and returns the arguments of
/// `cuTensorMapEncodeTiled` (element strides of 1, no interleave, no fill).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExportedKernel {
    /// Contents of the file.
    pub bytes: Vec<u8>,
    /// Name of the kernel in the file.
    pub entry: String,
    /// Parameters in order.
    pub params: Vec<ExportedParam>,
    /// Threads of a block at launch. 1 for bytecode and for cubins of `tileiras`: the driver
    /// determines the actual number and rejects any other argument.
    pub threads: u32,
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// Bytes of the record of failures, for PTX with assertions or a wait limit; else 0.
    pub failure_bytes: u32,
    /// Conditions of each launch that are comparisons of two numbers, so that no tile is outside of
    /// its array. [`ExportedKernel::fits`] checks all conditions.
    pub limits: Vec<Limit>,
    checks: Arc<GuardCheck>,
    source: Arc<Source>,
    proofs: Vec<StoredProof>,
}

/// Input of an export.
#[derive(Debug)]
struct Source {
    module: Module,
    required: Option<Preconditions>,
    target: Target,
    format: Format,
    hints: Hints,
    /// Digest of the trace.
    trace: [u8; 32],
}

impl ExportedKernel {
    /// Adds a proof about the kernel, made with the same arguments. PTX has its proofs as comments,
    /// which [`proofs_in`](crate::aot::proofs_in) reads.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([128]).mutable();
    /// let file = ct::export(fill, (x,), ct::Target::SM_80, ct::aot::Format::Ptx)?;
    /// let proof = ct::prove(fill, 2, (x,), [ct::Property::Covers])?;
    /// assert_eq!(file.with_proof(&proof)?.proofs()[0].to_string(), "proved for grid (2, 1, 1) and numbers 128, 1: covers");
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Kernel`](crate::Error::Kernel) if a property is not proved;
    /// [`Error::Argument`](crate::Error::Argument) for a proof about another kernel or other forms
    /// of arguments.
    #[track_caller]
    pub fn with_proof(mut self, proof: &Proof) -> Result<ExportedKernel> {
        self.proofs.push(StoredProof::new(proof, self.source.trace)?);
        if self.source.format == Format::Ptx {
            append(&mut self.bytes, &self.proofs);
        }
        Ok(self)
    }

    /// Returns the proofs that were added.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([128]).mutable();
    /// assert!(ct::export(fill, (x,), ct::Target::SM_80, ct::aot::Format::Ptx)?.proofs().is_empty());
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn proofs(&self) -> &[StoredProof] {
        &self.proofs
    }

    /// Assembles the kernel into machine code for a target.
    ///
    /// Bytecode is assembled by `tileiras`, unless the result is in the disk cache. PTX is
    /// assembled by `ptxas` (`CUTLET_PTXAS`, or the one in the search path).
    ///
    /// # Errors
    /// * [`crate::Error::Unsupported`] at the user's locations for features that the target lacks;
    /// * [`crate::Error::Compile`] if the code is neither bytecode nor PTX, or not for this target;
    /// * [`crate::Error::NoDevice`] without an assembler.
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// let fill = |x: ct::ArrayMut<f32, 1>| x.store(ct::bid(0), ct::zeros([128]));
    /// let x = ct::ArraySpec::<f32, 1>::new([1024]).mutable();
    /// let target = ct::Target::SM_90A;
    /// let file = ct::export(fill, (x,), target, ct::aot::Format::TileIr(None))?;
    /// match file.assemble("sm_90".parse().unwrap()) {
    ///     Ok(cubin) => assert_eq!(&cubin[1..4], b"ELF"),
    ///     Err(error) => println!("{error}"), // no `tileiras` here
    /// }
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn assemble(&self, target: Target) -> Result<Vec<u8>> {
        if self.source.format == Format::Ptx {
            return machine_code(&self.entry, &String::from_utf8_lossy(&self.bytes), target, self.source.hints);
        }
        let assembly = assembly(self.source.hints);
        Ok(assembled(&self.entry, (&self.bytes, assembly), target, |_| Ok(()))?.0)
    }

    /// Returns true if the kernel can be launched with this grid and these parameters (in order,
    /// one word each).
    ///
    /// Returns false in these cases:
    /// * a tile index might be outside of its array, and the kernel does not check it;
    /// * a condition of the kernel ([`require`](fn@crate::require)) does not hold;
    /// * the grid is beyond the limits (see [`Grid`](crate::Grid)).
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// fn copy(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
    ///     y.store(ct::bid(0), x.load(ct::bid(0), [128]));
    /// }
    ///
    /// let x = ct::ArraySpec::<f32, 1>::new([1000]);
    /// let file = ct::export(copy, (x, x.mutable()), "sm_100".parse().unwrap(), ct::aot::Format::TileIr(None))?;
    /// let params = [0, 1000, 1, 0, 1000, 1];
    /// assert!(file.fits(8, &params) && !file.fits(9, &params));
    /// assert!(file.guarded()?.fits(9, &params));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Panics
    /// If `params` has fewer words than the kernel has parameters.
    pub fn fits(&self, grid: impl IntoGrid, params: &[ParamWord]) -> bool {
        let generator = match self.source.format {
            Format::TileIr(_) | Format::Cubin => Backend::TileIr,
            Format::Ptx => Backend::Ptx,
        };
        let Ok(Some(grid)) = grid.into_grid().checked(generator) else { return false };
        let required = self.source.required.as_ref();
        required.is_none_or(|required| required.check(grid, params).is_ok()) && self.checks.hold(grid, params)
    }

    /// Returns the same kernel with bounds checks in the code, for launches of any grid in the
    /// limits.
    ///
    /// # Errors
    /// As [`export`].
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// let fill = |x: ct::ArrayMut<f32, 1>| x.store(ct::bid(0), ct::zeros([128]));
    /// let x = ct::ArraySpec::<f32, 1>::new([1000]).mutable();
    /// let file = ct::export(fill, (x,), ct::Target::SM_90A, ct::aot::Format::TileIr(None))?;
    /// assert!(!file.fits(9, &[0, 1000, 1]) && file.guarded()?.fits(9, &[0, 1000, 1]));
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    pub fn guarded(&self) -> Result<ExportedKernel> {
        let mut guarded = emit(self.source.clone(), Guards::Kernel)?;
        guarded.proofs.clone_from(&self.proofs);
        if self.source.format == Format::Ptx && !self.proofs.is_empty() {
            append(&mut guarded.bytes, &self.proofs);
        }
        Ok(guarded)
    }
}

/// Compiles a kernel for a target into a form for use outside of this process. `args` are the
/// arguments of a launch; [`crate::ArraySpec`] represents an array that does not exist.
///
/// ```
/// use cutlet as ct;
///
/// fn copy(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
///     y.store(ct::bid(0), x.load(ct::bid(0), [128]));
/// }
///
/// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
/// let file = ct::export(copy, (x, x.mutable()), "sm_100".parse().unwrap(), ct::aot::Format::TileIr(None))?;
/// assert_eq!(&file.bytes[..7], b"\x7FTileIR");
/// assert_eq!((file.entry.as_str(), file.params.len()), ("copy", 6));
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// * [`crate::Error::Kernel`] with all errors of the kernel;
/// * [`crate::Error::Unsupported`] with all features that the target or version lacks;
/// * [`crate::Error::NoDevice`] for a cubin without an assembler.
///
/// # Panics
/// If the kernel panics during tracing.
#[track_caller]
pub fn export<K, A, P>(kernel: K, args: A, target: Target, format: Format) -> Result<ExportedKernel>
where
    K: Kernel<P>,
    A: KernelArgs<P>,
{
    Launch::new(1).export(kernel, args, target, format)
}

impl Launch<'_> {
    /// [`export`] with the hints and the mode of this launch. Its grid is ignored.
    ///
    /// # Errors
    /// As [`export`].
    ///
    /// # Panics
    /// As [`export`].
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// let fill = |x: ct::ArrayMut<f32, 1>| x.store(ct::bid(0), ct::zeros([1024]));
    /// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]).mutable();
    /// let launch = ct::Launch::new(1).hints(ct::Hints::new().num_warps(4));
    /// assert_eq!(launch.export(fill, (x,), ct::Target::SM_90A, ct::aot::Format::Ptx)?.threads, 128);
    /// # Ok::<(), cutlet::Error>(())
    /// ```
    #[track_caller]
    pub fn export<K, A, P>(&self, kernel: K, args: A, target: Target, format: Format) -> Result<ExportedKernel>
    where
        K: Kernel<P>,
        A: KernelArgs<P>,
    {
        self.export_call(&Bound::new(&kernel, &Arguments::new(args)).call(), target, format)
    }

    /// As [`Launch::export`].
    #[track_caller]
    pub(crate) fn export_call(&self, call: &Call<'_>, target: Target, format: Format) -> Result<ExportedKernel> {
        check_hints(self.hints)?;
        let name = call.name();
        let traced = call.trace(&name)?;
        let trace = Scene::digest(&traced);
        let (module, required) = optimize(&name, traced, PassMode::OPTIMIZED.exact(self.exact))?;
        check_determinism(&module, self.hints)?;
        let source = Source { module, required, target, format, hints: self.hints, trace };
        emit(Arc::new(source), Guards::Launch)
    }
}

fn emit(source: Arc<Source>, guards: Guards) -> Result<ExportedKernel> {
    let Source { module, target, format, hints, .. } = &*source;
    let version = match format {
        Format::Ptx => return emit_ptx(source),
        Format::TileIr(version) => *version,
        Format::Cubin => None,
    };
    let code = tileir::compile(module, *target, &tileir::CompileOptions { version, guards, hints: *hints })?;
    let bytes = match format {
        Format::Cubin => assembled(&code.entry, (&code.bytecode, assembly(*hints)), *target, |_| Ok(()))?.0,
        Format::TileIr(_) | Format::Ptx => code.bytecode,
    };
    let param = |p: &tileir::Param| ExportedParam { bytes: p.bytes, pointer: p.pointer, tensor_map: None };
    Ok(ExportedKernel {
        bytes,
        entry: code.entry,
        params: code.params.iter().map(param).collect_vec(),
        threads: 1,
        shared_bytes: 0,
        failure_bytes: 0,
        limits: code.conditions.limits.clone(),
        checks: Arc::new(GuardCheck::new(code.conditions, &code.params)),
        source,
        proofs: Vec::new(),
    })
}

fn emit_ptx(source: Arc<Source>) -> Result<ExportedKernel> {
    // The grid of a launch of the file is unknown, so clusters are not possible.
    let hints = Hints { num_ctas: None, trace: false, ..source.hints };
    let code = settled(&source.module, source.target, hints, TensorMapUse::Allowed)?;
    // The parameters of an entry are those of the trace, in order.
    let pointers = tileir::params(&source.module);
    let param = |kind: &ParamKind| match kind {
        &ParamKind::Word { index, bytes } => {
            ExportedParam { bytes, pointer: pointers[index as usize].pointer, tensor_map: None }
        }
        ParamKind::Failure | ParamKind::Trace => ExportedParam { bytes: 8, pointer: true, tensor_map: None },
        ParamKind::TensorMap(map) => ExportedParam { bytes: MAP_BYTES, pointer: false, tensor_map: Some(map.clone()) },
    };
    Ok(ExportedKernel {
        bytes: code.text.into_bytes(),
        entry: code.entry,
        params: code.params.iter().map(param).collect_vec(),
        threads: code.threads,
        shared_bytes: code.shared_bytes,
        failure_bytes: code.failures.words() as u32 * 4,
        limits: Vec::new(),
        checks: Arc::new(GuardCheck::new(LaunchConditions::default(), &pointers)),
        source,
        proofs: Vec::new(),
    })
}
