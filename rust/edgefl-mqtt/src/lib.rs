//! The MQTT endpoint inside the gateway: an MQTT 3.1.1 and 5 server whose PUBACK is a receipt.
//!
//! A message on a topic that the gateway subscribes to is acknowledged when the gateway says so,
//! that is, when what it wrote because of the message is on disk. Everything that peers may cost
//! is bounded. What is refused, and how, is listed in docs/endpoint.md.
//!
//! Packets are parsed and written by a codec crate. From there a connection's bytes go this way:
//! `listener` (TCP, `tls`, `websocket`), `handshake`, `connection` with `requests`; and what all
//! connections share is in `hub` with `lifecycle`, `router`, `retained`, `session`, `gateway`.

#[cfg(feature = "server")]
mod acks;
pub mod acl;
#[cfg(feature = "server")]
mod aliases;
pub mod certificate;
#[cfg(feature = "server")]
mod chunks;
#[cfg(feature = "server")]
mod connection;
#[cfg(feature = "server")]
mod counters;
#[cfg(feature = "server")]
mod encode;
#[cfg(feature = "server")]
mod endpoint;
#[cfg(feature = "server")]
mod error;
#[cfg(feature = "server")]
pub mod event;
pub mod frame;
#[cfg(feature = "server")]
mod gateway;
#[cfg(feature = "server")]
mod goodbye;
#[cfg(feature = "server")]
mod handshake;
#[cfg(feature = "server")]
mod hub;
#[cfg(feature = "server")]
pub mod in_memory;
#[cfg(feature = "server")]
mod inbox;
#[cfg(feature = "server")]
mod lifecycle;
#[cfg(feature = "server")]
mod listener;
#[cfg(feature = "server")]
mod lock;
#[cfg(feature = "server")]
mod mailbox;
#[cfg(feature = "server")]
mod message;
#[cfg(feature = "server")]
mod outbox;
pub mod packet;
#[cfg(feature = "server")]
mod queue;
#[cfg(feature = "server")]
mod rate;
mod reason;
#[cfg(feature = "server")]
mod requests;
#[cfg(feature = "server")]
mod retained;
#[cfg(feature = "server")]
mod router;
#[cfg(feature = "server")]
mod session;
#[cfg(feature = "server")]
mod settings;
#[cfg(feature = "server")]
mod sink;
#[cfg(feature = "server")]
mod stream;
#[cfg(feature = "server")]
mod takeovers;
#[cfg(feature = "server")]
mod timers;
#[cfg(feature = "server")]
mod tls;
#[cfg(feature = "server")]
mod tls_stream;
pub mod topic;
#[cfg(feature = "server")]
mod upload_sink;
#[cfg(feature = "server")]
mod waiting_room;
#[cfg(feature = "server")]
mod websocket;

#[cfg(feature = "server")]
pub use chunks::{Chunks, TRANSFER_ID_BYTES};
#[cfg(feature = "server")]
pub use endpoint::{Bound, Endpoint, Publishing};
#[cfg(feature = "server")]
pub use error::EndpointError;
#[cfg(feature = "server")]
pub use hub::ConnectionInfo;
#[cfg(feature = "server")]
pub use queue::DropReason;
pub use reason::Reason;
#[cfg(feature = "server")]
pub use settings::{Limits, Listeners, Settings, TlsMaterial};
#[cfg(feature = "server")]
pub use sink::{upload_topic, ChunkAnswer, ChunkSink, UploadKind, UploadReport, UploadTopic};
#[cfg(feature = "server")]
pub use upload_sink::{UploadSink, CHUNKS_PER_REPORT, REPORT_AFTER};
