//! Room for tiles: an op whose tiles are large asks the allocator before it runs.
//!
//! A list of words that does not fit would end the process. The op claims what it may allocate, results and lists on the
//! way; claims of all threads together are allocated and freed at once. Small tiles are not counted: beyond a machine that
//! has no room for these nothing runs.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ir::{Module, Op, Opcode, Type};

/// Elements from which on an op asks.
const LARGE: usize = 1 << 16;

/// Bytes that an op may allocate for each element: two operands as 64-bit numbers, the result as such, and its words.
const BYTES_PER_ELEMENT: usize = 32;

/// The largest number of elements of an operand or a result of each op, where it is large; else 0. Ops with regions have 0:
/// the ops in their regions ask.
pub(crate) fn elements(module: &Module) -> Vec<usize> {
    let elements = |op: &Op| {
        let tiles = op.operands.iter().chain(&op.results).filter_map(|&value| match module.ty(value) {
            Type::Tile { shape, .. } => Some(shape.iter().product::<i64>() as usize),
            _ => None,
        });
        let is_leaf = op.regions.is_empty() || matches!(op.code, Opcode::Reduce | Opcode::Scan);
        if is_leaf { large(tiles.max().unwrap_or(0)) } else { 0 }
    };
    (0..module.num_ops()).map(|id| elements(&module.ops[id])).collect()
}

/// A number of elements if it is large, else 0.
pub(crate) fn large(elements: usize) -> usize {
    if elements < LARGE { 0 } else { elements }
}

/// Room that an op has claimed while it runs.
pub(crate) struct Claim(usize);

/// Bytes of all claims.
static CLAIMED: AtomicUsize = AtomicUsize::new(0);

impl Claim {
    /// Claims room for an op on this number of elements, none for 0.
    ///
    /// # Errors
    /// There is no room.
    pub fn of(elements: usize) -> Result<Claim, String> {
        if elements == 0 {
            return Ok(Claim(0));
        }
        // Sums of claims do not wrap around.
        let bytes = elements.saturating_mul(BYTES_PER_ELEMENT).min(isize::MAX as usize >> 16);
        let claim = Claim(bytes);
        let all = CLAIMED.fetch_add(claim.0, Ordering::Relaxed).saturating_add(claim.0);
        let mut probe = Vec::<u8>::new();
        let fits = probe.try_reserve_exact(all).is_ok();
        // Or the compiler leaves out an allocation that nothing uses.
        std::hint::black_box(&probe);
        if fits { Ok(claim) } else { Err(no_room(&format!("a tile of {elements} elements"))) }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Most ops have none: threads do not share a counter for these.
        if self.0 > 0 {
            CLAIMED.fetch_sub(self.0, Ordering::Relaxed);
        }
    }
}

/// An empty list with room for this number of items of `what`.
///
/// # Errors
/// There is no room.
pub(super) fn reserved<T>(count: u64, what: &str) -> Result<Vec<T>, String> {
    let mut items = Vec::new();
    let room = usize::try_from(count).ok().and_then(|count| items.try_reserve_exact(count).ok());
    room.map(|()| items)
        .ok_or_else(|| no_room(&format!("{what} of {} bytes", u128::from(count) * size_of::<T>() as u128)))
}

fn no_room(what: &str) -> String {
    format!(
        "{what} does not fit into the free memory of the host, on which the cpu device keeps all tiles: use fewer or smaller ones"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_that_do_not_fit_are_errors() {
        assert!(Claim::of(0).is_ok() && Claim::of(LARGE).is_ok());
        let refused = Claim::of(1 << 50).map(drop).expect_err("2^55 bytes");
        assert!(refused.contains("a tile of 1125899906842624 elements does not fit"), "{refused}");
        assert!(Claim::of(usize::MAX).is_err() && Claim::of(LARGE).is_ok());
        let refused = reserved::<u64>(1 << 60, "scratch memory").expect_err("2^63 bytes");
        assert!(refused.contains("scratch memory of 9223372036854775808 bytes does not fit"), "{refused}");
    }
}
