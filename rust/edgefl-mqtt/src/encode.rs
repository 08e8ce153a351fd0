//! What the endpoint sends, in the form of the connection's version; written by the codec crate.

use std::num::{NonZeroU16, NonZeroU32};

use bytes::{Bytes, BytesMut};
use rmqtt_codec::types::{Publish as CodecPublish, QoS};
use rmqtt_codec::v5::PublishProperties;
use rmqtt_codec::{v3, v5};
use tokio_util::codec::Encoder;

use crate::frame::{read_header, write_header, Header};
use crate::message::Message;
use crate::packet::{codec_qos, Version};
use crate::reason::Reason;

/// What a CONNACK tells a client of MQTT 5.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terms {
    /// The session was kept.
    pub(crate) session_present: bool,
    /// Where it differs from what the client asked for.
    pub(crate) session_expiry_s: Option<u32>,
    /// Where it differs from what the client asked for.
    pub(crate) keep_alive_s: Option<u16>,
    /// For a client that came without a name.
    pub(crate) assigned_client_id: Option<String>,
    /// Unacknowledged messages that the endpoint takes.
    pub(crate) receive_maximum: u16,
    /// Largest packet that it takes.
    pub(crate) max_packet_bytes: u32,
    /// Topic aliases that it takes.
    pub(crate) topic_alias_maximum: u16,
}

/// Writes packets of one version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encode {
    /// The connection's.
    pub(crate) version: Version,
}

impl Encode {
    /// Accepts a connection.
    pub(crate) fn accept(self, terms: &Terms, out: &mut BytesMut) {
        match self.version {
            Version::V3 => put_v3(
                v3::Packet::ConnectAck(v3::ConnectAck {
                    return_code: v3::ConnectAckReason::ConnectionAccepted,
                    session_present: terms.session_present,
                }),
                out,
            ),
            Version::V5 => {
                let ack = v5::ConnectAck {
                    session_present: terms.session_present,
                    session_expiry_interval_secs: terms.session_expiry_s,
                    receive_max: NonZeroU16::new(terms.receive_maximum).unwrap_or(NonZeroU16::MIN),
                    max_qos: QoS::AtLeastOnce,
                    max_packet_size: Some(terms.max_packet_bytes),
                    assigned_client_id: terms.assigned_client_id.as_deref().map(Into::into),
                    topic_alias_max: terms.topic_alias_maximum,
                    subscription_identifiers_available: false,
                    shared_subscription_available: false,
                    server_keepalive_sec: terms.keep_alive_s,
                    ..v5::ConnectAck::default()
                };
                put_v5(v5::Packet::ConnectAck(Box::new(ack)), out);
            }
        }
    }

    /// Refuses a connection.
    pub(crate) fn refuse(self, reason: Reason, detail: &str, out: &mut BytesMut) {
        match self.version {
            // A refusal is two bytes and two zeros, and the codec has no way from a code.
            Version::V3 => out.extend_from_slice(&[0x20, 2, 0, reason.connack_v3()]),
            Version::V5 => {
                let code = v5::ConnectAckReason::try_from(reason.code());
                let ack = v5::ConnectAck {
                    reason_code: code.unwrap_or(v5::ConnectAckReason::UnspecifiedError),
                    reason_string: Some(detail.into()),
                    ..v5::ConnectAck::default()
                };
                put_v5(v5::Packet::ConnectAck(Box::new(ack)), out);
            }
        }
    }

    /// Acknowledges a message.
    pub(crate) fn publish_ack(self, packet_id: NonZeroU16, reason: Reason, out: &mut BytesMut) {
        match self.version {
            Version::V3 => put_v3(v3::Packet::PublishAck { packet_id }, out),
            Version::V5 => {
                let code = v5::PublishAckReason::try_from(reason.code());
                let ack = v5::PublishAck {
                    packet_id,
                    reason_code: code.unwrap_or(v5::PublishAckReason::UnspecifiedError),
                    properties: Vec::new(),
                    reason_string: None,
                };
                put_v5(v5::Packet::PublishAck(ack), out);
            }
        }
    }

    /// Answers a SUBSCRIBE: a granted QoS or a reason for each filter.
    pub(crate) fn subscribe_ack(
        self,
        packet_id: NonZeroU16,
        answers: &[Result<u8, Reason>],
        out: &mut BytesMut,
    ) {
        match self.version {
            Version::V3 => {
                let status = answers.iter().map(|answer| match answer {
                    Ok(qos) => v3::SubscribeReturnCode::Success(codec_qos(*qos)),
                    Err(_) => v3::SubscribeReturnCode::Failure,
                });
                put_v3(
                    v3::Packet::SubscribeAck {
                        packet_id,
                        status: status.collect(),
                    },
                    out,
                );
            }
            Version::V5 => {
                let status = answers.iter().map(|answer| match answer {
                    Ok(0) => v5::SubscribeAckReason::GrantedQos0,
                    Ok(_) => v5::SubscribeAckReason::GrantedQos1,
                    Err(reason) => v5::SubscribeAckReason::try_from(reason.code())
                        .unwrap_or(v5::SubscribeAckReason::UnspecifiedError),
                });
                let ack = v5::SubscribeAck {
                    packet_id,
                    properties: Vec::new(),
                    reason_string: None,
                    status: status.collect(),
                };
                put_v5(v5::Packet::SubscribeAck(ack), out);
            }
        }
    }

    /// Answers an UNSUBSCRIBE: whether there was a subscription, for each filter.
    pub(crate) fn unsubscribe_ack(
        self,
        packet_id: NonZeroU16,
        was_there: &[bool],
        out: &mut BytesMut,
    ) {
        match self.version {
            Version::V3 => put_v3(v3::Packet::UnsubscribeAck { packet_id }, out),
            Version::V5 => {
                let status = was_there.iter().map(|was_there| {
                    if *was_there {
                        v5::UnsubscribeAckReason::Success
                    } else {
                        v5::UnsubscribeAckReason::NoSubscriptionExisted
                    }
                });
                let ack = v5::UnsubscribeAck {
                    packet_id,
                    properties: Vec::new(),
                    reason_string: None,
                    status: status.collect(),
                };
                put_v5(v5::Packet::UnsubscribeAck(ack), out);
            }
        }
    }

    /// Answers a PINGREQ.
    pub(crate) fn ping_response(self, out: &mut BytesMut) {
        match self.version {
            Version::V3 => put_v3(v3::Packet::PingResponse, out),
            Version::V5 => put_v5(v5::Packet::PingResponse, out),
        }
    }

    /// Ends a connection; MQTT 3.1.1 has no packet for it.
    pub(crate) fn disconnect(self, reason: Reason, detail: &str, out: &mut BytesMut) {
        if self.version == Version::V3 {
            return;
        }
        let code = v5::DisconnectReasonCode::try_from(reason.code());
        let packet = v5::Disconnect {
            reason_code: code.unwrap_or(v5::DisconnectReasonCode::UnspecifiedError),
            session_expiry_interval_secs: None,
            server_reference: None,
            reason_string: (!detail.is_empty()).then(|| detail.into()),
            user_properties: Vec::new(),
        };
        put_v5(v5::Packet::Disconnect(packet), out);
    }

    /// Writes a PUBLISH without its payload, which the caller sends right behind it.
    ///
    /// The codec writes the packet with an empty payload; its length is then put right. So a
    /// large payload is never copied.
    pub(crate) fn publish_head(self, publish: &Outgoing<'_>, out: &mut BytesMut) {
        let mut short = BytesMut::new();
        let packet = self.codec_publish(publish);
        match self.version {
            Version::V3 => put_v3(v3::Packet::Publish(Box::new(packet)), &mut short),
            Version::V5 => put_v5(v5::Packet::Publish(Box::new(packet)), &mut short),
        }
        let Ok(Header::Packet { total_bytes }) = read_header(&short, usize::MAX) else {
            return;
        };
        let head_bytes = short
            .iter()
            .skip(1)
            .take_while(|&&byte| byte & 0x80 != 0)
            .count()
            + 2;
        let remaining = total_bytes - head_bytes + publish.message.content_bytes();
        write_header(short[0], remaining, out);
        out.extend_from_slice(&short[head_bytes..]);
        out.extend_from_slice(publish.message.chunk_head());
    }

    fn codec_publish(self, publish: &Outgoing<'_>) -> CodecPublish {
        let properties = (self.version == Version::V5).then(|| PublishProperties {
            message_expiry_interval: publish.seconds_left.and_then(NonZeroU32::new),
            ..publish
                .message
                .properties
                .as_deref()
                .cloned()
                .unwrap_or_default()
        });
        CodecPublish {
            dup: publish.dup,
            retain: publish.retain,
            qos: if publish.packet_id.is_some() {
                QoS::AtLeastOnce
            } else {
                QoS::AtMostOnce
            },
            topic: publish.message.topic.clone(),
            packet_id: publish.packet_id,
            payload: Bytes::new(),
            properties,
        }
    }
}

/// A message to one client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outgoing<'message> {
    /// The message.
    pub(crate) message: &'message Message,
    /// Present for QoS 1.
    pub(crate) packet_id: Option<NonZeroU16>,
    /// It was sent before.
    pub(crate) dup: bool,
    /// It is a stored message, or the subscriber wants the flag.
    pub(crate) retain: bool,
    /// For MQTT 5.
    pub(crate) seconds_left: Option<u32>,
}

// The encoder refuses only packets beyond 256 MiB and publishes without an id, which none is here.
fn put_v3(packet: v3::Packet, out: &mut BytesMut) {
    let done = v3::Codec::new(0).encode(packet, out);
    debug_assert!(done.is_ok());
}

fn put_v5(packet: v5::Packet, out: &mut BytesMut) {
    let done = v5::Codec::new(0, 0).encode(packet, out);
    debug_assert!(done.is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{decode, Incoming};
    use std::sync::Arc;

    fn message(bytes: usize) -> Message {
        Message {
            topic: "efl/1/f/d/a/c".into(),
            chunk_head: None,
            payload: vec![7; bytes].into(),
            qos: 1,
            retain: false,
            expires: None,
            properties: Some(Arc::new(PublishProperties {
                response_topic: Some("back".into()),
                ..PublishProperties::default()
            })),
        }
    }

    #[test]
    fn a_publish_survives_the_detour_around_its_payload() {
        for version in [Version::V3, Version::V5] {
            for bytes in [0, 1, 120, 130, 16_384, 70_000] {
                let message = message(bytes);
                let outgoing = Outgoing {
                    message: &message,
                    packet_id: NonZeroU16::new(9),
                    dup: true,
                    retain: false,
                    seconds_left: Some(12),
                };
                let mut out = BytesMut::new();
                Encode { version }.publish_head(&outgoing, &mut out);
                out.extend_from_slice(&message.payload);
                assert_eq!(
                    read_header(&out, usize::MAX),
                    Ok(Header::Packet {
                        total_bytes: out.len()
                    })
                );
                let Ok(Incoming::Publish(found)) = decode(version, out) else {
                    panic!("no publish")
                };
                assert_eq!(found.topic, message.topic);
                assert_eq!(found.payload, message.payload);
                assert_eq!(found.packet_id, NonZeroU16::new(9));
                if version == Version::V5 {
                    assert_eq!(found.expiry_s, Some(12));
                    assert_eq!(found.properties, message.properties);
                }
            }
        }
    }

    #[test]
    fn every_reason_can_be_sent() {
        let encode = Encode {
            version: Version::V5,
        };
        for code in 0..=255 {
            let Some(reason) = Reason::from_code(code) else {
                continue;
            };
            let mut out = BytesMut::new();
            encode.disconnect(reason, "why", &mut out);
            assert_eq!(out[0], 0xE0);
            out.clear();
            encode.refuse(reason, "why", &mut out);
            assert_eq!(out[0], 0x20);
            assert!(reason == Reason::Success || out[3] >= 0x80, "{reason:?}");
        }
    }
}
