//! The name and serial number in a certificate that the TLS library has verified already.
//!
//! Only what leads to the subject is walked. Source: RFC 5280, section 4.1; X.690, section 8.

/// What a certificate says of its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certified {
    /// The one common name, which has the form of a device id.
    pub common_name: String,
    /// Serial number: lower-case hexadecimal, without leading zeros.
    pub serial: String,
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OBJECT_ID: u8 = 0x06;
const VERSION: u8 = 0xA0;
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const UTF8_STRING: u8 = 0x0C;
const PRINTABLE_STRING: u8 = 0x13;

/// Reads a certificate in DER; `None` where its name is not a device id or a claim.
pub fn read(der: &[u8]) -> Option<Certified> {
    let (certificate, _) = element(der, SEQUENCE)?;
    let (mut body, _) = element(certificate, SEQUENCE)?;
    if body.first() == Some(&VERSION) {
        (_, body) = element(body, VERSION)?;
    }
    let (serial, body) = element(body, INTEGER)?;
    let (_algorithm, body) = element(body, SEQUENCE)?;
    let (_issuer, body) = element(body, SEQUENCE)?;
    let (_validity, body) = element(body, SEQUENCE)?;
    let (subject, _) = element(body, SEQUENCE)?;
    Some(Certified {
        common_name: common_name(subject)?,
        serial: hexadecimal(serial),
    })
}

/// Takes one element with this tag off the front: its content, and what follows.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    if first != tag {
        return None;
    }
    let (&short, mut rest) = rest.split_first()?;
    let mut length = usize::from(short);
    if short >= 0x80 {
        let count = usize::from(short & 0x7F);
        if !(1..=3).contains(&count) {
            return None;
        }
        length = rest
            .get(..count)?
            .iter()
            .fold(0, |sum, &byte| (sum << 8) | usize::from(byte));
        rest = rest.get(count..)?;
    }
    Some((rest.get(..length)?, rest.get(length..)?))
}

fn common_name(mut subject: &[u8]) -> Option<String> {
    let mut found = None;
    while !subject.is_empty() {
        let (mut set, rest) = element(subject, SET)?;
        subject = rest;
        while !set.is_empty() {
            let (attribute, rest) = element(set, SEQUENCE)?;
            set = rest;
            let (kind, value) = element(attribute, OBJECT_ID)?;
            if kind != COMMON_NAME {
                continue;
            }
            let text = element(value, UTF8_STRING)
                .or_else(|| element(value, PRINTABLE_STRING))?
                .0;
            // Two names would leave it to the reader which one counts.
            if found
                .replace(String::from_utf8(text.to_vec()).ok()?)
                .is_some()
            {
                return None;
            }
        }
    }
    found.filter(|name| is_name(name))
}

/// The form of names in topics, as `edgefl/protocol/topics.py` has it.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut bytes = text.bytes();
    let starts_well = bytes.next().is_some_and(is_plain);
    starts_well && text.len() <= 64 && bytes.all(|byte| is_plain(byte) || b"._-".contains(&byte))
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value & 0x0F)]);
    let all: String = bytes
        .iter()
        .flat_map(|&byte| [digit(byte >> 4), digit(byte)])
        .collect();
    let short = all.trim_start_matches('0');
    if short.is_empty() { "0" } else { short }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SerialNumber};

    fn certificate(names: &[(DnType, &str)], serial: &[u8]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), *name);
        }
        params.serial_number = Some(SerialNumber::from_slice(serial));
        let key = KeyPair::generate().expect("a key");
        params
            .self_signed(&key)
            .expect("a certificate")
            .der()
            .to_vec()
    }

    #[test]
    fn finds_name_and_serial() {
        let der = certificate(
            &[
                (DnType::OrganizationName, "fleet"),
                (DnType::CommonName, "dev-1"),
            ],
            &[0x0A, 0xBC],
        );
        let expected = Certified {
            common_name: "dev-1".into(),
            serial: "abc".into(),
        };
        assert_eq!(read(&der), Some(expected));
    }

    #[test]
    fn refuses_names_that_are_no_device_id() {
        for name in ["", "Dev", "a/b", "+", "-a", "a b", "\u{e9}"] {
            assert_eq!(
                read(&certificate(&[(DnType::CommonName, name)], &[1])),
                None,
                "{name:?}"
            );
        }
        assert_eq!(
            read(&certificate(&[(DnType::OrganizationName, "dev")], &[1])),
            None
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }

        #[test]
        fn no_damage_panics(at in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let mut der = SAMPLE.with(Clone::clone);
            let index = at.index(der.len());
            der[index] = value;
            der.truncate(cut.index(der.len()) + 1);
            let _ = read(&der);
        }
    }

    thread_local! {
        static SAMPLE: Vec<u8> = certificate(&[(DnType::CommonName, "dev-1")], &[1, 2, 3]);
    }
}
