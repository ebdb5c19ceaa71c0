"""Print the share of the lines of native/ that native_tests runs, and fail if it is low.

The bindings need Python. The tests above them cover those.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

LEAST = 85.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--cov", required=True, help="the program llvm-cov")
    parser.add_argument("--profdata", required=True, help="the program llvm-profdata")
    args = parser.parse_args()
    program, raw = args.build / "tests" / "native_tests", args.build / "native_tests.profraw"
    environment = {**os.environ, "LLVM_PROFILE_FILE": str(raw)}
    subprocess.run([program], env=environment, stdout=subprocess.DEVNULL, check=True)
    merged = raw.with_suffix(".profdata")
    subprocess.run([args.profdata, "merge", "-o", merged, raw], check=True)
    export = [args.cov, "export", "-summary-only", f"-instr-profile={merged}", program]
    report = json.loads(subprocess.run(export, capture_output=True, check=True).stdout)
    native = Path(__file__).resolve().parents[1]
    lines = covered = 0
    for file in sorted(report["data"][0]["files"], key=lambda file: str(file["filename"])):
        path = Path(file["filename"]).resolve()
        inside = path.is_relative_to(native)
        if not inside or path.relative_to(native).parts[0] in ("tests", "fuzz"):
            continue
        found = file["summary"]["lines"]
        lines, covered = lines + found["count"], covered + found["covered"]
        name = path.relative_to(native).as_posix()
        print(f"{name:20} {found['covered']:5} of {found['count']:5}  {found['percent']:6.1f} %")
    percent = 100 * covered / lines
    print(f"{'native/':20} {covered:5} of {lines:5}  {percent:6.1f} %")
    sys.exit(f"The share must be at least {LEAST} %." if percent < LEAST else None)


if __name__ == "__main__":
    main()
