//! Exact mode: a module with floats as integers modulo a power of two.
//!
//! Sums and products of floats depend on their order. In the rewritten module they are sums and
//! products in the ring Z/2^w, with w = 32, and w = 64 for modules with f64. Two programs of one
//! formula therefore store equal bits, for any tiles, splits, orders and back ends.
//!
//! 1. `infinity` finds the values that may be negative infinity.
//! 2. `types` replaces the types of values: tiles of floats by tiles of the ring, floats in memory
//!    by integers of their width.
//! 3. `dispatch` rewrites each op. Loads apply a bijection from patterns to elements, stores its
//!    inverse (`ring`, `convert`). Sums and products are those of integers (`arithmetic`,
//!    `product`), functions are powers and one-way tags (`functions`).
//!
//! The definition of each op is in `docs/exact.md`. The idea of a payload algebra is that of the
//! floating-point sanitizer of Triton. Limit: multimem ops are rejected.

mod arithmetic;
mod atomic;
mod convert;
mod coordinates;
mod dispatch;
mod functions;
mod infinity;
mod memory;
mod product;
mod ring;
mod state;
mod types;

#[cfg(test)]
mod tests;

use super::legalize::expand_scaled_mma::expand_scaled_mma;
use super::legalize::inline_ptx::expand_inline_ptx;
use crate::error::Diagnostic;
use crate::ir::{BlockId, Module, TypeId, Value};
use crate::util::collect::CollectVec as _;

/// Rewrites floats to elements of the ring. The result verifies.
///
/// # Errors
/// Ops without a form in the ring, with their locations.
pub fn exact(module: &mut Module) -> Result<(), Vec<Diagnostic>> {
    if !types::has_floats(module) {
        return Ok(());
    }
    if let Some(expanded) = expand_inline_ptx(module) {
        *module = expanded;
    }
    if let Some(expanded) = expand_scaled_mma(module, false) {
        *module = expanded;
    }
    // Checks of arithmetic refer to ops of the user, some of which are replaced.
    module.written.clear();
    let ring = types::ring_of(module);
    let infinite = infinity::may_be_negative_infinity(module);
    let bodies: Vec<BlockId> = module.entries.iter().map(|entry| entry.body).collect_vec();
    let old: Vec<TypeId> = module.values.iter().map(|value| value.ty).collect_vec();
    let arguments: Vec<Value> = bodies.iter().flat_map(|&body| module.block(body).args.clone()).collect_vec();
    for (index, &ty) in old.iter().enumerate() {
        module.values[index].ty = types::rewritten(module, ty, ring);
    }
    for value in arguments {
        if dispatch::is_float_tile(module.type_of(old[value.index()])) {
            module.values[value.index()].ty = old[value.index()];
        }
    }
    for index in 0..module.globals.len() {
        module.globals[index].ty = types::global_type(module, module.globals[index].ty);
    }
    let mut exact = state::Exact::new(module, ring, old, infinite);
    bodies.into_iter().for_each(|body| dispatch::entry(&mut exact, body));
    if exact.problems.is_empty() { Ok(()) } else { Err(exact.problems) }
}
