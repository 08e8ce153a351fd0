//! When sessions end and wills are due: looked at a few times a second, exact to that.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use crate::router::SessionId;

/// The next moment at which each session has to be looked at, which may find that nothing is due.
///
/// One for each session, however often its client comes and goes: who looks sets the next one.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    due: BTreeSet<(Instant, SessionId)>,
    by_session: HashMap<SessionId, Instant>,
}

impl Timers {
    /// Has the session looked at then, if it is not to be looked at earlier.
    pub(crate) fn set(&mut self, at: Instant, session: SessionId) {
        if self.by_session.get(&session).is_some_and(|&set| set <= at) {
            return;
        }
        self.forget(session);
        self.due.insert((at, session));
        self.by_session.insert(session, at);
    }

    /// Has a session that is over not looked at.
    pub(crate) fn forget(&mut self, session: SessionId) {
        if let Some(at) = self.by_session.remove(&session) {
            self.due.remove(&(at, session));
        }
    }

    /// Returns the sessions whose moment has come.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<SessionId> {
        let later = self.due.split_off(&(now, SessionId::MAX));
        let due = std::mem::replace(&mut self.due, later);
        let due = due.into_iter().map(|(_, session)| session);
        due.inspect(|session| {
            self.by_session.remove(session);
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn gives_what_is_due_once() {
        let now = Instant::now();
        let mut timers = Timers::default();
        timers.set(now, 1);
        timers.set(now + Duration::from_secs(1), 2);
        assert_eq!(timers.take_due(now), [1]);
        assert!(timers.take_due(now).is_empty());
        assert_eq!(timers.take_due(now + Duration::from_secs(1)), [2]);
    }

    #[test]
    fn whoever_comes_and_goes_has_one_moment_the_earliest() {
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let mut timers = Timers::default();
        for seconds in 1..1_000 {
            timers.set(later(seconds), 1);
            timers.set(later(seconds), 2);
        }
        assert_eq!((timers.due.len(), timers.by_session.len()), (2, 2));
        timers.set(now, 2);
        assert_eq!(timers.take_due(now), [2]);
        timers.set(later(5), 2);
        timers.forget(1);
        timers.forget(1);
        assert_eq!(timers.take_due(later(5)), [2]);
        assert_eq!((timers.due.len(), timers.by_session.len()), (0, 0));
    }
}
