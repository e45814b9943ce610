"""Compiles kernels in Triton to cubins of sm_90, with a manifest of their launches. No GPU is needed.

    export_triton.py FLA FLAGGEMS FOLDER [ROW]...

FLA and FLAGGEMS are checkouts of https://github.com/fla-org/flash-linear-attention and https://github.com/flagos-ai/FlagGems: their code
stays there. Modules that the kernels do not use are replaced by stubs. Cubins that exist are kept.

Lines of `FOLDER/manifest.tsv`, beside those of `../export.py`:

    stage  ROW  number  configuration  lines of kernel code of the original  cubin, entry, threads and shared memory  grid  arguments

Of the lines of a stage, the fastest is chosen, as Triton's autotuner does.
"""
import sys
import time
from pathlib import Path
from types import SimpleNamespace

from compile_triton import Clear, compiled, label, unwrap
import rows_triton as rows

sys.path.append(str(Path(__file__).resolve().parents[1]))
from lines import original_lines  # noqa: E402
from originals import Finder  # noqa: E402

# What the originals ask of the machine.
HOPPER = {
    "fla.utils": {"IS_TMA_SUPPORTED": False, "IS_GATHER_SUPPORTED": True, "IS_TF32_SUPPORTED": True, "IS_NVIDIA_BLACKWELL": False,
                  "IS_NVIDIA_HOPPER": True, "IS_INTEL": False, "autotune_cache_kwargs": {}, "check_shared_mem": lambda *_: True},
    "flag_gems.utils.triton_version_utils": {"HAS_TLE": False},
    "torch": {"iinfo": lambda of: SimpleNamespace(min=-(1 << int(of.__name__[3:]) - 1), max=(1 << int(of.__name__[3:]) - 1) - 1)},
}


def main():
    fla, flaggems, folder, words = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
    folder.mkdir(parents=True, exist_ok=True)
    import triton
    HOPPER["fla.ops.utils.cache"] = {"fla_cache_autotune": triton.autotune}
    finder = Finder({"fla": fla, "flag_gems": flaggems / "src"}, ("torch", "einops"), HOPPER)
    for module in ("fla.ops.utils.op", "flag_gems.utils.limits", "flag_gems.utils.triton_lang_extension"):
        finder.load(module)
    path = folder / "manifest.tsv"
    kept = path.read_text().splitlines() if path.exists() else []
    for row in rows.rows():
        if words and not any(word in row.name for word in words):
            continue
        start, names = time.perf_counter(), {}
        for module, name in [*row.selected, *((stage.module, stage.kernel) for stage in row.stages if not isinstance(stage, Clear))]:
            names.setdefault(finder.load(module).__file__, set()).add(name)
        count, lines = str(original_lines(names)), []
        for number, stage in enumerate(row.stages):
            if isinstance(stage, Clear):
                lines.append(("stage", row.name, str(number), "zeros", count, "clear", "1,1,1", f"{stage.name}:{stage.words}"))
                continue
            module = finder.load(stage.module)
            for configuration in stage.configurations or unwrap(getattr(module, stage.kernel))[1]:
                try:
                    made = compiled(folder, module, stage, configuration)
                except Exception as fault:  # a compiler refuses it
                    text = " ".join(str(fault).split())[:300]
                    print(f"{row.name}, {stage.kernel}, {label(configuration)}: {text}", file=sys.stderr, flush=True)
                    continue
                lines.append(("stage", row.name, str(number), label(configuration), count, *made))
        kept = [line for line in kept if line.split("\t")[1] != row.name] + ["\t".join(line) for line in lines]
        path.write_text("\n".join(kept) + "\n")
        print(f"{row.name}: {len(lines)} launches, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
