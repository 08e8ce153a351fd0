//! A TLS connection that holds no buffer while it is idle.
//!
//! The library does everything that TLS is; here are only the bytes on their way to it and from
//! it. Its own buffers would stay for as long as a connection: thousands of them only ping.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};

use bytes::{Buf, BytesMut};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus,
};
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Room for a record in one read.
const READ_BYTES: usize = 16_384 + 512;
/// More than a handshake message may have, which the library wants to see whole.
const MOST_INCOMING_BYTES: usize = 98_304;
/// While so much waits to be sent, nothing is read that could add to it.
const MOST_OUTGOING_BYTES: usize = 131_072;
/// What one write encrypts.
const WRITE_BYTES: usize = 65_536;
const RECORD_BYTES: usize = 16_384;
/// More than a record adds to its content.
const RECORD_HEAD_BYTES: usize = 64;

/// The server's side of a TLS connection.
pub(crate) struct TlsStream<S> {
    io: S,
    tls: UnbufferedServerConnection,
    incoming: BytesMut,
    plain: BytesMut,
    outgoing: BytesMut,
    is_peer_closed: bool,
    has_said_goodbye: bool,
    has_failed: bool,
}

/// What shall be sent when the library lets it.
enum Wish<'content> {
    Nothing,
    Content(&'content [u8]),
    Goodbye,
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream<S> {
    /// Does the handshake.
    ///
    /// # Errors
    /// The peer is gone, speaks no TLS, or has no certificate that is good enough.
    pub(crate) async fn accept(io: S, config: Arc<ServerConfig>) -> io::Result<Self> {
        let tls = UnbufferedServerConnection::new(config).map_err(invalid)?;
        let mut stream = Self {
            io,
            tls,
            incoming: BytesMut::new(),
            plain: BytesMut::new(),
            outgoing: BytesMut::new(),
            is_peer_closed: false,
            has_said_goodbye: false,
            has_failed: false,
        };
        let done = std::future::poll_fn(|context| stream.poll_handshake(context)).await;
        if let Err(error) = done {
            // The peer may be told why; if not, it finds the connection closed.
            let _ = std::future::poll_fn(|context| stream.poll_send(context)).await;
            return Err(error);
        }
        Ok(stream)
    }

    /// The peer's certificates, its own first.
    pub(crate) fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        self.tls.peer_certificates().unwrap_or_default()
    }

    fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.advance(&Wish::Nothing)?;
            ready!(self.poll_send(context))?;
            if !self.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if self.is_peer_closed || ready!(self.poll_receive(context))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Lets the library handle what has arrived, and carries out a wish; tells whether it could.
    ///
    /// After an error nothing more is handled; the alert that tells the peer of it waits to be sent.
    fn advance(&mut self, wish: &Wish<'_>) -> io::Result<bool> {
        if self.has_failed {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let advanced = self.advance_once(wish);
        if advanced.is_err() {
            self.has_failed = true;
            self.plain = BytesMut::new();
            self.queue_alert();
        }
        advanced
    }

    fn advance_once(&mut self, wish: &Wish<'_>) -> io::Result<bool> {
        loop {
            let UnbufferedStatus { mut discard, state } =
                self.tls.process_tls_records(&mut self.incoming);
            let mut is_done = None;
            let state = match state {
                Ok(state) => state,
                Err(error) => {
                    self.incoming.advance(discard);
                    return Err(invalid(error));
                }
            };
            match state {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(invalid)?;
                        discard += record.discard;
                        self.plain.extend_from_slice(record.payload);
                    }
                }
                ConnectionState::EncodeTlsData(mut data) => encode(&mut data, &mut self.outgoing)?,
                // It is on its way: nothing is sent before it, and nobody encodes it again.
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::WriteTraffic(mut traffic) => {
                    let room = match wish {
                        Wish::Nothing => 0,
                        Wish::Content(content) => most_encrypted_bytes(content.len()),
                        Wish::Goodbye => RECORD_HEAD_BYTES,
                    };
                    append(&mut self.outgoing, room, |room| {
                        let written = match wish {
                            Wish::Nothing => Ok(0),
                            Wish::Content(content) => traffic.encrypt(content, room),
                            Wish::Goodbye => traffic.queue_close_notify(room),
                        };
                        match written {
                            Err(EncryptError::InsufficientSize(size)) => {
                                Ok(Err(size.required_size))
                            }
                            Err(error) => Err(io::Error::other(error)),
                            Ok(count) => Ok(Ok(count)),
                        }
                    })?;
                    is_done = Some(true);
                }
                ConnectionState::PeerClosed => self.is_peer_closed = true,
                ConnectionState::Closed => {
                    self.is_peer_closed = true;
                    is_done = Some(false);
                }
                ConnectionState::BlockedHandshake => is_done = Some(false),
                _ => return Err(io::Error::other("an unknown state of TLS")),
            }
            self.incoming.advance(discard);
            if let Some(is_done) = is_done {
                give_back(&mut self.incoming);
                return Ok(is_done);
            }
        }
    }

    /// After an error: puts the alert that tells the peer of it into the buffer.
    fn queue_alert(&mut self) {
        // The library still counts on the bytes that it has seen; asked twice, it would go on.
        let status = self.tls.process_tls_records(&mut self.incoming);
        if let Ok(ConnectionState::EncodeTlsData(mut data)) = status.state {
            // Without an alert the peer still sees the end.
            let _ = encode(&mut data, &mut self.outgoing);
        }
        self.incoming = BytesMut::new();
    }

    /// Sends what waits; ready when everything is on its way.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let count = ready!(Pin::new(&mut self.io).poll_write(context, &self.outgoing))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.outgoing.advance(count);
        }
        give_back(&mut self.outgoing);
        Poll::Ready(Ok(()))
    }

    /// Reads once; 0 is the end.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.incoming.len() >= MOST_INCOMING_BYTES {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        self.incoming.reserve(READ_BYTES);
        let io = Pin::new(&mut self.io);
        let received = tokio_util::io::poll_read_buf(io, context, &mut self.incoming);
        give_back(&mut self.incoming);
        received
    }

    /// Encrypts content, once what was encrypted before is on its way.
    fn poll_encrypt(
        &mut self,
        context: &mut Context<'_>,
        content: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_send(context))?;
        let content = &content[..content.len().min(WRITE_BYTES)];
        if !self.advance(&Wish::Content(content))? {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Poll::Ready(Ok(content.len()))
    }

    /// Sends what it can now; what it cannot waits for the next call.
    fn send_now(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.poll_send(context) {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TlsStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        loop {
            if !stream.plain.is_empty() {
                let count = stream.plain.len().min(out.remaining());
                out.put_slice(&stream.plain[..count]);
                stream.plain.advance(count);
                give_back(&mut stream.plain);
                return Poll::Ready(Ok(()));
            }
            if stream.is_peer_closed {
                return Poll::Ready(Ok(()));
            }
            stream.send_now(context)?;
            if stream.outgoing.len() > MOST_OUTGOING_BYTES {
                return Poll::Pending;
            }
            if ready!(stream.poll_receive(context))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            let advanced = stream.advance(&Wish::Nothing);
            // An answer of TLS itself must not wait until somebody has something to say.
            let sent = stream.send_now(context);
            advanced?;
            sent?;
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TlsStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        content: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        let count = ready!(stream.poll_encrypt(context, content))?;
        stream.send_now(context)?;
        Poll::Ready(Ok(count))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = self.get_mut();
        let mut parts = parts.iter().filter(|part| !part.is_empty());
        let Some(first) = parts.next() else {
            return Poll::Ready(Ok(0));
        };
        let mut count = ready!(stream.poll_encrypt(context, first))?;
        // A small head and what belongs to it leave together.
        if let Some(second) = parts.next().filter(|second| first.len() < second.len()) {
            let second = &second[..second.len().min(WRITE_BYTES)];
            if count == first.len() && stream.advance(&Wish::Content(second))? {
                count += second.len();
            }
        }
        stream.send_now(context)?;
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        ready!(stream.poll_send(context))?;
        Pin::new(&mut stream.io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = self.get_mut();
        if !stream.has_said_goodbye {
            ready!(stream.poll_send(context))?;
            stream.has_said_goodbye = true;
            if !stream.has_failed {
                stream.advance(&Wish::Goodbye)?;
            }
        }
        ready!(stream.poll_send(context))?;
        Pin::new(&mut stream.io).poll_shutdown(context)
    }
}

fn encode(
    data: &mut EncodeTlsData<'_, ServerConnectionData>,
    outgoing: &mut BytesMut,
) -> io::Result<()> {
    append(outgoing, 0, |room| match data.encode(room) {
        Err(EncodeError::InsufficientSize(size)) => Ok(Err(size.required_size)),
        Err(error) => Err(io::Error::other(error)),
        Ok(count) => Ok(Ok(count)),
    })
}

/// Has bytes written behind those of a buffer. `write` returns their number, or the room it needs.
fn append(
    buffer: &mut BytesMut,
    room_bytes: usize,
    mut write: impl FnMut(&mut [u8]) -> io::Result<Result<usize, usize>>,
) -> io::Result<()> {
    let start = buffer.len();
    buffer.resize(start + room_bytes, 0);
    let mut written = write(&mut buffer[start..])?;
    if let Err(needed_bytes) = written {
        buffer.resize(start + needed_bytes, 0);
        written = write(&mut buffer[start..])?;
    }
    let count = written.map_err(|_| io::Error::other("TLS needs more room than it said"))?;
    buffer.truncate(start + count);
    Ok(())
}

fn most_encrypted_bytes(content_bytes: usize) -> usize {
    let records = content_bytes.div_ceil(RECORD_BYTES);
    content_bytes + records * RECORD_HEAD_BYTES
}

/// Gives an empty buffer's memory back.
fn give_back(buffer: &mut BytesMut) {
    if buffer.is_empty() {
        *buffer = BytesMut::new();
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests;
