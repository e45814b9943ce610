//! Launches for modules alone: arrays that are large enough for their views, and their contents.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::backend::ParamWord;
use crate::backend::cpu::Memory;
use crate::dtype::DType;
use crate::ir::{Attr, AttrKind, BlockId, ConstData, Def, Elem, Module, Opcode, Rounding, Type, Value};
use crate::types::float_codec;

/// Trip count of long loops.
const ITERATIONS: u64 = 6;
/// Extents of arrays in tiles, and their minimum.
const TILES: i64 = 3;
const MIN_EXTENT: i64 = 64;
/// Bytes of an array without a view.
const BYTES: usize = 1 << 16;

/// Shortens loops with constant trip counts.
pub fn shorten(module: &mut Module) {
    let mut counts = Vec::new();
    module.walk(module.entries[0].body, &mut |id| {
        let op = module.op(id);
        let is_count = op.code == Opcode::Constant
            && module.shape(op.results[0]).is_empty()
            && module.dtype(op.results[0]) == DType::I32
            && matches!(op.const_data(), Some(ConstData::Splat(64)));
        if is_count {
            counts.push(id);
        }
    });
    for id in counts {
        for attr in &mut module.op_mut(id).attrs {
            if attr.kind() == AttrKind::Value {
                *attr = Attr::Value(ConstData::Splat(ITERATIONS));
            }
        }
    }
}

/// Arguments of a launch.
pub struct Launch {
    pub grid: [u32; 3],
    pub params: Vec<ParamWord>,
    arrays: Vec<Vec<AtomicU64>>,
    /// Contents of the arrays before a run.
    numbers: Vec<Vec<u64>>,
}

impl Launch {
    /// Returns a launch of an entry whose parameters are arrays, their extents and strides, and
    /// numbers.
    pub fn find(module: &Module, body: BlockId) -> Option<Launch> {
        let args = &module.block(body).args;
        let place: HashMap<Value, usize> = args.iter().enumerate().map(|(place, &arg)| (arg, place)).collect();
        let param = |mut value: Value| loop {
            match module.def(value) {
                Def::Arg(block, _) if block == body => return place.get(&value).copied(),
                Def::Result(id, _) if module.op(id).code == Opcode::Assume => value = module.op(id).operands[0],
                _ => return None,
            }
        };
        let tiles = tiles(module, body);
        let mut params: Vec<ParamWord> = vec![MIN_EXTENT as u64; args.len()];
        let mut elements: HashMap<usize, (DType, i64)> = HashMap::new();
        let mut known = true;
        module.walk(body, &mut |id| {
            let op = module.op(id);
            let Type::TensorView { elem, shape, strides, .. } =
                op.results.first().map_or(&Type::Token, |&v| module.ty(v))
            else {
                return;
            };
            if op.code != Opcode::MakeTensorView {
                return;
            }
            let Some(base) = param(op.group(0)[0]) else { return };
            let tile = |dim: usize| tiles.get(&op.results[0]).map_or(1, |tiles| tiles[dim]);
            let extents: Vec<i64> = shape
                .iter()
                .enumerate()
                .map(|(dim, fixed)| fixed.unwrap_or_else(|| (TILES * tile(dim)).max(MIN_EXTENT)))
                .collect();
            let mut dynamic = op.group(1).iter();
            for (dim, _) in shape.iter().enumerate().filter(|(_, fixed)| fixed.is_none()) {
                match dynamic.next().and_then(|&value| param(value)) {
                    Some(place) => params[place] = extents[dim] as u64,
                    None => known = false,
                }
            }
            let mut dynamic = op.group(2).iter();
            let mut pitch = extents[extents.len().saturating_sub(1)..].iter().product::<i64>();
            let (mut last, count) = (0, strides.len());
            let mut found = vec![1; count];
            for dim in (0..count.saturating_sub(1)).rev() {
                found[dim] = pitch;
                pitch *= extents[dim];
            }
            for (dim, fixed) in strides.iter().enumerate() {
                let stride = fixed.unwrap_or(found[dim]);
                if fixed.is_none() {
                    match dynamic.next().and_then(|&value| param(value)) {
                        Some(place) => params[place] = stride as u64,
                        None => known = false,
                    }
                }
                last += (extents[dim] - 1) * stride;
            }
            let entry = elements.entry(base).or_insert((*elem, 0));
            entry.1 = entry.1.max(last + 1);
        });
        let (mut arrays, mut first) = (Vec::new(), Vec::new());
        for (place, &arg) in args.iter().enumerate() {
            match module.ty(arg) {
                Type::Tile { elem: Elem::Ptr { pointee, .. }, .. } => {
                    let (dtype, count) = elements.get(&place).copied().unwrap_or((*pointee, 0));
                    let all = numbers(dtype, count, place as u64);
                    arrays.push(all.iter().map(|&word| AtomicU64::new(word)).collect::<Vec<_>>());
                    first.push(all);
                    params[place] = arrays[arrays.len() - 1].as_ptr() as u64;
                }
                Type::Tile { elem: Elem::Num(dtype), .. } if dtype.is_float() => {
                    params[place] = float_codec::encode(*dtype, 1.0, Rounding::NearestEven);
                }
                _ => {}
            }
        }
        known.then_some(Launch { grid: grid(module, body), params, arrays, numbers: first })
    }

    /// Returns the memory of the launch with its initial contents. Runs are sequential.
    pub fn memory(&self) -> Memory {
        let mut memory = Memory::new();
        for (array, numbers) in self.arrays.iter().zip(&self.numbers) {
            array.iter().zip(numbers).for_each(|(word, &number)| word.store(number, Relaxed));
            // SAFETY: the launch owns the array and outlives all runs of a test. No other code
            // accesses it.
            unsafe { memory.add(array.as_ptr() as *mut u8, size_of_val(&array[..]), true) };
        }
        memory
    }
}

/// Returns a small grid. It is larger along axes that determine trip counts.
fn grid(module: &Module, body: BlockId) -> [u32; 3] {
    let (mut grid, mut ids, mut bounds) = ([2, 1, 1], Vec::new(), Vec::new());
    module.walk(body, &mut |id| {
        let op = module.op(id);
        match op.code {
            Opcode::GetTileBlockId => ids.push(op.results.clone()),
            Opcode::For => bounds.push(op.group(1)[0]),
            _ => {}
        }
    });
    for (axis, extent) in grid.iter_mut().enumerate() {
        if ids.iter().any(|results| bounds.contains(&results[axis])) {
            *extent = ITERATIONS as u32;
        }
    }
    grid
}

/// Returns the extents of the largest tiles of each tensor view, by its dimensions.
fn tiles(module: &Module, body: BlockId) -> HashMap<Value, Vec<i64>> {
    let mut tiles: HashMap<Value, Vec<i64>> = HashMap::new();
    module.walk(body, &mut |id| {
        let op = module.op(id);
        let (Type::PartitionView { tile, dim_map, .. } | Type::StridedView { tile, dim_map, .. }) =
            op.results.first().map_or(&Type::Token, |&view| module.ty(view))
        else {
            return;
        };
        let Type::TensorView { shape, .. } = module.ty(op.operands[0]) else { return };
        let all = tiles.entry(op.operands[0]).or_insert_with(|| vec![1; shape.len()]);
        for (&extent, &dim) in tile.iter().zip(dim_map) {
            all[dim as usize] = all[dim as usize].max(extent.into());
        }
    });
    tiles
}

/// Returns `count` small numbers of a type.
fn numbers(dtype: DType, count: i64, seed: u64) -> Vec<u64> {
    let bits = dtype.storage_bits() as usize;
    let bytes = (count as usize * bits).div_ceil(8).max(BYTES);
    let mut list = vec![0u8; bytes.next_multiple_of(8) + 8];
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for chunk in list.chunks_mut((bits / 8).max(1)) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let number = (state >> 33) % 7;
        let word = if dtype.is_float() {
            float_codec::encode(dtype, number as f64 - 3.0, Rounding::NearestEven)
        } else {
            number
        };
        chunk.iter_mut().zip(word.to_le_bytes()).for_each(|(to, byte)| *to = byte);
    }
    list.chunks(8).map(|word| word.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte))).collect()
}
