//! The TLS stream against the library's own client, over pipes.

use std::time::Duration;

use super::*;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::{pem::PemObject, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_rustls::{client, TlsConnector};

use crate::settings::TlsMaterial;
use crate::tls::server_config;

type Near = TlsStream<DuplexStream>;
type Far = client::TlsStream<DuplexStream>;

struct Authority(Issuer<'static, KeyPair>, String);

fn authority() -> Authority {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let pem = params.self_signed(&key).expect("a certificate").pem();
    Authority(Issuer::new(params, key), pem)
}

fn issue(authority: &Authority) -> (String, String) {
    let params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    let key = KeyPair::generate().expect("a key");
    let made = params.signed_by(&key, &authority.0).expect("a certificate");
    (made.pem(), key.serialize_pem())
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")
}

fn connector(
    authority: &Authority,
    version: &'static SupportedProtocolVersion,
    is_known: bool,
) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(der(&authority.1)).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_root_certificates(roots);
    let (certificate, key) = issue(authority);
    let config = if is_known {
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
        let made = builder.with_client_auth_cert(vec![der(&certificate)], key);
        made.expect("they fit")
    } else {
        builder.with_no_client_auth()
    };
    TlsConnector::from(Arc::new(config))
}

fn ends(
    version: &'static SupportedProtocolVersion,
    is_known: bool,
) -> (Arc<ServerConfig>, TlsConnector) {
    let authority = authority();
    let (certificate, key) = issue(&authority);
    let material = TlsMaterial {
        client_authorities: authority.1.clone().into_bytes(),
        certificate_chain: certificate.into_bytes(),
        private_key: key.into_bytes(),
    };
    let config = server_config(&material).expect("good material");
    (config, connector(&authority, version, is_known))
}

async fn connect(
    version: &'static SupportedProtocolVersion,
    pipe_bytes: usize,
    is_known: bool,
) -> (io::Result<Near>, io::Result<Far>) {
    let (config, connector) = ends(version, is_known);
    let (near, far) = tokio::io::duplex(pipe_bytes);
    let name = ServerName::try_from("localhost").expect("a name");
    tokio::join!(
        TlsStream::accept(near, config),
        connector.connect(name, far)
    )
}

async fn pair(version: &'static SupportedProtocolVersion, pipe_bytes: usize) -> (Near, Far) {
    let (near, far) = connect(version, pipe_bytes, true).await;
    (near.expect("a server"), far.expect("a client"))
}

fn content(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|place| place.to_be_bytes()[2]).collect()
}

#[tokio::test]
async fn bytes_pass_in_both_directions_and_leave_no_buffer() {
    for (version, pipe_bytes) in [(&TLS12, 700), (&TLS13, 700), (&TLS13, 1 << 20)] {
        let (mut near, mut far) = pair(version, pipe_bytes).await;
        assert_eq!(near.peer_certificates().len(), 1);
        let sent = content(300_000);
        for piece in [&sent[..1], &sent[..20_000], &sent] {
            let mut found = vec![0; piece.len()];
            let (written, read) = tokio::join!(
                async {
                    far.write_all(piece).await?;
                    far.flush().await
                },
                near.read_exact(&mut found)
            );
            written.and(read).expect("it passes");
            assert!(found == *piece);
            let mut found = vec![0; piece.len() + 4];
            let (written, read) = tokio::join!(
                async {
                    near.write_all(b"head").await?;
                    near.write_all(piece).await?;
                    near.flush().await
                },
                far.read_exact(&mut found)
            );
            written.and(read.map(|_| ())).expect("it passes");
            assert!(found[..4] == *b"head" && found[4..] == *piece);
        }
        let held = [&near.incoming, &near.plain, &near.outgoing];
        assert!(held.iter().all(|buffer| buffer.capacity() == 0));
    }
}

#[tokio::test]
async fn parts_are_written_in_their_order() {
    let (mut near, mut far) = pair(&TLS13, 1 << 20).await;
    let tail = content(100_000);
    let parts = [io::IoSlice::new(b"head"), io::IoSlice::new(&tail)];
    let count = near.write_vectored(&parts).await.expect("room");
    assert_eq!(count, 4 + WRITE_BYTES);
    near.flush().await.expect("room");
    let mut found = vec![0; count];
    far.read_exact(&mut found).await.expect("it passes");
    assert!(found[..4] == *b"head" && found[4..] == tail[..WRITE_BYTES]);
}

#[tokio::test]
async fn what_is_written_of_many_parts_is_their_beginning() {
    let (mut near, mut far) = pair(&TLS13, 1 << 20).await;
    let pieces =
        [(100, 1), (50, 2), (1_000, 3), (70_000, 4)].map(|(bytes, byte)| vec![byte; bytes]);
    for places in [[0, 1, 2], [1, 0, 2], [2, 3, 0], [3, 2, 1], [3, 3, 3]] {
        let parts = places.map(|place| io::IoSlice::new(&pieces[place]));
        let all = parts.iter().flat_map(|part| part.to_vec());
        let all: Vec<u8> = all.collect();
        let count = near.write_vectored(&parts).await.expect("room");
        near.flush().await.expect("room");
        let mut found = vec![0; count];
        far.read_exact(&mut found).await.expect("it passes");
        assert!(found == all[..count], "{places:?}");
    }
    assert_eq!(near.write_vectored(&[]).await.expect("nothing"), 0);
}

#[tokio::test]
async fn keys_may_be_changed_on_the_way() {
    let (mut near, mut far) = pair(&TLS13, 1 << 20).await;
    for _ in 0..3 {
        far.get_mut().1.refresh_traffic_keys().expect("TLS 1.3");
        far.write_all(b"question").await.expect("room");
        let mut found = [0; 8];
        near.read_exact(&mut found).await.expect("it passes");
        near.write_all(&found).await.expect("room");
        far.read_exact(&mut found).await.expect("it passes");
        assert_eq!(&found, b"question");
    }
}

#[tokio::test]
async fn an_end_is_told_from_a_cut() {
    for version in [&TLS12, &TLS13] {
        let mut byte = [0];
        let (mut near, mut far) = pair(version, 1 << 20).await;
        near.write_all(b"x").await.expect("room");
        near.shutdown().await.expect("room");
        assert_eq!(far.read(&mut byte).await.expect("a byte"), 1);
        assert_eq!(far.read(&mut byte).await.expect("an end"), 0);
        let (mut near, mut far) = pair(version, 1 << 20).await;
        far.shutdown().await.expect("room");
        assert_eq!(near.read(&mut byte).await.expect("an end"), 0);
        let (mut near, far) = pair(version, 1 << 20).await;
        drop(far);
        let error = near.read(&mut byte).await.expect_err("a cut");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

#[tokio::test]
async fn who_has_no_certificate_is_told_so() {
    for version in [&TLS12, &TLS13] {
        let (near, far) = connect(version, 1 << 20, false).await;
        let error = near.err().expect("nobody was let in").to_string();
        assert!(error.contains("no certificates"), "{error}");
        let told = match far {
            Err(error) => error,
            // In TLS 1.3 a client is through before its server has looked.
            Ok(mut far) => far.read(&mut [0]).await.expect_err("an alert"),
        };
        assert!(told.to_string().contains("alert"), "{told}");
    }
}

#[tokio::test]
async fn what_is_no_record_ends_the_connection_with_an_alert() {
    let (mut near, mut far) = pair(&TLS13, 1 << 20).await;
    far.get_mut()
        .0
        .write_all(&[0x17, 3, 3, 0, 40])
        .await
        .expect("room");
    far.get_mut().0.write_all(&[7; 40]).await.expect("room");
    let error = near.read(&mut [0]).await.expect_err("nonsense");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let told = far.read(&mut [0]).await.expect_err("an alert");
    assert!(told.to_string().contains("BadRecordMac"), "{told}");
}

/// One connection through somebody who changes the byte at a place on its way to the server.
async fn tampered(config: Arc<ServerConfig>, connector: TlsConnector, place: usize) {
    let (near, middle_near) = tokio::io::duplex(1 << 20);
    let (middle_far, far) = tokio::io::duplex(1 << 20);
    let (mut from_near, mut to_near) = tokio::io::split(middle_near);
    let (mut from_far, mut to_far) = tokio::io::split(middle_far);
    let up = async {
        let (mut passed, mut bin) = (0, [0; 300]);
        while let Ok(count @ 1..) = from_far.read(&mut bin).await {
            if (passed..passed + count).contains(&place) {
                bin[place - passed] ^= 0x15;
            }
            passed += count;
            if to_near.write_all(&bin[..count]).await.is_err() {
                break;
            }
        }
        let _ = to_near.shutdown().await;
    };
    let down = async {
        let _ = tokio::io::copy(&mut from_near, &mut to_far).await;
        let _ = to_far.shutdown().await;
    };
    let server = async {
        let mut near = TlsStream::accept(near, config).await?;
        near.read(&mut [0; 64]).await
    };
    let client = async {
        let name = ServerName::try_from("localhost").expect("a name");
        let mut far = connector.connect(name, far).await?;
        far.write_all(b"hello").await?;
        far.read(&mut [0]).await
    };
    // Where a length was changed, each may wait for the other.
    let client = tokio::time::timeout(Duration::from_millis(20), client);
    let ((), (), _served, _said) = tokio::join!(up, down, server, client);
}

#[tokio::test]
async fn a_handshake_that_was_tampered_with_comes_to_an_end() {
    for version in [&TLS12, &TLS13] {
        let (config, connector) = ends(version, true);
        for place in (0..1_400).step_by(9) {
            let ended = tampered(config.clone(), connector.clone(), place);
            let ended = tokio::time::timeout(Duration::from_secs(10), ended).await;
            ended.expect("both ends see that it is over");
        }
    }
}

#[tokio::test]
async fn a_peer_that_takes_nothing_holds_little() {
    let (mut near, _far) = pair(&TLS13, 1_000).await;
    let sent = content(1_000_000);
    let stalled = tokio::time::timeout(Duration::from_millis(50), near.write_all(&sent));
    stalled.await.expect_err("the pipe is full");
    assert!(near.outgoing.len() <= most_encrypted_bytes(WRITE_BYTES));
}
