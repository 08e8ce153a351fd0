//! From the first byte of MQTT to an open session, or to a refusal.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::acl::Peer;
use crate::certificate::Certified;
use crate::counters::add;
use crate::encode::{Encode, Terms};
use crate::event::{Event, Who};
use crate::hub::{who, Hub};
use crate::inbox::{Found, Inbox, Reading};
use crate::lifecycle::{Opened, Refusal};
use crate::mailbox::Mailbox;
use crate::packet::{decode, version_of, Connect, Incoming, Version};
use crate::reason::Reason;
use crate::stream::BoxedStream;
use crate::topic;

/// A connection whose session is open.
pub(crate) struct Greeted {
    pub(crate) opened: Opened,
    pub(crate) peer: Peer,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) version: Version,
    pub(crate) max_packet_bytes: usize,
    pub(crate) inbox: Inbox,
}

/// Reads the CONNECT and answers it. `None`: the connection is to be closed.
///
/// `shown_out` ends the reading, for it is then that a newcomer needs the place.
pub(crate) async fn greet(
    hub: &Arc<Hub>,
    stream: &mut BoxedStream,
    address: SocketAddr,
    certified: Option<&Certified>,
    shown_out: impl Future<Output = ()>,
) -> Option<Greeted> {
    let mut inbox = Inbox::default();
    let reading = timeout(
        hub.limits.connect_time,
        read_connect(hub, stream, &mut inbox),
    );
    let read = tokio::select! {
        read = reading => read,
        () = shown_out => {
            add(&hub.counters.turned_away, 1);
            return None;
        }
    };
    let (version, request) = match read {
        Ok(Ok(request)) => (request.version, request),
        Ok(Err(Some((version, reason)))) => {
            let refusal = Refusal::new(reason, "the CONNECT cannot be read");
            refuse(hub, stream, address, version, None, refusal).await;
            return None;
        }
        Ok(Err(None)) => return None,
        Err(_) => {
            let detail = "no CONNECT in time".to_owned();
            hub.notice_refusal(None, address, Reason::MaximumConnectTime, detail);
            return None;
        }
    };
    let mut request = *request;
    let mailbox = Arc::new(Mailbox::new(address));
    let client_id: Arc<str> = (&*request.client_id).into();
    let answer = admit(hub, &mut request, certified, &mailbox);
    let (peer, opened, terms) = match answer {
        Ok(admitted) => admitted,
        Err((identity, refusal)) => {
            let who = Who {
                client_id,
                identity,
            };
            refuse(hub, stream, address, version, Some(who), refusal).await;
            return None;
        }
    };
    hub.gateway.notice(Event::Connected {
        who: who(&opened.session),
        address,
        version,
        session_present: opened.session_present,
        keep_alive_s: opened.keep_alive_s,
    });
    let mut out = BytesMut::new();
    Encode { version }.accept(&terms, &mut out);
    add(&hub.counters.bytes_written, out.len());
    // What fails here shows at the next read as well.
    let _ = timeout(hub.limits.connect_time, send(stream, &out)).await;
    let max_packet_bytes = request.max_packet_bytes;
    Some(Greeted {
        opened,
        peer,
        mailbox,
        version,
        max_packet_bytes,
        inbox,
    })
}

/// Reads up to the end of the CONNECT. An error without a reason: the peer is gone or speaks no
/// MQTT at all, so there is nothing to answer.
async fn read_connect(
    hub: &Hub,
    stream: &mut BoxedStream,
    inbox: &mut Inbox,
) -> Result<Box<Connect>, Option<(Version, Reason)>> {
    loop {
        match inbox.next(hub.limits.max_connect_bytes).map_err(|_| None)? {
            Found::Packet(packet) => {
                add(&hub.counters.bytes_read, packet.len());
                let version = version_of(&packet).map_err(unreadable)?;
                let packet = decode(version, packet).map_err(|reason| Some((version, reason)))?;
                let Incoming::Connect(request) = packet else {
                    return Err(None);
                };
                return Ok(request);
            }
            Found::Part { .. } | Found::Nothing => {}
        }
        let filled =
            std::future::poll_fn(|context| inbox.poll_fill(stream, context, Reading::Careful))
                .await;
        if filled.map_err(|_| None)? == 0 {
            return Err(None);
        }
    }
}

/// A wrong version is answered in MQTT 3.1.1, as section 3.1.2.2 of it asks.
fn unreadable(reason: Reason) -> Option<(Version, Reason)> {
    (reason == Reason::UnsupportedVersion).then_some((Version::V3, reason))
}

type Admitted = (Peer, Opened, Terms);

/// Decides on a CONNECT, and opens the session.
fn admit(
    hub: &Hub,
    request: &mut Connect,
    certified: Option<&Certified>,
    mailbox: &Arc<Mailbox>,
) -> Result<Admitted, (Option<Arc<str>>, Refusal)> {
    let proven = certified.map(|certified| Arc::<str>::from(&*certified.common_name));
    let refuse = |reason, told| Err((proven.clone(), Refusal::new(reason, told)));
    if hub.is_closing() {
        return refuse(Reason::ServerUnavailable, "the gateway is ending");
    }
    if request.has_auth_method {
        return refuse(
            Reason::BadAuthenticationMethod,
            "no authentication exchange is offered",
        );
    }
    let assigned = request.client_id.is_empty().then(|| match certified {
        Some(certified) => certified.common_name.clone(),
        None => hub.new_client_id(),
    });
    if let Some(name) = &assigned {
        request.client_id = name.as_str().into();
    }
    if request.client_id.len() > topic::MAX_TOPIC_BYTES {
        return refuse(Reason::ClientIdNotValid, "the client id is too long");
    }
    let peer = match certified {
        None => Some(hub.rules.local_peer(&request.client_id)),
        Some(certified) => hub
            .rules
            .certified_peer(&certified.common_name, &request.client_id),
    };
    let Some(peer) = peer else {
        return refuse(
            Reason::ClientIdNotValid,
            "the client id is not the certificate's",
        );
    };
    let identity = peer.identity().map(Arc::<str>::from);
    let serial = certified.map(|certified| certified.serial.as_str());
    if hub.is_revoked(&peer, serial) {
        return Err((
            identity,
            Refusal::new(Reason::NotAuthorized, "the certificate is revoked"),
        ));
    }
    check_will(hub, request, &peer).map_err(|refusal| (identity.clone(), refusal))?;
    let asked = (request.keep_alive_s, request.session_expiry_s);
    let opened = hub
        .connect(&peer, request, serial.map(Into::into), mailbox)
        .map_err(|refusal| (identity, refusal))?;
    // The list may have changed between the look at it and the session's place among the others.
    if hub.is_revoked(&peer, serial) {
        mailbox.end(Reason::NotAuthorized);
    }
    let limits = &hub.limits;
    let terms = Terms {
        session_present: opened.session_present,
        session_expiry_s: (opened.expiry_s != asked.1).then_some(opened.expiry_s),
        keep_alive_s: (opened.keep_alive_s != asked.0).then_some(opened.keep_alive_s),
        assigned_client_id: assigned,
        receive_maximum: limits.receive_maximum,
        max_packet_bytes: u32::try_from(limits.max_packet_bytes).unwrap_or(u32::MAX),
        topic_alias_maximum: limits.topic_alias_maximum,
    };
    Ok((peer, opened, terms))
}

/// A will is a message like any other.
fn check_will(hub: &Hub, request: &Connect, peer: &Peer) -> Result<(), Refusal> {
    let Some(will) = &request.will else {
        return Ok(());
    };
    if will.qos > 1 {
        return Err(Refusal::new(
            Reason::QosNotSupported,
            "the will asks for QoS 2",
        ));
    }
    if !topic::is_topic(&will.topic) {
        return Err(Refusal::new(
            Reason::TopicNameInvalid,
            "the will's topic is malformed",
        ));
    }
    if !hub.rules.may_publish(&peer.role, &will.topic) {
        add(&hub.counters.not_authorized, 1);
        return Err(Refusal::new(
            Reason::NotAuthorized,
            "the will's topic is not this client's",
        ));
    }
    Ok(())
}

async fn refuse(
    hub: &Hub,
    stream: &mut BoxedStream,
    address: SocketAddr,
    version: Version,
    who: Option<Who>,
    refusal: Refusal,
) {
    add(&hub.counters.refused_connects, 1);
    let detail = refusal.detail.unwrap_or_else(|| refusal.told.to_owned());
    hub.notice_refusal(who, address, refusal.reason, detail);
    let mut out = BytesMut::new();
    Encode { version }.refuse(refusal.reason, refusal.told, &mut out);
    let _ = timeout(hub.limits.connect_time, send(stream, &out)).await;
}

async fn send(stream: &mut BoxedStream, bytes: &[u8]) -> std::io::Result<()> {
    stream.write_all(bytes).await?;
    stream.flush().await
}
