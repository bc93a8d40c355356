"""The profiles that come with the package, read once: the only place of this layer that opens a file."""

from functools import cache
from importlib.resources import files

import yaml

from hcs.inject.profiles import Profiles, read_profile
from hcs.model import names


@cache
def builtin_profiles() -> Profiles:
    """One profile for each vendor word."""
    folder = files("hcs.inject") / "data"
    return Profiles(
        tuple(
            read_profile(
                yaml.safe_load((folder / f"{vendor}.yaml").read_text(encoding="utf-8")), f"{vendor} (built in)"
            )
            for vendor in names.VENDOR_WORDS
        )
    )
