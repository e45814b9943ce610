//! Assertions of kernels of the ptx back end: conversion of a failure record to an error.

use std::sync::Arc;

use crate::backend::cpu;
use crate::backend::ptx::{Assertion, NoteField, note_words};
use crate::error::{Diagnostic, Error, Result};
use crate::runtime::{FailureNote, Gpu, Note};

/// Returns the failure record of a kernel with these assertions.
pub(crate) fn note(gpu: &'static Gpu, assertions: Vec<Assertion>) -> Result<Arc<FailureNote>> {
    let words = note_words(&assertions).max(1);
    FailureNote::new(gpu, words, move |note| explain(&assertions, note))
}

fn explain(assertions: &[Assertion], note: Note) -> Error {
    let field = |field: NoteField| note[field.word()];
    let Some(assertion) = assertions.get(field(NoteField::Site) as usize) else {
        return Error::Execution(Diagnostic::new("assertion failed", None));
    };
    let value = |index: usize| {
        let at = NoteField::Value(index).word();
        u64::from(note[at]) | u64::from(note[at + 1]) << 32
    };
    let values: Vec<_> = assertion.values.iter().enumerate().map(|(i, &dtype)| (dtype, value(i))).collect();
    let mut rest = field(NoteField::Element) as usize;
    let mut element = vec![0; assertion.shape.len()];
    for (place, &extent) in element.iter_mut().zip(&assertion.shape).rev() {
        *place = rest % extent as usize;
        rest /= extent as usize;
    }
    let many = assertion.shape.iter().product::<i64>() > 1;
    let message = cpu::failure(&assertion.message, &values, many.then_some(&*element)).unwrap_or_else(|text| text);
    let [x, y, z] = [0, 1, 2].map(|axis| field(NoteField::Block(axis)));
    let diagnostic = Diagnostic::new(message, assertion.location.clone());
    Error::Execution(diagnostic.note(format!("in tile block ({x}, {y}, {z})")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::error::Location;

    #[test]
    fn notes_become_errors() {
        let location = Some(Location { file: "k.rs".into(), line: 3, column: 5 });
        let one = Assertion { message: "100 %".into(), location: location.clone(), values: vec![], shape: vec![] };
        let values = vec![DType::F32, DType::I64];
        let two = Assertion { message: "x = %g, n = %lld".into(), location, values, shape: vec![2, 4] };
        let assertions = [one, two];
        let mut note = vec![0; note_words(&assertions)];
        note[NoteField::Block(0).word()] = 7;
        assert_eq!(
            explain(&assertions, &note).to_string(),
            "k.rs:3:5: assertion failed: 100 %\n  in tile block (7, 0, 0)"
        );
        note[NoteField::Site.word()] = 1;
        note[NoteField::Element.word()] = 6;
        note[NoteField::Value(0).word()] = 3.5f32.to_bits();
        note[NoteField::Value(1).word()] = -2i32 as u32;
        note[NoteField::Value(1).word() + 1] = u32::MAX;
        assert_eq!(
            explain(&assertions, &note).to_string(),
            "k.rs:3:5: assertion failed: x = 3.5, n = -2 (element [1, 2])\n  in tile block (7, 0, 0)"
        );
    }
}
