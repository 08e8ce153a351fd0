//! An application message on its way through the endpoint, and how long it has left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use bytestring::ByteString;
use rmqtt_codec::v5::PublishProperties;

use crate::chunks::ChunkHead;

/// What queues count for a message beyond its topic and payload.
const OVERHEAD_BYTES: usize = 128;

/// A message, shared by all queues that hold it.
#[derive(Clone)]
pub(crate) struct Message {
    /// Where it was published.
    pub(crate) topic: ByteString,
    /// What its content begins with, where the rest is a part of a blob that many share.
    pub(crate) chunk_head: Option<ChunkHead>,
    /// Its content; never in a log.
    pub(crate) payload: Bytes,
    /// 0 or 1.
    pub(crate) qos: u8,
    /// As published, for subscribers that want to know.
    pub(crate) retain: bool,
    /// When it is too late to deliver it.
    pub(crate) expires: Option<Instant>,
    /// Properties of MQTT 5 that are passed on unchanged.
    pub(crate) properties: Option<Arc<PublishProperties>>,
}

impl Message {
    /// What its content begins with, before `payload`.
    pub(crate) fn chunk_head(&self) -> &[u8] {
        self.chunk_head.as_ref().map_or(&[], |head| head.as_slice())
    }

    /// Size of its content.
    pub(crate) fn content_bytes(&self) -> usize {
        self.chunk_head().len() + self.payload.len()
    }

    /// What it counts for in a bound.
    pub(crate) fn cost_bytes(&self) -> usize {
        self.topic.len() + self.content_bytes() + OVERHEAD_BYTES
    }

    /// Whether it is too late.
    pub(crate) fn is_expired(&self, now: Instant) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Whole seconds that it has left, at least 1, for the property of MQTT 5.
    pub(crate) fn seconds_left(&self, now: Instant) -> Option<u32> {
        let left = self
            .expires?
            .saturating_duration_since(now)
            .as_secs_f64()
            .ceil();
        // Clamped to the type's range before.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let seconds = left.clamp(1.0, f64::from(u32::MAX)) as u32;
        Some(seconds)
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            formatter,
            "Message({} bytes on {})",
            self.payload.len(),
            self.topic
        )
    }
}

/// The moment that lies this many seconds ahead, or never where that is out of the clock's range.
pub(crate) fn after(now: Instant, seconds: u32) -> Option<Instant> {
    now.checked_add(Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(expires: Option<Instant>) -> Message {
        Message {
            topic: ByteString::from_static("t"),
            chunk_head: None,
            payload: Bytes::from_static(b"secret"),
            qos: 1,
            retain: false,
            expires,
            properties: None,
        }
    }

    #[test]
    fn time_left_is_rounded_up_and_ends() {
        let now = Instant::now();
        let short = message(Some(now + Duration::from_millis(1_500)));
        assert_eq!(short.seconds_left(now), Some(2));
        assert!(!short.is_expired(now));
        assert!(short.is_expired(now + Duration::from_millis(1_500)));
        assert_eq!(message(None).seconds_left(now), None);
    }

    #[test]
    fn a_payload_is_not_shown() {
        assert!(!format!("{:?}", message(None)).contains("secret"));
    }
}
