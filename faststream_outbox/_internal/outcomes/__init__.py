"""What can become of a message, for both engines: outcomes, retry strategies, failures as text, and calling a handler.

Nothing here touches a database.
"""
