//! Number of warps of kernels whose largest access is an atomic.

use super::privatized::counts;
use super::*;
use crate::ir::{AtomicMode, Elem, MemScope};

/// Returns an atomic maximum of one value and a tile of elements of an array, through pointers.
fn maximum(dtype: DType, shape: [i64; 2]) -> Module {
    let mut k = Kernel::new("maximum");
    let (array, value) = (k.param(Type::ptr(dtype)), k.param(Type::scalar(dtype)));
    let elem = Elem::Ptr { pointee: dtype, attr: None };
    let tile = |k: &mut Kernel, shape: &[i64]| k.b.module.intern(Type::Tile { elem, shape: shape.to_vec() });
    let (single, many) = (tile(&mut k, &[1, 1]), tile(&mut k, &shape));
    let pointers = k.b.simple(Opcode::Reshape, &[array], vec![], single);
    let pointers = k.b.simple(Opcode::Broadcast, &[pointers], vec![], many);
    let line = k.tile(DType::I32, &[shape[0] * shape[1]]);
    let indices = k.b.simple(Opcode::Iota, &[], vec![], line);
    let indices = k.shaped(Opcode::Reshape, indices, &shape, vec![]);
    let pointers = k.b.simple(Opcode::Offset, &[pointers, indices], vec![], many);
    let value = k.shaped(Opcode::Reshape, value, &[1, 1], vec![]);
    let values = k.shaped(Opcode::Broadcast, value, &shape, vec![]);
    let types = [Type::tile(dtype, shape), Type::Token].map(|ty| k.b.module.intern(ty));
    let attrs =
        vec![Attr::MemOrder(MemOrder::Relaxed), Attr::MemScope(MemScope::Device), Attr::AtomicMode(AtomicMode::Max)];
    k.b.op(Opcode::AtomicRmw, &[&[pointers], &[values], &[], &[]], attrs, vec![], &types);
    k.finish()
}

/// The number of threads is that of a store of the tile. Otherwise a thread would have hundreds of
/// elements.
#[test]
fn an_atomic_of_a_large_tile_has_the_warps_of_a_store() {
    for (dtype, threads) in [(DType::I32, 1024), (DType::I64, 1024), (DType::I16, 1024)] {
        for compiled in check(&maximum(dtype, [64, 128])) {
            assert_eq!(compiled.threads, threads, "{dtype}");
        }
    }
    for compiled in check(&maximum(DType::I32, [4, 64])) {
        assert_eq!(compiled.threads, 64);
    }
}

/// A tile that is loaded and counted with one atomic per element has the warps of the load.
#[test]
fn an_atomic_of_a_loaded_tile_has_the_warps_of_the_load() {
    for compiled in check(&counts(false)) {
        assert_eq!(compiled.threads, 128);
    }
}
