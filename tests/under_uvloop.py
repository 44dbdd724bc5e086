"""Runs tests on uvloop, which `faststream run` takes where it can be imported: `-p tests.under_uvloop`."""

import asyncio
import warnings

import uvloop

with warnings.catch_warnings():
    # Policies are deprecated, and the only way to give every `asyncio.run` of the tests another loop.
    warnings.simplefilter("ignore", DeprecationWarning)
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
