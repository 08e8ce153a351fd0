//! Chunks of one transfer to one client, cut from the blob only when it is their turn.
//!
//! Nothing is packed or copied for a client: all that fetch the same blob share its bytes.

use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

use bytes::Bytes;
use bytestring::ByteString;

use crate::message::Message;

/// Bytes of a transfer's id.
pub const TRANSFER_ID_BYTES: usize = 8;
/// Chunks that a client has not acknowledged yet; beyond them the next one is not cut.
///
/// As many as a window has by default: a cut costs no more, and answers are not far behind them.
pub(crate) const MOST_IN_FLIGHT: usize = 4;
/// Transfers that wait for one client; another one takes the place of the oldest. The gateway
/// forgets its own beyond as many.
const MOST_TRANSFERS: usize = 8;
const HEAD_BYTES: usize = 1 + TRANSFER_ID_BYTES + 1 + 4;
const DOWN_MARK: u8 = 0x02;
const UP_MARK: u8 = 0x01;

/// What stands before a chunk's data: docs/protocol.md, "Transfers".
pub(crate) type ChunkHead = [u8; HEAD_BYTES];

/// A transfer.
#[derive(Clone)]
pub struct Chunks {
    /// Which one.
    pub transfer_id: [u8; TRANSFER_ID_BYTES],
    /// Everything that it carries.
    pub blob: Bytes,
    /// Size of each chunk but the last.
    pub chunk_bytes: usize,
    /// Those that the client lacks, in the order in which it gets them.
    pub indices: VecDeque<u32>,
    /// How long each of them is worth delivering, from its turn on.
    pub expiry: Option<Duration>,
}

impl Chunks {
    /// Takes the next chunk as a message; `None` after the last. Indices beyond the blob are
    /// passed over.
    pub(crate) fn next(&mut self, topic: &ByteString, now: Instant) -> Option<Message> {
        loop {
            let index = self.indices.pop_front()?;
            let start = usize::try_from(index).ok()?.checked_mul(self.chunk_bytes)?;
            if start >= self.blob.len() {
                continue;
            }
            let end = self.blob.len().min(start + self.chunk_bytes);
            return Some(Message {
                topic: topic.clone(),
                chunk_head: Some(self.head(index)),
                payload: self.blob.slice(start..end),
                qos: 1,
                retain: false,
                expires: self.expiry.and_then(|time| now.checked_add(time)),
                properties: None,
            });
        }
    }

    fn head(&self, index: u32) -> ChunkHead {
        let mut head = [0; HEAD_BYTES];
        head[0] = DOWN_MARK;
        head[1..=TRANSFER_ID_BYTES].copy_from_slice(&self.transfer_id);
        head[TRANSFER_ID_BYTES + 1] = UP_MARK;
        head[TRANSFER_ID_BYTES + 2..].copy_from_slice(&index.to_be_bytes());
        head
    }
}

impl fmt::Debug for Chunks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (chunks, bytes) = (self.indices.len(), self.blob.len());
        write!(formatter, "Chunks({chunks} of a blob of {bytes} bytes)")
    }
}

/// Transfers that one session has not been sent whole.
#[derive(Debug, Default)]
pub(crate) struct ChunkQueue {
    transfers: VecDeque<(ByteString, Chunks)>,
}

impl ChunkQueue {
    /// Adds chunks; those of a transfer that is here already follow its others, up to as many as its
    /// blob has: whoever asks again and again for what it does not take gets no more memory.
    pub(crate) fn add(&mut self, topic: &ByteString, chunks: Chunks) {
        let known = self.transfers.iter_mut();
        let mut known = known.filter(|(_, known)| known.transfer_id == chunks.transfer_id);
        if let Some((_, known)) = known.next() {
            known.indices.extend(chunks.indices);
            let most = known.blob.len().div_ceil(known.chunk_bytes.max(1));
            known.indices.truncate(most);
        } else {
            if self.transfers.len() >= MOST_TRANSFERS {
                self.transfers.pop_front();
            }
            self.transfers.push_back((topic.clone(), chunks));
        }
    }

    /// Forgets a transfer; what is in flight of it goes on.
    pub(crate) fn stop(&mut self, transfer_id: [u8; TRANSFER_ID_BYTES]) {
        self.transfers
            .retain(|(_, known)| known.transfer_id != transfer_id);
        self.give_back();
    }

    /// Forgets every transfer.
    pub(crate) fn clear(&mut self) {
        self.transfers = VecDeque::new();
    }

    /// Takes the next chunk of the transfer that came first.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Message> {
        while let Some((topic, chunks)) = self.transfers.front_mut() {
            if let Some(message) = chunks.next(topic, now) {
                return Some(message);
            }
            self.transfers.pop_front();
            self.give_back();
        }
        None
    }

    fn give_back(&mut self) {
        if self.transfers.is_empty() {
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(id: u8, indices: &[u32]) -> Chunks {
        Chunks {
            transfer_id: [id; TRANSFER_ID_BYTES],
            blob: Bytes::from_static(b"aaaabbbbcc"),
            chunk_bytes: 4,
            indices: indices.iter().copied().collect(),
            expiry: Some(Duration::from_secs(5)),
        }
    }

    fn all(queue: &mut ChunkQueue) -> Vec<(u8, u8, Bytes)> {
        std::iter::from_fn(|| queue.next(Instant::now()))
            .map(|message| {
                let head = message.chunk_head.expect("a chunk has one");
                assert_eq!((head[0], head[9]), (DOWN_MARK, UP_MARK));
                (head[1], head[13], message.payload)
            })
            .collect()
    }

    #[test]
    fn chunks_are_slices_of_the_blob_in_their_order() {
        let mut queue = ChunkQueue::default();
        let topic = ByteString::from_static("t");
        queue.add(&topic, chunks(7, &[2, 0]));
        queue.add(&topic, chunks(8, &[1]));
        queue.add(&topic, chunks(7, &[1, 3, u32::MAX]));
        let found = all(&mut queue);
        let expected: [(u8, u8, &[u8]); 4] = [
            (7, 2, b"cc"),
            (7, 0, b"aaaa"),
            (7, 1, b"bbbb"),
            (8, 1, b"bbbb"),
        ];
        assert_eq!(found.len(), expected.len());
        for (one, other) in found.iter().zip(expected) {
            assert_eq!((one.0, one.1, &*one.2), other);
        }
    }

    #[test]
    fn what_is_asked_for_again_and_again_takes_no_more_room() {
        let mut queue = ChunkQueue::default();
        let topic = ByteString::from_static("t");
        for id in 0..20 {
            for _ in 0..5 {
                queue.add(&topic, chunks(id, &[0, 1]));
            }
        }
        let found = all(&mut queue);
        assert_eq!(found.len(), 3 * MOST_TRANSFERS, "three chunks are a blob");
        assert_eq!((found[0].0, found[23].0), (12, 19));
    }

    #[test]
    fn a_blob_is_not_shown() {
        let shown = format!("{:?}", chunks(7, &[0]));
        assert_eq!(shown, "Chunks(1 of a blob of 10 bytes)");
    }

    #[test]
    fn what_is_stopped_is_not_cut() {
        let mut queue = ChunkQueue::default();
        let topic = ByteString::from_static("t");
        queue.add(&topic, chunks(7, &[0, 1]));
        queue.add(&topic, chunks(8, &[0]));
        queue.stop([7; TRANSFER_ID_BYTES]);
        assert_eq!(all(&mut queue).len(), 1);
        queue.add(&topic, chunks(9, &[0]));
        queue.clear();
        assert_eq!(all(&mut queue).len(), 0);
    }
}
