//! One client's session: what it subscribes to, what waits for it, what it has not acknowledged.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use crate::lock::lock;
use crate::mailbox::Mailbox;
use crate::message::Message;
use crate::packet::Will;
use crate::router::{SessionId, Subscription};

/// Bounds of one session's queue.
#[derive(Debug, Clone)]
// They are all upper bounds, and say so where they are used.
#[allow(clippy::struct_field_names)]
pub(crate) struct QueueLimits {
    /// Messages that wait.
    pub(crate) max_messages: usize,
    /// Sum of their sizes and of those in flight.
    pub(crate) max_bytes: usize,
    /// The same sum over all sessions.
    pub(crate) max_all_bytes: usize,
}

/// Why a message was not kept for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// QoS 0 for a client that is away.
    Away,
    /// The queue is full.
    QueueFull,
    /// It is too late.
    Expired,
    /// It is larger than the client takes.
    TooLarge,
}

/// A message for this client.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    /// The message.
    pub(crate) message: Message,
    /// Present for QoS 1.
    pub(crate) packet_id: Option<NonZeroU16>,
    /// It was sent before.
    pub(crate) dup: bool,
    /// The flag of the PUBLISH.
    pub(crate) retain: bool,
}

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
#[derive(Debug, Default)]
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
    all_bytes: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<(Message, u8, bool)>,
    in_flight: VecDeque<InFlight>,
    bytes: usize,
    last_packet_id: u16,
    max_in_flight: u16,
}

#[derive(Debug)]
struct InFlight {
    packet_id: NonZeroU16,
    message: Message,
    retain: bool,
    /// Sent on the present connection.
    is_sent: bool,
}

impl Session {
    /// Makes an empty session.
    pub(crate) fn new(
        id: SessionId,
        key: String,
        client_id: &str,
        identity: Option<&str>,
        all_bytes: Arc<AtomicUsize>,
    ) -> Self {
        Self {
            id,
            key,
            client_id: client_id.into(),
            identity: identity.map(Into::into),
            state: Mutex::default(),
            all_bytes,
        }
    }

    /// Looks at and changes the state; never held across waiting.
    pub(crate) fn with<T>(&self, action: impl FnOnce(&mut SessionState) -> T) -> T {
        action(&mut lock(&self.state))
    }

    /// Gives the session a new connection; what was in flight is sent again.
    pub(crate) fn attach(&self, attachment: Attachment, max_in_flight: u16) {
        self.with(|state| {
            state.attachment = Some(attachment);
            state.ends_at = None;
            state.will_at = None;
            state.queue.max_in_flight = max_in_flight;
            for entry in &mut state.queue.in_flight {
                entry.is_sent = false;
            }
        });
    }

    /// Queues a message and wakes the connection; returns what was dropped for it, or itself.
    pub(crate) fn push(
        &self,
        message: &Message,
        qos: u8,
        retain: bool,
        limits: &QueueLimits,
    ) -> Vec<(Message, DropReason)> {
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
            if !self.make_room(&mut state.queue, message, qos, limits, &mut dropped) {
                dropped.push((message.clone(), DropReason::QueueFull));
                return None;
            }
            self.count(&mut state.queue, message.cost_bytes());
            state
                .queue
                .waiting
                .push_back((message.clone(), qos, retain));
            mailbox
        });
        if let Some(mailbox) = mailbox {
            mailbox.notify();
        }
        dropped
    }

    /// Makes room by dropping what has the least time left; tells whether there is room now.
    fn make_room(
        &self,
        queue: &mut Queue,
        message: &Message,
        qos: u8,
        limits: &QueueLimits,
        dropped: &mut Vec<(Message, DropReason)>,
    ) -> bool {
        let cost = message.cost_bytes();
        while !self.has_room(queue, cost, limits) {
            let Some(victim) = queue.least_worth() else {
                return false;
            };
            let is_more_urgent = qos == 0 || ends_before(message, &queue.waiting[victim].0);
            if is_more_urgent && queue.waiting[victim].1 != 0 {
                return false;
            }
            let Some((victim, _, _)) = queue.waiting.remove(victim) else {
                return false;
            };
            self.uncount(queue, victim.cost_bytes());
            dropped.push((victim, DropReason::QueueFull));
        }
        true
    }

    fn has_room(&self, queue: &Queue, cost: usize, limits: &QueueLimits) -> bool {
        queue.waiting.len() < limits.max_messages
            && queue.bytes + cost <= limits.max_bytes
            && self.all_bytes.load(Ordering::Relaxed) + cost <= limits.max_all_bytes
    }

    /// Takes the next message to send on this connection, if its window allows one.
    pub(crate) fn pull(
        &self,
        mailbox: &Arc<Mailbox>,
        now: Instant,
        dropped: &mut Vec<(Message, DropReason)>,
    ) -> Option<Delivery> {
        self.with(|state| {
            let is_ours = state
                .attachment
                .as_ref()
                .is_some_and(|attachment| Arc::ptr_eq(&attachment.mailbox, mailbox));
            if !is_ours {
                return None;
            }
            if let Some(again) = state.queue.unsent() {
                return Some(again);
            }
            loop {
                let (message, qos, _) = state.queue.waiting.front()?;
                let is_late = message.is_expired(now);
                let is_held = *qos > 0 && !state.queue.has_window();
                if is_held && !is_late {
                    return None;
                }
                let (message, qos, retain) = state.queue.waiting.pop_front()?;
                if is_late {
                    self.uncount(&mut state.queue, message.cost_bytes());
                    dropped.push((message, DropReason::Expired));
                    continue;
                }
                if qos == 0 {
                    self.uncount(&mut state.queue, message.cost_bytes());
                    return Some(Delivery {
                        message,
                        packet_id: None,
                        dup: false,
                        retain,
                    });
                }
                return Some(state.queue.launch(message, retain));
            }
        })
    }

    /// The client has a message; tells whether the window has opened.
    pub(crate) fn acknowledge(&self, packet_id: u16) -> bool {
        self.with(|state| {
            let position = state
                .queue
                .in_flight
                .iter()
                .position(|entry| entry.is_sent && entry.packet_id.get() == packet_id);
            let Some(entry) = position.and_then(|index| state.queue.in_flight.remove(index)) else {
                return false;
            };
            self.uncount(&mut state.queue, entry.message.cost_bytes());
            true
        })
    }

    /// Messages that wait or are in flight, and their bytes.
    pub(crate) fn queued(&self) -> (usize, usize) {
        self.with(|state| {
            (
                state.queue.waiting.len() + state.queue.in_flight.len(),
                state.queue.bytes,
            )
        })
    }

    fn count(&self, queue: &mut Queue, bytes: usize) {
        queue.bytes += bytes;
        self.all_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn uncount(&self, queue: &mut Queue, bytes: usize) {
        queue.bytes -= bytes;
        self.all_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let bytes = lock(&self.state).queue.bytes;
        self.all_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Queue {
    /// The waiting message that is dropped first: QoS 0, then the earliest end, then the oldest.
    fn least_worth(&self) -> Option<usize> {
        let rank = |index: usize| {
            let (message, qos, _) = &self.waiting[index];
            (*qos, message.expires.is_none(), message.expires)
        };
        (0..self.waiting.len()).min_by_key(|&index| rank(index))
    }

    fn has_window(&self) -> bool {
        self.in_flight.len() < usize::from(self.max_in_flight)
    }

    fn unsent(&mut self) -> Option<Delivery> {
        let window = usize::from(self.max_in_flight);
        let sent = self.in_flight.iter().filter(|entry| entry.is_sent).count();
        if sent >= window {
            return None;
        }
        let entry = self.in_flight.iter_mut().find(|entry| !entry.is_sent)?;
        entry.is_sent = true;
        Some(Delivery {
            message: entry.message.clone(),
            packet_id: Some(entry.packet_id),
            dup: true,
            retain: entry.retain,
        })
    }

    fn launch(&mut self, message: Message, retain: bool) -> Delivery {
        let packet_id = self.next_packet_id();
        self.in_flight.push_back(InFlight {
            packet_id,
            message: message.clone(),
            retain,
            is_sent: true,
        });
        Delivery {
            message,
            packet_id: Some(packet_id),
            dup: false,
            retain,
        }
    }

    /// The next id that is not in flight; the window is far smaller than the ids are many.
    fn next_packet_id(&mut self) -> NonZeroU16 {
        loop {
            self.last_packet_id = self.last_packet_id.wrapping_add(1);
            let Some(id) = NonZeroU16::new(self.last_packet_id) else {
                continue;
            };
            if self.in_flight.iter().all(|entry| entry.packet_id != id) {
                return id;
            }
        }
    }
}

fn ends_before(one: &Message, other: &Message) -> bool {
    match (one.expires, other.expires) {
        (Some(one), Some(other)) => one < other,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    const LIMITS: QueueLimits = QueueLimits {
        max_messages: 3,
        max_bytes: 100_000,
        max_all_bytes: 200_000,
    };

    fn message(name: &str, expires: Option<Instant>) -> Message {
        Message {
            topic: name.into(),
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
