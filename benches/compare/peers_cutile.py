"""cuTile Python: cubins exported beforehand, or the package itself where its assembler is installed."""

import ctypes
import json
from pathlib import Path

import torch

from device import Kernel


def grid_of(grid):
    def one(n):
        if isinstance(n, (list, tuple)):
            _, blocks, limit = n
            return min(blocks * torch.cuda.get_device_properties(0).multi_processor_count, limit)
        return n
    return tuple(one(n) for n in grid)


def parameters(tensor):
    """Of an array: its address, extents and strides."""
    return [ctypes.c_uint64(tensor.data_ptr()), *map(ctypes.c_int32, tensor.shape), *map(ctypes.c_int32, tensor.stride())]


class Exported:
    name = "cuTile Python"

    def __init__(self, folder, row):
        self.folder, self.row, self.failures = Path(folder), row, {}
        path = self.folder / "manifest.json"
        self.entries = json.loads(path.read_text())["rows"].get(row.name, []) if path.exists() else []

    def configurations(self, sets):
        kernels = {}
        for entry in self.entries:
            try:
                queues = []
                for launch in entry["launches"]:
                    key = launch["cubin"]
                    kernel = kernels[key] = kernels.get(key) or Kernel(self.folder / key, launch["entry"])
                    queues.append([kernel.bind(grid_of(launch["grid"]), self.values(launch, tensors)) for tensors in sets])
            except RuntimeError as error:
                self.failures[entry["label"]] = str(error)
                continue
            def launch_all(set_, queues=queues):
                stream = torch.cuda.current_stream().cuda_stream
                for queue in queues:
                    queue[set_](stream)
            yield entry["label"], launch_all

    @staticmethod
    def values(launch, tensors):
        out = []
        for argument in launch["arguments"]:
            out += parameters(tensors[argument]) if isinstance(argument, str) else [ctypes.c_float(argument[1])]
        return out


class Live:
    """The same kernels, compiled just in time by cuTile Python."""
    name = "cuTile Python"

    def __init__(self, row):
        self.row, self.failures = row, {}

    def configurations(self, sets):
        import cuda.tile as ct
        import kernels_cutile
        def bind(launch, tensors):
            kernel = launch.kernel.replace_hints(**launch.hints) if launch.hints else launch.kernel
            value = lambda a: tensors[a] if isinstance(a, str) else a[1] if isinstance(a, tuple) else a
            arguments, grid = tuple(map(value, launch.arguments)), grid_of(launch.grid)
            return lambda: ct.launch(torch.cuda.current_stream().cuda_stream, grid, kernel, arguments)
        for configuration in kernels_cutile.configurations(self.row):
            queues = [[bind(launch, tensors) for launch in configuration.launches] for tensors in sets]
            def launch_all(set_, queues=queues):
                for queue in queues[set_]:
                    queue()
            yield configuration.label, launch_all
