"""What differs between the libraries of tensors: new tensors, capsules of DLPack, and the current stream."""

import contextlib

from . import _native

# The types that kernels have, as DLPack codes them.
_CODES = {"float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16), "int32": (0, 32), "uint32": (1, 32)}


class Framework:
    """One library of tensors. The methods of the base class are those of NumPy."""

    def stream(self, x):
        """The number of the current stream on the device of a tensor, or None for the host."""
        return None

    def gpu(self, x):
        """The number of the GPU of a tensor, or None for the host."""
        return None

    def guard(self, x):
        """A context after which the current device of the library is what it was before a launch."""
        return contextlib.nullcontext()

    def empty(self, like, shape):
        """A new tensor with the type and device of another one, that the kernel writes."""
        import numpy

        return numpy.empty(shape, like.dtype)

    def scratch(self, like, count):
        """A new vector of f32 on the device of a tensor. Its memory is free again in the order of the current stream."""
        import numpy

        return numpy.empty(count, numpy.float32)

    def capsule(self, x, stream):
        """The tensor as a capsule, without a copy, after its queued work."""
        try:
            return x.__dlpack__()
        except (BufferError, ValueError):
            # NumPy exports neither read-only arrays nor strides that are no multiples of the element.
            return x.copy().__dlpack__()

    def target(self, y, stream):
        """The new tensor as a capsule for the kernel that writes it."""
        return y.__dlpack__()

    def result(self, y):
        """The new tensor after the kernel is queued."""
        return y


class _Torch(Framework):
    def stream(self, x):
        import torch

        return torch.cuda.current_stream(x.device).cuda_stream if x.is_cuda else None

    def gpu(self, x):
        return x.get_device() if x.is_cuda else None

    def guard(self, x):
        import torch

        return torch.cuda.device_of(x) if x.is_cuda else contextlib.nullcontext()

    def empty(self, like, shape):
        return like.new_empty(shape)

    def scratch(self, like, count):
        import torch

        return torch.empty(count, dtype=torch.float32, device=like.device)

    def capsule(self, x, stream):
        from torch.utils import dlpack

        # On the current stream already.
        return dlpack.to_dlpack(x.detach())

    def target(self, y, stream):
        return self.capsule(y, stream)


class _CuPy(Framework):
    def stream(self, x):
        import cupy

        return cupy.cuda.get_current_stream().ptr

    def gpu(self, x):
        return x.device.id

    def guard(self, x):
        return x.device

    def empty(self, like, shape):
        import cupy

        with like.device:
            return cupy.empty(shape, like.dtype)

    def scratch(self, like, count):
        import cupy

        with like.device:
            return cupy.empty(count, cupy.float32)

    def capsule(self, x, stream):
        # DLPack calls the legacy default stream 1.
        return x.__dlpack__(stream=stream or 1)

    def target(self, y, stream):
        return self.capsule(y, stream)


class _Jax(Framework):
    """Arrays of JAX cannot be written: results are memory of cutlet. The stream of JAX is unknown: the host waits."""

    def gpu(self, x):
        device = next(iter(x.devices()))
        return None if device.platform == "cpu" else device.local_hardware_id

    def stream(self, x):
        gpu = self.gpu(x)
        return None if gpu is None else _native.stream(gpu)

    def empty(self, like, shape):
        code, bits = _CODES[str(like.dtype)]
        return _native.Buffer(list(shape), code, bits, self.gpu(like))

    def scratch(self, like, count):
        return _native.Buffer([count], *_CODES["float32"], self.gpu(like))

    def capsule(self, x, stream):
        return x.__dlpack__() if stream is None else x.__dlpack__(stream=stream or 1)

    def target(self, y, stream):
        return y.target()

    def result(self, y):
        from jax import dlpack

        kind, gpu = y.__dlpack_device__()
        if kind != 1:
            _native.synchronize(gpu)
        return dlpack.from_dlpack(y)


_KNOWN = {"torch": _Torch(), "cupy": _CuPy(), "numpy": Framework(), "jax": _Jax(), "jaxlib": _Jax()}


def framework_of(x):
    """The library of a tensor, or None for other values."""
    for base in type(x).__mro__:
        found = _KNOWN.get(base.__module__.partition(".")[0])
        if found is not None:
            return found
    return None
