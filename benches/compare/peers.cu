// What CUDA C++ offers for a row: CUB, and kernels by hand where CUB has none or is not the best.
//
// Each function queues its work on a stream and gives a CUDA error code; without `work` it only says how many
// bytes of it it needs. Extents are those of the row's name: m is 1 where there is only one.

#include <cstdint>
#include <cub/block/block_load.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_store.cuh>
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_segmented_radix_sort.cuh>
#include <cub/device/device_segmented_sort.cuh>
#include <cuda/std/version>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

#define PEER(name, T, U) \
    extern "C" int name(void* work, size_t* bytes, const T* x, U* y, int64_t m, int64_t n, cudaStream_t stream)

/// With two results.
#define PEER_OF_TWO(name, T, U, V) \
    extern "C" int name(void* work, size_t* bytes, const T* x, U* y, V* z, int64_t m, int64_t n, cudaStream_t stream)

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

PEER(sum_f32, float, float) { return cub::DeviceReduce::Sum(work, *bytes, x, y, static_cast<int>(n), stream); }

/// Where a row begins.
struct Begin {
    int64_t n;
    __host__ __device__ int64_t operator()(int64_t row) const { return row * n; }
};

PEER(sort_segments, float, float) {
    auto begin = thrust::make_transform_iterator(thrust::make_counting_iterator<int64_t>(0), Begin{n});
    return cub::DeviceSegmentedSort::SortKeys(work, *bytes, x, y, m * n, m, begin, begin + 1, stream);
}

PEER(sort_segments_radix, float, float) {
    auto begin = thrust::make_transform_iterator(thrust::make_counting_iterator<int64_t>(0), Begin{n});
    return cub::DeviceSegmentedRadixSort::SortKeys(work, *bytes, x, y, m * n, m, begin, begin + 1, 0, 32, stream);
}

/// A block takes a row of THREADS * ITEMS.
template <int THREADS, int ITEMS, int BITS>
__global__ void __launch_bounds__(THREADS) sort_row_radix(const float* __restrict__ x, float* __restrict__ y) {
    using Load = cub::BlockLoad<float, THREADS, ITEMS, cub::BLOCK_LOAD_VECTORIZE>;
    using Sort = cub::BlockRadixSort<float, THREADS, ITEMS, cub::NullType, BITS>;
    __shared__ typename Sort::TempStorage shared;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * THREADS * ITEMS;
    float items[ITEMS];
    Load().Load(x + row, items);
    Sort(shared).SortBlockedToStriped(items);
    cub::StoreDirectStriped<THREADS>(threadIdx.x, y + row, items);
}

struct Less {
    __device__ bool operator()(float a, float b) const { return a < b; }
};

/// The same by merging.
template <int THREADS, int ITEMS>
__global__ void __launch_bounds__(THREADS) sort_row_merge(const float* __restrict__ x, float* __restrict__ y) {
    using Load = cub::BlockLoad<float, THREADS, ITEMS, cub::BLOCK_LOAD_VECTORIZE>;
    using Store = cub::BlockStore<float, THREADS, ITEMS, cub::BLOCK_STORE_WARP_TRANSPOSE>;
    using Sort = cub::BlockMergeSort<float, THREADS, ITEMS>;
    __shared__ union {
        typename Sort::TempStorage sort;
        typename Store::TempStorage store;
    } shared;
    const int64_t row = static_cast<int64_t>(blockIdx.x) * THREADS * ITEMS;
    float items[ITEMS];
    Load().Load(x + row, items);
    Sort(shared.sort).Sort(items, Less());
    __syncthreads();
    Store(shared.store).Store(y + row, items);
}

template <int THREADS, int ITEMS, int BITS>
int sort_rows(void* work, size_t* bytes, const float* x, float* y, int64_t m, int64_t n, cudaStream_t stream) {
    *bytes = 1;
    if (n != THREADS * ITEMS) return cudaErrorInvalidValue;
    if (!work) return cudaSuccess;
    if constexpr (BITS > 0)
        sort_row_radix<THREADS, ITEMS, BITS><<<m, THREADS, 0, stream>>>(x, y);
    else
        sort_row_merge<THREADS, ITEMS><<<m, THREADS, 0, stream>>>(x, y);
    return cudaGetLastError();
}

PEER(sort_radix_256, float, float) { return sort_rows<256, 16, 4>(work, bytes, x, y, m, n, stream); }
PEER(sort_radix_256_5, float, float) { return sort_rows<256, 16, 5>(work, bytes, x, y, m, n, stream); }
PEER(sort_radix_512, float, float) { return sort_rows<512, 8, 4>(work, bytes, x, y, m, n, stream); }
PEER(sort_radix_512_5, float, float) { return sort_rows<512, 8, 5>(work, bytes, x, y, m, n, stream); }
PEER(sort_radix_1024, float, float) { return sort_rows<1024, 4, 4>(work, bytes, x, y, m, n, stream); }
PEER(sort_merge_256, float, float) { return sort_rows<256, 16, 0>(work, bytes, x, y, m, n, stream); }
PEER(sort_merge_512, float, float) { return sort_rows<512, 8, 0>(work, bytes, x, y, m, n, stream); }

// By hand.

/// A warp takes a row of 128, four elements a lane, and finds the K largest one after another; of equal ones the first.
template <int K, int WARPS>
__global__ void __launch_bounds__(32 * WARPS) top_of_128(const float4* __restrict__ x, float* __restrict__ value,
                                                         int* __restrict__ index, int64_t rows) {
    const int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    const float4 loaded = x[row * 32 + lane];
    auto key = [](float x) {
        const unsigned bits = __float_as_uint(x);
        return bits ^ (bits >> 31 ? ~0u : 1u << 31);
    };
    unsigned keys[4] = {key(loaded.x), key(loaded.y), key(loaded.z), key(loaded.w)};
    unsigned found = 0;
    int place = 0;
#pragma unroll
    for (int k = 0; k < K; k++) {
        const unsigned own = max(max(keys[0], keys[1]), max(keys[2], keys[3]));
        const int which = keys[0] == own ? 0 : keys[1] == own ? 1 : keys[2] == own ? 2 : 3;
        const unsigned best = __reduce_max_sync(~0u, own);
        const int first = __ffs(__ballot_sync(~0u, own == best)) - 1;
        const int at = __shfl_sync(~0u, 4 * lane + which, first);
        if (lane == k) found = best, place = at;
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (4 * lane + i == at) keys[i] = 0;
    }
    if (lane < K) {
        value[row * K + lane] = __uint_as_float(found ^ (found >> 31 ? 1u << 31 : ~0u));
        index[row * K + lane] = place;
    }
}

template <int K, int WARPS>
int top_of_rows(void* work, size_t* bytes, const float* x, float* y, int32_t* z, int64_t m, int64_t n, cudaStream_t stream) {
    *bytes = 1;
    if (n != 128) return cudaErrorInvalidValue;
    if (!work) return cudaSuccess;
    top_of_128<K, WARPS><<<(m + WARPS - 1) / WARPS, 32 * WARPS, 0, stream>>>(reinterpret_cast<const float4*>(x), y, z, m);
    return cudaGetLastError();
}

PEER_OF_TWO(top_8_of_128_4, float, float, int32_t) { return top_of_rows<8, 4>(work, bytes, x, y, z, m, n, stream); }
PEER_OF_TWO(top_8_of_128_8, float, float, int32_t) { return top_of_rows<8, 8>(work, bytes, x, y, z, m, n, stream); }

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
