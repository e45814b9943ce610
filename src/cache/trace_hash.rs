//! Traces as keys: equality and hash of what a kernel recorded.
//!
//! Two traces of one kernel are made by the same calls in the same order, so handles have equal
//! numbers where the traces are equal and arenas can be compared position by position. Source locations
//! count, too: they do not change the code, but errors name them, and a kernel written in one place must not
//! answer for one written in another.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use crate::ir::{Block, Entry, Global, Module, Op, ValueData};

/// A hash that is equal for equal traces.
pub(crate) fn hash_trace(module: &Module) -> u64 {
    let mut hasher = FxHasher::default();
    for (_, ty) in module.types() {
        ty.hash(&mut hasher);
    }
    for op in &module.ops {
        parts(op).hash(&mut hasher);
    }
    hasher.finish()
}

/// Returns true if both recorded the same. No `..` here: a new part of a module is compared, or is left out by name.
pub(crate) fn same_trace(a: &Module, b: &Module) -> bool {
    let Module { types, locations, values, ops, blocks, globals, entries, required, written, producer } = a;
    types.iter().eq(&b.types)
        && locations.iter().eq(&b.locations)
        && same(values, &b.values, |&ValueData { ty, def }| (ty, def))
        && same(ops, &b.ops, parts)
        && same(blocks, &b.blocks, |Block { args, ops, parent }| (args, ops, parent))
        && same(entries, &b.entries, |Entry { name, body, hints, loc }| (name, body, hints, loc))
        && same(globals, &b.globals, |Global { name, ty, value, alignment, private, constant }| {
            (name, ty, value, alignment, private, constant)
        })
        && *required == b.required
        && *written == b.written
        && *producer == b.producer
}

/// Returns true if two lists have the same parts, position by position.
fn same<'a, X, P: PartialEq>(a: &'a [X], b: &'a [X], parts: impl Fn(&'a X) -> P) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| parts(a) == parts(b))
}

/// All of an op.
fn parts(op: &Op) -> impl Hash + PartialEq + '_ {
    let Op { code, operands, segments, results, attrs, regions, loc } = op;
    (code, operands, segments, results, attrs, regions, loc)
}
