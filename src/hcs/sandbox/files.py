"""Where the shipped YAML and the examples are: inside the wheel, or beside ``src`` in a checkout."""

from pathlib import Path

import hcs


class MissingFilesError(FileNotFoundError):
    """The installation lacks files it should carry; the message says which."""


def config_directory() -> Path:
    """CRDs, policies, webhook and profiles, as plain YAML.

    Raises:
        MissingFilesError: the installation is incomplete.
    """
    return _shipped("config")


def examples_directory() -> Path:
    """The numbered examples.

    Raises:
        MissingFilesError: the installation is incomplete.
    """
    return _shipped("examples")


def _shipped(name: str) -> Path:
    package = Path(hcs.__file__).parent
    for candidate in (package / name, package.parent.parent / name):
        if candidate.is_dir():
            return candidate
    raise MissingFilesError(f"the installation has no folder {name!r}; install hetero-compute-router again")
