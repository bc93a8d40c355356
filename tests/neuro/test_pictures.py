"""Pictures show who sits where, and fit."""

import xml.etree.ElementTree as Xml

import pytest

from hcs.neuro.grids import Rectangle
from hcs.neuro.pictures import BoardPicture, Patch, draw_svg, draw_text

PICTURE = BoardPicture(
    title="lab <1>",
    width=8,
    height=4,
    patches=(Patch(Rectangle(0, 0, 3, 2), "a"), Patch(Rectangle(3, 0, 2, 2), "b"), Patch(Rectangle(6, 2, 2, 2), "a")),
    dead_cores=((5, 3),),
    dead_routers=((5, 0),),
    relays=((3, 3),),
    ports=(("west", (0, 3)),),
)


def lines(picture: BoardPicture, columns: int = 80) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in draw_text(picture, columns)]


def test_every_core_is_one_character() -> None:
    assert lines(PICTURE) == [
        "lab <1>",
        "    0         5",
        "  0 A A A B B # . .",
        "  1 A A A B B . . .",
        "  2 . . . . . . A A",
        "  3 > . . + . x A A",
        "A a (10)   B b (4)   . free   x dead core   # dead router   + relay point",
        "> edge port",
    ]


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("side", [1, 24, 64, 192, 1000])
def test_no_line_is_wider_than_the_terminal(side: int, columns: int) -> None:
    wide = BoardPicture("x", side, min(side, 30), tuple(Patch(Rectangle(i, 0, 1, 1), f"tenant-{i}") for i in range(1)))
    assert max(map(len, lines(wide, columns))) <= max(columns, 60)
    grid = [line for line in lines(wide, columns) if line[:3].strip().isdigit()]
    assert max(map(len, grid)) <= columns


def test_the_drawing_is_well_formed_and_shows_everybody() -> None:
    root = Xml.fromstring(draw_svg(PICTURE))
    texts = [element.text for element in root.iter() if element.text and element.text.strip()]
    assert "lab <1>" in texts
    assert {"A a", "B b", "dead core", "dead router", "relay point", "edge port"} <= set(texts)
    titles = [text for text in texts if "at (" in text]
    assert len(titles) == 3


def test_more_tenants_than_letters_still_have_one() -> None:
    many = BoardPicture("x", 70, 1, tuple(Patch(Rectangle(i, 0, 1, 1), f"t{i}") for i in range(70)))
    assert "." not in lines(many, 200)[2]
    Xml.fromstring(draw_svg(many))
