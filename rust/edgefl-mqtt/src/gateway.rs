//! The gateway's own place in the endpoint: a bounded queue of events, and tickets for PUBACKs.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::event::{Event, Ticket, Who};
use crate::lock::lock;
use crate::mailbox::{Mailbox, Slot};
use crate::message::Message;
use crate::reason::Reason;
use crate::topic;

/// Events other than messages that wait at most; the bound on messages is one of bytes.
const MAX_NOTICES: usize = 20_000;

/// Where an acknowledgement goes.
#[derive(Debug)]
pub(crate) struct AckTo {
    /// The connection.
    pub(crate) mailbox: Arc<Mailbox>,
    /// Its place in the order of PUBACKs.
    pub(crate) slot: Slot,
}

/// The gateway's place.
#[derive(Debug)]
pub(crate) struct Gateway {
    queue: Mutex<Queue>,
    open: Mutex<HashMap<Ticket, Open>>,
    next_ticket: AtomicU64,
    filters: Mutex<Vec<String>>,
    permits: Arc<Semaphore>,
    /// Readable while events wait.
    signal: UnixStream,
    lost_notices: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    events: VecDeque<(Event, Option<OwnedSemaphorePermit>)>,
    notices: usize,
    wake: UnixStream,
}

/// A message that waits for its acknowledgement; the permit is its place in the bound.
#[derive(Debug)]
struct Open {
    ack_to: AckTo,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Gateway {
    /// Makes an empty queue.
    ///
    /// # Errors
    /// The system has no more file descriptors.
    pub(crate) fn new(max_bytes: usize) -> std::io::Result<Self> {
        let (signal, wake) = UnixStream::pair()?;
        signal.set_nonblocking(true)?;
        wake.set_nonblocking(true)?;
        Ok(Self {
            queue: Mutex::new(Queue {
                events: VecDeque::new(),
                notices: 0,
                wake,
            }),
            open: Mutex::default(),
            next_ticket: AtomicU64::new(1),
            filters: Mutex::default(),
            permits: Arc::new(Semaphore::new(max_bytes)),
            signal,
            lost_notices: AtomicU64::new(0),
        })
    }

    /// Readable while events wait.
    pub(crate) fn signal(&self) -> &UnixStream {
        &self.signal
    }

    /// One permit is one byte that waits for the gateway.
    pub(crate) fn permits(&self) -> &Arc<Semaphore> {
        &self.permits
    }

    /// Adds a filter; tells whether it is new.
    pub(crate) fn subscribe(&self, filter: &str) -> bool {
        let mut filters = lock(&self.filters);
        let is_new = !filters.iter().any(|present| present == filter);
        if is_new {
            filters.push(filter.to_owned());
        }
        is_new
    }

    /// Whether the gateway wants messages of a topic.
    pub(crate) fn wants(&self, name: &str) -> bool {
        lock(&self.filters)
            .iter()
            .any(|filter| topic::matches(filter, name))
    }

    /// Hands a message over. With `ack_to`, its PUBACK waits for `acknowledge`.
    pub(crate) fn submit(
        &self,
        message: Message,
        from: Option<Who>,
        retained: bool,
        ack_to: Option<AckTo>,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let (ticket, permit) = match ack_to {
            None => (None, permit),
            Some(ack_to) => {
                let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
                lock(&self.open).insert(
                    ticket,
                    Open {
                        ack_to,
                        _permit: permit,
                    },
                );
                (Some(ticket), None)
            }
        };
        let Message { topic, payload, .. } = message;
        self.push(
            Event::Message {
                ticket,
                topic,
                payload,
                from,
                retained,
            },
            permit,
        );
    }

    /// Tells something that is no message. Beyond a bound it is counted and lost.
    pub(crate) fn notice(&self, event: Event) {
        self.push(event, None);
    }

    fn push(&self, event: Event, permit: Option<OwnedSemaphorePermit>) {
        let is_notice = !matches!(event, Event::Message { .. });
        let mut queue = lock(&self.queue);
        if is_notice {
            if queue.notices >= MAX_NOTICES {
                self.lost_notices.fetch_add(1, Ordering::Relaxed);
                return;
            }
            queue.notices += 1;
        }
        let was_empty = queue.events.is_empty();
        queue.events.push_back((event, permit));
        if was_empty {
            // A full pipe means that the reader has been woken already.
            let _ = queue.wake.write(&[1]);
        }
    }

    /// Takes up to `max` events.
    pub(crate) fn take(&self, max: usize) -> Vec<Event> {
        let mut queue = lock(&self.queue);
        let count = max.min(queue.events.len());
        let taken: Vec<Event> = queue
            .events
            .drain(..count)
            .map(|(event, _)| event)
            .collect();
        queue.notices -= taken
            .iter()
            .filter(|event| !matches!(event, Event::Message { .. }))
            .count();
        if queue.events.is_empty() {
            let mut bin = [0; 64];
            while (&self.signal)
                .read(&mut bin)
                .is_ok_and(|count| count == bin.len())
            {}
        }
        taken
    }

    /// Lets the PUBACKs of these messages go out. Unknown tickets are ignored: their connection is
    /// gone, or they were acknowledged before.
    pub(crate) fn acknowledge(&self, tickets: &[Ticket], reason: Reason) {
        let mut open = lock(&self.open);
        let done: Vec<Open> = tickets
            .iter()
            .filter_map(|ticket| open.remove(ticket))
            .collect();
        drop(open);
        for entry in done {
            entry.ack_to.mailbox.acknowledge(entry.ack_to.slot, reason);
        }
    }

    /// Messages that wait for their acknowledgement.
    pub(crate) fn open_count(&self) -> usize {
        lock(&self.open).len()
    }

    /// Events that wait.
    pub(crate) fn queued_count(&self) -> usize {
        lock(&self.queue).events.len()
    }

    /// Events that were lost because nobody took them.
    pub(crate) fn lost_count(&self) -> u64 {
        self.lost_notices.load(Ordering::Relaxed)
    }
}
