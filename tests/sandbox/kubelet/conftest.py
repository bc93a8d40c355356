"""One set of images for all tests of the kubelet, and a fresh ground for each."""

from pathlib import Path

import pytest
from tests.sandbox.kubelet.scene import Ground

from hcs.sandbox.images import PLAIN, ImageStore


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    store = ImageStore(tmp_path_factory.mktemp("images"))
    store.add_runtime(PLAIN, "")
    program = tmp_path_factory.mktemp("code") / "hello.py"
    program.write_text("print('hello from the code layer')\n")
    store.add_code("registry.example/code/hello:1", [program])
    return store


@pytest.fixture
def ground(tmp_path: Path, images: ImageStore) -> Ground:
    return Ground(tmp_path, images)
