"""`eventually` waits for the answer, gives it, and says what did not come true."""

import pytest

from tests.waiting import eventually


async def test_gives_the_first_true_answer() -> None:
    answers = iter([0, None, 7])
    assert await eventually(lambda: next(answers)) == 7


async def test_awaits_an_asynchronous_predicate() -> None:
    async def ready() -> str:
        return "yes"

    assert await eventually(ready) == "yes"


async def test_fails_with_the_message_when_the_time_is_over() -> None:
    with pytest.raises(pytest.fail.Exception, match="the row is gone"):
        await eventually(lambda: False, timeout=0.02, message="the row is gone")
