"""An engine beside the application's: made by the same recipe, with a pool of its own that keeps nothing.

For whoever needs SQLAlchemy's connections and must not wait for the application's, whose pool may be exhausted. The
dialect, hooks on connecting and execution options are the engine's, but not its isolation level. Used by the doctor and
by `health`.
"""

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncEngine


def engine_apart(engine: AsyncEngine) -> AsyncEngine:
    """Another engine for the same database; dispose of it."""
    sync = engine.sync_engine
    options = dict(sync.get_execution_options())
    options.pop("isolation_level", None)
    return AsyncEngine(
        Engine(sync.pool.recreate(), sync.dialect, sync.url, execution_options=options, hide_parameters=True)
    )
