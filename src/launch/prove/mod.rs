//! Proofs of properties of a kernel for one launch.

pub(super) mod for_all;
pub(super) mod proved;

use crate::util::collect::CollectVec as _;
use std::fmt;
use std::sync::OnceLock;

use super::compile::preconditions::Preconditions;
use super::grid::IntoGrid;
use super::inspect::remarks::Remarks;
use super::options::Launch;
use crate::error::{Diagnostic, Error, Result};
use crate::ir::{Module, PrintOptions, Value};
use crate::kernel::{Arguments, Bound, Call, Kernel, KernelArgs, WordBuffer};
use crate::pass::{self, Argument, Property, Symbol, Verdict};
use crate::runtime::Backend;
use crate::util::report;

/// Decides properties of a launch for all contents of its arrays, without executing it.
///
/// The grid, the extents and strides of the arrays, the numbers and constants are those of the
/// arguments. [`ArraySpec`](crate::ArraySpec) describes arrays that do not exist.
///
/// A test of a kernel is one line:
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// fn vadd(a: Array<f32, 1>, b: Array<f32, 1>, c: ArrayMut<f32, 1>) {
///     let i = ct::bid(0);
///     c.store(i, a.load(i, [256]) + b.load(i, [256]));
/// }
///
/// let x = ct::ArraySpec::<f32, 1>::new([1000]);
/// ct::prove(vadd, 4, (x, x, x.mutable()), ct::Property::ALL)?.require()?;
///
/// // With one tile block less, elements are not stored.
/// let proof = ct::prove(vadd, 3, (x, x, x.mutable()), [ct::Property::Covers])?;
/// let error = proof.require().unwrap_err().to_string();
/// assert!(error.contains("no tile block stores element [768]"), "{error}");
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// * [`Error::Kernel`] with all errors of the kernel;
/// * [`Error::Argument`] for a grid beyond the limits, and for a launch that does not satisfy the
///   conditions of [`require!`](crate::require!).
///
/// # Panics
/// If the kernel panics during tracing.
#[track_caller]
pub fn prove<K, A, P>(
    kernel: K,
    grid: impl IntoGrid,
    args: A,
    properties: impl IntoIterator<Item = Property>,
) -> Result<Proof>
where
    K: Kernel<P>,
    A: KernelArgs<P>,
{
    let properties: Vec<Property> = properties.into_iter().collect_vec();
    prove_call(&Bound::new(&kernel, &Arguments::new(args)).call(), Launch::new(grid), &properties)
}

#[track_caller]
pub(super) fn prove_call(call: &Call<'_>, launch: Launch<'_>, properties: &[Property]) -> Result<Proof> {
    let name = call.name();
    let module = call.trace(&name)?;
    let grid = launch.grid.checked(Backend::Ptx)?.unwrap_or([0; 3]);
    let (words, mut arguments) = proof_arguments(call);
    refuse_symbols(call)?;
    check_conditions(&name, &module, grid, words.words())?;
    let mut allocations: Vec<(u64, u64)> = Vec::new();
    call.args().memory(&mut |used| allocations.push((used.memory().address(), used.memory().len() as u64)));
    let within = |word: u64| {
        let behind = |&(address, bytes): &(u64, u64)| (address..address + bytes).contains(&word);
        allocations.iter().find(|allocation| behind(allocation)).map(|(address, bytes)| address + bytes - word)
    };
    arguments.iter_mut().zip(words.words()).for_each(|(argument, &word)| argument.bytes = within(word));
    let verdicts = pass::prove(&module, &module.entries[0], grid, (words.words(), &arguments), properties);
    let [x, y, z] = grid;
    let is_number = |value: &Value| module.ty(*value).as_tile().is_some_and(|(elem, _)| elem.dtype().is_some());
    let params = module.block(module.entries[0].body).args.iter();
    let numbers = params.zip(words.words()).filter(|(value, _)| is_number(value)).map(|(_, word)| word.to_string());
    let numbers: Vec<String> = numbers.collect_vec();
    let scene = Scene::new(&module, format!("grid ({x}, {y}, {z}) and numbers {}", numbers.join(", ")));
    Ok(Proof { kernel: name, verdicts, scene })
}

/// Checks the conditions of `require!` for a launch.
///
/// # Errors
/// [`Error::Argument`] at the location of the condition that does not hold.
pub(super) fn check_conditions(name: &str, module: &Module, grid: [u32; 3], words: &[u64]) -> Result<()> {
    if module.required.is_empty() || pass::satisfies_conditions(module, grid, words) == Some(true) {
        return Ok(());
    }
    let mut module = module.clone();
    match pass::split_preconditions(&mut module) {
        Some(checks) => Preconditions::new(name, &checks)?.check(grid, words),
        None => Ok(()),
    }
}

/// Refuses symbols, which have no value.
#[track_caller]
fn refuse_symbols(call: &Call<'_>) -> Result<()> {
    let mut any = false;
    call.args().pack(&mut |_| any |= Symbol::packed().is_some());
    if any {
        Err(Error::argument("an array with symbols as extents: `prove_for_all` decides all of them"))
    } else {
        Ok(())
    }
}

/// Returns true if `CUTLET_PROVE` is set. It is read once.
#[inline]
pub(super) fn wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("CUTLET_PROVE").is_some_and(|value| !value.is_empty() && value != "0"))
}

impl Launch<'_> {
    /// Writes the proofs of the first launch of a compiled kernel to standard error.
    #[cold]
    #[track_caller]
    pub(super) fn emit_proof_remark(&self, call: &Call<'_>, remarks: &Remarks) {
        if !remarks.is_first_proof() {
            return;
        }
        if let Ok(proof) = prove_call(call, *self, &Property::ALL) {
            report::requested(format_args!("{proof}"));
        }
    }
}

/// Verdicts about the properties of a launch, made by [`prove`]. `Display` writes a line for each
/// property, with the reasons.
///
/// ```
/// # use cutlet::doctest::*;
/// let x = ct::ArraySpec::<f32, 1>::new([64]).mutable();
/// let proof = ct::prove(|x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([16])), 4, (x,),
/// ct::Property::ALL)?; assert!(proof.to_string().contains("covers: proved"), "{proof}");
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Proof {
    kernel: String,
    verdicts: Vec<(Property, Verdict)>,
    scene: Scene,
}

impl Proof {
    pub(super) fn new(kernel: String, verdicts: Vec<(Property, Verdict)>, scene: Scene) -> Proof {
        Proof { kernel, verdicts, scene }
    }

    pub(crate) fn scene(&self) -> &Scene {
        &self.scene
    }

    /// Returns the verdicts, in the order of the requested properties.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([64]).mutable();
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([16]));
    /// let proof = ct::prove(fill, 5, (x,), [ct::Property::Bounds])?;
    /// assert!(matches!(proof.verdicts(), [(ct::Property::Bounds, ct::Verdict::Refuted(_))]));
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn verdicts(&self) -> &[(Property, Verdict)] {
        &self.verdicts
    }

    /// Returns the verdict about a property, `None` if it was not requested.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([64]).mutable();
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([16]));
    /// let proof = ct::prove(fill, 4, (x,), [ct::Property::NoRace])?;
    /// assert_eq!(proof.verdict(ct::Property::NoRace), Some(&ct::Verdict::Proved));
    /// # Ok::<(), ct::Error>(())
    /// ```
    pub fn verdict(&self, property: Property) -> Option<&Verdict> {
        self.verdicts.iter().find(|(other, _)| *other == property).map(|(_, verdict)| verdict)
    }

    /// Returns an error unless all properties are proved.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let x = ct::ArraySpec::<f32, 1>::new([64]).mutable();
    /// ct::prove(|x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([16])), 4, (x,),
    /// ct::Property::ALL)?.require()?;
    /// # Ok::<(), ct::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Kernel`] with the counter-example or the reason of each property that is not
    /// proved.
    pub fn require(&self) -> Result<()> {
        let is_proved = |(_, verdict): &(Property, Verdict)| *verdict == Verdict::Proved;
        if self.verdicts.iter().all(is_proved) { Ok(()) } else { Err(unproved(&self.kernel, self.verdicts.clone())) }
    }
}

/// Returns the error about the properties of a kernel that are not proved.
pub(super) fn unproved(kernel: &str, verdicts: impl IntoIterator<Item = (Property, Verdict)>) -> Error {
    let problem = |(property, verdict): (Property, Verdict)| {
        let (found, what): (Diagnostic, _) = match verdict {
            Verdict::Proved => return None,
            Verdict::Refuted(case) => (case.diagnostic, "does not hold"),
            Verdict::Unknown(reason) => (reason, "is not proved"),
        };
        Some(found.note(format!("the property `{property}` of `{kernel}` {what}")))
    };
    Error::Kernel(verdicts.into_iter().filter_map(problem).collect_vec())
}

/// Returns the parameter words of a call, and the names of the arguments that they belong to. The
/// sizes of allocations are unknown.
pub(super) fn proof_arguments(call: &Call<'_>) -> (WordBuffer, Vec<Argument>) {
    let mut words = WordBuffer::default();
    call.args().pack(&mut |word| words.push(word));
    let arguments = argument_names(call).into_iter().map(|name| Argument { name, bytes: None }).collect_vec();
    (words, arguments)
}

/// Returns the name of the argument of each parameter.
pub(super) fn argument_names(call: &Call<'_>) -> Vec<String> {
    let mut forms = Vec::new();
    call.args().forms(&mut forms);
    let names = (1..).zip(&forms).map(|(number, form)| (format!("argument {number}"), form.words()));
    names.flat_map(|(name, words)| std::iter::repeat_n(name, words)).collect_vec()
}

/// Subject of a proof: the code, and the launches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scene {
    /// SHA-256 of the text of the trace.
    pub trace: [u8; 32],
    /// The launches, in words.
    pub launches: String,
}

impl Scene {
    pub fn new(trace: &Module, launches: String) -> Scene {
        Scene { trace: Scene::digest(trace), launches }
    }

    /// Returns the digest of a trace, without the name of the kernel and the places of its lines.
    pub fn digest(trace: &Module) -> [u8; 32] {
        let mut unnamed = trace.clone();
        unnamed.entries.iter_mut().for_each(|entry| entry.name.clear());
        hmac_sha256::Hash::hash(unnamed.to_text(PrintOptions::default()).as_bytes())
    }
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (property, verdict) in &self.verdicts {
            write!(f, "{}: {property}: ", self.kernel)?;
            match verdict {
                Verdict::Proved => writeln!(f, "proved")?,
                Verdict::Refuted(case) => writeln!(f, "refuted: {}", case.diagnostic)?,
                Verdict::Unknown(reason) => writeln!(f, "unknown: {reason}")?,
            }
        }
        Ok(())
    }
}
