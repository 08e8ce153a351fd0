//! Bytes that have arrived and are not a whole packet yet. Empty, it holds no memory.
//!
//! Reading goes into a buffer that all connections of a thread share. A packet that is whole in it is
//! handed on from there, uncopied where it fills most of it; what is not whole is moved to a buffer of
//! the connection's own, into which the rest of a large packet is then read directly.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{ready, Context, Poll};

use bytes::{BufMut, BytesMut};
use tokio_util::io::poll_read_buf;

use crate::frame::{read_header, Header};
use crate::reason::Reason;
use crate::stream::BoxedStream;

/// Larger packets that are not whole get a buffer of their whole size.
pub(crate) const SMALL_BYTES: usize = 4_096;
/// A chunk of the usual 64 KiB, its topic and what little may follow.
const SHARED_BYTES: usize = 81_920;
/// What is read at most where a large packet might have to wait for its room.
const CAREFUL_BYTES: usize = 16_384;
/// A packet below this size is copied out: its payload may be kept for long, and would keep all.
const COPY_BELOW_BYTES: usize = SHARED_BYTES / 2;

/// Where a read goes, and how much it may bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Little: what arrives may have to be kept without a place for it.
    Careful,
    /// A whole chunk.
    Wide,
    /// The rest of a packet for which there is room.
    Direct,
}

thread_local! {
    static SHARED: RefCell<BytesMut> = RefCell::default();
}

/// What is there.
#[derive(Debug)]
pub(crate) enum Found {
    /// A whole packet.
    Packet(BytesMut),
    /// A packet of this size has begun.
    Part {
        /// Its whole size.
        total_bytes: usize,
    },
    /// Nothing, or less than a fixed header.
    Nothing,
}

/// The buffer of one connection.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    buffer: BytesMut,
    /// The buffer is a part of the thread's.
    is_shared: bool,
}

impl Inbox {
    /// Takes the next packet, if it is whole.
    pub(crate) fn next(&mut self, max_bytes: usize) -> Result<Found, Reason> {
        match read_header(&self.buffer, max_bytes)? {
            Header::Unknown => Ok(Found::Nothing),
            Header::Packet { total_bytes } if self.buffer.len() < total_bytes => {
                Ok(Found::Part { total_bytes })
            }
            Header::Packet { total_bytes } => Ok(Found::Packet(self.take(total_bytes))),
        }
    }

    fn take(&mut self, total_bytes: usize) -> BytesMut {
        let packet = if self.buffer.len() == total_bytes {
            std::mem::take(&mut self.buffer)
        } else {
            self.buffer.split_to(total_bytes)
        };
        if self.is_shared && total_bytes < COPY_BELOW_BYTES {
            BytesMut::from(&packet[..])
        } else {
            packet
        }
    }

    /// Whether a packet has begun.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Makes room for a whole packet, into which the rest is read without a copy.
    pub(crate) fn reserve(&mut self, total_bytes: usize) {
        let mut own = BytesMut::with_capacity(total_bytes.max(self.buffer.len()));
        own.extend_from_slice(&self.buffer);
        self.buffer = own;
        self.is_shared = false;
    }

    /// Leaves the thread's buffer to others, where what is here has to wait.
    pub(crate) fn settle(&mut self) {
        if self.is_shared {
            self.buffer = BytesMut::from(&self.buffer[..]);
            self.is_shared = false;
        }
    }

    /// Reads once; 0 means that the peer has closed.
    pub(crate) fn poll_fill(
        &mut self,
        stream: &mut BoxedStream,
        context: &mut Context<'_>,
        reading: Reading,
    ) -> Poll<io::Result<usize>> {
        let most_bytes = match reading {
            Reading::Direct => {
                return poll_read_buf(Pin::new(stream), context, &mut self.buffer);
            }
            Reading::Careful => CAREFUL_BYTES,
            Reading::Wide => SHARED_BYTES,
        };
        self.settle();
        SHARED.with_borrow_mut(|shared| {
            // The same memory again, unless a packet that was handed on from it is still kept.
            shared.reserve(SHARED_BYTES);
            let mut window = (&mut *shared).limit(most_bytes);
            let count = ready!(poll_read_buf(Pin::new(stream), context, &mut window))?;
            let arrived = shared.split();
            if self.buffer.is_empty() {
                self.buffer = arrived;
                self.is_shared = true;
            } else {
                self.buffer.extend_from_slice(&arrived);
            }
            Poll::Ready(Ok(count))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test]
    async fn what_has_to_wait_holds_no_more_than_its_own_bytes() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut stream: BoxedStream = Box::new(near);
        let mut inbox = Inbox::default();
        let part = [0x30, 0x80, 0x80, 0x08, 7];
        far.write_all(&part).await.expect("room");
        let filled =
            std::future::poll_fn(|context| inbox.poll_fill(&mut stream, context, Reading::Wide));
        assert_eq!(filled.await.expect("bytes"), part.len());
        assert!(inbox.is_shared);
        inbox.settle();
        assert_eq!(inbox.buffer, part[..]);
        assert!(inbox.buffer.capacity() < 64 && !inbox.is_shared);
        SHARED.with_borrow_mut(|shared| {
            // Nobody else holds it, so the same memory serves again.
            assert!(shared.try_reclaim(SHARED_BYTES));
        });
    }
}
