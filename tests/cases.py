"""Many cases of one kind in one test: the first that fails is named.

`@each` is `@pytest.mark.parametrize` for what takes no time and leaves nothing behind: the cases are one test
instead of as many, which would cost more to set up and to count than they take.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any


@contextmanager
def case(what: object) -> Iterator[None]:
    """Adds the case to whatever fails in the block."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"case: {_report(what)}")
        raise


def _report(what: object) -> str:
    try:
        return ascii(what)[:200]
    except Exception as error:
        # A case may be what cannot be printed.
        return f"{type(what).__name__} ({error})"


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Runs a test with every case in turn; several names take apart what a case consists of."""
    all_cases = list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        assert not inspect.iscoroutinefunction(test), "nobody would await it: use pytest.mark.parametrize"

        def given(one: Any) -> dict[str, Any]:
            return {names: one} if isinstance(names, str) else dict(zip(names, one, strict=True))

        @wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            assert all_cases, "there is no case"
            for one in all_cases:
                with case(one):
                    test(*args, **kwargs, **given(one))

        signature = inspect.signature(test)
        taken = {names} if isinstance(names, str) else set(names)
        left = [parameter for name, parameter in signature.parameters.items() if name not in taken]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate
