"""CUDA C++: CUB and the kernels of `peers.cu`, as `prepare` compiled them, else by the nvcc of this machine."""

import atexit
import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch

# By kernel and type, or these and all numbers but the first: contenders with their functions of `peers.cu`.
CHOICES = {
    ("prefix_sum", "i32"): {"CUB": {"": "scan_i32"}},
    ("prefix_sum", "f32"): {"CUB": {"": "scan_f32"}},
    ("cumsum", "f32"): {"CUB": {"256 threads": "scan_rows_256", "512 threads": "scan_rows_512", "1024 threads": "scan_rows_1024"}},
    ("histogram", "u8"): {"CUB": {"": "histogram_u8"},
                          "CUDA C++": {"32 copies": "histogram_32", "16 copies": "histogram_16", "8 copies": "histogram_8"}},
    ("sum", "f32"): {"CUB": {"": "sum_f32"}},
    ("sort", "f32"): {"CUB": {"segmented sort": "sort_segments", "segmented radix sort": "sort_segments_radix",
                              "block radix sort, 256 threads": "sort_radix_256", "block radix sort, 256 threads, 5 bits": "sort_radix_256_5",
                              "block radix sort, 512 threads": "sort_radix_512", "block radix sort, 512 threads, 5 bits": "sort_radix_512_5",
                              "block radix sort, 1024 threads": "sort_radix_1024", "block merge sort, 256 threads": "sort_merge_256",
                              "block merge sort, 512 threads": "sort_merge_512"}},
    ("top_k", "f32", 128, 8): {"CUDA C++": {"4 warps": "top_8_of_128_4", "8 warps": "top_8_of_128_8"}},
    ("stencil", "f32"): {"CUDA C++": {"4 rows": "stencil_4", "8 rows": "stencil_8", "16 rows": "stencil_16"}},
}

_library = None


def library(folder):
    """The compiled functions; raises where there are none and no nvcc either."""
    global _library
    if _library is None:
        made = folder / "libpeers.so"
        try:
            _library = ctypes.CDLL(str(made if made.exists() else compiled(folder / "peers.cu")))
        except (OSError, RuntimeError) as error:
            # Not tried again for the next row.
            _library = error
    if isinstance(_library, Exception):
        raise RuntimeError(str(_library))
    return _library


def compiled(source):
    nvcc = os.environ.get("CUTLET_NVCC") or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).exists():
        raise RuntimeError("no nvcc: CUDA C++ and CUB are left out")
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = "sm_{}{}".format(*torch.cuda.get_device_capability())
    made = Path(folder) / "libpeers.so"
    command = [nvcc, "-O3", "-std=c++17", f"-arch={target}", "-shared", "-Xcompiler", "-fPIC", "-o", str(made), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"nvcc: {(done.stderr or done.stdout)[-300:]}")
    return made


class Cuda:
    """Functions of one kind for a row."""

    def __init__(self, name, folder, row, functions):
        self.name, self.folder, self.row, self.functions, self.failures = name, folder, row, functions, {}

    def configurations(self, sets):
        try:
            made = library(self.folder)
        except RuntimeError as error:
            self.failures[""] = str(error)
            return
        version = made.cccl_version()
        for label, name in self.functions.items():
            label = label or f"CCCL {version // 1000000}.{version // 1000 % 1000}.{version % 1000}"
            function = getattr(made, name)
            function.restype = ctypes.c_int
            try:
                launches = [self.bind(function, tensors) for tensors in sets]
            except RuntimeError as error:
                self.failures[label] = str(error)
                continue
            yield label, lambda set_, launches=launches: launches[set_]()

    def bind(self, function, tensors):
        first = next(a for a in self.row.arrays if a.use == "in")
        outputs = [a for a in self.row.arrays if a.use == "out"]
        arrays = [ctypes.c_void_p(tensors[a.name].data_ptr()) for a in (first, *outputs)]
        m, n = (ctypes.c_int64(number) for number in (1, *tensors[first.name].shape)[-2:])
        size = ctypes.c_size_t(0)
        def queue(work):
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            status = function(work, ctypes.byref(size), *arrays, m, n, stream)
            if status:
                raise RuntimeError(f"CUDA error {status}")
        queue(None)
        work = torch.empty(max(1, size.value), dtype=torch.uint8, device="cuda")
        def launch():
            queue(ctypes.c_void_p(work.data_ptr()))
        return launch


def contenders(row, folder):
    kind = (row.kernel, row.element)
    choices = CHOICES.get(kind) or CHOICES.get((*kind, *row.numbers[1:]), {})
    return [Cuda(name, folder, row, functions) for name, functions in choices.items()]
