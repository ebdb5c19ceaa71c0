"""Vocabularies give the titles of labels, whatever they are written in, and titles teach."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from irli import IrliWarning, LabelIndex, load, recipe
from irli.errors import DimensionMismatch, FormatError, InvalidParameter
from irli.labels.build.problem import append_titles, make_label_problem
from irli.labels.files.titles import read_titles
from irli.labels.text.vectorizer import Names, extend_names

FEW = settings(max_examples=50, deadline=None)
TURTLE = '''
# A comment with "quotes" and <brackets>
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
PREFIX yso: <http://yso/>
@prefix : <http://other/> .
@base <http://base/> .
yso:p1 a skos:Concept ; skos:prefLabel "kissa"@fi , "cat"@en ;
    skos:altLabel "kitty"@en ; skos:notation "1.5" , 1.5 , true .
<http://yso/p2> skos:prefLabel "hund"@sv.
:p3.1 <http://www.w3.org/2004/02/skos/core#prefLabel> """a "long"
title"""@en-GB ;
  skos:related [ a skos:Concept ; skos:prefLabel "nobody"@en ] , ( yso:p1 yso:p2 ) ;
  skos:prefLabel 'ein \\'Titel\\' \\u00fc'@de .
[] skos:prefLabel "no name"@en .
yso:p4 skos:prefLabel "2020"^^<http://www.w3.org/2001/XMLSchema#gYear> ; skos:inScheme yso: .
yso:p5 skos:prefLabel "" .
'''


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["x.ttl", "x.ttl.gz"])
def test_turtle(name: str, tmp_path: Path) -> None:
    path = write(tmp_path / name, TURTLE)
    titles = read_titles(path, "en")
    assert titles == {
        "http://yso/p1": "cat",
        "http://yso/p2": "hund",
        "http://other/p3.1": 'a "long"\ntitle',
        "": "no name",
        "http://yso/p4": "2020",
    }
    assert read_titles(path, "fi")["http://yso/p1"] == "kissa"
    assert read_titles(path, "de")["http://other/p3.1"] == "ein 'Titel' ü"
    assert read_titles(path)["http://yso/p1"] == "kissa"  # the first


uris = st.text("abc/#-._~%", min_size=1).map(lambda end: "http://x/" + end)
titles_of = st.text(st.characters(exclude_categories=["C"]), min_size=1)


@FEW
@given(st.dictionaries(uris, titles_of, min_size=1))
def test_triples_round_trip(titles: dict[str, str]) -> None:
    pref = "<http://www.w3.org/2004/02/skos/core#prefLabel>"
    lines = [f"<{uri}> {pref} {json.dumps(title)}@en .\n" for uri, title in titles.items()]
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder, "x.nt"), "".join(lines))
        # JSON writes other planes as two surrogates, which triples do not have.
        plain = {uri: title for uri, title in titles.items() if max(title) < "\U00010000"}
        found = read_titles(path, "en")
    assert {uri: found[uri] for uri in plain} == plain


def test_a_title_may_be_in_a_kind_of_the_language(tmp_path: Path) -> None:
    path = write(
        tmp_path / "x.nt",
        """<http://x/1> <http://www.w3.org/2004/02/skos/core#prefLabel> "farbe"@de .
<http://x/1> <http://www.w3.org/2004/02/skos/core#prefLabel> "colour"@en-GB .
<http://x/1> <http://www.w3.org/2004/02/skos/core#prefLabel> "color"@en-US .
""",
    )
    for language, title in {"en": "colour", "en-us": "color", "DE": "farbe", "e": "farbe"}.items():
        assert read_titles(path, language) == {"http://x/1": title}


def test_short_uris_are_written_in_full(tmp_path: Path) -> None:
    """A label in texts is a whole URI. With a part of it, no title would be found."""
    path = write(
        tmp_path / "x.ttl",
        """@base <http://onto.org/pets/> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix : <#> .
<p1> skos:prefLabel "cat" . </p2> skos:prefLabel "dog" . :p3 skos:prefLabel "cow" .
<urn:p4> skos:prefLabel "ape" .
""",
    )
    assert read_titles(path) == {
        "http://onto.org/pets/p1": "cat",
        "http://onto.org/p2": "dog",
        "http://onto.org/pets/#p3": "cow",
        "urn:p4": "ape",
    }


def test_a_column_of_uris_need_not_be_the_first(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "notation,label_en,uri\n1,cat,<http://x/1>\n")
    assert read_titles(path, "en") == {"http://x/1": "cat"}


def test_tables(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", "<http://yso/p1>\tcat\t59.1\nhttp://yso/p2\tdog\np3\n")
    assert read_titles(path) == {"http://yso/p1": "cat", "http://yso/p2": "dog"}
    text = "uri,notation,label_fi,label_en\n<u:1>,1,kissa,cat\nu:2,2,koira,\n"
    path = write(tmp_path / "x.csv", text)
    assert read_titles(path, "en") == {"u:1": "cat", "u:2": "koira"}
    assert read_titles(path) == {"u:1": "kissa", "u:2": "koira"}
    path = write(tmp_path / "y.csv", "id;name\n1;one\n")
    assert read_titles(path, "en") == {"1": "one"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.ttl", "<a> <b> <c> .", "must have titles"),
        ("x.ttl", '<a> <b> "c" .\n<a> "open .', "x.ttl, line 2, must be Turtle"),
        ("x.tsv", "one\ntwo\n", "must have titles"),
        ("x.csv", "", "must have titles"),
        ("x.rdf", "<rdf/>", "extension of the vocabulary"),
    ],
)
def test_vocabularies_that_are_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises((FormatError, InvalidParameter), match=message):
        read_titles(write(tmp_path / name, text))


def test_names_keep_titles() -> None:
    names = Names.of(["u:1", "u:2"], {"u:2": "two", "u:9": "nine", "u:1": ""})
    assert names.titles == {"u:2": "two"}
    assert [names.title(0), names.title(1)] == ["u:1", "two"]
    again = Names.from_state(names.state())
    assert (list(again), again.titles) == (list(names), names.titles)
    assert "titles" not in Names.of(["a"]).state()
    grown = extend_names(names, Names.of(["u:3"], {"u:3": "three"}), 1, "add_labels")
    assert grown is not None
    assert grown.titles == {"u:2": "two", "u:3": "three"}
    with pytest.raises(InvalidParameter, match="Got int for 'a'"):
        Names.of(["a"], {"a": 3})  # type: ignore[dict-item]
    damaged = names.state() | {"titles_offsets": np.array([0, 3])}
    with pytest.raises(FormatError, match="2 titles, and there are 1"):
        Names.from_state(damaged)


def test_an_index_keeps_titles(tmp_path: Path) -> None:
    texts = [f"{pet} {i}" for pet in ("cat", "dog") for i in range(6)]
    labels = [[f"u:{text.split()[0]}"] for text in texts]
    pairs = zip(texts, labels, strict=True)
    index = LabelIndex().fit_text(pairs, titles={"u:dog": "Dogs"}, threads=1)
    index.save(tmp_path / "x")
    again = load(tmp_path / "x")
    assert again.names.titles == {"u:dog": "Dogs"}
    assert [name for name, _ in again.predict_text(["my dog"], 1)[0]] == ["u:dog"]
    with pytest.warns(IrliWarning, match="None of the 2 labels has a title.*'u:cat'.*'dog'"):
        LabelIndex().fit_text(texts, labels, titles={"dog": "Dogs"}, threads=1)


# --- what titles teach -----------------------------------------------------------------------


def plant(labels: int, seed: int = 0) -> tuple[list[str], list[list[str]], dict[str, str]]:
    """Return texts, their labels, and titles. The word of a title is only in texts of others."""
    rng = np.random.default_rng(seed)
    texts, lists = [], []
    for label in range(labels):
        for _ in range(4):
            other = (label + int(rng.integers(1, labels))) % labels
            texts.append(f"own{label} word{rng.integers(50)} title{other}")
            lists.append([f"p{label}"])
    return texts, lists, {f"p{label}": f"Title{label}" for label in range(labels)}


def test_a_label_is_found_by_its_title() -> None:
    texts, lists, titles = plant(labels=60)
    asked = [f"title{label} own{label}" for label in range(60)]
    asked += [f"title{label}" for label in range(60)]

    def count_hits(index: LabelIndex) -> int:
        found = index.predict_text(asked[60:], k=1)
        return sum(row[0][0] == f"p{label}" for label, row in enumerate(found))

    plain = LabelIndex(ranker=True).fit_text(texts, lists, threads=1)
    taught = LabelIndex(ranker=True).fit_text(texts, lists, titles=titles, threads=1)
    assert count_hits(plain) <= 6
    assert count_hits(taught) >= 54
    found = taught.predict_text(asked[:60], k=1)
    assert [row[0][0] for row in found] == list(titles)
    assert len(taught) == len(plain) == 60
    assert taught.stats()["rows"] == plain.stats()["rows"] == len(texts)


def test_titles_without_a_known_word_change_nothing() -> None:
    texts, lists, titles = plant(labels=20)
    strange = {name: f"Ünbekannt{name}" for name in titles}
    plain = LabelIndex().fit_text(texts, lists, threads=1)
    same = LabelIndex().fit_text(texts, lists, titles=strange, threads=1)
    for one, other in zip(plain.predict_text(texts), same.predict_text(texts), strict=True):
        assert one == other


def test_new_labels_are_found_by_their_titles() -> None:
    texts, lists, _ = plant(labels=60)
    index = LabelIndex(ranker=True).fit_text(texts, lists, threads=1)
    new = [("own1 own2", ["new"]), ("own3", ["newer"])]
    index.partial_fit_text(new, titles={"new": "word7 title9", "p1": "title8"}, threads=1)
    best = index.predict_text(["word7 title9"], k=2)[0]  # old labels have these words, too
    assert "new" in [name for name, _ in best]
    assert index.names.titles == {"new": "word7 title9", "p1": "title8"}


def test_titles_are_no_rows(tmp_path: Path) -> None:
    """They are not counted, and have no place among near rows."""
    texts = ["meow", "purr meow", "woof", "bark woof", "moo", "grass moo"] * 4
    lists = [["cat"], ["cat"], ["dog"], ["dog"], ["cow"], ["cow"]] * 4
    index = LabelIndex(ranker=True)
    index.fit_text([*texts, "unlabelled"], [*lists, []], titles={"cow": "grass bark"}, threads=1)
    assert (index.rows, index.counts.tolist()) == (25, [8, 8, 8])
    index.partial_fit_text(
        ["meow woof", "purr bark"], [["ape"], ["ape"]], titles={"ape": "purr grass"}, threads=1
    )
    assert (index.rows, index.counts.tolist()) == (27, [8, 8, 8, 2])
    index.partial_fit_text(["moo purr"], [["ape"]], titles={}, threads=1)
    index.save(tmp_path / "index")
    for one in (index, load(tmp_path / "index")):
        near = {
            text: {label.name: label.near[0].row for label in told.labels if label.near}
            for text in ("grass bark", "purr grass", "purr bark", "moo purr", "purr meow")
            for told in [one.explain_text(text, 4)]
        }
        assert near["grass bark"]["grass bark"] == -1
        assert near["purr grass"]["purr grass"] == -1
        assert near["purr bark"]["purr grass"] == 25
        assert near["moo purr"]["purr grass"] == 26
        assert near["purr meow"]["cat"] == 1
    assert "its title (1.00)" in str(index.explain_text("purr grass", 4))


def test_titles_are_never_held_out() -> None:
    rng = np.random.default_rng(1)
    rows = rng.random((400, 12), dtype=np.float32)
    labels = sp.csr_array(np.eye(10, dtype=np.float32)[rng.integers(10, size=400)])
    titles = rng.random((10, 12), dtype=np.float32)
    titles[4] = 0  # no title
    more, carried = append_titles(rows, labels, titles)
    assert more.shape == (409, 12)
    np.testing.assert_array_equal(carried.indices[-9:], [0, 1, 2, 3, 5, 6, 7, 8, 9])
    made = make_label_problem(more, carried, recipe("labels").resolve_for_labels(10), titles=9)
    assert made.split.held.max() < 400
    assert set(range(400, 409)) <= set(made.split.train.tolist())


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_rows_of_titles_fit_the_labels(kind: Callable[[Any], Any]) -> None:
    X, Y = np.eye(4).repeat(3, axis=0), np.arange(4).repeat(3)[:, None]
    index = LabelIndex().fit(kind(X), Y, titles=kind(np.eye(4)), threads=1)
    assert index.predict(kind(np.eye(4)), k=1).labels.ravel().tolist() == [0, 1, 2, 3]
    with pytest.raises(InvalidParameter, match="each of the 4 labels"):
        LabelIndex().fit(kind(X), Y, titles=kind(np.eye(4)[:3]))
    with pytest.raises(DimensionMismatch, match="must have 4 features"):
        LabelIndex().fit(kind(X), Y, titles=kind(np.eye(4)[:, :3]))
