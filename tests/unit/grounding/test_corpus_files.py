"""Corpora in files: formats, orders over blocks, bad rows, and files that are none."""

import gzip
import json
import logging
import re
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from spade_async.config.corpus_source import CorpusSource
from spade_async.errors import ConfigError
from spade_async.grounding import blocks, source
from spade_async.grounding.corpus import open_corpus

TEXTS = [f"text number {i}" for i in range(40)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def small_rounds(monkeypatch):
    """Blocks of 256 bytes, three to a round, so that small files have many of both."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 256)
    monkeypatch.setattr(blocks.LineFile, "blocks_per_round", 3)


def lines(texts=TEXTS):
    return "".join(json.dumps({"text": text}) + "\n" for text in texts)


def opened(path, *, words=100, seed=1, **more):
    return open_corpus(str(path), max_document_words=words, seed=seed, **more)


def draw(corpus, num):
    return [corpus.next().text for _ in range(num)]


def write_arrow(path, texts):
    table = pa.table({"text": texts, "other": list(range(len(texts)))})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


def make(kind, folder):
    """TEXTS in one of the formats."""
    folder.mkdir()
    data = lines().encode()
    if kind in ("jsonl", "jsonl without a suffix"):
        path = folder / ("c.jsonl" if kind == "jsonl" else "corpus")
        path.write_bytes(data)
    elif kind == "gzip":
        path = folder / "c.jsonl.gz"
        path.write_bytes(gzip.compress(data))
    elif kind == "zstd":
        path = folder / "c.jsonl.zst"
        path.write_bytes(zstandard.compress(data))
    elif kind == "parquet":
        path = folder / "c.parquet"
        pq.write_table(pa.table({"text": TEXTS, "n": list(range(40))}), path, row_group_size=7)
    elif kind == "utf-16":
        path = folder / "c.jsonl"
        path.write_text(lines(), encoding="utf-16")
    elif kind == "utf-8 with bom":
        path = folder / "c.jsonl"
        path.write_text(lines(), encoding="utf-8-sig")
    elif kind == "saved dataset":
        path = folder
        for split, texts in (("test", ["not read"]), ("train", TEXTS)):
            (folder / split).mkdir()
            (folder / split / "state.json").write_text("{}")
            write_arrow(folder / split / "data-00000-of-00001.arrow", texts)
        (folder / "dataset_dict.json").write_text('{"splits": ["test", "train"]}')
    elif kind == "hub shards":
        path = folder
        (folder / "README.md").write_text("a card, not a document")
        (folder / "data").mkdir()
        for i in range(4):
            table = pa.table({"text": TEXTS[i * 10 : i * 10 + 10]})
            pq.write_table(table, folder / "data" / f"train-0000{i}-of-00004.parquet")
        pq.write_table(pa.table({"text": ["not read"]}), folder / "data" / "test-0.parquet")
    elif kind == "jsonl shards":
        path = folder
        (folder / "a.jsonl").write_text(lines(TEXTS[:25]))
        (folder / "b.jsonl.gz").write_bytes(gzip.compress(lines(TEXTS[25:]).encode()))
        (folder / "c.jsonl").write_text("")
    else:
        path = folder
        (folder / "sub").mkdir()
        for i, text in enumerate(TEXTS):
            (folder / "sub" / f"{i}.txt").write_text(text)
    return path


@pytest.mark.parametrize(
    "kind",
    ["jsonl", "jsonl without a suffix", "gzip", "zstd", "parquet", "utf-16", "utf-8 with bom",
     "saved dataset", "hub shards", "jsonl shards", "text folder"],
)  # fmt: skip
def test_every_format_gives_each_document_once_in_a_seeded_order(kind, tmp_path):
    path = make(kind, tmp_path / "data")
    first = draw(opened(path), 80)
    assert sorted(first[:40]) == sorted(TEXTS)
    assert sorted(first[40:]) == sorted(TEXTS)
    assert first[:40] != first[40:]
    assert first == draw(opened(path), 80)
    assert first != draw(opened(path, seed=2), 80)


@pytest.mark.parametrize("used", [0, 1, 17, 39, 40, 41, 95])
def test_a_cursor_goes_on_in_any_round_of_any_epoch(used, tmp_path, small_rounds):
    path = make("jsonl", tmp_path / "data")
    corpus, restored = opened(path), opened(path)
    draw(corpus, used)
    restored.restore(json.loads(json.dumps(corpus.state())))
    assert restored.epoch == corpus.epoch == used // 40
    assert draw(restored, 60) == draw(corpus, 60)


def test_many_rounds_give_each_document_once_and_mix_the_file(tmp_path, small_rounds):
    path = make("jsonl", tmp_path / "data")
    drawn = draw(opened(path), 40)
    assert sorted(drawn) == sorted(TEXTS)
    first = sorted(TEXTS.index(text) for text in drawn[:8])
    assert first[-1] - first[0] > 8, "a round is from all over the file"


def test_a_text_is_cut_into_passages_that_keep_their_layout(tmp_path):
    path = tmp_path / "book.txt"
    path.write_text("one two\n  three four five six\nseven")
    corpus = opened(path, words=10)
    assert draw(corpus, 1) == ["one two\n  three four five six\nseven"]
    path.write_text(" ".join(f"w{i}" for i in range(50)) + " é")
    found = {d.document_id: d.text for d in (c.next() for c in [opened(path, words=20)] * 2)}
    assert found == {
        "book.txt@0": " ".join(f"w{i}" for i in range(20)),
        "book.txt@70": " ".join(f"w{i}" for i in range(20, 40)),
    }, "the rest of 11 words is too short"


def test_a_line_of_megabytes_is_cut_in_linear_time(tmp_path):
    # The bytes before each passage were counted from the start: minutes for one line of 4 MB.
    text = "é " * 1_000_000
    path = tmp_path / "a.txt"
    path.write_text(text)
    began = time.process_time()
    rows = list(blocks.TextFile(path, "a.txt", 10).rows(0))
    assert time.process_time() - began < 8.0
    assert len(rows) == 100_000
    assert [row.row_id for row in rows[:3]] == ["a.txt@0", "a.txt@30", "a.txt@60"]
    assert rows[-1].row_id == f"a.txt@{99_999 * 30}"


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_a_packed_file_that_was_cut_is_refused_and_frames_follow_each_other(kind, tmp_path):
    packed = [
        gzip.compress(part) if kind == "gzip" else zstandard.compress(part)
        for part in (lines(TEXTS[:20]).encode(), lines(TEXTS[20:]).encode())
    ]
    path = tmp_path / f"c.jsonl.{kind[0]}z"
    path.write_bytes(b"".join(packed))
    assert sorted(draw(opened(path), len(TEXTS))) == sorted(TEXTS)
    for left in (len(packed[0]) - 3, len(packed[0]) + 9):
        path.write_bytes(b"".join(packed)[:left])
        with pytest.raises(
            ConfigError, match=r"cannot be unpacked as .* ended before .* not whole"
        ):
            opened(path)


def test_bad_rows_are_skipped_counted_and_named(tmp_path, caplog):
    rows = [
        b'{"text": "one two three"}', b"not json", b"", b'["a list"]',
        b'{"text": 7, "orig_doc": "from the first key"}', b'{"title": "no text"}',
        b'{"text": "   "}', '{"text": "caf\u00e9"}'.encode("latin-1"), b"[" * 100_000, b"null",
        b'{"text": "lone \\ud800 half"}',
    ]  # fmt: skip
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"\n".join(rows))
    with caplog.at_level(logging.WARNING):
        corpus = opened(path, words=2)
    assert sorted(draw(corpus, 3)) == ["from the", "lone ?", "one two"]
    assert corpus.num_bad == 7
    assert [(row.place, row.reason) for row in corpus.bad_rows] == [
        ("line 2", "not JSON: JSONDecodeError"),
        ("line 4", "not an object but list"),
        ("line 6", "no text under orig_doc or text"),
        ("line 7", "no text under orig_doc or text"),
        ("line 8", "not UTF-8: byte 0xe9 at character 13"),
    ]
    assert f"corpus {path}: line 2: not JSON" in caplog.text
    assert corpus.metrics()["grounding/bad_rows"] == 7.0
    draw(corpus, 9)
    assert corpus.num_bad == 7, "each counts once, however often the file is gone through"
    restored = opened(path, words=2)
    restored.restore(corpus.state())
    assert restored.num_bad == 7


def test_one_bad_row_in_many_costs_that_row(tmp_path, caplog):
    path = tmp_path / "corpus.jsonl"
    rows = [f'{{"text": "t{i}"}}' for i in range(60_000)]
    rows[54_321] = '{"text": "cut'
    path.write_text("\n".join(rows))
    corpus = opened(path)
    drawn = draw(corpus, 59_999)
    assert len(set(drawn)) == 59_999
    assert [row.place for row in corpus.bad_rows] == ["line 54322"]


def test_a_blank_orig_doc_hides_a_text_only_in_the_reference(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"orig_doc": "  ", "text": "good"}\n{"orig_doc": "first", "text": "second"}\n')
    assert sorted(draw(opened(path), 2)) == ["first", "good"]
    reference = opened(path, is_reference=True)
    assert draw(reference, 2) == ["first", "first"]
    assert reference.num_bad == 1


def test_the_reference_cuts_by_collapsing_whitespace_and_marks_it(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text(json.dumps({"text": "a  b\n  c\td"}) + "\n")
    assert draw(opened(path, words=3), 1) == ["a  b\n  c"]
    assert draw(opened(path, words=3, is_reference=True), 1) == ["a b c\n[... truncated]"]
    assert draw(opened(path, words=4, is_reference=True), 1) == ["a  b\n  c\td"]


def test_the_reference_stops_at_json_that_is_no_object(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "good"}\n[1]\n')
    with pytest.raises(ConfigError, match=r"not an object but list.*run\.compat"):
        opened(path, is_reference=True)


def test_sources_are_mixed_by_weight_each_without_a_repeat(tmp_path):
    for name, num in (("maths", 900), ("code", 300)):
        (tmp_path / f"{name}.jsonl").write_text(lines([f"{name} {i}" for i in range(num)]))
    entries = [
        CorpusSource(path=str(tmp_path / "maths.jsonl"), weight=3.0),
        CorpusSource(path=str(tmp_path / "code.jsonl"), weight=1.0),
    ]
    corpus = open_corpus(entries, max_document_words=10, seed=5)
    first = draw(corpus, 400)
    restored = open_corpus(entries, max_document_words=10, seed=5)
    restored.restore(json.loads(json.dumps(corpus.state())))
    rest = draw(restored, 400)
    assert rest == draw(corpus, 400)
    drawn = first + rest
    assert len(set(drawn)) == 800
    # 600 expected of 800; one standard deviation is sqrt(800 * .75 * .25) = 12.
    assert 550 < sum(text.startswith("maths") for text in drawn) < 650


def test_a_source_that_goes_away_is_left_out_while_there_is_another(tmp_path, small_rounds, caplog):
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text(lines([f"{name} {i}" for i in range(40)]))
    entries = [CorpusSource(path=str(tmp_path / f"{name}.jsonl")) for name in ("a", "b")]
    corpus = open_corpus(entries, max_document_words=10, seed=5)
    (tmp_path / "b.jsonl").unlink()
    drawn = draw(corpus, 130)
    assert set(drawn[-20:]) <= {f"a {i}" for i in range(40)}
    assert "the run goes on with the other sources" in caplog.text
    (tmp_path / "a.jsonl").unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        draw(corpus, 80)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b"\n \n", "holds no usable document"),
        (b'{"title": 1}\n', r"1 bad rows, first line 1: no text under orig_doc or text"),
        (b"\x7fELF\x02\x01\x01\0\0\0", "is binary"),
        ("caf\u00e9 \u00fcber\n".encode("latin-1"), "not UTF-8: byte 0xe9"),
        (gzip.compress(b"x" * 999, mtime=0)[:20], "damaged"),
    ],
)
@pytest.mark.parametrize("form", ["auto", "text"])
def test_a_file_that_is_no_corpus_is_one_clear_error(content, says, form, tmp_path):
    path = tmp_path / "corpus.jsonl"
    if content is not None:
        path.write_bytes(content)
    if form == "text" and says.startswith("1 bad rows"):
        return  # it is a text
    with pytest.raises(ConfigError, match=f"grounding.corpus.*{says}") as found:
        open_corpus([CorpusSource(path=str(path), format=form)], max_document_words=10, seed=1)
    assert "\n" not in str(found.value)


def test_a_huge_sparse_file_is_refused_at_once(tmp_path):
    path = tmp_path / "corpus.jsonl"
    with path.open("wb") as file:
        file.truncate(50 << 30)
    with pytest.raises(ConfigError, match="is binary"):
        opened(path)


def test_a_huge_file_with_a_hole_gives_what_is_around_it(tmp_path):
    path = tmp_path / "corpus.jsonl"
    with path.open("wb") as file:
        file.write(lines(TEXTS[:20]).encode())
        file.write(b" " * (blocks.BLOCK_BYTES * 2))
        file.seek(8 << 30)
        file.write(b"\n" + lines(TEXTS[20:]).encode())
    corpus = opened(path)
    assert sorted(draw(corpus, 40)) == sorted(TEXTS)
    assert corpus.num_bad == 1, "the hole is one row that is too long"


def test_a_long_line_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MAX_ROW_BYTES", 1000)
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"text": "' + "x" * 200_000 + '"}\n' + lines(TEXTS[:2]))
    corpus = opened(path)
    assert sorted(draw(corpus, 2)) == sorted(TEXTS[:2])
    assert corpus.bad_rows[0].reason == "row of more than 1000 bytes"


def test_a_folder_without_readable_files_is_one_clear_error(tmp_path):
    with pytest.raises(ConfigError, match="has no readable file: none of its 0"):
        opened(tmp_path)
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0")
    with pytest.raises(ConfigError, match=r"none of its 1 has a name in \.arrow, \.parquet"):
        opened(tmp_path)


def test_a_bad_file_in_a_folder_is_named_and_the_others_are_read(tmp_path, caplog):
    (tmp_path / "a.txt").write_text("good text")
    (tmp_path / "b.txt").write_bytes(b"\0" * 100)
    corpus = opened(tmp_path)
    assert draw(corpus, 2) == ["good text", "good text"]
    assert [row.place for row in corpus.bad_rows] == ["b.txt"]
    assert "is binary" in caplog.text


def test_a_file_that_changed_is_refused_on_a_resume(tmp_path):
    path = make("jsonl", tmp_path / "data")
    state = opened(path).state()
    path.write_text(lines(TEXTS[:-1]))
    with pytest.raises(ConfigError, match="changed since this run began"):
        opened(path).restore(state)


@pytest.mark.parametrize("kind", ["parquet", "zstd"])
def test_a_missing_library_is_named_with_its_extra(kind, tmp_path, monkeypatch):
    def refuse(name):
        raise ImportError(f"No module named {name!r}")

    path = make(kind, tmp_path / "data")
    monkeypatch.setattr("importlib.import_module", refuse)
    with pytest.raises(ConfigError, match=re.escape("pip install 'spade-async[corpus]'")):
        opened(path)


def test_columns_without_a_text_are_named(tmp_path):
    pq.write_table(pa.table({"question": ["a"]}), tmp_path / "c.parquet")
    with pytest.raises(ConfigError, match=r"no column orig_doc or text \(it has question"):
        opened(tmp_path / "c.parquet")


def test_null_columns_are_bad_rows(tmp_path):
    table = pa.table({"orig_doc": [None, "a", ""], "text": ["b", "x", None]})
    pq.write_table(table, tmp_path / "c.parquet")
    corpus = opened(tmp_path / "c.parquet")
    assert sorted(draw(corpus, 2)) == ["a", "b"]
    assert [row.place for row in corpus.bad_rows] == ["row 2"]


def test_hopeless_files_are_given_up_in_time(tmp_path, small_rounds, monkeypatch):
    monkeypatch.setattr(source, "HOPELESS_ROUNDS", 2)
    path = tmp_path / "corpus.jsonl"
    path.write_text("x\n" * 100_000)
    with pytest.raises(
        ConfigError, match=r"no usable document \(1\d{3} bad rows, first line \d+: not JSON"
    ):
        opened(path)
