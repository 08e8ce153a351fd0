//! Buffers that wait for their next use: the system's fresh pages cost more than hashing what goes in.

/// Buffers of any size, with any content.
#[derive(Default)]
pub(crate) struct SpareBuffers {
    buffers: Vec<Vec<u8>>,
    held_bytes: usize,
}

impl SpareBuffers {
    /// Returns a buffer of this size with any content.
    pub(crate) fn take(&mut self, size_bytes: usize) -> Vec<u8> {
        // One that is much too large would hold memory that no bound counts.
        let fits = |spare: &Vec<u8>| (size_bytes..=2 * size_bytes).contains(&spare.capacity());
        let Some(place) = self.buffers.iter().rposition(fits) else {
            return vec![0; size_bytes];
        };
        let mut buffer = self.buffers.remove(place);
        self.held_bytes -= buffer.capacity();
        buffer.resize(size_bytes, 0);
        buffer
    }

    /// Keeps a buffer.
    pub(crate) fn keep(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() > 0 {
            self.held_bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }

    /// Lets go of the oldest until no more than this is held.
    pub(crate) fn trim(&mut self, most_bytes: usize) {
        let mut gone = 0;
        while self.held_bytes > most_bytes {
            let Some(buffer) = self.buffers.get(gone) else {
                break;
            };
            self.held_bytes -= buffer.capacity();
            gone += 1;
        }
        self.buffers.drain(..gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spare(sizes: &[usize]) -> SpareBuffers {
        let mut spare = SpareBuffers::default();
        for &size in sizes {
            spare.keep(Vec::with_capacity(size));
        }
        spare
    }

    #[test]
    fn a_buffer_that_fits_is_used_again() {
        let mut spare = spare(&[100, 1_000]);
        assert_eq!(spare.take(60).capacity(), 100);
        assert_eq!(spare.held_bytes, 1_000);
        assert!(spare.take(300).iter().all(|&byte| byte == 0)); // 1,000 is much too large
        assert_eq!(spare.held_bytes, 1_000);
        assert_eq!(spare.take(600).len(), 600);
        assert_eq!(spare.held_bytes, 0);
    }

    #[test]
    fn the_oldest_go_first() {
        let mut spare = spare(&[300, 200, 100]);
        spare.keep(Vec::new());
        spare.trim(600);
        assert_eq!(spare.buffers.len(), 3);
        spare.trim(350);
        assert_eq!((spare.held_bytes, spare.buffers.len()), (300, 2));
        spare.trim(0);
        assert_eq!((spare.held_bytes, spare.buffers.len()), (0, 0));
    }
}
