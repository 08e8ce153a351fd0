//! Topic names and filters: what is well formed, what matches, and which filter covers another.

/// Longest topic or filter, as `edgefl/transport/matching.py` has it.
pub const MAX_TOPIC_BYTES: usize = 512;
/// Most levels: ours have at most eight, so more is a mistake or an attack.
pub const MAX_LEVELS: usize = 16;

/// Tells whether a client may publish on a name at all.
pub fn is_topic(name: &str) -> bool {
    has_good_shape(name) && !name.contains(['+', '#'])
}

/// Tells whether a filter is well formed. Source: MQTT 5.0, section 4.7.1.
pub fn is_filter(filter: &str) -> bool {
    if !has_good_shape(filter) {
        return false;
    }
    let mut levels = filter.split('/').peekable();
    while let Some(level) = levels.next() {
        let is_last = levels.peek().is_none();
        if level.contains('#') && (level != "#" || !is_last) {
            return false;
        }
        if level.contains('+') && level != "+" {
            return false;
        }
    }
    true
}

fn has_good_shape(name: &str) -> bool {
    let fits = !name.is_empty() && name.len() <= MAX_TOPIC_BYTES;
    fits && !name.contains('\0') && name.bytes().filter(|&byte| byte == b'/').count() < MAX_LEVELS
}

/// Tells whether a filter has a wildcard.
pub fn has_wildcard(filter: &str) -> bool {
    filter.contains(['+', '#'])
}

/// Tells whether a well-formed filter selects a topic. Source: MQTT 5.0, section 4.7.
pub fn matches(filter: &str, topic: &str) -> bool {
    if topic.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = topic.split('/');
    for wanted in filter.split('/') {
        if wanted == "#" {
            return true;
        }
        match levels.next() {
            Some(level) if wanted == "+" || wanted == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

/// Tells whether everything that `inner` selects is selected by `outer` too.
pub fn covers(outer: &str, inner: &str) -> bool {
    if inner.starts_with('$') != outer.starts_with('$') {
        return false;
    }
    let mut inner_levels = inner.split('/');
    for wanted in outer.split('/') {
        if wanted == "#" {
            return true;
        }
        match inner_levels.next() {
            None | Some("#") => return false,
            Some(level) if wanted == "+" || wanted == level => {}
            Some(_) => return false,
        }
    }
    inner_levels.next().is_none()
}

/// The part of a filter before its first wildcard level, for searching in order.
pub fn literal_prefix(filter: &str) -> &str {
    let end = filter.find(['+', '#']).unwrap_or(filter.len());
    let prefix = &filter[..end];
    // `a/#` selects `a` as well.
    prefix.strip_suffix('/').unwrap_or(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_standard() {
        for (filter, topic, expected) in [
            ("sport/tennis/player1/#", "sport/tennis/player1", true),
            (
                "sport/tennis/player1/#",
                "sport/tennis/player1/score/wimbledon",
                true,
            ),
            ("sport/#", "sport", true),
            ("sport/tennis/+", "sport/tennis/player1/ranking", false),
            ("sport/+", "sport", false),
            ("sport/+", "sport/", true),
            ("+/+", "/finance", true),
            ("/+", "/finance", true),
            ("+", "/finance", false),
            ("#", "$SYS/x", false),
            ("+/monitor/Clients", "$SYS/monitor/Clients", false),
            ("$SYS/#", "$SYS/x", true),
        ] {
            assert_eq!(matches(filter, topic), expected, "{filter} {topic}");
        }
    }

    #[test]
    fn refuses_misplaced_wildcards() {
        for filter in ["a#", "#/a", "a/#/b", "a+", "+a/b", "", "a\0b"] {
            assert!(!is_filter(filter), "{filter:?}");
        }
        for filter in ["#", "+", "a/+/b", "/", "a//b", "+/#"] {
            assert!(is_filter(filter), "{filter:?}");
        }
        assert!(!is_topic("a/+"));
        assert!(!is_topic(&"a".repeat(MAX_TOPIC_BYTES + 1)));
        assert!(!is_topic(&"a/".repeat(MAX_LEVELS)));
    }

    #[test]
    fn covering_needs_every_level() {
        for (outer, inner, expected) in [
            ("m/#", "m/a/b", true),
            ("m/#", "m/+", true),
            ("m/#", "m/#", true),
            ("m/#", "m", true),
            ("m/#", "#", false),
            ("r/+/call", "r/c1/call", true),
            ("r/+/call", "r/+/call", true),
            ("r/+/call", "r/#", false),
            ("d/x/c", "d/+/c", false),
            ("d/x/c", "d/x/c", true),
            ("d/x/c", "d/x/c/#", false),
        ] {
            assert_eq!(covers(outer, inner), expected, "{outer} {inner}");
        }
    }
}
