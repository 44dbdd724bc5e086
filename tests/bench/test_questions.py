"""The times of an operator's questions: each is answered, and the page shows the run that was kept."""

import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from bench.large_tables import large_stage
from bench.questions import PAGE, QUESTIONS, fill, loaded, over, timed

SMALL = 5000


@pytest.mark.slow
async def test_each_question_is_answered_by_its_call(capsys: pytest.CaptureFixture[str]) -> None:
    async with large_stage() as stage:
        metadata, log = await fill(stage, SMALL)
        capsys.readouterr()
        engine = create_async_engine(stage.server.dsn())
        overview = over(engine, metadata, log)
        for question in QUESTIONS:
            assert await timed(question, overview)
        await overview.close()
        await engine.dispose()
    assert capsys.readouterr().out == "", "a question took too long"


def test_page_shows_the_run_that_was_kept() -> None:
    assert "\n".join(loaded()) in PAGE.read_text()
