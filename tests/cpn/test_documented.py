"""What docs/cpn.md says of states, annotations and routes is what the code has."""

import re
from pathlib import Path

import yaml
from starlette.routing import Route
from tests.cpn.desk import NOW, Desk, opened

from hcs.cpn.server import make_app
from hcs.cpn.wire import PORT
from hcs.wide.lifecycle import MEANINGS, STATES, may_follow
from hcs.wide.submissions import ANNOTATIONS, read_submission

TEXT = (Path(__file__).parents[2] / "docs" / "cpn.md").read_text()


def rows(title: str) -> list[list[str]]:
    """The table whose first column has this title."""
    lines = iter(TEXT.splitlines())
    next(line for line in lines if line.startswith(f"| {title} |"))
    next(lines)
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_states_and_what_follows_them() -> None:
    assert rows("state") == [
        [f"`{state}`", MEANINGS[state], ", ".join(f"`{after}`" for after in STATES if may_follow(state, after)) or "-"]
        for state in STATES
    ]


def test_annotations() -> None:
    assert [row[0] for row in rows("annotation")] == [f"`{key}`" for key in ANNOTATIONS]


def test_routes(tmp_path: Path) -> None:
    with opened(tmp_path / "queue.db") as store:
        routes = [route for route in make_app(Desk(store)).routes if isinstance(route, Route)]
    served = {
        f"`{method} {re.sub(r':[a-z]+}', '}', route.path)}`"
        for route in routes
        for method in (route.methods or ())
        if method != "HEAD"
    }
    assert {row[0] for row in rows("request")} == served


def test_the_example_is_a_job_and_the_port_the_commands_own() -> None:
    (example,) = (text for text in re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL) if "kind: Job" in text)
    asked = read_submission(yaml.safe_load(example), NOW)
    assert asked.cautions == ()
    assert len(asked.submission.inputs) == 1
    assert f"http://127.0.0.1:{PORT}" in TEXT
