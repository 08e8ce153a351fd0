//! How sessions begin, change hands, wait for their client and end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acl::Peer;
use crate::counters::add;
use crate::event::{DisconnectReason, Event, Who};
use crate::hub::{who, Hub, State};
use crate::lock::lock;
use crate::mailbox::Mailbox;
use crate::message::{after, Message};
use crate::packet::{Connect, Filter, Will};
use crate::reason::Reason;
use crate::router::Subscription;
use crate::session::{Attachment, Session};
use crate::topic;

/// An accepted CONNECT.
pub(crate) struct Opened {
    pub(crate) session: Arc<Session>,
    pub(crate) session_present: bool,
    pub(crate) keep_alive_s: u16,
    pub(crate) expiry_s: u32,
}

/// A refused CONNECT.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) reason: Reason,
    /// For the peer.
    pub(crate) told: &'static str,
    /// For the operator, where there is more to say.
    pub(crate) detail: Option<String>,
}

impl Refusal {
    pub(crate) fn new(reason: Reason, told: &'static str) -> Self {
        Self {
            reason,
            told,
            detail: None,
        }
    }
}

impl Hub {
    /// Opens or resumes the session of a peer, which the caller has checked.
    pub(crate) fn connect(
        &self,
        peer: &Peer,
        request: &mut Connect,
        serial: Option<Arc<str>>,
        mailbox: &Arc<Mailbox>,
    ) -> Result<Opened, Refusal> {
        let now = Instant::now();
        let longest = self.limits.max_keepalive_s;
        let keep_alive_s = match request.keep_alive_s {
            0 => longest,
            asked => asked.min(longest),
        };
        let expiry_s = request
            .session_expiry_s
            .min(self.limits.max_session_expiry_s);
        let mut state = lock(&self.state);
        let present = state
            .by_key
            .get(&peer.session_key)
            .and_then(|id| state.sessions.get(id));
        let present = present.cloned();
        let mut will = None;
        if let Some(session) = &present {
            let has_two_owners = state.takeovers.has_two_owners(&peer.session_key, now);
            self.take_over(session, mailbox, has_two_owners, now)?;
            will = leftover_will(session, request.clean_start, now);
        }
        let kept = match present.clone() {
            Some(session) if request.clean_start => {
                remove(&mut state, &session);
                None
            }
            other => other,
        };
        let session_present = kept.is_some();
        let session = match kept {
            Some(session) => session,
            None => self.create(&mut state, peer, request)?,
        };
        session.with(|inner| {
            inner.expiry_s = expiry_s;
            inner.will = request.will.take();
        });
        let window = request.receive_maximum.min(self.limits.max_in_flight);
        let attachment = Attachment {
            mailbox: mailbox.clone(),
            keep_alive_s,
            serial,
        };
        session.attach(attachment, window);
        drop(state);
        if let (Some(old), Some(message)) = (present, will) {
            self.publish_will(&old, message);
        }
        Ok(Opened {
            session,
            session_present,
            keep_alive_s,
            expiry_s,
        })
    }

    fn create(
        &self,
        state: &mut State,
        peer: &Peer,
        request: &Connect,
    ) -> Result<Arc<Session>, Refusal> {
        if state.sessions.len() >= self.limits.max_sessions {
            return Err(Refusal::new(
                Reason::QuotaExceeded,
                "no room for another session",
            ));
        }
        let id = state.next_session;
        state.next_session += 1;
        let key = peer.session_key.clone();
        let bytes = self.all_bytes.clone();
        let session = Session::new(id, key.clone(), &request.client_id, peer.identity(), bytes);
        let session = Arc::new(session);
        state.by_key.insert(key, id);
        state.sessions.insert(id, session.clone());
        Ok(session)
    }

    /// Ends the connection that a session has, unless its owner has to be protected.
    fn take_over(
        &self,
        session: &Session,
        mailbox: &Mailbox,
        has_two_owners: bool,
        now: Instant,
    ) -> Result<(), Refusal> {
        let old = session.with(|state| -> Result<Option<Arc<Mailbox>>, Refusal> {
            let Some(attachment) = &state.attachment else {
                return Ok(None);
            };
            let patience = silence_allowed(attachment.keep_alive_s);
            let is_alive = attachment.mailbox.silence(now) < patience;
            if has_two_owners && is_alive {
                let owner = attachment.mailbox.address();
                return Err(Refusal {
                    reason: Reason::ClientIdNotValid,
                    told: "another living client has this identity",
                    detail: Some(format!(
                        "two clients with one identity: {owner} keeps it, {} is refused",
                        mailbox.address()
                    )),
                });
            }
            Ok(Some(attachment.mailbox.clone()))
        })?;
        let Some(old) = old else { return Ok(()) };
        old.end(Reason::SessionTakenOver);
        add(&self.counters.takeovers, 1);
        self.gateway.notice(Event::TakenOver {
            who: who(session),
            old_address: old.address(),
            new_address: mailbox.address(),
        });
        Ok(())
    }

    /// Notes that a connection which was taken over answered: its owner is alive.
    pub(crate) fn note_living_takeover(&self, session: &Session) {
        lock(&self.state)
            .takeovers
            .note(&session.key, Instant::now());
    }

    /// Takes a connection off its session, unless another one has it already.
    pub(crate) fn detach(
        &self,
        session: &Arc<Session>,
        mailbox: &Arc<Mailbox>,
        reason: DisconnectReason,
        code: u8,
    ) {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let will = session.with(|inner| {
            let attachment = inner.attachment.take();
            let is_ours = attachment
                .as_ref()
                .is_some_and(|a| Arc::ptr_eq(&a.mailbox, mailbox));
            if !is_ours {
                inner.attachment = attachment;
                return None;
            }
            inner.forget_chunks();
            inner.ends_at = after(now, inner.expiry_s);
            if reason == DisconnectReason::Normal {
                inner.will = None;
            }
            let delay_s = inner
                .will
                .as_ref()
                .map(|will| will.delay_s.min(inner.expiry_s));
            match delay_s {
                Some(0) => inner.will.take(),
                Some(delay_s) => {
                    inner.will_at = after(now, delay_s);
                    None
                }
                None => None,
            }
        });
        settle(&mut state, session, now);
        drop(state);
        if let Some(will) = will {
            self.publish_will(session, will_message(will, now));
        }
        let address = mailbox.address();
        self.gateway.notice(Event::Disconnected {
            who: who(session),
            address,
            reason,
            code,
        });
    }

    /// Does what time has made due: wills, ends of sessions, reports of uploads.
    pub(crate) fn tick(&self, now: Instant) {
        let mut wills = Vec::new();
        {
            let mut state = lock(&self.state);
            for id in state.timers.take_due(now) {
                let Some(session) = state.sessions.get(&id).cloned() else {
                    continue;
                };
                let will = session.with(|inner| {
                    let is_due = inner.attachment.is_none()
                        && (inner.will_at.is_some_and(|at| at <= now)
                            || inner.ends_at.is_some_and(|at| at <= now));
                    if is_due {
                        inner.will_at = None;
                        inner.will.take()
                    } else {
                        None
                    }
                });
                settle(&mut state, &session, now);
                wills.extend(will.map(|will| (session, will)));
            }
        }
        for (session, will) in wills {
            self.publish_will(&session, will_message(will, now));
        }
        if let Some(sink) = &self.sink {
            for report in sink.due() {
                self.gateway.notice(Event::Upload(report));
            }
        }
    }

    /// Drops retained messages that are too late.
    pub(crate) fn expire_retained(&self, now: Instant) {
        lock(&self.state).retained.expire(now);
    }

    /// Subscribes a session to one filter, and queues what is retained.
    pub(crate) fn subscribe(
        &self,
        session: &Arc<Session>,
        peer: &Peer,
        request: &Filter,
    ) -> Result<u8, Reason> {
        let filter = &*request.filter;
        if filter.starts_with("$share/") {
            return Err(Reason::SharedSubscriptionNotSupported);
        }
        if !topic::is_filter(filter) {
            return Err(Reason::TopicFilterInvalid);
        }
        if !self.rules.may_subscribe(&peer.role, filter) {
            add(&self.counters.not_authorized, 1);
            return Err(Reason::NotAuthorized);
        }
        let subscription = Subscription {
            qos: request.qos.min(1),
            no_local: request.no_local,
            retain_as_published: request.retain_as_published,
        };
        let mut state = lock(&self.state);
        let is_new = session.with(|inner| {
            let is_new = !inner.subscriptions.contains_key(filter);
            if is_new && inner.subscriptions.len() >= self.limits.max_subscriptions {
                return Err(Reason::QuotaExceeded);
            }
            inner.subscriptions.insert(filter.into(), subscription);
            Ok(is_new)
        })?;
        state.router.subscribe(filter, session.id, subscription);
        let wants_retained = match request.retain_handling {
            0 => true,
            1 => is_new,
            _ => false,
        };
        let stored = if wants_retained {
            state.retained.matching(filter, Instant::now())
        } else {
            Vec::new()
        };
        drop(state);
        for message in stored {
            self.deliver(session, &message, message.qos.min(subscription.qos), true);
        }
        Ok(subscription.qos)
    }

    /// Takes a subscription back; tells whether there was one.
    pub(crate) fn unsubscribe(&self, session: &Session, filter: &str) -> bool {
        let mut state = lock(&self.state);
        let was_there = session.with(|inner| inner.subscriptions.remove(filter).is_some());
        if was_there {
            state.router.unsubscribe(filter, session.id);
        }
        was_there
    }

    /// Tells the operator of something that was refused.
    pub(crate) fn notice_refusal(
        &self,
        who: Option<Who>,
        address: std::net::SocketAddr,
        reason: Reason,
        detail: String,
    ) {
        self.gateway.notice(Event::Refused {
            who,
            address,
            code: reason.code(),
            detail,
        });
    }
}

/// 1.5 times the keepalive. Source: MQTT 5.0, section 3.1.2.10.
pub(crate) fn silence_allowed(keep_alive_s: u16) -> Duration {
    Duration::from_secs(keep_alive_s.into()) * 3 / 2
}

/// The will that a new connection makes due: that of an ended session, or of a connection that
/// is taken over without a delay. A delayed one is cancelled. Source: MQTT 5.0, section 3.1.3.2.2.
fn leftover_will(session: &Session, clean_start: bool, now: Instant) -> Option<Message> {
    session.with(|state| {
        let will = state.will.take()?;
        state.will_at = None;
        (clean_start || will.delay_s == 0).then(|| will_message(will, now))
    })
}

fn will_message(will: Will, now: Instant) -> Message {
    Message {
        topic: will.topic,
        chunk_head: None,
        payload: will.payload,
        qos: will.qos,
        retain: will.retain,
        expires: will.expiry_s.and_then(|seconds| after(now, seconds)),
        properties: will.properties,
    }
}

/// Ends a session without a connection whose time is over, or sets its timers.
fn settle(state: &mut State, session: &Arc<Session>, now: Instant) {
    let (ends_at, will_at) = session.with(|inner| match inner.attachment {
        Some(_) => (None, None),
        None => (inner.ends_at, inner.will_at),
    });
    if ends_at.is_some_and(|at| at <= now) {
        remove(state, session);
        return;
    }
    for at in [ends_at, will_at].into_iter().flatten() {
        state.timers.set(at, session.id);
    }
}

fn remove(state: &mut State, session: &Session) {
    session.with(|inner| {
        for filter in inner.subscriptions.keys() {
            state.router.unsubscribe(filter, session.id);
        }
        inner.subscriptions.clear();
    });
    state.sessions.remove(&session.id);
    state.timers.forget(session.id);
    if state.by_key.get(&session.key) == Some(&session.id) {
        state.by_key.remove(&session.key);
    }
}
