"""Readers of texts: each format round-trips, and a fault names the file and the line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from irli.errors import FormatError, InvalidParameter, MissingDependency
from irli.labels.files.documents import Document, detect_format, read_documents, read_texts

# What UTF-8 can write; lone surrogates (Cs) it cannot.
unicode_text = st.text(st.characters(exclude_categories=["Cs"]))
one_line = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"))
lines = st.lists(one_line)
FEW = settings(max_examples=50, deadline=None)
FORMATS = ("text", "tsv", "jsonl", "csv")


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz"])
@FEW
@given(texts=lines)
def test_texts_round_trip(end: str, name: str, texts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        # A file that begins with this sign has a byte order mark instead.
        content = "".join(text.lstrip("\ufeff") + end for text in texts)
        path = write(Path(folder) / name, content.encode())
        assert read_texts(path) == [text.lstrip("\ufeff") for text in texts]


labels_of_a_line = st.lists(
    st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1).filter(
        lambda label: not label.startswith(("__label__", "<"))
    )
)


@FEW
@given(lists=st.lists(labels_of_a_line))
def test_label_lists_round_trip(lists: list[list[str]]) -> None:
    for separator in "\t", " ", "  ":
        with tempfile.TemporaryDirectory() as folder:
            content = "".join(separator.join(labels) + "\n" for labels in lists)
            path = write(Path(folder) / "labels.txt", content.encode())
            texts = write(Path(folder) / "texts.txt", b"\n" * len(lists))
            assert list(read_documents(str(texts), str(path))) == [("", x) for x in lists]


@FEW
@given(st.lists(st.tuples(unicode_text, st.lists(unicode_text.filter(bool)))), st.booleans())
def test_jsonl_round_trip(entries: list[tuple[str, list[str]]], ascii: bool) -> None:
    objects = [{"text": text, "labels": labels, "id": 1} for text, labels in entries]
    content = "".join(json.dumps(each, ensure_ascii=ascii) + "\n" for each in objects)
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "x.jsonl", content.encode())
        assert list(read_documents(path)) == entries


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"\xef\xbb\xbfa\r\nb\r\n", ["a", "b"]),
        ("a\u2028b\u0085c\x0bd\x0ce\x1cf\rg\n".encode(), ["a\u2028b\x85c\x0bd\x0ce\x1cf\rg"]),
        (b" a \t\n", [" a \t"]),
    ],
)
def test_what_a_line_is(content: bytes, texts: list[str], tmp_path: Path) -> None:
    assert read_texts(write(tmp_path / "x.txt", content)) == texts
    assert read_texts(write(tmp_path / "x.txt.gz", content)) == texts


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        (" a  b ", ["a", "b"]),
        ("hot dog\tcat", ["hot dog", "cat"]),
        ("hot dog\t", ["hot dog"]),
        ("\ta\t\t b \t", ["a", "b"]),
        ("__label__a __label__b", ["a", "b"]),
        ("__label__hot dog\t__label__b", ["hot dog", "b"]),
        ("New\xa0York a\u2028b", ["New\xa0York", "a\u2028b"]),
        ("a a", ["a", "a"]),
        ("<http://a/b> <c", ["http://a/b", "<c"]),
        ("   ", []),
    ],
)
def test_labels_of_a_line(line: str, labels: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "labels.txt.gz", f"x\n{line}\n\ny".encode())
    texts = write(tmp_path / "texts.txt", b"1\n2\n3\n4\n")
    found = [labels for _, labels in read_documents(texts, path)]
    assert found == [["x"], labels, [], ["y"]]


def test_jsonl_passes_over_empty_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl.gz", b'{"text": "a"}\n\n  \r\n{"labels": ["b"], "text": ""}')
    assert list(read_documents(path)) == [("a", []), ("", ["b"])]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{text: 1}", "must be a JSON object. It cannot be read"),
        ('{"text": "a"', "must be a JSON object. It cannot be read"),
        ("[" * 100_000, "must be a JSON object. It cannot be read"),
        ('["a"]', r'string \'text\'. It is \["a"\] instead'),
        ('{"txt": "a"}', 'string \'text\'. It is {"txt": "a"} instead'),
        ('{"text": null}', "string 'text'"),
        ('{"text": ["a"]}', "string 'text'"),
        (
            '{"text": 5, "more": "' + "x" * 999 + '"}',
            r'It is {"text": 5, "more": "x+\.\.\. instead',
        ),
        ('{"text": "a", "labels": "b"}', 'list of strings.* It has "b" instead'),
        ('{"text": "a", "labels": null}', "list of strings.* It has null instead"),
        ('{"text": "a", "labels": ["b", 7]}', r'list of strings.* It has \["b", 7\] instead'),
        ('{"text": "a", "labels": [""]}', "none of them empty"),
    ],
)
def test_jsonl_faults_name_the_line(line: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", f'{{"text": "a"}}\n\n{line}\n'.encode())
    with pytest.raises(FormatError, match=f"x.jsonl, line 3, .*{message}"):
        list(read_documents(path))


@pytest.mark.parametrize("format", FORMATS)
def test_files_that_cannot_be_read(format: str, tmp_path: Path) -> None:
    def read(path: Path) -> list[Document]:
        column = "text" if format == "jsonl" else '{"text": "a"}'  # the first line of a CSV
        return list(read_documents(path, format=format, text_columns=[column]))

    with pytest.raises(InvalidParameter, match="No such file"):
        read(tmp_path / "none.txt")
    with pytest.raises(InvalidParameter, match="Is a directory"):
        read(tmp_path)
    good = b'{"text": "a"}\n'
    latin = write(tmp_path / "latin.txt", good + '{"text": "né"}'.encode("latin-1"))
    with pytest.raises(FormatError, match=r"latin.txt, line 2, must be UTF-8.* 0xe9 at 11"):
        read(latin)
    zipped = gzip.compress(good * 100)
    damaged = zipped[:10] + b"\xff" + zipped[11:]  # a kind of block that there is not
    for number, content in enumerate([zipped[:-9], good, damaged]):
        path = tmp_path / f"{number}.gz"
        path.write_bytes(content)
        with pytest.raises(FormatError, match=f"{number}.gz must be a whole gzip file"):
            read(path)


# --- the formats of Annif and others -------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.tsv", "x.tsv.gz"])
@FEW
@given(entries=st.lists(st.tuples(one_line.map(lambda t: t.replace("\t", "")), labels_of_a_line)))
def test_tsv_round_trip(name: str, entries: list[tuple[str, list[str]]]) -> None:
    for marks in ("", ""), ("<", ">"):
        rows = [
            text.lstrip("\ufeff") + "\t" + " ".join(label.join(marks) for label in labels) + "\n"
            for text, labels in entries
        ]
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder) / name, "".join(rows).encode())
            found = list(read_documents(path))
        assert found == [(text.lstrip("\ufeff"), labels) for text, labels in entries]


def test_tsv_lines(tmp_path: Path) -> None:
    content = b"no tab\none\thttp://a/1\n\ttwo words\tb\nlast\thot dog; cat\n"
    path = write(tmp_path / "x.tsv", content)
    assert [labels for _, labels in read_documents(path)][:3] == [
        [],
        ["http://a/1"],
        ["two words", "b"],
    ]
    assert list(read_documents(path, separator=";"))[3] == ("last", ["hot dog", "cat"])


@FEW
@given(
    st.lists(st.tuples(unicode_text, st.lists(st.sampled_from(["a", "hot dog", 'q"']))), min_size=1)
)
def test_csv_round_trip(entries: list[tuple[str, list[str]]]) -> None:
    for delimiter in ",", ";":
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=delimiter)
        writer.writerow(["id", "labels", "text"])
        for text, labels in entries:
            writer.writerow(["1", "|".join(labels), text.replace("\r", "")])
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder) / "x.csv", out.getvalue().encode())
            found = list(read_documents(path, separator="|"))
        assert found == [(text.replace("\r", ""), labels) for text, labels in entries]


def test_columns_can_be_named(tmp_path: Path) -> None:
    content = b'title,abstract,subject_uris,kind\nOne,"a, b",<u:1> u:2,x y\nTwo,,\n'
    path = write(tmp_path / "x.csv.gz", content)
    columns = ["title", "abstract"]
    found = list(read_documents(path, text_columns=columns))
    assert found == [("One a, b", ["u:1", "u:2"]), ("Two ", [])]
    found = list(read_documents(path, text_columns=columns, label_column="kind"))
    assert found[0].labels == ["x", "y"]
    with pytest.raises(FormatError, match=r"x\.csv\.gz, line 2, must have a string 'text'"):
        list(read_documents(path))
    with pytest.raises(FormatError, match="line 2, must have labels in 'topic'"):
        list(read_documents(path, text_columns=columns, label_column="topic"))


def test_long_cells(tmp_path: Path) -> None:
    long = b"x" * 200_000
    path = write(tmp_path / "x.csv", b"text,labels\n" + long + b",a\n")
    assert list(read_documents(path)) == [(long.decode(), ["a"])]


def test_objects_of_annif(tmp_path: Path) -> None:
    subjects = [{"uri": "u:1", "label": "one"}, {"label": "two"}]
    line = json.dumps({"text": "a", "subjects": subjects, "metadata": {}})
    path = write(tmp_path / "x.jsonl", line.encode())
    assert list(read_documents(path)) == [("a", ["u:1", "two"])]
    write(path, b'{"text": "a", "subjects": [{"name": "b"}]}')
    with pytest.raises(FormatError, match="line 1, must have a list of strings"):
        list(read_documents(path))


def test_folders_of_texts(tmp_path: Path) -> None:
    write(tmp_path / "b.txt", "\ufeffzwei\nZeilen\n".encode())
    write(tmp_path / "b.tsv", b"<http://a/1>\tone\n\n<http://a/2>\ttwo words\t0.5\n")
    write(tmp_path / "b.key", b"ignored\n")
    write(tmp_path / "a.txt", b"")
    write(tmp_path / "a.key", b"hot dog\r\ncat\n")
    write(tmp_path / "c.txt", b"alone")
    write(tmp_path / "notes.md", b"no text")
    assert list(read_documents(tmp_path)) == [
        ("", ["hot dog", "cat"]),
        ("zwei\nZeilen", ["http://a/1", "http://a/2"]),
        ("alone", []),
    ]
    write(tmp_path / "b.key", b"\xff")
    (tmp_path / "b.tsv").unlink()
    with pytest.raises(FormatError, match=r"b.key, line 1, must be UTF-8"):
        list(read_documents(tmp_path))
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidParameter, match=r"a \.txt for each text"):
        list(read_documents(tmp_path / "empty"))


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows: dict[str, Any] = {"text": ["a", None], "labels": [["hot dog", "b"], None]}
    parquet.write_table(pyarrow.table(rows | {"uris": ["<u:1> u:2", None]}), tmp_path / "x.parquet")
    found = list(read_documents(tmp_path / "x.parquet"))
    assert found == [("a", ["hot dog", "b"]), ("", [])]
    found = list(read_documents(tmp_path / "x.parquet", label_column="uris"))
    assert [labels for _, labels in found] == [["u:1", "u:2"], []]
    with pytest.raises(FormatError, match="must be a Parquet file"):
        list(read_documents(write(tmp_path / "y.parquet", b"no")))


def test_parquet_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet")
    with pytest.raises(InvalidParameter, match=r"'path' .* can be read.*: No such file"):
        list(read_documents(tmp_path / "x.parquet"))


def test_a_single_column_may_be_a_string(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", b"title,labels\nMeow,cat\n")
    assert list(read_documents(path, text_columns="title")) == [("Meow", ["cat"])]


def test_parquet_needs_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependency, match=r"pip install 'irli\[parquet\]'"):
        list(read_documents(tmp_path / "x.parquet"))


def test_names_say_the_format(tmp_path: Path) -> None:
    names = ["a.tsv", "a.TSV.gz", "a.jsonl.gz", "a.csv", "a.parquet", "a.txt", "a", "tsv.txt"]
    expected = ["tsv", "tsv", "jsonl", "csv", "parquet", "text", "text", "text"]
    assert [detect_format(name) for name in names] == expected
    assert detect_format(tmp_path) == "folder"
    with pytest.raises(InvalidParameter, match="'labels' parameter must be left out"):
        read_documents("a.tsv", "b.txt")
    with pytest.raises(InvalidParameter, match="'format'"):
        read_documents("a.tsv", format="tvs")


def test_reading_is_streamed_and_reports_progress(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", b"a\tb\nc\td\n\xff\n")
    done: list[int] = []
    stream = read_documents(path, progress=lambda count, total, what: done.append(count))
    assert [next(stream).text, next(stream).text] == ["a", "c"]  # the fault comes later
    with pytest.raises(FormatError, match="line 3"):
        next(stream)
    assert done == [1, 2]


def test_equal_labels_share_memory(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", b"a\thttp://a/1\nb\thttp://a/1\n")
    first, second = (labels[0] for _, labels in read_documents(path))
    assert first is second


@pytest.mark.parametrize(("texts", "labels"), [(3, 5), (5, 3)])
def test_files_of_other_lengths(texts: int, labels: int, tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.txt", b"x\n" * n) for i, n in enumerate((texts, labels))]
    with pytest.raises(InvalidParameter, match=f"each of the {texts} rows.* Got {labels} in"):
        list(read_documents(*paths))
