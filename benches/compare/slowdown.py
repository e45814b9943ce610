"""Share of time in which a GPU lowers its clocks for heat, or because its host brakes the power.

    slowdown.py COMMAND [ARGUMENT]...     # prints the share for a command, and ends with its status

The limit of the board's own power is no slowdown here: every long product reaches it.
"""

import subprocess
import sys
import tempfile

REASONS = ["hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown"]
# Largest share of a run whose times mean something.
LIMIT = 0.01


class Slowdown:
    """Samples the first GPU every 50 ms from its creation to `share`."""

    def __init__(self):
        fields = ",".join(["clocks.sm"] + [f"clocks_event_reasons.{reason}" for reason in REASONS])
        query = ["nvidia-smi", "-i", "0", f"--query-gpu={fields}", "--format=csv,noheader,nounits", "-lms", "50"]
        self.samples = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(query, stdout=self.samples)

    def share(self):
        """Ends the samples. Returns the share of those with a slowdown, and the range of clocks in MHz."""
        self.process.terminate()
        self.process.wait()
        self.samples.seek(0)
        rows = [line.split(", ") for line in self.samples if line.count(",") == len(REASONS)]
        rows = [row for row in rows if row[0].isdigit()]
        if not rows:
            sys.exit("nvidia-smi has no samples of the clocks")
        slow = sum("Active" in (cell.strip() for cell in row[1:]) for row in rows)
        clocks = [int(row[0]) for row in rows]
        return slow / len(rows), min(clocks), max(clocks)


def told(share, least, most):
    return f"slowed down by heat or its host in {100 * share:.1f} % of the time, {least} to {most} MHz"


def main():
    slowdown = Slowdown()
    done = subprocess.run(sys.argv[1:], check=False)
    print(f"The GPU was {told(*slowdown.share())}", file=sys.stderr)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
