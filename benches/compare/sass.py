"""What the machine code of a cubin has: registers, spills, TMA, tensor-core instructions, length of the main loop.

Needs nvdisasm beside tileiras; no GPU.
"""

import re
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

HEAD = f"{'threads':>9}{'registers':>11}{'shared':>8}{'spills':>8}{'TMA':>5}{'loads':>7}{'MMAs':>6}{'loop':>6}{'of it spills':>14}"
MMA = ("HGMMA", "QGMMA", "IGMMA", "HMMA", "QMMA", "IMMA", "OMMA", "DMMA", "UTCHMMA", "UTCQMMA", "UTCIMMA", "UTCOMMA")
SPILLS = ("STL", "LDL")
TMA = ("UTMALDG", "UTMASTG", "UTMAREDG", "UBLKCP")


@dataclass
class Code:
    """`loop` is the innermost loop with most tensor-core instructions, else the longest innermost loop."""
    threads: int = 0
    registers: int = 0
    shared: int = 0
    instructions: int = 0
    spills: int = 0
    tma: int = 0
    loads: int = 0
    mmas: int = 0
    mma_names: tuple = ()
    loop: int = 0
    loop_mmas: int = 0
    loop_spills: int = 0


def sections(image):
    """Name, contents, size and info word of each section."""
    offset, = struct.unpack_from("<Q", image, 0x28)
    count, names = struct.unpack_from("<HH", image, 0x3C)
    heads = [struct.unpack_from("<IIQQQQIIQQ", image, offset + 64 * i) for i in range(count)]
    table = heads[names][4]
    for head in heads:
        at = table + head[0]
        name = image[at:image.index(b"\0", at)].decode()
        # Sections without contents have a size all the same.
        yield name, image[head[4]:head[4] + head[5]] if head[1] != 8 else b"", head[5], head[7]


def attributes(contents):
    """Attributes of a section `.nv.info`: numbers and values."""
    at = 0
    while at + 4 <= len(contents):
        form, number, size = struct.unpack_from("<BBH", contents, at)
        at += 4
        if form == 4:
            yield number, contents[at:at + size]
            at += size


def resources(path):
    """Threads of a block, registers of a thread by the launch, and bytes of static shared memory."""
    threads = registers = shared = 0
    for name, contents, size, _ in sections(Path(path).read_bytes()):
        if name.startswith(".nv.shared.") and "reserved" not in name:
            shared = size
        if name.startswith(".nv.info"):
            for number, value in attributes(contents):
                if number == 0x2F:
                    registers = max(registers, struct.unpack("<II", value)[1])
                if number in (0x05, 0x10) and len(value) >= 4:
                    threads = struct.unpack_from("<I", value)[0]
    return threads, registers, shared


def listing(nvdisasm, path):
    """Instructions without addresses, and the position that each label stands before."""
    text = subprocess.run([nvdisasm, "-c", path], check=True, capture_output=True, text=True).stdout
    code, labels = [], {}
    for line in text.splitlines():
        if label := re.match(r"^\s*(\.L\w+):", line):
            labels[label.group(1)] = len(code)
        elif instruction := re.match(r"^\s*/\*[0-9a-f]{4,}\*/\s*(.*?)\s*;", line):
            code.append(re.sub(r"^@!?U?P\w+\s+", "", instruction.group(1)))
    return code, labels


def loops(code, labels):
    """First and last position of each innermost loop."""
    found = set()
    for at, instruction in enumerate(code):
        target = re.search(r"\bBRA\b.*`\((\.L\w+)\)", instruction)
        if target and labels.get(target.group(1), at) < at:
            found.add((labels[target.group(1)], at))
    # Waits for a barrier are loops of a few instructions.
    found = {(start, end) for start, end in found if end - start >= 8}
    inside = lambda a, b: b[0] <= a[0] and a[1] <= b[1] and a != b
    return [loop for loop in found if not any(inside(other, loop) for other in found)]


def measure(tileiras, path):
    code, labels = listing(Path(tileiras).with_name("nvdisasm"), path)
    names = [instruction.split()[0] for instruction in code]
    count = lambda prefixes, start=0, end=None: sum(name.split(".")[0] in prefixes for name in names[start:end])
    result = Code(*resources(path), len([name for name in names if name != "NOP"]))
    result.spills, result.tma, result.mmas = count(SPILLS), count(TMA), count(MMA)
    result.loads = count(("LDG",))
    result.mma_names = tuple(sorted({name for name in names if name.split(".")[0] in MMA}))
    main = max(loops(code, labels), key=lambda l: (count(MMA, l[0], l[1] + 1), l[1] - l[0]), default=None)
    if main:
        start, end = main[0], main[1] + 1
        result.loop, result.loop_mmas, result.loop_spills = end - start, count(MMA, start, end), count(SPILLS, start, end)
    return result


def line(tileiras, path):
    """A line of a table under HEAD."""
    c = measure(tileiras, path)
    return f"{c.threads:9}{c.registers:11}{c.shared:8}{c.spills:8}{c.tma:5}{c.loads:7}{c.mmas:6}{c.loop:6}{c.loop_spills:14}"
