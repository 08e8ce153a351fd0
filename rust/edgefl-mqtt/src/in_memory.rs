//! An endpoint without sockets or threads, for tests and fuzzing: bytes in, bytes out.
//!
//! Connections come one after the other and go through the same code as those of the listeners
//! without TLS. The gateway's side acknowledges every message as soon as it is told.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;
use tokio_util::sync::PollSemaphore;

use crate::certificate::Certified;
use crate::connection::Connection;
use crate::error::EndpointError;
use crate::event::Event;
use crate::handshake::greet;
use crate::hub::Hub;
use crate::lock::lock;
use crate::reason::Reason;
use crate::settings::Settings;
use crate::sink::ChunkSink;
use crate::stream::BoxedStream;

/// An endpoint in the caller's own thread.
pub struct InMemoryEndpoint {
    hub: Arc<Hub>,
    partial: Arc<Semaphore>,
    runtime: tokio::runtime::Runtime,
}

impl InMemoryEndpoint {
    /// Makes an endpoint whose gateway subscribes to everything of its fleet.
    ///
    /// # Errors
    /// A setting is out of range, or the system has no more file descriptors.
    pub fn new(
        settings: &Settings,
        sink: Option<Arc<dyn ChunkSink>>,
    ) -> Result<Self, EndpointError> {
        settings.check()?;
        let hub = Arc::new(Hub::new(settings, sink)?);
        hub.subscribe_own(&format!("efl/1/{}/#", settings.fleet));
        Ok(Self {
            partial: Arc::new(Semaphore::new(settings.limits.max_partial_bytes)),
            hub,
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()?,
        })
    }

    /// Serves one connection from its first byte to its end.
    ///
    /// The client sends its bytes in pieces and then breaks the connection. `device` is the name in
    /// its certificate; without one it is a program on this machine. Returns what the client was
    /// sent, and what the gateway was told.
    pub fn converse(
        &self,
        device: Option<&str>,
        sends: &[u8],
        piece_bytes: usize,
    ) -> (Vec<u8>, Vec<Event>) {
        let certified = device.map(|name| Certified {
            common_name: name.to_owned(),
            serial: "1".to_owned(),
        });
        let client = Arc::new(Client {
            sends: Mutex::new(sends.to_vec()),
            piece_bytes: piece_bytes.max(1),
            heard: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let mut events = Vec::new();
        self.runtime.block_on(async {
            let stream: BoxedStream = Box::new(Wire {
                client: client.clone(),
                pauses: 0,
            });
            let served = async {
                self.serve(stream, certified.as_ref()).await;
                client.is_over.store(true, Ordering::Relaxed);
            };
            let answered = async {
                while !client.is_over.load(Ordering::Relaxed) {
                    events.extend(self.answer());
                    tokio::task::yield_now().await;
                }
            };
            tokio::join!(served, answered);
        });
        events.extend(self.answer());
        let heard = std::mem::take(&mut *lock(&client.heard));
        (heard, events)
    }

    /// Lets time pass: sessions, wills and retained messages may come to their end.
    pub fn tick(&self, now: Instant) {
        self.hub.tick(now);
        self.hub.expire_retained(now);
    }

    /// Counters and present sizes by name.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        self.hub.stats()
    }

    async fn serve(&self, mut stream: BoxedStream, certified: Option<&Certified>) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let shown_out = std::future::pending();
        if let Some(greeted) = greet(&self.hub, &mut stream, address, certified, shown_out).await {
            let partial = PollSemaphore::new(self.partial.clone());
            Connection::new(self.hub.clone(), stream, greeted, partial)
                .serve()
                .await;
        }
    }

    /// Takes what the gateway is told, and acknowledges it.
    fn answer(&self) -> Vec<Event> {
        let events = self.hub.gateway.take(usize::MAX);
        let tickets: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Message { ticket, .. } => *ticket,
                _ => None,
            })
            .collect();
        self.hub.gateway.acknowledge(&tickets, Reason::Success);
        events
    }
}

/// The far end of a connection.
struct Client {
    sends: Mutex<Vec<u8>>,
    piece_bytes: usize,
    heard: Mutex<Vec<u8>>,
    is_over: AtomicBool,
}

/// The near end: gives one piece, then lets others run, then the next piece.
struct Wire {
    client: Arc<Client>,
    pauses: u32,
}

/// Long enough for the gateway's answer to the last piece.
const PAUSES_BEFORE_END: u32 = 8;

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let is_at_end = lock(&self.client.sends).is_empty();
        if self.pauses < if is_at_end { PAUSES_BEFORE_END } else { 1 } {
            self.pauses += 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.pauses = 0;
        let mut sends = lock(&self.client.sends);
        let count = sends
            .len()
            .min(self.client.piece_bytes)
            .min(target.remaining());
        target.put_slice(&sends[..count]);
        sends.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        lock(&self.client.heard).extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::settings::Listeners;

    const CONNECT: &[u8] = b"\x10\x0d\0\x04MQTT\x04\x02\0\x3c\0\x01x";

    fn endpoint() -> InMemoryEndpoint {
        let settings = Settings {
            fleet: "f".to_owned(),
            listeners: Listeners::default(),
            tls: None,
            limits: crate::settings::Limits::default(),
            worker_threads: 1,
        };
        InMemoryEndpoint::new(&settings, None).expect("good settings")
    }

    #[test]
    fn a_message_reaches_the_gateway_and_is_acknowledged_whatever_the_pieces() {
        let sends = [CONNECT, b"\x32\x13\0\x0defl/1/f/d/x/q\0\x01hi"].concat();
        for piece_bytes in 1..=sends.len() {
            let (heard, events) = endpoint().converse(Some("x"), &sends, piece_bytes);
            assert_eq!(heard, b"\x20\x02\0\0\x40\x02\0\x01", "{piece_bytes}");
            let told = events.iter().any(
                |event| matches!(event, Event::Message { payload, .. } if &payload[..] == b"hi"),
            );
            assert!(told, "{events:?}");
        }
    }

    #[test]
    fn sessions_outlive_connections() {
        let endpoint = endpoint();
        let kept = b"\x10\x0d\0\x04MQTT\x04\0\0\x3c\0\x01x";
        assert_eq!(endpoint.converse(None, kept, 99).0, b"\x20\x02\0\0");
        assert_eq!(endpoint.converse(None, kept, 99).0, b"\x20\x02\x01\0");
        assert_eq!(endpoint.converse(None, CONNECT, 99).0, b"\x20\x02\0\0");
    }
}
