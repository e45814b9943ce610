"""Kernels of quack and of FlashAttention-4 for Hopper as shared libraries, for `peers_exported.py`: no GPU is needed here.

usage: python3 export_peers.py FOLDER [--only WORD]

Needs the packages flash-attn-4, quack-kernels, nvidia-cutlass-dsl with nvidia-cutlass-dsl-libs-cu13, apache-tvm-ffi and torch (a virtual
environment: they take 6 GB), and a C compiler. The kernels are compiled by their own packages, called with tensors that have no memory;
what the packages then call them with is written beside each as JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

# Before the packages are imported, which would look for a GPU.
os.environ.update(CUDA_VISIBLE_DEVICES="", CUTE_DSL_ARCH="sm_90a", QUACK_ARCH="90", QUACK_CACHE_ENABLED="0", FLASH_ATTENTION_ARCH="sm_90",
                  FLASH_ATTENTION_NUM_SMS="132")
MULTIPROCESSORS = 132

# Rows, columns and clusters of blocks of a tile, and do two groups of warps take turns at whole tiles?
TILES = [(128, 192, (2, 1), True), (128, 256, (2, 1), False), (256, 128, (2, 1), False), (256, 192, (2, 1), False), (128, 160, (2, 1), True),
         (128, 256, (1, 2), False)]
# Type, numbers of a head, and tiles of queries and keys instead of the package's own.
ATTENTION = [("bf16", 128, None), ("bf16", 64, None), ("f16", 64, None), ("bf16", 128, (128, 160)), ("f16", 64, (128, 128)), ("bf16", 64, (128, 128))]

# What the objects ask the package's runtime for when a launch fails: it raises an error of tvm_ffi.
FAILURES = """
#include <stdio.h>
typedef void (*Raise)(const char *kind, const char **parts, int count);
static void raise_error(Raise raise, int code) {
    char text[80];
    snprintf(text, sizeof text, "the kernel does not run: CUDA error %d", code);
    const char *parts[1] = {text};
    raise("RuntimeError", parts, 1);
}
void CuteDSLRT_TVMFFISetRaisedCudaError(Raise raise, int code) { raise_error(raise, code); }
void CuteDSLRT_TVMFFISetRaisedCudaLaunchError(Raise raise, ...) { raise_error(raise, -1); }
"""


class Exports:
    """Stands in for the compiler of the packages: what it makes is written to a file instead of run."""

    def __init__(self, compiler, folder):
        self.compiler, self.folder, self.name, self.about, self.names = compiler, folder, None, None, ""

    def __call__(self, *arguments, **options):
        return Export(self, self.compiler(*arguments, **options))

    def __getitem__(self, options):
        compiler = self.compiler[options]
        return lambda *arguments, **more: Export(self, compiler(*arguments, **more))

    def __getattr__(self, name):
        return getattr(self.compiler, name)

    def written(self, value, names):
        """A value as JSON: tuples as lists, tensors by the next name. (The packages hand on other tensors than they got, in their order.)"""
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, (tuple, list)):
            return [self.written(part, names) for part in value]
        if type(value).__name__ == "FakeTensor":
            return {"tensor": next(names)}
        if hasattr(value, "value"):
            return self.written(value.value, names)
        raise TypeError(f"{type(value)} is no argument that can be written down")


class Export:
    """A compiled kernel."""

    def __init__(self, exports, kernel):
        self.exports, self.kernel = exports, kernel

    def __call__(self, *arguments):
        exports = self.exports
        about = {**exports.about, "arguments": exports.written(arguments, iter(exports.names))}
        self.kernel.export_to_c(object_file_path=str(exports.folder / f"{exports.name}.o"), function_name="kernel")
        (exports.folder / f"{exports.name}.json").write_text(json.dumps(about) + "\n")

    def __getattr__(self, name):
        return getattr(self.kernel, name)


def products(torch, exports):
    """The products of quack: of e4m3 both operands lie along the sums."""
    import quack.cute_dsl_utils
    import quack.gemm
    import quack.gemm_runtime.host
    for module in (quack.gemm, quack.gemm_runtime.host, quack.cute_dsl_utils):
        module.get_max_active_clusters = lambda blocks, *_, **__: MULTIPROCESSORS // blocks
    types = {"f16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn}
    for element in types:
        for rows, columns, cluster, turns in TILES:
            label = f"{rows}x{columns}, clusters {cluster[0]}x{cluster[1]}" + (", ping-pong" if turns else "")
            def run():
                a, b = (torch.empty(512, 512, dtype=types[element], device="cuda") for _ in "ab")
                c = torch.empty(512, 512, dtype=types["f16" if element == "e4m3" else element], device="cuda")
                exports.names = "abc"
                quack.gemm.gemm(a, b, c, None, None, rows, columns, *cluster, 1, pingpong=turns, persistent=True, is_dynamic_persistent=False,
                                max_swizzle_size=8, b_kn=element != "e4m3")
            yield f"quack {element} {label}", {"peer": "quack", "kernel": "matmul", "element": element, "label": label}, run


def attention(torch, exports):
    """The forward pass of FlashAttention-4: arrays of batch x sequence x heads x numbers."""
    import flash_attn.cute.interface as interface
    interface.is_fake_mode = lambda: False
    types = {"f16": torch.float16, "bf16": torch.bfloat16}
    for element, numbers, tile in ATTENTION:
        for causal in (True, False):
            label = f"{tile[0]}x{tile[1]}" if tile else ""
            def run():
                exports.names = "qkvo"
                q, k, v, o = (torch.empty(4, 4096, 32, numbers, dtype=types[element], device="cuda") for _ in "qkvo")
                interface._flash_attn_fwd(q, k, v, causal=causal, return_lse=False, out=o, **({"tile_mn": tile} if tile else {}))
            about = {"peer": "flash attention 4", "kernel": "attention", "element": element, "numbers": numbers, "causal": causal, "label": label}
            yield f"attention {element} {numbers} {'causal' if causal else 'full'} {label}".strip(), about, run


def link(folder):
    """Shared libraries of the objects: they need tvm_ffi and the CUDA runtime where they are loaded."""
    import site
    packages = Path(site.getsitepackages()[0])
    with tempfile.TemporaryDirectory() as made:
        (Path(made) / "failures.c").write_text(FAILURES)
        subprocess.run(["cc", "-O2", "-fPIC", "-c", f"{made}/failures.c", "-o", f"{made}/failures.o"], check=True)
        for kernel in sorted(folder.glob("*.o")):
            subprocess.run(["cc", "-shared", "-s", "-o", kernel.with_suffix(".so"), kernel, f"{made}/failures.o",
                            packages / "nvidia_cutlass_dsl/cu13/lib/libcuda_dialect_runtime_static.a", "-Wl,--gc-sections", "-Wl,--no-undefined",
                            f"-L{packages}/nvidia/cu13/lib", "-l:libcudart.so.13", f"-L{packages}/tvm_ffi/lib", "-l:libtvm_ffi.so", "-ldl"], check=True)
            kernel.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    options = parser.parse_args()
    import torch
    import cutlass.cute as cute
    from torch._subclasses.fake_tensor import FakeTensorMode
    options.folder.mkdir(parents=True, exist_ok=True)
    exports = cute.compile = Exports(cute.compile, options.folder)
    failed = 0
    for family in (products, attention):
        for name, about, run in family(torch, exports):
            if options.only not in name:
                continue
            exports.name, exports.about = name.replace(", ", "_").replace(" ", "_"), about
            try:
                with FakeTensorMode():
                    run()
                print(name, flush=True)
            except Exception:
                # A tile that the package refuses is said and left out.
                traceback.print_exc()
                failed += 1
    link(options.folder)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
