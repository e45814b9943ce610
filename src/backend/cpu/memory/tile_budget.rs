//! Budget for tiles: an op with large tiles claims memory before it runs.
//!
//! A failed allocation of a list of words would abort the process. So the op claims the memory that
//! it may allocate, for results and temporary lists. The claims of all threads together are
//! allocated and freed at once as a probe. Small tiles are not counted.

use crate::util::collect::CollectVec as _;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ir::{Module, Op, Opcode, Type};

/// Least number of elements for which an op claims memory.
const LARGE: usize = 1 << 16;

/// Bytes that an op may allocate per element: two operands and the result as 64-bit numbers, and
/// the words of the result.
const BYTES_PER_ELEMENT: usize = 32;

/// Returns, by op, the largest number of elements of an operand or result if it is large, else 0.
/// Ops with regions have 0: the ops in their regions claim memory.
pub(crate) fn elements(module: &Module) -> Vec<usize> {
    let elements = |op: &Op| {
        let tiles = op.operands.iter().chain(&op.results).filter_map(|&value| match module.ty(value) {
            Type::Tile { shape, .. } => Some(shape.iter().product::<i64>() as usize),
            _ => None,
        });
        let is_leaf = op.regions.is_empty() || matches!(op.code, Opcode::Reduce | Opcode::Scan);
        if is_leaf { large(tiles.max().unwrap_or(0)) } else { 0 }
    };
    (0..module.num_ops()).map(|id| elements(&module.ops[id])).collect_vec()
}

/// Returns a number of elements if it is large, else 0.
pub(crate) fn large(elements: usize) -> usize {
    if elements < LARGE { 0 } else { elements }
}

/// Claim of an op while it runs.
pub(crate) struct Claim(usize);

/// Bytes of all claims.
static CLAIMED: AtomicUsize = AtomicUsize::new(0);

impl Claim {
    /// Claims memory for an op on this number of elements; no memory for 0.
    ///
    /// # Errors
    /// The memory is not available.
    pub fn new(elements: usize) -> Result<Claim, String> {
        if elements == 0 {
            return Ok(Claim(0));
        }
        // The limit prevents overflow of the sum of claims.
        let bytes = elements.saturating_mul(BYTES_PER_ELEMENT).min(isize::MAX as usize >> 16);
        let claim = Claim(bytes);
        let all = CLAIMED.fetch_add(claim.0, Ordering::Relaxed).saturating_add(claim.0);
        let mut probe = Vec::<u8>::new();
        let fits = probe.try_reserve_exact(all).is_ok();
        // Prevents the compiler from removing the unused allocation.
        std::hint::black_box(&probe);
        if fits { Ok(claim) } else { Err(out_of_memory(&format!("a tile of {elements} elements"))) }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Most ops have no claim, and do not access the shared counter.
        if self.0 > 0 {
            CLAIMED.fetch_sub(self.0, Ordering::Relaxed);
        }
    }
}

/// Creates an empty list with capacity for `count` items; `what` names them in the error.
///
/// # Errors
/// The memory is not available.
pub(super) fn reserved<T>(count: u64, what: &str) -> Result<Vec<T>, String> {
    let mut items = Vec::new();
    let room = usize::try_from(count).ok().and_then(|count| items.try_reserve_exact(count).ok());
    room.map(|()| items)
        .ok_or_else(|| out_of_memory(&format!("{what} of {} bytes", u128::from(count) * size_of::<T>() as u128)))
}

fn out_of_memory(what: &str) -> String {
    format!(
        "{what} does not fit into the free memory of the host, on which the cpu device keeps all tiles: use fewer or smaller ones"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_that_do_not_fit_are_errors() {
        assert!(Claim::new(0).is_ok() && Claim::new(LARGE).is_ok());
        let refused = Claim::new(1 << 50).map(drop).expect_err("2^55 bytes");
        assert!(refused.contains("a tile of 1125899906842624 elements does not fit"), "{refused}");
        assert!(Claim::new(usize::MAX).is_err() && Claim::new(LARGE).is_ok());
        let refused = reserved::<u64>(1 << 60, "scratch memory").expect_err("2^63 bytes");
        assert!(refused.contains("scratch memory of 9223372036854775808 bytes does not fit"), "{refused}");
    }
}
