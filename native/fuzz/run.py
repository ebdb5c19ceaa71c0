"""Fuzz every target for an equal share of the time, and keep the inputs that reach new code.

The inputs of a target are kept in corpus/<target>.txt, one in a line, as hexadecimal numbers. So
native_tests can run them, too. An input that fails is left in the folder of the build.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
LONGEST = {"parse": 512}  # bytes of an input; most targets read few
MOST = 60_000  # bytes of the inputs that are kept of a target


def unpack(target: str, folder: Path) -> None:
    """Write the kept inputs into a folder, as libFuzzer reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, line in enumerate((CORPUS / f"{target}.txt").read_text().splitlines()):
        (folder / f"kept-{number}").write_bytes(bytes.fromhex(line))


def pack(target: str, folder: Path) -> int:
    """Keep the inputs of a folder, shortest first. Return how many."""
    inputs = sorted((path.read_bytes() for path in folder.iterdir()), key=lambda x: (len(x), x))
    lines: list[str] = []
    for one in inputs:
        if one and sum(map(len, lines)) + 2 * len(one) <= 2 * MOST:
            lines.append(one.hex())
    (CORPUS / f"{target}.txt").write_text("".join(f"{line}\n" for line in lines))
    return len(lines)


def fuzz(target: str, build: Path, seconds: int) -> bool:
    """Fuzz one target. Return whether nothing was reported."""
    program, folder = build / "fuzz" / f"fuzz_{target}", build / "inputs" / target
    unpack(target, folder)
    options = [f"-max_len={LONGEST.get(target, 64)}", "-len_control=0", "-print_final_stats=1"]
    options += [f"-max_total_time={seconds}", f"-artifact_prefix={build / target}-"]
    run = subprocess.run([program, *options, folder], stderr=subprocess.PIPE, text=True)
    if run.returncode:
        sys.stderr.write(run.stderr)
        return False
    runs = next(line.split()[-1] for line in run.stderr.splitlines() if "executed_units" in line)
    fresh = build / "inputs" / f"{target}-merged"
    fresh.mkdir(parents=True, exist_ok=True)
    for old in fresh.iterdir():
        old.unlink()
    subprocess.run([program, "-merge=1", fresh, folder], stderr=subprocess.DEVNULL, check=True)
    kept = pack(target, fresh)
    print(f"{target:10} {runs:>9} runs in {seconds} s, {kept} inputs kept", flush=True)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--seconds", type=int, required=True, help="for all targets together")
    args = parser.parse_args()
    targets = sorted(path.stem for path in CORPUS.glob("*.txt"))
    good = [fuzz(target, args.build, max(1, args.seconds // len(targets))) for target in targets]
    sys.exit(f"{good.count(False)} targets reported an error." if not all(good) else None)


if __name__ == "__main__":
    main()
