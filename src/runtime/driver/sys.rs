//! The driver's types and numbers that this crate uses, named as in `cuda.h`.
//!
//! They are not from bindings, whose types depend on the CUDA version at their build. These
//! definitions are equal in every version from 12.0 on. A field that only newer versions define is
//! a reserved field of older ones, and is zero.
#![allow(non_camel_case_types, non_snake_case, missing_docs)]

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void};

macro_rules! handles {
    ($($handle:ident = *mut $object:ident;)+) => {$(
        #[doc = concat!("What a `", stringify!($handle), "` points to.")]
        pub enum $object {}
        pub type $handle = *mut $object;
    )+};
}

handles! {
    CUcontext = *mut CUctx_st;
    CUevent = *mut CUevent_st;
    CUfunction = *mut CUfunc_st;
    CUgraph = *mut CUgraph_st;
    CUgraphExec = *mut CUgraphExec_st;
    CUgraphNode = *mut CUgraphNode_st;
    CUkernel = *mut CUkern_st;
    CUlibrary = *mut CUlib_st;
    CUlinkState = *mut CUlinkState_st;
    CUmemoryPool = *mut CUmemPoolHandle_st;
    CUmodule = *mut CUmod_st;
    CUstream = *mut CUstream_st;
}

pub type CUdevice = c_int;
pub type CUdeviceptr = u64;

/// Numbers that are only passed to the driver, and never returned by it.
macro_rules! numbers {
    ($($name:ident { $($value:ident = $number:literal,)+ })+) => {$(
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum $name { $($value = $number,)+ }
    )+

        /// Asserts that every number equals that of the bindings.
        #[cfg(all(test, feature = "cudarc"))]
        #[test]
        fn numbers_are_those_of_the_bindings() {
            use cudarc::driver::sys as theirs;
            $($({
                // SAFETY: the other type is a number of 32 bits: an enum, or a structure around
                // one.
                let theirs = unsafe { std::mem::transmute::<theirs::$name, u32>(theirs::$name::$value) };
                assert_eq!($name::$value as u32, theirs, stringify!($value));
            })+)+
        }
    };
}

numbers! {
    CUdevice_attribute {
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
        CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE = 36,
        CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH = 37,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
        CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
    }
    CUevent_flags {
        CU_EVENT_DISABLE_TIMING = 2,
    }
    CUfunction_attribute {
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
        CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
        CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
    }
    CUjitInputType {
        CU_JIT_INPUT_PTX = 1,
    }
    CUjit_option {
        CU_JIT_INFO_LOG_BUFFER = 3,
        CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4,
        CU_JIT_ERROR_LOG_BUFFER = 5,
        CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
        CU_JIT_OPTIMIZATION_LEVEL = 7,
        CU_JIT_LOG_VERBOSE = 12,
        CU_JIT_GENERATE_LINE_INFO = 13,
    }
    CUlaunchAttributeID {
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
    }
    CUmemAllocationHandleType {
        CU_MEM_HANDLE_TYPE_NONE = 0,
    }
    CUmemAllocationType {
        CU_MEM_ALLOCATION_TYPE_PINNED = 1,
    }
    CUmemAccess_flags {
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
    }
    CUmemLocationType {
        CU_MEM_LOCATION_TYPE_DEVICE = 1,
    }
    CUmemPool_attribute {
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
    }
    CUstreamCaptureMode {
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
    }
    CUstream_flags {
        CU_STREAM_NON_BLOCKING = 1,
    }
    CUtensorMapDataType {
        CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
        CU_TENSOR_MAP_DATA_TYPE_UINT16 = 1,
        CU_TENSOR_MAP_DATA_TYPE_UINT32 = 2,
        CU_TENSOR_MAP_DATA_TYPE_UINT64 = 4,
        CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
        CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
        CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
        CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 = 11,
    }
    CUtensorMapFloatOOBfill {
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE = 0,
    }
    CUtensorMapInterleave {
        CU_TENSOR_MAP_INTERLEAVE_NONE = 0,
    }
    CUtensorMapL2promotion {
        CU_TENSOR_MAP_L2_PROMOTION_NONE = 0,
        CU_TENSOR_MAP_L2_PROMOTION_L2_64B = 1,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B = 2,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B = 3,
    }
    CUtensorMapSwizzle {
        CU_TENSOR_MAP_SWIZZLE_NONE = 0,
        CU_TENSOR_MAP_SWIZZLE_32B = 1,
        CU_TENSOR_MAP_SWIZZLE_64B = 2,
        CU_TENSOR_MAP_SWIZZLE_128B = 3,
    }
}

/// Its first field is a number that the driver writes.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUgraphExecUpdateResultInfo {
    pub result: c_uint,
    pub errorNode: CUgraphNode,
    pub errorFromNode: CUgraphNode,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUmemLocation {
    pub type_: CUmemLocationType,
    pub id: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUmemAccessDesc {
    pub location: CUmemLocation,
    pub flags: c_uint,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUmemPoolProps {
    pub allocType: CUmemAllocationType,
    pub handleTypes: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    pub win32SecurityAttributes: *mut c_void,
    pub maxSize: usize,
    pub usage: c_ushort,
    pub reserved: [c_uchar; 54],
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct ClusterDimension {
    pub x: c_uint,
    pub y: c_uint,
    pub z: c_uint,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub union CUlaunchAttributeValue {
    pub pad: [c_char; 64],
    /// Sets the alignment of the union to that of its fields that are not defined here.
    pub word: u64,
    pub clusterDim: ClusterDimension,
    pub programmaticStreamSerializationAllowed: c_int,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUlaunchAttribute {
    pub id: CUlaunchAttributeID,
    pub pad: [c_char; 4],
    pub value: CUlaunchAttributeValue,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub struct CUlaunchConfig {
    pub gridDimX: c_uint,
    pub gridDimY: c_uint,
    pub gridDimZ: c_uint,
    pub blockDimX: c_uint,
    pub blockDimY: c_uint,
    pub blockDimZ: c_uint,
    pub sharedMemBytes: c_uint,
    pub hStream: CUstream,
    pub attrs: *mut CUlaunchAttribute,
    pub numAttrs: c_uint,
}

/// Aligned to 64 bytes up to CUDA 12, to 128 from CUDA 13 on.
#[derive(Clone, Copy)]
#[repr(C, align(128))]
pub struct CUtensorMap {
    pub opaque: [u64; 16],
}

#[cfg(test)]
mod tests {
    use std::mem::{offset_of, size_of};

    use super::*;

    #[test]
    fn structures_have_the_layout_of_the_driver() {
        assert_eq!((size_of::<CUmemPoolProps>(), offset_of!(CUmemPoolProps, win32SecurityAttributes)), (88, 16));
        assert_eq!((offset_of!(CUmemPoolProps, maxSize), offset_of!(CUmemPoolProps, reserved)), (24, 34));
        assert_eq!((size_of::<CUmemAccessDesc>(), offset_of!(CUmemAccessDesc, flags)), (12, 8));
        assert_eq!((size_of::<CUlaunchAttribute>(), offset_of!(CUlaunchAttribute, value)), (72, 8));
        assert_eq!((size_of::<CUlaunchConfig>(), offset_of!(CUlaunchConfig, hStream)), (56, 32));
        assert_eq!((offset_of!(CUlaunchConfig, attrs), offset_of!(CUlaunchConfig, numAttrs)), (40, 48));
        assert_eq!(size_of::<CUtensorMap>(), 128);
        assert_eq!(
            (size_of::<CUgraphExecUpdateResultInfo>(), offset_of!(CUgraphExecUpdateResultInfo, errorNode)),
            (24, 8)
        );
    }

    #[cfg(feature = "cudarc")]
    #[test]
    fn structures_are_those_of_the_bindings() {
        use std::mem::align_of;

        use cudarc::driver::sys as theirs;
        macro_rules! same {
            ($($name:ident { $($field:ident),* })+) => {$(
                assert_eq!(size_of::<$name>(), size_of::<theirs::$name>(), stringify!($name));
                assert!(align_of::<$name>() >= align_of::<theirs::$name>(), stringify!($name));
                $(assert_eq!(offset_of!($name, $field), offset_of!(theirs::$name, $field), stringify!($field));)*
            )+};
        }
        same! {
            CUgraphExecUpdateResultInfo { result, errorNode, errorFromNode }
            CUmemAccessDesc { location, flags }
            CUmemLocation { type_ }
            CUmemPoolProps { allocType, handleTypes, location, win32SecurityAttributes }
            CUlaunchAttribute { id, pad, value }
            CUlaunchAttributeValue { pad, clusterDim, programmaticStreamSerializationAllowed }
            CUlaunchConfig { gridDimX, gridDimZ, blockDimX, blockDimZ, sharedMemBytes, hStream, attrs, numAttrs }
            CUtensorMap { opaque }
        }
    }
}
