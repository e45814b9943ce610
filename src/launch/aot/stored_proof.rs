//! Proofs that are kept with code: in bundles, with exported kernels, and in exported PTX.
//!
//! A proof is about a trace. The code that is made of the trace is identified by a digest, which a
//! reader compares with that of the code it has.

use crate::util::collect::CollectVec as _;
use std::fmt;

use hmac_sha256::Hash as Sha256;

use crate::error::{Error, Result};
use crate::launch::prove::Proof;
use crate::pass::{Property, Verdict};

/// Properties of a kernel that were proved when its code was made, and the launches that they hold
/// for.
///
/// ```
/// # use cutlet::doctest::*;
/// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
/// let n = ct::Symbol::new("n", 1..=1 << 20);
/// let x = ct::ArraySpec::symbolic([n]).mutable();
/// let proof = ct::prove_for_all(fill, [n.div_ceil(64)], (x,), ct::Property::ALL)?;
/// let file = ct::export(fill, (x,), ct::Target::SM_80, ct::aot::Format::Ptx)?.with_proof(&proof)?;
/// let stored = &ct::aot::proofs_in(&file.bytes)?[0];
/// assert_eq!(stored.properties(), ct::Property::ALL);
/// assert_eq!(stored.launches(), "grid (ceil(n / 64), 1, 1) for all n in 1..=1048576");
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredProof {
    pub(super) launches: String,
    pub(super) properties: Vec<Property>,
}

impl StoredProof {
    /// Returns what a proof states about the kernel of this trace.
    ///
    /// # Errors
    /// [`Error::Kernel`] if a property is not proved; [`Error::Argument`] for another trace.
    #[track_caller]
    pub(super) fn new(proof: &Proof, trace: [u8; 32]) -> Result<StoredProof> {
        proof.require()?;
        if proof.scene().trace != trace {
            return Err(Error::argument(
                "the proof is about another kernel, or about arguments of another form: prove the kernel with the \
                 arguments of the export",
            ));
        }
        let is_proved = |(_, verdict): &&(Property, Verdict)| *verdict == Verdict::Proved;
        let properties = proof.verdicts().iter().filter(is_proved).map(|(property, _)| *property).collect_vec();
        Ok(StoredProof { launches: proof.scene().launches.clone(), properties })
    }

    /// Returns the grid and the extents that the proof holds for, as text.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([64]).mutable();
    /// let proof = ct::prove(fill, 1, (x,), ct::Property::ALL)?;
    /// let file = ct::export(fill, (x,), ct::Target::SM_80, ct::aot::Format::Ptx)?.with_proof(&proof)?;
    /// assert_eq!(file.proofs()[0].launches(), "grid (1, 1, 1) and numbers 64, 1");
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn launches(&self) -> &str {
        &self.launches
    }

    /// Returns the properties.
    ///
    /// ```
    /// # use cutlet::doctest::*;
    /// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
    /// let x = ct::ArraySpec::new([64]).mutable();
    /// let proof = ct::prove(fill, 1, (x,), [ct::Property::Bounds])?;
    /// let file = ct::export(fill, (x,), ct::Target::SM_80, ct::aot::Format::Ptx)?.with_proof(&proof)?;
    /// assert_eq!(file.proofs()[0].properties(), [ct::Property::Bounds]);
    /// # Ok::<(), ct::Error>(())
    /// ```
    #[must_use]
    pub fn properties(&self) -> &[Property] {
        &self.properties
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.properties.iter().map(ToString::to_string).collect_vec()
    }
}

impl fmt::Display for StoredProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proved for {}: {}", self.launches, self.names().join(", "))
    }
}

/// Returns the properties of these names.
pub(super) fn properties(names: &str) -> Option<Vec<Property>> {
    let named = |name: &str| Property::ALL.into_iter().find(|property| property.to_string() == name);
    names.split(", ").map(named).collect()
}

const PROOF: &str = "// cutlet proof: ";
const DIGEST: &str = "// cutlet proof of code: ";

/// Replaces the proofs in PTX: comments after the code.
pub(super) fn append(code: &mut Vec<u8>, proofs: &[StoredProof]) {
    if let Some(end) = start_of_proofs(code) {
        code.truncate(end);
    }
    let digest = hex(&Sha256::hash(code));
    let lines: String =
        proofs.iter().map(|proof| format!("{PROOF}{}; {}\n", proof.names().join(", "), proof.launches)).collect();
    code.extend(format!("{DIGEST}{digest}\n{lines}").into_bytes());
}

fn start_of_proofs(ptx: &[u8]) -> Option<usize> {
    ptx.windows(DIGEST.len()).position(|part| part == DIGEST.as_bytes())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the proofs in exported PTX; none if it has no proofs.
///
/// ```
/// # use cutlet::doctest::*;
/// let fill = |x: ArrayMut<f32, 1>| x.store(ct::bid(0), ct::ones([64]));
/// let x = ct::ArraySpec::new([64]).mutable();
/// let proof = ct::prove(fill, 1, (x,), ct::Property::ALL)?;
/// let mut file = ct::export(fill, (x,), ct::Target::SM_80, ct::aot::Format::Ptx)?.with_proof(&proof)?;
/// assert_eq!(ct::aot::proofs_in(&file.bytes)?.len(), 1);
/// file.bytes.insert(0, b'\n');
/// assert!(ct::aot::proofs_in(&file.bytes).is_err());
/// # Ok::<(), ct::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] if the code was changed after the proofs were added, or a proof is no proof
/// of this version.
#[track_caller]
pub fn proofs_in(ptx: &[u8]) -> Result<Vec<StoredProof>> {
    let Some(start) = start_of_proofs(ptx) else { return Ok(Vec::new()) };
    let (code, rest) = ptx.split_at(start);
    let text = String::from_utf8_lossy(rest);
    let mut lines = text.lines();
    let digest = lines.next().and_then(|line| line.strip_prefix(DIGEST)).unwrap_or_default();
    if digest != hex(&Sha256::hash(code)) {
        return Err(Error::argument("the proofs of this file are about other code: it was changed after the export"));
    }
    let read = |line: &str| {
        let (names, launches) = line.strip_prefix(PROOF)?.split_once("; ")?;
        Some(StoredProof { launches: launches.to_owned(), properties: properties(names)? })
    };
    let proofs: Option<Vec<StoredProof>> = lines.map(read).collect();
    proofs.ok_or_else(|| Error::argument("a proof of this file is damaged, or of another version"))
}
