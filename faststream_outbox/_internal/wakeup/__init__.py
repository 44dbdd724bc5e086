"""Wake-ups: telling workers that there may be something to claim.

A wake-up is only a hint: a lost one costs a polling interval, never a message. The default never
slows the application's commits: hints leave after the commit, coalesced, on a connection of their
own. Where no commit can be seen, workers watch the id sequence instead. Used by `publish` (sending)
and by the engines (hearing).
"""

from typing import Literal

NotifyMode = Literal["after_commit", "in_transaction", "off"]
NOTIFY_MODES: tuple[NotifyMode, ...] = ("after_commit", "in_transaction", "off")
