"""Life of a queue's message: committed, claimed, handled, and the ways in which that ends."""

from docs.pictures.canvas import Canvas


def draw() -> Canvas:
    """The picture on the first page."""
    sheet = Canvas(352, "Life of a queue's message")
    sheet.say(20, 34, "your transaction", bold=True)
    sheet.box(20, 64, 196, 118, "none", dashed=True)
    sheet.box(32, 78, 172, 40, "plain", "`INSERT INTO orders`")
    sheet.box(32, 128, 172, 40, "blue", "`INSERT INTO outbox`")
    sheet.say(118, 203, "~ROLLBACK: neither ever was", anchor="middle")

    sheet.say(300, 34, "workers, in any number of processes", bold=True)
    sheet.arrow((216, 123), (298, 123), words="COMMIT", at=(256, 114))
    sheet.box(300, 98, 96, 58, "blue", "waiting", "~a row")
    sheet.arrow((396, 127), (458, 127), words="claim", at=(427, 118))
    sheet.box(460, 98, 96, 58, "amber", "in flight", "~leased")
    sheet.arrow((556, 127), (584, 127))
    sheet.box(586, 98, 76, 58, "green", "done", "~deleted")
    sheet.arrow((508, 98), (508, 72), (348, 72), (348, 96), dashed=True)
    sheet.say(428, 64, "~its process dies: the lease ends", anchor="middle")

    sheet.box(300, 196, 110, 48, "plain", "retry", "~due later")
    sheet.arrow((484, 156), (484, 220), (412, 220), words="it raises", at=(448, 211))
    sheet.arrow((348, 196), (348, 158))
    sheet.box(300, 278, 150, 48, "red", "dead letter", "~kept with its error")
    sheet.arrow((532, 156), (532, 302), (452, 302), words="for the last time", at=(592, 236))
    sheet.arrow((300, 302), (262, 302), (262, 142), (298, 142))
    sheet.say(254, 252, "~you replay it", anchor="end")
    return sheet
