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
    "/": overview.show_overview,
    "/history": overview.history,
    "/failures": failures.show_failures,
    "/message": message.show,
    "/find": message.find,
    "/replay": replay.prepare_replay,
    "/replays": replay.show_replay,
    "/purge": purge.prepare_purge,
    "/queues": queues.show_queues,
    "/queue": queues.show_one,
    "/timers": timers.show_timers,
    "/groups": groups.show_groups,
    "/group": groups.show_group,
    "/seek": groups.prepare_seek,
    "/delete": groups.prepare_delete,
    "/keys": keys.show_keys,
    "/parked": keys.show_key,
    "/skip": keys.prepare_skip,
    "/workers": workers.show_workers,
    "/relays": relays.show_relays,
    "/health": health.show_health,
}

FORMS: Mapping[str, tuple[Action, Form]] = {
    "/replay/start": (Action.REPLAY, replay.start_replay),
    "/replay/cancel": (Action.REPLAY, replay.cancel_replay),
    "/message/edit": (Action.EDIT, edit.save_edit),
    "/purge/start": (Action.PURGE, purge.start_purge),
    "/queues/pause": (Action.PAUSE_QUEUE, queues.pause),
    "/queues/resume": (Action.PAUSE_QUEUE, queues.resume),
    "/timers/cancel": (Action.CANCEL_TIMER, timers.cancel_timer),
    "/groups/pause": (Action.PAUSE_GROUP, groups.pause),
    "/groups/resume": (Action.PAUSE_GROUP, groups.resume),
    "/groups/seek": (Action.SEEK_GROUP, groups.seek),
    "/groups/delete": (Action.DELETE_GROUP, groups.delete),
    "/keys/retry": (Action.RETRY_PARKED, keys.retry),
    "/keys/skip": (Action.SKIP_DEFERRED, keys.skip),
}
