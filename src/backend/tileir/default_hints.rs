//! Default hints of a launch without hints: worker warps, occupancy and TMA, by the bytes of tiles.
//!
//! The assembler takes 4 worker warps without a hint. Measured or counted on its machine code:
//!
//! * The accumulators of products that are live together are in registers, or pass through them.
//!   Beyond 64 KiB (a tile of 128 x 128 in f32), 4 warps spill, and 8 do not.
//! * With TMA, code without products has helper warps, and the registers of all warps are those of
//!   the whole multiprocessor: one tile block is resident. Threads that load themselves have fewer
//!   registers, so that several tile blocks are resident.
//! * Loops over large tiles keep TMA, which prefetches. Two tile blocks share the registers.

use rustc_hash::FxHashSet;

use super::access_hints;
use crate::backend::Hints;
use crate::dtype::DType;
use crate::ir::{BlockId, Entry, Flag, Module, Op, OpId, Opcode, Value};
use crate::target::Target;

/// Bytes of live accumulators that 4 warps hold.
const FOUR_WARPS_ACCUMULATORS: u64 = 64 << 10;
/// Bytes of a loaded tile from which 8 warps share it, in code without products.
const EIGHT_WARPS_TILE: u64 = 16 << 10;

/// Returns the hints with the default number of warps, and forbids TMA for accesses that are better
/// without. Hints of the launch and of single accesses are kept.
pub(super) fn apply(module: &mut Module, target: Target, hints: Hints) -> Hints {
    let is_default = hints.num_warps.is_none() && hints.occupancy.is_none() && hints.num_ctas.is_none();
    let (mut accumulators, mut tile) = (0, 0);
    for entry in &module.entries {
        accumulators = accumulators.max(live_accumulators(module, entry, target));
        tile = tile.max(largest_tile(module, entry));
    }
    let mut hints = hints;
    if is_default && accumulators == 0 {
        let (inside, outside) = by_loop(module);
        for id in outside {
            access_hints::disallow_tma(module, id);
        }
        let is_large = |&id: &OpId| accessed_bytes(module, module.op(id)) >= EIGHT_WARPS_TILE;
        if target.arch >= 90 && inside.iter().any(is_large) {
            hints.occupancy = Some(2);
        }
    }
    if hints.num_warps.is_none() {
        let many = match accumulators {
            0 => tile >= EIGHT_WARPS_TILE,
            // On these targets 128 x 128 of one product also fit, with more instructions.
            bytes if target.arch >= 100 => bytes >= FOUR_WARPS_ACCUMULATORS,
            bytes => bytes > FOUR_WARPS_ACCUMULATORS,
        };
        hints.num_warps = Some(if many { 8 } else { 4 });
    }
    hints
}

/// Returns the largest number of bytes of accumulators whose products are in the same block.
fn live_accumulators(module: &Module, entry: &Entry, target: Target) -> u64 {
    let mut largest = 0;
    for_each_block(module, entry.body, &mut |block| {
        let ops = module.block(block).ops.iter().map(|&id| module.op(id));
        let bytes = ops.filter(|op| op.code.is_mma()).map(|op| accumulator_bytes(module, op, target)).sum();
        largest = largest.max(bytes);
    });
    largest
}

/// Returns the bytes of registers for the accumulator of a product.
fn accumulator_bytes(module: &Module, op: &Op, target: Target) -> u64 {
    let bytes = tile_bytes(module, op.results[0]);
    let input = module.dtype(op.operands[0]);
    let is_promoted = input.storage_bits() == 8 && input.is_float() && !op.flag(Flag::FastAcc);
    // Exact sums of 8-bit floats have a second accumulator. Columns of tf32 are transposed in
    // registers.
    if target.arch == 90 && (is_promoted || input == DType::TF32) { 2 * bytes } else { bytes }
}

/// Returns the bytes of the largest tile that is loaded or stored.
fn largest_tile(module: &Module, entry: &Entry) -> u64 {
    let mut largest = 0;
    module.walk(entry.body, &mut |id| largest = largest.max(accessed_bytes(module, module.op(id))));
    largest
}

/// Returns the bytes of the tile that an op loads or stores; 0 for other ops.
fn accessed_bytes(module: &Module, op: &Op) -> u64 {
    let tile = match op.code {
        Opcode::LoadView | Opcode::LoadPtr => op.results.first(),
        Opcode::StoreView => op.operand_group("tile").first(),
        _ => None,
    };
    tile.map_or(0, |&tile| tile_bytes(module, tile))
}

fn tile_bytes(module: &Module, tile: Value) -> u64 {
    let Some((elem, shape)) = module.ty(tile).as_tile() else { return 0 };
    let bits = elem.dtype().map_or(64, DType::storage_bits);
    shape.iter().map(|&extent| extent as u64).product::<u64>() * u64::from(bits) / 8
}

/// Returns the accesses to tiles in loops and outside of loops, without those that decide
/// themselves.
fn by_loop(module: &Module) -> (Vec<OpId>, Vec<OpId>) {
    let mut inside = FxHashSet::default();
    for entry in &module.entries {
        module.walk(entry.body, &mut |id| {
            let op = module.op(id);
            if op.code.is_loop() {
                op.regions.iter().for_each(|&body| module.walk(body, &mut |inner| _ = inside.insert(inner)));
            }
        });
    }
    access_hints::undecided(module).into_iter().partition(|id| inside.contains(id))
}

fn for_each_block(module: &Module, block: BlockId, visit: &mut dyn FnMut(BlockId)) {
    visit(block);
    let mut inner = Vec::new();
    module.walk(block, &mut |id| inner.extend(&module.op(id).regions));
    inner.into_iter().for_each(visit);
}
