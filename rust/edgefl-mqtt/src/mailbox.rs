//! How the rest of the endpoint reaches the task of one connection.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::lock::lock;
use crate::reason::Reason;

/// Number of a message that a connection has yet to acknowledge, counted from 0.
pub(crate) type Slot = u64;

/// What has arrived for a connection since it last looked.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// Acknowledgements that may be sent now.
    pub(crate) acknowledged: Vec<(Slot, Reason)>,
    /// The session has got messages.
    pub(crate) has_messages: bool,
    /// The connection has to end.
    pub(crate) end: Option<Reason>,
}

/// A connection's letter box; its task is woken by each letter.
#[derive(Debug)]
pub(crate) struct Mailbox {
    address: SocketAddr,
    started: Instant,
    heard_ms: AtomicU64,
    inner: Mutex<(Mail, Option<Waker>)>,
}

impl Mailbox {
    /// Makes an empty one.
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            started: Instant::now(),
            heard_ms: AtomicU64::new(0),
            inner: Mutex::default(),
        }
    }

    /// The peer's address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Notes that the peer was heard from.
    pub(crate) fn hear(&self, now: Instant) {
        let since = now.saturating_duration_since(self.started).as_millis();
        self.heard_ms
            .store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How long ago that was.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        let heard = Duration::from_millis(self.heard_ms.load(Ordering::Relaxed));
        now.saturating_duration_since(self.started)
            .saturating_sub(heard)
    }

    /// Lets the connection acknowledge a message.
    pub(crate) fn acknowledge(&self, slot: Slot, reason: Reason) {
        self.put(|mail| mail.acknowledged.push((slot, reason)));
    }

    /// Tells that the session has got messages.
    pub(crate) fn notify(&self) {
        self.put(|mail| mail.has_messages = true);
    }

    /// Ends the connection; the first reason counts.
    pub(crate) fn end(&self, reason: Reason) {
        self.put(|mail| {
            mail.end.get_or_insert(reason);
        });
    }

    /// Takes what is there and remembers whom to wake for the next letter.
    pub(crate) fn take(&self, waker: &Waker) -> Mail {
        let mut inner = lock(&self.inner);
        if !inner
            .1
            .as_ref()
            .is_some_and(|present| present.will_wake(waker))
        {
            inner.1 = Some(waker.clone());
        }
        std::mem::take(&mut inner.0)
    }

    fn put(&self, change: impl FnOnce(&mut Mail)) {
        let waker = {
            let mut inner = lock(&self.inner);
            change(&mut inner.0);
            inner.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
