"""A model file gives the same predictor back, and anything else is refused with a sentence."""

import hashlib

import msgspec
import numpy as np
import pytest
from tests.predict.worlds import world

from hcs.predict.modelfile import ModelFileError, decode, encode
from hcs.predict.runtime import RunTimePredictor, Training

ROWS, SECONDS = world()
SOME = np.arange(0, len(ROWS), 6)
TRAINING = Training(
    ROWS.take(SOME), SECONDS[SOME], np.full(len(SOME), np.nan), seed=5, kind="forest", limit=500, repeat=0.2
)


def test_what_is_loaded_predicts_the_same() -> None:
    plain = Training(ROWS.take(SOME), SECONDS[SOME])
    again = decode(encode(plain))
    np.testing.assert_array_equal(
        RunTimePredictor(plain).predict(ROWS).high, RunTimePredictor(again).predict(ROWS).high
    )


def test_everything_is_kept() -> None:
    again = decode(encode(TRAINING))
    assert (again.seed, again.kind, again.limit, again.repeat) == (5, "forest", 500, 0.2)
    assert encode(again) == encode(TRAINING)


def _resealed(**changes: object) -> bytes:
    """The file with changed content and a right checksum."""
    content = msgspec.json.decode(encode(TRAINING).split(b"\n")[1])
    body = msgspec.json.encode({**content, **changes})
    header = {"format": "hcs-predictor", "version": 1, "sha256": hashlib.sha256(body).hexdigest()}
    return msgspec.json.encode(header) + b"\n" + body + b"\n"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        pytest.param(b"", "no predictor's file", id="empty"),
        pytest.param(b"\x80\x04\x95pickle", "no predictor's file", id="a-pickle"),
        pytest.param(encode(TRAINING)[:-40], "checksum", id="cut"),
        pytest.param(encode(TRAINING).replace(b'"seed":5', b'"seed":6'), "checksum", id="changed"),
        pytest.param(encode(TRAINING).replace(b'"version":1', b'"version":9'), "version 9", id="newer"),
        pytest.param(_resealed(seconds=[1.0]), "different lengths", id="lengths"),
        pytest.param(_resealed(kind="oracle"), "oracle", id="trees"),
        pytest.param(_resealed(repeat=0.0), "repeated runs", id="repeat"),
        pytest.param(_resealed(batch="x"), "cannot be read", id="types"),
        pytest.param(_resealed(cards=[0.0] * len(SOME)), "less than one card", id="no-card"),
    ],
)
def test_anything_else_is_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(ModelFileError, match=sentence):
        decode(data)
