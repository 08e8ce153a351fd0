//! Numbers that a client of MQTT 5 uses in place of topics. Source: MQTT 5.0, section 3.3.2.3.4.

use bytestring::ByteString;

use crate::reason::Reason;

/// The aliases of one connection, set by its client.
#[derive(Debug, Default)]
pub(crate) struct Aliases {
    topics: Vec<ByteString>,
}

impl Aliases {
    /// Returns the topic that a PUBLISH means, and remembers it.
    pub(crate) fn resolve(
        &mut self,
        topic: ByteString,
        alias: Option<u16>,
        maximum: u16,
    ) -> Result<ByteString, Reason> {
        let Some(alias) = alias else {
            return if topic.is_empty() {
                Err(Reason::ProtocolError)
            } else {
                Ok(topic)
            };
        };
        if alias == 0 || alias > maximum {
            return Err(Reason::TopicAliasInvalid);
        }
        let index = usize::from(alias) - 1;
        if topic.is_empty() {
            let known = self.topics.get(index).filter(|known| !known.is_empty());
            return known.cloned().ok_or(Reason::ProtocolError);
        }
        if self.topics.len() <= index {
            self.topics.resize(index + 1, ByteString::new());
        }
        self.topics[index] = topic.clone();
        Ok(topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_stands_for_the_last_topic_it_was_set_to() {
        let mut aliases = Aliases::default();
        let mut resolve = |topic: &'static str, alias| {
            aliases
                .resolve(ByteString::from_static(topic), alias, 3)
                .map(|topic| topic.to_string())
        };
        assert_eq!(resolve("a", Some(3)), Ok("a".into()));
        assert_eq!(resolve("", Some(3)), Ok("a".into()));
        assert_eq!(resolve("b", Some(3)), Ok("b".into()));
        assert_eq!(resolve("", Some(3)), Ok("b".into()));
        assert_eq!(resolve("", Some(2)), Err(Reason::ProtocolError));
        assert_eq!(resolve("", None), Err(Reason::ProtocolError));
        assert_eq!(resolve("c", Some(0)), Err(Reason::TopicAliasInvalid));
        assert_eq!(resolve("c", Some(4)), Err(Reason::TopicAliasInvalid));
        assert_eq!(resolve("c", None), Ok("c".into()));
    }
}
