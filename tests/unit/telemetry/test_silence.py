from __future__ import annotations

from spade_async.telemetry.silence import FIRST_WORD_S, SILENT_S, Silence, sentence


def test_part_that_speaks_is_not_silent() -> None:
    silence = Silence(["gen-0", "learner"], 0.0)
    silence.heard("gen-0", 100.0)
    silence.heard("learner", 100.0)
    assert silence.silent(100.0 + SILENT_S) == {}
    assert sentence({}) is None


def test_part_that_stops_speaking_is_named_the_longest_first() -> None:
    silence = Silence(["gen-0", "learner"], 0.0)
    silence.heard("gen-0", 5.0)
    silence.heard("learner", 1.0)
    assert silence.silent(31.0) == {"learner": 30.0, "gen-0": 26.0}
    said = sentence(silence.silent(31.0))
    assert said is not None
    assert said.startswith("learner, silent for 30 s:")
    assert "logs/learner.log" in said


def test_part_that_has_not_spoken_yet_has_time_to_start() -> None:
    silence = Silence(["gen-0"], 0.0)
    assert silence.silent(FIRST_WORD_S) == {}
    assert silence.silent(FIRST_WORD_S + 1.0) == {"gen-0": FIRST_WORD_S + 1.0}
