"""A command of the command line made of an async function: options that all share, the event loop, errors, exit codes.

The function gets `Here` and its own parameters, asks or changes, and returns an `Answer`; nothing else prints, but what
follows progress. Ctrl-C cancels the function, which may answer with how far it got. Used by `commands`.
"""

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Annotated, Any, Literal

import typer

from faststream_outbox._internal.cli.exits import Answer, Exit, fault_of
from faststream_outbox._internal.cli.here import Here
from faststream_outbox._internal.cli.options import parse_length
from faststream_outbox._internal.cli.place import VARIABLE, Place, Where, find, given
from faststream_outbox._internal.cli.printing import Printer
from faststream_outbox._internal.schema.catalog import hidden

Ending = Answer | Exit | Callable[[], None]
"""What to print; the exit code of a command that has said everything already; or what to do after our event loop."""
Action = Callable[..., Awaitable[Ending]]
Needs = Literal["tables", "engine", "nothing"]
Bundle = Callable[..., object]
"""A function of options that several commands share; what it makes of them is one parameter of theirs."""
_PANEL = "Where"


def shared(
    *,
    dsn: Annotated[
        str | None,
        typer.Option("--dsn", metavar="ADDRESS", help=f"The database; else {VARIABLE} has it.", rich_help_panel=_PANEL),
    ] = None,
    app: Annotated[
        str | None,
        typer.Option(
            "--app",
            metavar="MODULE:NAME",
            help="A broker, a FastStream app or an Outbox, which knows its database and tables.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", help="Queues: outbox, if there is one.", rich_help_panel=_PANEL)
    ] = None,
    dlq_table: Annotated[
        str | None,
        typer.Option("--dlq-table", help="Dead letters: outbox_dlq, if there is one.", rich_help_panel=_PANEL),
    ] = None,
    log: Annotated[
        str | None, typer.Option("--log", help="Topics: outbox_log, if there is one.", rich_help_panel=_PANEL)
    ] = None,
    offsets: Annotated[
        str | None,
        typer.Option(
            "--offsets", help="Positions of groups, if another table than LOG_offsets.", rich_help_panel=_PANEL
        ),
    ] = None,
    inbox: Annotated[
        str | None, typer.Option("--inbox", help="Receipts: inbox, if there is one.", rich_help_panel=_PANEL)
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", help="The tables' schema, if not on the search path.", rich_help_panel=_PANEL),
    ] = None,
    timeout: Annotated[
        timedelta | None,
        typer.Option(
            "--timeout",
            parser=parse_length,
            metavar="TIME",
            help="How long one question may take; usually 5s.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> dict[str, Any]:
    """The options of every command, before its name or behind it."""
    return {name: value for name, value in locals().items() if value not in (None, False)}


_SHARED = inspect.signature(shared).parameters


def command(
    group: typer.Typer, name: str | None = None, *, needs: Needs = "tables", **bundles: Bundle
) -> Callable[[Action], Action]:
    """Make a function a command of a group.

    name: its name, where the function has another.
    needs: what is found before it is called: the tables, or the engine alone; "nothing" gives it a Where.
    bundles: parameters that are made of several options.
    """

    def register(action: Action) -> Action:
        own = [
            part
            for each in list(inspect.signature(action).parameters.values())[1:]
            for part in (_parameters(bundles[each.name]) if each.name in bundles else [each])
        ]

        def called(context: typer.Context, **values: Any) -> None:
            options = {each: values.pop(each) for each in _SHARED}
            said = {**(context.obj or {}), **shared(**options)}
            printer = Printer(_path(context), as_json=said.pop("as_json", False))
            exit = _run(_Running(action, Where(**said), printer, values, bundles, needs))
            if exit:
                raise typer.Exit(int(exit))

        parameters = [
            inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *_SHARED.values())),
        ]
        made: Any = called
        made.__signature__ = inspect.Signature(parameters)
        made.__annotations__ = {each.name: each.annotation for each in parameters}
        made.__doc__ = action.__doc__
        made.__name__ = action.__name__
        group.command(name or action.__name__.replace("_", "-"))(made)
        return action

    return register


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _path(context: typer.Context) -> str:
    names: list[str] = []
    at: Any = context
    while at.parent is not None:
        names.insert(0, at.info_name)
        at = at.parent
    return " ".join(names)


def _run(running: "_Running") -> Exit:
    """Run a command to its end, whatever that is."""
    printer = running.printer
    # psycopg cannot use the loop that Windows has by default.
    loop = asyncio.SelectorEventLoop if sys.platform == "win32" else None
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            ending = runner.run(running.run())
        if not isinstance(ending, Answer | Exit):
            ending()
            return Exit.FINE
    except (KeyboardInterrupt, typer.Abort):
        printer.fault(Exit.INTERRUPTED, "Interrupted", "interrupted; nothing more is done")
        return Exit.INTERRUPTED
    except BrokenPipeError:
        raise  # whoever read our output has gone
    except Exception as error:
        fault = fault_of(error, is_connecting=not running.is_connected)
        if fault is None:
            raise
        printer.fault(fault.exit, fault.kind, fault.message)
        return fault.exit
    if isinstance(ending, Exit):
        return ending
    printer.answer(ending)
    return ending.exit


class _Running:
    """One command, from the connection to the answer."""

    def __init__(
        self,
        action: Action,
        where: Where,
        printer: Printer,
        values: dict[str, Any],
        bundles: Mapping[str, Bundle],
        needs: Needs,
    ) -> None:
        self.printer = printer
        self.is_connected = False
        self._action = action
        self._where = where
        self._values = values
        self._bundles = bundles
        self._needs = needs

    async def run(self) -> Ending:
        """Connect, find the tables, and do it."""
        for each, bundle in self._bundles.items():
            self._values[each] = bundle(**{part.name: self._values.pop(part.name) for part in _parameters(bundle)})
        if self._needs == "nothing":
            return await self._action(self._where, **self._values)
        source = given(self._where)
        try:
            async with source.engine.connect() as connection:
                self.is_connected = True
                place = Place(source.engine)
                if self._needs == "tables":
                    place = await find(source, self._where, connection)
                    tables = place.tables
                    log = None if tables.log_tables is None else tables.log_tables.log
                    of_rows = (tables.table, tables.dlq_table, log, tables.inbox_table)
                    self.printer.hidden(await hidden(connection, *of_rows))
            here = Here(place, self.printer, source, self._where)
            try:
                return await self._action(here, **self._values)
            finally:
                await here.close()
        finally:
            await source.engine.dispose()
