"""A configuration of a row in cuTile Python: kernels with their grids, arguments and hints."""

from dataclasses import dataclass, field

import cuda.tile as ct

C = ct.Constant[int]


@dataclass
class Launch:
    """One kernel: `arguments` are names of the row's arrays, ints (constants) and ("f32", x) scalars.

    A grid entry ("multiprocessors", n, limit) is n blocks for each multiprocessor, at most limit;
    ("rows", name, grid entry) is an array's first rows, as many as there are such blocks.
    """
    kernel: object
    grid: tuple
    arguments: tuple
    hints: dict = field(default_factory=dict)


@dataclass
class Configuration:
    label: str
    launches: list
