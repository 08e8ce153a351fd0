//! Retained messages, within a bound of number and bytes.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::message::Message;
use crate::topic;

/// What became of a message that was to be retained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is kept, or the topic was cleared.
    Yes,
    /// There is no room.
    NoRoom,
}

/// The last retained message of each topic.
#[derive(Debug)]
pub(crate) struct Retained {
    messages: BTreeMap<String, Message>,
    bytes: usize,
    max_messages: usize,
    max_bytes: usize,
}

impl Retained {
    /// Makes an empty store.
    pub(crate) fn new(max_messages: usize, max_bytes: usize) -> Self {
        Self {
            messages: BTreeMap::new(),
            bytes: 0,
            max_messages,
            max_bytes,
        }
    }

    /// Keeps a message in place of its topic's last one; an empty payload clears the topic.
    pub(crate) fn keep(&mut self, message: &Message) -> Kept {
        let present = self.messages.get(&*message.topic).map(Message::cost_bytes);
        if message.payload.is_empty() {
            self.remove(&message.topic);
            return Kept::Yes;
        }
        let bytes = self.bytes - present.unwrap_or(0) + message.cost_bytes();
        let count = self.messages.len() + usize::from(present.is_none());
        if bytes > self.max_bytes || count > self.max_messages {
            return Kept::NoRoom;
        }
        self.bytes = bytes;
        self.messages
            .insert(message.topic.to_string(), message.clone());
        Kept::Yes
    }

    /// Returns what a filter selects, in the order of topics.
    pub(crate) fn matching(&self, filter: &str, now: Instant) -> Vec<Message> {
        if !topic::has_wildcard(filter) {
            let found = self
                .messages
                .get(filter)
                .filter(|message| !message.is_expired(now));
            return found.cloned().into_iter().collect();
        }
        let prefix = topic::literal_prefix(filter);
        self.messages
            .range(prefix.to_owned()..)
            .take_while(|(name, _)| name.starts_with(prefix))
            .filter(|(name, message)| topic::matches(filter, name) && !message.is_expired(now))
            .map(|(_, message)| message.clone())
            .collect()
    }

    /// Drops what is too late.
    pub(crate) fn expire(&mut self, now: Instant) {
        let late: Vec<String> = self
            .messages
            .iter()
            .filter(|(_, message)| message.is_expired(now))
            .map(|(name, _)| name.clone())
            .collect();
        for name in late {
            self.remove(&name);
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// What they count for.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn remove(&mut self, name: &str) {
        if let Some(message) = self.messages.remove(name) {
            self.bytes -= message.cost_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::time::Duration;

    fn message(topic: &str, payload: &'static [u8]) -> Message {
        Message {
            topic: topic.into(),
            chunk_head: None,
            payload: Bytes::from_static(payload),
            qos: 1,
            retain: true,
            expires: None,
            properties: None,
        }
    }

    fn topics(found: &[Message]) -> Vec<&str> {
        found.iter().map(|message| &*message.topic).collect()
    }

    #[test]
    fn keeps_the_last_and_clears_on_an_empty_payload() {
        let mut retained = Retained::new(10, 10_000);
        assert_eq!(retained.keep(&message("a/b", b"1")), Kept::Yes);
        assert_eq!(retained.keep(&message("a/b", b"22")), Kept::Yes);
        let found = retained.matching("a/+", Instant::now());
        assert_eq!(found.len(), 1);
        assert_eq!(&found[0].payload[..], b"22");
        retained.keep(&message("a/b", b""));
        assert_eq!((retained.len(), retained.bytes()), (0, 0));
    }

    #[test]
    fn a_parent_is_selected_and_a_sibling_is_not() {
        let mut retained = Retained::new(10, 10_000);
        for name in ["m", "m/a", "m-x", "m/b/c", "n"] {
            retained.keep(&message(name, b"1"));
        }
        assert_eq!(
            topics(&retained.matching("m/#", Instant::now())),
            ["m", "m/a", "m/b/c"]
        );
        assert_eq!(retained.matching("#", Instant::now()).len(), 5);
    }

    #[test]
    fn the_bound_holds_and_frees_itself() {
        let mut retained = Retained::new(2, 10_000);
        assert_eq!(retained.keep(&message("a", b"1")), Kept::Yes);
        assert_eq!(retained.keep(&message("b", b"1")), Kept::Yes);
        assert_eq!(retained.keep(&message("c", b"1")), Kept::NoRoom);
        assert_eq!(retained.keep(&message("b", b"2")), Kept::Yes);
        let mut late = message("a", b"3");
        late.expires = Some(Instant::now());
        retained.keep(&late);
        retained.expire(Instant::now() + Duration::from_secs(1));
        assert_eq!(retained.keep(&message("c", b"1")), Kept::Yes);
    }
}
