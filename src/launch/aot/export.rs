//! Kernels for use from elsewhere: as Tile IR bytecode, cubin or PTX, without a device.

use std::sync::Arc;

use crate::backend::ptx::tensor_map::{MAP_BYTES, TensorMap};
use crate::backend::ptx::{self, ParamKind};
use crate::backend::tileir::{self, Guards, Limit, Promises, Version};
use crate::backend::{Hints, ParamWord};
use crate::error::Result;
use crate::ir::Module;
use crate::kernel::{Arguments, Bound, Call, IntoKernelArg, Kernel};
use crate::launch::compile::check_hints::{assembly, check_hints};
use crate::launch::compile::launch_conditions::Checks;
use crate::launch::compile::offline_ptxas::{machine_code, settled};
use crate::launch::compile::preconditions::Requirements;
use crate::launch::compile::ptx::Maps;
use crate::launch::compile::tileir::assembled;
use crate::launch::grid::Grid;
use crate::launch::inspect::text::traced;
use crate::launch::options::Launch;
use crate::runtime::Backend;
use crate::target::Target;

/// Form of an exported kernel.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
/// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
/// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::zeros([1024]));
/// let exported = ct::export(fill, (x.mutable(),), ct::Target::SM_90A, ct::aot::Format::Ptx)?;
/// assert!(String::from_utf8_lossy(&exported.bytes).contains(".entry"));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Tile IR bytecode of this version, or of the lowest that will do.
    TileIr(Option<Version>),
    /// Machine code made by `tileiras` from bytecode.
    Cubin,
    /// PTX made by this crate: what a launch runs (without clusters), as far as an assembler is at hand (the driver's, where
    /// a GPU of the target is there, else `ptxas`) that tells whether the registers suffice.
    Ptx,
}

/// One parameter of an exported kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExportedParam {
    /// Width in bytes: 1, 2, 4 or 8; 128 for a tensor map.
    pub bytes: u32,
    /// Is it an address in device memory?
    pub pointer: bool,
    /// Is it a tensor map? Then this is how to make it.
    pub tensor_map: Option<TensorMap>,
}

/// Exported kernel: code in the form of a file, and the parameters and conditions of its launches.
///
/// # Launching it
/// Parameters are passed one after another, in the order of the arguments: a number as itself; a
/// [`RawPtr`](crate::RawPtr) as its address, a number of 8 bytes; an array of R dimensions as its address, R extents and
/// R strides (in elements; i32, or i64 for arrays whose offsets need it); an [`ArrayTable`](crate::ArrayTable) as the
/// addresses of its list and of its first array, and the number of arrays (i32), where the list has 1 + 2 R numbers
/// (i64) for each array: bytes from the first array to this one, extents, strides. Strides that are compiled in are passed, too. What the kernel was compiled for must
/// hold: alignment of addresses to 16 bytes, strides of 1, divisibility by 16, as the arguments of
/// [`export`] had them, and every [`Limit`].
///
/// [`Global`](crate::Global)s are in the file: whoever loads it has an instance of them for each time.
///
/// PTX of a kernel with assertions takes one address more: 0, and failures are not noticed; or that of
/// [`ExportedKernel::failure_bytes`] zeroed bytes, whose first word (u32) is 2 after a failure.
///
/// PTX for sm_90 and later may take tensor maps after these parameters: 128 bytes each, passed by value at an
/// alignment of 64. The launcher makes them from the parameters before them: [`TensorMap::resolve`] takes those
/// as words, in the order above, and gives what `cuTensorMapEncodeTiled` asks for (element strides of 1, no
/// interleave, no fill).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExportedKernel {
    /// The file.
    pub bytes: Vec<u8>,
    /// Name of the kernel in the file.
    pub entry: String,
    /// Parameters in order.
    pub params: Vec<ExportedParam>,
    /// Threads of a block at launch. For bytecode and for cubins of `tileiras` this is 1: the driver knows how
    /// many there really are, and refuses any other number.
    pub threads: u32,
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// Bytes of a note of a failed assertion: of PTX with assertions, else 0.
    pub failure_bytes: u32,
    /// What must hold at each launch, so that no tile lies outside of its array, as far as it is a comparison of
    /// two numbers; [`ExportedKernel::fits`] is all of it.
    pub limits: Vec<Limit>,
    checks: Arc<Checks>,
    source: Arc<Source>,
}

/// What a kernel is exported from.
#[derive(Debug)]
struct Source {
    module: Module,
    required: Option<Requirements>,
    target: Target,
    format: Format,
    hints: Hints,
}

impl ExportedKernel {
    /// Machine code of exported bytecode for a target: from the disk cache, or made by `tileiras`; of exported PTX, made by
    /// `ptxas` (that of `CUTLET_PTXAS`, or of the search path).
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] at the user's places for what the target lacks,
    /// [`crate::Error::Compile`] when this is neither, or not for this target, [`crate::Error::NoDevice`] without an
    /// assembler.
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

    /// May the kernel be launched with this grid and these parameters (in order, one word each)? If not,
    /// some tile index might be outside of its array, about which the kernel does not ask; or a condition of the kernel
    /// ([`require`](fn@crate::require)) does not hold; or the grid is beyond the limits (see [`Grid`]).
    ///
    /// ```
    /// use cutlet as ct;
    ///
    /// fn copy(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
    ///     y.store([ct::bid(0)], x.load([ct::bid(0)], [128]));
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
    /// When there are fewer words than parameters.
    pub fn fits(&self, grid: impl Into<Grid>, params: &[ParamWord]) -> bool {
        let generator = match self.source.format {
            Format::TileIr(_) | Format::Cubin => Backend::TileIr,
            Format::Ptx => Backend::Ptx,
        };
        let Ok(Some(grid)) = grid.into().checked(generator) else { return false };
        let required = self.source.required.as_ref();
        required.is_none_or(|required| required.check(grid, params).is_ok()) && self.checks.hold(grid, params)
    }

    /// The same kernel with guards, for launches of any grid within the limits.
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
        emit(self.source.clone(), Guards::Kernel)
    }
}

/// Compiles a kernel for a target into a form for use from elsewhere. `args` are the arguments of a
/// launch; [`crate::ArraySpec`] stands for arrays that do not exist.
///
/// ```
/// use cutlet as ct;
///
/// fn copy(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>) {
///     y.store([ct::bid(0)], x.load([ct::bid(0)], [128]));
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
/// [`crate::Error::Kernel`] with everything that is wrong in the kernel, [`crate::Error::Unsupported`]
/// with everything that target or version lack, [`crate::Error::NoDevice`] when a cubin is asked for and
/// there is no assembler.
///
/// # Panics
/// When the kernel panics while it is traced.
#[track_caller]
pub fn export<K, A, P>(kernel: K, args: A, target: Target, format: Format) -> Result<ExportedKernel>
where
    K: Kernel<P>,
    A: IntoKernelArg<P>,
{
    Launch::new(1).export(kernel, args, target, format)
}

impl Launch<'_> {
    /// [`export`] with the hints of this launch. Its grid does not matter.
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
        A: IntoKernelArg<P>,
    {
        self.export_call(&Bound::new(&kernel, &Arguments::of(args)).call(), target, format)
    }

    /// As [`Launch::export`].
    #[track_caller]
    pub(crate) fn export_call(&self, call: &Call<'_>, target: Target, format: Format) -> Result<ExportedKernel> {
        check_hints(self.hints)?;
        let (module, required) = traced(call)?;
        let source = Source { module, required, target, format, hints: self.hints };
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
        params: code.params.iter().map(param).collect(),
        threads: 1,
        shared_bytes: 0,
        failure_bytes: 0,
        limits: code.promises.limits.clone(),
        checks: Arc::new(Checks::new(code.promises, &code.params)),
        source,
    })
}

fn emit_ptx(source: Arc<Source>) -> Result<ExportedKernel> {
    // A file is launched with any grid: without clusters.
    let hints = Hints { num_ctas: None, ..source.hints };
    let code = settled(&source.module, source.target, hints, Maps::Allowed)?;
    // An entry's parameters are those of the trace, one after another.
    let pointers = tileir::params(&source.module);
    let param = |kind: &ParamKind| match kind {
        &ParamKind::Word { index, bytes } => {
            ExportedParam { bytes, pointer: pointers[index as usize].pointer, tensor_map: None }
        }
        ParamKind::Failure => ExportedParam { bytes: 8, pointer: true, tensor_map: None },
        ParamKind::TensorMap(map) => ExportedParam { bytes: MAP_BYTES, pointer: false, tensor_map: Some(map.clone()) },
    };
    Ok(ExportedKernel {
        bytes: code.text.into_bytes(),
        entry: code.entry,
        params: code.params.iter().map(param).collect(),
        threads: code.threads,
        shared_bytes: code.shared_bytes,
        failure_bytes: ptx::note_words(&code.assertions) as u32 * 4,
        limits: Vec::new(),
        checks: Arc::new(Checks::new(Promises::default(), &pointers)),
        source,
    })
}
