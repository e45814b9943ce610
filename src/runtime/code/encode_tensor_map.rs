//! Encoding of tensor maps by the driver, from given numbers.

use std::ffi::{c_uint, c_void};

use crate::error::Result;
use crate::runtime::driver::Driver;
use crate::runtime::driver::sys::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle,
};

/// An array that is transferred box by box; dimensions innermost first.
pub(crate) struct TiledArray<'a> {
    /// Address of the first element.
    pub address: u64,
    /// Extents in elements.
    pub extents: &'a [u64],
    /// Strides in bytes, from the second dimension on.
    pub strides: &'a [u64],
    /// Extents of a box.
    pub boxes: &'a [u32],
    /// Element type.
    pub element: CUtensorMapDataType,
    /// Order of a box in shared memory.
    pub swizzle: CUtensorMapSwizzle,
    /// The granularity of loads into the second-level cache.
    pub promotion: CUtensorMapL2promotion,
}

impl TiledArray<'_> {
    /// Encodes the map, with zeros outside of the array.
    ///
    /// # Errors
    /// [`crate::Error::Driver`] for numbers that a map cannot represent.
    pub fn encode(&self) -> Result<CUtensorMap> {
        let rank = self.extents.len();
        assert!(self.strides.len() + 1 == rank && self.boxes.len() == rank, "lengths of the lists of a tensor map");
        let every = vec![1u32; rank];
        let mut map = CUtensorMap { opaque: [0; 16] };
        // SAFETY: the lists have `rank` elements; the address is only stored.
        unsafe {
            Driver::get()?.encode_tensor_map(
                &mut map,
                self.element as c_uint,
                rank as c_uint,
                std::ptr::without_provenance_mut::<c_void>(self.address as usize),
                self.extents.as_ptr(),
                self.strides.as_ptr(),
                self.boxes.as_ptr(),
                every.as_ptr(),
                CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE as c_uint,
                self.swizzle as c_uint,
                self.promotion as c_uint,
                CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE as c_uint,
            )?;
        }
        Ok(map)
    }
}
