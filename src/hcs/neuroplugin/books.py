"""Which id of which resource is whose: pods', the neural service's, or nobody's. The plugin's memory, without I/O.

An id is a piece of one board: so many KSPS, one channel of one port, some cores. Pods take ids through the kubelet;
what tasks of the neural service take is withdrawn: as many free ids turn unhealthy, so that kube-scheduler counts
them no more, and healthy again afterwards. What pods hold is booked on the boards at once, so the service cannot give
it away. So both ways in share one capacity and neither can over-commit it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from hcs.deviceplugin.podresources import Holder, Holding
from hcs.deviceplugin.resource import MAX_UNITS, Grant, HostDevice, HostMount, Unit
from hcs.model.allocations import CoreGrant
from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.capacities import WORDS, Amounts, capacity_of
from hcs.neuro.grids import Rectangle
from hcs.neuro.scheduling import choose_rectangle
from hcs.neuro.service import NeuralService
from hcs.neuro.sites import Site
from hcs.neuroplugin.plans import Plan
from hcs.neuroplugin.settings import Settings

_LETTERS: Final = {"ksps": "k", "streams": "e", "activations": "n", "updates": "s", "cores": "c"}


SILENT_LOOKS: Final = 15
"""How often in a row an empty list is not believed; at one look in two seconds that is half a minute."""


class Piece(msgspec.Struct, frozen=True):
    """What one id is. ``port`` and ``channel`` are set for streams."""

    board: str
    port: str = ""
    channel: int = 0


class Taken(msgspec.Struct):
    """Ids given to a container in one call. ``key`` is a global number, never used again."""

    key: int
    ids: frozenset[str]
    board: str
    amount: int
    holder: Holder | None = None
    rectangle: Rectangle | None = None
    seen: bool = False
    missed: int = 0
    planned: tuple[str, str] | None = None
    """Whose it is, as far as that was known when it was handed out: UID and container."""


class Books:
    """The books of one node."""

    def __init__(self, service: NeuralService, settings: Settings) -> None:
        """Lay out the ids of all boards.

        Args:
            service: the boards.
            settings: domain and units.

        Raises:
            RefusedError: there would be more ids than a kubelet can take.
        """
        self.service, self.settings = service, settings
        self._pieces: dict[str, dict[str, Piece]] = {}
        self._taken: dict[str, dict[int, Taken]] = {}
        self._owner: dict[str, int] = {}
        """Id → key of who has it; ids of different resources never look alike."""
        self._instead: dict[tuple[str, str], CoreGrant] = {}
        """What is left for those whose rectangle an equal one was given by mistake."""
        boards = sorted(service.sites.values(), key=lambda site: site.board.id)
        for number, site in enumerate(boards):
            for word in settings.resources:
                name = self.name(word, site)
                self._pieces.setdefault(name, {}).update(self._layout(word, number, site, name))
                self._taken.setdefault(name, {})

        self._all = {name: frozenset(pieces) for name, pieces in self._pieces.items()}
        self._counts = {name: Counter(piece.board for piece in all_.values()) for name, all_ in self._pieces.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """All resources."""
        return tuple(self._pieces)

    def name(self, word: str, site: Site) -> str:
        """The resource of a word for a board; unlike modules have resources of their own."""
        module = f"-{site.board.model.module}" if site.board.model.module else ""
        return f"{self.settings.domain}/{word}{module}"

    def word(self, name: str) -> str:
        """The word of a resource."""
        rest = name.partition("/")[2]
        return next(word for word in WORDS if rest == word or rest.startswith(f"{word}-"))

    def board(self, name: str, ids: Iterable[str]) -> str:
        """The board of ids, of the first where they are on several; empty where nobody knows them."""
        piece = next((self._pieces[name][id] for id in ids if id in self._pieces[name]), None)
        return piece.board if piece is not None else ""

    def units(self, name: str, healthy: frozenset[str] | None = None) -> list[Unit]:
        """The list for the kubelet; ``healthy`` as :meth:`healthy` gives it."""
        healthy = self.healthy(name) if healthy is None else healthy
        units = []
        for id, piece in self._pieces[name].items():
            numa = self.service.sites[piece.board].board.numa
            units.append(Unit(id, id in healthy, () if numa is None else (numa,)))
        return units

    def prefer(
        self, name: str, available: Iterable[str], required: Iterable[str], size: int, plan: Plan | None = None
    ) -> tuple[str, ...]:
        """Ids of one board: of that of the required ones, of the planned one, or of the fullest that has enough."""
        pieces = self._pieces[name]
        chosen = [id for id in required if id in pieces]
        known = set(chosen)
        by_board: dict[str, list[str]] = {}
        for id in available:
            if id in pieces and id not in known:
                by_board.setdefault(pieces[id].board, []).append(id)
        planned = plan.grant.board if plan is not None and plan.grant is not None else None
        wanted = pieces[chosen[0]].board if chosen else planned
        need = size - len(chosen)
        order = sorted(by_board, key=lambda b: (b != wanted, len(by_board[b]) < need, len(by_board[b]), b))
        # Channels of different ports share the load; other ids are taken in order.
        for board in order:
            chosen.extend(sorted(by_board[board])[: size - len(chosen)])
        return tuple(chosen[:size])

    @property
    def served(self) -> frozenset[tuple[str, str]]:
        """UID and container of those whose cores are booked."""
        return frozenset(entry.planned for held in self._taken.values() for entry in held.values() if entry.planned)

    def allocate(
        self, name: str, ids: tuple[str, ...], plan: Plan | None = None, *, plans: Iterable[Plan] = ()
    ) -> Grant:
        """Book ids for a container.

        Args:
            name: the resource.
            ids: what the kubelet hands out.
            plan: for whom that probably is, with the rectangle that the router chose.
            plans: those of everybody here; what they are to get is left free where there is a choice.

        Raises:
            RefusedError: they are taken, on several boards, the board has lost capacity meanwhile, or the rectangle
                that the router chose is no longer free.
        """
        pieces, word = self._pieces[name], self.word(name)
        field = WORDS[word]
        boards = sorted({pieces[id].board for id in ids})
        if len(boards) != 1:
            raise RefusedError(
                Refusal(
                    "SplitOverBoards",
                    f"{len(ids)} of {name} would come from {' and '.join(boards)}; no task runs on two boards, "
                    "ask for less than the largest board has free",
                )
            )
        site = self.service.sites[boards[0]]
        owners = {self._owner[id] for id in ids if id in self._owner}
        for other in [self._taken[name][key] for key in sorted(owners)]:
            if other.ids == frozenset(ids):
                return self._grant(word, other)
            # The kubelet gives an id again only when its former holder is gone.
            self._return(name, other)
        amount = len(ids) * self.settings.units.of(field)
        key = self.service.next_id
        self.service.next_id += 1
        taken = Taken(key, frozenset(ids), boards[0], amount)
        if field == "cores":
            self._book_cores(site, taken, plan, plans)
        else:
            self._book(site, word, taken, [pieces[id] for id in ids])
        self._taken[name][key] = taken
        self._owner.update(dict.fromkeys(ids, key))
        return self._grant(word, taken)

    def identify(self, name: str, ids: Iterable[str], holder: Holder | None) -> Taken | None:
        """Note whose container ids are, as podresources says; say what was booked for them."""
        wanted = frozenset(ids)
        entry = self._taken[name].get(self._owner.get(next(iter(wanted), ""), 0))
        found = entry if entry is not None and entry.ids == wanted else None
        if found is not None and holder is not None:
            found.holder, found.seen = holder, True
        return found

    def of(self, holder: Holder) -> dict[str, Taken]:
        """Everything a container holds, by resource."""
        return {name: t for name, held in self._taken.items() for t in held.values() if t.holder == holder}

    def correct(self, taken: Taken, holder: Holder, plans: Iterable[Plan]) -> None:
        """Now it is known whose cores these are; whoever was mistaken for it gets its turn."""
        true = next((plan for plan in plans if plan.holder == holder), None)
        mistaken = taken.planned
        if true is None or true.key == mistaken:
            return
        taken.planned = true.key
        for held in self._taken.values():
            for other in held.values():
                if other is not taken and other.planned == true.key:
                    other.planned = mistaken
                    return
        if mistaken is not None and true.grant is not None:
            self._instead[mistaken] = true.grant  # of as many cores: only equals can be mistaken

    def unknown(self, holdings: Iterable[Holding]) -> bool:
        """Whether containers hold cores that an earlier run of ours gave them."""
        return any(
            ids <= self._pieces[name].keys() and not ids & self._owner.keys()
            for holding in holdings
            for name, ids in holding.ids.items()
            if ids and name in self._taken and WORDS[self.word(name)] == "cores"
        )

    def reconcile(self, holdings: Iterable[Holding], plans: Iterable[Plan] = ()) -> list[Taken]:
        """Compare with what the kubelet says containers hold: free what is gone, book what an earlier run gave.

        Ids just allocated are not shown before the container is admitted, so what was never seen is kept for three
        looks. A kubelet that has just started lists nothing at all, though its containers run; so an empty list is
        believed only when it lasts.

        Args:
            holdings: what the kubelet lists.
            plans: what the router chose for whom, where an earlier run gave cores.

        Returns:
            What came free.
        """
        holdings, plans = list(holdings), list(plans)
        freed = []
        for name, taken in self._taken.items():
            held = {holding.holder: holding.ids[name] for holding in holdings if holding.ids.get(name)}
            by_ids = {ids: holder for holder, ids in held.items()}
            every: frozenset[str] | None = None
            for entry in list(taken.values()):
                holder = by_ids.get(entry.ids)
                if holder is None and every is None:
                    every = frozenset().union(*held.values())
                if holder is not None or entry.ids <= (every or frozenset()):
                    entry.seen, entry.missed = True, 0
                    entry.holder = holder or entry.holder
                    continue
                entry.missed += 1
                patience = SILENT_LOOKS if not holdings else 1 if entry.seen else 3
                if entry.missed >= patience:
                    self._return(name, entry)
                    freed.append(entry)
            for holder, ids in held.items():
                if self._owner.keys().isdisjoint(ids) and ids <= self._pieces[name].keys():
                    mine = next((plan for plan in plans if plan.holder == holder and plan.resource == name), None)
                    try:
                        self.allocate(name, tuple(sorted(ids)), mine, plans=plans)
                    except RefusedError:
                        continue  # the board lost it meanwhile; the pod keeps running on what is left
                    self.identify(name, ids, holder)
        return freed

    # Inside.

    def _layout(self, word: str, number: int, site: Site, name: str) -> Mapping[str, Piece]:
        field, board = WORDS[word], site.board
        prefix = f"{_LETTERS[field]}{number}-"
        if field == "streams":
            return {
                f"{prefix}{port.name}-{channel}": Piece(board.id, port.name, channel)
                for port in board.model.ports
                for channel in site.ledger.free_channels(port)
            }
        healthy = msgspec.structs.replace(board, dead_cores=frozenset(), dead_routers=frozenset())
        count = getattr(capacity_of(healthy), field) // self.settings.units.of(field)
        if count > MAX_UNITS:
            unit = -(-getattr(capacity_of(healthy), field) // 5000)
            raise RefusedError(
                Refusal(
                    "ListTooLong",
                    f"{name}: board {board.id} would have {count} ids, and the most a kubelet should be given is "
                    f"{MAX_UNITS}; let one id stand for more, like --unit {word}={unit}",
                )
            )
        width = len(str(max(0, count - 1)))
        return {f"{prefix}{i:0{width}}": Piece(board.id) for i in range(count)}

    def healthy(self, name: str) -> frozenset[str]:
        """The ids that pods hold or may have: as many beside those held as are free on their board."""
        field = WORDS[self.word(name)]
        if field != "streams" and self._all_free(name, field):
            return self._all[name]
        taken = {id for entry in self._taken[name].values() for id in entry.ids}
        healthy = set(taken)
        if field == "streams":
            for id, piece in self._pieces[name].items():
                site = self.service.sites[piece.board]
                port = next(p for p in site.board.model.ports if p.name == piece.port)
                if id not in taken and piece.channel in site.ledger.free_channels(port):
                    healthy.add(id)
            return frozenset(healthy)
        left: dict[str, int] = {}
        for id, piece in self._pieces[name].items():
            if id in taken:
                continue
            if piece.board not in left:
                free = getattr(self.service.sites[piece.board].free(), field)
                left[piece.board] = max(0, free) // self.settings.units.of(field)
            if left[piece.board] > 0:
                left[piece.board] -= 1
                healthy.add(id)
        return frozenset(healthy)

    def _all_free(self, name: str, field: str) -> bool:
        """Whether each board still has what all ids stand for that nobody holds: the usual case, told by counting."""
        left = dict(self._counts[name])
        for entry in self._taken[name].values():
            left[entry.board] -= len(entry.ids)
        unit = self.settings.units.of(field)
        return all(getattr(self.service.sites[board].free(), field) >= count * unit for board, count in left.items())

    def _book(self, site: Site, word: str, taken: Taken, pieces: list[Piece]) -> None:
        field = WORDS[word]
        if field == "streams":
            site.ledger.claim(taken.key, [(piece.port, piece.channel) for piece in pieces])
            return
        free: int = getattr(site.free(), field)
        if taken.amount > free:
            raise RefusedError(
                Refusal(
                    "CapacityTaken",
                    f"asks for {taken.amount} of {word}, and board {site.board.id} has {max(0, free)} left; "
                    "the neural service took it meanwhile, try again",
                )
            )
        site.taken = site.taken + Amounts(**{field: taken.amount})

    def _book_cores(self, site: Site, taken: Taken, plan: Plan | None, plans: Iterable[Plan]) -> None:
        """The rectangle the router chose, if it chose one; otherwise one that leaves those of others free."""
        if plan is not None and (instead := self._instead.pop(plan.key, None)) is not None:
            plan = msgspec.structs.replace(plan, grant=instead)
        planned = plan.rectangle if plan is not None else None
        if plan is not None and planned is not None:
            grant, layout = plan.grant, site.cores.layout
            fits = layout.fits(planned) and not layout.rectangle(planned) & ~site.cores.free
            live = fits and site.cores.live_in(planned) >= taken.amount
            if grant is None or grant.board != site.board.id or not live:
                raise RefusedError(
                    Refusal(
                        "RectangleTaken",
                        f"the router chose {planned} of board {grant.board if grant else ''} for "
                        f"{plan.holder.namespace}/{plan.holder.pod}, and that is not free, or has lost cores, or the "
                        f"kubelet chose board {site.board.id}; delete the pod, so that it is placed anew",
                    )
                )
            site.cores.hold(taken.key, planned)
            taken.rectangle, taken.planned = planned, plan.key
            return
        avoid, served = 0, self.served
        for other in plans:
            rectangle, grant = other.rectangle, other.grant
            if rectangle is None or grant is None or grant.board != site.board.id or other.key in served:
                continue
            if site.cores.layout.fits(rectangle):
                avoid |= site.cores.layout.rectangle(rectangle)
        placed = choose_rectangle(site.cores, taken.amount, avoid=avoid)
        if placed is None:
            raise RefusedError(
                Refusal(
                    "Fragmented",
                    f"asks for {taken.amount} cores of board {site.board.id}, which has no rectangle for them; "
                    "ask for fewer, or wait",
                )
            )
        site.cores.hold(taken.key, placed.rectangle)
        taken.rectangle, taken.planned = placed.rectangle, plan.key if plan is not None else None

    def _return(self, name: str, taken: Taken) -> None:
        field = WORDS[self.word(name)]
        site = self.service.sites[taken.board]
        if field == "streams":
            site.ledger.release(taken.key)
        elif field == "cores":
            site.cores.release(taken.key)
        else:
            site.taken = site.taken - Amounts(**{field: taken.amount})
        del self._taken[name][taken.key]
        for id in taken.ids:
            self._owner.pop(id, None)

    def _grant(self, word: str, taken: Taken) -> Grant:
        """What the container is told. Queue and channels name the board's own, which its driver knows."""
        site = self.service.sites[taken.board]
        env = {"SNN_BOARD": taken.board}
        if word == "ksps":
            env["SNN_MAX_KSPS"] = env["SNN_KSPS_ALLOCATED"] = str(taken.amount)
            env["SNN_PULSE_INPUT_QUEUE_ID"] = f"{taken.board}-q{taken.key}"
        elif word == "event-routing-streams":
            channels = [f"{c.port}/{c.channel}" for c in site.ledger.corridors(taken.key)]
            env["SNN_ROUTER_CHANNEL"] = ",".join(channels)
            env["SNN_ROUTING_STREAMS_ALLOCATED"] = str(len(channels))
        elif word == "neuron-activation-rate":
            env["SNN_MAX_ACTIVATION_RATE"] = str(taken.amount)
        elif word == "synaptic-update-rate":
            env["SNN_MAX_UPDATE_RATE"] = str(taken.amount)
        elif taken.rectangle is not None:
            r = taken.rectangle
            env["SNN_CORES_ALLOCATED"] = str(taken.amount)
            env["SNN_CORE_RECTANGLE"] = f"{r.x},{r.y},{r.width},{r.height}"
        nodes = [node.replace("{board}", taken.board) for node in self.settings.device_nodes]
        return Grant(
            env=env,
            devices=tuple(HostDevice(node, node) for node in nodes),
            mounts=tuple(HostMount(host, inside) for host, inside in self.settings.mounts),
        )
