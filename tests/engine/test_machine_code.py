"""The objects of the back-ends: what others see of them, and which instructions they use."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

BUILDS = [Path(__file__).parents[2] / "build" / name for name in ("native", "dev", "tests")]
BACKENDS = ["plain", "avx2", "avx512"]
# Functions of the C library that exist once, for all processors.
LIBRARY = {
    "exp2",
    "expf",
    "log2",
    "logf",
    "sqrt",
    "memcpy",
    "memmove",
    "memset",
    "__stack_chk_fail",
}
# Instructions that AVX-512 F, BW, DQ, VL and VNNI do not have: VBMI, VBMI2, BITALG, VPOPCNTDQ,
# IFMA, BF16, FP16, GFNI and AES.
NEWER = r"vperm[it]?2?b|vpcompress[bw]|vpexpand[bw]|vpsh[lr]d|vpopcnt|vpmadd52|bf16|ph$|gf2p8|aes"

pytestmark = pytest.mark.skipif(
    platform.system() != "Linux"
    or platform.machine() != "x86_64"
    or not all(shutil.which(program) for program in ("nm", "objdump", "readelf")),
    reason="reads objects for x86-64 with the programs of binutils",
)


def object_of(backend: str) -> Path:
    name = Path("CMakeFiles", f"kernels_{backend}.dir", f"backend_{backend}.cpp.o")
    found = [build / name for build in BUILDS if (build / name).exists()]
    if not found:
        pytest.skip("the module was not built here")
    return found[0]


def run(*command: object) -> str:
    return subprocess.run(
        [str(part) for part in command], capture_output=True, check=True, text=True
    ).stdout


def disassemble(backend: str) -> list[list[str]]:
    """Return the instructions: each with its address, its name and its operands."""
    lines = run("objdump", "-d", "--no-show-raw-insn", object_of(backend)).splitlines()
    parts = [re.split(r":?\s+", line.strip(), maxsplit=2) for line in lines]
    return [part for part in parts if len(part) > 1 and re.fullmatch("[0-9a-f]+", part[0])]


@pytest.mark.parametrize("backend", BACKENDS)
def test_only_its_table_is_seen_from_outside(backend: str) -> None:
    # A weak symbol compiled for one processor could be linked into code for all of them.
    symbols = [line.split() for line in run("nm", object_of(backend)).splitlines()]
    kinds = {symbol[-2] for symbol in symbols}
    assert not kinds & set("WVuwv")
    assert [symbol[-1] for symbol in symbols if symbol[-2] in "TDBRGC"] == [
        f"_ZN4irli{len(backend) + 8}{backend}_kernelsEv"
    ]
    undefined = {symbol[-1] for symbol in symbols if symbol[-2] == "U"}
    assert undefined <= LIBRARY | {"_GLOBAL_OFFSET_TABLE_"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_nothing_runs_before_the_back_end_is_chosen(backend: str) -> None:
    assert not re.search(r"\.(init_array|ctors)", run("readelf", "-SW", object_of(backend)))


def test_plain_runs_on_every_processor() -> None:
    for _, name, *_ in disassemble("plain"):
        assert not name.startswith("v")  # AVX
        assert name not in {"pshufb", "pmaddubsw", "pmulld", "pmovsxbd", "popcnt", "roundss"}


def test_avx2_has_no_newer_registers() -> None:
    for _, name, *operands in disassemble("avx2"):
        assert not re.search(r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|[23]\d)", " ".join(operands)), name


def test_avx512_uses_what_it_is_for() -> None:
    code = disassemble("avx512")
    names = {name for _, name, *_ in code}
    operands = " ".join(part for _, _, *rest in code for part in rest)
    assert "vpdpbusd" in names
    assert "%zmm" in operands
    assert "%k1" in operands
    assert not {name for name in names if name.startswith("v") and re.search(NEWER, name)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_prefetches_stay_in_their_loops(backend: str) -> None:
    # GCC 12 may drop all but one prefetch of a loop that has no other effect.
    code = disassemble(backend)
    loops = 0
    for place, (address, name, *_) in enumerate(code):
        after = code[place + 1 : place + 5]
        loops += name == "prefetcht0" and any(
            step[1].startswith("j") and step[2].startswith(address) for step in after
        )
    assert loops >= 5  # codes of a scan, vectors of the prefilter and of the rerank, rows of labels
