"""Ahead-of-time compilation of kernels in Triton to cubins of sm_90, as its just-in-time compiler would specialize them."""
import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.autotuner import Autotuner, Config, Heuristics

TARGET = GPUTarget("cuda", 90, 32)
TYPES = {"f32": "*fp32", "f16": "*fp16", "bf16": "*bf16", "i32": "*i32", "i64": "*i64", "u8": "*u8", "i16": "*i16", "i8": "*i8",
         "f64": "*fp64", "u16": "*u16", "u32": "*u32", "u64": "*u64", "bool": "*i1"}


@dataclass(frozen=True)
class P:
    """A pointer: the array of the row, its elements, an offset in bytes."""
    name: str
    element: str
    offset: int = 0

    def text(self):
        return f"p={self.name}+{self.offset}"


@dataclass
class Stage:
    """A launch. Arguments are those of the function by name; the configurations are those of the original, or the given ones."""
    module: str
    kernel: str
    # Function of all arguments.
    grid: object
    arguments: dict
    configurations: list = None


@dataclass
class Clear:
    """Zeros in an array, of a number of words of 4 bytes."""
    name: str
    words: int


@dataclass
class Row:
    name: str
    stages: list
    # Other kernels from which the host code selects: (module, name).
    selected: tuple = ()


def unwrap(kernel):
    """The function, its configurations, and its heuristics."""
    configurations, heuristics = [Config({})], []
    while isinstance(kernel, (Autotuner, Heuristics)):
        if isinstance(kernel, Autotuner):
            configurations = kernel.configs
        else:
            heuristics.append(kernel.values)
        kernel = kernel.fn
    return kernel, configurations, heuristics


def specialize(parameter, value):
    """Type, constant or None, and attributes of an argument."""
    if parameter.is_constexpr or value is None:
        return "constexpr", value, None
    if isinstance(value, P):
        return TYPES[value.element], None, [["tt.divisibility", 16]] if value.offset % 16 == 0 else None
    if isinstance(value, bool):
        return "u1", None, None
    if isinstance(value, float):
        return "fp32", None, None
    if value == 1 and not parameter.do_not_specialize:
        return "constexpr", 1, None
    divides = value % 16 == 0 and not parameter.do_not_specialize
    return "i32" if -2**31 <= value < 2**31 else "i64", None, [["tt.divisibility", 16]] if divides else None


def text(kind, value):
    """An argument of the manifest."""
    if isinstance(value, P):
        return value.text()
    return f"f={value!r}" if kind == "fp32" else f"l={value}" if kind == "i64" else f"i={int(value)}"


def label(configuration):
    parts = [f"{name} {value}" for name, value in configuration.kwargs.items()]
    return ", ".join(parts + [f"{configuration.num_warps} warps", f"{configuration.num_stages} stages"])


def compiled(folder, module, stage, configuration):
    """The cubin with its launch, the grid and the arguments of a configuration."""
    kernel, _, heuristics = unwrap(getattr(module, stage.kernel))
    given = {**stage.arguments, **configuration.kwargs}
    for values in heuristics:
        given |= {name: function(given) for name, function in values.items()}
    signature, constants, attributes, arguments = {}, {}, {}, []
    for place, parameter in enumerate(kernel.params):
        value = given[parameter.name] if parameter.name in given else parameter.default
        kind, constant, attribute = specialize(parameter, value)
        signature[parameter.name] = kind
        if kind == "constexpr":
            constants[(place,)] = constant
        else:
            arguments.append(text(kind, value))
        if attribute:
            attributes[(place,)] = attribute
    options = {"num_warps": configuration.num_warps, "num_stages": configuration.num_stages, "num_ctas": configuration.num_ctas}
    if configuration.maxnreg:
        options["maxnreg"] = configuration.maxnreg
    identity = repr((triton.__version__, kernel.cache_key, signature, sorted(constants.items()), sorted(attributes.items()),
                     sorted(options.items())))
    path = folder / f"{stage.kernel.strip('_')}-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.cubin"
    side = path.with_suffix(".launch")
    if not side.exists():
        made = triton.compile(ASTSource(kernel, signature, constants, attributes), target=TARGET, options=options)
        of = made.metadata
        if of.global_scratch_size or of.profile_scratch_size or of.tensordesc_meta:
            raise NotImplementedError("scratch memory and descriptors of the host")
        path.write_bytes(made.asm["cubin"])
        side.write_text(f"{of.name} {of.num_warps * 32} {of.shared}")
    grid = ",".join(map(str, (*stage.grid(given), 1, 1)[:3]))
    # Pointers to scratch memory, which the kernel does not use.
    return f"{path.name} {side.read_text()}", grid, " ".join([*arguments, "l=0", "l=0"])
