"""What can become of a message, for both engines: outcomes, retry strategies, and failures as text.

Pure: nothing here touches a database or an event loop.
"""
