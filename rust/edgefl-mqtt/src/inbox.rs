//! Bytes that have arrived and are not a whole packet yet. Empty, it holds no memory.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{ready, Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};

use crate::frame::{read_header, Header};
use crate::reason::Reason;
use crate::stream::BoxedStream;

/// Packets up to this size are read through a buffer that all connections of a thread share.
pub(crate) const SMALL_BYTES: usize = 4_096;
const SCRATCH_BYTES: usize = 16_384;

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH_BYTES]);
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
}

impl Inbox {
    /// Takes the next packet, if it is whole.
    pub(crate) fn next(&mut self, max_bytes: usize) -> Result<Found, Reason> {
        match read_header(&self.buffer, max_bytes)? {
            Header::Unknown => Ok(Found::Nothing),
            Header::Packet { total_bytes } if self.buffer.len() < total_bytes => {
                Ok(Found::Part { total_bytes })
            }
            Header::Packet { total_bytes } if self.buffer.len() == total_bytes => {
                Ok(Found::Packet(std::mem::take(&mut self.buffer)))
            }
            Header::Packet { total_bytes } => Ok(Found::Packet(self.buffer.split_to(total_bytes))),
        }
    }

    /// Whether a packet has begun.
    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Makes room for a whole packet, into which the rest is read without a copy.
    pub(crate) fn reserve(&mut self, total_bytes: usize) {
        self.buffer
            .reserve(total_bytes.saturating_sub(self.buffer.len()));
    }

    /// Reads once; 0 means that the peer has closed.
    pub(crate) fn poll_fill(
        &mut self,
        stream: &mut BoxedStream,
        context: &mut Context<'_>,
        direct: bool,
    ) -> Poll<io::Result<usize>> {
        if direct {
            return tokio_util::io::poll_read_buf(Pin::new(stream), context, &mut self.buffer);
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let mut window = ReadBuf::new(scratch);
            ready!(Pin::new(stream).poll_read(context, &mut window))?;
            self.buffer.extend_from_slice(window.filled());
            Poll::Ready(Ok(window.filled().len()))
        })
    }
}
