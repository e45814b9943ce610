//! Proofs of properties of a kernel for one launch.

use std::fmt;
use std::sync::OnceLock;

use super::grid::IntoGrid;
use super::inspect::remarks::Remarks;
use super::options::Launch;
use crate::error::{Diagnostic, Error, Result};
use crate::kernel::{Arguments, Bound, Call, Kernel, KernelArgs, WordWriter};
use crate::pass::{self, Argument, Property, Verdict};
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
/// * [`Error::Argument`] for a grid beyond the limits.
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
    let properties: Vec<Property> = properties.into_iter().collect();
    prove_call(&Bound::new(&kernel, &Arguments::new(args)).call(), Launch::new(grid), &properties)
}

#[track_caller]
pub(super) fn prove_call(call: &Call<'_>, launch: Launch<'_>, properties: &[Property]) -> Result<Proof> {
    let name = call.name();
    let module = call.trace(&name)?;
    let grid = launch.grid.checked(Backend::Ptx)?.unwrap_or([0; 3]);
    let mut words = WordWriter::default();
    call.args().pack(&mut |word| words.push(word));
    let mut forms = Vec::new();
    call.args().forms(&mut forms);
    let mut allocations: Vec<(u64, u64)> = Vec::new();
    call.args().memory(&mut |used| allocations.push((used.memory().address(), used.memory().len() as u64)));
    let within = |word: u64| {
        let behind = |&(address, bytes): &(u64, u64)| (address..address + bytes).contains(&word);
        allocations.iter().find(|allocation| behind(allocation)).map(|(address, bytes)| address + bytes - word)
    };
    let names =
        (1..).zip(&forms).flat_map(|(number, form)| std::iter::repeat_n(format!("argument {number}"), form.words()));
    let argument = |(name, &word): (String, &u64)| Argument { name, bytes: within(word) };
    let arguments: Vec<Argument> = names.zip(words.words()).map(argument).collect();
    let verdicts = pass::prove(&module, &module.entries[0], grid, (words.words(), &arguments), properties);
    Ok(Proof { kernel: name, verdicts })
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
    pub(super) fn say_proof(&self, call: &Call<'_>, remarks: &Remarks) {
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
}

impl Proof {
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
        let problem = |(property, verdict): &(Property, Verdict)| {
            let (found, what): (&Diagnostic, _) = match verdict {
                Verdict::Proved => return None,
                Verdict::Refuted(case) => (&case.diagnostic, "does not hold"),
                Verdict::Unknown(reason) => (reason, "is not proved"),
            };
            Some(found.clone().note(format!("the property `{property}` of `{}` {what}", self.kernel)))
        };
        let problems: Vec<Diagnostic> = self.verdicts.iter().filter_map(problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(Error::Kernel(problems)) }
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
