"""The deterministic simulator: clients, disk faults, kills at any effect, clock steps, all by seed.

    python -m horolog.testing.simulator --seeds 10000
    python -m horolog.testing.simulator --seed 4711            # replay one, with its story

Every seed runs a whole shard (core, log, recovery) on `FaultyDisk`, and `sim_checks` checks P1, P2,
P3, P7 and P8. A failure prints the seed and the command that replays it.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from horolog.testing.simulation import Simulation

SEEDS_A_LINE = 500  # for each line of progress: a few minutes


def run_seed(seed: int, *, story: bool = False, root: Path | None = None, rot: bool = False) -> str:
    """Run one seed: return "" if all promises held, else the traceback.

    rot   bits of files flip while the broker runs
    root  an empty directory, to run on the real disk: kills between turns, but no disk faults
    """
    try:
        Simulation(seed, story=story, root=root, rot=rot).run()
    except Exception:  # noqa: BLE001 - whatever it is, it is a finding
        return traceback.format_exc()
    return ""


def main(argv: list[str] | None = None) -> int:
    """Run seeds in several processes; return exit code 1 if one fails."""
    parser = argparse.ArgumentParser(
        prog="python -m horolog.testing.simulator", description=__doc__
    )
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="replay one seed and tell its story")
    parser.add_argument("--rot", action="store_true", help="flip bits of files meanwhile")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no more after these")
    parser.add_argument("--at-least", type=int, default=0, help="seeds, however long they take")
    options = parser.parse_args(argv)
    if options.seed is not None:
        failure = run_seed(options.seed, story=True, rot=options.rot)
        print(failure or f"seed {options.seed}: all promises held")
        return 1 if failure else 0
    began = time.monotonic()
    done = failed = 0
    run = partial(run_seed, rot=options.rot)
    again = "--rot --seed" if options.rot else "--seed"
    seeds = range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.jobs) as pool:
        for seed, failure in zip(seeds, pool.map(run, seeds), strict=True):
            done += 1
            if failure:
                failed += 1
                print(f"seed {seed} failed\n{failure}")
                print(f"replay: python -m horolog.testing.simulator {again} {seed}\n", flush=True)
            took = time.monotonic() - began
            if done % SEEDS_A_LINE == 0:
                print(f"{done} seeds, {failed} failed, {took:.0f} s", flush=True)
            if failed == 10 or (done >= options.at_least and took > options.seconds):
                break
    took = time.monotonic() - began
    print(f"{done} seeds from {options.first}, {failed} failed, {took:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
