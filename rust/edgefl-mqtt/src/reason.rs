//! Reason codes that the endpoint sends, and what MQTT 3.1.1 has in their place.

/// A reason code of MQTT 5. Source: MQTT 5.0, section 2.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Done; also a normal DISCONNECT.
    Success = 0x00,
    /// Taken, but nobody subscribes.
    NoMatchingSubscribers = 0x10,
    /// No better word.
    Unspecified = 0x80,
    /// The packet cannot be read.
    MalformedPacket = 0x81,
    /// The packet is not allowed here.
    ProtocolError = 0x82,
    /// Refused for a reason of this server's own.
    ImplementationSpecific = 0x83,
    /// Not MQTT 3.1.1 or 5.
    UnsupportedVersion = 0x84,
    /// The client id is not this peer's.
    ClientIdNotValid = 0x85,
    /// The access rules say no.
    NotAuthorized = 0x87,
    /// No room for another session.
    ServerUnavailable = 0x88,
    /// Too busy now.
    ServerBusy = 0x89,
    /// The gateway ends.
    ServerShuttingDown = 0x8B,
    /// Authentication exchanges are not offered.
    BadAuthenticationMethod = 0x8C,
    /// Silent for 1.5 times the keepalive.
    KeepAliveTimeout = 0x8D,
    /// Another connection uses this session now.
    SessionTakenOver = 0x8E,
    /// A filter that is malformed or too deep.
    TopicFilterInvalid = 0x8F,
    /// A topic that is malformed or too deep.
    TopicNameInvalid = 0x90,
    /// More unacknowledged messages than announced.
    ReceiveMaximumExceeded = 0x93,
    /// An alias that is 0, too large or not set.
    TopicAliasInvalid = 0x94,
    /// Larger than announced.
    PacketTooLarge = 0x95,
    /// A bound was reached.
    QuotaExceeded = 0x97,
    /// The operator ended it.
    AdministrativeAction = 0x98,
    /// The payload is damaged.
    PayloadFormatInvalid = 0x99,
    /// QoS 2.
    QosNotSupported = 0x9B,
    /// Another gateway is to be used.
    UseAnotherServer = 0x9C,
    /// `$share/`.
    SharedSubscriptionNotSupported = 0x9E,
    /// Too many connections in a short time.
    ConnectionRateExceeded = 0x9F,
    /// The CONNECT took too long.
    MaximumConnectTime = 0xA0,
    /// Subscription identifiers.
    SubscriptionIdNotSupported = 0xA1,
}

const ALL: [Reason; 29] = [
    Reason::Success,
    Reason::NoMatchingSubscribers,
    Reason::Unspecified,
    Reason::MalformedPacket,
    Reason::ProtocolError,
    Reason::ImplementationSpecific,
    Reason::UnsupportedVersion,
    Reason::ClientIdNotValid,
    Reason::NotAuthorized,
    Reason::ServerUnavailable,
    Reason::ServerBusy,
    Reason::ServerShuttingDown,
    Reason::BadAuthenticationMethod,
    Reason::KeepAliveTimeout,
    Reason::SessionTakenOver,
    Reason::TopicFilterInvalid,
    Reason::TopicNameInvalid,
    Reason::ReceiveMaximumExceeded,
    Reason::TopicAliasInvalid,
    Reason::PacketTooLarge,
    Reason::QuotaExceeded,
    Reason::AdministrativeAction,
    Reason::PayloadFormatInvalid,
    Reason::QosNotSupported,
    Reason::UseAnotherServer,
    Reason::SharedSubscriptionNotSupported,
    Reason::ConnectionRateExceeded,
    Reason::MaximumConnectTime,
    Reason::SubscriptionIdNotSupported,
];

impl Reason {
    /// The byte on the wire.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The reason with this byte, if the endpoint knows it.
    pub fn from_code(code: u8) -> Option<Self> {
        ALL.into_iter().find(|reason| reason.code() == code)
    }

    /// Whether the byte means failure.
    pub const fn is_failure(self) -> bool {
        self.code() >= 0x80
    }

    /// The nearest return code of a CONNACK in MQTT 3.1.1, section 3.2.2.3.
    pub const fn connack_v3(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::UnsupportedVersion => 1,
            Self::ClientIdNotValid => 2,
            Self::NotAuthorized | Self::BadAuthenticationMethod => 5,
            _ => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_finds_its_reason() {
        for reason in ALL {
            assert_eq!(Reason::from_code(reason.code()), Some(reason));
        }
        assert_eq!(Reason::from_code(0x01), None);
    }

    #[test]
    fn a_failure_is_never_accepted_in_3_1_1() {
        for reason in ALL.into_iter().filter(|reason| reason.is_failure()) {
            assert_ne!(reason.connack_v3(), 0, "{reason:?}");
        }
    }
}
