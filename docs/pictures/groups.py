"""Groups and slots: every group reads the whole log, and its members share the slots by leases."""

from docs.pictures.canvas import Canvas

LEFT, WIDE = 174, 476
MEMBERS = [("A", 7, "812, 90114"), ("B", 3, "812, 90120"), ("C", 1, "811, 90087")]


def draw() -> Canvas:
    """The picture of topics."""
    sheet = Canvas(398, "Groups and slots")
    sheet.say(24, 36, "topic", bold=True)
    sheet.say(24, 54, "~kept, in order")
    for number, key in enumerate(("order-1", "order-2", "order-1", "order-3", "order-2", "order-1")):
        sheet.box(LEFT + number * WIDE / 6, 20, WIDE / 6 - 6, 42, "blue", f"~{key}")
    sheet.say(24, 104, "slots", bold=True)
    sheet.say(24, 122, "~by a hash of the key")
    right, third = LEFT + WIDE - 6, WIDE / 3
    sheet.line(LEFT, 92, right, 92)
    sheet.line(LEFT, 86, LEFT, 98)
    sheet.line(right, 86, right, 98)
    sheet.say(LEFT, 115, "~0")
    sheet.say(right, 115, "~255", anchor="end")
    sheet.say((LEFT + right) / 2, 115, "~a key is always in the same slot", anchor="middle")

    sheet.line(24, 142, 656, 142, "rule")
    sheet.say(24, 172, "group billing", bold=True)
    sheet.say(24, 190, "~two processes,")
    sheet.say(24, 208, "~three members")
    for number, (member, epoch, cursor) in enumerate(MEMBERS):
        lines = f"member {member}, epoch {epoch}", f"~cursor ({cursor})"
        sheet.box(LEFT + number * third, 156, third - 6, 66, "amber" if member == "C" else "green", *lines)
    sheet.say(LEFT, 243, "~process 1")
    sheet.say(LEFT + 2 * third, 243, "~process 2")

    sheet.line(24, 260, 656, 260, "rule")
    sheet.say(24, 290, "group mail", bold=True)
    sheet.say(24, 308, "~one member,")
    sheet.say(24, 326, "~further behind")
    sheet.box(LEFT, 274, WIDE - 6, 66, "plain", "member D, epoch 2", "~cursor (640, 71020)")
    sheet.say(24, 376, "~A box is a span: neighbouring slots, one cursor, one lease. A new owner, a new epoch.")
    return sheet
