//! What the gateway is told.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;

use crate::packet::Version;
use crate::queue::DropReason;
use crate::sink::UploadReport;

/// Number of a message that waits for the gateway's acknowledgement.
pub type Ticket = u64;

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisconnectReason {
    /// The client said so.
    Normal,
    /// The connection broke.
    Lost,
    /// Silent for 1.5 times the keepalive.
    KeepAlive,
    /// Another connection took the session over.
    TakenOver,
    /// The client broke a rule of MQTT or of access.
    Protocol,
    /// The client took or sent its bytes too slowly.
    Slow,
    /// The gateway ended it.
    Closed,
}

/// Who is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// As the client says.
    pub client_id: Arc<str>,
    /// As the link proves.
    pub identity: Option<Arc<str>>,
}

/// An event.
#[derive(Debug)]
pub enum Event {
    /// A message on a topic that the gateway subscribes to.
    Message {
        /// Present for QoS 1: the PUBACK waits for it.
        ticket: Option<Ticket>,
        /// Where it was published.
        topic: ByteString,
        /// Its content.
        payload: Bytes,
        /// By whom; none for a stored message.
        from: Option<Who>,
        /// It is a stored message.
        retained: bool,
    },
    /// A client is connected.
    Connected {
        /// Who.
        who: Who,
        /// From where.
        address: SocketAddr,
        /// Protocol.
        version: Version,
        /// Its session was kept.
        session_present: bool,
        /// Longest silence.
        keep_alive_s: u16,
    },
    /// A client is no longer connected.
    Disconnected {
        /// Who.
        who: Who,
        /// From where.
        address: SocketAddr,
        /// Why.
        reason: DisconnectReason,
        /// The code that the client was or would have been told.
        code: u8,
    },
    /// A connection, subscription or message was refused.
    Refused {
        /// Who, as far as is known.
        who: Option<Who>,
        /// From where.
        address: SocketAddr,
        /// Reason code of MQTT 5.
        code: u8,
        /// For the operator's log.
        detail: String,
    },
    /// A second connection of one client has ended the first.
    TakenOver {
        /// Who.
        who: Who,
        /// The first.
        old_address: SocketAddr,
        /// The second.
        new_address: SocketAddr,
    },
    /// A message was not kept for a client.
    Dropped {
        /// For whom.
        who: Who,
        /// Where it was published.
        topic: ByteString,
        /// Why.
        reason: DropReason,
    },
    /// A report of the upload stage.
    Upload(UploadReport),
}
