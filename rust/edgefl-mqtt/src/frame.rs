//! Finds packets in a stream of bytes, and refuses by size before anything is set aside for them.
//! Source: MQTT 5.0, section 2.1.

use crate::reason::Reason;

/// The longest fixed header.
pub const MAX_HEADER_BYTES: usize = 5;

/// What the first bytes of a packet tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    /// Too few bytes to know.
    Unknown,
    /// The packet's whole size, fixed header included.
    Packet {
        /// Bytes from the first one on.
        total_bytes: usize,
    },
}

/// Reads a fixed header.
///
/// # Errors
/// The length does not end, or the packet is larger than allowed.
pub fn read_header(bytes: &[u8], max_bytes: usize) -> Result<Header, Reason> {
    let mut remaining = 0usize;
    for (position, &byte) in bytes.iter().skip(1).take(MAX_HEADER_BYTES - 1).enumerate() {
        remaining |= usize::from(byte & 0x7F) << (7 * position);
        if byte & 0x80 == 0 {
            let total_bytes = position + 2 + remaining;
            if total_bytes > max_bytes {
                return Err(Reason::PacketTooLarge);
            }
            return Ok(Header::Packet { total_bytes });
        }
    }
    if bytes.len() >= MAX_HEADER_BYTES {
        return Err(Reason::MalformedPacket);
    }
    Ok(Header::Unknown)
}

/// Writes a fixed header.
pub fn write_header(first_byte: u8, mut remaining: usize, out: &mut bytes::BytesMut) {
    out.extend_from_slice(&[first_byte]);
    loop {
        // Masked to seven bits.
        #[allow(clippy::cast_possible_truncation)]
        let byte = (remaining & 0x7F) as u8;
        remaining >>= 7;
        if remaining == 0 {
            out.extend_from_slice(&[byte]);
            return;
        }
        out.extend_from_slice(&[byte | 0x80]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;

    #[test]
    fn lengths_survive_writing_and_reading() {
        for remaining in [
            0,
            1,
            127,
            128,
            16_383,
            16_384,
            2_097_151,
            2_097_152,
            268_435_455,
        ] {
            let mut out = BytesMut::new();
            write_header(0x30, remaining, &mut out);
            let total_bytes = out.len() + remaining;
            assert_eq!(
                read_header(&out, usize::MAX),
                Ok(Header::Packet { total_bytes })
            );
            for cut in 0..out.len() {
                assert_eq!(read_header(&out[..cut], usize::MAX), Ok(Header::Unknown));
            }
        }
    }

    #[test]
    fn an_endless_length_and_a_large_packet_are_refused() {
        assert_eq!(
            read_header(&[0x30, 0xFF, 0xFF, 0xFF, 0xFF], 100),
            Err(Reason::MalformedPacket)
        );
        assert_eq!(read_header(&[0x30, 0x7F], 128), Err(Reason::PacketTooLarge));
        assert_eq!(
            read_header(&[0x30, 0x7E], 128),
            Ok(Header::Packet { total_bytes: 128 })
        );
    }
}
