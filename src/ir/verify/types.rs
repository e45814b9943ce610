//! Rules of types.

use super::rule::{Rule, demand};
use crate::dtype::DType;
use crate::ir::{Elem, MAX_EXTENT_PARTS, MAX_TILE_ELEMENTS, Module, Padding, Type, TypeId};
use crate::util::collect::CollectVec as _;
use crate::util::sort;

/// Checks that a type is well-formed.
pub(super) fn check(module: &Module, ty: &Type) -> Rule {
    match ty {
        Type::Token => Ok(()),
        Type::Tile { elem, shape } => tile(*elem, shape),
        Type::TensorView { elem, shape, strides, .. } => tensor_view(*elem, shape, strides),
        Type::PartitionView { tile, view, dim_map, padding } => {
            tiles(module, tile, *view, *padding)?;
            permutation(dim_map, tile.len())
        }
        Type::StridedView { tile, traversal, view, dim_map, padding } => {
            tiles(module, tile, *view, *padding)?;
            permutation(dim_map, tile.len())?;
            demand(traversal.len() == tile.len(), || "one traversal stride per tile dimension is needed".to_string())?;
            demand(traversal.iter().all(|&s| s > 0), || "traversal strides must be positive".to_string())
        }
        Type::GatherScatterView { tile, view, sparse_dim, padding } => {
            tiles(module, tile, *view, *padding)?;
            demand((*sparse_dim as usize) < tile.len(), || {
                format!("sparse dimension {sparse_dim} of a view of rank {}", tile.len())
            })
        }
    }
}

/// Checks that extents are sums of at most three powers of two, and the number of elements is at
/// most the maximum.
fn extents(shape: impl Iterator<Item = i64> + Clone) -> Rule {
    for extent in shape.clone() {
        let valid = extent > 0 && extent.count_ones() <= MAX_EXTENT_PARTS;
        demand(valid, || format!("extent {extent} of a tile is not the sum of one to three powers of two"))?;
    }
    let count = shape.fold(1u64, |n, e| n.saturating_mul(e as u64));
    demand(count <= MAX_TILE_ELEMENTS, || format!("{count} elements, but a tile has at most {MAX_TILE_ELEMENTS}"))
}

fn tile(elem: Elem, shape: &[i64]) -> Rule {
    extents(shape.iter().copied())?;
    match elem {
        Elem::Num(DType::F4E2M1FN) => {
            demand(shape.iter().any(|e| e % 2 == 0), || "a tile of f4E2M1FN needs an even extent".to_string())
        }
        Elem::Ptr { pointee: DType::I4, .. } => Err("there are no pointers to i4".to_string()),
        Elem::Ptr { pointee: DType::F4E2M1FN, .. } => {
            demand(shape.is_empty(), || "a tile of pointers to f4E2M1FN must have rank 0".to_string())
        }
        Elem::Num(_) | Elem::Ptr { .. } => Ok(()),
    }
}

fn tensor_view(elem: DType, shape: &[Option<i64>], strides: &[Option<i64>]) -> Rule {
    demand(elem != DType::I4, || "there are no views of i4".to_string())?;
    demand(shape.len() == strides.len(), || format!("{} extents and {} strides", shape.len(), strides.len()))?;
    let constants = shape.iter().chain(strides).flatten();
    demand(constants.clone().all(|&v| v > 0), || "constant extents and strides must be positive".to_string())
}

/// Checks the common parts of partition, strided and gather/scatter views.
fn tiles(module: &Module, shape: &[i32], view: TypeId, padding: Option<Padding>) -> Rule {
    let Type::TensorView { elem, shape: extents, strides, .. } = module.type_of(view) else {
        return Err("what is cut into tiles must be a tensor_view".to_string());
    };
    tensor_view(*elem, extents, strides)?;
    demand(!shape.is_empty(), || "a tile of rank 0".to_string())?;
    demand(shape.len() == extents.len(), || {
        format!("tiles of rank {} over a tensor view of rank {}", shape.len(), extents.len())
    })?;
    let wide: Vec<i64> = shape.iter().map(|&e| i64::from(e)).collect_vec();
    tile(Elem::Num(*elem), &wide)?;
    match padding {
        Some(padding) if padding != Padding::Zero && elem.is_int() => {
            Err(format!("padding value {} needs a float element type, not {elem}", padding.name()))
        }
        _ => Ok(()),
    }
}

/// Checks that a list is a permutation of `0..rank`.
pub(super) fn permutation(map: &[i32], rank: usize) -> Rule {
    let mut sorted: Vec<i32> = map.to_vec();
    sort::natural(&mut sorted);
    let complete = sorted.len() == rank && sorted.iter().enumerate().all(|(i, &d)| d == i as i32);
    demand(complete, || format!("{map:?} is not a permutation of {rank} dimensions"))
}
