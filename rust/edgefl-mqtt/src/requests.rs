//! What each packet of a client brings about.

use std::num::NonZeroU16;
use std::time::Instant;

use bytestring::ByteString;
use tokio::sync::OwnedSemaphorePermit;

use crate::connection::{fault, Connection, Ending, Stalled};
use crate::counters::add;
use crate::event::Event;
use crate::gateway::AckTo;
use crate::hub::who;
use crate::message::{after, Message};
use crate::packet::{Filter, Incoming, Publish, Version};
use crate::reason::Reason;
use crate::sink::upload_topic;
use crate::topic;

impl Connection {
    /// Handles one packet.
    pub(crate) fn handle(&mut self, packet: Incoming, now: Instant) -> Result<(), Ending> {
        match packet {
            Incoming::Publish(publish) => self.publish(*publish, now),
            Incoming::PublishAck(packet_id) => {
                self.session.acknowledge(packet_id);
                Ok(())
            }
            Incoming::Subscribe {
                packet_id,
                filters,
                has_identifier,
            } => {
                if has_identifier {
                    let words = "subscription identifiers are not offered";
                    return Err(Ending::Fault(Reason::SubscriptionIdNotSupported, words));
                }
                self.subscribe(packet_id, &filters);
                Ok(())
            }
            Incoming::Unsubscribe { packet_id, filters } => {
                self.unsubscribe(packet_id, &filters);
                Ok(())
            }
            Incoming::Ping => {
                self.encode.ping_response(self.outbox.head());
                Ok(())
            }
            Incoming::Disconnect {
                with_will,
                session_expiry_s,
            } => self.leave(with_will, session_expiry_s),
            Incoming::QosTwo => Err(Ending::Fault(
                Reason::QosNotSupported,
                "QoS 2 is not offered",
            )),
            Incoming::Auth => {
                let words = "no authentication exchange is offered";
                Err(Ending::Fault(Reason::BadAuthenticationMethod, words))
            }
            Incoming::Connect(_) => Err(Ending::Fault(Reason::ProtocolError, "a second CONNECT")),
            Incoming::Misplaced => Err(Ending::Fault(
                Reason::ProtocolError,
                "a packet that only servers send",
            )),
        }
    }

    fn leave(&mut self, with_will: bool, session_expiry_s: Option<u32>) -> Result<(), Ending> {
        if let Some(seconds) = session_expiry_s {
            let longest = self.hub.limits.max_session_expiry_s;
            let is_fault = self.session.with(|state| {
                // A session that was to end with the connection cannot be kept after all.
                let is_fault = state.expiry_s == 0 && seconds != 0;
                if !is_fault {
                    state.expiry_s = seconds.min(longest);
                }
                is_fault
            });
            if is_fault {
                let words = "a session expiry that was 0 cannot grow";
                return Err(Ending::Fault(Reason::ProtocolError, words));
            }
        }
        Err(Ending::Goodbye { with_will })
    }

    fn subscribe(&mut self, packet_id: NonZeroU16, filters: &[Filter]) {
        let mut answers = Vec::with_capacity(filters.len());
        for filter in filters {
            let answer = self.hub.subscribe(&self.session, &self.peer, filter);
            if let Err(reason) = answer {
                let detail = format!("subscription to {:.80}", &*filter.filter);
                self.hub.notice_refusal(
                    Some(who(&self.session)),
                    self.mailbox.address(),
                    reason,
                    detail,
                );
            }
            answers.push(answer);
        }
        self.encode
            .subscribe_ack(packet_id, &answers, self.outbox.head());
    }

    fn unsubscribe(&mut self, packet_id: NonZeroU16, filters: &[ByteString]) {
        let was_there: Vec<bool> = filters
            .iter()
            .map(|filter| self.hub.unsubscribe(&self.session, filter))
            .collect();
        self.encode
            .unsubscribe_ack(packet_id, &was_there, self.outbox.head());
    }

    fn publish(&mut self, publish: Publish, now: Instant) -> Result<(), Ending> {
        if publish.qos > 1 {
            return Err(Ending::Fault(
                Reason::QosNotSupported,
                "QoS 2 is not offered",
            ));
        }
        let window = usize::from(self.hub.limits.receive_maximum);
        if publish.packet_id.is_some() && self.acks.len() >= window {
            let words = "more unacknowledged messages than announced";
            return Err(Ending::Fault(Reason::ReceiveMaximumExceeded, words));
        }
        let maximum = match self.encode.version {
            Version::V3 => 0,
            Version::V5 => self.hub.limits.topic_alias_maximum,
        };
        let name = self
            .aliases
            .resolve(publish.topic, publish.topic_alias, maximum)
            .map_err(fault)?;
        if !topic::is_topic(&name) {
            return Err(Ending::Fault(
                Reason::TopicNameInvalid,
                "the topic is malformed",
            ));
        }
        add(&self.hub.counters.messages_in, 1);
        add(&self.hub.counters.payload_bytes_in, publish.payload.len());
        if !self.hub.rules.may_publish(&self.peer.role, &name) {
            return self.refuse_message(publish.packet_id, &name);
        }
        let message = Message {
            topic: name,
            chunk_head: None,
            payload: publish.payload,
            qos: publish.qos,
            retain: publish.retain,
            expires: publish.expiry_s.and_then(|seconds| after(now, seconds)),
            properties: publish.properties,
        };
        if self.stage(&message, publish.packet_id) {
            return Ok(());
        }
        self.pass_on(message, publish.packet_id);
        Ok(())
    }

    /// MQTT 5 has a reason code in the PUBACK. MQTT 3.1.1 has only the choice between a PUBACK
    /// that would mislead and the end of the connection (section 3.3.5).
    fn refuse_message(
        &mut self,
        packet_id: Option<NonZeroU16>,
        name: &ByteString,
    ) -> Result<(), Ending> {
        add(&self.hub.counters.not_authorized, 1);
        if self.encode.version == Version::V3 {
            return Err(Ending::Fault(
                Reason::NotAuthorized,
                "a topic that is not this client's",
            ));
        }
        self.hub.notice_refusal(
            Some(who(&self.session)),
            self.mailbox.address(),
            Reason::NotAuthorized,
            format!("message on {name:.80}"),
        );
        if let Some(packet_id) = packet_id {
            self.acks.open(packet_id, Some(Reason::NotAuthorized));
        }
        Ok(())
    }

    /// Gives an upload chunk to the stage; tells whether it was one.
    fn stage(&mut self, message: &Message, packet_id: Option<NonZeroU16>) -> bool {
        let Some(sink) = &self.hub.sink else {
            return false;
        };
        let Some(upload) = upload_topic(&self.hub.fleet, &message.topic) else {
            return false;
        };
        add(&self.hub.counters.chunks_in, 1);
        let answer = sink.accept(upload, message.payload.clone());
        if let Some(report) = answer.report {
            self.hub.gateway.notice(Event::Upload(report));
        }
        if let Some(packet_id) = packet_id {
            self.acks.open(packet_id, Some(answer.reason));
        }
        true
    }

    /// Routes a message; where the gateway wants it too, that waits for a place in its queue.
    fn pass_on(&mut self, message: Message, packet_id: Option<NonZeroU16>) {
        if !self.hub.gateway.wants(&message.topic) {
            let count = self.hub.route(Some(self.session.id), &message);
            let reason = if count == 0 {
                Reason::NoMatchingSubscribers
            } else {
                Reason::Success
            };
            if let Some(packet_id) = packet_id {
                self.acks.open(packet_id, Some(reason));
            }
            return;
        }
        let cost = u32::try_from(message.cost_bytes()).unwrap_or(u32::MAX);
        let stalled = Stalled {
            message,
            packet_id,
            cost,
        };
        match self
            .hub
            .gateway
            .permits()
            .clone()
            .try_acquire_many_owned(cost)
        {
            Ok(permit) => self.hand_over(stalled, Some(permit)),
            Err(_) => self.stalled = Some(Box::new(stalled)),
        }
    }

    /// Gives a message to the gateway and to every other subscriber.
    pub(crate) fn hand_over(&mut self, stalled: Stalled, permit: Option<OwnedSemaphorePermit>) {
        let Stalled {
            message, packet_id, ..
        } = stalled;
        self.hub.route(Some(self.session.id), &message);
        let ack_to = packet_id.map(|packet_id| AckTo {
            mailbox: self.mailbox.clone(),
            slot: self.acks.open(packet_id, None),
        });
        let from = who(&self.session);
        self.hub
            .gateway
            .submit(message, Some(from), false, ack_to, permit);
    }
}
