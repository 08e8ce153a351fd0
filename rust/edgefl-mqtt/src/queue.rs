//! What waits for one client, what it has not acknowledged, and what goes when there is no room.

use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Instant;

use bytestring::ByteString;

use crate::chunks::{ChunkQueue, Chunks, MOST_IN_FLIGHT, TRANSFER_ID_BYTES};
use crate::message::Message;

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

/// Messages that were not kept, each with the reason.
pub(crate) type Dropped = Vec<(Message, DropReason)>;

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

#[derive(Debug)]
struct Waiting {
    message: Message,
    qos: u8,
    retain: bool,
}

#[derive(Debug)]
struct InFlight {
    packet_id: NonZeroU16,
    message: Message,
    retain: bool,
    /// Sent on the present connection.
    is_sent: bool,
}

impl InFlight {
    fn is_chunk(&self) -> bool {
        self.message.chunk_head.is_some()
    }
}

/// The queue of one session.
#[derive(Debug)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
    in_flight: VecDeque<InFlight>,
    chunks: ChunkQueue,
    bytes: usize,
    all_bytes: Arc<AtomicUsize>,
    last_packet_id: u16,
    window: usize,
}

impl Queue {
    /// Makes an empty queue that counts into the sum over all sessions.
    pub(crate) fn new(all_bytes: Arc<AtomicUsize>) -> Self {
        Self {
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            chunks: ChunkQueue::default(),
            bytes: 0,
            all_bytes,
            last_packet_id: 0,
            window: 0,
        }
    }

    /// Begins with a new connection: what was in flight is sent again, but for chunks.
    pub(crate) fn reconnect(&mut self, window: u16) {
        self.window = window.into();
        self.forget_chunks();
        for entry in &mut self.in_flight {
            entry.is_sent = false;
        }
    }

    /// Adds a message; tells whether it was kept. What goes for it is added to `dropped`.
    pub(crate) fn push(
        &mut self,
        message: &Message,
        qos: u8,
        retain: bool,
        limits: &QueueLimits,
        dropped: &mut Dropped,
    ) -> bool {
        let cost = message.cost_bytes();
        while !self.has_room(cost, limits) {
            let Some(victim) = self.least_worth() else {
                return false;
            };
            let candidate = &self.waiting[victim];
            let is_less_worth = qos == 0 || ends_before(message, &candidate.message);
            if is_less_worth && candidate.qos != 0 {
                return false;
            }
            let Some(victim) = self.waiting.remove(victim) else {
                return false;
            };
            self.uncount(victim.message.cost_bytes());
            dropped.push((victim.message, DropReason::QueueFull));
        }
        self.bytes += cost;
        self.all_bytes.fetch_add(cost, Ordering::Relaxed);
        self.waiting.push_back(Waiting {
            message: message.clone(),
            qos,
            retain,
        });
        true
    }

    /// Adds chunks of a transfer, which are sent when nothing else waits.
    ///
    /// Their bytes are the blob's, of which they are cut one after the other: it is enough that
    /// those in flight count.
    pub(crate) fn add_chunks(&mut self, topic: &ByteString, chunks: Chunks) {
        self.chunks.add(topic, chunks);
    }

    /// Forgets a transfer; what is in flight of it goes on.
    pub(crate) fn stop_chunks(&mut self, transfer_id: [u8; TRANSFER_ID_BYTES]) {
        self.chunks.stop(transfer_id);
    }

    /// Forgets every transfer with its connection, what is in flight included: the client says what
    /// it lacks, and until it comes back a chunk would hold its blob, and room that others need.
    pub(crate) fn forget_chunks(&mut self) {
        self.chunks.clear();
        let chunks = self.in_flight.iter().filter(|entry| entry.is_chunk());
        self.uncount(chunks.map(|entry| entry.message.cost_bytes()).sum());
        self.in_flight.retain(|entry| !entry.is_chunk());
    }

    /// Takes the next message to send, if the window allows one. What has expired is dropped.
    pub(crate) fn next(&mut self, now: Instant, dropped: &mut Dropped) -> Option<Delivery> {
        if let Some(again) = self.unsent() {
            return Some(again);
        }
        loop {
            let Some(first) = self.waiting.front() else {
                return self.next_chunk(now);
            };
            let is_late = first.message.is_expired(now);
            if first.qos > 0 && !is_late && self.in_flight.len() >= self.window {
                return None;
            }
            let Waiting {
                message,
                qos,
                retain,
            } = self.waiting.pop_front()?;
            if is_late {
                self.uncount(message.cost_bytes());
                dropped.push((message, DropReason::Expired));
                continue;
            }
            if qos == 0 {
                self.uncount(message.cost_bytes());
                return Some(Delivery {
                    message,
                    packet_id: None,
                    dup: false,
                    retain,
                });
            }
            return Some(self.launch(message, retain));
        }
    }

    /// The client has a message; tells whether it was in flight.
    pub(crate) fn acknowledge(&mut self, packet_id: u16) -> bool {
        let position = self
            .in_flight
            .iter()
            .position(|entry| entry.is_sent && entry.packet_id.get() == packet_id);
        let Some(entry) = position.and_then(|index| self.in_flight.remove(index)) else {
            return false;
        };
        self.uncount(entry.message.cost_bytes());
        true
    }

    /// Messages that wait or are in flight.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.in_flight.len()
    }

    /// Their bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn has_room(&self, cost: usize, limits: &QueueLimits) -> bool {
        self.waiting.len() < limits.max_messages
            && self.bytes + cost <= limits.max_bytes
            && self.all_bytes.load(Ordering::Relaxed) + cost <= limits.max_all_bytes
    }

    /// The waiting message that is dropped first: QoS 0, then the earliest end, then the oldest.
    fn least_worth(&self) -> Option<usize> {
        let rank = |index: usize| {
            let Waiting { message, qos, .. } = &self.waiting[index];
            (*qos, message.expires.is_none(), message.expires)
        };
        (0..self.waiting.len()).min_by_key(|&index| rank(index))
    }

    fn unsent(&mut self) -> Option<Delivery> {
        let sent = self.in_flight.iter().filter(|entry| entry.is_sent).count();
        if sent >= self.window {
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

    fn next_chunk(&mut self, now: Instant) -> Option<Delivery> {
        let chunks = self.in_flight.iter().filter(|entry| entry.is_chunk());
        if chunks.count() >= MOST_IN_FLIGHT || self.in_flight.len() >= self.window {
            return None;
        }
        let message = self.chunks.next(now)?;
        let cost = message.cost_bytes();
        self.bytes += cost;
        self.all_bytes.fetch_add(cost, Ordering::Relaxed);
        Some(self.launch(message, false))
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

    fn uncount(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.all_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.all_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

fn ends_before(one: &Message, other: &Message) -> bool {
    match (one.expires, other.expires) {
        (Some(one), Some(other)) => one < other,
        (Some(_), None) => true,
        (None, _) => false,
    }
}
