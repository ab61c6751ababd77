"""`grounding.corpus`: a string or a list of tables, and what is said of anything else."""

import tomllib

import pytest

from spade_async.commands.config import as_toml
from spade_async.config.corpus_source import CorpusSource
from spade_async.config.load import as_dict, digest, resolve
from spade_async.errors import ConfigError


def resolved(tmp_path, value):
    path = tmp_path / "c.toml"
    path.write_text(f"[grounding]\ncorpus = {value}\n")
    return resolve(path)


def test_a_string_stays_a_string(tmp_path):
    assert resolved(tmp_path, '"a.jsonl"').grounding.corpus == "a.jsonl"


def test_a_mixture_is_a_list_of_tables_with_defaults(tmp_path):
    config = resolved(tmp_path, '[{path = "a", weight = 2}, {path = "b", format = "text"}]')
    assert config.grounding.corpus == (
        CorpusSource(path="a", weight=2.0),
        CorpusSource(path="b", weight=1.0, format="text"),
    )


def test_a_mixture_can_be_shown_and_read_again(tmp_path):
    config = resolved(tmp_path, '[{path = "a \\" b", weight = 2}, {path = "b"}]')
    shown = as_toml(as_dict(config))
    again = tmp_path / "again.toml"
    again.write_text(shown)
    assert tomllib.loads(shown)["grounding"]["corpus"][0]["weight"] == 2.0
    assert digest(resolve(again)) == digest(config)


def test_a_mixture_can_be_given_as_an_override(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("")
    config = resolve(path, ['grounding.corpus=[{path = "a"}]'])
    assert config.grounding.corpus == (CorpusSource(path="a"),)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("7", "grounding.corpus=7: must be a string or a list of tables"),
        ("[]", "grounding.corpus has 0 entries"),
        ('["a"]', r"grounding.corpus\[0\]='a': must be a table"),
        ("[{weight = 1}]", r"grounding.corpus\[0\].path=None: must be a file"),
        ('[{path = "a"}, {path = "b", weight = 0}]', r"corpus\[1\].weight=0: .* number > 0"),
        # The sum of two such was infinite, and the last entry was drawn from for ever.
        ('[{path = "a", weight = 1e308}]', r"weight=1e\+308: .* > 0 and <= 1e\+09"),
        ('[{path = "a", weight = -1.5}]', r"corpus\[0\].weight=-1.5: .* number > 0"),
        ('[{path = "a", weight = nan}]', r"weight=nan"),
        ('[{path = "a", weight = true}]', r"weight=True"),
        ('[{path = "a", wieght = 1}]', r'unknown key "grounding.corpus\[0\].wieght"'),
        ('[{path = "a", format = "csv"}]', r"format='csv': must be one of \"auto\", \"jsonl\""),
    ],
)
def test_a_wrong_entry_is_named(tmp_path, value, says):
    with pytest.raises(ConfigError, match=says) as found:
        resolved(tmp_path, value)
    assert "\n" not in str(found.value)
