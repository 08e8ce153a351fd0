//! Two filters and a topic, a line each: matching and covering against the standard's words, taken literally.

#![no_main]

use edgefl_mqtt::topic::{covers, is_filter, is_topic, literal_prefix, matches};
use libfuzzer_sys::fuzz_target;

/// Matching by recursion over levels. Source: MQTT 5.0, section 4.7.
fn selects(filter: &[&str], topic: &[&str]) -> bool {
    match (filter.split_first(), topic.split_first()) {
        (Some((&"#", _)), _) | (None, None) => true,
        (Some((&"+", filter)), Some((_, topic))) => selects(filter, topic),
        (Some((wanted, filter)), Some((level, topic))) => wanted == level && selects(filter, topic),
        _ => false,
    }
}

fn levels(text: &str) -> Vec<&str> {
    text.split('/').collect()
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut lines = text.split('\n');
    let (Some(outer), Some(inner), Some(topic)) = (lines.next(), lines.next(), lines.next()) else {
        return;
    };
    if !is_filter(outer) || !is_filter(inner) || !is_topic(topic) {
        return;
    }
    let is_hidden = topic.starts_with('$') && outer.starts_with(['+', '#']);
    let expected = !is_hidden && selects(&levels(outer), &levels(topic));
    assert_eq!(matches(outer, topic), expected);
    if expected {
        assert!(topic.starts_with(literal_prefix(outer)));
    }
    // A filter that covers another selects all that it selects.
    if covers(outer, inner) && matches(inner, topic) {
        assert!(expected, "{outer} covers {inner}, but not {topic}");
    }
    assert!(covers(outer, outer));
});
