//! Failures that kernels of the ptx back end report: conversion of a note to an error.

use crate::util::collect::CollectVec as _;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::cpu;
use crate::backend::ptx::{FailureSites, HangField, NoteField, RECORDS, RecordField, WARP_RECORDS, WaitObject};
use crate::error::{Awaited, Diagnostic, Error, Hang, Result, StuckWait};
use crate::runtime::{FailureNote, Gpu, Note};

/// The state of a complete note or record.
const COMPLETE: u32 = 2;

/// Returns the note of a kernel with these failures.
pub(crate) fn note(gpu: &'static Gpu, kernel: &str, sites: FailureSites) -> Result<Arc<FailureNote>> {
    let mut states = vec![sites.assertion_word()];
    states.extend(sites.wait_limit.map(|_| HangField::Block.word()));
    let (kernel, words) = (kernel.to_owned(), sites.words().max(states[0] + 1));
    FailureNote::new(gpu, words, states, move |note| explain(&kernel, &sites, note))
}

/// Returns the failure that a note reports. A failed assertion precedes other failures: it may be
/// the reason of a wait that does not end.
fn explain(kernel: &str, sites: &FailureSites, note: Note) -> Option<Error> {
    let assertion = &note[sites.assertion_word()..];
    if assertion[NoteField::State.word()] == COMPLETE {
        return Some(failed_assertion(sites, assertion));
    }
    let limit = sites.wait_limit.filter(|_| note[HangField::Block.word()] != 0)?;
    let waits = stuck_waits(sites, note);
    let hang = Hang { kernel: kernel.to_owned(), limit: Duration::from_millis(limit.into()), waits };
    (!hang.waits.is_empty()).then_some(Error::Hung(hang))
}

/// Returns the waits of the complete records: of the tile block that reported first, in order of
/// time, then of other tile blocks at further places in the code. Those of warps of a tile block at
/// one barrier are one wait.
fn stuck_waits(sites: &FailureSites, note: Note) -> Vec<StuckWait> {
    let records = (0..RECORDS).map(|index| (index, &note[HangField::Record(index).word()..]));
    let field = |record: &[u32], field: RecordField| record[field.word()];
    let mut complete: Vec<(bool, &[u32])> = records
        .filter(|(_, record)| field(record, RecordField::State) == COMPLETE)
        .map(|(index, record)| (index >= WARP_RECORDS as usize, record))
        .collect_vec();
    crate::util::sort::by_key(&mut complete, |&(is_other, record)| (is_other, field(record, RecordField::Order)));
    let (mut waits, mut named): (Vec<StuckWait>, _) = (Vec::new(), BTreeSet::new());
    for (is_other, record) in complete {
        let number = field(record, RecordField::Site);
        let Some(site) = sites.waits.get(number as usize) else { continue };
        if !named.insert(number) && is_other && site.object != WaitObject::Memory {
            continue;
        }
        let [first, second] = [0, 1].map(|index| field(record, RecordField::Value(index)));
        let wait = StuckWait {
            tile_block: [0, 1, 2].map(|axis| field(record, RecordField::Block(axis))),
            warps: vec![field(record, RecordField::Warp)],
            role: site.role,
            step: site.step.to_string(),
            awaited: match site.object {
                WaitObject::Mbarrier => Awaited::Mbarrier { parity: first, offset: second },
                WaitObject::NamedBarrier => Awaited::NamedBarrier { number: first },
                WaitObject::Memory => Awaited::Memory,
            },
            location: site.location.clone(),
        };
        let is_same = |other: &&mut StuckWait| **other == StuckWait { warps: other.warps.clone(), ..wait.clone() };
        match waits.iter_mut().find(is_same) {
            Some(other) => other.warps.extend(wait.warps),
            None => waits.push(wait),
        }
    }
    waits.iter_mut().for_each(|wait| {
        wait.warps.sort_unstable();
        wait.warps.dedup();
    });
    waits
}

fn failed_assertion(sites: &FailureSites, note: Note) -> Error {
    let field = |field: NoteField| note[field.word()];
    let Some(assertion) = sites.assertions.get(field(NoteField::Site) as usize) else {
        return Error::Execution(Diagnostic::new("assertion failed", None));
    };
    let value = |index: usize| {
        let at = NoteField::Value(index).word();
        u64::from(note[at]) | u64::from(note[at + 1]) << 32
    };
    let values: Vec<_> = assertion.values.iter().enumerate().map(|(i, &dtype)| (dtype, value(i))).collect_vec();
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
    use crate::backend::ptx::{Assertion, WaitSite};
    use crate::dtype::DType;
    use crate::error::{Location, WaitRole};

    fn place(line: u32) -> Option<Location> {
        Some(Location { file: "k.rs".into(), line, column: 5 })
    }

    fn sites(wait_limit: Option<u32>) -> FailureSites {
        let one = Assertion { message: "100 %".into(), location: place(3), values: vec![], shape: vec![] };
        let values = vec![DType::F32, DType::I64];
        let two = Assertion { message: "x = %g, n = %lld".into(), location: place(3), values, shape: vec![2, 4] };
        let wait = |line, role, object| WaitSite { step: "a step".into(), role, object, location: place(line) };
        let waits = vec![
            wait(7, WaitRole::Consumer, WaitObject::Mbarrier),
            wait(8, WaitRole::Producer, WaitObject::Mbarrier),
            wait(9, WaitRole::Consumer, WaitObject::NamedBarrier),
            wait(10, WaitRole::All, WaitObject::Memory),
        ];
        FailureSites { assertions: vec![one, two], wait_limit, waits }
    }

    fn text(sites: &FailureSites, note: &[u32]) -> String {
        explain("k", sites, note).expect("a failure").to_string()
    }

    #[test]
    fn notes_become_errors() {
        for sites in [sites(None), sites(Some(5))] {
            let mut note = vec![0; sites.words()];
            let first = sites.assertion_word();
            assert!(explain("k", &sites, &note).is_none());
            note[first + NoteField::State.word()] = COMPLETE;
            note[first + NoteField::Block(0).word()] = 7;
            assert_eq!(text(&sites, &note), "k.rs:3:5: assertion failed: 100 %\n  in tile block (7, 0, 0)");
            note[first + NoteField::Site.word()] = 1;
            note[first + NoteField::Element.word()] = 6;
            note[first + NoteField::Value(0).word()] = 3.5f32.to_bits();
            note[first + NoteField::Value(1).word()] = -2i32 as u32;
            note[first + NoteField::Value(1).word() + 1] = u32::MAX;
            assert_eq!(
                text(&sites, &note),
                "k.rs:3:5: assertion failed: x = 3.5, n = -2 (element [1, 2])\n  in tile block (7, 0, 0)"
            );
        }
    }

    #[test]
    fn records_of_the_first_tile_block_are_first() {
        let sites = sites(Some(5));
        let mut note = vec![0; sites.words()];
        note[HangField::Block.word()] = 1;
        assert!(explain("k", &sites, &note).is_none(), "no record is complete");
        let mut write = |index: usize, words: [u32; 9]| {
            let at = HangField::Record(index).word();
            note[at..at + 9].copy_from_slice(&words);
        };
        // State, wait, warp, order, tile block, values.
        write(4, [COMPLETE, 1, 4, 1, 6, 0, 0, 1, 64]);
        write(0, [COMPLETE, 0, 0, 3, 6, 0, 0, 0, 32]);
        write(2, [COMPLETE, 0, 2, 0, 6, 0, 0, 0, 32]);
        write(1, [COMPLETE, 2, 1, 2, 6, 0, 0, 3, 0]);
        write(3, [1, 2, 3, 0, 6, 0, 0, 3, 0]);
        write(40, [COMPLETE, 99, 1, 9, 6, 0, 0, 3, 0]);
        write(35, [COMPLETE, 3, 5, 4, 0, 2, 0, 0, 0]);
        // The place in the code is named already.
        write(33, [COMPLETE, 1, 4, 0, 0, 5, 0, 1, 64]);
        let Some(Error::Hung(hang)) = explain("k", &sites, &note) else { panic!("no hang") };
        assert_eq!((&*hang.kernel, hang.limit), ("k", Duration::from_millis(5)));
        let seen: Vec<_> = hang
            .waits
            .iter()
            .map(|wait| (wait.location.as_ref().expect("a place").line, wait.warps.clone(), wait.awaited))
            .collect();
        let want = vec![
            (7, vec![0, 2], Awaited::Mbarrier { offset: 32, parity: 0 }),
            (8, vec![4], Awaited::Mbarrier { offset: 64, parity: 1 }),
            (9, vec![1], Awaited::NamedBarrier { number: 3 }),
            (10, vec![5], Awaited::Memory),
        ];
        assert_eq!(seen, want);
        assert_eq!(hang.waits[3].tile_block, [0, 2, 0]);
    }
}
