"""MQTT topic names and filters: what is well formed, and which filter matches which topic."""

MAX_TOPIC_BYTES = 512
"""AWS IoT allows 256 bytes and MQTT 65,535; ours stay below 200, so longer means a mistake."""


def topic_matches(topic_filter: str, topic: str) -> bool:
    """Tell whether a well-formed filter selects a topic.

    Source: MQTT 3.1.1, sections 4.7.1 and 4.7.2.
    """
    if topic.startswith("$") and topic_filter[:1] in {"+", "#"}:
        return False
    wanted = topic_filter.split("/")
    levels = topic.split("/")
    for position, level in enumerate(wanted):
        if level == "#":
            return True  # also for the parent itself: a/# selects a
        if position >= len(levels) or level not in {"+", levels[position]}:
            return False
    return len(wanted) == len(levels)


def topic_problem(topic: str) -> str | None:
    """Say what is wrong with a topic to publish on, or None.

    Source: MQTT 3.1.1, sections 1.5.3 and 4.7.3.
    """
    if "+" in topic or "#" in topic:
        return f"the wildcard in {topic[:80]!r}"
    return _name_problem(topic)


def filter_problem(topic_filter: str) -> str | None:
    """Say what is wrong with a topic filter, or None.

    Source: MQTT 3.1.1, sections 4.7.1 and 4.7.3.
    """
    levels = topic_filter.split("/")
    for position, level in enumerate(levels):
        misplaced = "#" in level and (level != "#" or position != len(levels) - 1)
        if misplaced or ("+" in level and level != "+"):
            return f"a wildcard that does not fill its level in {topic_filter[:80]!r}"
    return _name_problem(topic_filter)


def _name_problem(name: str) -> str | None:
    """Say what is wrong with a name of either kind, or None."""
    if not name:
        return "an empty name"
    if "\0" in name:
        return "a null character"
    try:
        size_bytes = len(name.encode())
    except UnicodeEncodeError:
        return "a lone surrogate"
    return f"{size_bytes} bytes" if size_bytes > MAX_TOPIC_BYTES else None
