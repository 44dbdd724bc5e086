"""A selection of dead letters, as an address says it: shared by failures, replay and purge. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from faststream_outbox._internal.dashboard.guard import Refused
from faststream_outbox._internal.queue.admin.dead_letters import Selection

FIELDS = ("queue", "error_type", "reason", "key", "since", "until", "ids")
MOST_IDS = 1000


@dataclass(frozen=True, slots=True)
class Chosen:
    """A selection, and the fields that it was made from."""

    selection: Selection
    fields: Mapping[str, str]
    """For addresses and hidden fields; empty where everything is meant."""

    @property
    def is_narrow(self) -> bool:
        """Whether anything was said."""
        return bool(self.fields)


def chosen(given: Mapping[str, str], ids: tuple[str, ...] = ()) -> Chosen:
    """The selection that fields of an address or a form say; raises `Refused`."""
    fields = {name: given[name].strip() for name in FIELDS if given.get(name, "").strip()}
    if ids:
        fields["ids"] = ",".join(ids)
    narrowed = Selection(
        ids=_ids(fields.get("ids")),
        queue=fields.get("queue"),
        key=fields.get("key"),
        reason=fields.get("reason"),
        error_type=fields.get("error_type"),
        since=_moment(fields.get("since")),
        until=_moment(fields.get("until")),
        everything=not fields,
    )
    return Chosen(narrowed, fields)


def _ids(text: str | None) -> list[int] | None:
    if text is None:
        return None
    parts = text.split(",")
    if len(parts) > MOST_IDS or not all(part.strip().isdecimal() and len(part.strip()) < 19 for part in parts):
        raise Refused(400, "Which dead letters?", f"ids are at most {MOST_IDS} numbers with commas between them.")
    return [int(part) for part in parts]


def _moment(text: str | None) -> datetime | None:
    """A time of a form; one without a time zone is UTC, as all times on the screens."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Refused(400, "Which time?", f"{text!r} is none: write 2026-03-01T12:30.") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
