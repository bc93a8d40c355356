"""Images of the sandbox: names, trees, and one code layer for all vendors."""

import subprocess
from pathlib import Path

import pytest

from hcs.sandbox.images import (
    CODE,
    PENDING,
    PLAIN,
    ImageMissingError,
    ImageStore,
    build_images,
    content_hash,
    image_path,
)

NVIDIA, ASCEND = "registry.example/runtime/nvidia-pytorch:2.6", "registry.example/runtime/ascend-pytorch:2.6"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    program = tmp_path_factory.mktemp("code") / "train.py"
    program.write_text("print('trained')\n")
    directory = tmp_path_factory.mktemp("images")
    return build_images(directory, runtimes={NVIDIA: "nvidia", ASCEND: "ascend"}, code=[program])


@pytest.mark.parametrize(
    ("name", "path"),
    [
        pytest.param("registry.example/a/b:2.6", "registry.example/a/b/2.6", id="tag"),
        pytest.param("registry.example/a", "registry.example/a/latest", id="no-tag"),
        pytest.param("localhost:5000/a", "localhost:5000/a/latest", id="port-is-no-tag"),
        pytest.param("a/b@sha256:00ff", "a/b/sha256-00ff", id="digest"),
    ],
)
def test_an_image_lies_under_its_name(name: str, path: str) -> None:
    assert image_path(name) == path


@pytest.mark.parametrize("name", ["", "../../etc:1", "a/../b:1", "/abs:1", "a//b:1", "a b:1", ".hidden:1", "a/.b:1"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(ImageMissingError):
        image_path(name)


def test_each_vendor_has_its_own_base_and_says_that_it_is_emulated(store: ImageStore) -> None:
    for name, vendor in ((NVIDIA, "nvidia"), (ASCEND, "ascend")):
        image = store.find(name)
        release = (image.tree / "etc" / "hcs-release").read_text()
        assert image.vendor == vendor
        assert f"vendor: {vendor}" in release
        assert release.startswith("emulated image")
    assert store.find(NVIDIA).env["NVIDIA_VISIBLE_DEVICES"] == "all", "as the vendor's own images say"
    assert "NVIDIA_VISIBLE_DEVICES" not in store.find(ASCEND).env


def test_the_code_layer_is_the_program_byte_for_byte(store: ImageStore, tmp_path: Path) -> None:
    program = store.find(CODE).tree / "train.py"
    again = tmp_path / "train.py"
    again.write_text("print('trained')\n")
    assert content_hash(program) == content_hash(again)
    assert {path.name for path in program.parent.iterdir()} == {"train.py", "image.json"}


def test_the_placeholder_is_no_image(store: ImageStore) -> None:
    with pytest.raises(ImageMissingError, match="the sandbox has no image") as refusal:
        store.find(PENDING)
    for name in (NVIDIA, ASCEND, PLAIN, CODE):
        assert name in str(refusal.value)


def test_python_in_an_image_is_the_images_own_environment(store: ImageStore) -> None:
    tree = store.find(PLAIN).tree
    script = "import sys, msgspec; print(sys.prefix)"
    shown = subprocess.run([str(tree / "bin" / "python3"), "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip().startswith(str(tree))


def test_building_again_replaces_the_image(tmp_path: Path) -> None:
    store = ImageStore(tmp_path)
    for text in ("one", "two"):
        (tmp_path / "p.py").write_text(text)
        store.add_code("x/code:1", [tmp_path / "p.py"])
    assert (store.find("x/code:1").tree / "p.py").read_text() == "two"
    assert store.names() == ["x/code:1"]
