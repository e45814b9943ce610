//! Bundles: file format, and selection of the kernel that matches the arguments of a launch.

use crate::util::collect::CollectVec as _;
use std::fmt;
use std::path::Path;

use hmac_sha256::Hash as Sha256;

use super::entry::BundledKernel;
use super::wire::{Read, Reader, Writer};
use crate::error::{Diagnostic, Error, Location, Result};
use crate::kernel::ArgSignature;
use crate::launch::file::replace;

/// First bytes of a file; the digit is the version of the format.
const MAGIC: &[u8; 8] = b"cutletB5";

/// Bytes of the SHA-256 checksum at the end, over all preceding bytes.
const CHECKSUM_BYTES: usize = 32;

/// Version of this crate, which makes and reads bundles.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Compiled kernels for several targets and forms of arguments, made by a
/// [`Bundler`](crate::aot::Bundler), mostly in a build script, and included in the program
/// ([`include_bundle!`](crate::include_bundle)). A launch from it traces nothing and needs no
/// source of the kernel.
///
/// ```
/// # use cutlet::doctest::*;
/// fn scale(x: Array<f32, 1>, y: ArrayMut<f32, 1>, factor: Scalar<f32>, tile: usize) {
///     y.store(ct::bid(0), x.load(ct::bid(0), [tile]) * factor);
/// }
///
/// // In a build script:
/// let x = ct::ArraySpec::<f32, 1>::new([1 << 20]);
/// let mut bundler = ct::aot::Bundler::new([ct::Target::SM_80, ct::Target::SM_90A]);
/// bundler.add(scale, (x, x.mutable(), 1.0f32, ct::Constant(64)))?;
/// let bytes = bundler.finish()?.to_bytes();
///
/// // In the program, which has the bytes by `include_bundle!`:
/// // SAFETY: they are the bytes of a bundle that this program made.
/// let bundle = unsafe { ct::aot::Bundle::from_bytes(&bytes) }?;
/// let device = ct::Device::cpu();
/// let (x, mut y) = (device.full([1024], 1.5f32)?, device.zeros::<f32, 1>([1024])?);
/// bundle.launch("scale", 16, (&x, &mut y, 2.0f32, ct::Constant(64usize)))?;
/// assert_eq!(y.to_vec()?, [3.0; 1024]);
///
/// let error = bundle.launch("scale", 16, (&x, &mut y, 2.0f32, ct::Constant(128usize))).unwrap_err();
/// assert!(error.to_string().contains("argument 3 is Constant(128: usize)"), "{error}");
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # What fits
/// An entry matches the arguments of a launch under these conditions:
/// * The arguments have the types of the entry, and constants have its values. A constant of a user
///   type is identified by the name of its type and the output of its `Hash`.
/// * All assumptions of the code hold for the arrays. Code for arrays at multiples of 16 bytes
///   accepts no others; code for any arrays accepts both. An [`ArraySpec`](crate::ArraySpec) of odd
///   extents that is [`unaligned`](crate::ArraySpec::unaligned) results in an entry for any
///   row-major array.
///
/// If several entries match, the one with the most assumptions is launched.
///
/// # What runs
/// A GPU executes the code of the latest architecture that it supports. This is machine code if the
/// bundle has it, else PTX or Tile IR, which the driver compiles at the first launch. Code of the
/// ptx back end has no clusters. Code for Tile IR checks the bounds of tiles itself. On the cpu
/// device, the interpreter executes the module that the code was generated from.
pub struct Bundle {
    pub(super) kernels: Vec<BundledKernel>,
}

impl Bundle {
    /// Reads a bundle.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([64]).mutable();
    /// let bytes = ct::aot::Bundler::new([ct::Target::SM_80]).add_as("fill", fill, (x,))?.finish()?.to_bytes();
    /// // SAFETY: a bundle's own bytes.
    /// assert_eq!(unsafe { ct::aot::Bundle::from_bytes(&bytes) }?.kernels().len(), 1);
    /// // SAFETY: these are changed by accident at most.
    /// assert!(unsafe { ct::aot::Bundle::from_bytes(&bytes[1..]) }.is_err());
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for bytes that are no bundle, that were changed after its creation, or
    /// that another version of this crate made.
    ///
    /// # Safety
    /// The bytes are the result of [`Bundle::to_bytes`], or differ from it by accident only, which
    /// a checksum detects. The bytes contain code, which executes with the rights of this program;
    /// forged bytes may do anything.
    #[track_caller]
    pub unsafe fn from_bytes(bytes: &[u8]) -> Result<Bundle> {
        checked(bytes).and_then(read).map_err(|problem| Error::argument(format!("this is no bundle: {problem}")))
    }

    /// Returns the bundle as bytes. Equal kernels result in equal bytes.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// assert!(ct::aot::Bundler::new([]).finish()?.to_bytes().starts_with(b"cutletB5"));
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut to = Writer(MAGIC.to_vec());
        to.text(VERSION);
        to.list(&self.kernels, |to, kernel| kernel.write(to));
        let sum = Sha256::hash(&to.0);
        to.0.extend(sum);
        to.0
    }

    /// Writes the bundle to a file by atomic replacement: a reader never gets a part of it. Missing
    /// folders are created.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let path = std::env::temp_dir().join("empty.bundle");
    /// ct::aot::Bundler::new([]).finish()?.write(&path)?;
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        replace(path.as_ref(), &self.to_bytes())
    }

    /// Returns the kernels, in the order in which they were added.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([64]).mutable();
    /// let bundle = ct::aot::Bundler::new([ct::Target::SM_80]).add_as("fill", fill, (x,))?.finish()?;
    /// assert_eq!(bundle.kernels()[0].name(), "fill");
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn kernels(&self) -> &[BundledKernel] {
        &self.kernels
    }

    /// Returns the most specific kernel of this name that matches arguments of these forms.
    ///
    /// # Errors
    /// [`Error::Argument`] at the caller's location if no kernel matches, with the reasons.
    #[track_caller]
    pub(super) fn find(&self, name: &str, given: &[ArgSignature]) -> Result<&BundledKernel> {
        let fits = |kernel: &&BundledKernel| kernel.name == name && takes(&kernel.forms, given).is_ok();
        let knows = |kernel: &&BundledKernel| kernel.forms.iter().map(ArgSignature::specificity).sum::<u32>();
        let (best, place) = (self.kernels.iter().rev().filter(fits).max_by_key(knows), Location::caller());
        best.ok_or_else(|| Error::Argument(self.misfit(name, given, place)))
    }

    /// Returns the reasons for which no kernel matches.
    #[cold]
    fn misfit(&self, name: &str, given: &[ArgSignature], place: Location) -> Diagnostic {
        let named: Vec<&BundledKernel> = self.kernels.iter().filter(|kernel| kernel.name == name).collect_vec();
        if named.is_empty() {
            let mut names: Vec<String> = self.kernels.iter().map(|kernel| format!("`{}`", kernel.name)).collect_vec();
            names.dedup();
            let message = format!("this bundle has no kernel `{name}`: it has {}", names.join(", "));
            return Diagnostic::new(message, Some(place));
        }
        let message = format!("kernel `{name}` of this bundle was made for other arguments");
        let problem = Diagnostic::new(message, Some(place));
        named.iter().fold(problem, |problem, kernel| match takes(&kernel.forms, given) {
            Ok(()) => problem,
            Err(reason) if problem.notes.iter().all(|note| note.message != reason) => problem.note(reason),
            Err(_) => problem,
        })
    }
}

/// Returns the reason if an entry does not accept these arguments.
fn takes(forms: &[ArgSignature], given: &[ArgSignature]) -> std::result::Result<(), String> {
    if forms.len() != given.len() {
        return Err(format!("it takes {} arguments, and the launch has {}", forms.len(), given.len()));
    }
    match forms.iter().zip(given).position(|(form, given)| !form.accepts(given)) {
        None => Ok(()),
        Some(at) => Err(format!("argument {at} is {}, the code is for {}", given[at], forms[at])),
    }
}

/// Returns the bytes between the magic number and the checksum.
fn checked(bytes: &[u8]) -> Read<&[u8]> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("it does not begin as one")?;
    let body = rest.len().checked_sub(CHECKSUM_BYTES).ok_or("it ends too early")?;
    let (whole, sum) = bytes.split_at(MAGIC.len() + body);
    if Sha256::hash(whole) != *sum {
        return Err("its bytes were changed: the checksum is another one".into());
    }
    Ok(&rest[..body])
}

/// Decodes the checked bytes of a file.
pub(super) fn read(body: &[u8]) -> Read<Bundle> {
    let mut from = Reader::new(body);
    let version = from.text()?;
    if version != VERSION {
        return Err(format!("it is of cutlet {version}, and this is cutlet {VERSION}: build it again"));
    }
    let kernels = from.list(BundledKernel::read)?;
    if from.is_empty() { Ok(Bundle { kernels }) } else { Err("something follows after its end".into()) }
}

/// Writes the kernels with their arguments, targets and sizes.
impl fmt::Display for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "cutlet {VERSION}")?;
        self.kernels.iter().try_for_each(|kernel| writeln!(f, "{kernel}"))
    }
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.kernels).finish()
    }
}

/// Includes the [`Bundle`](crate::aot::Bundle) of a file in the program, with the paths of
/// `include_bytes!`. The file is mostly the output of a build script.
///
/// ```
/// // Another file is an error.
/// let error = cutlet::include_bundle!(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap_err();
/// assert!(error.to_string().contains("bundle"), "{error}");
/// ```
///
/// With the output of a build script:
///
/// ```text
/// let kernels = cutlet::include_bundle!(concat!(env!("OUT_DIR"), "/kernels.bundle"))?;
/// kernels.launch("scale", 16, (&x, &mut y, 2.0f32, cutlet::Constant(64usize)))?;
/// ```
#[macro_export]
macro_rules! include_bundle {
    ($path:expr $(,)?) => {{
        // SAFETY: the file is part of the program, like its sources.
        #[allow(unsafe_code)]
        unsafe {
            $crate::aot::Bundle::from_bytes(include_bytes!($path))
        }
    }};
}
