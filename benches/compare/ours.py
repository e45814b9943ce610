"""Our kernels: the dynamic library made of `ours/`, which owns the arrays of a row and launches on them."""

import ctypes
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

BACKENDS = {"ptx": 0, "tileir": 1}


class Library:
    def __init__(self, path):
        self.path = path
        lib = self.lib = ctypes.CDLL(str(path))
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        def declare(name, result, *arguments):
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
            return function
        self._message = declare("compare_message", ctypes.c_char_p)
        self._open = declare("compare_open", pointer, ctypes.c_char_p, size)
        self.close = declare("compare_close", None, pointer)
        self.configurations = declare("compare_configurations", size, pointer)
        self._label = declare("compare_label", None, pointer, size)
        self._serves = declare("compare_serves", number, pointer, size, number)
        self._addresses = declare("compare_addresses", size, pointer, size, ctypes.POINTER(ctypes.c_uint64))
        self._compile = declare("compare_compile", number, pointer, size, size, number)
        self.launch = declare("compare_launch", number, pointer, size, size, number)
        self.host_time = declare("compare_host_time", ctypes.c_double, pointer, size, size, number, size)
        self._export = declare("compare_export", number, pointer, size, *[ctypes.c_char_p] * 3)
        self._stream = declare("compare_stream", pointer)

    def message(self):
        return self._message().decode()

    def stream(self):
        """The stream that our launches are queued on: everything else goes there, too."""
        return self._stream()

    def open(self, name, sets):
        """A row; None with a message where we have no such kernel."""
        return self._open(name.encode(), sets) or None

    def label(self, row, configuration):
        self._label(row, configuration)
        return self.message()

    def serving(self, row, backend):
        """The configurations that can win with a back end."""
        return [index for index in range(self.configurations(row)) if self._serves(row, index, BACKENDS[backend])]

    def addresses(self, row, set_):
        out = (ctypes.c_uint64 * 16)()
        return out[:self._addresses(row, set_, out)]

    def compile(self, row, configuration, set_, backend):
        """A report, and whether it went well."""
        good = self._compile(row, configuration, set_, BACKENDS[backend]) == 0
        return good, self.message()

    def export(self, row, configuration, target, format_, path):
        if self._export(row, configuration, target.encode(), format_.encode(), str(path).encode()):
            return self.message()
        return None


def recorded(path):
    """The winners in a file that `cargo bench --bench kernels -- --tune --record` has written, by row and back end."""
    winners, record = {}, {}
    for line in Path(path).read_text().splitlines():
        part, _, value = line.partition(" ")
        if part in ("name", "backend", "winner"):
            record[part] = json.loads(value)
        if part == "winner" and record["winner"]:
            winners[record["name"], record["backend"]] = record["winner"]
    return winners


class Ours:
    """Our kernel of a row through one back end, as a contender. `winners`: of rows that were tuned, only the winner is
    tried, and the first configuration."""

    def __init__(self, library, backend, row, handle, winners):
        self.winner = winners.get((row.name, backend))
        self.name = f"cutlet {backend}"
        self.library, self.backend, self.row, self.handle = library, backend, row, handle
        self.reports, self.failures = {}, {}

    def configurations(self, sets):
        library, handle, number = self.library, self.handle, BACKENDS[self.backend]
        chosen = library.serving(handle, self.backend)
        if self.winner in [library.label(handle, index) for index in chosen]:
            chosen = [index for index in chosen if index == 0 or library.label(handle, index) == self.winner]
        # The driver compiles for several threads at a time; each needs a set of arrays of its own.
        with ThreadPoolExecutor(max(1, min(len(sets), os.cpu_count() or 1))) as pool:
            compile = lambda at: library.compile(handle, chosen[at], at % len(sets), self.backend)
            compiled = list(pool.map(compile, range(len(chosen))))
        for index, (good, report) in zip(chosen, compiled):
            label = library.label(handle, index)
            if not good:
                self.failures[label] = report
                continue
            self.reports[label] = report
            def launch(set_, index=index):
                if library.launch(handle, index, set_, number):
                    raise RuntimeError(library.message())
            yield label, launch


def export_all(library, row_name, target, format_, folder):
    """Writes the code of every configuration of a row into a folder; gives the failures by label."""
    row = library.open(row_name, 0)
    if row is None:
        return {row_name: library.message()}
    folder.mkdir(parents=True, exist_ok=True)
    failures = {}
    for index in library.serving(row, "ptx" if format_ == "ptx" else "tileir"):
        label = library.label(row, index)
        name = f"{row_name} {label}".replace(" ", "_")
        problem = library.export(row, index, target, format_, Path(folder) / f"{name}.{format_}")
        if problem:
            failures[label] = problem
    library.close(row)
    return failures
