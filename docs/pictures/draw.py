"""Draws the pictures of the documentation: `python -m docs.pictures.draw`, from the root of the repository.

Their source is here and the .svg files beside it are committed; a test says that the two agree.
"""

from pathlib import Path

from docs.pictures import claim, groups, inbox, layers, life, relay, tick

PLACE = Path(__file__).parent
PICTURES = (life, claim, tick, groups, relay, inbox, layers)
DRAWN = {picture.__name__.rpartition(".")[2]: picture.draw for picture in PICTURES}


def main() -> None:
    """Write every picture."""
    for name, draw in DRAWN.items():
        (PLACE / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
