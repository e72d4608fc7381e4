//! Which events are the same, and when a repeat is written.
//!
//! Owns the memory of what was reported: at most [`SERIES`] series, the oldest forgotten first. Pure: time comes in. The first
//! of a series is written at once; repeats are counted and written at most once in [`GAP`]; a series that rests for [`REST`]
//! begins anew.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use api_model::Time;

use super::Severity;

/// Series that are remembered.
const SERIES: usize = 4096;
/// Shortest time between two writes of one series.
const GAP: Duration = Duration::from_secs(5);
/// A series without a report for this long is forgotten.
const REST: Duration = Duration::from_secs(600);

/// What makes two reports the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) severity: Severity,
    pub(super) reason: String,
    pub(super) message: String,
}

/// What to write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Act<O> {
    /// Nothing now.
    Nothing,
    /// A new event under this name.
    Create { key: Key, name: String, object: O },
    /// A higher count on the event of this name.
    Raise {
        key: Key,
        name: String,
        object: O,
        count: i32,
    },
}

#[derive(Debug)]
struct Entry<O> {
    name: String,
    object: O,
    count: i32,
    written: i32,
    written_at: Time,
    seen_at: Time,
}

#[derive(Debug)]
pub(super) struct Series<O> {
    entries: BTreeMap<Key, Entry<O>>,
}

impl<O> Default for Series<O> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
        }
    }
}

impl<O: Clone> Series<O> {
    /// A report came in.
    pub(super) fn record(&mut self, now: Time, key: Key, object: O) -> Act<O> {
        if let Some(entry) = self.entries.get_mut(&key)
            && now.since(entry.seen_at) < REST
        {
            entry.count = entry.count.saturating_add(1);
            entry.seen_at = now;
            if now.since(entry.written_at) < GAP {
                return Act::Nothing;
            }
            return Self::raise(now, &key, entry);
        }
        self.make_room(now);
        let name = event_name(&key, now);
        let entry = Entry {
            name: name.clone(),
            object: object.clone(),
            count: 1,
            written: 1,
            written_at: now,
            seen_at: now,
        };
        self.entries.insert(key.clone(), entry);
        Act::Create { key, name, object }
    }

    /// When a counted repeat is due to be written.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        self.entries
            .values()
            .filter(|entry| entry.count > entry.written)
            .map(|entry| entry.written_at + GAP)
            .min()
    }

    /// One repeat that is due.
    pub(super) fn due(&mut self, now: Time) -> Act<O> {
        self.entries
            .iter_mut()
            .find(|(_, entry)| entry.count > entry.written && entry.written_at + GAP <= now)
            .map_or(Act::Nothing, |(key, entry)| Self::raise(now, key, entry))
    }

    /// All repeats that were not written yet.
    pub(super) fn rest(&mut self) -> Vec<Act<O>> {
        self.entries
            .iter_mut()
            .filter(|(_, entry)| entry.count > entry.written)
            .map(|(key, entry)| Self::raise(entry.written_at, key, entry))
            .collect()
    }

    /// The event could not be written: the next report begins a series.
    pub(super) fn forget(&mut self, key: &Key) {
        self.entries.remove(key);
    }

    fn raise(now: Time, key: &Key, entry: &mut Entry<O>) -> Act<O> {
        entry.written = entry.count;
        entry.written_at = now;
        Act::Raise {
            key: key.clone(),
            name: entry.name.clone(),
            object: entry.object.clone(),
            count: entry.count,
        }
    }

    /// Forgets what rests, and the oldest when there are still too many.
    fn make_room(&mut self, now: Time) {
        if self.entries.len() < SERIES {
            return;
        }
        self.entries
            .retain(|_, entry| now.since(entry.seen_at) < REST);
        while self.entries.len() >= SERIES {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.seen_at);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            self.entries.remove(&key);
        }
    }
}

/// Name of an event: the object's name, cut so that it fits, and 16 hex digits of its content and time.
fn event_name(key: &Key, now: Time) -> String {
    let mut hasher = DefaultHasher::new();
    (&key.uid, key.severity.as_str(), &key.reason, &key.message).hash(&mut hasher);
    now.since_start().as_nanos().hash(&mut hasher);
    let object: String = key.name.chars().take(230).collect();
    format!("{object}.{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key {
            kind: "Service".to_owned(),
            namespace: "demo".to_owned(),
            name: name.to_owned(),
            uid: "u".to_owned(),
            severity: Severity::Warning,
            reason: "AllocationFailed".to_owned(),
            message: "no pool".to_owned(),
        }
    }

    fn at(seconds: u64) -> Time {
        Time::from_start(Duration::from_secs(seconds))
    }

    #[test]
    fn repeats_are_counted_and_written_once_in_a_while() {
        let mut series = Series::default();
        let Act::Create { name, .. } = series.record(at(0), key("web"), ()) else {
            panic!("the first is written at once");
        };
        for _ in 0..9 {
            assert_eq!(series.record(at(1), key("web"), ()), Act::Nothing);
        }
        assert_eq!(series.next_deadline(), Some(at(5)));
        assert_eq!(series.due(at(4)), Act::Nothing);
        let raise = |count| Act::Raise {
            key: key("web"),
            name: name.clone(),
            object: (),
            count,
        };
        assert_eq!(series.due(at(5)), raise(10));
        assert_eq!(series.next_deadline(), None);
        assert_eq!(series.record(at(60), key("web"), ()), raise(11));
    }

    #[test]
    fn a_series_that_rested_begins_anew() {
        let mut series = Series::default();
        let first = series.record(at(0), key("web"), ());
        let second = series.record(at(600), key("web"), ());
        assert!(matches!(
            (&first, &second),
            (Act::Create { .. }, Act::Create { .. })
        ));
        assert_ne!(first, second);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let mut series = Series::default();
        for n in 0..=SERIES {
            series.record(at(n as u64 / 100), key(&format!("s{n}")), ());
        }
        assert_eq!(series.entries.len(), SERIES);
        assert!(!series.entries.contains_key(&key("s0")));
        assert!(series.entries.contains_key(&key("s1")));
    }

    #[test]
    fn what_was_not_written_is_handed_out_at_the_end() {
        let mut series = Series::default();
        series.record(at(0), key("web"), ());
        series.record(at(1), key("web"), ());
        assert!(matches!(
            series.rest().as_slice(),
            [Act::Raise { count: 2, .. }]
        ));
        assert_eq!(series.rest(), []);
    }
}
