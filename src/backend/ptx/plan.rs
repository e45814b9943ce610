//! How many warps a tile block gets.
//!
//! A thread should hold about 64 bytes of the largest tile: enough independent 16-byte accesses in
//! flight, few enough registers that many tile blocks share a multiprocessor. Matrix products count
//! by their accumulator: 64 numbers a thread.

use super::CompileOptions;
use crate::ir::{BlockId, Elem, Module, Opcode, Type};

/// Threads of a warp.
pub const WARP: u32 = 32;

/// Bytes of the largest tile that a thread should hold.
const BYTES_PER_THREAD: u64 = 64;

/// Bytes a tile should have before it is worth spreading over four warps.
const FOUR_WARPS_BYTES: u64 = 2048;

/// Accumulator elements of a matrix product that a thread should hold.
const ACCUMULATORS_PER_THREAD: u64 = 64;

/// Warps of a tile block for the kernel with this body: a power of two from 1 to 32.
pub fn num_warps(module: &Module, body: BlockId, options: &CompileOptions) -> u32 {
    if let Some(warps) = options.num_warps {
        return warps.clamp(1, 32).next_power_of_two();
    }
    let mut bytes = 0;
    let mut accumulators = 0;
    module.walk(body, &mut |op| {
        let op = module.op(op);
        for &result in &op.results {
            let Type::Tile { elem, shape } = module.ty(result) else { continue };
            let count = shape.iter().product::<i64>() as u64;
            let bits = match elem {
                Elem::Num(dtype) => u64::from(dtype.storage_bits()),
                Elem::Ptr { .. } => 64,
            };
            if matches!(op.code, Opcode::MmaF | Opcode::MmaI) {
                accumulators = accumulators.max(count);
            } else if matches!(op.code, Opcode::LoadView | Opcode::LoadPtr | Opcode::Reduce) || count > 1 {
                bytes = bytes.max(count * bits / 8);
            }
        }
    });
    if accumulators > 0 {
        let threads = accumulators / ACCUMULATORS_PER_THREAD;
        return (threads / u64::from(WARP)).clamp(4, 8).next_power_of_two() as u32;
    }
    let wanted = (bytes / (BYTES_PER_THREAD * u64::from(WARP))).max(1).next_power_of_two() as u32;
    let least = if bytes >= FOUR_WARPS_BYTES { 4 } else { 1 };
    let most = if bytes >= 128 * 1024 { 32 } else { 16 };
    wanted.clamp(least, most)
}
