"""The published experiment on small lists: how they are read, tuned, exchanged and reported."""

import json
import random
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.openb.__main__ import main, seeds
from benchmarks.openb.constrain import main as constrain_main
from benchmarks.openb.exchange import Exchange
from benchmarks.openb.experiment import ask_for, fleet_of, run, tune
from benchmarks.openb.trace import CARD, Node, Task, TraceError, read_tasks

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"n{number},{32000 if number % 2 else 16000},262144,4,{'BIG' if number % 2 else 'SMALL'}\n" for number in range(6)
)
TASKS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos\n" + "".join(
    f"t{number:03},{3000 + number % 3 * 1000},4096,1,{(1000, 470, 300)[number % 3]},"
    f"{'BIG' if number % 4 == 0 else ''},LS\n"
    for number in range(40)
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    (tmp_path / "tasks.csv").write_text(TASKS)
    (tmp_path / "rates.csv").write_text("model,acu\nBIG,100\nSMALL,40\n")
    return tmp_path


@pytest.mark.parametrize("policy", ["hcs", "fgd", "bestfit", "random", "hcs-learned", "firstfit"])
def test_one_object_with_all_figures(policy: str, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--data", str(data), "--pods", "tasks.csv", "--policy", policy, "--seeds", "1-2", "--json"]
    assert main(command) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["policy"], answer["seeds"]) == (policy, [1, 2])
    assert list(answer["allocation_pct"]) == ["80", "90", "95", "100", "110", "120", "130"]
    assert 60 < answer["allocation_pct"]["130"] <= 100
    assert answer["allocation_pct"]["80"] <= answer["allocation_pct"]["130"]
    assert 0 <= answer["fragmentation_pct"]["50"] <= 100
    assert answer["decisions_per_s"] > 0
    assert main(command) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["allocation_pct"] == answer["allocation_pct"]  # the same seeds, the same figures


def test_lists_with_fewer_columns_ask_for_whole_cards_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("num_gpu,cpu_milli\n2,4000\n0,\n")
    assert read_tasks(tmp_path / "few.csv") == (
        Task("task-000000", 4000, 0, 2, CARD),
        Task("task-000001", 0, 0, 0, 0),
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("name,cpu_milli\na,1\n", "no column num_gpu", id="column"),
        pytest.param("num_gpu\nmany\n", "line 2: num_gpu is 'many'", id="number"),
        pytest.param("num_gpu,gpu_milli\n1,1200\n", "a share of a card is 1 to 1000", id="share"),
        pytest.param("num_gpu,gpu_milli\n2,500\n", "several cards are whole", id="several"),
        pytest.param("num_gpu\n1,2,3\n", "more fields", id="fields"),
        pytest.param("num_gpu\n", "no task", id="empty"),
        pytest.param("num_gpu\n-1\n", "0 or more", id="negative"),
    ],
)
def test_a_list_that_cannot_be_used_says_where_and_why(
    data: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    (data / "bad.csv").write_text(text)
    assert main(["--data", str(data), "--pods", "bad.csv", "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert words in captured.err


def test_a_missing_file_is_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(data), "--pods", "absent.csv"]) == 2
    assert "cannot read" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "a", "5-", "9-5", "1,,2"])
def test_seeds_that_nobody_could_have_meant(text: str, data: Path) -> None:
    with pytest.raises(SystemExit):
        main(["--data", str(data), "--pods", "tasks.csv", "--seeds", text])
    assert seeds("42-44,7") == (42, 43, 44, 7)


def test_demand_comes_to_130_percent_by_clones_or_by_removal() -> None:
    small = [Task(f"t{n}", 0, 0, 1, 500) for n in range(10)]
    arriving = tune(small, 10 * CARD, random.Random(1))
    assert sum(task.demand for task in arriving) == 13 * CARD
    assert Counter(task.name for task in arriving[:10]) == Counter(task.name for task in small)
    large = [Task(f"t{n}", 0, 0, 4, CARD) for n in range(10)]
    arriving = tune(large, 10 * CARD, random.Random(1))
    assert sum(task.demand for task in arriving) == 12 * CARD


def test_an_exchange_gives_no_less_than_was_asked() -> None:
    exchange = Exchange({"BIG": 100, "SMALL": 40})
    half, whole = Task("a", 0, 0, 1, 500, ("BIG",)), Task("b", 0, 0, 1, CARD, ("BIG",))
    little = Task("c", 0, 0, 1, 300, ("SMALL",))
    assert exchange.amounts(half, "SMALL") == (2, CARD)  # 50 of 40 a card: above one card, whole ones
    assert exchange.amounts(whole, "SMALL") == (3, CARD)
    assert exchange.amounts(little, "BIG") == (1, 120)
    assert exchange.amounts(half, "UNKNOWN") == (0, 0)
    for task, model in ((half, "SMALL"), (whole, "SMALL"), (little, "BIG")):
        cards, milli = exchange.amounts(task, model)
        assert exchange.delivered(task, model, cards * milli) >= 1


def test_substitution_places_what_its_own_model_has_no_room_for() -> None:
    nodes = [Node("a", 64000, 1, 4, "BIG"), Node("b", 64000, 1, 8, "SMALL")]
    tasks = [Task(f"t{n}", 1000, 0, 1, CARD, ("BIG",)) for n in range(12)]
    plain = run(nodes, tasks, "hcs", 1)
    exchanged = run(nodes, tasks, "hcs", 1, Exchange({"BIG": 100, "SMALL": 60}))
    assert plain.allocation[100] < 34
    assert exchanged.allocation[100] > plain.allocation[100] + 25
    assert exchanged.least_delivered >= 1
    assert exchanged.substituted == 4  # two small ones for each


def test_a_constraint_nobody_can_exchange_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "other.csv").write_text("model,acu\nX,10\n")
    command = ["--data", str(data), "--pods", "tasks.csv", "--substitute", str(data / "other.csv")]
    assert main(command) == 2
    assert "the tasks name BIG" in capsys.readouterr().err


def test_the_order_of_nodes_is_drawn_once_for_a_run() -> None:
    nodes = [Node(f"n{number}", 1, 1, 1, "M") for number in range(20)]
    one, same, other = (fleet_of(nodes, random.Random(seed)) for seed in (1, 1, 2))
    assert [node.name for node in one.nodes] == [node.name for node in same.nodes]
    assert [node.name for node in one.nodes] != [node.name for node in other.nodes]
    assert sorted(node.name.split("-", 1)[1] for node in one.nodes) == sorted(node.name for node in nodes)


def test_a_task_that_names_models_is_served_by_those_alone() -> None:
    fleet = fleet_of([Node("a", 1, 1, 1, "BIG"), Node("b", 1, 1, 1, "SMALL")], random.Random(1))
    wish = ask_for(fleet, Task("t", 0, 0, 1, 300, ("SMALL",)))
    assert {kind.model for kind, serves in zip(fleet.kinds, wish.serves, strict=True) if serves} == {"SMALL"}


def test_constraints_are_drawn_from_the_seed(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one.csv", "two.csv"):
        command = ["--data", str(data), "--pods", "tasks.csv", "--share", "0.5", "--out", str(data / name)]
        assert constrain_main([*command, "--rates", str(data / "made.csv")]) == 0
    assert (data / "one.csv").read_text() == (data / "two.csv").read_text()
    made = read_tasks(data / "one.csv")
    assert len(made) == 40
    assert 20 <= sum(bool(task.models) for task in made) < 40
    assert main(["--data", str(data), "--pods", "one.csv", "--seeds", "1", "--substitute", str(data / "made.csv")]) == 0
    assert "least_delivered: 1.0" in capsys.readouterr().out


def test_errors_are_of_one_kind(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot read"):
        read_tasks(tmp_path)
