"""Custom resource definitions: what ComputeNode, ExchangeRate and RuntimeProfile lean on."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.clusters import Object, eventually
from tests.contract.harness import JSON_PATCH, STRATEGIC_PATCH, Api, done, refused

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CARDS = "/apis/contract.example/v1/cards"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
SCHEMA: Object = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "x-kubernetes-validations": [
                {"rule": "self.size != 13", "message": "thirteen is unlucky"},
                {"rule": "!has(oldSelf.serial) || oldSelf.serial == self.serial", "message": "serial is immutable"},
            ],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 100},
                "vendor": {"type": "string", "enum": ["nvidia", "ascend"], "default": "nvidia"},
                "serial": {"type": "string", "maxLength": 8, "pattern": "^[a-z0-9]+$"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "note": {"type": "string", "nullable": True},
                "links": {
                    "type": "array",
                    "maxItems": 2,
                    "items": {
                        "type": "object",
                        "required": ["peer"],
                        "properties": {"peer": {"type": "string"}, "up": {"type": "boolean", "default": True}},
                    },
                },
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "phase": {"type": "string"},
                "conditions": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
                    },
                },
            },
        },
    },
}
DEFINITION: Object = {
    "metadata": {"name": "cards.contract.example"},
    "spec": {
        "group": "contract.example",
        "scope": "Cluster",
        "names": {"plural": "cards", "kind": "Card", "shortNames": ["cd"], "categories": ["hcs"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": SCHEMA},
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
                    {
                        "name": "Ready",
                        "type": "string",
                        "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
                    },
                    {"name": "Links", "type": "string", "jsonPath": ".spec.links[*].peer", "priority": 1},
                ],
            }
        ],
    },
}


def define(api: Api, definition: Object, path: str) -> None:
    """Apply a definition and wait until it is served."""
    api.create(DEFINITIONS, definition)
    name = definition["metadata"]["name"]

    def established() -> bool:
        conditions = api.read(f"{DEFINITIONS}/{name}")["status"].get("conditions") or ()
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    eventually(established)
    eventually(lambda: api.get(path).status_code == 200)


@pytest.fixture
def cards(api: Api) -> Iterator[str]:
    """The path of a custom resource without objects."""
    if api.get(CARDS).status_code == 404:
        define(api, DEFINITION, CARDS)
    yield CARDS
    for item in api.read(CARDS)["items"]:
        api.delete(f"{CARDS}/{item['metadata']['name']}")


def card(name: str, status: Object | None = None, **spec: Any) -> Object:
    made: Object = {"apiVersion": "contract.example/v1", "kind": "Card", "metadata": {"name": name}, "spec": spec}
    return {**made, "status": status} if status else made


def test_defaults_are_filled_in_and_the_unknown_is_pruned(api: Api, cards: str) -> None:
    links = [{"peer": "b", "junk": 1}]
    made = api.create(cards, card("a", {"phase": "x"}, size=1, junk=2, free={"q": [1]}, links=links, note=None))
    assert made["spec"] == {
        "size": 1, "vendor": "nvidia", "free": {"q": [1]}, "links": [{"peer": "b", "up": True}], "note": None,
    }  # fmt: skip
    assert "status" not in made
    assert made["metadata"]["generation"] == 1


INVALID: dict[str, tuple[Object, str]] = {
    "enum": ({"size": 1, "vendor": "x"}, 'spec.vendor: Unsupported value: "x": supported values: "nvidia", "ascend"'),
    "minimum": ({"size": 0}, "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1"),
    "maximum": ({"size": 101}, "spec.size in body should be less than or equal to 100"),
    "type": ({"size": "x"}, 'spec.size: Invalid value: "string": spec.size in body must be of type integer: "string"'),
    "required": ({}, "spec.size: Required value"),
    "null": ({"size": None}, "spec.size: Required value"),
    "pattern": ({"size": 1, "serial": "A"}, "spec.serial in body should match '^[a-z0-9]+$'"),
    "maxLength": ({"size": 1, "serial": "a" * 9}, "spec.serial: Too long: may not be more than 8 bytes"),
    "maxItems": (
        {"size": 1, "links": [{"peer": p} for p in "abc"]},
        "spec.links: Too many: 3: must have at most 2 items",
    ),
    "inner": ({"size": 1, "links": [{}]}, "spec.links[0].peer: Required value"),
    "rule": ({"size": 13}, "spec: Invalid value: thirteen is unlucky"),
}


@pytest.mark.parametrize("case", list(INVALID))
def test_the_schema_is_enforced(api: Api, cards: str, case: str) -> None:
    spec, text = INVALID[case]
    body = refused(api.post(cards, card("a", **spec)), 422, "Invalid")
    assert text in body["message"]
    assert body["message"].startswith('Card.contract.example "a" is invalid: ')
    assert body["details"]["group"] == "contract.example"


def test_rules_wait_for_a_sound_structure(api: Api, cards: str) -> None:
    body = refused(api.post(cards, card("a", size=13, vendor="x")), 422, "Invalid")
    assert "unlucky" not in body["message"]
    assert "some validation rules were not checked because the object was invalid" in body["message"]


def test_a_transition_rule_compares_with_the_old(api: Api, cards: str) -> None:
    api.create(cards, card("a", size=1, serial="s1"))
    body = refused(api.patch(f"{cards}/a", {"spec": {"serial": "s2"}}), 422, "Invalid")
    assert "serial is immutable" in body["message"]


def test_status_is_written_apart(api: Api, cards: str) -> None:
    api.create(cards, card("a", size=1))
    done(api.patch(f"{cards}/a", {"status": {"phase": "no"}, "spec": {"size": 2}}))
    object = api.read(f"{cards}/a")
    assert "status" not in object
    assert (object["spec"]["size"], object["metadata"]["generation"]) == (2, 2)
    change = {"spec": {"size": 9}, "metadata": {"labels": {"x": "y"}}, "status": {"phase": "yes", "junk": 1}}
    after = done(api.patch(f"{cards}/a/status", change))
    assert after["status"] == {"phase": "yes"}
    assert (after["spec"]["size"], after["metadata"]["generation"]) == (2, 2)
    assert "labels" not in after["metadata"], "a custom resource takes nothing but its status"


def test_an_update_must_name_its_version(api: Api, cards: str) -> None:
    made = api.create(cards, card("a", size=1))
    body = refused(api.put(f"{cards}/a", card("a", size=2)), 422, "Invalid")
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in body["message"]
    changed = {**made, "spec": {"size": 3}}
    assert done(api.put(f"{cards}/a", changed))["spec"]["size"] == 3
    refused(api.put(f"{cards}/a", changed), 409, "Conflict")


def test_patch_types(api: Api, cards: str) -> None:
    api.create(cards, card("a", size=1))
    refused(api.patch(f"{cards}/a", {"spec": {}}, STRATEGIC_PATCH), 415, "UnsupportedMediaType")
    operation = {"op": "replace", "path": "/spec/size", "value": 44}
    assert done(api.patch(f"{cards}/a", [operation], JSON_PATCH))["spec"]["size"] == 44
    wish = card("b", size=5)
    assert api.patch(f"{cards}/b", wish, "application/apply-patch+yaml", fieldManager="m").status_code == 201


def test_strict_writers_are_told_what_is_unknown(api: Api, cards: str) -> None:
    body = refused(api.post(cards, card("a", size=1, junk=2), fieldValidation="Strict"), 400, "BadRequest")
    assert 'strict decoding error: unknown field "spec.junk"' in body["message"]
    assert api.post(cards, card("b", size=1, junk=2)).headers["warning"] == '299 - "unknown field \\"spec.junk\\""'


def test_columns(api: Api, cards: str) -> None:
    api.create(cards, card("a", size=7, links=[{"peer": "b"}]))
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    done(api.patch(f"{cards}/a/status", ready))
    table = api.read(cards, accept=TABLE)
    columns = [(c["name"], c["type"], c["priority"]) for c in table["columnDefinitions"]]
    assert columns[:4] == [
        ("Name", "string", 0),
        ("Size", "integer", 0),
        ("Ready", "string", 0),
        ("Links", "string", 1),
    ]
    assert table["rows"][0]["cells"][:3] == ["a", 7, "True"]


def test_discovery_names_the_kind(api: Api, cards: str) -> None:
    (entry,) = [r for r in api.read("/apis/contract.example/v1")["resources"] if r["name"] == "cards"]
    assert (entry["kind"], entry["namespaced"], entry["singularName"]) == ("Card", False, "card")
    assert (entry["shortNames"], entry["categories"]) == (["cd"], ["hcs"])
    assert "cards/status" in [r["name"] for r in api.read("/apis/contract.example/v1")["resources"]]
    groups = [group["name"] for group in api.read("/apis")["groups"]]
    assert "contract.example" in groups


def test_objects_go_with_their_definition(api: Api) -> None:
    names = {"plural": "racks", "kind": "Rack"}
    definition = {"metadata": {"name": "racks.contract.example"}, "spec": {**DEFINITION["spec"], "names": names}}
    racks = CARDS.replace("cards", "racks")
    define(api, definition, racks)
    made = api.create(racks, {**card("a", size=1), "kind": "Rack"})
    api.delete(f"{DEFINITIONS}/racks.contract.example")
    eventually(lambda: api.get(racks).status_code == 404)
    eventually(lambda: api.get(f"{DEFINITIONS}/racks.contract.example").status_code == 404)
    define(api, definition, racks)
    again = api.read(racks)
    assert again["items"] == []
    assert int(again["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    api.delete(f"{DEFINITIONS}/racks.contract.example")


def test_a_finalizer_holds_an_object(api: Api, cards: str) -> None:
    made = api.create(cards, {**card("a", size=1), "metadata": {"name": "a", "finalizers": ["contract.example/hold"]}})
    held = done(api.delete(f"{cards}/a"))
    assert held["metadata"]["deletionTimestamp"]
    assert held["metadata"]["generation"] == made["metadata"]["generation"] + 1
    done(api.patch(f"{cards}/a", {"metadata": {"finalizers": []}}))
    assert api.get(f"{cards}/a").status_code == 404


def test_a_deletion_answers_with_a_status(api: Api, cards: str) -> None:
    made = api.create(cards, card("a", size=1))
    assert api.delete(f"{cards}/a").json() == {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": "a", "group": "contract.example", "kind": "cards", "uid": made["metadata"]["uid"]},
    }  # fmt: skip
