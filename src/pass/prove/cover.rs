//! Elements of an array that no tile block stores.
//!
//! 1. If one store covers the array in each independent part of its positions, it covers the array.
//! 2. Otherwise the elements of all stores are marked one by one.

use crate::util::collect::CollectVec as _;
use std::ops::ControlFlow;

use rustc_hash::FxHashSet;

use super::access::{Access, Frame};
use super::enumerate::{Outcome, enumerate};
use super::interval::Ranges;
use super::system::parts;
use super::term::{Term, Terms, Var};
use super::verdict::Reason;

/// Maximum number of marked elements.
const MAX_ELEMENTS: i64 = 1 << 23;

/// Result of a check of coverage.
pub(super) enum Coverage {
    Complete,
    Missing(Vec<i64>),
    Unknown(Reason),
}

/// Checks that the stores reach each element of `whole`.
pub(super) fn check(terms: &mut Terms, ranges: &Ranges, stores: &[&Access], whole: &Frame) -> Coverage {
    if whole.extents.contains(&0) {
        return Coverage::Complete;
    }
    let exact: Vec<&Access> = stores.iter().copied().filter(|store| store.unknown(terms).is_none()).collect_vec();
    if exact.iter().any(|store| store.frame.as_ref() == Some(whole) && covers(terms, ranges, store)) {
        return Coverage::Complete;
    }
    let unknown = stores.iter().find_map(|store| store.unknown(terms)).map(Reason::Data);
    let too_large = Reason::Op(stores[0].op, "stores too many elements to be counted");
    let all: i64 = whole.extents.iter().fold(1, |all: i64, &n| all.saturating_mul(n));
    if all > MAX_ELEMENTS {
        return Coverage::Unknown(unknown.unwrap_or(too_large));
    }
    let reach: i64 = whole.extents.iter().zip(&whole.strides).map(|(n, stride)| (n - 1) * stride).sum();
    if !(0..4 * MAX_ELEMENTS).contains(&reach) {
        return Coverage::Unknown(unknown.unwrap_or(too_large));
    }
    let mut marked = vec![false; reach as usize + 1];
    for store in exact {
        if !mark(terms, ranges, store, &mut marked) {
            return Coverage::Unknown(unknown.unwrap_or(too_large));
        }
    }
    match missing(whole, &marked) {
        None => Coverage::Complete,
        Some(element) => unknown.map_or(Coverage::Missing(element), Coverage::Unknown),
    }
}

/// Returns true if one store reaches all positions of its array: in each part, the combinations of
/// positions along its dimensions.
fn covers(terms: &Terms, ranges: &Ranges, store: &Access) -> bool {
    let ranges = store.ranges(ranges);
    let starts: Vec<Term> = store.dims.iter().map(|dim| dim.start).collect_vec();
    parts(terms, &store.conditions, &starts, &[]).into_iter().all(|part| {
        let dims: Vec<_> = part.positions.iter().map(|&position| store.dims[position]).collect_vec();
        let own: Vec<Term> = dims.iter().map(|dim| dim.start).collect_vec();
        let mut reached: FxHashSet<Vec<i64>> = FxHashSet::default();
        let outcome = enumerate(terms, &ranges, &part.vars, (&part.conditions, &own), &mut |_, starts| {
            // Tiles at multiples of their length count once; others do not count here.
            if starts.iter().zip(&dims).all(|(start, dim)| start % dim.len == 0 && (0..dim.extent).contains(start)) {
                reached.insert(starts.to_vec());
            }
            ControlFlow::Continue(())
        });
        let needed: i64 = dims.iter().map(|dim| (dim.extent as u64).div_ceil(dim.len as u64) as i64).product();
        outcome == Outcome::Complete && reached.len() as i64 == needed
    })
}

/// Marks the elements of a store. Returns false beyond the limit.
fn mark(terms: &mut Terms, ranges: &Ranges, store: &Access, marked: &mut [bool]) -> bool {
    let flat = store.flattened(terms);
    let ranges = flat.ranges(ranges);
    let start = flat.dims[0].start;
    let all = parts(terms, &flat.conditions, &[start], &[]);
    let mut is_decided = true;
    // The positions are marked last: another part may exclude the store.
    let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|part| !part.positions.is_empty());
    for part in &others {
        let outcome =
            enumerate(terms, &ranges, &part.vars, (&part.conditions, &[]), &mut |_, _| ControlFlow::Break(()));
        match outcome {
            Outcome::Complete => return true,
            Outcome::Undecided => is_decided = false,
            Outcome::Stopped => {}
        }
    }
    if !is_decided {
        return false;
    }
    own.iter().all(|part| {
        let vars: Vec<Var> = part.vars.clone();
        let outcome = enumerate(terms, &ranges, &vars, (&part.conditions, &[start]), &mut |_, outputs| {
            if let Some(mark) = usize::try_from(outputs[0]).ok().and_then(|place| marked.get_mut(place)) {
                *mark = true;
            }
            ControlFlow::Continue(())
        });
        outcome == Outcome::Complete
    })
}

/// Returns the first element of an array that is not marked.
fn missing(whole: &Frame, marked: &[bool]) -> Option<Vec<i64>> {
    let mut index = vec![0; whole.extents.len()];
    loop {
        let place: i64 = index.iter().zip(&whole.strides).map(|(i, stride)| i * stride).sum();
        if !marked[place as usize] {
            return Some(index);
        }
        let d = (0..index.len()).rev().find(|&d| index[d] + 1 < whole.extents[d])?;
        index[d] += 1;
        index[d + 1..].fill(0);
    }
}
