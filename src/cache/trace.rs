//! Traces as keys: equality and hash of what a kernel recorded.
//!
//! Two traces of one kernel are made by the same calls in the same order, so handles have equal
//! numbers where the traces are equal and arenas can be compared position by position. Source locations
//! count, too: they do not change the code, but errors name them, and a kernel written in one place must not
//! answer for one written in another.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use crate::ir::{Module, Op};

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

/// Did both record the same?
pub(crate) fn same_trace(a: &Module, b: &Module) -> bool {
    a.types().eq(b.types())
        && a.locations().eq(b.locations())
        && a.ops.len() == b.ops.len()
        && a.ops.iter().zip(&b.ops).all(|(a, b)| parts(a) == parts(b))
        && a.values.len() == b.values.len()
        && a.values.iter().zip(&b.values).all(|(a, b)| (a.ty, a.def) == (b.ty, b.def))
        && a.blocks.len() == b.blocks.len()
        && a.blocks.iter().zip(&b.blocks).all(|(a, b)| (&a.args, &a.ops, a.parent) == (&b.args, &b.ops, b.parent))
        && a.entries.len() == b.entries.len()
        && a.entries.iter().zip(&b.entries).all(|(a, b)| (&a.name, a.body, &a.hints) == (&b.name, b.body, &b.hints))
        && a.required == b.required
        && a.written == b.written
        && a.globals.len() == b.globals.len()
        && a.globals.iter().zip(&b.globals).all(|(a, b)| {
            (&a.name, a.ty, &a.value, a.alignment, a.private, a.constant)
                == (&b.name, b.ty, &b.value, b.alignment, b.private, b.constant)
        })
}

/// All of an op.
fn parts(op: &Op) -> impl Hash + PartialEq + '_ {
    let Op { code, operands, segments, results, attrs, regions, loc } = op;
    (code, operands, segments, results, attrs, regions, loc)
}
