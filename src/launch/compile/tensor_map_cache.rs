//! Tensor maps of launches: encoded from the parameter words, and cached for later launches.

use crate::util::collect::CollectVec as _;
use std::sync::{Arc, Mutex, PoisonError};

use crate::backend::ParamWord;
use crate::backend::ptx::ParamKind;
use crate::backend::ptx::tensor_map::{L2Promotion, MapElement, Swizzle, TensorMap};
use crate::runtime::TiledArray;
use crate::runtime::driver::sys::{CUtensorMap, CUtensorMapDataType, CUtensorMapL2promotion, CUtensorMapSwizzle};

/// Number of launches whose maps are cached.
const KEPT: usize = 4;

/// Maps of one launch, in the order of the kernel's parameters.
pub(crate) type Encoded = Arc<[CUtensorMap]>;

/// Tensor maps among the parameters of a kernel.
pub(crate) struct TensorMaps {
    maps: Vec<TensorMap>,
    /// Indices of the entry's parameters that the maps depend on.
    words: Vec<u32>,
    recent: Mutex<Recent>,
}

/// Ring buffer of the maps of the latest launches.
#[derive(Default)]
struct Recent {
    launches: Vec<Launched>,
    /// Index of the next entry to write.
    next: usize,
}

/// Words that the maps of a launch depend on, and the maps; `None` if an array has none.
struct Launched {
    words: Box<[ParamWord]>,
    encoded: Option<Encoded>,
}

impl TensorMaps {
    /// Returns the tensor maps among the parameters of a kernel; `None` if there are none.
    pub fn new(params: &[ParamKind]) -> Option<TensorMaps> {
        let map = |kind: &ParamKind| match kind {
            ParamKind::TensorMap(map) => Some(map.clone()),
            ParamKind::Word { .. } | ParamKind::Failure | ParamKind::Trace => None,
        };
        let maps: Vec<TensorMap> = params.iter().filter_map(map).collect_vec();
        let mut words: Vec<u32> = maps.iter().flat_map(TensorMap::parameters).collect_vec();
        words.sort_unstable();
        words.dedup();
        (!maps.is_empty()).then(|| TensorMaps { maps, words, recent: Mutex::default() })
    }

    /// Returns the maps for these parameter words; `None` if an array has none.
    #[inline]
    pub fn encoded(&self, words: &[ParamWord]) -> Option<Encoded> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |launched: &&Launched| {
            self.words.iter().zip(&launched.words).all(|(&index, &word)| words[index as usize] == word)
        };
        match recent.launches.iter().find(same) {
            Some(launched) => launched.encoded.clone(),
            None => self.encode(&mut recent, words),
        }
    }

    #[cold]
    fn encode(&self, recent: &mut Recent, words: &[ParamWord]) -> Option<Encoded> {
        let encoded: Option<Encoded> = self.maps.iter().map(|map| encode(map, words)).collect();
        let key = self.words.iter().map(|&index| words[index as usize]).collect();
        let launched = Launched { words: key, encoded: encoded.clone() };
        match recent.launches.get_mut(recent.next) {
            Some(place) => *place = launched,
            None => recent.launches.push(launched),
        }
        recent.next = (recent.next + 1) % KEPT;
        encoded
    }
}

fn encode(map: &TensorMap, words: &[ParamWord]) -> Option<CUtensorMap> {
    let array = map.resolve(words)?;
    use {CUtensorMapDataType::*, CUtensorMapL2promotion::*, CUtensorMapSwizzle::*};
    let tiled = TiledArray {
        address: array.address,
        extents: &array.extents[..array.rank],
        strides: &array.strides[..array.rank - 1],
        boxes: &array.boxes[..array.rank],
        element: match map.element {
            MapElement::U8 => CU_TENSOR_MAP_DATA_TYPE_UINT8,
            MapElement::U16 => CU_TENSOR_MAP_DATA_TYPE_UINT16,
            MapElement::U32 => CU_TENSOR_MAP_DATA_TYPE_UINT32,
            MapElement::U64 => CU_TENSOR_MAP_DATA_TYPE_UINT64,
            MapElement::Tf32 => CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
            MapElement::F32 => CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            MapElement::F16 => CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            MapElement::BF16 => CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        },
        swizzle: match map.swizzle {
            Swizzle::None => CU_TENSOR_MAP_SWIZZLE_NONE,
            Swizzle::B32 => CU_TENSOR_MAP_SWIZZLE_32B,
            Swizzle::B64 => CU_TENSOR_MAP_SWIZZLE_64B,
            Swizzle::B128 => CU_TENSOR_MAP_SWIZZLE_128B,
        },
        promotion: match map.promotion {
            L2Promotion::None => CU_TENSOR_MAP_L2_PROMOTION_NONE,
            L2Promotion::B64 => CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
            L2Promotion::B128 => CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            L2Promotion::B256 => CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        },
    };
    // An array that the driver rejects has no map, either: the driver may have further limits.
    tiled.encode().ok()
}
