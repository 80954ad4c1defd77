from lrptrain.audit.comparison import Row, Score
from lrptrain.audit.table import table

NAN = float("nan")


def row(method, epg, area=None, samples=9, **changes):
    scores = {"EPG": Score(epg, epg - 0.1, epg + 0.1, samples, 0.25)}
    if area is not None:
        scores["positive AUC"] = Score(area, area - 0.004, area + 0.1, 9)
    return Row(method, True, scores, cost=1.5, seconds=0.1, **changes)


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_most_faithful_comes_first_and_columns_are_aligned():
    lines = table([row("worse", 0.9, 0.5), row("better", 0.1, 0.001)]).splitlines()
    assert cells(lines[0]) == ["method", "class", "EPG ↑", "positive AUC ↓", "cost"]
    assert cells(lines[2]) == ["better", "yes", "0.100 [0.00, 0.20]", "0.001 [0.00, 0.10]", "1.50"]
    assert cells(lines[3])[0] == "worse"
    assert len({len(line) for line in lines[:4]}) == 1


def test_without_faithfulness_the_order_is_by_localisation():
    lines = table([row("worse", 0.1), row("better", 0.9), row("undefined", NAN, samples=0)]).splitlines()
    assert [cells(line)[0] for line in lines[2:5]] == ["better", "worse", "undefined"]
    assert cells(lines[4])[2] == "-"
    assert "0.250" in lines[-1]


def test_fewer_samples_and_missing_intervals_show():
    text = table([row("all", 0.5), Row("few", False, {"EPG": Score(0.4, NAN, NAN, 1, 0.2)}, 2.0, 0.1)])
    assert "| 0.400 n=1 " in text
    assert "| no " in text


def test_methods_without_scores_say_why():
    text = table([row("good", 0.5), Row("bad", True, problem="needs a | and\n  two lines")])
    assert text.endswith("Not possible here:\n\n- `bad`: needs a \\| and two lines")
    assert table([Row("bad", True, problem="no")]) == "Not possible here:\n\n- `bad`: no"
