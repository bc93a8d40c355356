"""A board as people see it: who sits where, what is broken, where packets are sent again. As text and as SVG.

Every tenant has a letter and a colour; the letter repeats what the colour says. In text one character is one core (two
columns wide where there is room); boards wider than the terminal are drawn in blocks, and the picture says so.
"""

import string
from collections.abc import Sequence
from html import escape
from typing import Final

import msgspec

from hcs.neuro.grids import Cell, Rectangle

_LETTERS: Final = string.ascii_uppercase + string.ascii_lowercase + string.digits
COLOURS: Final = (
    "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#edc948", "#76b7b2", "#ff9da7", "#9c755f", "#af7aa1", "#86bcb6",
)  # fmt: skip
STYLES: Final = ("blue", "yellow", "green", "magenta", "cyan", "bright_blue", "bright_green", "bright_magenta")
FREE, DEAD, BROKEN, CONTROLLER, RELAY, PORT = ".", "x", "#", "o", "+", ">"


class Patch(msgspec.Struct, frozen=True):
    """A rectangle that somebody holds, and what to call it."""

    rectangle: Rectangle
    tenant: str
    label: str = ""


class BoardPicture(msgspec.Struct, frozen=True):
    """Everything there is to draw."""

    title: str
    width: int
    height: int
    patches: tuple[Patch, ...] = ()
    dead_cores: tuple[Cell, ...] = ()
    dead_routers: tuple[Cell, ...] = ()
    controllers: tuple[Cell, ...] = ()
    relays: tuple[Cell, ...] = ()
    ports: tuple[tuple[str, Cell], ...] = ()
    moves: tuple[tuple[Rectangle, Rectangle], ...] = ()

    @property
    def tenants(self) -> tuple[str, ...]:
        """Everybody in it, in order of the letters."""
        return tuple(dict.fromkeys(patch.tenant for patch in self.patches))


def letter(number: int) -> str:
    """The letter of the n-th tenant; after the last it begins again."""
    return _LETTERS[number % len(_LETTERS)]


def draw_text(picture: BoardPicture, columns: int) -> list[list[tuple[str, str]]]:
    """Draw with characters.

    Args:
        picture: what to draw.
        columns: the terminal's width.

    Returns:
        Lines, each a list of (text, style); a style is a colour's name or empty.
    """
    step = 1
    while -(-picture.width // step) + 4 > columns:
        step += 1
    wide = 2 if step == 1 and picture.width * 2 + 4 <= columns else 1
    grid = _characters(picture)
    lines: list[list[tuple[str, str]]] = [[(picture.title, "bold")]]
    if step > 1:
        lines.append([(f"one character is {step}x{step} cores; what fills most of it is shown", "dim")])
    across = -(-picture.width // step)
    lines.append(
        [
            (
                "   " + " " * (wide - 1) + "".join(str(i * step).ljust(5 * wide) for i in range(0, across, 5)).rstrip(),
                "dim",
            )
        ]
    )
    for top in range(0, picture.height, step):
        line: list[tuple[str, str]] = [(f"{top:>3}"[-3:], "dim")]
        line.extend(
            ((" " if wide == 2 else "") + mark, style)
            for mark, style in (_most(grid, left, top, step) for left in range(0, picture.width, step))
        )
        lines.append(line)
    return [*lines, *_legend(picture, columns)]


def draw_svg(picture: BoardPicture) -> str:
    """Draw as an SVG document: rectangles in the tenants' colours, faults, relay points, ports, and planned moves."""
    cell, left, top = _cell_size(picture), 34, 44
    width = picture.width * cell
    order = {tenant: number for number, tenant in enumerate(picture.tenants)}
    legend = _svg_legend(picture)
    total_width = max(left + width + 20, 360)
    per_row = max(1, (total_width - left) // 150)
    height = top + picture.height * cell + 34 + 22 * (-(-len(legend) // per_row)) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total_width} {height}" width="{total_width}" '
        f'height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{total_width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{left}" y="20" font-size="14" font-weight="bold">{escape(picture.title)}</text>',
        f'<defs><pattern id="grid" x="{left}" y="{top}" width="{cell}" height="{cell}" patternUnits="userSpaceOnUse">'
        f'<path d="M {cell} 0 L 0 0 0 {cell}" fill="none" stroke="#d8d8d8" stroke-width="1"/></pattern></defs>',
        f'<rect x="{left}" y="{top}" width="{width}" height="{picture.height * cell}" fill="#fafafa"/>',
        f'<rect x="{left}" y="{top}" width="{width}" height="{picture.height * cell}" fill="url(#grid)" '
        'stroke="#888888"/>',
    ]
    every = max(1, -(-26 // cell))
    parts.extend(
        f'<text x="{left + x * cell + cell / 2:g}" y="{top - 6}" text-anchor="middle" fill="#777">{x}</text>'
        for x in range(0, picture.width, every)
    )
    parts.extend(
        f'<text x="{left - 6}" y="{top + y * cell + cell / 2 + 4:g}" text-anchor="end" fill="#777">{y}</text>'
        for y in range(0, picture.height, max(1, -(-14 // cell)))
    )
    for patch in picture.patches:
        number = order[patch.tenant]
        r = patch.rectangle
        x, y = left + r.x * cell, top + r.y * cell
        name = f"{patch.tenant} {patch.label}".strip()
        parts.append(
            f'<g><title>{escape(name)}: {r}</title><rect x="{x + 1}" y="{y + 1}" width="{r.width * cell - 2}" '
            f'height="{r.height * cell - 2}" rx="3" fill="{COLOURS[number % len(COLOURS)]}" fill-opacity="0.75" '
            f'stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2"/>'
            f'<text x="{x + r.width * cell / 2:g}" y="{y + r.height * cell / 2 + 4:g}" text-anchor="middle" '
            f'fill="#111" font-weight="bold">{escape(_fitting(name, letter(number), r.width * cell))}</text></g>'
        )

    def mark(x: int, y: int, inner: str) -> None:
        parts.append(f'<g transform="translate({left + x * cell},{top + y * cell})">{inner}</g>')

    near, far, mid = cell * 0.25, cell * 0.75, f"{cell / 2:g}"
    strokes = f"M {near:g} {near:g} L {far:g} {far:g} M {far:g} {near:g} L {near:g} {far:g}"
    cross = f'<path d="{strokes}" stroke="#c00" stroke-width="2"/>'
    for x, y in picture.dead_cores:
        mark(x, y, cross)
    for x, y in picture.dead_routers:
        mark(x, y, f'<rect width="{cell}" height="{cell}" fill="#c00"/>')
    for x, y in picture.controllers:
        mark(
            x,
            y,
            f'<circle cx="{mid}" cy="{mid}" r="{cell * 0.3:g}" fill="none" stroke="#555" stroke-width="2"/>',
        )
    for x, y in picture.relays:
        mark(
            x,
            y,
            f'<path d="M {mid} {near:g} L {far:g} {mid} L {mid} {far:g} L {near:g} {mid} Z" fill="#111"/>',
        )
    for name, (x, y) in picture.ports:
        mark(
            x,
            y,
            f'<title>port {escape(name)}</title><rect x="1" y="1" width="{cell - 2}" height="{cell - 2}" fill="none" '
            'stroke="#111" stroke-width="2" stroke-dasharray="3 2"/>',
        )
    for source, target in picture.moves:
        a = (left + (source.x + source.width / 2) * cell, top + (source.y + source.height / 2) * cell)
        b = (left + (target.x + target.width / 2) * cell, top + (target.y + target.height / 2) * cell)
        parts.append(
            f'<line x1="{a[0]:g}" y1="{a[1]:g}" x2="{b[0]:g}" y2="{b[1]:g}" stroke="#111" stroke-width="2"/>'
            f'<circle cx="{b[0]:g}" cy="{b[1]:g}" r="4" fill="#111"/>'
        )
    base = top + picture.height * cell + 28
    for number, (swatch, text) in enumerate(legend):
        x, y = left + number % per_row * 150, base + number // per_row * 22
        parts.append(
            f'<g transform="translate({x},{y - 11})">{swatch}</g><text x="{x + 20}" y="{y}">{escape(text)}</text>'
        )
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _cell_size(picture: BoardPicture) -> int:
    return max(4, min(24, 960 // max(picture.width, picture.height)))


def _fitting(name: str, short: str, width: int) -> str:
    return name if len(name) * 7 <= width - 4 else short


def _svg_legend(picture: BoardPicture) -> list[tuple[str, str]]:
    square = '<rect width="13" height="13" rx="2" fill="{}"/>'
    found = [
        (square.format(COLOURS[number % len(COLOURS)]), f"{letter(number)} {tenant}"[:18])
        for number, tenant in enumerate(picture.tenants)
    ]
    if picture.dead_cores:
        found.append(('<path d="M 2 2 L 11 11 M 11 2 L 2 11" stroke="#c00" stroke-width="2"/>', "dead core"))
    if picture.dead_routers:
        found.append((square.format("#c00"), "dead router"))
    if picture.controllers:
        found.append(('<circle cx="6" cy="6" r="5" fill="none" stroke="#555" stroke-width="2"/>', "controller"))
    if picture.relays:
        found.append(('<path d="M 6 1 L 11 6 L 6 11 L 1 6 Z" fill="#111"/>', "relay point"))
    if picture.ports:
        found.append(('<rect width="12" height="12" fill="none" stroke="#111" stroke-dasharray="3 2"/>', "edge port"))
    if picture.moves:
        found.append(('<path d="M 0 6 L 13 6" stroke="#111" stroke-width="2"/>', "planned move"))
    return found


def _characters(picture: BoardPicture) -> list[list[tuple[str, str]]]:
    grid = [[(FREE, "dim")] * picture.width for _ in range(picture.height)]
    order = {tenant: number for number, tenant in enumerate(picture.tenants)}
    for patch in picture.patches:
        number = order[patch.tenant]
        for x, y in patch.rectangle.cells():
            grid[y][x] = (letter(number), STYLES[number % len(STYLES)])
    for cells, mark, style in (
        ([cell for _, cell in picture.ports], PORT, "bold"),
        (picture.relays, RELAY, "bold"),
        (picture.controllers, CONTROLLER, "dim"),
        (picture.dead_cores, DEAD, "red"),
        (picture.dead_routers, BROKEN, "red"),
    ):
        for x, y in cells:
            if mark != PORT or grid[y][x][0] == FREE:
                grid[y][x] = (mark, style)
    return grid


def _most(grid: Sequence[Sequence[tuple[str, str]]], left: int, top: int, step: int) -> tuple[str, str]:
    inside = [cell for row in grid[top : top + step] for cell in row[left : left + step]]
    return max(dict.fromkeys(inside), key=inside.count)


def _legend(picture: BoardPicture, columns: int) -> list[list[tuple[str, str]]]:
    cores: dict[str, int] = {}
    for patch in picture.patches:
        cores[patch.tenant] = cores.get(patch.tenant, 0) + patch.rectangle.area
    entries = [
        (f"{letter(number)} {tenant} ({cores[tenant]})", STYLES[number % len(STYLES)])
        for number, tenant in enumerate(picture.tenants)
    ]
    entries.append((f"{FREE} free", "dim"))
    for there, mark, text in (
        (picture.dead_cores, DEAD, "dead core"),
        (picture.dead_routers, BROKEN, "dead router"),
        (picture.controllers, CONTROLLER, "controller"),
        (picture.relays, RELAY, "relay point"),
        (picture.ports, PORT, "edge port"),
    ):
        if there:
            entries.append((f"{mark} {text}", ""))
    lines: list[list[tuple[str, str]]] = [[]]
    used = 0
    for text, style in entries:
        if used and used + len(text) + 3 > columns:
            lines.append([])
            used = 0
        lines[-1].append((("   " if used else "") + text, style))
        used += len(text) + (3 if used else 0)
    return lines
