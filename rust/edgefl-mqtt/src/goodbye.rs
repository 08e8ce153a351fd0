//! How a connection ends: what its client is told, and what the rest of the endpoint hears.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::connection::{Connection, Ending};
use crate::event::DisconnectReason;
use crate::reason::Reason;

const GOODBYE: Duration = Duration::from_secs(2);
/// How long a peer has to show that it was alive when it was taken over.
const LINGER: Duration = Duration::from_secs(3);

impl Connection {
    /// Says goodbye, where that is due, and closes.
    pub(crate) async fn finish(mut self: Box<Self>, ending: Ending) {
        let is_there = !matches!(ending, Ending::Gone);
        let (reason, told, words) = match ending {
            Ending::Goodbye { with_will: false } => {
                (DisconnectReason::Normal, Reason::Success, None)
            }
            Ending::Goodbye { with_will: true } | Ending::Gone => {
                (DisconnectReason::Lost, Reason::Unspecified, None)
            }
            Ending::Fault(reason, words) => (DisconnectReason::Protocol, reason, Some(words)),
            Ending::Silent => (
                DisconnectReason::KeepAlive,
                Reason::KeepAliveTimeout,
                Some(""),
            ),
            Ending::Slow(words) => (DisconnectReason::Slow, Reason::ServerBusy, Some(words)),
            Ending::Told(Reason::SessionTakenOver) => (
                DisconnectReason::TakenOver,
                Reason::SessionTakenOver,
                Some(""),
            ),
            Ending::Told(reason) => (DisconnectReason::Closed, reason, Some("")),
        };
        if let (DisconnectReason::Protocol, Some(words)) = (reason, words) {
            let who = crate::hub::who(&self.session);
            let address = self.mailbox.address();
            self.hub
                .notice_refusal(Some(who), address, told, words.to_owned());
        }
        self.hub
            .detach(&self.session, &self.mailbox, reason, told.code());
        // Of what was read together with its last packet.
        while let Some((packet_id, reason)) = self.acks.next() {
            self.encode
                .publish_ack(packet_id, reason, self.outbox.head());
        }
        if let Some(words) = words {
            self.encode.disconnect(told, words, self.outbox.head());
        }
        if is_there && !self.outbox.is_empty() {
            let _ = timeout(GOODBYE, self.flush()).await;
        }
        let _ = timeout(GOODBYE, self.stream.shutdown()).await;
        if reason == DisconnectReason::TakenOver && timeout(LINGER, self.drain()).await.is_ok() {
            self.hub.note_living_takeover(&self.session);
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        let mut sent = 0;
        let Self { outbox, stream, .. } = self;
        std::future::poll_fn(|context| outbox.poll_send(stream, context, &mut sent)).await
    }

    /// Reads to the end of the stream, which only a living peer brings about.
    async fn drain(&mut self) {
        let mut bin = [0; 512];
        while matches!(self.stream.read(&mut bin).await, Ok(count) if count > 0) {}
    }
}
