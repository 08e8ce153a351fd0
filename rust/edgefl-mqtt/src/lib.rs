//! The MQTT endpoint inside the gateway: an MQTT 3.1.1 and 5 server whose PUBACK is a receipt.
//!
//! A message on a topic that the gateway subscribes to is acknowledged when the gateway says so,
//! that is, when what it wrote because of the message is on disk. Everything that peers may cost
//! is bounded. What is refused, and how, is listed in docs/endpoint.md.
//!
//! Packets are parsed and written by a codec crate. From there a connection's bytes go this way:
//! `listener` (TCP, `tls`, `websocket`), `handshake`, `connection` with `requests`; and what all
//! connections share is in `hub` with `lifecycle`, `router`, `retained`, `session`, `gateway`.

mod acks;
pub mod acl;
mod aliases;
pub mod certificate;
mod connection;
mod counters;
mod encode;
mod endpoint;
mod error;
pub mod event;
pub mod frame;
mod gateway;
mod handshake;
mod hub;
mod inbox;
mod lifecycle;
mod listener;
mod lock;
mod mailbox;
mod message;
mod outbox;
pub mod packet;
mod rate;
mod reason;
mod requests;
mod retained;
mod router;
mod session;
mod settings;
mod sink;
mod stream;
mod takeovers;
mod timers;
mod tls;
pub mod topic;
mod upload_sink;
mod websocket;

pub use endpoint::{Bound, Endpoint, Publishing};
pub use error::EndpointError;
pub use hub::ConnectionInfo;
pub use reason::Reason;
pub use session::DropReason;
pub use settings::{Limits, Listeners, Settings, TlsMaterial};
pub use sink::{upload_topic, ChunkAnswer, ChunkSink, UploadKind, UploadReport, UploadTopic};
pub use upload_sink::{UploadSink, CHUNKS_PER_REPORT, REPORT_AFTER};
