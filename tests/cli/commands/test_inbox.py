"""Receipts on the command line."""

from tests.cli.stage import Stage

FILL = """
insert into inbox (consumer, source, message_id, received_at)
select 'billing', 'orders', i::text, now() - make_interval(days => i) from generate_series(1, 5) i
"""


def test_receipts_are_counted_by_consumer(stage: Stage) -> None:
    assert "There are no receipts." in stage.run("inbox", "list").out
    stage.sql(FILL)
    lines = stage.run("inbox", "list").out.splitlines()
    assert [line.split() for line in lines[:2]] == [["consumer", "receipts"], ["billing", "5"]]
    assert stage.json("inbox", "list")["consumers"] == [{"consumer": "billing", "receipts": 5, "is_estimate": False}]


def test_old_receipts_are_deleted_after_asking(stage: Stage, at_terminal: None) -> None:
    stage.sql(FILL)
    assert "2 receipts are older than 3d 12h." in stage.run("inbox", "clean", "--older-than", "3d12h", "--dry-run").out
    assert "Nothing is done." in stage.run("inbox", "clean", "--older-than", "3d12h", input="n\n", code=1).out
    assert "2 receipts deleted." in stage.run("inbox", "clean", "--older-than", "3d12h", input="y\n").out
    assert stage.json("inbox", "clean", "--older-than", "36h", "--yes") == {"cleaned": 2}


def test_cleaning_is_refused_where_it_means_nothing(stage: Stage) -> None:
    stage.sql(FILL)
    stage.run("inbox", "clean", "--older-than", "90d", "--yes", code=4)
    stage.run("inbox", "clean", "--older-than", "0s", "--yes", code=2)
    stage.run("inbox", "clean", code=2)
    assert "--yes" in stage.run("inbox", "clean", "--older-than", "1d", code=2).err
