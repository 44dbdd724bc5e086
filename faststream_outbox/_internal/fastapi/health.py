"""`/live`, `/ready` and `/health` as a router of FastAPI: `app.include_router(health_router(broker))`."""

from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse

from faststream_outbox._internal.health.asgi import ANSWERS, answer, check_routes
from faststream_outbox._internal.health.health import TIMEOUT


def health_router(source: Any, *, timeout: float = TIMEOUT, prefix: str = "") -> APIRouter:
    """Routes that tell how a broker, an `OutboxClient` or an `Outbox` is; not in the OpenAPI document.

    timeout: seconds that the database may take to answer.
    prefix: stands before each path.
    """
    check_routes(timeout, prefix)
    router = APIRouter(prefix=prefix)
    for path in ANSWERS:
        router.add_api_route(path, _endpoint(source, path, timeout), methods=["GET", "HEAD"], include_in_schema=False)
    return router


def _endpoint(source: Any, path: str, timeout: float) -> Any:
    async def endpoint() -> JSONResponse:
        is_well, found = await answer(source, path, timeout)
        return JSONResponse(found, status_code=200 if is_well else 503, headers={"cache-control": "no-store"})

    return endpoint
