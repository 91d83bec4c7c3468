"""How long until the command line answers? Run: python tests/speed/startup.py.

Whole processes, wall time, median of nine, in turn with a process that does nothing but start Python.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

COMMANDS = {
    "python, nothing else": ["-c", "pass"],
    "--help": ["-m", "benchmarks.run", "--help"],
    "--list": ["-m", "benchmarks.run", "--list"],
    "demo, finished": ["-m", "benchmarks.run", "--corpus", "demo"],
}


def seconds(arguments: list[str], environment: dict[str, str]) -> float:
    """Wall time of one process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> None:
    """Measures and prints."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"RETRIEVAL_DIVERSITY_CACHE": folder}
        COMMANDS["demo, finished"] += ["--output", f"{folder}/results"]
        for arguments in COMMANDS.values():
            seconds(arguments, environment)  # warm: byte code, the demo's result
        times = {name: [] for name in COMMANDS}
        for _ in range(9):
            for name, arguments in COMMANDS.items():
                times[name].append(seconds(arguments, environment))
        nothing = statistics.median(times["python, nothing else"])
        for name, values in times.items():
            median = statistics.median(values)
            print(f"{name:22} {median:6.3f} s   {median / nothing:5.1f} x python itself")


if __name__ == "__main__":
    main()
