"""Host time of launches: warm ones, and the first of a kernel for which nothing is cached.

Ours come from the program of `benches/launch`, which starts a process for each first launch; so does this
file for Triton (`python3 launches.py triton vadd` is such a process). Of cuTile Python exported beforehand there
is only what its compiler took on the machine that prepared.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROCESSES = 3
FIRST = {"vadd f32, tile 1024": ("vadd", "vadd f32 134217728", "tile 1024"),
         "matmul f16, tile 128x128x64": ("matmul", "matmul f16 4096 4096 4096", "128x128x64 4 warps")}


def entry(what, contender, seconds, note=""):
    return {"what": what, "contender": contender, "seconds": seconds, "note": note}


def measure(folder, live_cutile):
    """All of them, as entries."""
    out = ours(folder / "launch") + warm(live_cutile)
    for what, (kernel, row, label) in FIRST.items():
        times = [s for s in (child(kernel) for _ in range(PROCESSES)) if s is not None]
        if times:
            out.append(entry(f"first launch of {what}", "Triton", statistics.median(times)))
        compiled = cutile_compile(folder / "cutile" / "manifest.json", row, label)
        if compiled:
            out.append(entry(f"first launch of {what}", "cuTile Python", compiled, "compiling alone, on the machine that prepared"))
    return out


def ours(program):
    if not program.exists():
        return []
    text = subprocess.run([str(program), "--json"], capture_output=True, text=True).stdout
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    out = []
    for line in found:
        what, seconds = line["what"], line["median"] * 1e-9
        if what.startswith("first launch"):
            name, part = what.rsplit(", ", 1)
            out.append(entry(name, "cutlet ptx", seconds, "" if part == "all of it" else f"of this: {part}"))
        elif what in ("ct::launch", "bare cuLaunchKernel"):
            out.append(entry("warm launch", "cutlet ptx" if what == "ct::launch" else what, seconds))
    return out


def host(launch, count=300, batches=15):
    """Seconds of one call, when the queue never fills."""
    import torch
    for _ in range(50):
        launch()
    times = []
    for _ in range(batches):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            launch()
        times.append((time.perf_counter() - begin) / count)
    torch.cuda.synchronize()
    return statistics.median(times)


def warm(live_cutile):
    import torch
    import peers_triton
    a = torch.zeros(1024, device="cuda")
    out = [entry("warm launch", "torch", host(lambda: torch.add(a, a, out=a)), "torch.add"),
           entry("warm launch", "Triton", host(lambda: peers_triton.vadd[(1,)](a, a, a, 1024, 1024)))]
    if live_cutile:
        import cuda.tile as ct
        import kernels_cutile
        stream = torch.cuda.current_stream().cuda_stream
        out.append(entry("warm launch", "cuTile Python", host(lambda: ct.launch(stream, (1,), kernels_cutile.vadd, (a, a, a, 1024)))))
    return out


def cutile_compile(manifest, row, label):
    if not manifest.exists():
        return None
    entries = json.loads(manifest.read_text())["rows"].get(row, [])
    return next((e["seconds"] for e in entries if e["label"] == label), None)


def child(kernel):
    with tempfile.TemporaryDirectory() as cache:
        environment = dict(os.environ, TRITON_CACHE_DIR=cache, CUDA_CACHE_DISABLE="1")
        done = subprocess.run([sys.executable, str(Path(__file__).resolve()), "triton", kernel], capture_output=True, text=True, env=environment)
    return float(done.stdout) if done.returncode == 0 else None


def first_of_triton(kernel):
    """Seconds of the first launch in this process, until its result is there."""
    import torch
    import peers_triton
    if kernel == "vadd":
        a = torch.zeros(4096, device="cuda")
        launch = lambda: peers_triton.vadd[(4,)](a, a, a, 4096, 1024)
    else:
        from triton.tools.tensor_descriptor import TensorDescriptor
        a = torch.ones(512, 512, device="cuda", dtype=torch.float16)
        at = TensorDescriptor.from_tensor(a, [128, 64])
        bt = TensorDescriptor.from_tensor(a, [64, 128])
        ct = TensorDescriptor.from_tensor(torch.zeros_like(a), [128, 128])
        launch = lambda: peers_triton.matmul[(16,)](at, bt, ct, 512, 512, 512, 128, 128, 64, False, num_warps=4, num_stages=4)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    launch()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def lines(entries):
    """As text, grouped by what is measured."""
    for what in dict.fromkeys(e["what"] for e in entries):
        yield what
        for e in entries:
            if e["what"] == what:
                seconds = e["seconds"]
                value = f"{seconds * 1e3:10.1f} ms" if seconds > 1e-3 else f"{seconds * 1e6:10.2f} us"
                yield f"    {e['contender']:22}{value}  {e['note']}"


if __name__ == "__main__":
    print(first_of_triton(sys.argv[2]))
