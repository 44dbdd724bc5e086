"""Takes the screenshots of the dashboard: `python -m docs.pictures.screenshots`, from the root of the repository.

A private PostgreSQL, a shop in trouble in it, the dashboard behind a port, and Debian's Chromium.
`--all` also takes every screen at both sizes and in both schemes, into the folder named: to look at, not to keep.
"""

import argparse
import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, async_playwright
from sqlalchemy.ext.asyncio import create_async_engine

from docs.pictures.shop import broker_of, open_shop, remember
from faststream_outbox.dashboard import Content, make_dashboard
from faststream_outbox.queue import Selection
from faststream_outbox.testing.postgres import PostgresServer
from tests.dashboard.served import served

PLACE = Path(__file__).parents[1] / "images"
SIZES = {"wide": (1440, 900), "narrow": (360, 780)}
GROUP = "group=billing&uri=orders"
# Names of files, what they show, and how: each in light and in dark colours.
SHOWN = {
    "overview": ("/", "wide"),
    "failures": ("/failures", "wide"),
    "message": ("/message?letter={letter}", "wide"),
    "edit": ("/message?letter={plain}&edit=yes", "wide"),
    "replay": ("/replay?queue=payments", "wide"),
    "queues": ("/queues", "wide"),
    "queue": ("/queue?name=emails", "wide"),
    "timers": ("/timers", "wide"),
    "groups": ("/groups", "wide"),
    "group": (f"/group?{GROUP}", "wide"),
    "keys": ("/keys", "wide"),
    "workers": ("/workers", "wide"),
    "relays": ("/relays", "wide"),
    "health": ("/health", "wide"),
    "narrow": ("/", "narrow"),
}
KEPT = {
    name if scheme == "light" else f"{name}-{scheme}": (path, scheme, size)
    for name, (path, size) in SHOWN.items()
    for scheme in ("light", "dark")
}
ALL = {
    "overview": "/",
    "failures": "/failures",
    "failures-narrowed": "/failures?queue=payments&error_type=CardDeclined",
    "message-dead": "/message?letter={letter}",
    "edit": "/message?letter={plain}&edit=yes",
    "message": "/message?id=5",
    "replay": "/replay?queue=payments",
    "purge": "/purge?queue=emails",
    "queues": "/queues",
    "queue": "/queue?name=emails",
    "paused": "/queue?name=reports.nightly",
    "timers": "/timers",
    "replays": "/replays",
    "groups": "/groups",
    "group": f"/group?{GROUP}",
    "seek": f"/seek?{GROUP}",
    "delete": f"/delete?{GROUP}",
    "keys": "/keys",
    "parked": f"/parked?{GROUP}&position={{parked}}",
    "skip": f"/skip?{GROUP}&position={{parked}}",
    "workers": "/workers",
    "relays": "/relays",
    "health": "/health",
    "nowhere": "/nowhere",
}
# Inter, where it is installed, in the place of whatever the machine has.
FAMILIES = ("system-ui", "sans-serif", "sans", "DejaVu Sans")
PREFER = """<match target="pattern"><test name="family"><string>{}</string></test>
<edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>"""
FONTS = f"""<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig>
{"".join(map(PREFER.format, FAMILIES))}<include ignore_missing="yes">/etc/fonts/fonts.conf</include></fontconfig>"""


def masked(content: Content) -> Content:
    """What a shop would take out."""
    if isinstance(content.body, dict) and "card_number" in content.body:
        return replace(content, body=content.body | {"card_number": "•••"})
    return content


async def take(browser: Browser, address: str, path: Path, scheme: str, size: str) -> None:
    """One picture."""
    width, height = SIZES[size]
    viewport: Any = {"width": width, "height": height}
    look: Any = scheme
    context = await browser.new_context(viewport=viewport, color_scheme=look, locale="en-GB", timezone_id="UTC")
    page = await context.new_page()
    await page.goto(address)
    if await page.locator("#charts").count():
        await page.locator("#charts[data-points]").wait_for()
    await page.screenshot(path=path, animations="disabled")
    await context.close()
    if shutil.which("pngquant") is not None:
        await asyncio.to_thread(subprocess.run, ["pngquant", "--force", "--ext=.png", "128", str(path)], check=True)


async def run(everything: Path | None) -> None:
    """Open the shop and take the pictures."""
    # Whose processes read the topics; the others say it themselves.
    socket.gethostname = lambda: "billing-5d8b7-m4tlx"
    with PostgresServer.start() as server, tempfile.TemporaryDirectory() as folder:
        engine = create_async_engine(server.dsn(), pool_size=30)
        fonts = Path(folder) / "fonts.conf"
        fonts.write_text(FONTS, encoding="utf-8")
        async with open_shop(engine), async_playwright() as playwright:
            dashboard = make_dashboard(
                broker_of(engine),
                auth=lambda _: "ada@shop.example",
                title="Shop",
                redact=masked,
                trace_url="https://traces.example/{trace_id}",
            )
            house = dashboard._house
            sample = await house.monitor.sample()
            await house.monitor.checkup()
            remember(house.monitor.history, sample)
            letters = await house.source.dead_letters.groups("payments")
            (parked, *_) = await house.source.topics.parked.list("billing")
            (plain, *_) = await house.source.dead_letters.find(Selection(queue="parcels"), limit=1)
            names = {"letter": letters[0].count, "parked": parked.position, "plain": plain.id}
            browser = await playwright.chromium.launch(
                executable_path=shutil.which("chromium"),
                args=["--no-sandbox", "--force-color-profile=srgb"],
                env={**os.environ, "FONTCONFIG_FILE": str(fonts)},
            )
            async with served(dashboard) as base:
                if everything is None:
                    for name, (path, scheme, size) in KEPT.items():
                        await take(browser, base + path.format(**names), PLACE / f"dashboard-{name}.png", scheme, size)
                else:
                    for name, path in ALL.items():
                        for scheme in ("light", "dark"):
                            for size in SIZES:
                                file = everything / f"{name}-{size}-{scheme}.png"
                                await take(browser, base + path.format(**names), file, scheme, size)
            await browser.close()
        await engine.dispose()


def main() -> None:
    """Take those that are kept, or all."""
    parser = argparse.ArgumentParser(prog="python -m docs.pictures.screenshots")
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every screen, into this folder")
    everything = parser.parse_args().all
    (everything or PLACE).mkdir(exist_ok=True)
    asyncio.run(run(everything))


if __name__ == "__main__":
    main()
