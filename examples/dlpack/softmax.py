"""Softmax of rows by a kernel in Rust: tensors of torch go there by DLPack, on torch's stream, without a copy.

    cargo build --release --example dlpack
    python3 examples/dlpack/softmax.py [--numpy] [LIBRARY]

With --numpy, or without a GPU, on the host, where the kernel is interpreted.
"""

import ctypes
import sys
from pathlib import Path

GIVEN, USED = b"dltensor", b"used_dltensor"
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
rename = ctypes.pythonapi.PyCapsule_SetName
rename.restype, rename.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def give(array, **options):
    """The pointer of an array's capsule, which the library owns from now on."""
    capsule = array.__dlpack__(**options)
    pointer = pointer_of(capsule, GIVEN)
    rename(capsule, USED)
    return pointer


class Library:
    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.softmax.restype = ctypes.c_void_p
        self.library.softmax.argtypes = [ctypes.c_void_p] * 3
        self.library.free_message.argtypes = [ctypes.c_void_p]
        self.library.free_message.restype = None

    def softmax(self, x, y, stream=None):
        # On the GPU the library works on the stream that torch works on: nobody has to wait (-1).
        options = {} if stream is None else {"stream": -1}
        message = self.library.softmax(give(x, **options), give(y, **options), stream)
        if message:
            text = ctypes.string_at(message).decode()
            self.library.free_message(message)
            raise RuntimeError(text)


def on_the_host(library):
    import numpy as np

    x = np.random.default_rng(1).standard_normal((300, 50), dtype=np.float32).T
    y = np.zeros((50, 300), dtype=np.float32)
    library.softmax(x, y)
    e = np.exp(x.astype(np.float64))
    error = np.abs(y - e / e.sum(1, keepdims=True)).max()
    assert error < 1e-6, error
    try:
        library.softmax(x.astype(np.float64), y)
        raise AssertionError("f64 is no f32")
    except RuntimeError as refusal:
        assert "no array of f32" in str(refusal), refusal
    print(f"softmax 50 x 300 of numpy on the host: largest error {error:.1e}")


def on_the_gpu(library, torch):
    rows, columns, rounds = 4096, 4096, 20
    with torch.cuda.stream(torch.cuda.Stream()):
        stream = torch.cuda.current_stream()
        x = torch.randn(columns, rows, device="cuda").t()
        for x in (x, x.contiguous()):
            y = torch.empty(rows, columns, device="cuda")
            for _ in range(3):  # the first one compiles
                x.mul_(1.01)  # work of torch just before
                library.softmax(x, y, stream.cuda_stream)
                error = (y - torch.softmax(x, 1)).abs().max().item()  # and just after
                assert error < 1e-6, error
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(rounds):
            library.softmax(x, y, stream.cuda_stream)
        end.record()
        end.synchronize()
        rate = 2 * 4 * rows * columns * rounds / start.elapsed_time(end) / 1e6
    print(f"softmax {rows} x {columns} of torch on {torch.cuda.get_device_name()}: error {error:.1e}, {rate:.0f} GB/s")


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--numpy"]
    default = Path(__file__).parents[2] / "target/release/examples/libdlpack.so"
    library = Library(arguments[0] if arguments else default)
    if "--numpy" not in sys.argv:
        import torch

        if torch.cuda.is_available():
            return on_the_gpu(library, torch)
    on_the_host(library)


if __name__ == "__main__":
    main()
