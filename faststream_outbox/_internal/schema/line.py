"""Text of others on one line of ours: names, keys and errors are a stranger's input.

Whoever can publish chooses names. A line break would forge a line of the log, or end a comment in SQL that is there to
be pasted; an escape sequence would paint the operator's terminal. Used for lines of the log and for what
`validate_schema` prints.
"""

import re

# Control characters, separators of lines, marks that turn the direction of text, and halves of surrogate pairs.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def one_line(text: str) -> str:
    """The text with everything escaped that is not seen, or that ends a line."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
