"""The relay: batches in waves of one message a key, and nothing removed before the broker's confirm."""

from docs.pictures.canvas import Canvas


def draw() -> Canvas:
    """The picture on the relay's page."""
    sheet = Canvas(300, "A relay sends waves, and removes what was confirmed")
    sheet.say(20, 34, "your database", bold=True)
    sheet.box(20, 60, 150, 132, "none", dashed=True)
    sheet.box(34, 76, 122, 44, "blue", "outbox", "~or a topic")
    sheet.box(34, 132, 122, 44, "plain", "your tables")

    sheet.say(250, 34, "relay: a worker without a handler", bold=True)
    sheet.arrow((170, 98), (248, 98), words="a batch", at=(208, 89))
    sheet.box(250, 60, 216, 132, "none", dashed=True)
    sheet.say(262, 82, "~wave 1")
    for place, key in enumerate(("a", "b", "c")):
        sheet.box(318 + 48 * place, 68, 40, 30, "amber", f"{key} 1")
    sheet.say(262, 124, "~wave 2")
    for place, key in enumerate(("a", "b")):
        sheet.box(318 + 48 * place, 110, 40, 30, "plain", f"{key} 2")
    sheet.say(262, 166, "~wave 3")
    sheet.box(318, 152, 40, 30, "plain", "a 3")

    sheet.say(548, 34, "broker", bold=True)
    sheet.arrow((466, 82), (546, 82), words="together", at=(506, 73))
    sheet.box(548, 60, 114, 132, "green", "Kafka", "~RabbitMQ", "~NATS, Redis", "~SQS")
    sheet.arrow((546, 150), (468, 150), words="confirms", at=(507, 170))
    sheet.arrow((358, 192), (358, 236), (95, 236), (95, 194))
    sheet.say(226, 256, "~removed, or moved past, once confirmed", anchor="middle")
    sheet.say(20, 284, "~A key whose message was not taken stops there, and the other keys go on.")
    return sheet
