"""The screens, and the forms on them: a path, who answers it, and what a user must be allowed to do.

A screen is a coroutine that takes a page and gives a response. A form does something and says what; `dashboard` checks
the right before, and writes the audit after.
"""

from collections.abc import Awaitable, Callable, Mapping

from starlette.responses import Response

from faststream_outbox._internal.dashboard.actions import Action
from faststream_outbox._internal.dashboard.page import Done, Page
from faststream_outbox._internal.dashboard.screens import (
    edit,
    failures,
    groups,
    health,
    keys,
    message,
    overview,
    purge,
    queues,
    relays,
    replay,
    timers,
    workers,
)

Screen = Callable[[Page], Awaitable[Response]]
Form = Callable[[Page], Awaitable[Done]]

SCREENS: Mapping[str, Screen] = {
    "/": overview.show,
    "/history": overview.history,
    "/failures": failures.show,
    "/message": message.show,
    "/find": message.find,
    "/replay": replay.prepare,
    "/replays": replay.show,
    "/purge": purge.prepare,
    "/queues": queues.show,
    "/queue": queues.show_one,
    "/timers": timers.show,
    "/groups": groups.show,
    "/group": groups.show_one,
    "/seek": groups.prepare_seek,
    "/delete": groups.prepare_delete,
    "/keys": keys.show,
    "/parked": keys.show_one,
    "/skip": keys.prepare_skip,
    "/workers": workers.show,
    "/relays": relays.show,
    "/health": health.show,
}

FORMS: Mapping[str, tuple[Action, Form]] = {
    "/replay/start": (Action.REPLAY, replay.start),
    "/replay/cancel": (Action.REPLAY, replay.cancel),
    "/message/edit": (Action.EDIT, edit.save),
    "/purge/start": (Action.PURGE, purge.start),
    "/queues/pause": (Action.PAUSE_QUEUE, queues.pause),
    "/queues/resume": (Action.PAUSE_QUEUE, queues.resume),
    "/timers/cancel": (Action.CANCEL_TIMER, timers.cancel),
    "/groups/pause": (Action.PAUSE_GROUP, groups.pause),
    "/groups/resume": (Action.PAUSE_GROUP, groups.resume),
    "/groups/seek": (Action.SEEK_GROUP, groups.seek),
    "/groups/delete": (Action.DELETE_GROUP, groups.delete),
    "/keys/retry": (Action.RETRY_PARKED, keys.retry),
    "/keys/skip": (Action.SKIP_DEFERRED, keys.skip),
}
