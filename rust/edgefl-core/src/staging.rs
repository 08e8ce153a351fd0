//! Blobs that are still arriving: chunks in any order, any number of times, wrong ones refused.
//!
//! A blob is opened by its manifest (size, chunk size, SHA-256 of each chunk), which the caller took from
//! a signed message; a chunk packet itself is unsigned: its hash stands in the manifest. Each byte is
//! hashed once, on the thread that received it and outside every lock, and copied once, into the blob's
//! own buffer. Bounded: the sizes announced, hash lists included, add up to at most `max_bytes`, and the
//! number of blobs is at most `max_blobs`. Buffers of ended blobs are used again, within the same bound; when no
//! blob is open, a quarter of it is kept.
//! Not guaranteed: that anything here survives the process.
//!
//! Source: FIPS 180-4 for SHA-256.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use sha2::{Digest, Sha256};

use crate::chunk_packet::{ChunkPacket, ChunkVerdict, MAX_CHUNK_BYTES};
use crate::error::CoreError;
use crate::spare_buffers::SpareBuffers;
use crate::stage_error::StageProblem;

/// Bytes of a chunk's hash.
pub const CHUNK_HASH_BYTES: usize = 32;
/// The longest name of a blob.
pub const MAX_STAGE_KEY_BYTES: usize = 512;
/// When no blob is open, buffers are kept up to this part of the bound: asking the system for fresh
/// pages for every blob costs more than hashing it.
const SPARE_PART: usize = 4;
/// The largest blob whose bytes name it, for it might also come in one packet, without chunks.
const MAX_NAMED_BY_BYTES: usize = MAX_CHUNK_BYTES;

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

    /// Names a blob of this manifest, every chunk of which has its hash: another one has another name.
    fn name(&self, bytes: &[u8]) -> [u8; CHUNK_HASH_BYTES] {
        if bytes.len() <= MAX_NAMED_BY_BYTES {
            return Sha256::digest(bytes).into();
        }
        let mut hash = Sha256::new_with_prefix(b"edgefl staged blob 1");
        hash.update((self.size_bytes as u64).to_be_bytes());
        hash.update((self.chunk_bytes as u64).to_be_bytes());
        hash.update(&self.chunk_hashes);
        hash.finalize().into()
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
    spare: SpareBuffers,
}

impl Blobs {
    /// Keeps a buffer, unless it and what the open blobs hold are more than the bound.
    fn keep(&mut self, buffer: Vec<u8>, max_bytes: usize) {
        self.spare.keep(buffer);
        self.trim(max_bytes);
    }

    fn trim(&mut self, max_bytes: usize) {
        self.spare.trim(if self.by_key.is_empty() {
            max_bytes / SPARE_PART
        } else {
            max_bytes.saturating_sub(self.held_bytes)
        });
    }
}

/// A blob that is whole and was taken out of its stage, which gets its buffer back afterwards.
pub struct StagedBlob {
    bytes: Vec<u8>,
    name: [u8; CHUNK_HASH_BYTES],
    stage: Arc<UploadStage>,
}

impl StagedBlob {
    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Its name: the SHA-256 of its bytes up to 120 KiB, of its manifest above, which costs nothing.
    pub fn name(&self) -> &[u8; CHUNK_HASH_BYTES] {
        &self.name
    }
}

impl Drop for StagedBlob {
    fn drop(&mut self) {
        self.stage.keep(std::mem::take(&mut self.bytes));
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
        let buffer = blobs.spare.take(size_bytes);
        let blob = Arc::new(Blob::new(manifest, buffer));
        blobs.by_key.insert(key.into(), blob);
        blobs.trim(self.max_bytes);
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
        let (bytes, _) = self.remove_whole(key)?;
        let result = read(&bytes);
        self.keep(bytes);
        Ok(result)
    }

    /// Returns a blob that is whole, without a copy, and forgets it.
    ///
    /// # Errors
    /// [`CoreError::Stage`]: no blob of that name is open, or chunks are missing.
    pub fn take_out(self: &Arc<Self>, key: &str) -> Result<StagedBlob, CoreError> {
        let (bytes, blob) = self.remove_whole(key)?;
        Ok(StagedBlob {
            name: blob.manifest.name(&bytes),
            bytes,
            stage: self.clone(),
        })
    }

    /// Forgets a blob, whole or not; says whether it was open.
    pub fn discard(&self, key: &str) -> bool {
        let Some(blob) = self.find(key) else {
            return false;
        };
        let is_removed = self.remove(key, |found| Arc::ptr_eq(found, &blob));
        let bytes = std::mem::take(&mut blob.content().bytes);
        self.keep(bytes);
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

    fn remove_whole(&self, key: &str) -> Result<(Vec<u8>, Arc<Blob>), CoreError> {
        let blob = self.require(key)?;
        let mut content = blob.content();
        check_whole(&content)?;
        if !self.remove(key, |found| Arc::ptr_eq(found, &blob)) {
            return Err(StageProblem::Unknown.into()); // another thread took it
        }
        let bytes = std::mem::take(&mut content.bytes);
        drop(content);
        Ok((bytes, blob))
    }

    fn keep(&self, buffer: Vec<u8>) {
        self.write().keep(buffer, self.max_bytes);
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
