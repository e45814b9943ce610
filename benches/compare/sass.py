"""What the machine code of a cubin has: registers, spills, TMA, tensor-core instructions, instructions in loops.

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
    """`loop` has the instructions of all innermost loops."""
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
    """Instructions with their predicates, without addresses, and the position that each label stands before."""
    text = subprocess.run([nvdisasm, "-c", path], check=True, capture_output=True, text=True).stdout
    code, labels = [], {}
    for line in text.splitlines():
        if label := re.match(r"^\s*(\.L\w+):", line):
            labels[label.group(1)] = len(code)
        elif instruction := re.match(r"^\s*/\*[0-9a-f]{4,}\*/\s*(.*?)\s*;", line):
            code.append(instruction.group(1))
    return code, labels


def successors(code, labels):
    """Basic blocks as ranges of positions, and the blocks that follow each."""
    target = [re.search(r"\bBRA\b.*`\((\.L\w+)\)", i) for i in code]
    ends = [bool(t) or "EXIT" in i or "BREAK" in i for t, i in zip(target, code)]
    starts = sorted({0, *labels.values(), *(at + 1 for at, end in enumerate(ends) if end)} - {len(code)})
    blocks = list(zip(starts, [*starts[1:], len(code)]))
    of = {start: index for index, (start, _) in enumerate(blocks)}
    following = []
    for index, (_, end) in enumerate(blocks):
        last, jump = code[end - 1], target[end - 1]
        # A branch on a uniform register may have its condition behind the name.
        conditional = last.startswith("@") or re.search(r"\bBRA(\.\w+)* !?U?P\w+,", last)
        leaves = (jump or "EXIT" in last) and not conditional
        following.append([of[labels[jump.group(1)]]] if jump and labels.get(jump.group(1)) in of else [])
        if not leaves and index + 1 < len(blocks):
            following[-1].append(index + 1)
    return blocks, following


def dominators(following):
    """For each block the blocks on every way to it, as bits."""
    before = [[] for _ in following]
    for block, others in enumerate(following):
        for other in others:
            before[other].append(block)
    everything = (1 << len(following)) - 1
    result = [1] + [everything] * (len(following) - 1)
    changed = True
    while changed:
        changed = False
        for block in range(1, len(following)):
            common = everything
            for other in before[block]:
                common &= result[other]
            new = common | 1 << block
            changed |= new != result[block]
            result[block] = new
    return result, before


def loops(code, labels):
    """Positions of each innermost natural loop of at least 16 instructions."""
    blocks, following = successors(code, labels)
    dominating, before = dominators(following)
    found = {}
    for block, others in enumerate(following):
        for head in others:
            if not dominating[block] >> head & 1:
                continue
            body, open_ = found.setdefault(head, {head}), [block]
            while open_:
                inner = open_.pop()
                if inner not in body:
                    body.add(inner)
                    open_ += before[inner]
    positions = [{at for block in body for at in range(*blocks[block])} for body in found.values()]
    # Waits for a barrier are loops of a few instructions.
    positions = [body for body in positions if len(body) >= 16]
    return [body for body in positions if not any(other < body for other in positions)]


def measure(tileiras, path):
    code, labels = listing(Path(tileiras).with_name("nvdisasm"), path)
    names = [re.sub(r"^@!?U?P\w+\s+", "", instruction).split()[0] for instruction in code]
    kind = [name.split(".")[0] for name in names]
    count = lambda kinds, at=range(len(code)): sum(kind[i] in kinds for i in at)
    result = Code(*resources(path), sum(name != "NOP" for name in names))
    result.spills, result.tma, result.mmas, result.loads = count(SPILLS), count(TMA), count(MMA), count(("LDG",))
    result.mma_names = tuple(sorted({name for name, k in zip(names, kind) if k in MMA}))
    # Warps of different roles have loops of their own.
    body = set().union(*loops(code, labels))
    result.loop, result.loop_mmas, result.loop_spills = len(body), count(MMA, body), count(SPILLS, body)
    return result


def line(tileiras, path):
    """A line of a table under HEAD."""
    c = measure(tileiras, path)
    return f"{c.threads:9}{c.registers:11}{c.shared:8}{c.spills:8}{c.tma:5}{c.loads:7}{c.mmas:6}{c.loop:6}{c.loop_spills:14}"
