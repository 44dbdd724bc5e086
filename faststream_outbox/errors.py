"""Exceptions of the engine, and the warning category of likely mistakes.

Every error that the library raises on purpose is an `OutboxError`, next to the built-in type that a
caller would expect (`ValueError` for bad input, `RuntimeError` for a wrong state), so that `except
ValueError` keeps working. Messages say what to do. Raised by every layer; imports nothing.
"""


class OutboxError(Exception):
    """Anything that this library raises on purpose."""


class InvalidMessage(OutboxError, ValueError):
    """A message that PostgreSQL would refuse; raised before any SQL is sent."""


class InvalidMessageType(OutboxError, TypeError):
    """A message field of the wrong Python type; raised before any SQL is sent."""


class InvalidOption(OutboxError, ValueError):
    """An option of a worker, table or strategy that cannot work."""


class InvalidOptionType(OutboxError, TypeError):
    """An option of the wrong Python type."""


class SessionRequired(OutboxError, ValueError):
    """A message was published without the transaction that it belongs to."""


class UnknownName(OutboxError, LookupError):
    """Nobody has heard of a queue or a group of this name; the message has the nearest one that is known."""


class GroupInUse(OutboxError, RuntimeError):
    """A group was to be deleted that somebody reads."""


class WrongEventLoop(OutboxError, RuntimeError):
    """Workers of one client were started in two event loops that run at the same time."""


class UnsupportedSession(OutboxError, TypeError):
    """The object given as session is none of those that a message can be published through."""


class SchemaMismatch(OutboxError, RuntimeError):
    """The database's tables differ from what this version needs; lists every difference."""


class LeaseLost(OutboxError, RuntimeError):
    """The lease of a message ended before its outcome was written; the outcome was not applied."""


class MissingMessageId(OutboxError, ValueError):
    """A message came to an inbox without an id by which its next delivery would be known."""


class BeingHandled(OutboxError, RuntimeError):
    """Another transaction is about the same message right now; it is to come again."""


class TransactionEnded(OutboxError, RuntimeError):
    """A handler ended the transaction of the inbox that its session belongs to, or left it unable to commit."""


class CrashLoop(OutboxError, RuntimeError):
    """Processes died again and again while this message ran; kept with the message, never raised."""


class NotReadable(OutboxError, RuntimeError):
    """The content of a message of a topic could not be read again and again; kept with the message, never raised."""


class MissingRight(OutboxError, RuntimeError):
    """The database role may not do what was asked of it; says which right it needs, and on what."""

    sqlstate = "42501"


class ConnectionUnusable(OutboxError, RuntimeError):
    """A connection of the library's own cannot do what is needed of it, and trying again will not help."""


class QuestionTimedOut(OutboxError, TimeoutError):
    """A question about the tables was given up; says what took so long, and how to give it more time."""


class BrokerUnavailable(OutboxError, ConnectionError):
    """A broker that messages are relayed to did not take one; kept with the message and reported, never raised."""


class WrongResults(OutboxError, RuntimeError):
    """A transport did not answer with one result per message; reported, never raised."""


class NoTransaction(OutboxError, LookupError):
    """A handler asks for the session of a transaction that its subscriber does not open."""


class PostgresUnavailable(OutboxError, RuntimeError):
    """There is no PostgreSQL to start, or it did not start; the message has its own words on it."""


class DuplicateMessage(OutboxError, ValueError):
    """An event_id was published before; pass `on_duplicate="ignore"` to leave such messages out."""


class SequenceBehind(OutboxError, RuntimeError):
    """The log's sequence lies behind its messages, as in a copy that did not carry it; roll back."""


class WrongOutcomes(OutboxError, RuntimeError):
    """A handler did not answer with an outcome, or a batch handler not with one per message."""


class Unroutable(OutboxError, LookupError):
    """No queue takes the message; it came back."""


class OwnCommit(OutboxError, RuntimeError):
    """A transactional handler tried to commit the session that it was given."""


class OutboxWarning(UserWarning):
    """Something that works but is seldom meant."""
