"""The inbox: the receipt and the effects are one commit, and the broker is acknowledged after it."""

from docs.pictures.canvas import Canvas


def draw() -> Canvas:
    """The picture on the inbox's page."""
    sheet = Canvas(310, "Receipt and effects in one commit")
    sheet.say(20, 34, "broker", bold=True)
    sheet.box(20, 84, 112, 60, "green", "message 7", "~delivered")
    sheet.box(20, 206, 112, 60, "green", "message 7", "~once more")

    sheet.say(196, 34, "one transaction", bold=True)
    sheet.box(196, 58, 268, 112, "none", dashed=True)
    sheet.arrow((132, 114), (206, 114))
    sheet.box(208, 84, 112, 60, "amber", "receipt", "~billing, 7")
    sheet.arrow((320, 114), (338, 114))
    sheet.box(340, 84, 112, 60, "blue", "handler", "~its writes")
    sheet.arrow((464, 114), (548, 114), words="COMMIT", at=(506, 105))
    sheet.box(550, 84, 112, 60, "plain", "acknowledged", "~after that")
    sheet.arrow((606, 84), (606, 48), (76, 48), (76, 82), dashed=True)

    sheet.arrow((132, 236), (206, 236))
    sheet.box(208, 206, 244, 60, "amber", "the receipt is there", "~the handler does not run")
    sheet.arrow((452, 236), (548, 236))
    sheet.box(550, 206, 112, 60, "plain", "acknowledged", "~and skipped")
    sheet.say(20, 294, "~Killed before the COMMIT: neither is there. Killed after it: the message is skipped.")
    return sheet
