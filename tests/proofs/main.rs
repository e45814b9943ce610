//! Proofs of kernels: planted mistakes are refuted, correct kernels are proved, and random kernels
//! agree with the checks of the interpreter.

mod carried;
mod conditions;
mod determinism;
mod for_all;
mod grids;
mod indices;
mod pairs;
mod products;
mod proved;
mod random;
mod random_rows;
mod rowwise;
mod unknown;
mod unrequested;

use cutlet::{Proof, Property, Verdict};

/// Requires that the mistake refutes the property, and that all properties of the correct kernel
/// are proved.
#[track_caller]
fn planted(property: Property, proof: impl Fn(bool) -> cutlet::Result<Proof>) {
    let wrong = proof(true).unwrap();
    assert!(matches!(wrong.verdict(property), Some(Verdict::Refuted(_))), "{property} is not refuted:\n{wrong}");
    println!("{wrong}");
    let right = proof(false).unwrap();
    right.require().unwrap_or_else(|problem| panic!("the correct kernel:\n{problem}"));
}
