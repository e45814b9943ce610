//! Hints of single accesses: TMA.

use crate::ir::{Attr, AttrKind, HintValue, Hints, Module, Op, OpId, Opcode};

/// Key of the hint that permits TMA.
const ALLOW_TMA: &str = "allow_tma";

/// Forbids TMA for an access, which threads execute then.
pub(super) fn disallow_tma(module: &mut Module, id: OpId) {
    let op = module.op_mut(id);
    let no_tma = (ALLOW_TMA.to_string(), HintValue::Bool(false));
    let own = op.attrs.iter_mut().find_map(|attr| match attr {
        Attr::Hints(Hints(lists)) => lists.iter_mut().find(|(key, _)| key == "default").map(|(_, list)| list),
        _ => None,
    });
    match own {
        Some(list) => {
            list.retain(|(key, _)| *key != no_tma.0);
            list.push(no_tma);
        }
        None => op.set_attr(Attr::Hints(Hints(vec![("default".to_string(), vec![no_tma])]))),
    }
}

/// Returns the accesses to tiles without a decision of the kernel about TMA.
pub(super) fn undecided(module: &Module) -> Vec<OpId> {
    let mut found = Vec::new();
    for entry in &module.entries {
        module.walk(entry.body, &mut |id| {
            let op = module.op(id);
            let is_access = matches!(op.code, Opcode::LoadView | Opcode::StoreView);
            found.extend((is_access && !is_decided(op)).then_some(id));
        });
    }
    found
}

fn is_decided(op: &Op) -> bool {
    match op.attr(AttrKind::Hints) {
        Some(Attr::Hints(hints)) => hints.get("default", ALLOW_TMA).is_some(),
        _ => false,
    }
}
