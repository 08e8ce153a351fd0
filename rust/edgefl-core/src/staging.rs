//! Blobs that are still arriving: chunks in any order, any number of times, wrong ones refused.
//!
//! A blob is opened by its manifest (size, chunk size, SHA-256 of each chunk), which the caller took from
//! a signed message; a chunk packet itself is unsigned: its hash stands in the manifest. Each byte is
//! hashed once, on the thread that received it and outside every lock, and copied once, into the blob's
//! own buffer. Bounded: the sizes announced, hash lists included, add up to at most `max_bytes`, and the
//! number of blobs is at most `max_blobs`. Buffers of ended blobs are used again.
//! Not guaranteed: that anything here survives the process.
//!
//! Source: FIPS 180-4 for SHA-256.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sha2::{Digest, Sha256};

use crate::error::CoreError;
use crate::stage_error::StageProblem;

/// Bytes of a chunk's hash.
pub const CHUNK_HASH_BYTES: usize = 32;
/// The largest chunk: 120 KiB, which with its header fits in the messages of every broker we know.
pub const MAX_CHUNK_BYTES: usize = 122_880;
/// Bytes before a chunk's data in its packet.
pub const CHUNK_HEADER_BYTES: usize = 5;
/// The longest name of a blob.
pub const MAX_STAGE_KEY_BYTES: usize = 512;
/// Buffers of ended blobs are kept up to this part of the bound: asking the system for fresh pages
/// for every blob costs more than hashing it.
const SPARE_PART: usize = 4;

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

/// What is to arrive.
#[derive(Debug, PartialEq, Eq)]
struct Manifest {
    size_bytes: usize,
    chunk_bytes: usize,
    chunk_hashes: Box<[u8]>,
}

impl Manifest {
    fn chunk_count(&self) -> usize {
        self.chunk_hashes.len() / CHUNK_HASH_BYTES
    }

    /// Where a chunk lies in the blob.
    fn place(&self, index: usize) -> Option<Range<usize>> {
        if index >= self.chunk_count() {
            return None;
        }
        let start = index * self.chunk_bytes;
        Some(start..self.size_bytes.min(start + self.chunk_bytes))
    }

    fn hash(&self, index: usize) -> Option<&[u8]> {
        self.chunk_hashes.chunks_exact(CHUNK_HASH_BYTES).nth(index)
    }

    fn held_bytes(&self) -> usize {
        self.size_bytes.saturating_add(self.chunk_hashes.len())
    }
}

/// What has arrived.
struct Content {
    bytes: Vec<u8>,
    /// Bit i % 8 of byte i / 8 is set while chunk i is missing.
    missing: Vec<u8>,
    missing_count: usize,
}

impl Content {
    fn is_missing(&self, index: usize) -> bool {
        self.missing
            .get(index / 8)
            .is_some_and(|byte| byte >> (index % 8) & 1 == 1)
    }

    /// Puts a chunk that has been checked into its place.
    fn store(&mut self, index: usize, place: Range<usize>, data: &[u8]) -> ChunkVerdict {
        if !self.is_missing(index) {
            return ChunkVerdict::Duplicate; // another connection was faster
        }
        let (Some(target), Some(byte)) =
            (self.bytes.get_mut(place), self.missing.get_mut(index / 8))
        else {
            return ChunkVerdict::NoSuchTransfer; // taken meanwhile
        };
        target.copy_from_slice(data);
        *byte &= !(1 << (index % 8));
        self.missing_count -= 1;
        if self.missing_count == 0 {
            ChunkVerdict::Whole
        } else {
            ChunkVerdict::Stored
        }
    }
}

struct Blob {
    manifest: Manifest,
    content: Mutex<Content>,
}

impl Blob {
    /// `bytes` may hold anything: what is read was written before.
    fn new(manifest: Manifest, bytes: Vec<u8>) -> Self {
        let chunk_count = manifest.chunk_count();
        let mut missing = vec![u8::MAX; chunk_count.div_ceil(8)];
        if let (Some(last), used @ 1..) = (missing.last_mut(), chunk_count % 8) {
            *last = (1 << used) - 1;
        }
        let content = Mutex::new(Content {
            bytes,
            missing,
            missing_count: chunk_count,
        });
        Self { manifest, content }
    }

    fn accept(&self, packet: ChunkPacket<'_>) -> ChunkVerdict {
        let index = usize::try_from(packet.index).unwrap_or(usize::MAX);
        let (Some(place), Some(hash)) = (self.manifest.place(index), self.manifest.hash(index))
        else {
            return ChunkVerdict::NoSuchChunk;
        };
        if packet.data.len() != place.len() {
            return ChunkVerdict::WrongSize;
        }
        if !self.content().is_missing(index) {
            return ChunkVerdict::Duplicate;
        }
        if Sha256::digest(packet.data).as_slice() != hash {
            return ChunkVerdict::WrongHash;
        }
        self.content().store(index, place, packet.data)
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        // Nothing panics between the changes of a chunk, so what a poisoned lock guards is sound.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Blobs {
    by_key: HashMap<Box<str>, Arc<Blob>>,
    held_bytes: usize,
    /// Buffers without a blob.
    spare: Vec<Vec<u8>>,
    spare_bytes: usize,
}

impl Blobs {
    /// Returns a buffer of this size with any content.
    fn buffer(&mut self, size_bytes: usize) -> Vec<u8> {
        // One that is much too large would hold memory that no bound counts.
        let fits = |spare: &Vec<u8>| (size_bytes..=2 * size_bytes).contains(&spare.capacity());
        let Some(place) = self.spare.iter().position(fits) else {
            return vec![0; size_bytes];
        };
        let mut buffer = self.spare.swap_remove(place);
        self.spare_bytes -= buffer.capacity();
        buffer.resize(size_bytes, 0);
        buffer
    }

    /// Keeps a buffer, or lets it go where enough are kept.
    fn keep(&mut self, buffer: Vec<u8>, most_bytes: usize) {
        if buffer.capacity() > 0 && self.spare_bytes + buffer.capacity() <= most_bytes {
            self.spare_bytes += buffer.capacity();
            self.spare.push(buffer);
        }
    }
}

/// A bounded store of blobs that are still arriving. Threads may use it at the same time.
pub struct UploadStage {
    max_bytes: usize,
    max_blobs: usize,
    blobs: RwLock<Blobs>,
}

impl UploadStage {
    /// Begins with nothing open.
    pub fn new(max_bytes: usize, max_blobs: usize) -> Self {
        Self {
            max_bytes,
            max_blobs,
            blobs: RwLock::default(),
        }
    }

    /// Expects a blob. Opening it again by the same manifest keeps what has arrived.
    ///
    /// `chunk_hashes` holds the 32-byte hashes one after the other.
    ///
    /// # Errors
    /// [`CoreError::Stage`]: the manifest contradicts itself, another blob has that name, or the
    /// bounds leave no room.
    pub fn open(
        &self,
        key: &str,
        size_bytes: usize,
        chunk_bytes: usize,
        chunk_hashes: &[u8],
    ) -> Result<(), CoreError> {
        check_manifest(key, size_bytes, chunk_bytes, chunk_hashes.len())?;
        let manifest = Manifest {
            size_bytes,
            chunk_bytes,
            chunk_hashes: chunk_hashes.into(),
        };
        let mut blobs = self.write();
        if let Some(blob) = blobs.by_key.get(key) {
            let is_same = blob.manifest == manifest;
            return is_same.then_some(()).ok_or(StageProblem::Reopened.into());
        }
        let held_bytes = blobs.held_bytes.saturating_add(manifest.held_bytes());
        if held_bytes > self.max_bytes || blobs.by_key.len() >= self.max_blobs {
            return Err(StageProblem::Full {
                max_bytes: self.max_bytes,
                max_blobs: self.max_blobs,
                held_bytes: blobs.held_bytes,
                blobs: blobs.by_key.len(),
                wanted_bytes: manifest.held_bytes(),
            }
            .into());
        }
        blobs.held_bytes = held_bytes;
        let buffer = blobs.buffer(size_bytes);
        let blob = Arc::new(Blob::new(manifest, buffer));
        blobs.by_key.insert(key.into(), blob);
        Ok(())
    }

    /// Takes a chunk packet from a peer, whatever its bytes.
    pub fn accept(&self, key: &str, packet: &[u8]) -> ChunkVerdict {
        let Some(packet) = ChunkPacket::read(packet) else {
            return ChunkVerdict::Malformed;
        };
        self.find(key)
            .map_or(ChunkVerdict::NoSuchTransfer, |blob| blob.accept(packet))
    }

    /// Returns the bitmap of the chunks that are missing: bit i % 8 of byte i / 8 for chunk i.
    ///
    /// # Errors
    /// [`CoreError::Stage`]: no blob of that name is open.
    pub fn missing(&self, key: &str) -> Result<Vec<u8>, CoreError> {
        let blob = self.require(key)?;
        let missing = blob.content().missing.clone();
        Ok(missing)
    }

    /// Returns how many chunks are missing.
    ///
    /// # Errors
    /// [`CoreError::Stage`]: no blob of that name is open.
    pub fn missing_count(&self, key: &str) -> Result<usize, CoreError> {
        let blob = self.require(key)?;
        let missing_count = blob.content().missing_count;
        Ok(missing_count)
    }

    /// Calls `read` with a blob that is whole, and keeps it.
    ///
    /// # Errors
    /// [`CoreError::Stage`]: no blob of that name is open, or chunks are missing.
    pub fn read<R>(&self, key: &str, read: impl FnOnce(&[u8]) -> R) -> Result<R, CoreError> {
        let blob = self.require(key)?;
        let content = blob.content();
        check_whole(&content)?;
        Ok(read(&content.bytes))
    }

    /// Calls `read` with a blob that is whole, and forgets it.
    ///
    /// # Errors
    /// [`CoreError::Stage`]: no blob of that name is open, or chunks are missing.
    pub fn take<R>(&self, key: &str, read: impl FnOnce(&[u8]) -> R) -> Result<R, CoreError> {
        let blob = self.require(key)?;
        let mut content = blob.content();
        check_whole(&content)?;
        if !self.remove(key, |found| Arc::ptr_eq(found, &blob)) {
            return Err(StageProblem::Unknown.into()); // another thread took it
        }
        let bytes = std::mem::take(&mut content.bytes);
        drop(content);
        let result = read(&bytes);
        self.write().keep(bytes, self.max_bytes / SPARE_PART);
        Ok(result)
    }

    /// Forgets a blob, whole or not; says whether it was open.
    pub fn discard(&self, key: &str) -> bool {
        let Some(blob) = self.find(key) else {
            return false;
        };
        let is_removed = self.remove(key, |found| Arc::ptr_eq(found, &blob));
        let bytes = std::mem::take(&mut blob.content().bytes);
        self.write().keep(bytes, self.max_bytes / SPARE_PART);
        is_removed
    }

    /// Returns the names of the open blobs, in no order.
    pub fn keys(&self) -> Vec<String> {
        let blobs = self.blobs();
        blobs.by_key.keys().map(ToString::to_string).collect()
    }

    /// Returns the bytes that the open blobs may take, hash lists included.
    pub fn held_bytes(&self) -> usize {
        self.blobs().held_bytes
    }

    fn remove(&self, key: &str, is_meant: impl Fn(&Arc<Blob>) -> bool) -> bool {
        let mut blobs = self.write();
        if !blobs.by_key.get(key).is_some_and(is_meant) {
            return false;
        }
        if let Some(blob) = blobs.by_key.remove(key) {
            blobs.held_bytes -= blob.manifest.held_bytes();
        }
        true
    }

    fn find(&self, key: &str) -> Option<Arc<Blob>> {
        self.blobs().by_key.get(key).cloned()
    }

    fn require(&self, key: &str) -> Result<Arc<Blob>, CoreError> {
        self.find(key).ok_or(StageProblem::Unknown.into())
    }

    fn blobs(&self) -> RwLockReadGuard<'_, Blobs> {
        self.blobs.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Blobs> {
        self.blobs.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check_whole(content: &Content) -> Result<(), CoreError> {
    if content.missing_count == 0 {
        return Ok(());
    }
    Err(StageProblem::Incomplete {
        missing: content.missing_count,
    }
    .into())
}

fn check_manifest(
    key: &str,
    size_bytes: usize,
    chunk_bytes: usize,
    hash_list_bytes: usize,
) -> Result<(), CoreError> {
    if key.is_empty() || key.len() > MAX_STAGE_KEY_BYTES {
        return Err(StageProblem::KeyLength { found: key.len() }.into());
    }
    if !(1..=MAX_CHUNK_BYTES).contains(&chunk_bytes) {
        return Err(StageProblem::ChunkSize { found: chunk_bytes }.into());
    }
    let expected = size_bytes
        .div_ceil(chunk_bytes)
        .saturating_mul(CHUNK_HASH_BYTES);
    if size_bytes == 0 || hash_list_bytes != expected {
        return Err(StageProblem::HashList {
            size_bytes,
            expected,
            found: hash_list_bytes,
        }
        .into());
    }
    Ok(())
}
