//! What all connections share: sessions, subscriptions, retained messages, the gateway's queue.
//!
//! Order of locks: the hub's state, then a session, then a letter box or the gateway's queue.
//! None of them is held across waiting.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytestring::ByteString;

use crate::acl::{Peer, Rules};
use crate::chunks::{Chunks, TRANSFER_ID_BYTES};
use crate::counters::{add, Counters};
use crate::event::{Event, Who};
use crate::gateway::Gateway;
use crate::lock::lock;
use crate::mailbox::Mailbox;
use crate::message::Message;
use crate::queue::{DropReason, Dropped, QueueLimits};
use crate::reason::Reason;
use crate::retained::{Kept, Retained};
use crate::router::{Router, SessionId};
use crate::session::Session;
use crate::settings::{Limits, Settings};
use crate::sink::ChunkSink;
use crate::takeovers::Takeovers;
use crate::timers::Timers;

/// The shared part of an endpoint.
pub(crate) struct Hub {
    /// Bounds.
    pub(crate) limits: Limits,
    /// The fleet's name.
    pub(crate) fleet: String,
    /// Who may do what.
    pub(crate) rules: Rules,
    /// The gateway's place.
    pub(crate) gateway: Gateway,
    /// Where chunks go; without one they are ordinary messages.
    pub(crate) sink: Option<Arc<dyn ChunkSink>>,
    /// Numbers.
    pub(crate) counters: Counters,
    /// Connections that are served now.
    pub(crate) connection_count: AtomicUsize,
    pub(crate) state: Mutex<State>,
    pub(crate) all_bytes: Arc<AtomicUsize>,
    queue_limits: QueueLimits,
    revoked: Mutex<Revoked>,
    is_closing: AtomicBool,
    next_name: AtomicU64,
}

/// What changes under the hub's own lock.
pub(crate) struct State {
    pub(crate) sessions: HashMap<SessionId, Arc<Session>>,
    pub(crate) by_key: HashMap<String, SessionId>,
    pub(crate) router: Router,
    pub(crate) retained: Retained,
    pub(crate) timers: Timers,
    pub(crate) takeovers: Takeovers,
    pub(crate) next_session: SessionId,
}

#[derive(Default)]
struct Revoked {
    serials: HashSet<String>,
    identities: HashSet<String>,
}

/// A connection of a session, for the operator.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    /// Who.
    pub who: Who,
    /// From where; none while the client is away.
    pub address: Option<SocketAddr>,
    /// Messages that wait or are in flight.
    pub queued_messages: usize,
    /// Their bytes.
    pub queued_bytes: usize,
}

impl Hub {
    /// Makes a hub without sessions.
    ///
    /// # Errors
    /// The system has no more file descriptors.
    pub(crate) fn new(
        settings: &Settings,
        sink: Option<Arc<dyn ChunkSink>>,
    ) -> std::io::Result<Self> {
        let limits = settings.limits.clone();
        Ok(Self {
            fleet: settings.fleet.clone(),
            rules: Rules::new(&settings.fleet),
            gateway: Gateway::new(limits.max_gateway_bytes)?,
            sink,
            counters: Counters::default(),
            connection_count: AtomicUsize::new(0),
            state: Mutex::new(State {
                sessions: HashMap::new(),
                by_key: HashMap::new(),
                router: Router::default(),
                retained: Retained::new(limits.max_retained_messages, limits.max_retained_bytes),
                timers: Timers::default(),
                takeovers: Takeovers::default(),
                next_session: 1,
            }),
            all_bytes: Arc::new(AtomicUsize::new(0)),
            queue_limits: QueueLimits {
                max_messages: limits.max_queued_messages,
                max_bytes: limits.max_queued_bytes,
                max_all_bytes: limits.max_all_queued_bytes,
            },
            revoked: Mutex::default(),
            is_closing: AtomicBool::new(false),
            next_name: AtomicU64::new(1),
            limits,
        })
    }

    /// A name for a client that came without one.
    pub(crate) fn new_client_id(&self) -> String {
        format!("auto-{}", self.next_name.fetch_add(1, Ordering::Relaxed))
    }

    /// Passes a message on to every subscriber; tells how many there were.
    ///
    /// The gateway is not among them: who calls this also asks `gateway.wants`, for the gateway's
    /// copy needs a place in its queue first.
    pub(crate) fn route(&self, origin: Option<SessionId>, message: &Message) -> usize {
        let targets: Vec<_> = {
            let mut state = lock(&self.state);
            let may_keep = origin.is_none() || self.rules.may_retain(&message.topic);
            if message.retain && !(may_keep && state.retained.keep(message) == Kept::Yes) {
                add(&self.counters.not_retained, 1);
            }
            let found = state.router.subscribers(&message.topic);
            found
                .into_iter()
                .filter(|(session, how)| !(how.no_local && origin == Some(*session)))
                .filter_map(|(id, how)| Some((state.sessions.get(&id)?.clone(), how)))
                .collect()
        };
        for (session, how) in &targets {
            let retain = message.retain && how.retain_as_published;
            self.deliver(session, message, message.qos.min(how.qos), retain);
        }
        targets.len()
    }

    /// Queues a message for one session and reports what was dropped for it.
    pub(crate) fn deliver(&self, session: &Session, message: &Message, qos: u8, retain: bool) {
        let dropped = session.push(message, qos, retain, &self.queue_limits);
        self.report_drops(session, dropped);
    }

    /// Counts dropped messages, and tells the gateway of those that somebody may miss.
    pub(crate) fn report_drops(&self, session: &Session, dropped: Dropped) {
        for (message, reason) in dropped {
            let counter = match reason {
                DropReason::QueueFull => &self.counters.dropped_full,
                DropReason::Expired => &self.counters.dropped_expired,
                DropReason::Away | DropReason::TooLarge => &self.counters.dropped_other,
            };
            add(counter, 1);
            if matches!(reason, DropReason::QueueFull | DropReason::TooLarge) {
                let topic = message.topic;
                self.gateway.notice(Event::Dropped {
                    who: who(session),
                    topic,
                    reason,
                });
            }
        }
    }

    /// Publishes for the gateway.
    pub(crate) fn publish_own(&self, message: &Message) -> usize {
        self.route(None, message)
    }

    /// Sends chunks of a transfer to whoever hears a topic at QoS 1 and is there; tells how many these
    /// are.
    pub(crate) fn add_chunks(&self, topic: &ByteString, chunks: &Chunks) -> usize {
        let sessions = self.listeners_of(topic);
        let are_there = sessions
            .iter()
            .filter(|session| session.add_chunks(topic, chunks.clone()));
        are_there.count()
    }

    /// Sends no more chunks of a transfer.
    pub(crate) fn stop_chunks(&self, topic: &str, transfer_id: [u8; TRANSFER_ID_BYTES]) {
        for session in self.listeners_of(topic) {
            session.stop_chunks(transfer_id);
        }
    }

    fn listeners_of(&self, topic: &str) -> Vec<Arc<Session>> {
        let state = lock(&self.state);
        let found = state.router.subscribers(topic).into_iter();
        found
            .filter(|(_, how)| how.qos > 0)
            .filter_map(|(id, _)| state.sessions.get(&id).cloned())
            .collect()
    }

    /// Publishes for a client that is gone: its will.
    pub(crate) fn publish_will(&self, session: &Session, message: Message) {
        self.route(Some(session.id), &message);
        if self.gateway.wants(&message.topic) {
            // A will cannot wait for a place, and there is at most one for each session.
            let cost = u32::try_from(message.cost_bytes()).unwrap_or(u32::MAX);
            let permit = self
                .gateway
                .permits()
                .clone()
                .try_acquire_many_owned(cost)
                .ok();
            self.gateway
                .submit(message, Some(who(session)), false, None, permit);
        }
    }

    /// Subscribes the gateway, and hands it what is retained.
    pub(crate) fn subscribe_own(&self, filter: &str) {
        if !self.gateway.subscribe(filter) {
            return;
        }
        let found = lock(&self.state).retained.matching(filter, Instant::now());
        for message in found {
            self.gateway.submit(message, None, true, None, None);
        }
    }

    /// Whether a peer is shut out.
    pub(crate) fn is_revoked(&self, peer: &Peer, serial: Option<&str>) -> bool {
        let revoked = lock(&self.revoked);
        peer.identity()
            .is_some_and(|identity| revoked.identities.contains(identity))
            || serial.is_some_and(|serial| revoked.serials.contains(serial))
    }

    /// Replaces the lists of certificates and identities that are shut out, and ends their
    /// connections and sessions.
    pub(crate) fn set_revoked(&self, serials: Vec<String>, identities: Vec<String>) {
        let revoked = Revoked {
            serials: serials.into_iter().collect(),
            identities: identities.into_iter().collect(),
        };
        *lock(&self.revoked) = revoked;
        let mut ended = Vec::new();
        for session in self.all_sessions() {
            let revoked = lock(&self.revoked);
            let is_listed = session
                .identity
                .as_ref()
                .is_some_and(|identity| revoked.identities.contains(&**identity));
            session.with(|state| {
                let Some(attachment) = &state.attachment else {
                    if is_listed {
                        state.ends_at = Some(Instant::now());
                        ended.push(session.id);
                    }
                    return;
                };
                let serial = attachment.serial.as_deref();
                if is_listed || serial.is_some_and(|serial| revoked.serials.contains(serial)) {
                    state.expiry_s = 0;
                    attachment.mailbox.end(Reason::NotAuthorized);
                }
            });
        }
        let mut state = lock(&self.state);
        for id in ended {
            state.timers.set(Instant::now(), id);
        }
    }

    /// Ends the connections of an identity; tells how many there were.
    pub(crate) fn disconnect(&self, identity: &str, reason: Reason) -> usize {
        let mut count = 0;
        for session in self.all_sessions() {
            if session.identity.as_deref() == Some(identity) {
                count += usize::from(end(&session, reason));
            }
        }
        count
    }

    /// Ends every connection, and refuses new ones.
    pub(crate) fn shut_down(&self) {
        self.is_closing.store(true, Ordering::SeqCst);
        for session in self.all_sessions() {
            end(&session, Reason::ServerShuttingDown);
        }
    }

    /// Whether `shut_down` was called.
    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::SeqCst)
    }

    /// Every session, for the operator.
    pub(crate) fn connections(&self) -> Vec<ConnectionInfo> {
        let sessions = self.all_sessions();
        let info = sessions.iter().map(|session| {
            let (queued_messages, queued_bytes) = session.queued();
            let address = session.with(|state| {
                state
                    .attachment
                    .as_ref()
                    .map(|attachment| attachment.mailbox.address())
            });
            ConnectionInfo {
                who: who(session),
                address,
                queued_messages,
                queued_bytes,
            }
        });
        info.collect()
    }

    /// Counters and present sizes by name.
    pub(crate) fn stats(&self) -> Vec<(&'static str, u64)> {
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let mut stats = self.counters.read();
        let (sessions, retained, retained_bytes) = {
            let state = lock(&self.state);
            (
                state.sessions.len(),
                state.retained.len(),
                state.retained.bytes(),
            )
        };
        let free = self.gateway.permits().available_permits();
        stats.extend([
            (
                "connections",
                count(self.connection_count.load(Ordering::Relaxed)),
            ),
            ("sessions", count(sessions)),
            ("retained_messages", count(retained)),
            ("retained_bytes", count(retained_bytes)),
            (
                "queued_bytes",
                count(self.all_bytes.load(Ordering::Relaxed)),
            ),
            ("gateway_events", count(self.gateway.queued_count())),
            ("gateway_unacknowledged", count(self.gateway.open_count())),
            (
                "gateway_bytes",
                count(self.limits.max_gateway_bytes.saturating_sub(free)),
            ),
            ("lost_events", self.gateway.lost_count()),
        ]);
        stats
    }

    pub(crate) fn all_sessions(&self) -> Vec<Arc<Session>> {
        lock(&self.state).sessions.values().cloned().collect()
    }
}

/// Who a session belongs to.
pub(crate) fn who(session: &Session) -> Who {
    Who {
        client_id: session.client_id.clone(),
        identity: session.identity.clone(),
    }
}

/// Ends the connection of a session; tells whether there was one.
fn end(session: &Session, reason: Reason) -> bool {
    let mailbox: Option<Arc<Mailbox>> = session.with(|state| {
        state
            .attachment
            .as_ref()
            .map(|attachment| attachment.mailbox.clone())
    });
    if let Some(mailbox) = &mailbox {
        mailbox.end(reason);
    }
    mailbox.is_some()
}
