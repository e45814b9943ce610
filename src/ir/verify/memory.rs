//! Rules of accesses through tiles of pointers, and of memory orders and scopes.

use super::rule::{OpRule, Rule, demand};
use crate::dtype::DType;
use crate::ir::{AtomicMode, Attr, AttrKind, Elem, MemOrder, Opcode, PtrAttr, Type, Value};
use crate::util::collect::CollectVec as _;

/// Checks that the order is allowed, and that an access has a scope if and only if it is not weak.
pub(super) fn ordering(rule: &OpRule, allowed: &[MemOrder]) -> Rule {
    let order = match rule.op.attr(AttrKind::MemOrder) {
        Some(Attr::MemOrder(order)) => *order,
        _ => MemOrder::Weak,
    };
    demand(allowed.contains(&order), || {
        let names: Vec<_> = allowed.iter().map(|o| o.name()).collect_vec();
        format!("ordering {} is not allowed here, only {}", order.name(), names.join(", "))
    })?;
    let scoped = rule.op.attr(AttrKind::MemScope).is_some();
    demand(scoped == (order != MemOrder::Weak), || {
        let need = if scoped { "takes no scope" } else { "needs a scope" };
        format!("ordering {} {need}", order.name())
    })
}

/// Orders of loads and of stores.
pub(super) const LOADS: &[MemOrder] = &[MemOrder::Weak, MemOrder::Relaxed, MemOrder::Acquire];
pub(super) const STORES: &[MemOrder] = &[MemOrder::Weak, MemOrder::Relaxed, MemOrder::Release];
const ATOMICS: &[MemOrder] = &[MemOrder::Relaxed, MemOrder::Acquire, MemOrder::Release, MemOrder::AcqRel];

/// Returns the type of the tile that the pointers address.
fn pointee_tile(rule: &OpRule, pointers: Value) -> Result<Type, String> {
    match rule.pointers(pointers)? {
        (Elem::Ptr { pointee, .. }, shape) => Ok(Type::tile(pointee, shape)),
        _ => Err(rule.expected(pointers, "a tile of pointers")),
    }
}

fn mask(rule: &OpRule, shape: &[i64]) -> Rule {
    rule.all_of(rule.op.operand_group("mask"), &Type::tile(DType::I1, shape))
}

pub(super) fn pointer_access(rule: &OpRule) -> Rule {
    let load = rule.op.code == Opcode::LoadPtr;
    ordering(rule, if load { LOADS } else { STORES })?;
    let pointers = rule.operand(if load { "source" } else { "destination" });
    let tile = pointee_tile(rule, pointers)?;
    mask(rule, tile.shape())?;
    if load {
        rule.has_type(rule.result(), &tile)?;
        if let Some(padding) = rule.optional("padding_value") {
            rule.has_type(padding, &tile)?;
            demand(rule.optional("mask").is_some(), || "a padding value without a mask".to_string())?;
        }
        rule.token_in_out(1)
    } else {
        rule.has_type(rule.operand("value"), &tile)?;
        rule.token_in_out(0)
    }
}

/// Checks the element type of a read-modify-write.
pub(super) fn atomic_types(rule: &OpRule, mode: AtomicMode, dtype: DType) -> Rule {
    use DType::{BF16, F16, F32, F64, I16, I32, I64};
    let allowed: &[DType] = match mode {
        AtomicMode::AddF => &[F16, BF16, F32, F64],
        AtomicMode::Xchg => &[I32, I64, F32, F64],
        AtomicMode::And | AtomicMode::Or | AtomicMode::Xor | AtomicMode::Add => &[I32, I64],
        // Tile IR has none of i16: the back end `tileir` expands them.
        AtomicMode::Max | AtomicMode::Min | AtomicMode::UMax | AtomicMode::UMin => &[I16, I32, I64],
    };
    demand(allowed.contains(&dtype), || {
        let names: Vec<_> = allowed.iter().map(|d| d.name()).collect_vec();
        let values = rule.op.operands.iter().map(|&v| rule.text(v)).collect_vec().join(", ");
        format!("{} of {dtype} ({values}): it takes {}", mode.name(), names.join(", "))
    })
}

pub(super) fn pointer_atomic(rule: &OpRule) -> Rule {
    ordering(rule, ATOMICS)?;
    let pointers = rule.operand("pointers");
    let tile = pointee_tile(rule, pointers)?;
    let multicast = matches!(rule.pointers(pointers)?.0, Elem::Ptr { attr: Some(PtrAttr::Multicast), .. });
    demand(!multicast, || rule.expected(pointers, "a tile of pointers that are not multicast"))?;
    match rule.op.attr(AttrKind::AtomicMode) {
        Some(Attr::AtomicMode(mode)) => {
            rule.has_type(rule.operand("arg"), &tile)?;
            atomic_types(rule, *mode, tile.dtype())?;
        }
        _ => {
            rule.all_of(&[rule.operand("cmp"), rule.operand("val")], &tile)?;
            // Compare-and-swap has the types of an exchange, and i16 of exact mode: Tile IR has
            // none, and the back end `tileir` expands it.
            if tile.dtype() != DType::I16 {
                atomic_types(rule, AtomicMode::Xchg, tile.dtype())?;
            }
        }
    }
    mask(rule, tile.shape())?;
    rule.has_type(rule.result(), &tile)?;
    rule.token_in_out(1)
}
