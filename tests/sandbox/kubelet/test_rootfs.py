"""The private tree: what a container sees, and what must never be written to."""

from pathlib import Path

import pytest

from hcs.sandbox.kubelet.environment import ConfigurationError
from hcs.sandbox.kubelet.rootfs import Tree, by_depth, normal


@pytest.fixture
def image(tmp_path: Path) -> Path:
    image = tmp_path / "image"
    (image / "usr" / "lib").mkdir(parents=True)
    (image / "usr" / "lib" / "libc.so").write_text("c")
    (image / "etc").mkdir()
    (image / "etc" / "hcs-release").write_text("emulated")
    (image / "lib").symlink_to("usr/lib")
    (image / "image.json").write_text("{}")
    return image


@pytest.fixture
def tree(tmp_path: Path, image: Path) -> Tree:
    return Tree.build(tmp_path / "root", image)


def snapshot(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_the_image_is_seen_and_scratch_directories_are_private(tree: Tree, image: Path) -> None:
    assert tree.host_path("/etc/hcs-release").read_text() == "emulated"
    assert tree.exists("/lib/libc.so")
    assert tree.exists("/dev/null")
    assert not tree.exists("/image.json")
    (tree.root / "tmp" / "mine").write_text("x")
    assert not (image / "tmp").exists()


def test_a_mount_below_a_linked_directory_leaves_the_image_alone(tree: Tree, image: Path, tmp_path: Path) -> None:
    before = snapshot(image)
    library = tmp_path / "libcuda.so.1"
    library.write_text("driver")
    tree.place("/usr/lib/vendor/libcuda.so.1", library)
    assert tree.host_path("/usr/lib/vendor/libcuda.so.1").read_text() == "driver"
    assert tree.host_path("/lib/vendor/libcuda.so.1").read_text() == "driver", "the image's own link still leads there"
    assert tree.host_path("/usr/lib/libc.so").read_text() == "c", "what was there before is still seen"
    assert snapshot(image) == before


def test_a_mount_through_a_link_of_the_image_lands_where_the_link_leads(tree: Tree, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    tree.place("/lib/f", tmp_path / "f")
    assert tree.host_path("/usr/lib/f").read_text() == "x"


def test_a_mount_replaces_a_file_of_the_image(tree: Tree, image: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    tree.place("/etc/hcs-release", tmp_path / "mine")
    assert tree.host_path("/etc/hcs-release").read_text() == "mine"
    assert (image / "etc" / "hcs-release").read_text() == "emulated"


def test_a_mirrored_volume_takes_new_files_for_itself(tree: Tree, tmp_path: Path) -> None:
    code = tmp_path / "code"
    (code / "pkg").mkdir(parents=True)
    (code / "pkg" / "main.py").write_text("print()")
    tree.place("/workspace/code", code, mirrored=True)
    (tree.host_path("/workspace/code/pkg") / "main.pyc").write_text("cache")
    assert tree.host_path("/workspace/code/pkg/main.py").read_text() == "print()"
    assert snapshot(code) == {"pkg/main.py": "print()"}


def test_a_writable_volume_is_shared_and_nothing_is_mounted_inside_it(tree: Tree, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    tree.place("/data", data, writable=True)
    (tree.host_path("/data") / "out").write_text("x")
    assert (data / "out").exists()
    with pytest.raises(ConfigurationError, match="inside another that is writable"):
        tree.place("/data/inner", tmp_path)


@pytest.mark.parametrize("path", ["/../../etc/passwd", "//..//x", "a/../../b"])
def test_no_path_leads_out_of_the_tree(tree: Tree, path: str) -> None:
    assert str(tree.host_path(path)).startswith(f"{tree.root}/")
    assert ".." not in normal(path)


def test_a_source_that_is_missing_is_named(tree: Tree, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="gone"):
        tree.place("/x", tmp_path / "gone")


def test_the_root_cannot_be_replaced(tree: Tree, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError):
        tree.place("/", tmp_path)


def test_outer_mounts_come_first() -> None:
    assert by_depth(["/a/b/c", "/z", "/a/b"]) == ["/z", "/a/b", "/a/b/c"]
