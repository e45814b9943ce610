"""Times on one GPU: events around each launch, sets of arrays in turn, contenders in turn.

The host queues a batch of launches behind a kernel that waits, so that none of its own time is in what
the events see. Arrays come in as many sets as it takes to touch several times the second-level cache.
"""

import random
import statistics
import time
from dataclasses import dataclass, field

import torch

CYCLES_PER_SECOND = 2.0e9
TOUCHED_BYTES = 512 << 20
MAX_SETS = 16
# Functions that wait for the device wait for the kernel that waits, too, and would have it wait longer each time.
LONGEST_WAIT = 0.1


def number_of_sets(bytes_):
    return max(1, min(MAX_SETS, -(-TOUCHED_BYTES // max(1, int(bytes_)))))


@dataclass
class Candidate:
    """One configuration of a contender."""
    contender: str
    label: str
    launch: object
    error: float = None
    first_seconds: float = None
    screened: float = None
    host_seconds: float = 1e-4
    times: list = field(default_factory=list)
    next_set: int = 0

    @property
    def seconds(self):
        return statistics.median(self.times) if self.times else self.screened


def batch(candidate, sets, count):
    """Seconds of each of `count` launches."""
    # The waiting kernel covers what the host needs longer than the device.
    ahead = max(0.0, candidate.host_seconds * 1.5 - (candidate.screened or 0.0))
    wait = int(min(count * ahead + 100e-6, LONGEST_WAIT) * CYCLES_PER_SECOND)
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
    torch.cuda._sleep(wait)
    begin = time.perf_counter()
    for start, end in marks:
        start.record()
        candidate.launch(candidate.next_set % sets)
        end.record()
        candidate.next_set += 1
    host = (time.perf_counter() - begin) / count
    torch.cuda.synchronize()
    candidate.host_seconds = max(host, 2e-6)
    return [start.elapsed_time(end) * 1e-3 for start, end in marks]


def screen(candidate, sets):
    """A first time, good enough to choose by."""
    first = statistics.median(batch(candidate, sets, 3))
    count = max(3, min(20, int(3e-3 / first)))
    candidate.screened = min(first, statistics.median(batch(candidate, sets, count)))


def look_longer(candidates, sets, seconds=20e-3, rounds=4):
    """A second time, under the load of the others; replaces the first."""
    finals(candidates, sets, rounds, seconds)
    for candidate in candidates:
        candidate.screened, candidate.times = statistics.median(candidate.times), []


def finals(candidates, sets, rounds, seconds):
    """Rounds in which every candidate has its turn of about `seconds`, in an order of their own.

    Turns should be long enough for the card's power control to settle on what the candidate draws; but whoever
    comes after one that draws little has an advantage, so that nobody should always come after the same.
    """
    chance = random.Random(len(candidates))
    for _ in range(rounds):
        for candidate in chance.sample(candidates, len(candidates)):
            count = max(3, min(250, int(seconds / candidate.screened)))
            # The first launch of a turn meets caches and clocks that another candidate has left.
            candidate.times += batch(candidate, sets, count + 1)[1:]
