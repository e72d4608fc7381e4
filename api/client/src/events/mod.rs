//! Events on objects, as `kubectl describe` shows them.
//!
//! Owns one task that writes core/v1 Events; repeats raise the count of the first one. Never blocks a caller and never fails
//! one: what does not fit into the queue of [`QUEUE`] is dropped and counted in the log. Never decides what is worth an event.
//!
//! ```text
//! events::start(client, "roadstead-allocator", instance) -> (Recorder, JoinHandle<()>)
//! ```

mod series;

use std::{sync::Arc, time::Duration};

use api_model::Time;
use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::{self as meta, MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, Resource};
use serde_json::json;
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tracing::{debug, warn};

use self::series::{Act, Key, Series};
use crate::write::{self, WriteError};

/// Events that wait for the server.
const QUEUE: usize = 1024;
/// Longest message that the API takes, in bytes.
const MESSAGE_BYTES: usize = 1024;

/// How an event is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// As it should be.
    Normal,
    /// Somebody should look.
    Warning,
}

impl Severity {
    /// `Normal` or `Warning`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// Takes events from anywhere in a process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Report>,
}

#[derive(Debug)]
struct Report {
    key: Key,
    object: ObjectReference,
}

impl Recorder {
    /// Reports something about an object. `reason` is a word, `message` a sentence with the values.
    pub fn report<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        severity: Severity,
        reason: &str,
        message: &str,
    ) {
        self.report_on(&object.object_ref(&()), severity, reason, message);
    }

    /// The same for an object that is known by reference only.
    pub fn report_on(
        &self,
        object: &ObjectReference,
        severity: Severity,
        reason: &str,
        message: &str,
    ) {
        let report = Report {
            key: Key {
                kind: object.kind.clone().unwrap_or_default(),
                namespace: object.namespace.clone().unwrap_or_default(),
                name: object.name.clone().unwrap_or_default(),
                uid: object.uid.clone().unwrap_or_default(),
                severity,
                reason: reason.to_owned(),
                message: shortened(message),
            },
            object: object.clone(),
        };
        if self.queue.try_send(report).is_err() {
            warn!(reason, "event dropped: the queue is full");
        }
    }
}

/// Cuts a message to what the API takes, at a character.
fn shortened(message: &str) -> String {
    let mut end = message.len().min(MESSAGE_BYTES);
    while !message.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    message.get(..end).unwrap_or_default().to_owned()
}

/// Starts the task that writes events in the name of `component`, a process on `host`.
pub fn start(client: Client, component: &str, host: &str) -> (Recorder, JoinHandle<()>) {
    let (queue, reports) = mpsc::channel(QUEUE);
    let writer = Writer {
        client,
        component: component.into(),
        host: host.into(),
        base: Instant::now(),
        series: Series::default(),
        reports,
    };
    (Recorder { queue }, tokio::spawn(writer.run()))
}

struct Writer {
    client: Client,
    component: Arc<str>,
    host: Arc<str>,
    base: Instant,
    series: Series<ObjectReference>,
    reports: mpsc::Receiver<Report>,
}

impl Writer {
    /// Writes until every recorder is dropped and the queue is empty.
    async fn run(mut self) {
        loop {
            let due = self.series.next_deadline();
            let wake = self.base + due.map_or(Duration::from_secs(3600), Time::since_start);
            let act = tokio::select! {
                report = self.reports.recv() => match report {
                    Some(Report { key, object }) => self.series.record(self.now(), key, object),
                    None => break,
                },
                () = sleep_until(wake) => self.series.due(self.now()),
            };
            self.act(act).await;
        }
        for act in self.series.rest() {
            self.act(act).await;
        }
    }

    fn now(&self) -> Time {
        Time::from_start(self.base.elapsed())
    }

    async fn act(&mut self, act: Act<ObjectReference>) {
        let (key, written) = match act {
            Act::Nothing => return,
            Act::Create { key, name, object } => {
                let written = self.create(&key, &name, &object, 1).await;
                (key, written)
            }
            Act::Raise {
                key,
                name,
                object,
                count,
            } => {
                let api = self.api(&key);
                let patch = json!({"count": count, "lastTimestamp": meta::Time(Timestamp::now())});
                let written = match write::merge(&api, &name, None, patch).await {
                    Err(WriteError::NotFound(_)) => self.create(&key, &name, &object, count).await,
                    other => other,
                };
                (key, written)
            }
        };
        if let Err(error) = written {
            debug!(%error, reason = key.reason, "event not written");
            self.series.forget(&key);
        }
    }

    /// Events on cluster-scoped objects live in `default`.
    fn api(&self, key: &Key) -> Api<Event> {
        let namespace = if key.namespace.is_empty() {
            "default"
        } else {
            &key.namespace
        };
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn create(
        &self,
        key: &Key,
        name: &str,
        object: &ObjectReference,
        count: i32,
    ) -> Result<Event, WriteError> {
        let api = self.api(key);
        let now = Timestamp::now();
        let event = Event {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: api.namespace().map(str::to_owned),
                ..ObjectMeta::default()
            },
            involved_object: object.clone(),
            type_: Some(key.severity.as_str().to_owned()),
            reason: Some(key.reason.clone()),
            message: Some(key.message.clone()),
            count: Some(count),
            first_timestamp: Some(meta::Time(now)),
            last_timestamp: Some(meta::Time(now)),
            event_time: None::<MicroTime>,
            source: Some(EventSource {
                component: Some(self.component.to_string()),
                host: Some(self.host.to_string()),
            }),
            reporting_component: Some(self.component.to_string()),
            reporting_instance: Some(self.host.to_string()),
            ..Event::default()
        };
        write::create(&api, &event).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        assert_eq!(shortened("short"), "short");
        let long = "ä".repeat(600);
        assert_eq!(shortened(&long), "ä".repeat(512));
        let odd = format!("x{long}");
        assert_eq!(shortened(&odd).len(), 1023);
    }
}
