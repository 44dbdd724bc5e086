"""The crash guard: slots whose messages run one by one, because an owner of the slots has died.

Whoever takes slots over learns that their last owner did not give them back. What that one had in flight is not known,
so as many messages as it may have read run with a note of each; on the happy path nothing is noted. A message that
was noted when an owner died is a suspect. Kept by `leases`; `guarded` runs the messages.
"""


class CrashGuard:
    """The slots whose messages run with a note, and the suspects among those."""

    def __init__(self) -> None:
        self._left: dict[int, list[int]] = {}
        self.suspects: dict[int, int] = {}
        """Messages by position, and how often an owner has died with each."""

    def __contains__(self, slot: int) -> bool:
        return slot in self._left

    def need(self, lo: int, hi: int, messages: int) -> None:
        """Take care of the next so many messages of these slots."""
        left = [messages]
        self._left.update(dict.fromkeys(range(lo, hi + 1), left))

    def had(self, slot: int, position: int) -> None:
        """A message of this slot is dealt with, and everybody is alive."""
        self.suspects.pop(position, None)
        left = self._left.get(slot)
        if left is not None:
            left[0] -= 1
            if left[0] <= 0:
                self._left = {each: others for each, others in self._left.items() if others is not left}
