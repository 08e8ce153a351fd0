//! What clients send, in one form for MQTT 3.1.1 and 5; parsed by the codec crate.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use bytestring::ByteString;
use rmqtt_codec::error::DecodeError;
use rmqtt_codec::types::{Publish as CodecPublish, QoS, MQTT_LEVEL_311};
use rmqtt_codec::v5::PublishProperties;
use rmqtt_codec::{v3, v5};
use tokio_util::codec::Decoder;

use crate::reason::Reason;

/// Smaller payloads are copied out of the read buffer, so that they do not keep all of it.
const COPY_BELOW_BYTES: usize = 4_096;

/// The protocol of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// MQTT 3.1.1.
    V3,
    /// MQTT 5.
    V5,
}

/// A message that the endpoint sends when a connection ends without a normal DISCONNECT.
#[derive(Debug, Clone)]
pub struct Will {
    /// Where.
    pub topic: ByteString,
    /// What.
    pub payload: Bytes,
    /// 0 or 1; 2 is refused by the caller.
    pub qos: u8,
    /// Whether to retain it.
    pub retain: bool,
    /// How long to wait for the client to come back.
    pub delay_s: u32,
    /// How long it is worth delivering.
    pub expiry_s: Option<u32>,
    /// Properties that are passed on.
    pub properties: Option<Arc<PublishProperties>>,
}

/// A CONNECT.
#[derive(Debug)]
pub struct Connect {
    /// Protocol.
    pub version: Version,
    /// Begin with an empty session.
    pub clean_start: bool,
    /// 0 means none.
    pub keep_alive_s: u16,
    /// May be empty.
    pub client_id: ByteString,
    /// How long to keep the session; for MQTT 3.1.1 0 or for ever.
    pub session_expiry_s: u32,
    /// Unacknowledged messages that the client takes.
    pub receive_maximum: u16,
    /// Largest packet that it takes.
    pub max_packet_bytes: usize,
    /// Its will.
    pub will: Option<Will>,
    /// It wants an authentication exchange.
    pub has_auth_method: bool,
}

/// A PUBLISH.
#[derive(Debug)]
pub struct Publish {
    /// Empty where an alias stands for it.
    pub topic: ByteString,
    /// Content.
    pub payload: Bytes,
    /// 0 to 2.
    pub qos: u8,
    /// Whether to retain it.
    pub retain: bool,
    /// For QoS above 0.
    pub packet_id: Option<NonZeroU16>,
    /// A number for the topic.
    pub topic_alias: Option<u16>,
    /// How long it is worth delivering.
    pub expiry_s: Option<u32>,
    /// Properties that are passed on.
    pub properties: Option<Arc<PublishProperties>>,
}

/// One filter of a SUBSCRIBE.
#[derive(Debug)]
pub struct Filter {
    /// The filter.
    pub filter: ByteString,
    /// 0 to 2.
    pub qos: u8,
    /// Not for own messages.
    pub no_local: bool,
    /// Keep the flag of retained messages.
    pub retain_as_published: bool,
    /// When to replay retained messages: 0 always, 1 for a new subscription, 2 never.
    pub retain_handling: u8,
}

/// Anything that a client may send.
#[derive(Debug)]
pub enum Incoming {
    /// Opens the session.
    Connect(Box<Connect>),
    /// A message.
    Publish(Box<Publish>),
    /// The client has a message of QoS 1.
    PublishAck(u16),
    /// Asks for messages.
    Subscribe {
        /// Echoed in the SUBACK.
        packet_id: NonZeroU16,
        /// What for.
        filters: Vec<Filter>,
        /// A subscription identifier was given.
        has_identifier: bool,
    },
    /// No longer asks for messages.
    Unsubscribe {
        /// Echoed in the UNSUBACK.
        packet_id: NonZeroU16,
        /// What for.
        filters: Vec<ByteString>,
    },
    /// Still there.
    Ping,
    /// Ends the connection.
    Disconnect {
        /// The will shall be sent nevertheless.
        with_will: bool,
        /// Changes how long the session is kept.
        session_expiry_s: Option<u32>,
    },
    /// A packet of QoS 2's exchange.
    QosTwo,
    /// An authentication exchange.
    Auth,
    /// A packet that only servers send.
    Misplaced,
}

/// Tells which protocol a CONNECT packet speaks.
///
/// # Errors
/// It is no CONNECT, or of another version.
pub fn version_of(packet: &[u8]) -> Result<Version, Reason> {
    if packet.first() != Some(&0x10) {
        return Err(Reason::ProtocolError);
    }
    let header_bytes = packet
        .iter()
        .skip(1)
        .take_while(|&&byte| byte & 0x80 != 0)
        .count()
        + 2;
    let body = packet.get(header_bytes..).unwrap_or_default();
    match body {
        [0, 4, b'M', b'Q', b'T', b'T', 4, ..] => Ok(Version::V3),
        [0, 4, b'M', b'Q', b'T', b'T', 5, ..] => Ok(Version::V5),
        [0, 4, b'M', b'Q', b'T', b'T', ..] | [0, 6, b'M', b'Q', b'I', b's', b'd', b'p', ..] => {
            Err(Reason::UnsupportedVersion)
        }
        _ => Err(Reason::ProtocolError),
    }
}

/// Parses one whole packet.
///
/// # Errors
/// It cannot be read; the reason goes into the DISCONNECT.
pub fn decode(version: Version, mut packet: BytesMut) -> Result<Incoming, Reason> {
    match version {
        Version::V3 => match v3::Codec::new(0).decode(&mut packet) {
            Ok(Some((packet, _))) => from_v3(packet),
            Ok(None) => Err(Reason::MalformedPacket),
            Err(error) => Err(reason_of(&error)),
        },
        Version::V5 => match v5::Codec::new(0, 0).decode(&mut packet) {
            Ok(Some((packet, _))) => from_v5(packet),
            Ok(None) => Err(Reason::MalformedPacket),
            Err(error) => Err(reason_of(&error)),
        },
    }
}

fn reason_of(error: &DecodeError) -> Reason {
    match error {
        DecodeError::UnsupportedProtocolLevel => Reason::UnsupportedVersion,
        DecodeError::InvalidClientId => Reason::ClientIdNotValid,
        DecodeError::InvalidProtocol | DecodeError::UnsupportedPacketType => Reason::ProtocolError,
        _ => Reason::MalformedPacket,
    }
}

fn from_v3(packet: v3::Packet) -> Result<Incoming, Reason> {
    Ok(match packet {
        v3::Packet::Connect(connect) => Incoming::Connect(Box::new(connect_v3(*connect)?)),
        v3::Packet::Publish(publish) => publish_from(*publish)?,
        v3::Packet::PublishAck { packet_id } => Incoming::PublishAck(packet_id.get()),
        v3::Packet::Subscribe {
            packet_id,
            topic_filters,
        } => {
            let filters = topic_filters.into_iter().map(|(filter, qos)| Filter {
                filter,
                qos: qos.value(),
                no_local: false,
                retain_as_published: false,
                retain_handling: 0,
            });
            subscribe(packet_id, filters.collect(), false)?
        }
        v3::Packet::Unsubscribe {
            packet_id,
            topic_filters,
        } => Incoming::Unsubscribe {
            packet_id,
            filters: not_empty(topic_filters)?,
        },
        v3::Packet::PingRequest => Incoming::Ping,
        v3::Packet::Disconnect => Incoming::Disconnect {
            with_will: false,
            session_expiry_s: None,
        },
        v3::Packet::PublishReceived { .. }
        | v3::Packet::PublishRelease { .. }
        | v3::Packet::PublishComplete { .. } => Incoming::QosTwo,
        v3::Packet::ConnectAck(_)
        | v3::Packet::SubscribeAck { .. }
        | v3::Packet::UnsubscribeAck { .. }
        | v3::Packet::PingResponse => Incoming::Misplaced,
    })
}

fn from_v5(packet: v5::Packet) -> Result<Incoming, Reason> {
    Ok(match packet {
        v5::Packet::Connect(connect) => Incoming::Connect(Box::new(connect_v5(*connect)?)),
        v5::Packet::Publish(publish) => publish_from(*publish)?,
        v5::Packet::PublishAck(ack) => Incoming::PublishAck(ack.packet_id.get()),
        v5::Packet::Subscribe(request) => {
            let filters = request
                .topic_filters
                .into_iter()
                .map(|(filter, options)| Filter {
                    filter,
                    qos: options.qos.value(),
                    no_local: options.no_local,
                    retain_as_published: options.retain_as_published,
                    retain_handling: options.retain_handling.into(),
                });
            subscribe(request.packet_id, filters.collect(), request.id.is_some())?
        }
        v5::Packet::Unsubscribe(request) => Incoming::Unsubscribe {
            packet_id: request.packet_id,
            filters: not_empty(request.topic_filters)?,
        },
        v5::Packet::PingRequest => Incoming::Ping,
        v5::Packet::Disconnect(packet) => Incoming::Disconnect {
            with_will: packet.reason_code != v5::DisconnectReasonCode::NormalDisconnection,
            session_expiry_s: packet.session_expiry_interval_secs,
        },
        v5::Packet::PublishReceived(_)
        | v5::Packet::PublishRelease(_)
        | v5::Packet::PublishComplete(_) => Incoming::QosTwo,
        v5::Packet::Auth(_) => Incoming::Auth,
        v5::Packet::ConnectAck(_)
        | v5::Packet::SubscribeAck(_)
        | v5::Packet::UnsubscribeAck(_)
        | v5::Packet::PingResponse => Incoming::Misplaced,
    })
}

fn subscribe(
    packet_id: NonZeroU16,
    filters: Vec<Filter>,
    has_identifier: bool,
) -> Result<Incoming, Reason> {
    Ok(Incoming::Subscribe {
        packet_id,
        filters: not_empty(filters)?,
        has_identifier,
    })
}

/// A request without filters is a protocol error. Source: MQTT 5.0, section 3.8.3.
fn not_empty<T>(filters: Vec<T>) -> Result<Vec<T>, Reason> {
    if filters.is_empty() {
        return Err(Reason::ProtocolError);
    }
    Ok(filters)
}

fn connect_v3(connect: v3::Connect) -> Result<Connect, Reason> {
    if connect.protocol.level() != MQTT_LEVEL_311 {
        return Err(Reason::UnsupportedVersion);
    }
    Ok(Connect {
        version: Version::V3,
        clean_start: connect.clean_session,
        keep_alive_s: connect.keep_alive,
        client_id: own(&connect.client_id),
        session_expiry_s: if connect.clean_session { 0 } else { u32::MAX },
        receive_maximum: u16::MAX,
        max_packet_bytes: usize::MAX,
        will: connect.last_will.map(|will| Will {
            topic: own(&will.topic),
            payload: Bytes::copy_from_slice(&will.message),
            qos: will.qos.value(),
            retain: will.retain,
            delay_s: 0,
            expiry_s: None,
            properties: None,
        }),
        has_auth_method: false,
    })
}

fn connect_v5(connect: v5::Connect) -> Result<Connect, Reason> {
    let max_packet_bytes = match connect.max_packet_size.map(NonZeroU32::get) {
        Some(bytes) => usize::try_from(bytes).map_err(|_| Reason::ProtocolError)?,
        None => usize::MAX,
    };
    Ok(Connect {
        version: Version::V5,
        clean_start: connect.clean_start,
        keep_alive_s: connect.keep_alive,
        client_id: own(&connect.client_id),
        session_expiry_s: connect.session_expiry_interval_secs,
        receive_maximum: connect.receive_max.map_or(u16::MAX, NonZeroU16::get),
        max_packet_bytes,
        will: connect.last_will.map(will_v5),
        has_auth_method: connect.auth_method.is_some(),
    })
}

fn will_v5(will: v5::LastWill) -> Will {
    let properties = PublishProperties {
        content_type: will.content_type,
        correlation_data: will.correlation_data,
        response_topic: will.response_topic,
        user_properties: will.user_properties,
        is_utf8_payload: will.is_utf8_payload.unwrap_or(false),
        ..PublishProperties::default()
    };
    Will {
        topic: own(&will.topic),
        payload: Bytes::copy_from_slice(&will.message),
        qos: will.qos.value(),
        retain: will.retain,
        delay_s: will.will_delay_interval_sec.unwrap_or(0),
        expiry_s: will.message_expiry_interval.map(NonZeroU32::get),
        properties: passed_on(properties),
    }
}

fn publish_from(publish: CodecPublish) -> Result<Incoming, Reason> {
    let properties = publish.properties.unwrap_or_default();
    if !properties.subscription_ids.is_empty() {
        return Err(Reason::ProtocolError);
    }
    let payload = if publish.payload.len() < COPY_BELOW_BYTES {
        Bytes::copy_from_slice(&publish.payload)
    } else {
        publish.payload
    };
    Ok(Incoming::Publish(Box::new(Publish {
        topic: own(&publish.topic),
        payload,
        qos: publish.qos.value(),
        retain: publish.retain,
        packet_id: publish.packet_id,
        topic_alias: properties.topic_alias.map(NonZeroU16::get),
        expiry_s: properties.message_expiry_interval.map(NonZeroU32::get),
        properties: passed_on(properties),
    })))
}

/// Keeps the properties that a subscriber is to see, or nothing where there is none.
fn passed_on(mut properties: PublishProperties) -> Option<Arc<PublishProperties>> {
    properties.topic_alias = None;
    properties.message_expiry_interval = None;
    if properties == PublishProperties::default() {
        return None;
    }
    properties.content_type = properties.content_type.as_ref().map(own);
    properties.response_topic = properties.response_topic.as_ref().map(own);
    properties.correlation_data = properties
        .correlation_data
        .map(|data| Bytes::copy_from_slice(&data));
    for (name, value) in &mut properties.user_properties {
        (*name, *value) = (own(name), own(value));
    }
    Some(Arc::new(properties))
}

/// Copies a text out of the read buffer.
fn own(text: &ByteString) -> ByteString {
    ByteString::from(&**text)
}

/// The codec's QoS.
pub fn codec_qos(qos: u8) -> QoS {
    if qos == 0 {
        QoS::AtMostOnce
    } else {
        QoS::AtLeastOnce
    }
}
