"""Ticks and gaps: numbers become the order of a log when they are visible, and nobody waits for those that are not."""

from docs.pictures.canvas import Canvas

LEFT, COLUMN, TOP, ROW = 150, 44, 74, 46
ROWS = [
    ("tick 1", {1: "in", 2: "in", 3: "gap", 4: "in"}, "3 is not visible: a gap"),
    ("tick 2", {3: "gap", 5: "in", 6: "gap", 7: "in"}, "nobody waits for 3"),
    ("tick 3", {3: "in", 6: "gap"}, "3 has committed at last"),
    ("later", {6: "gone"}, "6 was rolled back"),
]
KINDS = {"in": "green", "gap": "amber", "gone": "none"}
WORDS = {"in": "✓", "gap": "gap", "gone": "×"}
ORDER = [(1, 1), (1, 2), (1, 4), (2, 5), (2, 7), (3, 3)]


def draw() -> Canvas:
    """The picture of how ordering works."""
    sheet = Canvas(346, "Ticks and gaps")
    sheet.say(24, 36, "numbers drawn", bold=True)
    for number in range(1, 8):
        sheet.say(LEFT + (number - 0.5) * COLUMN, 36, str(number), anchor="middle", bold=True)
    for index, (name, cells, words) in enumerate(ROWS):
        y = TOP + index * ROW
        sheet.line(24, y - 16, 656, y - 16, "rule")
        sheet.say(24, y + 12, name, bold=True)
        for number, cell in cells.items():
            x = LEFT + (number - 1) * COLUMN + 2
            sheet.box(x, y - 9, COLUMN - 4, 32, KINDS[cell], f"~{WORDS[cell]}" if cell == "gap" else WORDS[cell])
        sheet.say(LEFT + 7 * COLUMN + 18, y + 12, f"~{words}")
    y = TOP + len(ROWS) * ROW
    sheet.line(24, y - 16, 656, y - 16, "rule")
    sheet.say(24, y + 18, "the order of the log, (tick, position):", bold=True)
    for index, (tick, position) in enumerate(ORDER):
        sheet.box(24 + index * 84, y + 32, 66, 34, "blue", f"({tick}, {position})")
        if index:
            sheet.arrow((24 + index * 84 - 18, y + 49), (24 + index * 84 - 1, y + 49))
    sheet.say(24 + len(ORDER) * 84, y + 54, "~for every group")
    return sheet
