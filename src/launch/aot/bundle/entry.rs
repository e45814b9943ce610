//! Kernel of a bundle: one form of its arguments, with code for each target.

use crate::util::collect::CollectVec as _;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::arg_forms::{read_form, read_hints, write_form, write_hints};
use super::image::Image;
use super::wire::{Read, Reader, Writer};
use crate::backend::{Hints, cpu, tileir};
use crate::cache::kernel_cache::Slot;
use crate::error::{Error, Result};
use crate::ir::{Module, verify};
use crate::kernel::ArgSignature;
use crate::launch::aot::stored_proof::{StoredProof, properties};
use crate::launch::compile::check_hints::assembly;
use crate::launch::compile::executable::{Code, Executable, GpuCode};
use crate::launch::compile::preconditions::Preconditions;
use crate::launch::compile::tileir_route::driver_compiles;
use crate::launch::compile::{ptx, tileir as tile};
use crate::launch::inspect::profile::Profiled;
use crate::launch::inspect::remarks::{Remarks, Stages};
use crate::launch::specialize::Specialized;
use crate::runtime::{Backend, Device, Gpu};
use crate::target::Target;

/// Kernel of a [`Bundle`](crate::aot::Bundle), for one form of its arguments.
///
/// ```
/// # use cutlet::doctest::*;
/// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
/// let bundle = ct::aot::Bundler::new([ct::Target::SM_80]).add_as("fill", fill, (ct::ArraySpec::new([64]).mutable(),))?.finish()?;
/// let kernel = &bundle.kernels()[0];
/// assert_eq!((kernel.name(), kernel.args().len()), ("fill", 1));
/// assert_eq!(kernel.targets().collect::<Vec<_>>(), [ct::Target::SM_80]);
/// # Ok::<(), ct::Error>(())
/// ```
pub struct BundledKernel {
    pub(super) name: String,
    pub(super) forms: Vec<ArgSignature>,
    pub(super) hints: Hints,
    /// Source of the code, for the cpu device and for arrays without tensor maps.
    pub(super) module: Module,
    /// Preconditions of launches, split off from the module.
    pub(super) required: Option<Module>,
    pub(super) images: Vec<Image>,
    pub(super) proofs: Vec<StoredProof>,
    /// Loaded kernels by device.
    pub(super) loaded: Mutex<Vec<(Device, Specialized)>>,
}

impl BundledKernel {
    /// Returns the name of the kernel, which selects it in a launch.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([64]).mutable();
    /// assert_eq!(ct::aot::Bundler::new([ct::Target::SM_80]).add_as("fill", fill, (x,))?.finish()?.kernels()[0].name(), "fill");
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the forms of the arguments. Lists of arguments are flattened.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([64]).mutable();
    /// let bundle = ct::aot::Bundler::new([ct::Target::SM_80]).add_as("fill", fill, (x,))?.finish()?;
    /// assert!(bundle.kernels()[0].args()[0].to_string().starts_with("ArrayMut<f32, 1> (address / 16"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn args(&self) -> &[ArgSignature] {
        &self.forms
    }

    /// Returns the hints of the code.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([64]).mutable();
    /// assert_eq!(ct::aot::Bundler::new([ct::Target::SM_80]).add_as("fill", fill, (x,))?.finish()?.kernels()[0].hints(), ct::Hints::new());
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn hints(&self) -> Hints {
        self.hints
    }

    /// Returns the targets of the code. The cpu device is always supported.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([64]).mutable();
    /// assert_eq!(ct::aot::Bundler::new([ct::Target::SM_80]).add_as("fill", fill, (x,))?.finish()?.kernels()[0].targets().count(), 1);
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn targets(&self) -> impl Iterator<Item = Target> {
        self.images.iter().map(|image| image.target)
    }

    /// Returns the proofs of the [`Bundler`](crate::aot::Bundler::add_proof). Their digest of the
    /// code was compared when the bundle was read.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([64]).mutable();
    /// let mut bundler = ct::aot::Bundler::new([]);
    /// bundler.add_as("fill", fill, (x,))?.add_proof(&ct::prove(fill, 1, (x,), [ct::Property::Bounds])?)?;
    /// let bundle = bundler.finish()?;
    /// assert_eq!(bundle.kernels()[0].proofs()[0].properties(), [ct::Property::Bounds]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn proofs(&self) -> &[StoredProof] {
        &self.proofs
    }

    /// Returns the digest of the code: the module, and the code for each target.
    fn digest(module: &str, images: &[Image]) -> [u8; 32] {
        let mut digest = hmac_sha256::Hash::new();
        digest.update(module.as_bytes());
        images.iter().for_each(|image| digest.update(&image.code));
        digest.finalize()
    }

    /// Returns the PTX for a target, which other programs can load. `None` if there is no code for
    /// the target, or it is Tile IR.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([64]).mutable();
    /// let bundle = ct::aot::Bundler::new([ct::Target::SM_80]).add_as("fill", fill, (x,))?.finish()?;
    /// assert!(bundle.kernels()[0].ptx(ct::Target::SM_80).unwrap().contains(".entry"));
    /// assert!(bundle.kernels()[0].ptx(ct::Target::SM_90A).is_none());
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn ptx(&self, target: Target) -> Option<&str> {
        let image = self.images.iter().find(|image| image.target == target && !image.tile_ir)?;
        std::str::from_utf8(&image.code).ok()
    }

    pub(super) fn write(&self, to: &mut Writer) {
        to.text(&self.name);
        to.list(&self.forms, write_form);
        write_hints(to, self.hints);
        let module = self.module.to_text(crate::ir::PrintOptions::with_locations());
        to.text(&module);
        let required = self.required.as_ref().map(|module| module.to_text(crate::ir::PrintOptions::with_locations()));
        to.option(required.as_deref(), Writer::text);
        to.list(&self.images, |to, image| image.write(to));
        to.list(&self.proofs, |to, proof| {
            to.text(&proof.names().join(", "));
            to.text(&proof.launches);
        });
        if !self.proofs.is_empty() {
            to.bytes(&BundledKernel::digest(&module, &self.images));
        }
    }

    pub(super) fn read(from: &mut Reader<'_>) -> Read<BundledKernel> {
        let name = from.text()?;
        let forms = from.list(read_form)?;
        let words = forms.iter().map(ArgSignature::words).sum();
        let hints = read_hints(from)?;
        let text = from.text()?;
        let module = read_module(&text, words)?;
        // Preconditions have the grid as three further parameters.
        let required = from.option(|from| read_module(&from.text()?, words + 3))?;
        let images = from.list(|from| Image::read(from, words))?;
        let proofs = from.list(|from| {
            let properties = properties(&from.text()?).ok_or("a proof of an unknown property")?;
            Ok(StoredProof { launches: from.text()?, properties })
        })?;
        if !proofs.is_empty() && from.bytes()? != BundledKernel::digest(&text, &images) {
            return Err("its proofs are about other code".into());
        }
        Ok(BundledKernel { name, forms, hints, module, required, images, proofs, loaded: Mutex::default() })
    }

    /// Returns the back end whose limits apply to the grid.
    pub(super) fn generator(&self, device: Device) -> Backend {
        match device.backend() {
            Backend::Cpu => Backend::Cpu,
            _ if self.images.iter().any(|image| image.tile_ir) => Backend::TileIr,
            _ => Backend::Ptx,
        }
    }

    /// Returns the slot of the kernel on a device. It may be empty.
    pub(super) fn slot(&self, device: Device) -> Specialized {
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, slot)) = loaded.iter().find(|(other, _)| *other == device) {
            return slot.clone();
        }
        let slot = Arc::new(Slot::unshared());
        loaded.push((device, slot.clone()));
        slot
    }

    /// Loads the kernel on a device.
    ///
    /// # Errors
    /// [`Error::Argument`] if the bundle has no code for the device; errors of the driver.
    pub(super) fn load(&self, device: Device) -> Result<Executable> {
        let required = self.required.as_ref().map(|checks| Preconditions::new(&self.name, checks)).transpose()?;
        let code = match device.as_gpu() {
            Some(gpu) => Code::Gpu(self.load_gpu(gpu)?),
            None => {
                let mut stages = Stages::default();
                let program = stages.time("code", || cpu::Program::compile(&self.module))?;
                let program = program.with_loop_limit(self.hints.loop_limit);
                Code::Cpu(Box::new(program), Remarks::of_interpreted(&self.name, stages))
            }
        };
        let profiled = Profiled::new(&self.name, device, &self.module);
        Ok(Executable {
            code,
            required: required.map(Box::new),
            races: None,
            unwritten: None,
            unchecked_stores: None,
            profiled,
        })
    }

    fn load_gpu(&self, gpu: &'static Gpu) -> Result<GpuCode> {
        let tile = driver_compiles(gpu) || tileir::Assembler::find().is_ok();
        let Some(image) = self.image_for(gpu.target(), tile) else {
            let all: Vec<String> = self.targets().map(|target| target.to_string()).collect_vec();
            return Err(Error::argument(format!(
                "kernel `{}` of this bundle has code for {}, and none of it runs on {} ({}): make the bundle for that \
                 target, too, or for an older one without `a`",
                self.name,
                if all.is_empty() { "no GPU".into() } else { all.join(", ") },
                gpu.target(),
                Device::from_gpu(gpu).name(),
            )));
        };
        let parts = (&image.code[..], image.machine_code_for(gpu.target()));
        if image.tile_ir {
            tile::load(&self.name, &self.module, gpu, (&image.entry, &image.params), parts, assembly(self.hints))
        } else {
            let code = ptx::PrebuiltPtx {
                text: std::str::from_utf8(parts.0).expect("checked when it was read"),
                machine_code: parts.1,
                entry: &image.entry,
                config: image.config(),
                params: &image.params,
                failures: &image.failures,
            };
            ptx::load(&self.name, &self.module, gpu, self.hints, code)
        }
    }

    /// Returns the best code for a GPU; `tile_ir`: bytecode is supported.
    pub(super) fn image_for(&self, gpu: Target, tile_ir: bool) -> Option<&Image> {
        let runs =
            |image: &&Image| image.runs_on(gpu) && (tile_ir || !image.tile_ir || image.machine_code_for(gpu).is_some());
        // The latest architecture; of one architecture, accelerated code of this GPU before other
        // code, then Tile IR.
        self.images.iter().filter(runs).max_by_key(|image| (image.target, image.tile_ir))
    }
}

impl fmt::Display for BundledKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forms: Vec<String> = self.forms.iter().map(ToString::to_string).collect_vec();
        write!(f, "{}({})", self.name, forms.join("; "))?;
        if self.hints != Hints::default() {
            write!(f, "\n  {:?}", self.hints)?;
        }
        for image in &self.images {
            let what = if image.tile_ir { "Tile IR" } else { "PTX" };
            write!(f, "\n  {}: {what}, {} bytes", image.target, image.code.len())?;
            if let Some(code) = &image.machine_code {
                write!(f, "; machine code, {} bytes", code.len())?;
            }
        }
        for proof in &self.proofs {
            write!(f, "\n  {proof}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for BundledKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BundledKernel({self})")
    }
}

/// Parses and verifies a module of one entry with `words` parameters.
fn read_module(text: &str, words: usize) -> Read<Module> {
    let module = Module::parse("a bundle", text).map_err(|problem| problem.to_string())?;
    verify(&module).map_err(|problems| problems[0].to_string())?;
    match &module.entries[..] {
        [entry] if module.block(entry.body).args.len() == words => Ok(module),
        _ => Err("a kernel with other parameters than its arguments have".into()),
    }
}
