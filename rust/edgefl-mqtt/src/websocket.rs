//! MQTT over WebSocket: binary frames are one stream of bytes. Source: MQTT 5.0, section 6.

use std::io;
use std::pin::Pin;
use std::task::{ready, Context, Poll};

use bytes::{Buf, Bytes};
use futures_core::Stream;
use futures_sink::Sink;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::header::SEC_WEBSOCKET_PROTOCOL;
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{accept_hdr_async_with_config, WebSocketStream};

use crate::stream::BoxedStream;

const PATH: &str = "/mqtt";
const PROTOCOL: &str = "mqtt";
const READ_BUFFER_BYTES: usize = 1_024;

/// Does the HTTP handshake.
pub(crate) async fn accept(
    stream: BoxedStream,
    max_packet_bytes: usize,
) -> Result<BoxedStream, Error> {
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * max_packet_bytes)
        .max_message_size(Some(max_packet_bytes))
        .max_frame_size(Some(max_packet_bytes));
    let socket = accept_hdr_async_with_config(stream, check, Some(config)).await?;
    Ok(Box::new(WebSocket {
        socket,
        arrived: Bytes::new(),
    }))
}

// The signature is the library's.
#[allow(clippy::result_large_err)]
fn check(request: &Request, mut response: Response) -> Result<Response, ErrorResponse> {
    if request.uri().path() != PATH {
        return Err(refusal(StatusCode::NOT_FOUND));
    }
    let offered = request.headers().get_all(SEC_WEBSOCKET_PROTOCOL);
    let is_offered = offered
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|protocol| protocol.trim() == PROTOCOL);
    if !is_offered {
        return Err(refusal(StatusCode::BAD_REQUEST));
    }
    response
        .headers_mut()
        .insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    Ok(response)
}

fn refusal(status: StatusCode) -> ErrorResponse {
    let mut response = ErrorResponse::new(None);
    *response.status_mut() = status;
    response
}

struct WebSocket {
    socket: WebSocketStream<BoxedStream>,
    /// What is left of the last frame.
    arrived: Bytes,
}

impl AsyncRead for WebSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.arrived.is_empty() {
            match ready!(Pin::new(&mut self.socket).poll_next(context)) {
                Some(Ok(Message::Binary(bytes))) => self.arrived = bytes,
                // Answered by the library.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(_))) | None => return Poll::Ready(Ok(())),
                Some(Ok(Message::Text(_))) => {
                    let words = "MQTT over WebSocket is binary";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, words)));
                }
                Some(Err(error)) => return Poll::Ready(Err(io_error(error))),
            }
        }
        let count = self.arrived.len().min(target.remaining());
        target.put_slice(&self.arrived[..count]);
        self.arrived.advance(count);
        if self.arrived.is_empty() {
            self.arrived = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for WebSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(Pin::new(&mut self.socket).poll_ready(context)).map_err(io_error)?;
        let message = Message::Binary(Bytes::copy_from_slice(bytes));
        Pin::new(&mut self.socket)
            .start_send(message)
            .map_err(io_error)?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket)
            .poll_flush(context)
            .map_err(io_error)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket)
            .poll_close(context)
            .map_err(io_error)
    }
}

fn io_error(error: Error) -> io::Error {
    match error {
        Error::Io(error) => error,
        Error::ConnectionClosed | Error::AlreadyClosed => io::ErrorKind::NotConnected.into(),
        other => io::Error::other(other),
    }
}
