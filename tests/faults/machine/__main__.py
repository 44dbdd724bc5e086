"""`python -m tests.faults.machine --minutes 5 --seed 7 --report FILE`: break everything for a while, and report.

Writes FILE.json and FILE.md; the histories are kept beside them if something was wrong. Exit code 1 says so.
"""

import argparse
import asyncio
import json
import logging
import shutil
import sys
import tempfile
from pathlib import Path

from tests.faults.machine.play import Plan, checked, play, striking


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.machine", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, default=Path("machine"), help="where to, without an ending")
    parser.add_argument("--keep", action="store_true", help="keep the histories in any case")
    parser.add_argument("--again", type=Path, help="check the histories of a run that is over")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    if given.again is not None:
        print(checked(given.again).markdown())
        return 0
    directory = Path(tempfile.mkdtemp(prefix="outbox-machine-"))
    seconds = given.minutes * 60
    report = asyncio.run(play(Plan(given.seed, seconds), directory, striking(seconds)))
    target = given.report.with_suffix("")
    # How soon each role went on after each fault is for readers of the text: faults overlap, and so do these times.
    kept = {name: value for name, value in report.summary.items() if name != "recovery"}
    target.with_suffix(".json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    target.with_suffix(".md").write_text(report.markdown(), encoding="utf-8")
    print(report.markdown())
    if report.wrongs or given.keep:
        print(f"histories: {directory}")
    else:
        shutil.rmtree(directory)
    return 1 if report.wrongs else 0


if __name__ == "__main__":
    sys.exit(main())
