"""Corpora built from what is installed: passages, markup, licences, the same file every time."""

import gzip
import hashlib
import json

import pytest

from spade_async.errors import ConfigError
from spade_async.grounding.build import markup
from spade_async.grounding.build.corpus_file import write_corpus
from spade_async.grounding.build.debian import debian_texts, num_files
from spade_async.grounding.build.docstrings import stdlib_texts
from spade_async.grounding.build.passage import Text, passages
from spade_async.grounding.corpus import open_corpus

MAN = r""".\" a comment
.TH LS 1 "May 2024"
.SH NAME
ls \- list directory contents
.de Xx
not shown
..
.SH DESCRIPTION
.PP
List \fBinformation\fR about the \fIFILE\fRs (the current
.if n not shown
.BR sort "(1) orders them"
"""


def words(num, start=0):
    return " ".join(f"w{i}" for i in range(start, start + num))


def test_passages_are_windows_and_a_short_rest_is_left_out():
    assert list(passages(words(39), 100)) == []
    assert list(passages(words(40), 100)) == [words(40)]
    assert list(passages(words(159), 100)) == [words(100)]
    assert list(passages(words(160), 100)) == [words(100), words(60, 100)]
    assert next(passages("a\n\n\n\n" + words(50) + "\x07", 100)) == "a\n\n" + words(50)


def test_a_man_page_is_read_without_its_macros():
    assert markup.roff(MAN) == (
        "\nNAME\nls - list directory contents\n\nDESCRIPTION\n\n"
        "List information about the FILEs (the current\nsort (1) orders them\n"
    )


def test_an_info_file_is_read_without_headers_and_menus():
    text = (
        "header line\n\x1f\nFile: x.info,  Node: Top\n\nAbout it.\n\n* Menu:\n\n* One:: first\n"
        "\x1f\nFile: x.info,  Node: One\n\nThe first.\n\x1f\nTag Table:\nNode: Top\x7f12\n"
    )
    assert markup.info(text).split() == ["header", "line", "About", "it.", "The", "first."]


def test_a_page_is_read_without_what_is_not_shown():
    page = "<head><title>t</title></head><body><p>one &lt; two</p><script>x()</script>three"
    assert markup.html(page).split() == ["one", "<", "two", "three"]


@pytest.fixture
def root(tmp_path):
    """A Debian file system with two packages."""
    doc = tmp_path / "root/usr/share/doc"
    for name, licence in (
        ("alpha", "License: MIT\n\nLicense: BSD\n"),
        ("beta", "is in the public domain"),
    ):
        (doc / name).mkdir(parents=True)
        (doc / name / "copyright").write_text(licence)
    (doc / "alpha" / "README.gz").write_bytes(gzip.compress(words(60).encode()))
    (doc / "alpha" / "changelog.gz").write_bytes(gzip.compress(words(60, 500).encode()))
    (doc / "alpha" / "same.txt").write_text(words(60).replace(" ", "\n"))
    (doc / "beta" / "guide.html").write_text(f"<p>{words(60, 100)}</p>")
    (doc / "beta" / "image.txt").write_bytes(b"\0" * 500)
    man = tmp_path / "root/usr/share/man/man1"
    man.mkdir(parents=True)
    (man / "beta.1").write_text(".SH NAME\n" + words(60, 200))
    info = tmp_path / "root/var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / "beta:amd64.list").write_text("/usr/share/man/man1/beta.1\n")
    return tmp_path / "root"


def test_debian_documentation_becomes_a_corpus_that_names_source_and_licence(root, tmp_path):
    seen = []
    out = tmp_path / "c.jsonl"
    built = write_corpus(debian_texts(root, lambda: seen.append(1)), out, words=100)
    assert len(seen) == num_files(root) == 5
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["source"], row["licence"]) for row in rows] == [
        ("alpha: /usr/share/doc/alpha/README.gz", "MIT, BSD"),
        ("beta: /usr/share/doc/beta/guide.html", "public domain"),
        ("beta: /usr/share/man/man1/beta.1", "public domain"),
    ]
    assert all(hashlib.sha256(r["text"].encode()).hexdigest() == r["sha256"] for r in rows)
    assert (built.num_passages, built.num_copies) == (3, 1), "same.txt says what README says"
    assert built.digest == hashlib.sha256(out.read_bytes()).hexdigest()
    corpus = open_corpus(str(out), max_document_words=100, seed=1)
    assert {corpus.next().text for _ in range(3)} == {row["text"] for row in rows}


def test_the_same_texts_make_the_same_bytes(root, tmp_path):
    files = [tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"]
    for path in files:
        write_corpus(debian_texts(root, lambda: None), path, words=100)
    assert files[0].read_bytes() == files[1].read_bytes()


def test_what_cannot_be_written_is_one_clear_error_and_leaves_nothing(tmp_path):
    text = Text(words(60), "s", "l")
    (tmp_path / "there.jsonl").write_text("x")
    for name, says in (
        ("a.txt", "end its name"),
        ("there.jsonl", "exists"),
        ("no/a.jsonl", "cannot be written"),
    ):
        with pytest.raises(ConfigError, match=says):
            write_corpus([text], tmp_path / name, words=100)
    with pytest.raises(ConfigError, match="nothing to build"):
        write_corpus([], tmp_path / "b.jsonl", words=100)
    assert [path.name for path in tmp_path.iterdir()] == ["there.jsonl"]


def test_docstrings_of_the_library_are_texts_with_their_names():
    texts = list(stdlib_texts(lambda: None))
    assert len(texts) > 1000
    assert {text.licence for text in texts} == {"PSF-2.0"}
    assert any(text.source == "Python: random:Random.sample" for text in texts)
