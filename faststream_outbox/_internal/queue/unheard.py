"""Tokens of claims whose answer was lost.

Nobody handles what such a claim leased, so this process may claim it again at once instead of
waiting for the lease to end. The claim may still be under way on the server and be committed later:
a token is remembered until its leases have run out in any case. A token whose answer arrived is
never in here, so nothing that this process holds is taken from it. Used by `asking`.
"""

from uuid import UUID

MOST_TOKENS = 100


class Unheard:
    """Tokens, each until a time on the event loop's clock."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until: dict[UUID, float] = {}

    def add(self, token: UUID, until: float) -> None:
        """The answer to this token's claim was lost."""
        self._until[token] = until
        while len(self._until) > MOST_TOKENS:
            del self._until[next(iter(self._until))]

    def tokens(self, now: float) -> list[UUID]:
        """Those whose leases may still stand."""
        if self._until:
            self._until = {token: until for token, until in self._until.items() if until > now}
        return list(self._until)
