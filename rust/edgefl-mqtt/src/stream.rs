//! The one thing that all kinds of connections have in common.

use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes in both directions: TCP, TLS, or WebSocket over either.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// A connection of any kind.
pub(crate) type BoxedStream = Box<dyn Duplex>;
