//! One open connection: a single task that reads, answers, delivers and watches the time.
//!
//! The task never waits in one place. It is woken by the socket, by its letter box, by a place
//! that has become free in the gateway's queue, or by its timer; then it does whatever can be
//! done, and sleeps again. While a message of this client waits for a place, its socket is not
//! read: that is the back-pressure.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tokio_util::sync::PollSemaphore;

use crate::acks::Acks;
use crate::acl::Peer;
use crate::aliases::Aliases;
use crate::counters::add;
use crate::encode::{Encode, Outgoing};
use crate::handshake::Greeted;
use crate::hub::Hub;
use crate::inbox::{Found, Inbox, Reading, SMALL_BYTES};
use crate::lifecycle::silence_allowed;
use crate::mailbox::Mailbox;
use crate::message::Message;
use crate::outbox::Outbox;
use crate::packet::{decode, Version};
use crate::queue::{Delivery, DropReason};
use crate::reason::Reason;
use crate::session::Session;
use crate::stream::BoxedStream;

/// Packets that one turn handles before other connections get theirs.
const PACKETS_PER_TURN: usize = 32;
/// Acknowledgements that wait for one write while there is more to read.
const MOST_HELD_ACKS: usize = 16;
/// A client that does not take its answers is not read.
const MAX_UNSENT_BYTES: usize = 32_768;
/// Of the largest size, for reading much at a time: more than there are threads.
const ROOM_FOR_PACKETS: usize = 16;
const LONGEST_SLEEP: Duration = Duration::from_secs(86_400);
/// A packet must be whole after this time and what its size adds.
const PACKET_TIME: Duration = Duration::from_secs(20);

/// Why a connection ends.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The client said so.
    Goodbye {
        /// Its will shall be sent.
        with_will: bool,
    },
    /// It is gone.
    Gone,
    /// It broke a rule.
    Fault(Reason, &'static str),
    /// Silent for too long.
    Silent,
    /// Too slow in sending or taking.
    Slow(&'static str),
    /// The rest of the endpoint ends it.
    Told(Reason),
}

/// A message that waits for its place in the gateway's queue.
pub(crate) struct Stalled {
    pub(crate) message: Message,
    pub(crate) packet_id: Option<std::num::NonZeroU16>,
    pub(crate) cost: u32,
}

/// An open connection.
pub(crate) struct Connection {
    pub(crate) hub: Arc<Hub>,
    pub(crate) session: Arc<Session>,
    pub(crate) peer: Peer,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) encode: Encode,
    pub(crate) acks: Acks,
    pub(crate) aliases: Aliases,
    pub(crate) outbox: Outbox,
    pub(crate) stalled: Option<Box<Stalled>>,
    pub(crate) stream: BoxedStream,
    inbox: Inbox,
    places: PollSemaphore,
    partial: PollSemaphore,
    partial_permit: Option<OwnedSemaphorePermit>,
    max_packet_bytes: usize,
    keep_alive_s: u16,
    heard: Instant,
    packet_by: Option<Instant>,
    sent_by: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

type Step = Result<bool, Ending>;

impl Connection {
    /// Begins to serve a session.
    pub(crate) fn new(
        hub: Arc<Hub>,
        stream: BoxedStream,
        greeted: Greeted,
        partial: PollSemaphore,
    ) -> Box<Self> {
        let now = Instant::now();
        Box::new(Self {
            places: PollSemaphore::new(hub.gateway.permits().clone()),
            session: greeted.opened.session,
            peer: greeted.peer,
            mailbox: greeted.mailbox,
            encode: Encode {
                version: greeted.version,
            },
            acks: Acks::default(),
            aliases: Aliases::default(),
            outbox: Outbox::default(),
            stalled: None,
            stream,
            inbox: greeted.inbox,
            partial,
            partial_permit: None,
            max_packet_bytes: greeted.max_packet_bytes,
            keep_alive_s: greeted.opened.keep_alive_s,
            heard: now,
            packet_by: None,
            sent_by: None,
            timer: Box::pin(tokio::time::sleep(silence_allowed(
                greeted.opened.keep_alive_s,
            ))),
            hub,
        })
    }

    /// Serves it to its end. What its future holds is there for as long as the connection.
    pub(crate) async fn serve(mut self: Box<Self>) {
        let ending = std::future::poll_fn(|context| self.poll(context)).await;
        Box::pin(self.finish(ending)).await;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Ending> {
        for turn in 1..=PACKETS_PER_TURN {
            match self.turn(context, turn == PACKETS_PER_TURN) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(ending) => return Poll::Ready(ending),
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Does one round of what can be done; tells whether there was anything.
    fn turn(&mut self, context: &mut Context<'_>, is_last: bool) -> Step {
        let now = Instant::now();
        self.open_mail(context)?;
        let mut progress = self.read(context, now)?;
        // What has arrived is handled first: its acknowledgements then share one write.
        if progress && !is_last && self.outbox.is_empty() && self.acks.len() < MOST_HELD_ACKS {
            return Ok(true);
        }
        let was_paused = self.is_reading_paused();
        self.prepare(now);
        self.write(context, now)?;
        // What was sent may have made room for more, or for reading again.
        progress |= was_paused && !self.is_reading_paused();
        progress |= self.outbox.is_empty() && self.prepare(now);
        self.watch(context, now)?;
        Ok(progress)
    }

    fn open_mail(&mut self, context: &mut Context<'_>) -> Result<(), Ending> {
        let mail = self.mailbox.take(context.waker());
        if let Some(reason) = mail.end {
            return Err(Ending::Told(reason));
        }
        for (slot, reason) in mail.acknowledged {
            self.acks.close(slot, reason);
        }
        Ok(())
    }

    /// Handles one packet or reads once.
    fn read(&mut self, context: &mut Context<'_>, now: Instant) -> Step {
        if !self.place_stalled(context) || self.is_reading_paused() {
            self.inbox.settle();
            return Ok(false);
        }
        let mut reading = self.reading();
        match self
            .inbox
            .next(self.hub.limits.max_packet_bytes)
            .map_err(fault)?
        {
            Found::Packet(packet) => {
                self.packet_by = None;
                self.partial_permit = None;
                let packet = decode(self.encode.version, packet).map_err(fault)?;
                self.handle(packet, now)?;
                return Ok(true);
            }
            Found::Part { total_bytes } if total_bytes > SMALL_BYTES => {
                if !self.may_reserve(context, total_bytes, now) {
                    self.inbox.settle();
                    return Ok(false);
                }
                reading = Reading::Direct;
            }
            Found::Part { total_bytes } => self.expect_packet(total_bytes, now),
            Found::Nothing if self.inbox.is_empty() => {}
            Found::Nothing => self.expect_packet(0, now),
        }
        match self.inbox.poll_fill(&mut self.stream, context, reading) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(0) | Err(_)) => Err(Ending::Gone),
            Poll::Ready(Ok(count)) => {
                add(&self.hub.counters.bytes_read, count);
                self.heard = now;
                self.mailbox.hear(now);
                Ok(true)
            }
        }
    }

    /// Reads much at a time while all that may turn out to be in it surely finds room.
    fn reading(&self) -> Reading {
        let room = [&self.partial, &self.places].map(PollSemaphore::available_permits);
        let wanted = ROOM_FOR_PACKETS * self.hub.limits.max_packet_bytes;
        if room.into_iter().all(|permits| permits >= wanted) {
            Reading::Wide
        } else {
            Reading::Careful
        }
    }

    fn is_reading_paused(&self) -> bool {
        let window = usize::from(self.hub.limits.receive_maximum);
        // MQTT 3.1.1 has no word for the window, so it is kept by not reading.
        let is_full = self.encode.version == Version::V3 && self.acks.len() >= window;
        is_full || self.outbox.len() > MAX_UNSENT_BYTES
    }

    /// Hands over the message that waits for a place; tells whether none waits any more.
    fn place_stalled(&mut self, context: &mut Context<'_>) -> bool {
        let Some(cost) = self.stalled.as_ref().map(|stalled| stalled.cost) else {
            return true;
        };
        match self.places.poll_acquire_many(context, cost) {
            Poll::Pending => false,
            Poll::Ready(permit) => {
                if let Some(stalled) = self.stalled.take() {
                    self.hand_over(*stalled, permit);
                }
                true
            }
        }
    }

    /// Gets a large packet's place among all that are on their way.
    fn may_reserve(&mut self, context: &mut Context<'_>, total_bytes: usize, now: Instant) -> bool {
        if self.partial_permit.is_none() {
            let permits = u32::try_from(total_bytes).unwrap_or(u32::MAX);
            let Poll::Ready(permit) = self.partial.poll_acquire_many(context, permits) else {
                return false;
            };
            self.partial_permit = permit;
            self.inbox.reserve(total_bytes);
        }
        self.expect_packet(total_bytes, now);
        true
    }

    fn expect_packet(&mut self, total_bytes: usize, now: Instant) {
        let slowest_s = total_bytes / self.hub.limits.least_bytes_per_s.max(1);
        let time = PACKET_TIME + Duration::from_secs(slowest_s as u64);
        self.packet_by.get_or_insert(now + time);
    }

    /// Fills the outbox: acknowledgements first, then messages. Tells whether it has anything.
    fn prepare(&mut self, now: Instant) -> bool {
        while self.outbox.has_room() {
            if let Some((packet_id, reason)) = self.acks.next() {
                self.encode
                    .publish_ack(packet_id, reason, self.outbox.head());
                continue;
            }
            let mut dropped = Vec::new();
            let delivery = self.session.pull(&self.mailbox, now, &mut dropped);
            self.hub.report_drops(&self.session, dropped);
            let Some(delivery) = delivery else { break };
            let message = &delivery.message;
            // The head is a topic, properties and less than 16 bytes beside them.
            if message.cost_bytes() > self.max_packet_bytes {
                self.refuse_to_send(&delivery);
                continue;
            }
            let outgoing = Outgoing {
                message,
                packet_id: delivery.packet_id,
                dup: delivery.dup,
                retain: delivery.retain,
                seconds_left: message.seconds_left(now),
            };
            self.encode.publish_head(&outgoing, self.outbox.head());
            add(&self.hub.counters.messages_out, 1);
            add(
                &self.hub.counters.payload_bytes_out,
                message.content_bytes(),
            );
            self.outbox.append(message.payload.clone());
        }
        !self.outbox.is_empty()
    }

    /// Drops a message that the client has said it does not take. Source: MQTT 5.0, section 3.1.2.11.4.
    fn refuse_to_send(&self, delivery: &Delivery) {
        if let Some(packet_id) = delivery.packet_id {
            self.session.acknowledge(packet_id.get());
        }
        let dropped = vec![(delivery.message.clone(), DropReason::TooLarge)];
        self.hub.report_drops(&self.session, dropped);
    }

    fn write(&mut self, context: &mut Context<'_>, now: Instant) -> Result<(), Ending> {
        let mut sent = 0;
        let done = self.outbox.poll_send(&mut self.stream, context, &mut sent);
        add(&self.hub.counters.bytes_written, sent);
        match done {
            Poll::Ready(Ok(())) => self.sent_by = None,
            Poll::Ready(Err(_)) => return Err(Ending::Gone),
            Poll::Pending => {
                let until = now + self.hub.limits.write_stall;
                if sent > 0 || self.sent_by.is_none() {
                    self.sent_by = Some(until);
                }
            }
        }
        Ok(())
    }

    /// Checks every time limit, and sets the timer to the next.
    fn watch(&mut self, context: &mut Context<'_>, now: Instant) -> Result<(), Ending> {
        if self.packet_by.is_some_and(|by| by <= now) {
            return Err(Ending::Slow("a packet took too long to arrive"));
        }
        if self.sent_by.is_some_and(|by| by <= now) {
            return Err(Ending::Slow("the client takes nothing"));
        }
        // While its bytes are not read, its silence says nothing.
        if self.stalled.is_some() || self.is_reading_paused() {
            self.heard = now;
        }
        let silent_at = self.heard + silence_allowed(self.keep_alive_s);
        if silent_at <= now {
            return Err(Ending::Silent);
        }
        let next = [self.packet_by, self.sent_by]
            .into_iter()
            .flatten()
            .fold(silent_at, Instant::min);
        // Moving a timer costs; one that fires early does no harm.
        let set_for = self.timer.deadline().into_std();
        if next < set_for || set_for <= now {
            self.timer
                .as_mut()
                .reset(next.min(now + LONGEST_SLEEP).into());
        }
        if self.timer.as_mut().poll(context).is_ready() {
            context.waker().wake_by_ref();
        }
        Ok(())
    }
}

pub(crate) fn fault(reason: Reason) -> Ending {
    let words = match reason {
        Reason::PacketTooLarge => "the packet is larger than allowed",
        Reason::MalformedPacket => "the packet cannot be read",
        _ => "",
    };
    Ending::Fault(reason, words)
}
