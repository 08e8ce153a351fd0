//! One client's session: its connection, what it subscribes to, its will, its queue.

use std::collections::HashMap;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytestring::ByteString;

use crate::chunks::{Chunks, TRANSFER_ID_BYTES};
use crate::lock::lock;
use crate::mailbox::Mailbox;
use crate::message::Message;
use crate::packet::Will;
use crate::queue::{Delivery, DropReason, Dropped, Queue, QueueLimits};
use crate::router::{SessionId, Subscription};

/// A connection that serves the session.
#[derive(Debug, Clone)]
pub(crate) struct Attachment {
    /// Its letter box, which tells it from earlier connections.
    pub(crate) mailbox: Arc<Mailbox>,
    /// Longest silence, in seconds.
    pub(crate) keep_alive_s: u16,
    /// Serial number of the client's certificate, in hexadecimal.
    pub(crate) serial: Option<Arc<str>>,
}

/// What changes in a session.
#[derive(Debug)]
pub(crate) struct SessionState {
    /// The connection, if there is one.
    pub(crate) attachment: Option<Attachment>,
    /// Filters, at most as many as the limits say.
    pub(crate) subscriptions: HashMap<Box<str>, Subscription>,
    /// How long the session is kept without a connection.
    pub(crate) expiry_s: u32,
    /// When it ends, while there is no connection.
    pub(crate) ends_at: Option<Instant>,
    /// What to publish when the connection breaks.
    pub(crate) will: Option<Will>,
    /// When to publish it, once the connection is broken.
    pub(crate) will_at: Option<Instant>,
    queue: Queue,
}

impl SessionState {
    /// Forgets transfers to the client: who sends them has to learn first what arrived.
    pub(crate) fn forget_chunks(&mut self) {
        self.queue.forget_chunks();
    }
}

/// A session.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its number.
    pub(crate) id: SessionId,
    /// The name that it is found under.
    pub(crate) key: String,
    /// As the client says.
    pub(crate) client_id: Arc<str>,
    /// As the link proves.
    pub(crate) identity: Option<Arc<str>>,
    state: Mutex<SessionState>,
}

impl Session {
    /// Makes an empty session, whose queue counts into the sum over all sessions.
    pub(crate) fn new(
        id: SessionId,
        key: String,
        client_id: &str,
        identity: Option<&str>,
        all_bytes: Arc<AtomicUsize>,
    ) -> Self {
        let state = SessionState {
            attachment: None,
            subscriptions: HashMap::new(),
            expiry_s: 0,
            ends_at: None,
            will: None,
            will_at: None,
            queue: Queue::new(all_bytes),
        };
        Self {
            id,
            key,
            client_id: client_id.into(),
            identity: identity.map(Into::into),
            state: Mutex::new(state),
        }
    }

    /// Looks at and changes the state; never held across waiting.
    pub(crate) fn with<T>(&self, action: impl FnOnce(&mut SessionState) -> T) -> T {
        action(&mut lock(&self.state))
    }

    /// Gives the session a new connection, which takes so many unacknowledged messages.
    pub(crate) fn attach(&self, attachment: Attachment, window: u16) {
        self.with(|state| {
            state.attachment = Some(attachment);
            state.ends_at = None;
            state.will_at = None;
            state.queue.reconnect(window);
        });
    }

    /// Queues a message and wakes the connection; returns what was dropped for it, or itself.
    pub(crate) fn push(
        &self,
        message: &Message,
        qos: u8,
        retain: bool,
        limits: &QueueLimits,
    ) -> Dropped {
        let mut dropped = Vec::new();
        let mailbox = self.with(|state| {
            let mailbox = state
                .attachment
                .as_ref()
                .map(|attachment| attachment.mailbox.clone());
            if qos == 0 && mailbox.is_none() {
                dropped.push((message.clone(), DropReason::Away));
                return None;
            }
            if !state.queue.push(message, qos, retain, limits, &mut dropped) {
                dropped.push((message.clone(), DropReason::QueueFull));
                return None;
            }
            mailbox
        });
        if let Some(mailbox) = mailbox {
            mailbox.notify();
        }
        dropped
    }

    /// Has chunks of a transfer sent, as fast as the client takes them; a transfer ends with the
    /// connection. Tells whether there is one.
    pub(crate) fn add_chunks(&self, topic: &ByteString, chunks: Chunks) -> bool {
        let mailbox = self.with(|state| {
            let mailbox = state.attachment.as_ref()?.mailbox.clone();
            state.queue.add_chunks(topic, chunks);
            Some(mailbox)
        });
        if let Some(mailbox) = &mailbox {
            mailbox.notify();
        }
        mailbox.is_some()
    }

    /// Sends no more chunks of a transfer.
    pub(crate) fn stop_chunks(&self, transfer_id: [u8; TRANSFER_ID_BYTES]) {
        self.with(|state| state.queue.stop_chunks(transfer_id));
    }

    /// Takes the next message for this connection, if it still is the session's.
    pub(crate) fn pull(
        &self,
        mailbox: &Arc<Mailbox>,
        now: Instant,
        dropped: &mut Dropped,
    ) -> Option<Delivery> {
        self.with(|state| {
            let attachment = state.attachment.as_ref()?;
            if !Arc::ptr_eq(&attachment.mailbox, mailbox) {
                return None;
            }
            state.queue.next(now, dropped)
        })
    }

    /// The client has a message; tells whether it was in flight.
    pub(crate) fn acknowledge(&self, packet_id: u16) -> bool {
        self.with(|state| state.queue.acknowledge(packet_id))
    }

    /// Messages that wait or are in flight, and their bytes.
    pub(crate) fn queued(&self) -> (usize, usize) {
        self.with(|state| (state.queue.len(), state.queue.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::num::NonZeroU16;
    use std::sync::atomic::Ordering;
    use std::time::Duration;

    const LIMITS: QueueLimits = QueueLimits {
        max_messages: 3,
        max_bytes: 100_000,
        max_all_bytes: 200_000,
    };

    fn message(name: &str, expires: Option<Instant>) -> Message {
        Message {
            topic: name.into(),
            chunk_head: None,
            payload: vec![0; 100].into(),
            qos: 1,
            retain: false,
            expires,
            properties: None,
        }
    }

    fn session() -> (Session, Arc<AtomicUsize>) {
        let all_bytes = Arc::new(AtomicUsize::new(0));
        (
            Session::new(1, "key".into(), "id", None, all_bytes.clone()),
            all_bytes,
        )
    }

    fn attach(session: &Session, window: u16) -> Arc<Mailbox> {
        let mailbox = Arc::new(Mailbox::new(([127, 0, 0, 1], 1).into()));
        session.attach(
            Attachment {
                mailbox: mailbox.clone(),
                keep_alive_s: 60,
                serial: None,
            },
            window,
        );
        mailbox
    }

    fn pull(session: &Session, mailbox: &Arc<Mailbox>) -> Option<(String, Option<u16>, bool)> {
        let delivery = session.pull(mailbox, Instant::now(), &mut Vec::new())?;
        let id = delivery.packet_id.map(NonZeroU16::get);
        Some((delivery.message.topic.to_string(), id, delivery.dup))
    }

    #[test]
    fn what_was_in_flight_comes_again_first() {
        let (session, all_bytes) = session();
        let first = attach(&session, 2);
        for name in ["a", "b", "c"] {
            assert!(session
                .push(&message(name, None), 1, false, &LIMITS)
                .is_empty());
        }
        assert_eq!(pull(&session, &first), Some(("a".into(), Some(1), false)));
        assert_eq!(pull(&session, &first), Some(("b".into(), Some(2), false)));
        assert_eq!(pull(&session, &first), None);
        assert!(session.acknowledge(1));
        assert!(!session.acknowledge(1));
        let second = attach(&session, 2);
        assert_eq!(pull(&session, &first), None);
        assert!(!session.acknowledge(2), "not sent on this connection yet");
        assert_eq!(pull(&session, &second), Some(("b".into(), Some(2), true)));
        assert_eq!(pull(&session, &second), Some(("c".into(), Some(3), false)));
        assert!(session.acknowledge(2) && session.acknowledge(3));
        assert_eq!(all_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_full_queue_drops_what_ends_first() {
        let (session, _) = session();
        let now = Instant::now();
        let soon = Some(now + Duration::from_secs(10));
        let later = Some(now + Duration::from_secs(20));
        for (name, expires) in [("keep", None), ("later", later), ("soon", soon)] {
            assert!(session
                .push(&message(name, expires), 1, false, &LIMITS)
                .is_empty());
        }
        let dropped = session.push(&message("new", None), 1, false, &LIMITS);
        assert_eq!(&*dropped[0].0.topic, "soon");
        let dropped = session.push(&message("urgent", soon), 1, false, &LIMITS);
        assert_eq!(&*dropped[0].0.topic, "urgent", "it would be the next to go");
        let dropped = session.push(&message("newer", None), 1, false, &LIMITS);
        assert_eq!(&*dropped[0].0.topic, "later");
        let dropped = session.push(&message("newest", None), 1, false, &LIMITS);
        assert_eq!(
            &*dropped[0].0.topic, "keep",
            "the oldest, where none has an end"
        );
    }

    #[test]
    fn expired_and_unwanted_messages_are_not_delivered() {
        let (session, all_bytes) = session();
        let dropped = session.push(&message("q0", None), 0, false, &LIMITS);
        assert_eq!(dropped[0].1, DropReason::Away);
        session.push(&message("late", Some(Instant::now())), 1, false, &LIMITS);
        session.push(&message("good", None), 1, false, &LIMITS);
        let mailbox = attach(&session, 5);
        assert_eq!(
            pull(&session, &mailbox),
            Some(("good".into(), Some(1), false))
        );
        drop(session);
        assert_eq!(all_bytes.load(Ordering::Relaxed), 0);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(bool),
        Pull,
        Acknowledge(u16),
        Reconnect,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<bool>().prop_map(Step::Push),
            Just(Step::Pull),
            (0u16..6).prop_map(Step::Acknowledge),
            Just(Step::Reconnect),
        ]
    }

    proptest! {
        /// Whatever happens: the window and the bounds hold, no id is used twice at once, the sums
        /// of bytes are right, and QoS 1 messages first arrive in their order.
        #[test]
        fn invariants_hold(steps in prop::collection::vec(step(), 0..60), window in 1u16..4) {
            let (session, all_bytes) = session();
            let mut mailbox = attach(&session, window);
            let mut next = 0u32;
            let mut newest = None;
            let mut open: Vec<u16> = Vec::new();
            for step in steps {
                match step {
                    Step::Push(is_lasting) => {
                        let qos = u8::from(is_lasting);
                        session.push(&message(&format!("{next:05}"), None), qos, false, &LIMITS);
                        next += 1;
                    }
                    Step::Pull => {
                        let Some((name, id, dup)) = pull(&session, &mailbox) else { continue };
                        let Some(id) = id else { continue };
                        prop_assert!(!open.contains(&id));
                        open.push(id);
                        if !dup {
                            prop_assert!(newest.as_ref() < Some(&name));
                            newest = Some(name);
                        }
                    }
                    Step::Acknowledge(index) => {
                        let id = open.get(usize::from(index)).copied().unwrap_or(60_000);
                        prop_assert_eq!(session.acknowledge(id), open.contains(&id));
                        open.retain(|&present| present != id);
                    }
                    Step::Reconnect => {
                        mailbox = attach(&session, window);
                        open.clear();
                    }
                }
                prop_assert!(open.len() <= usize::from(window));
                let (count, bytes) = session.queued();
                prop_assert!(count <= LIMITS.max_messages + usize::from(window));
                prop_assert_eq!(bytes, all_bytes.load(Ordering::Relaxed));
                prop_assert_eq!(bytes == 0, count == 0);
            }
        }
    }
}
