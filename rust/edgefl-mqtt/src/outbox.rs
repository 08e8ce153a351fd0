//! Bytes on their way to a client: small packets together, a large payload uncopied behind them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{ready, Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncWrite;

use crate::stream::BoxedStream;

/// Payloads from this size on are sent from where they are.
const UNCOPIED_BYTES: usize = 1_024;
/// No more is prepared than this, so that a client that takes nothing holds little.
const PREPARED_BYTES: usize = 16_384;

/// What one connection has to send.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    head: BytesMut,
    tail: Bytes,
    needs_flush: bool,
}

impl Outbox {
    /// Whether another packet may be added.
    pub(crate) fn has_room(&self) -> bool {
        self.tail.is_empty() && self.head.len() < PREPARED_BYTES
    }

    /// Where packets are written; only while there is no tail.
    pub(crate) fn head(&mut self) -> &mut BytesMut {
        if !self.tail.is_empty() {
            // An answer to a PING may meet a payload on its way: it has to come after it.
            let tail = std::mem::take(&mut self.tail);
            self.head.extend_from_slice(&tail);
        }
        &mut self.head
    }

    /// Adds the payload of the packet whose head was written last.
    pub(crate) fn append(&mut self, payload: Bytes) {
        if payload.len() < UNCOPIED_BYTES {
            self.head.extend_from_slice(&payload);
        } else {
            self.tail = payload;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_empty() && self.tail.is_empty()
    }

    /// Bytes that wait.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Sends as much as the connection takes; ready when everything is on its way.
    pub(crate) fn poll_send(
        &mut self,
        stream: &mut BoxedStream,
        context: &mut Context<'_>,
        sent: &mut usize,
    ) -> Poll<io::Result<()>> {
        while !self.is_empty() {
            let parts = [IoSlice::new(&self.head), IoSlice::new(&self.tail)];
            let first = usize::from(self.head.is_empty());
            let count =
                ready!(Pin::new(&mut *stream).poll_write_vectored(context, &parts[first..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *sent += count;
            self.advance(count);
            self.needs_flush = true;
        }
        if self.needs_flush {
            ready!(Pin::new(stream).poll_flush(context))?;
            self.needs_flush = false;
        }
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, count: usize) {
        let from_head = count.min(self.head.len());
        self.head.advance(from_head);
        self.tail.advance(count - from_head);
        if self.head.is_empty() {
            self.head = BytesMut::new();
        }
        if self.tail.is_empty() {
            self.tail = Bytes::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn everything_arrives_in_order() {
        let (near, mut far) = tokio::io::duplex(100);
        let mut stream: BoxedStream = Box::new(near);
        let mut outbox = Outbox::default();
        outbox.head().extend_from_slice(b"head");
        outbox.append(vec![1; 5_000].into());
        assert!(!outbox.has_room());
        outbox.head().extend_from_slice(b"pong");
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.map(|_| all)
        });
        let mut sent = 0;
        std::future::poll_fn(|context| outbox.poll_send(&mut stream, context, &mut sent))
            .await
            .expect("the reader is there");
        drop(stream);
        let all = reader.await.expect("no panic").expect("no error");
        assert_eq!((sent, all.len()), (5_008, 5_008));
        assert!(all.starts_with(b"head") && all.ends_with(b"pong"));
    }
}
