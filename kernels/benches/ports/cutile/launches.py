"""Launches of kernels in cuTile Python and their arguments."""
from dataclasses import dataclass, field
from math import prod

import cuda.tile as ct
from cuda.tile.compilation import ArrayConstraint, ListConstraint, ScalarConstraint

# Of an H100 SXM and of an H200.
MULTIPROCESSORS = 132
TYPES = {"f32": ct.float32, "f16": ct.float16, "bf16": ct.bfloat16, "e4m3": ct.float8_e4m3fn, "i32": ct.int32, "i64": ct.int64,
         "u8": ct.uint8}


@dataclass(frozen=True)
class A:
    """An array, contiguous: its name in the row, its elements and extents."""
    name: str
    element: str
    shape: tuple

    def constraint(self):
        """What cuTile Python assumes of such an array, compiling just in time."""
        divides = lambda n: 16 if n % 16 == 0 else 1
        rank = len(self.shape)
        strides = [prod(self.shape[axis + 1:]) for axis in range(rank)]
        return ArrayConstraint(TYPES[self.element], rank, index_dtype=ct.int32, stride_lower_bound_incl=0, alias_groups=(),
                               may_alias_internally=False, stride_constant=(None,) * (rank - 1) + (1,),
                               stride_divisible_by=tuple(map(divides, strides[:-1])) + (1,),
                               shape_divisible_by=tuple(map(divides, self.shape)), base_addr_divisible_by=16)

    def text(self):
        return f"{self.name}:{','.join(map(str, self.shape))}"


@dataclass(frozen=True)
class F:
    """A number of 32 bits that is passed at the launch."""
    value: float

    def constraint(self):
        return ScalarConstraint(ct.float32)

    def text(self):
        return f"f={self.value!r}"


@dataclass(frozen=True)
class I:
    """An integer of 32 bits that is passed at the launch."""
    value: int

    def constraint(self):
        return ScalarConstraint(ct.int32)

    def text(self):
        return f"i={self.value}"


@dataclass(frozen=True)
class L:
    """A list of arrays like one, whose words are in an array of a name."""
    name: str
    count: int
    of: A

    def constraint(self):
        return ListConstraint(self.of.constraint(), alias_groups=(), elements_may_alias=False)

    def text(self):
        return f"p={self.name} i={self.count}"


@dataclass
class Launch:
    """A launch; other arguments than A, F, I and L are constants."""
    kernel: str
    grid: tuple
    arguments: tuple
    hints: dict = field(default_factory=dict)
    # Where it is not that of the row.
    module: str = None


@dataclass
class Clear:
    """Zeros in an array."""
    array: A
    kernel = module = None


@dataclass
class Row:
    name: str
    module: str
    # label: launches
    configurations: dict


def power(n):
    return 1 << (n - 1).bit_length()


def up(a, b):
    return -(-a // b)
