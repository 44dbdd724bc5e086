"""SQL expressions and types brought to one form, so that ours and PostgreSQL's print of them compare equal.

PostgreSQL prints a stored predicate with its own parentheses and casts: `key IS NULL` comes back as
`(key IS NULL)`, and `queue = 'a'` as `((queue)::text = 'a'::text)`. Only such notation is evened out,
never meaning: two expressions that differ in what they say stay different. Called by `schema.compare`.
"""

import re
from collections.abc import Iterator

_Node = str | list["_Node"]

_NAME = r'(?:"(?:[^"]|"")*"|[a-z_][\w$]*)'
_TYPE = (
    rf"{_NAME}(?:\.{_NAME})?(?:\s+(?:varying|precision)\b)?(?:\s*\(\s*\d+(?:\s*,\s*\d+)?\s*\))?"
    r"(?:\s+with(?:out)?\s+time\s+zone\b)?(?:\[\])*"
)
_TOKEN = re.compile(
    rf"""(?P<cast>::\s*{_TYPE})
       | (?P<string>e?'(?:[^']|'')*')
       | (?P<quoted>"(?:[^"]|"")*")
       | (?P<word>\w[\w$]*(?:\.\d+)?)
       | (?P<mark>[(),]|[^\s\w'"(),:]+|:)""",
    re.VERBOSE | re.IGNORECASE,
)
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_QUOTED_NUMBER = re.compile(r"'(-?\d+(?:\.\d+)?)'")
_CONNECTIVES = frozenset({"and", "or", "not"})
_NEVER_A_FUNCTION = _CONNECTIVES | {"is", "in", "any", "all", "between", "like", "when", "then", "else"}

_SAME_DEFAULT = {
    "current_timestamp": "now()",
    "transaction_timestamp()": "now()",
    "uuidv4()": "gen_random_uuid()",
    "uuidv7()": "gen_random_uuid()",
    "uuid_generate_v4()": "gen_random_uuid()",
}
_SAME_TYPE = {"varchar": "character varying", "timestamptz": "timestamp with time zone"}


def canonical(sql: str) -> str:
    """The expression without casts and needless parentheses, in lower case outside quotes."""
    return _printed(_tidied(_parsed(_tokens(sql))))


def canonical_default(sql: str | None) -> str | None:
    """A column default; None if there is none, equal for defaults that serve equally well."""
    if sql is None:
        return None
    text = canonical(sql)
    text = _QUOTED_NUMBER.sub(r"\1", text) if _QUOTED_NUMBER.fullmatch(text) else text
    return None if text == "null" else _SAME_DEFAULT.get(text, text)


def canonical_type(sql: str) -> str:
    """A type's name as `format_type` prints it; `text` for strings without a limit."""
    text = re.sub(r"\s*([(),])\s*", r"\1", " ".join(sql.lower().split()))
    base, bracket, rest = text.partition("(")
    text = _SAME_TYPE.get(base, base) + bracket + rest
    return "text" if text == "character varying" else text


def _tokens(sql: str) -> Iterator[str]:
    for match in _TOKEN.finditer(sql):
        token = match.group()
        match match.lastgroup:
            case "cast":
                continue
            case "string":
                yield token
            case "quoted":
                name = token[1:-1].replace('""', '"')
                yield name if _PLAIN_NAME.fullmatch(name) else token
            case _:
                yield token.lower()


def _parsed(tokens: Iterator[str]) -> list[_Node]:
    """Nest by parentheses; a function's own become part of its name, so that they are kept."""
    nodes: list[_Node] = []
    for token in tokens:
        if token == ")":
            break
        if token == "not" and nodes[-1:] == ["is"]:
            nodes[-1] = "is not"
            continue
        if token != "(":
            nodes.append(token)
            continue
        inner = _parsed(tokens)
        before = nodes[-1] if nodes else None
        if isinstance(before, str) and _is_function(before):
            nodes[-1] = f"{before}({_printed(_tidied(inner))})"
        else:
            nodes.append(inner)
    return nodes


def _is_function(word: str) -> bool:
    return bool(re.fullmatch(r'[\w$]+|".*"', word)) and word not in _NEVER_A_FUNCTION


def _tidied(nodes: list[_Node]) -> list[_Node]:
    level = [_unwrapped(_tidied(node)) if isinstance(node, list) else node for node in nodes]
    if len(level) == 1 and isinstance(level[0], list):
        return level[0]
    if _has_connective(level):
        return list(_without_operand_parentheses(level))
    match level:
        case [left, "=", right] if _printed([right]) < _printed([left]):
            return [right, "=", left]
        case _:
            return level


def _unwrapped(nodes: list[_Node]) -> _Node:
    return nodes[0] if len(nodes) == 1 else nodes


def _without_operand_parentheses(level: list[_Node]) -> Iterator[_Node]:
    """AND, OR and NOT bind weaker than anything else, so `(a IS NULL) AND b` needs no parentheses."""
    for place, node in enumerate(level):
        neighbours = [*level[max(place - 1, 0) : place], *level[place + 1 : place + 2]]
        alone = all(isinstance(item, str) and item in _CONNECTIVES for item in neighbours)
        if isinstance(node, list) and alone and not _has_connective(node):
            yield from node
        else:
            yield node


def _has_connective(nodes: list[_Node]) -> bool:
    return any(isinstance(node, str) and node in _CONNECTIVES for node in nodes)


def _printed(nodes: list[_Node]) -> str:
    return " ".join(f"({_printed(node)})" if isinstance(node, list) else node for node in nodes)
