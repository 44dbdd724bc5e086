"""The small evaluation of an alert, and Prometheus where it is installed, say the same of the same readings."""

from pathlib import Path

from tests.docs.alerting import check

OLDEST = 'faststream_outbox_queue_oldest_ready_seconds{queue="%s",pod="%s"} %s\n'
PAUSED = 'faststream_outbox_queue_paused{queue="%s"} %s\n'


def test_alert_fires_for_what_is_old_and_not_paused(tmp_path: Path) -> None:
    shown = OLDEST % ("orders", "a", 10) + OLDEST % ("orders", "b", 1322.4) + OLDEST % ("mails", "a", 300)
    shown += OLDEST % ("night", "a", 9000) + PAUSED % ("night", 1) + PAUSED % ("orders", 0)
    summary = "The oldest message of orders has waited for 22m 2s."
    assert check("OutboxMessagesOld", shown, tmp_path) == {"orders": summary}


def test_alert_does_not_fire_without_readings(tmp_path: Path) -> None:
    assert check("OutboxMessagesOld", PAUSED % ("orders", 0), tmp_path) == {}
