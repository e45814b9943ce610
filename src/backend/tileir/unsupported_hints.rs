//! Requests that Tile IR does not support, because its compiler decides them: layouts of tiles and
//! warp roles.

use crate::error::{Diagnostic, Error, Result};
use crate::ir::{Attr, AttrKind, Module, Op, hint_key};

/// Hints of a loop about warp roles.
const ROLES: [&str; 2] = [hint_key::WARP_SPECIALIZE, hint_key::PINGPONG];

/// Checks that a module requests neither layouts of tiles nor warp roles.
///
/// # Errors
/// [`Error::Unsupported`] with each such op, at its place in the user's source.
pub(super) fn check(module: &Module) -> Result<()> {
    let mut found = Vec::new();
    for entry in &module.entries {
        module.walk(entry.body, &mut |id| {
            let op = module.op(id);
            if let Some(what) = unsupported(op) {
                let message = format!("{what}, which Tile IR leaves to its compiler");
                let way_out = "leave it out, or launch on the ptx back end (`.backend(ct::Backend::Ptx)`)";
                found.push(Diagnostic::new(message, module.location(op.loc).cloned()).note(way_out));
            }
        });
    }
    if found.is_empty() { Ok(()) } else { Err(Error::Unsupported(found)) }
}

fn unsupported(op: &Op) -> Option<String> {
    if op.distribution().is_some_and(|layout| !layout.is_partial()) {
        return Some("`with_layout`: a layout of a tile".to_owned());
    }
    let Some(Attr::Hints(hints)) = op.attr(AttrKind::Hints) else { return None };
    let hinted = ROLES.into_iter().find(|key| hints.get("default", key).is_some())?;
    Some(format!("`{hinted}`: roles of warps in a loop"))
}
