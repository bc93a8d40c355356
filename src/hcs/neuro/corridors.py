"""The ledger of ways between host and rectangles: this ledger *is* the event routing capacity.

A *corridor* is one stream of events: an edge port, one of its virtual channels, a rate, and the route from the port to
a core with its relay points. Channels of one port are told apart by the routers, so a corridor may pass through other
tenants' rectangles and its packets still reach nobody else. Control channels are set aside on the first channels of
the ports, in turn.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.boards import BoardModel, EdgePort
from hcs.neuro.grids import Cell
from hcs.neuro.routes import Route, find_route


class Corridor(msgspec.Struct, frozen=True):
    """One reserved stream. ``channel`` counts from 0 within the port; ``ksps`` is its rate."""

    port: str
    channel: int
    ksps: int
    route: Route


class Ledger:
    """Who uses which channel, how much of each port's rate is promised, and how many paths each router relays."""

    def __init__(self, model: BoardModel) -> None:
        """Begin with nothing reserved.

        Args:
            model: the board.
        """
        self.model = model
        self._control = Counter(model.ports[n % len(model.ports)].name for n in range(model.control_channels))
        self._taken: dict[tuple[str, int], int] = {}
        self._relays: Counter[Cell] = Counter()
        self._inner: dict[int, tuple[Cell, ...]] = {}
        self._held: dict[int, tuple[Corridor, ...]] = {}

    @property
    def open(self) -> int:
        """Streams that are open."""
        return len(self._taken)

    @property
    def free(self) -> int:
        """Streams that can still be opened."""
        return sum(len(self.free_channels(port)) for port in self.model.ports)

    @property
    def relays(self) -> dict[Cell, int]:
        """How many paths each relay point sends again; read only."""
        return {cell: count for cell, count in self._relays.items() if count}

    def corridors(self, holder: int) -> tuple[Corridor, ...]:
        """What a holder has reserved."""
        return self._held.get(holder, ())

    def rate_left(self, port: EdgePort) -> int:
        """KSPS of a port that nobody has reserved."""
        used = sum(rate for (name, _), rate in self._taken.items() if name == port.name)
        return port.ksps - used

    def relays_left(self, cell: Cell) -> int:
        """How many more paths a router can send again."""
        return self.model.relay_capacity - self._relays[cell]

    def copy(self) -> "Ledger":
        """An independent copy."""
        twin = Ledger(self.model)
        twin._taken, twin._held, twin._inner = dict(self._taken), dict(self._held), dict(self._inner)
        twin._relays = Counter(self._relays)
        return twin

    def reserve(self, holder: int, targets: Iterable[Cell], ksps: int, *, routers: int) -> tuple[Corridor, ...]:
        """Reserve one stream to each target core, all or none; the rate is split among them.

        Args:
            holder: whose they are.
            targets: the cores, one for each stream.
            ksps: the rate of all together, in thousand spikes per second.
            routers: the live routers.

        Raises:
            RefusedError: too few channels, too little rate, or no way.
        """
        cells = list(targets)
        if holder in self._held:
            raise RefusedError(Refusal("ReservedAlready", f"{holder} has its streams already; release them first"))
        if len(cells) > self.free:
            raise RefusedError(
                Refusal(
                    "StreamsExhausted",
                    f"asks for {len(cells)} event streams, and {self.free} of {self.model.streams} are free; "
                    "ask for fewer, or wait",
                )
            )
        shares = [ksps // len(cells) + (number < ksps % len(cells)) for number in range(len(cells))] if cells else []
        twin = self.copy()
        found = []
        for cell, share in sorted(zip(cells, shares, strict=True), key=lambda pair: -pair[1]):
            found.append(twin._open(cell, share, routers))
        self._taken, self._relays = twin._taken, twin._relays
        self._held[holder] = tuple(found)
        return self._held[holder]

    def reserve_inner(self, holder: int, routes: Iterable[Route]) -> None:
        """Reserve the relay points of routes within a rectangle, all or none.

        Raises:
            RefusedError: a relay point sends as many paths again as it can.
        """
        points = tuple(cell for route in routes for cell in route.relays)
        for cell, count in Counter(points).items():
            if count > self.relays_left(cell):
                raise RefusedError(
                    Refusal("RelaysExhausted", f"router ({cell[0]},{cell[1]}) cannot send {count} more paths again")
                )
        self._relays.update(points)
        self._inner[holder] = (*self._inner.get(holder, ()), *points)

    def claim(self, holder: int, channels: Iterable[tuple[str, int]]) -> tuple[Corridor, ...]:
        """Reserve channels by (port, channel), all or none, without a route yet: where they lead is decided later.

        Raises:
            RefusedError: a channel is not there, or taken.
        """
        wanted = list(channels)
        ports = {port.name: port for port in self.model.ports}
        for name, channel in wanted:
            if name not in ports or channel not in self.free_channels(ports[name]):
                raise RefusedError(
                    Refusal("ChannelTaken", f"channel {channel} of port {name} is taken; {self.free} streams are free")
                )
        self._taken.update(dict.fromkeys(wanted, 0))
        self._held[holder] = tuple(Corridor(name, channel, 0, Route((ports[name].cell,))) for name, channel in wanted)
        return self._held[holder]

    def release(self, holder: int) -> None:
        """Give back all that a holder has reserved; nothing where it has nothing."""
        for corridor in self._held.pop(holder, ()):
            del self._taken[corridor.port, corridor.channel]
            self._relays.subtract(corridor.route.relays)
        self._relays.subtract(self._inner.pop(holder, ()))

    def _open(self, cell: Cell, ksps: int, routers: int) -> Corridor:
        refusals: list[Refusal] = []
        ports = [port for port in self.model.ports if self.free_channels(port)]
        enough = [port for port in ports if self.rate_left(port) >= ksps]
        if not enough:
            most = max((self.rate_left(port) for port in ports), default=0)
            raise RefusedError(
                Refusal(
                    "PortRateExhausted",
                    f"a stream of {ksps} KSPS, and no port has more than {most} KSPS left; "
                    "ask for a lower rate, or for more streams to share it",
                )
            )
        near = sorted(enough, key=lambda p: (abs(p.cell[0] - cell[0]) + abs(p.cell[1] - cell[1]), p.name))
        for port in near:
            try:
                route = find_route(
                    self.model.layout,
                    port.cell,
                    cell,
                    allowed=routers,
                    hop_limit=self.model.hop_limit,
                    relays_left=self.relays_left,
                )
            except RefusedError as error:
                refusals.extend(error.refusals)
                continue
            channel = self.free_channels(port)[0]
            self._taken[port.name, channel] = ksps
            self._relays.update(route.relays)
            return Corridor(port.name, channel, ksps, route)
        raise RefusedError(refusals[0])

    def free_channels(self, port: EdgePort) -> list[int]:
        """The channels of a port that nobody has reserved, without those for control."""
        first = self._control[port.name]
        return [c for c in range(first, self.model.virtual_channels) if (port.name, c) not in self._taken]
