// What CUDA C++ offers for a row: CUB, and kernels by hand where CUB has none or is not the best.
//
// Each function queues its work on a stream and gives a CUDA error code; without `work` it only says how many
// bytes of it it needs. Extents are those of the row's name: m is 1 where there is only one.

#include <cstdint>
#include <cub/block/block_load.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_scan.cuh>
#include <cuda/std/version>

#define PEER(name, T, U) \
    extern "C" int name(void* work, size_t* bytes, const T* x, U* y, int64_t m, int64_t n, cudaStream_t stream)

// CUB.

extern "C" int cccl_version() { return CCCL_VERSION; }

PEER(scan_i32, int32_t, int32_t) { return cub::DeviceScan::InclusiveSum(work, *bytes, x, y, static_cast<int>(n), stream); }

PEER(scan_f32, float, float) { return cub::DeviceScan::InclusiveSum(work, *bytes, x, y, static_cast<int>(n), stream); }

PEER(histogram_u8, uint8_t, int32_t) {
    return cub::DeviceHistogram::HistogramEven(work, *bytes, x, y, 257, 0, 256, static_cast<int>(n), stream);
}

/// A block takes a row of THREADS * ITEMS.
template <int THREADS, int ITEMS, cub::BlockLoadAlgorithm LOAD, cub::BlockStoreAlgorithm STORE>
__global__ void __launch_bounds__(THREADS) scan_row(const float* __restrict__ x, float* __restrict__ y) {
    using Load = cub::BlockLoad<float, THREADS, ITEMS, LOAD>;
    using Store = cub::BlockStore<float, THREADS, ITEMS, STORE>;
    using Scan = cub::BlockScan<float, THREADS, cub::BLOCK_SCAN_WARP_SCANS>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Scan::TempStorage scan;
        typename Store::TempStorage store;
    } shared;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * THREADS * ITEMS;
    float items[ITEMS];
    Load(shared.load).Load(x + row, items);
    __syncthreads();
    Scan(shared.scan).InclusiveSum(items, items);
    __syncthreads();
    Store(shared.store).Store(y + row, items);
}

template <int THREADS, int ITEMS, cub::BlockLoadAlgorithm LOAD, cub::BlockStoreAlgorithm STORE>
int scan_rows(void* work, size_t* bytes, const float* x, float* y, int64_t m, int64_t n, cudaStream_t stream) {
    *bytes = 1;
    if (n != THREADS * ITEMS) return cudaErrorInvalidValue;
    if (!work) return cudaSuccess;
    scan_row<THREADS, ITEMS, LOAD, STORE><<<m, THREADS, 0, stream>>>(x, y);
    return cudaGetLastError();
}

PEER(scan_rows_256, float, float) {
    return scan_rows<256, 16, cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE>(work, bytes, x, y, m, n, stream);
}
PEER(scan_rows_512, float, float) {
    return scan_rows<512, 8, cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::BLOCK_STORE_WARP_TRANSPOSE>(work, bytes, x, y, m, n, stream);
}
PEER(scan_rows_1024, float, float) {
    return scan_rows<1024, 4, cub::BLOCK_LOAD_VECTORIZE, cub::BLOCK_STORE_VECTORIZE>(work, bytes, x, y, m, n, stream);
}

// By hand.

/// A block counts in COPIES histograms of its own, each for the lanes of that number: with 32 of them, lanes never
/// meet in a bank.
template <int COPIES>
__global__ void __launch_bounds__(512) count(const uint4* x, int* bins, int64_t vectors) {
    constexpr int UNROLL = 4;
    __shared__ unsigned counts[256 * COPIES];
    for (int i = threadIdx.x; i < 256 * COPIES; i += blockDim.x) counts[i] = 0;
    __syncthreads();
    unsigned* own = counts + threadIdx.x % COPIES;
    auto add = [own](unsigned word) {
        for (int byte = 0; byte < 4; byte++) atomicAdd(own + ((word >> 8 * byte) & 255) * COPIES, 1u);
    };
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < vectors; i += UNROLL * step) {
        uint4 loaded[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (i + u * step < vectors) loaded[u] = __ldcs(x + i + u * step);
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (i + u * step < vectors) add(loaded[u].x), add(loaded[u].y), add(loaded[u].z), add(loaded[u].w);
    }
    __syncthreads();
    const int lane = threadIdx.x % 32;
    for (int bin = threadIdx.x / 32; bin < 256; bin += blockDim.x / 32) {
        const unsigned total = __reduce_add_sync(~0u, lane < COPIES ? counts[bin * COPIES + lane] : 0);
        if (lane == 0) atomicAdd(bins + bin, static_cast<int>(total));
    }
}

template <int COPIES>
int histogram(void* work, size_t* bytes, const uint8_t* x, int32_t* y, int64_t n, int each, cudaStream_t stream) {
    *bytes = 1;
    if (n % 16) return cudaErrorInvalidValue;
    if (!work) return cudaSuccess;
    int device = 0, multiprocessors = 0;
    if (int error = cudaGetDevice(&device)) return error;
    if (int error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device)) return error;
    if (int error = cudaMemsetAsync(y, 0, 256 * sizeof(int32_t), stream)) return error;
    count<COPIES><<<each * multiprocessors, 512, 0, stream>>>(reinterpret_cast<const uint4*>(x), y, n / 16);
    return cudaGetLastError();
}

PEER(histogram_32, uint8_t, int32_t) { return histogram<32>(work, bytes, x, y, n, 4, stream); }
PEER(histogram_16, uint8_t, int32_t) { return histogram<16>(work, bytes, x, y, n, 4, stream); }
PEER(histogram_8, uint8_t, int32_t) { return histogram<8>(work, bytes, x, y, n, 4, stream); }

/// A thread computes ROWS rows of four columns, all of whose inputs it has asked for before the first arrives; lanes
/// get the columns beside theirs from their neighbours, the outermost ones from memory.
template <int ROWS>
__global__ void __launch_bounds__(128) stencil(const float* __restrict__ x, float* __restrict__ y, int m, int n) {
    const int j = (blockIdx.x * blockDim.x + threadIdx.x) * 4, first = blockIdx.y * ROWS, lane = threadIdx.x % 32;
    auto at = [=](int i) { return static_cast<int64_t>(i) * n + j; };
    const bool outermost = lane == 0 ? j > 0 : lane == 31 && j + 4 < n;
    const int beside = lane == 0 ? -1 : 4;
    float4 rows[ROWS + 2];
    float edges[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS + 2; r++) {
        const int i = first + r - 1;
        rows[r] = i >= 0 && i < m ? *reinterpret_cast<const float4*>(x + at(i)) : make_float4(0, 0, 0, 0);
        if (r > 0 && r <= ROWS) edges[r - 1] = outermost && i < m ? x[at(i) + beside] : 0;
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const float4 up = rows[r], here = rows[r + 1], down = rows[r + 2];
        float left = __shfl_up_sync(~0u, here.w, 1), right = __shfl_down_sync(~0u, here.x, 1);
        left = lane == 0 ? edges[r] : left;
        right = lane == 31 ? edges[r] : right;
        if (first + r < m)
            *reinterpret_cast<float4*>(y + at(first + r)) =
                make_float4(up.x + down.x + left + here.y - 4 * here.x, up.y + down.y + here.x + here.z - 4 * here.y,
                            up.z + down.z + here.y + here.w - 4 * here.z, up.w + down.w + here.z + right - 4 * here.w);
    }
}

template <int ROWS>
int stencil(void* work, size_t* bytes, const float* x, float* y, int64_t m, int64_t n, cudaStream_t stream) {
    *bytes = 1;
    if (n % 512) return cudaErrorInvalidValue;
    if (!work) return cudaSuccess;
    stencil<ROWS><<<dim3(n / 512, (m + ROWS - 1) / ROWS), 128, 0, stream>>>(x, y, m, n);
    return cudaGetLastError();
}

PEER(stencil_4, float, float) { return stencil<4>(work, bytes, x, y, m, n, stream); }
PEER(stencil_8, float, float) { return stencil<8>(work, bytes, x, y, m, n, stream); }
PEER(stencil_16, float, float) { return stencil<16>(work, bytes, x, y, m, n, stream); }
