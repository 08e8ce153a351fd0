//! A chunk as it travels, and what became of it at its receiver.

/// The largest chunk: 120 KiB, which with its header fits in the messages of every broker we know.
pub const MAX_CHUNK_BYTES: usize = 122_880;
/// Bytes before a chunk's data in its packet.
pub const CHUNK_HEADER_BYTES: usize = 5;

const PACKET_KIND: u8 = 1;

/// One chunk as it travels: a kind byte of 1, the index as 32 bits (the highest byte first), the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkPacket<'a> {
    /// Position in the blob, from 0.
    pub index: u32,
    /// The bytes.
    pub data: &'a [u8],
}

impl<'a> ChunkPacket<'a> {
    /// Reads a peer's bytes; `None` where they are no chunk packet.
    pub fn read(packet: &'a [u8]) -> Option<Self> {
        let (&[kind, index @ ..], data) = packet.split_first_chunk::<CHUNK_HEADER_BYTES>()?;
        let is_chunk = kind == PACKET_KIND && (1..=MAX_CHUNK_BYTES).contains(&data.len());
        is_chunk.then_some(Self {
            index: u32::from_be_bytes(index),
            data,
        })
    }

    /// Returns the packet's bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut packet = Vec::with_capacity(CHUNK_HEADER_BYTES + self.data.len());
        packet.push(PACKET_KIND);
        packet.extend_from_slice(&self.index.to_be_bytes());
        packet.extend_from_slice(self.data);
        packet
    }
}

/// What became of a chunk packet. All but the first two change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChunkVerdict {
    /// It was taken; others are missing.
    Stored,
    /// It was taken, and was the last that was missing.
    Whole,
    /// That chunk is there already. Its bytes are not looked at again.
    Duplicate,
    /// Its hash is not the manifest's.
    WrongHash,
    /// Its length is not the manifest's.
    WrongSize,
    /// The manifest has no chunk of that index.
    NoSuchChunk,
    /// It is no chunk packet.
    Malformed,
    /// No blob of that name is open.
    NoSuchTransfer,
}

impl ChunkVerdict {
    /// Returns the name that the Python side knows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Whole => "whole",
            Self::Duplicate => "duplicate",
            Self::WrongHash => "wrong-hash",
            Self::WrongSize => "wrong-size",
            Self::NoSuchChunk => "no-such-chunk",
            Self::Malformed => "malformed",
            Self::NoSuchTransfer => "no-such-transfer",
        }
    }

    /// Says whether the sender did nothing wrong.
    pub fn is_sound(self) -> bool {
        matches!(self, Self::Stored | Self::Whole | Self::Duplicate)
    }
}
