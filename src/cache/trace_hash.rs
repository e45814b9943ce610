//! Equality and hash of traces as cache keys.
//!
//! Two traces of one kernel are recorded by the same calls in the same order. If they are equal,
//! their handles have equal numbers, so the arenas are compared position by position. Source
//! locations are compared too: they do not change the code, but error messages contain them.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use crate::ir::{Block, Entry, Global, Module, Op, ValueData};

/// Returns a hash that is equal for equal traces.
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

/// Returns true if the traces are equal. The patterns have no `..`, so that a new field must be
/// compared or excluded explicitly.
pub(crate) fn same_trace(a: &Module, b: &Module) -> bool {
    // A trace has no recording.
    let Module {
        types,
        locations,
        values,
        ops,
        blocks,
        globals,
        entries,
        required,
        rowwise,
        written,
        mma_parts,
        producer,
        recording: _,
    } = a;
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
        && *rowwise == b.rowwise
        && *written == b.written
        && *mma_parts == b.mma_parts
        && *producer == b.producer
}

/// Returns true if two lists have equal parts at each position.
fn same<'a, X, P: PartialEq>(a: &'a [X], b: &'a [X], parts: impl Fn(&'a X) -> P) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| parts(a) == parts(b))
}

/// Returns all fields of an op.
fn parts(op: &Op) -> impl Hash + PartialEq + '_ {
    let Op { code, operands, segments, results, attrs, regions, loc } = op;
    (code, operands, segments, results, attrs, regions, loc)
}
