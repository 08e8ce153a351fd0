//! What has happened since the start, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Counters; each only grows.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: AtomicU64),+
        }

        impl Counters {
            /// Every counter with its name.
            pub(crate) fn read(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed))),+]
            }
        }
    };
}

counters! {
    /// TCP connections that were accepted.
    accepted,
    /// Connections that were closed because there are too many, or too many from one address.
    turned_away,
    /// TLS or WebSocket handshakes that failed.
    failed_handshakes,
    /// CONNECT packets that were refused.
    refused_connects,
    /// Sessions that a second connection took over.
    takeovers,
    /// Messages from clients.
    messages_in,
    /// Their payloads.
    payload_bytes_in,
    /// Messages to clients.
    messages_out,
    /// Their payloads.
    payload_bytes_out,
    /// Upload chunks, which are among the messages from clients.
    chunks_in,
    /// Messages and subscriptions that the access rules refuse.
    not_authorized,
    /// Messages that found no room in a client's queue.
    dropped_full,
    /// Messages that expired before their client took them.
    dropped_expired,
    /// Messages of QoS 0 for clients that were away, or larger than a client takes.
    dropped_other,
    /// Retained messages for which there was no room.
    not_retained,
    /// Bytes of MQTT that arrived, without the framing of TLS and WebSocket.
    bytes_read,
    /// Bytes of MQTT that were sent, without that framing.
    bytes_written,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(u64::try_from(amount).unwrap_or(u64::MAX), Ordering::Relaxed);
}
