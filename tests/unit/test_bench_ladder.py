"""The arithmetic of the jail's ladder: figures, ratios, the picture."""

from xml.etree import ElementTree

from benches.ladder import drawing, ratios, turns
from benches.ladder.row import Row, absent, figure
from benches.sandbox import listed, nested


def test_a_figure_is_median_p10_p99_and_count():
    # 0..100: the median is 50, one tenth of the way 10, ninety-nine hundredths 99.
    assert figure(list(range(100, -1, -1))) == {"median": 50, "p10": 10, "p99": 99, "n": 101}
    assert figure([]) is None


def test_a_rung_that_breaks_keeps_what_it_had_and_says_why():
    answers = iter([[1.0], [2.0]])  # the first turn warms up and is not counted
    row = Row("step_us.hot", "step", lambda: next(answers))
    turns.play([row], 3)
    assert row.samples == [2.0]
    assert row.missing == "failed: StopIteration: "


def test_rungs_stand_under_their_dotted_keys():
    rows = [
        Row("limit_us.R", "R", tuple, samples=[5.0]),
        Row("teardown_us", "end", tuple, samples=[9.0]),
        absent("first_reply_us.nsjail", "nsjail", "not installed"),
    ]
    result = nested(rows)
    assert result["limit_us"]["R"]["median"] == result["teardown_us"]["median"] - 4
    assert result["first_reply_us"] == {"nsjail": None}


def test_a_ratio_holds_up_to_its_bound_and_what_was_not_measured_is_not_judged():
    result = {
        "limit_us": {
            "F": {"median": 200.0},
            "F_hot": {"median": 100.0},
            "R": {"median": 5.0},
            "R_live_200": {"median": 16.0},
        },
        "step_us": {"live_200": {"median": 40.0}},
        "ready_us": {"stdlib": {"median": 320.0}},
        "first_reply_us": {"code": {"median": 801.0}},
        "memory_kib": {"used": 1000},
        "episodes_per_second_per_core": {"code": 499.0, "per_source": None},
    }
    lines = {line["figure"]: line for line in ratios.judged(result)}
    ready = lines["sealed worker ready, stdlib"]
    assert (ready["measured"], ready["over_hot_F"], ready["verdict"]) == (1.6, 3.2, "holds")
    assert lines["compiled code to first reply"]["verdict"] == "does not hold"  # 4.005 over 4
    assert lines["private dirty memory, used worker"]["verdict"] == "holds"
    assert lines["25-step episodes/s/core, code"]["verdict"] == "does not hold"
    one_episode = lines["25-step episodes/s/core, code"]["over_hot_F"]
    assert one_episode == round(1e6 / 499 / 100, 3)
    live = lines["step over 200 live"]
    assert (live["measured"], live["over_live_R"]) == (8.0, 2.5)
    assert lines["25-step episodes/s/core, per-source"]["verdict"] == "not measured"
    assert ratios.table(list(lines.values())).count("\n") == len(ratios.GOALS)


def test_the_picture_is_well_formed_and_leaves_out_what_has_no_figure():
    rows = [
        listed(Row("limit_us.R", "R & more", tuple, samples=[5.0, 6.0])),
        listed(Row("first_reply_us.nsjail", "nsjail", tuple, samples=[50_000.0])),
        listed(absent("first_reply_us.sandlock", "sandlock", "not installed")),
    ]
    text = drawing.svg(rows, "here <now>")
    bars = [one for one in ElementTree.fromstring(text).iter() if one.tag.endswith("rect")]
    assert [bar.get("class") for bar in bars] == ["limit", "other"]
    assert "sandlock" not in text
