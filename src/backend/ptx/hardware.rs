//! Hardware constants: sizes and limits of the GPUs that the back end generates code for.
//!
//! Sources: *PTX* is the PTX ISA 8.8, *CUDA* the CUDA C++ Programming Guide 12.9 (the table of
//! technical specifications per compute capability), *driver* the CUDA driver API. Limits without a
//! target hold from compute capability 8.0 on.

/// Threads of a warp (PTX, predefined constant `WARP_SZ`).
pub const WARP_SIZE: u32 = 32;

/// Warps of a warp group, which issue one `wgmma` (PTX, "Asynchronous warpgroup-level matrix
/// instructions").
pub const WARP_GROUP_WARPS: u32 = 4;

/// Warps of a CTA at most: 1024 threads (CUDA, maximum number of threads per block).
pub const MAX_WARPS_PER_CTA: u32 = 32;

/// Threads of a CTA at most (CUDA, maximum number of threads per block).
pub const MAX_THREADS_PER_CTA: u32 = MAX_WARPS_PER_CTA * WARP_SIZE;

/// Warps that are resident on an SM at most (CUDA, compute capability 8.0 and 9.0).
pub const MAX_WARPS_PER_SM: u32 = 64;

/// CTAs that are resident on an SM at most (CUDA, compute capability 8.0 and 9.0).
pub const MAX_CTAS_PER_SM: u32 = 32;

/// 32-bit registers of a thread at most (CUDA, maximum number of 32-bit registers per thread).
pub const MAX_REGISTERS_PER_THREAD: u32 = 255;

/// 32-bit registers of an SM (CUDA, number of 32-bit registers per multiprocessor).
pub const REGISTERS_PER_SM: u32 = 1 << 16;

/// Sub-partitions of an SM: each has a scheduler and an equal share of the registers (NVIDIA H100
/// whitepaper, "H100 SM architecture").
pub const SCHEDULERS_PER_SM: u32 = 4;

/// Bytes of a row of shared memory: 32 banks of 4 bytes, and the widest swizzle span (PTX,
/// "Swizzling modes").
pub const SWIZZLE_ROW_BYTES: u32 = 128;

/// Rows after which a swizzle pattern repeats (PTX, "Swizzling modes").
pub const SWIZZLE_ATOM_ROWS: u32 = 8;

/// Bytes of a swizzle atom: the alignment of an operand with the 128-byte swizzle (PTX, "Matrix
/// descriptor").
pub const SWIZZLE_ATOM_BYTES: u32 = SWIZZLE_ATOM_ROWS * SWIZZLE_ROW_BYTES;

/// Alignment in bytes of a TMA box in shared memory (PTX, `cp.async.bulk.tensor`).
pub const TMA_SMEM_ALIGN: u32 = 128;

/// Elements of a TMA box along one dimension at most (driver, `cuTensorMapEncodeTiled`: `boxDim`).
pub const MAX_TMA_BOX: u32 = 256;

/// Bytes and alignment of an mbarrier (PTX, "Size and alignment of mbarrier object").
pub const MBARRIER_BYTES: u32 = 8;

/// Named barriers of a CTA (PTX, `barrier`: operand `a` is from 0 to 15).
pub const NAMED_BARRIERS: u32 = 16;

/// Rows of one `wgmma` (PTX, "Matrix shape": m64).
pub const WGMMA_ROWS: u32 = 64;

/// Columns of one `wgmma` at most (PTX, "Matrix shape": n256).
pub const MAX_WGMMA_COLUMNS: u32 = 256;

/// Bytes of k of one `wgmma` or `mma.sync` of 16-bit elements (PTX, "Matrix shape": k16 of 16-bit
/// elements).
pub const MMA_K_BYTES: u32 = 32;
