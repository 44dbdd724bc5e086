"""A claim and its floor: what stands in the index of a lane, where a claim starts, and what the full scan is for."""

from docs.pictures.canvas import Canvas

LEFT, CELL, TOP = 28, 39, 118


def draw() -> Canvas:
    """The picture of how it works."""
    sheet = Canvas(318, "A claim starts at the floor")
    sheet.say(LEFT, 36, "the index of one lane: messages by due time", bold=True)
    cells = [*["done"] * 3, "stray", *["done"] * 2, *["held"] * 3, *["free"] * 5, *["later"] * 2]
    kinds = {"done": "none", "stray": "red", "held": "amber", "free": "green", "later": "plain"}
    for number, cell in enumerate(cells):
        sheet.box(LEFT + number * CELL, TOP, CELL - 5, 34, kinds[cell], dashed=cell == "done")
    floor = LEFT + 9 * CELL - 2.5

    sheet.line(floor, TOP - 52, floor, TOP + 60)
    sheet.say(floor - 8, TOP - 40, "floor", anchor="end", bold=True)
    sheet.say(floor - 8, TOP - 22, "~how far this claimer has got", anchor="end")
    sheet.arrow((floor + 2, TOP - 22), (floor + 4 * CELL - 4, TOP - 22))
    sheet.say(floor + 8, TOP - 32, "a claim takes the next ones")

    sheet.arrow((LEFT, TOP + 58), (floor - 4, TOP + 58), dashed=True)
    sheet.arrow((LEFT + 3 * CELL + 17, TOP + 58), (LEFT + 3 * CELL + 17, TOP + 37))
    sheet.say(LEFT, TOP + 80, "a full scan finds what is below the floor")
    sheet.say(LEFT, TOP + 99, "~seldom, on a connection of its own, and claims nothing itself")

    legend = [
        ("none", "done, not vacuumed yet"),
        ("amber", "leased"),
        ("green", "due and free"),
        ("plain", "due later"),
    ]
    x = LEFT
    for kind, words in legend:
        sheet.box(x, 256, 16, 16, kind, dashed=kind == "none")
        sheet.say(x + 23, 269, f"~{words}")
        x += 46 + len(words) * 7.2
    sheet.box(LEFT, 284, 16, 16, "red")
    sheet.say(LEFT + 23, 297, "~a stray: it committed late, was given back, or its lease ran out")
    return sheet
