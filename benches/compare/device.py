"""What the comparison needs of the CUDA driver beside torch: cubins, launches, and memory of others as tensors."""

import ctypes

import torch

_driver = None


def driver():
    global _driver
    if _driver is None:
        _driver = ctypes.CDLL("libcuda.so.1")
    return _driver


def check(status, what):
    if status:
        text = ctypes.c_char_p()
        driver().cuGetErrorString(status, ctypes.byref(text))
        raise RuntimeError(f"{what}: {text.value.decode() if text.value else status}")


class Kernel:
    """A kernel of a cubin that tileiras made: blocks of one thread, the driver knows how many there really are."""

    def __init__(self, path, entry):
        torch.cuda.current_stream()
        self.module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        image = path.read_bytes()
        check(driver().cuModuleLoadData(ctypes.byref(self.module), image), f"loading {path.name}")
        check(driver().cuModuleGetFunction(ctypes.byref(self.function), self.module, entry.encode()), f"finding {entry} in {path.name}")

    def bind(self, grid, values):
        """A function that launches with these ctypes values on torch's current stream."""
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.cast(ctypes.pointer(v), ctypes.c_void_p) for v in values])
        x, y, z = (*grid, 1, 1)[:3]
        launch, function = driver().cuLaunchKernel, self.function
        def queue(stream):
            _ = values
            status = launch(function, x, y, z, 1, 1, 1, 0, ctypes.c_void_p(stream), pointers, None)
            if status:
                check(status, "launching")
        return queue


class _Memory:
    def __init__(self, address, count, kind):
        self.__cuda_array_interface__ = {"shape": (count,), "typestr": kind, "data": (address, False), "version": 3, "strides": None}


def tensor_at(address, shape, dtype):
    """A tensor over memory that somebody else owns."""
    size = torch.empty(0, dtype=dtype).element_size()
    count = 1
    for extent in shape:
        count *= extent
    # Not every element type has a name in the interface; integers of the same width do.
    flat = torch.as_tensor(_Memory(address, count, {1: "|u1", 2: "<i2", 4: "<i4", 8: "<i8"}[size]), device="cuda")
    assert flat.data_ptr() == address, "torch copied instead of sharing"
    return flat.view(dtype).view(shape)
