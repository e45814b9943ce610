"""Compiles kernels in TileLang to cubins of sm_90, with a manifest of their launches. No GPU is needed.

    export_tilelang.py TILELANG TILEKERNELS FOLDER [ROW]...

TILELANG and TILEKERNELS are checkouts of https://github.com/tile-ai/tilelang and https://github.com/deepseek-ai/TileKernels: their code
stays there. The code in CUDA that the package `tilelang` emits is compiled by NVRTC. Lines of the manifest are those of
`export_triton.py`. Tensor maps, which the host code makes, are arguments `x=ARRAY,KIND,NUMBERS`.
"""
import ast
import hashlib
import re
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import tilelang
import torch
from tilelang import tvm
from tilelang.backend import target as targets
from tilelang.contrib.nvrtc import compile_cuda
from tilelang.engine.lower import lower
from tilelang.jit.adapter.nvrtc.include_paths import discover_cuda_include_paths

sys.path.append(str(Path(__file__).resolve().parents[1]))
from lines import original_lines  # noqa: E402

# Headers of the packages nvidia-cuda-runtime and nvidia-cuda-cccl.
CUDA = str(Path(torch.__file__).parents[1] / "nvidia" / "cu13")
TARGET = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})


@dataclass
class Row:
    name: str
    # Module and functions of the original.
    original: tuple
    kernel: object
    # Constants by label.
    configurations: dict
    # Array of the row by parameter, and values of the parameters at run time.
    arrays: dict
    numbers: dict


def rows(tilelang_root, tilekernels):
    sys.path[:0] = [str(tilelang_root / "examples" / "convolution"), str(tilelang_root / "examples" / "deepseek_v32")]
    # The packages load all kernels, for a version of TileLang with another place of this module.
    sys.modules["tilelang.utils.target"] = targets
    for name in ("tile_kernels", "tile_kernels.mhc", "tile_kernels.quant"):
        package = types.ModuleType(name)
        package.__path__ = [str(tilekernels / name.replace(".", "/"))]
        sys.modules[name] = package
    import example_convolution
    import topk_selector
    from tile_kernels.mhc import sinkhorn_kernel
    from tile_kernels.quant import common, per_token_cast_to_e5m6_kernel

    batch, length, k = 64, 32768, 2048
    yield Row(f"top-k selector f32 {batch} {length} {k}", (topk_selector, ("convert_to_uint16", "convert_to_uint32", "tl_topk_impl")),
              topk_selector.tl_topk_impl,
              {"1024 threads": {"topk": k}}, {"input": "x", "index": "order", "starts": "starts", "ends": "ends"},
              {"batch": batch, "seq_len": length})
    images, channels, extent, outputs, window = 128, 128, 64, 128, 3
    shape = {"N": images, "C": channels, "H": extent, "W": extent, "F": outputs, "K": window, "S": 1, "D": 1, "P": 1}
    # That of the example, that of its tuned form for Hopper, and others.
    tiles = [(64, 128, 32, 3, 256), (128, 256, 64, 3, 256), (128, 128, 64, 3, 256), (128, 128, 64, 4, 256), (128, 128, 32, 4, 256),
             (256, 128, 64, 3, 256), (64, 128, 64, 4, 128)]
    yield Row(f"convolution f16 {images} {extent} {channels} {outputs} {window}", (example_convolution, ("convolution",)),
              example_convolution.convolution,
              {f"{m} x {n} x {k}, {stages} stages, {threads} threads": {
                  **shape, "block_M": m, "block_N": n, "block_K": k, "num_stages": stages, "threads": threads}
               for m, n, k, stages, threads in tiles}, {"data": "x", "kernel": "w", "kernel_flat": "w", "out": "y", "out_flat": "y"}, {})
    for tokens in (8192, 1 << 20):
        yield Row(f"sinkhorn f32 {tokens} 4", (sinkhorn_kernel, ("_mhc_sinkhorn_fwd",)),
                  sinkhorn_kernel._mhc_sinkhorn_fwd,
                  {f"{block} a block": {"hidden_size": 4, "token_block_size": block, "repeat": 10, "eps": 1e-6} for block in (1, 8, 32, 64, 128)},
                  {"comb_res_mix": "x", "comb_res_mix_out": "y"}, {"num_tokens": tokens})
    tokens, hidden = 8192, 7168
    yield Row(f"quantize e5m6 bf16 {tokens} {hidden}",
              (per_token_cast_to_e5m6_kernel, ("get_sf_and_inv_e5m6", "float_to_e5m6", "get_per_token_cast_to_e5m6_kernel")),
              per_token_cast_to_e5m6_kernel.get_per_token_cast_to_e5m6_kernel,
              {"128 threads": {"hidden": hidden, "token_stride": hidden,
                               "in_config": common.CastInputConfig(torch_dtype=torch.bfloat16, with_sf=False),
                               "out_config": common.get_cast_output_config("e5m6", (1, hidden), custom_clamp_min_value=1e-4)}},
              {"x": "x", "out": "codes", "out_sf": "scales"}, {"num_tokens": tokens, "out_sf_stride": 1})


def calls(host):
    """Arguments of the calls of the host code, as texts."""
    for line in str(host).splitlines():
        if match := re.search(r"T\.call_packed\((.*)\)", line):
            yield [ast.unparse(argument) for argument in ast.parse(f"f({match[1]})", mode="eval").body.args]


def compiled(folder, row, constants):
    """The cubin with its launch, the grid and the arguments."""
    with TARGET:
        function = row.kernel.get_tir(**constants)
    settings = {str(getattr(key, "value", key)): value for key, value in (row.kernel.pass_configs or {}).items()}
    with tvm.transform.PassContext(opt_level=3, config=settings), TARGET:
        made = lower(function, target=TARGET)
    [(symbol, device)] = list(made.device_mod.functions.items())
    name, source = symbol.name_hint, made.kernel_source
    path = folder / f"{name}-{hashlib.sha256((tilelang.__version__ + source).encode()).hexdigest()[:16]}.cubin"
    if not path.exists():
        root = Path(tilelang.__file__).parent
        folders = [root / "src", root / "3rdparty" / "cutlass" / "include", *discover_cuda_include_paths(CUDA)]
        path.write_bytes(compile_cuda(source, "cubin", 90, ["--std=c++17", *(f"-I{folder}" for folder in folders)], verbose=True))
    maps, launch = {}, None
    for call in calls(made.host_mod):
        if "tensormap_create" in call[0]:
            # The address is the fourth argument of the call.
            kind, array = call[0].strip("'").rsplit("_", 1)[1], row.arrays[base(call[4], row.arrays)]
            maps[call[1]] = ",".join([f"x={array}", kind, *call[2:4], *call[5:]])
        elif call[0].strip("'") == name:
            launch = call[1:]
    count = len(device.params)
    arguments = [maps[text] if text in maps else f"i={row.numbers[base(text, row.numbers)]}" if parameter.dtype == "int32"
                 else f"p={row.arrays[base(text, row.arrays)]}+0" for parameter, text in zip(device.params, launch)]
    sizes = [eval(text, {}, row.numbers) for text in launch[count:]]
    tags = [str(tag) for tag in device.attrs["tirx.kernel_launch_params"]]
    of = dict(zip(tags, sizes))
    grid = ",".join(str(of.get(f"blockIdx.{axis}", 1)) for axis in "xyz")
    return f"{path.name} {name} {of['threadIdx.x']} {of.get('tirx.use_dyn_shared_memory', 0)}", grid, " ".join(arguments)


def base(text, names):
    """The name of a parameter, without the number that the compiler appends."""
    return text if text in names else re.sub(r"_\d+$", "", text)


def main():
    folder, words = Path(sys.argv[3]), sys.argv[4:]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "manifest.tsv"
    for row in rows(Path(sys.argv[1]), Path(sys.argv[2])):
        if words and not any(word in row.name for word in words):
            continue
        count, lines = str(original_lines({row.original[0].__file__: row.original[1]})), []
        for label, constants in row.configurations.items():
            try:
                lines.append(("launch", row.name, label, count, *compiled(folder, row, constants)))
            except Exception as fault:  # a compiler refuses it
                print(f"{row.name}, {label}: {' '.join(str(fault).split())[-400:]}", file=sys.stderr, flush=True)
        kept = [line for line in (path.read_text().splitlines() if path.exists() else []) if line.split("\t")[1] != row.name]
        path.write_text("\n".join(kept + ["\t".join(line) for line in lines]) + "\n")
        print(f"{row.name}: {len(lines)} launches", flush=True)


if __name__ == "__main__":
    main()
