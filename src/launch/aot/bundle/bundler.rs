//! Making a bundle: tracing now, code for every target on all cores at the end.

use std::fmt;
use std::sync::{Mutex, OnceLock};

use super::entry::BundledKernel;
use super::file::Bundle;
use super::image::Image;
use crate::backend::Hints;
use crate::backend::ptx::ParamKind;
use crate::backend::tileir::{self, Guards};
use crate::error::{Error, Result};
use crate::ir::Module;
use crate::kernel::{ArgSignature, Arguments, Bound, Call, IntoKernelArg, Kernel, name_of};
use crate::launch::compile::check_hints::{assembly, check_hints};
use crate::launch::compile::offline_ptxas::{machine_code, settled};
use crate::launch::compile::ptx::Maps;
use crate::launch::compile::tileir::assembled;
use crate::launch::compile::{Form, optimise_apart};
use crate::launch::options::Launch;
use crate::launch::parallel::share;
use crate::target::Target;

/// First architecture whose drivers compile Tile IR.
const FIRST_TILE_IR: u32 = 100;

/// Makes a [`Bundle`]: names the targets, then the kernels, each with the arguments of a launch, where an
/// [`ArraySpec`](crate::ArraySpec) stands for each array. It needs no device.
///
/// Code for targets before sm_100 is PTX, code for later ones Tile IR bytecode. A GPU runs the code for an older target
/// without `a`, too.
///
/// ```
/// # use cutlet as ct;
/// # use cutlet::prelude::*;
/// fn fill(x: ArrayMut<f32, 1>, tile: usize) {
///     x.store(ct::bid(0), ct::ones([tile]));
/// }
///
/// let any = ct::ArraySpec::<f32, 1>::new([1001]).unaligned().mutable();
/// let aligned = ct::ArraySpec::<f32, 1>::new([1024]).mutable();
/// let mut bundler = ct::aot::Bundler::new([ct::Target::SM_80, "sm_100".parse().unwrap()]);
/// for tile in [64, 256] {
///     bundler.add(fill, (any, ct::Constant(tile)))?.add(fill, (aligned, ct::Constant(tile)))?;
/// }
/// let bundle = bundler.finish()?;
/// assert_eq!(bundle.kernels().len(), 4);
/// println!("{bundle}");
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone)]
pub struct Bundler {
    targets: Vec<Target>,
    machine_code: bool,
    jobs: Vec<Job>,
}

/// A kernel without code.
#[derive(Clone)]
struct Job {
    name: String,
    forms: Vec<ArgSignature>,
    hints: Hints,
    module: Module,
    required: Option<Module>,
}

impl Bundler {
    /// For these targets; none: for the cpu device alone.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// assert!(ct::aot::Bundler::new([ct::Target::SM_80]).finish()?.kernels().is_empty());
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn new(targets: impl IntoIterator<Item = Target>) -> Bundler {
        let mut all: Vec<Target> = Vec::new();
        targets.into_iter().for_each(|target| {
            if !all.contains(&target) {
                all.push(target);
            }
        });
        Bundler { targets: all, machine_code: false, jobs: Vec::new() }
    }

    /// Adds machine code for each target, made by `ptxas` and `tileiras`, which have to be there: it is loaded at once,
    /// by every driver that knows it. The code that it was made of stays in the bundle for other drivers.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([64]).mutable();
    /// let mut bundler = ct::aot::Bundler::new([ct::Target::SM_80]).with_machine_code();
    /// match bundler.add_as("fill", fill, (x,))?.finish() {
    ///     Ok(bundle) => assert!(bundle.to_string().contains("machine code")),
    ///     Err(error) => assert!(matches!(error, ct::Error::NoDevice(_))), // no `ptxas` here
    /// }
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn with_machine_code(self) -> Bundler {
        Bundler { machine_code: true, ..self }
    }

    /// A kernel for arguments of this form, under the name of its function.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// fn fill(x: ArrayMut<f32, 1>) {
    ///     x.store(ct::bid(0), ct::ones([64]));
    /// }
    ///
    /// let mut bundler = ct::aot::Bundler::new([]);
    /// bundler.add(fill, (ct::ArraySpec::new([64]).mutable(),))?;
    /// assert_eq!(bundler.finish()?.kernels()[0].name(), "fill");
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Kernel`] with everything that is wrong in the kernel, [`Error::Argument`] where the bundle has it
    /// already.
    ///
    /// # Panics
    /// When the kernel panics while it is traced.
    #[track_caller]
    pub fn add<K, A, P>(&mut self, kernel: K, args: A) -> Result<&mut Bundler>
    where
        K: Kernel<P>,
        A: IntoKernelArg<P>,
    {
        self.add_with(&Launch::new(1), &name_of::<K>(), kernel, args)
    }

    /// [`Bundler::add`] under another name.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([64]).mutable();
    /// assert_eq!(ct::aot::Bundler::new([ct::Target::SM_80]).add_as("fill", fill, (x,))?.finish()?.kernels()[0].name(), "fill");
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Bundler::add`].
    ///
    /// # Panics
    /// As [`Bundler::add`].
    #[track_caller]
    pub fn add_as<K, A, P>(&mut self, name: &str, kernel: K, args: A) -> Result<&mut Bundler>
    where
        K: Kernel<P>,
        A: IntoKernelArg<P>,
    {
        self.add_with(&Launch::new(1), name, kernel, args)
    }

    /// [`Bundler::add_as`] with the hints of a launch.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([64]).mutable();
    /// let launch = ct::Launch::new(1).hints(ct::Hints::new().num_warps(8));
    /// let bundle = ct::aot::Bundler::new([ct::Target::SM_80]).add_with(&launch, "fill", fill, (x,))?.finish()?;
    /// assert!(bundle.kernels()[0].ptx(ct::Target::SM_80).unwrap().contains("256"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Bundler::add`]; [`Error::Argument`] also for hints that no code can have.
    ///
    /// # Panics
    /// As [`Bundler::add`].
    #[track_caller]
    pub fn add_with<K, A, P>(&mut self, launch: &Launch<'_>, name: &str, kernel: K, args: A) -> Result<&mut Bundler>
    where
        K: Kernel<P>,
        A: IntoKernelArg<P>,
    {
        self.add_call(launch.hints, name, &Bound::new(&kernel, &Arguments::of(args)).call())?;
        Ok(self)
    }

    #[track_caller]
    fn add_call(&mut self, hints: Hints, name: &str, call: &Call<'_>) -> Result<()> {
        check_hints(hints)?;
        let mut forms = Vec::new();
        call.args().forms(&mut forms);
        if self.jobs.iter().any(|job| job.name == name && job.forms == forms) {
            return Err(Error::argument(format!(
                "kernel `{name}` is in this bundle already for arguments of this form: give one of them another name \
                 (`add_as`)"
            )));
        }
        let (module, required) = optimise_apart(name, call.trace(name)?, Form::Plain)?;
        self.jobs.push(Job { name: name.to_owned(), forms, hints, module, required });
        Ok(())
    }

    /// Makes the code.
    ///
    /// ```
    /// # use cutlet as ct;
    /// # use cutlet::prelude::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([64]).mutable();
    /// let bundle = ct::aot::Bundler::new([ct::Target::SM_80]).add_as("fill", fill, (x,))?.finish()?;
    /// assert_eq!(bundle.kernels()[0].targets().collect::<Vec<_>>(), [ct::Target::SM_80]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`] at the user's places for what a target lacks; [`Error::NoDevice`] without an assembler,
    /// and what it answers, where machine code is wished for.
    pub fn finish(&self) -> Result<Bundle> {
        let all: Vec<(usize, Target)> =
            (0..self.jobs.len()).flat_map(|job| self.targets.iter().map(move |&target| (job, target))).collect();
        let mut images = self.images(&all)?.into_iter();
        let kernels = self.jobs.iter().cloned().map(|Job { name, forms, hints, module, required }| BundledKernel {
            name,
            forms,
            hints,
            module,
            required,
            images: images.by_ref().take(self.targets.len()).collect(),
            loaded: Mutex::default(),
        });
        Ok(Bundle { kernels: kernels.collect() })
    }

    /// The code of each job for the target beside it, made by as many threads as the machine has.
    fn images(&self, all: &[(usize, Target)]) -> Result<Vec<Image>> {
        let images: Vec<OnceLock<Result<Image>>> = all.iter().map(|_| OnceLock::new()).collect();
        let work = |at: usize| {
            let (job, target) = all[at];
            images[at].set(image(&self.jobs[job], target, self.machine_code)).is_ok()
        };
        std::thread::scope(|scope| share(scope, all.len(), work));
        images.into_iter().map(|image| image.into_inner().expect("each has been made")).collect()
    }
}

impl fmt::Debug for Bundler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.jobs.iter().map(|job| job.name.as_str()).collect();
        f.debug_struct("Bundler").field("targets", &self.targets).field("kernels", &names).finish_non_exhaustive()
    }
}

fn image(job: &Job, target: Target, with_machine_code: bool) -> Result<Image> {
    if target.arch >= FIRST_TILE_IR {
        tile_ir(job, target, with_machine_code)
    } else {
        ptx(job, target, with_machine_code)
    }
}

fn ptx(job: &Job, target: Target, with_machine_code: bool) -> Result<Image> {
    // A bundle is launched with any grid: without clusters.
    let hints = Hints { num_ctas: None, ..job.hints };
    // Globals live in the code: there is one form of it, for arrays that have no maps, too.
    let code = settled(&job.module, target, hints, Maps::of(&job.module))?;
    let made = with_machine_code.then(|| machine_code(&job.name, &code.text, target, job.hints));
    Ok(Image {
        target,
        tile_ir: false,
        machine_code: made.transpose()?,
        code: code.text.into_bytes(),
        entry: code.entry,
        threads: code.threads,
        shared_bytes: code.shared_bytes,
        params: code.params,
        assertions: code.assertions,
    })
}

fn tile_ir(job: &Job, target: Target, with_machine_code: bool) -> Result<Image> {
    let options = tileir::CompileOptions { version: None, guards: Guards::Kernel, hints: job.hints };
    let code = tileir::compile(&job.module, target, &options)?;
    let made = with_machine_code
        .then(|| assembled(&code.entry, (&code.bytecode, assembly(job.hints)), target, |_| Ok(())))
        .transpose()?;
    let word = |(index, param): (usize, &tileir::Param)| ParamKind::Word { index: index as u32, bytes: param.bytes };
    Ok(Image {
        target,
        tile_ir: true,
        machine_code: made.map(|(code, ())| code),
        params: code.params.iter().enumerate().map(word).collect(),
        code: code.bytecode,
        entry: code.entry,
        threads: 1,
        shared_bytes: 0,
        assertions: Vec::new(),
    })
}
