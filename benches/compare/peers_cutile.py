"""cuTile Python: cubins exported beforehand, or the package itself where its assembler is installed."""

import ctypes
import json
from pathlib import Path

import torch

from device import Kernel


def blocks(n):
    """A grid entry as a number."""
    if isinstance(n, (list, tuple)):
        _, each, limit = n
        return min(each * torch.cuda.get_device_properties(0).multi_processor_count, limit)
    return n


def grid_of(grid):
    return tuple(map(blocks, grid))


def value(argument, tensors):
    """A tensor, or the number itself."""
    if isinstance(argument, str):
        return tensors[argument]
    if isinstance(argument, (list, tuple)):
        return tensors[argument[1]][:blocks(argument[2])] if argument[0] == "rows" else argument[1]
    return argument


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
            passed = value(argument, tensors)
            out += parameters(passed) if isinstance(passed, torch.Tensor) else [ctypes.c_float(passed)]
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
            arguments, grid = tuple(value(a, tensors) for a in launch.arguments), grid_of(launch.grid)
            return lambda: ct.launch(torch.cuda.current_stream().cuda_stream, grid, kernel, arguments)
        for configuration in kernels_cutile.configurations(self.row):
            queues = [[bind(launch, tensors) for launch in configuration.launches] for tensors in sets]
            def launch_all(set_, queues=queues):
                for queue in queues[set_]:
                    queue()
            yield configuration.label, launch_all
