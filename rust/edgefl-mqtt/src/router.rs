//! Which sessions subscribe to a topic.
//!
//! Filters without wildcards, one per device, are looked up whole; the few with wildcards are in
//! a tree of levels. So the cost of a message depends on its subscribers, not on all sessions.

use std::collections::hash_map::Entry;
use std::collections::HashMap;

use crate::topic;

/// Number of a session.
pub(crate) type SessionId = u64;

/// How a session subscribes to a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subscription {
    /// Highest QoS, 0 or 1.
    pub(crate) qos: u8,
    /// Not for messages that the session itself published.
    pub(crate) no_local: bool,
    /// Deliver with the flag that it was published with.
    pub(crate) retain_as_published: bool,
}

type Subscribers = HashMap<SessionId, Subscription>;

/// The index of subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Router {
    exact: HashMap<Box<str>, Subscribers>,
    tree: Node,
}

#[derive(Debug, Default)]
struct Node {
    children: HashMap<Box<str>, Node>,
    here: Subscribers,
    all_below: Subscribers,
}

impl Node {
    fn is_empty(&self) -> bool {
        self.children.is_empty() && self.here.is_empty() && self.all_below.is_empty()
    }
}

impl Router {
    /// Adds or replaces a subscription to a well-formed filter; tells whether it is new.
    pub(crate) fn subscribe(
        &mut self,
        filter: &str,
        session: SessionId,
        subscription: Subscription,
    ) -> bool {
        if !topic::has_wildcard(filter) {
            let subscribers = self.exact.entry(filter.into()).or_default();
            return subscribers.insert(session, subscription).is_none();
        }
        let mut node = &mut self.tree;
        for level in filter.split('/') {
            if level == "#" {
                return node.all_below.insert(session, subscription).is_none();
            }
            node = node.children.entry(level.into()).or_default();
        }
        node.here.insert(session, subscription).is_none()
    }

    /// Removes a subscription; tells whether there was one.
    pub(crate) fn unsubscribe(&mut self, filter: &str, session: SessionId) -> bool {
        if topic::has_wildcard(filter) {
            return remove(&mut self.tree, filter, session);
        }
        let Entry::Occupied(mut entry) = self.exact.entry(filter.into()) else {
            return false;
        };
        let was_there = entry.get_mut().remove(&session).is_some();
        if entry.get().is_empty() {
            entry.remove();
        }
        was_there
    }

    /// Returns each subscriber once, with the highest of its QoS.
    pub(crate) fn subscribers(&self, name: &str) -> Vec<(SessionId, Subscription)> {
        let mut found = Subscribers::new();
        if let Some(subscribers) = self.exact.get(name) {
            collect(subscribers, &mut found);
        }
        if !self.tree.is_empty() {
            let levels: Vec<&str> = name.split('/').collect();
            walk(&self.tree, &levels, 0, &mut found);
        }
        found.into_iter().collect()
    }
}

fn walk(node: &Node, levels: &[&str], depth: usize, found: &mut Subscribers) {
    // A wildcard on the first level does not select names that begin with `$`.
    let is_hidden = depth == 0 && levels.first().is_some_and(|level| level.starts_with('$'));
    if !is_hidden {
        collect(&node.all_below, found);
    }
    let Some(level) = levels.get(depth) else {
        collect(&node.here, found);
        return;
    };
    if let Some(child) = node.children.get(*level) {
        walk(child, levels, depth + 1, found);
    }
    if let (false, Some(child)) = (is_hidden, node.children.get("+")) {
        walk(child, levels, depth + 1, found);
    }
}

fn collect(subscribers: &Subscribers, found: &mut Subscribers) {
    for (session, subscription) in subscribers {
        found
            .entry(*session)
            .and_modify(|present| {
                present.qos = present.qos.max(subscription.qos);
                present.no_local &= subscription.no_local;
                present.retain_as_published |= subscription.retain_as_published;
            })
            .or_insert(*subscription);
    }
}

fn remove(node: &mut Node, filter: &str, session: SessionId) -> bool {
    let (level, rest) = match filter.split_once('/') {
        Some((level, rest)) => (level, Some(rest)),
        None => (filter, None),
    };
    if level == "#" {
        return node.all_below.remove(&session).is_some();
    }
    let Some(child) = node.children.get_mut(level) else {
        return false;
    };
    let was_there = match rest {
        Some(rest) => remove(child, rest, session),
        None => child.here.remove(&session).is_some(),
    };
    if child.is_empty() {
        node.children.remove(level);
    }
    was_there
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const AT_MOST: Subscription = Subscription {
        qos: 0,
        no_local: false,
        retain_as_published: false,
    };
    const AT_LEAST: Subscription = Subscription { qos: 1, ..AT_MOST };

    #[test]
    fn overlapping_subscriptions_deliver_once_with_the_highest_qos() {
        let mut router = Router::default();
        assert!(router.subscribe("a/+", 1, AT_MOST));
        assert!(router.subscribe("a/b", 1, AT_LEAST));
        assert!(!router.subscribe("a/b", 1, AT_LEAST));
        assert_eq!(router.subscribers("a/b"), [(1, AT_LEAST)]);
    }

    #[test]
    fn what_is_unsubscribed_leaves_nothing_behind() {
        let mut router = Router::default();
        for filter in ["a/b/#", "a/+/c", "a/b/c", "#", "+"] {
            assert!(router.subscribe(filter, 1, AT_MOST));
            assert!(router.unsubscribe(filter, 1));
            assert!(!router.unsubscribe(filter, 1));
        }
        assert!(router.tree.is_empty());
        assert!(router.exact.is_empty());
    }

    fn level() -> impl Strategy<Value = String> {
        prop_oneof![Just(""), Just("a"), Just("b"), Just("$x")].prop_map(str::to_owned)
    }

    fn name() -> impl Strategy<Value = String> {
        prop::collection::vec(level(), 1..5).prop_map(|levels| levels.join("/"))
    }

    fn filter() -> impl Strategy<Value = String> {
        let levels =
            prop::collection::vec(prop_oneof![3 => level(), 1 => Just("+".to_owned())], 0..4);
        (levels, any::<bool>()).prop_map(|(mut levels, has_hash)| {
            if has_hash || levels.is_empty() {
                levels.push("#".to_owned());
            }
            levels.join("/")
        })
    }

    /// Follows the words of section 4.7 level by level, without sharing code with the router.
    fn oracle(filter: &[&str], topic: &[&str], is_first: bool) -> bool {
        let wild_is_allowed =
            !(is_first && topic.first().is_some_and(|level| level.starts_with('$')));
        match (filter.split_first(), topic.split_first()) {
            (Some((&"#", _)), _) => wild_is_allowed,
            (Some((&"+", filter)), Some((_, topic))) => {
                wild_is_allowed && oracle(filter, topic, false)
            }
            (Some((wanted, filter)), Some((level, topic))) => {
                wanted == level && oracle(filter, topic, false)
            }
            (None, None) => true,
            _ => false,
        }
    }

    fn oracle_matches(filter: &str, topic: &str) -> bool {
        let filter: Vec<&str> = filter.split('/').collect();
        let topic: Vec<&str> = topic.split('/').collect();
        oracle(&filter, &topic, true)
    }

    proptest! {
        #[test]
        fn matches_agrees_with_the_oracle(filter in filter(), topic in name()) {
            prop_assert_eq!(topic::matches(&filter, &topic), oracle_matches(&filter, &topic));
        }

        #[test]
        fn the_router_finds_what_the_oracle_finds(
            filters in prop::collection::vec(filter(), 1..12),
            removed in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
            topic in name(),
        ) {
            let mut router = Router::default();
            let mut present: Vec<(u64, String)> = (0..).zip(filters).collect();
            for (session, filter) in &present {
                router.subscribe(filter, *session, AT_MOST);
            }
            for index in removed {
                let (session, filter) = present[index.index(present.len())].clone();
                router.unsubscribe(&filter, session);
                present.retain(|(number, _)| *number != session);
                if present.is_empty() {
                    break;
                }
            }
            let mut found: Vec<u64> =
                router.subscribers(&topic).into_iter().map(|(session, _)| session).collect();
            found.sort_unstable();
            let expected: Vec<u64> = present
                .iter()
                .filter(|(_, filter)| oracle_matches(filter, &topic))
                .map(|(session, _)| *session)
                .collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn covering_means_selecting_all(outer in filter(), inner in filter(), topic in name()) {
            if topic::covers(&outer, &inner) && oracle_matches(&inner, &topic) {
                prop_assert!(oracle_matches(&outer, &topic));
            }
        }
    }
}
