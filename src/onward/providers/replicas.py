"""One provider over several addresses that answer alike: the one with the fewest requests is asked."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from onward.core.failure import Failure, FailureKind
from onward.providers.failures import Unsent
from onward.providers.protocol import Answer, Provider, ProviderStatus, ReplicaStatus


class Health(Protocol):
    """What is remembered of failures, by the name of a replica (`routing.breaker.Breakers`)."""

    def rests(self, name: str) -> bool:
        """Whether it is passed over while another one can be asked."""
        ...

    def begin(self, name: str, progress: "ReplicaAnswer") -> Any:
        """It is asked. What comes back belongs to `succeeded`."""
        ...

    def succeeded(self, name: str, began_in: Any) -> None:
        """It has answered."""
        ...

    def failed(self, name: str, failure: Failure, progress: "ReplicaAnswer") -> None:
        """It has not."""
        ...

    def left(self, name: str, progress: "ReplicaAnswer") -> None:
        """It was given up."""
        ...

    def view(self, name: str) -> Any:
        """How it does, for operators."""
        ...


class Replica:
    """One of the addresses."""

    __slots__ = ("in_flight", "name", "provider")

    def __init__(self, name: str, provider: Provider) -> None:
        self.name = name
        self.provider = provider
        self.in_flight = 0
        """Requests of this process that it works on."""


class Replicas:
    """Implements `Provider`. A replica whose connection fails is replaced by the next one, as long as nothing
    was sent; whatever happens later is the answer of all.
    """

    def __init__(self, replicas: Sequence[Provider], health: Health) -> None:
        """`replicas`: at least one; they differ in nothing but their address."""
        first = replicas[0]
        self.name = first.name
        self.protocol = first.protocol
        self.surfaces = first.surfaces
        self._replicas = [Replica(str(number), one) for number, one in enumerate(replicas, 1)]
        self._health = health
        self._turn = 0

    async def send(self, path: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> Answer:
        """See `Provider.send`. Of all that could not be connected to the failure of the last is raised."""
        left = self._replicas.copy()
        while True:
            replica = self._pick(left)
            left.remove(replica)
            answer = ReplicaAnswer(replica, self._health, self._awake)
            try:
                await answer.open(path, body, headers)
            except Unsent as failure:
                # who has waited for a turn at the least loaded one would wait at the others too
                waited = failure.excused and failure.kind is FailureKind.UPSTREAM_TIMEOUT
                if waited or not left:
                    raise
            else:
                return answer

    def _pick(self, left: list[Replica]) -> Replica:
        """The least loaded that does not rest; of several they take turns. Where all rest, of all."""
        health = self._health
        awake = [one for one in left if not health.rests(one.name)] or left
        least = min(one.in_flight for one in awake)
        ties = [one for one in awake if one.in_flight == least]
        self._turn += 1
        return ties[self._turn % len(ties)]

    def _awake(self) -> bool:
        """Whether one of them does not rest."""
        return any(not self._health.rests(one.name) for one in self._replicas)

    def conceal(self, text: str) -> str:
        """See `Provider.conceal`."""
        return self._replicas[0].provider.conceal(text)

    def status(self) -> ProviderStatus:
        """See `Provider.status`: of all together, and of each."""
        each = [(one, one.provider.status()) for one in self._replicas]
        return ProviderStatus(
            open=sum(status.open for _, status in each),
            busy=sum(status.busy for _, status in each),
            waiting=sum(status.waiting for _, status in each),
            replicas=tuple(
                ReplicaStatus(
                    name=one.name,
                    in_flight=one.in_flight,
                    open=status.open,
                    busy=status.busy,
                    waiting=status.waiting,
                    health=self._health.view(one.name),
                )
                for one, status in each
            ),
        )

    async def close(self) -> None:
        """Close all connections; whoever waits for an answer is failed."""
        for one in self._replicas:
            await one.provider.close()


class ReplicaAnswer:
    """An answer of one replica: load until it is closed, and a sign of health then."""

    __slots__ = (
        "_answer",
        "_awake",
        "_began_in",
        "_blamed",
        "_health",
        "_open",
        "_replica",
        "hand_on",
        "headers",
        "read",
        "read_all",
        "status",
    )
    first: float | None = None
    """Nobody looks into its pieces: its end decides."""

    def __init__(self, replica: Replica, health: Health, awake: Callable[[], bool]) -> None:
        """`awake`: whether any of them can be asked."""
        self._replica = replica
        self._health = health
        self._awake = awake
        self._blamed: Failure | None = None
        self._open = False

    async def open(self, path: str, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Send the request and wait for the header of the answer. Raises as `Provider.send` does."""
        replica, health = self._replica, self._health
        self._began_in = health.begin(replica.name, self)
        replica.in_flight += 1
        try:
            answer = self._answer = await replica.provider.send(path, body, headers)
        except BaseException as error:
            replica.in_flight -= 1
            if isinstance(error, Failure):
                health.failed(replica.name, error, self)
            else:
                health.left(replica.name, self)
            raise
        self._open = True
        self.status = answer.status
        self.headers = answer.headers
        self.read = answer.read  # as they are: the pieces of a body take no way round
        self.hand_on = answer.hand_on
        self.read_all = answer.read_all

    @property
    def ended(self) -> bool:
        """See `Answer.ended`."""
        return self._answer.ended

    def blame(self, failure: Failure) -> None:
        """See `Answer.blame`."""
        self._blamed = failure

    def close(self) -> None:
        """See `Answer.close`."""
        if self._open:
            self._open = False
            self._replica.in_flight -= 1
            name = self._replica.name
            if self._blamed is not None:
                self._health.failed(name, self._blamed, self)
                self._blamed.one_address = self._awake()
            elif self._answer.ended:
                self._health.succeeded(name, self._began_in)
            else:
                self._health.left(name, self)
        self._answer.close()
