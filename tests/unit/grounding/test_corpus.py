"""The corpus: what is read, in which order, and that nothing comes twice too early."""

import json
import random
import sys

import pytest

from spade_async.config.schema import Config
from spade_async.errors import ConfigError
from spade_async.grounding.corpus import Corpus, Document, check_corpus, open_corpus
from spade_async.grounding.document import cut_words
from spade_async.grounding.source import ListSource
from spade_async.grounding.stdlib_docstrings import MIN_WORDS, stdlib_documents
from spade_async.seeds import derive


def corpus(num=5, seed=3):
    documents = [Document(f"doc-{i}", f"text {i}") for i in range(num)]
    return Corpus([(ListSource(documents, name="test", seed=seed), 1.0)], seed=seed)


def ids(source, num):
    return [source.next().document_id for _ in range(num)]


def test_every_document_is_used_once_before_any_is_used_twice():
    source = corpus(7)
    for _ in range(3):
        assert sorted(ids(source, 7)) == [f"doc-{i}" for i in range(7)]
    assert source.epoch == 3


def test_the_order_is_that_of_the_run_seed_and_changes_with_the_epoch():
    first, second = corpus(20), corpus(20)
    order = ids(first, 20)
    assert order == ids(second, 20)
    assert order != ids(first, 20)
    assert order != ids(corpus(20, seed=4), 20)


@pytest.mark.parametrize("used", [0, 3, 5, 8])
def test_a_restored_cursor_goes_on_with_the_same_documents(used):
    source, restored = corpus(), corpus()
    ids(source, used)
    restored.restore(json.loads(json.dumps(source.state())))
    assert ids(restored, 9) == ids(source, 9)


def test_a_cursor_of_another_corpus_is_refused_with_both_sizes():
    with pytest.raises(
        ConfigError, match=r"changed since this run began \(4 documents then, 5 now"
    ):
        corpus(5).restore(corpus(4).state())


def test_an_empty_corpus_is_an_error_that_names_the_key():
    with pytest.raises(ConfigError, match=r"grounding\.corpus='test' holds no usable document"):
        corpus(0)


def test_the_cursor_of_an_older_run_still_fits():
    old = {"epoch": 1, "position": 2, "digest": corpus().state()["sources"][0]["digest"]}
    source, restored = corpus(), corpus()
    ids(source, 7)
    restored.restore(old | {"num_documents": 5})
    assert restored.state() == source.state()


def test_the_default_corpus_draws_what_it_has_always_drawn():
    """Frozen by the definition of its order: a shuffle seeded by the run's seed and the epoch."""
    documents = stdlib_documents(200)
    order = list(range(len(documents)))
    random.Random(derive(17, "corpus", 0)).shuffle(order)
    source = open_corpus("stdlib-docstrings", max_document_words=200, seed=17)
    drawn = [source.next() for _ in range(50)]
    assert drawn == [documents[i] for i in order[:50]]


def test_the_default_corpus_is_docstrings_sorted_unique_and_cut():
    documents = stdlib_documents(40)
    names = [document.document_id for document in documents]
    assert len(documents) > 1000
    assert names == sorted(set(names))
    assert "heapq:heappush" not in names, "written in C, or too short to ground a task"
    assert "random:Random.sample" in names
    assert all(MIN_WORDS <= len(document.text.split()) <= 40 for document in documents)


def test_reading_the_default_corpus_imports_none_of_its_modules():
    before = set(sys.modules)
    open_corpus("stdlib-docstrings", max_document_words=200, seed=1)
    new = set(sys.modules) - before
    assert not {"this", "antigravity", "turtle", "tkinter", "idlelib"} & new


def test_a_cut_keeps_the_layout_of_what_stays():
    assert cut_words("a  b\n    c d", 3) == "a  b\n    c"
    assert cut_words("a b", 5) == "a b"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", b'{"body": "x"}\n[1]\nnot JSON\n'),
        ("blank.jsonl", b'{"text": "  "}\n' * 40_000),
        ("latin.jsonl", '{"text": "é"}\n'.encode("latin-1") * 3),
        ("lines.jsonl", b"\n" * 1000),
    ],
)
def test_a_corpus_without_a_usable_row_is_refused_before_the_run_in_the_same_words(
    name, content, tmp_path, caplog
):
    path = tmp_path / name
    path.write_bytes(content)
    config = Config.model_validate({"grounding": {"corpus": str(path)}})
    with pytest.raises(ConfigError) as opened:
        open_corpus(str(path), max_document_words=200, seed=config.run.seed)
    caplog.clear()
    with pytest.raises(ConfigError, match="holds no usable document") as checked:
        check_corpus(config)
    assert str(checked.value) == str(opened.value)
    assert caplog.records == []


def test_bad_rows_beside_a_good_one_are_no_reason_to_refuse(tmp_path, caplog):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"not JSON\n" * 5000 + b'{"text": "good"}\n' + b"[1]\n" * 5000)
    check_corpus(Config.model_validate({"grounding": {"corpus": str(path)}}))
    assert caplog.records == []
