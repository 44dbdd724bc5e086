"""The screens, and the forms on them: a path, who answers it, and what a user must be allowed to do.

A screen is a coroutine that takes a page and gives a response. A form does something and says what; `dashboard` checks
the right before, and writes the audit after.
"""

from collections.abc import Awaitable, Callable, Mapping

from starlette.responses import Response

from faststream_outbox._internal.dashboard.actions import Action
from faststream_outbox._internal.dashboard.page import Done, Page
from faststream_outbox._internal.dashboard.screens import dead, message, overview, queues, topics

Screen = Callable[[Page], Awaitable[Response]]
Form = Callable[[Page], Awaitable[Done]]

SCREENS: Mapping[str, Screen] = {
    "/": overview.show_overview,
    "/history": overview.history,
    "/failures": dead.show_failures,
    "/message": message.show,
    "/find": message.find,
    "/replay": dead.prepare_replay,
    "/replays": dead.show_replay,
    "/purge": dead.prepare_purge,
    "/queues": queues.show_queues,
    "/queue": queues.show_one,
    "/timers": queues.show_timers,
    "/groups": topics.show_groups,
    "/group": topics.show_group,
    "/seek": topics.prepare_seek,
    "/delete": topics.prepare_delete,
    "/keys": topics.show_keys,
    "/parked": topics.show_key,
    "/skip": topics.prepare_skip,
    "/workers": queues.show_workers,
    "/relays": overview.show_relays,
    "/health": overview.show_health,
}

FORMS: Mapping[str, tuple[Action, Form]] = {
    "/replay/start": (Action.REPLAY, dead.start_replay),
    "/replay/cancel": (Action.REPLAY, dead.cancel_replay),
    "/message/edit": (Action.EDIT, message.save_edit),
    "/purge/start": (Action.PURGE, dead.start_purge),
    "/queues/pause": (Action.PAUSE_QUEUE, queues.pause),
    "/queues/resume": (Action.PAUSE_QUEUE, queues.resume),
    "/timers/cancel": (Action.CANCEL_TIMER, queues.cancel_timer),
    "/groups/pause": (Action.PAUSE_GROUP, topics.pause),
    "/groups/resume": (Action.PAUSE_GROUP, topics.resume),
    "/groups/seek": (Action.SEEK_GROUP, topics.seek),
    "/groups/delete": (Action.DELETE_GROUP, topics.delete),
    "/keys/retry": (Action.RETRY_PARKED, topics.retry),
    "/keys/skip": (Action.SKIP_DEFERRED, topics.skip),
}
