"""The emulated board runs networks exactly and counts every event."""

from typing import Any

import pytest
from tests.neuro.boards import board, package

from hcs.neuro.drivers import DriverError, Limits, Load, Usage
from hcs.neuro.packages import read_package
from hcs.vendors.emulated_board import EmulatedBoard

CELLS = ((0, 0), (1, 0), (2, 0))


def loaded(ksps: int = 1000, **model: Any) -> EmulatedBoard:
    made = EmulatedBoard(board(step_us=1000))
    synapses = model.pop("synapses", [{"source": [0, 0], "target": [1, 0]}, {"source": [1, 0], "target": [2, 3]}])
    found = package(m=(3, {"synapses": synapses, "outputs": [2], **model})).model("m")
    made.configure(1, Limits(ksps, (("west", 1),)))
    made.load(1, Load(found, CELLS))
    return made


def test_a_spike_travels_one_synapse_a_step() -> None:
    assert loaded().run(1, [[(0, 0)], [], [], []]) == [[], [], [(2, 3)], []]


def test_weights_add_up_to_the_threshold() -> None:
    twice = [{"source": [0, n], "target": [2, 0], "weight": n} for n in (1, 2)]
    made = EmulatedBoard(board())
    cores = [{"neurons": 4}, {"neurons": 4}, {"neurons": 4, "threshold": 3}]
    model = {"name": "m", "cores": cores, "synapses": twice, "outputs": [2]}
    made.configure(1, Limits(1000, ()))
    made.load(1, Load(read_package({"name": "a", "version": "1", "models": [model]}).models[0], CELLS))
    assert made.run(1, [[(0, 2)], [(0, 1)], [], []]) == [[], [], [(2, 0)], []]
    never = loaded(synapses=[{"source": [0, 0], "target": [2, 0], "weight": 0}])
    assert never.run(1, [[(0, 0)]] * 5) == [[]] * 5


def test_every_event_is_counted() -> None:
    made = loaded(
        synapses=[{"source": [0, 0], "target": [1, 0], "plastic": True}, {"source": [1, 0], "target": [2, 3]}]
    )
    made.run(1, [[(0, 0), (0, 1)], [], []])
    assert made.usage() == {1: Usage(steps=3, spikes_in=2, spikes=4, dropped=0, activations=4, updates=1)}


def test_a_task_is_held_to_its_rate() -> None:
    made = loaded(ksps=1)  # one spike a step of 1 ms, four saved up
    made.run(1, [[(0, 0)] * 10, *[[(0, 0)] * 10] * 9])
    usage = made.usage()[1]
    assert usage.spikes_in + usage.dropped == 100
    assert usage.spikes_in == 4 + 9, "the burst, then one a step"


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda b: b.run(2, [[]]), "nothing is loaded for task 2"),
        (lambda b: b.run(1, [[(1, 0)]]), "no neuron of an input core"),
        (lambda b: b.load(2, Load(package().model("small"), CELLS)), "configure it first"),
        (
            lambda b: (b.configure(2, Limits(1, ())), b.load(2, Load(package().model("small"), CELLS))),
            "belongs to task 1",
        ),
        (lambda b: b.configure(2, Limits(-1, ())), "makes no sense"),
        (lambda b: (b.fail(cores=[(0, 0)]), b.run(1, [[]])), "does not answer"),
    ],
)
def test_what_it_cannot_do_it_says(act: Any, sentence: str) -> None:
    with pytest.raises(DriverError, match=sentence):
        act(loaded())


def test_it_says_that_it_is_emulated() -> None:
    assert loaded().query().emulated


def test_unloaded_cores_are_free() -> None:
    made = loaded()
    made.unload(1)
    made.unload(1)
    assert made.usage() == {}
    made.configure(2, Limits(5, ()))
    made.load(2, Load(package().model("small"), (*CELLS, (3, 0))))
