"""The runtime profiles in force on this node: those of the package with the site's RuntimeProfile objects on top."""

import logging

from hcs.inject.builtin import builtin_profiles
from hcs.inject.profiles import Profile, ProfileError, Profiles, read_profile
from hcs.kube import resources
from hcs.kube.informer import ChangeKind, Informer

log = logging.getLogger(__name__)


class SiteProfiles:
    """Follows RuntimeProfile objects. One that cannot be used is left out, and the log says why."""

    def __init__(self, informer: Informer[resources.RuntimeProfile]) -> None:
        """Follow the informer's objects from now on."""
        self._site: dict[str, Profile] = {}
        self._profiles = builtin_profiles()
        informer.on_change(self._seen)

    def current(self) -> Profiles:
        """The profiles in force now."""
        return self._profiles

    def _seen(self, kind: ChangeKind, item: resources.RuntimeProfile, _: resources.RuntimeProfile | None) -> None:
        name = item.metadata.name
        self._site.pop(name, None)
        if kind != "DELETED":
            try:
                self._site[name] = read_profile(item.spec, name)
            except ProfileError as error:
                log.warning("profile not used: %s", error)
        self._profiles = builtin_profiles().overlaid(self._site[name] for name in sorted(self._site))
