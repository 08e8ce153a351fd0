//! Only certificates of the fleet's authority come in, each under its own name.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use edgefl_mqtt::event::Event;
use edgefl_mqtt::{Endpoint, EndpointError, Limits, Listeners, Settings, TlsMaterial};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{pem::PemObject, CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::harness::{Connect, FLEET, PATIENCE, V5};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        Self::named("authority")
    }

    fn named(name: &str) -> Self {
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Certificate and key in PEM.
    fn issue(&self, name: &str) -> (String, String) {
        let mut params = named(name);
        params.subject_alt_names = vec![rcgen::SanType::DnsName(
            "localhost".try_into().expect("a name"),
        )];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    fn material(&self) -> TlsMaterial {
        let (certificate, key) = self.issue("gateway");
        TlsMaterial {
            client_authorities: self.pem.clone().into_bytes(),
            certificate_chain: certificate.into_bytes(),
            private_key: key.into_bytes(),
        }
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

struct Lab {
    endpoint: Endpoint,
    port: u16,
    authority: Authority,
}

fn settings(material: TlsMaterial) -> Settings {
    Settings {
        fleet: FLEET.into(),
        listeners: Listeners {
            mqtts: Some(([127, 0, 0, 1], 0).into()),
            ..Listeners::default()
        },
        tls: Some(material),
        limits: Limits::default(),
        worker_threads: 1,
    }
}

fn lab() -> Lab {
    let authority = Authority::new();
    let endpoint = Endpoint::new(settings(authority.material()), None).expect("good settings");
    let port = endpoint.start().expect("a port").mqtts.expect("a listener");
    Lab {
        endpoint,
        port,
        authority,
    }
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

fn dial(port: u16, trusted: &str, own: Option<(&str, &str)>) -> Stream {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(trusted.as_bytes()).expect("PEM"))
        .expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM")],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM"),
            )
            .expect("they fit"),
    };
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    StreamOwned::new(connection, stream)
}

/// Sends a CONNECT; the first bytes of the answer, or none.
fn greet(stream: &mut Stream, client_id: &str) -> Option<[u8; 4]> {
    stream
        .write_all(&Connect::default().packet(V5, client_id))
        .ok()?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).ok()?;
    Some(answer)
}

fn refusal(endpoint: &Endpoint) -> String {
    for _ in 0..1_000 {
        for event in endpoint.take_events(100) {
            if let Event::Refused { detail, .. } = event {
                return detail;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("nothing was refused");
}

#[test]
fn a_certificate_is_an_identity() {
    let lab = lab();
    let (certificate, key) = lab.authority.issue("dev-1");
    let mut stream = dial(lab.port, &lab.authority.pem, Some((&certificate, &key)));
    let answer = greet(&mut stream, "dev-1").expect("an answer");
    assert_eq!((answer[0], answer[3]), (0x20, 0));
    let connections = lab.endpoint.connections();
    assert_eq!(connections[0].who.identity.as_deref(), Some("dev-1"));
    let mut stream = dial(lab.port, &lab.authority.pem, Some((&certificate, &key)));
    let answer = greet(&mut stream, "dev-2").expect("an answer");
    assert_eq!(answer[3], 0x85, "the client id is bound");
}

#[test]
fn nobody_comes_in_without_a_certificate_of_the_authority() {
    let lab = lab();
    let mut stream = dial(lab.port, &lab.authority.pem, None);
    assert_eq!(greet(&mut stream, "dev-1"), None);
    assert!(refusal(&lab.endpoint).contains("peer sent no certificates"));
    let (certificate, key) = Authority::named("stranger").issue("dev-1");
    let mut stream = dial(lab.port, &lab.authority.pem, Some((&certificate, &key)));
    assert_eq!(greet(&mut stream, "dev-1"), None);
    assert!(refusal(&lab.endpoint).contains("UnknownIssuer"));
    let (certificate, key) = lab.authority.issue("Not A Device");
    let mut stream = dial(lab.port, &lab.authority.pem, Some((&certificate, &key)));
    assert_eq!(greet(&mut stream, ""), None);
    assert!(refusal(&lab.endpoint).contains("names no device"));
}

#[test]
fn plaintext_on_the_tls_port_is_refused() {
    let lab = lab();
    let mut stream = TcpStream::connect(("127.0.0.1", lab.port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
        .write_all(&Connect::default().packet(V5, "dev-1"))
        .expect("it reads");
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(refusal(&lab.endpoint).starts_with("TLS: "));
}

#[test]
fn a_revoked_serial_number_stays_out() {
    let lab = lab();
    let (certificate, key) = lab.authority.issue("dev-1");
    let mut stream = dial(lab.port, &lab.authority.pem, Some((&certificate, &key)));
    greet(&mut stream, "").expect("an answer");
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM");
    let serial = edgefl_mqtt::certificate::read(&der).expect("a name").serial;
    lab.endpoint.set_revoked(vec![serial], vec![]);
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    let mut stream = dial(lab.port, &lab.authority.pem, Some((&certificate, &key)));
    assert_eq!(greet(&mut stream, "").expect("an answer")[3], 0x87);
    let (certificate, key) = lab.authority.issue("dev-1");
    let mut stream = dial(lab.port, &lab.authority.pem, Some((&certificate, &key)));
    assert_eq!(
        greet(&mut stream, "").expect("an answer")[3],
        0,
        "with a new certificate"
    );
}

#[test]
fn certificates_are_replaced_while_running() {
    let lab = lab();
    let next = Authority::new();
    lab.endpoint
        .set_tls(&next.material())
        .expect("good certificates");
    let (certificate, key) = next.issue("dev-1");
    let mut stream = dial(lab.port, &next.pem, Some((&certificate, &key)));
    assert_eq!(greet(&mut stream, "").expect("an answer")[3], 0);
    let (certificate, key) = lab.authority.issue("dev-1");
    let mut stream = dial(lab.port, &lab.authority.pem, Some((&certificate, &key)));
    assert_eq!(greet(&mut stream, ""), None);
}

#[test]
fn unusable_settings_are_refused_before_anything_listens() {
    let material = Authority::new().material();
    let other = Authority::new().material();
    let mixed = TlsMaterial {
        private_key: other.private_key,
        ..material.clone()
    };
    assert!(matches!(
        Endpoint::new(settings(mixed), None),
        Err(EndpointError::Tls(_))
    ));
    let broken = TlsMaterial {
        private_key: b"secret words".to_vec(),
        ..material.clone()
    };
    let Err(error) = Endpoint::new(settings(broken), None) else {
        panic!("accepted")
    };
    assert!(!error.to_string().contains("secret words"));
    let remote = Settings {
        listeners: Listeners {
            mqtt: Some(([0, 0, 0, 0], 0).into()),
            ..Listeners::default()
        },
        ..settings(material.clone())
    };
    assert!(matches!(
        Endpoint::new(remote, None),
        Err(EndpointError::PlaintextRemote(_))
    ));
    let bare = Settings {
        tls: None,
        ..settings(material)
    };
    assert!(matches!(
        Endpoint::new(bare, None),
        Err(EndpointError::NoCertificates)
    ));
}
