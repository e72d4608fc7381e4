//! Watches: the change log, filtered and written frame by frame.
//!
//! A watcher has no queue of its own: it keeps a revision and pulls from the store's log when something was written. So a
//! slow one costs nothing but its place; once the log has passed it, it is told 410 `Expired` and closed, and lists again.
//! Source: "Efficient detection of changes", KEP-3157 (streaming lists), KEP-956 (bookmarks).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use crate::Shared;
use crate::output::{Form, Writer, bytes};
use crate::selector::{FieldSelector, LabelSelector};
use crate::status_error::ApiError;
use crate::store::{Change, StoreError};

/// Changes taken from the log under the lock at a time.
const BATCH: usize = 512;
const BOOKMARK_EVERY: Duration = Duration::from_secs(30);

/// One client's watch.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    writer: Writer,
    namespace: Option<String>,
    labels: LabelSelector,
    fields: FieldSelector,
    bookmarks: bool,
    cursor: u64,
    written: tokio::sync::watch::Receiver<u64>,
    ends: Instant,
    next_bookmark: Instant,
    frames: VecDeque<Bytes>,
    columns_sent: bool,
    over: bool,
}

/// What a watch is of.
pub(crate) struct WatchOptions {
    /// Kind and form.
    pub(crate) writer: Writer,
    /// One namespace, or all.
    pub(crate) namespace: Option<String>,
    /// Labels to match.
    pub(crate) labels: LabelSelector,
    /// Fields to match.
    pub(crate) fields: FieldSelector,
    /// Send bookmarks.
    pub(crate) bookmarks: bool,
    /// Changes after this revision; none: what exists first.
    pub(crate) from: Option<u64>,
    /// A bookmark marks the end of what exists.
    pub(crate) mark_initial: bool,
    /// Closed after that.
    pub(crate) timeout: Duration,
}

impl Watch {
    /// Opens a watch. What exists is taken now, under the lock. A revision that is no longer remembered makes a watch whose only frame
    /// is the 410.
    pub(crate) fn open(shared: Arc<Shared>, options: WatchOptions) -> Self {
        let now = Instant::now();
        let written = shared.revision.subscribe();
        let (existing, cursor) = {
            let state = shared.lock();
            let existing: Vec<Arc<Value>> = if options.from.is_some() {
                Vec::new()
            } else {
                let all = state.store.list(
                    &options.writer.kind.storage,
                    options.namespace.as_deref(),
                    None,
                );
                all.map(|(_, stored)| stored.object.clone()).collect()
            };
            (existing, options.from.unwrap_or(state.store.revision()))
        };
        let mut watch = Self {
            shared,
            writer: options.writer,
            namespace: options.namespace,
            labels: options.labels,
            fields: options.fields,
            bookmarks: options.bookmarks,
            cursor,
            written,
            ends: now + options.timeout,
            next_bookmark: now + BOOKMARK_EVERY,
            frames: VecDeque::new(),
            columns_sent: false,
            over: false,
        };
        for object in existing {
            if watch.matches(&object) {
                watch.push("ADDED", &object);
            }
        }
        if options.mark_initial && options.bookmarks {
            watch.push_bookmark(true);
        }
        watch
    }

    /// The next frame, or the end.
    pub(crate) async fn next(mut self) -> Option<(Bytes, Self)> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                return Some((frame, self));
            }
            if self.over {
                return None;
            }
            self.written.borrow_and_update();
            self.pull();
            if !self.frames.is_empty() || self.over {
                continue;
            }
            tokio::select! {
                changed = self.written.changed() => if changed.is_err() { return None; },
                () = sleep_until(self.ends) => self.over = true,
                () = sleep_until(self.next_bookmark) => {
                    self.next_bookmark = Instant::now() + BOOKMARK_EVERY;
                    if self.bookmarks {
                        self.push_bookmark(false);
                    }
                }
            }
        }
    }

    /// Takes what was written since the last time.
    fn pull(&mut self) {
        loop {
            let taken = {
                let state = self.shared.lock();
                let changes = state.store.changes_after(self.cursor);
                changes.map(|changes| changes.take(BATCH).cloned().collect::<Vec<Change>>())
            };
            let batch = match taken {
                Ok(batch) => batch,
                Err(StoreError::Expired { oldest }) => {
                    let message = format!("too old resource version: {} ({oldest})", self.cursor);
                    return self.end(&ApiError::expired(&message));
                }
                // a version of another life of this server
                Err(_) => {
                    let message = "resource version is from the future: list again";
                    return self.end(&ApiError::expired(message));
                }
            };
            let last = batch.len() < BATCH;
            for change in batch {
                self.cursor = change.revision;
                self.show(&change);
            }
            if last || !self.frames.is_empty() {
                return;
            }
        }
    }

    fn show(&mut self, change: &Change) {
        if *change.resource != *self.writer.kind.storage {
            return;
        }
        if self
            .namespace
            .as_ref()
            .is_some_and(|namespace| *namespace != change.key.namespace)
        {
            return;
        }
        let before = change
            .before
            .as_ref()
            .is_some_and(|stored| self.matches(&stored.object));
        let after = change
            .after
            .as_ref()
            .is_some_and(|stored| self.matches(&stored.object));
        match (before, after) {
            (false, false) => {}
            (false, true) => self.push("ADDED", &change.last),
            (true, true) => self.push("MODIFIED", &change.last),
            (true, false) if change.after.is_none() => self.push("DELETED", &change.last),
            (true, false) => {
                // it left the selection: the last state that was in it, at the version of the change
                let mut object = change
                    .before
                    .as_ref()
                    .map_or(Value::Null, |stored| Value::clone(&stored.object));
                object["metadata"]["resourceVersion"] = json!(change.revision.to_string());
                self.push("DELETED", &object);
            }
        }
    }

    fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }

    fn push(&mut self, word: &str, object: &Value) {
        let object = self
            .writer
            .object(object, Timestamp::now(), !self.columns_sent);
        self.columns_sent = true;
        self.frame(word, &object);
    }

    fn push_bookmark(&mut self, initial: bool) {
        let kind = &self.writer.kind;
        let mut metadata =
            json!({"resourceVersion": self.cursor.to_string(), "creationTimestamp": null});
        if initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object =
            json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
        if self.writer.form == Form::Table {
            self.push("BOOKMARK", &object);
        } else {
            self.frame("BOOKMARK", &object);
        }
    }

    fn end(&mut self, error: &ApiError) {
        self.frame("ERROR", &error.to_status());
        self.over = true;
    }

    fn frame(&mut self, word: &str, object: &Value) {
        let mut line = bytes(&json!({"type": word, "object": object}));
        line.push(b'\n');
        self.frames.push_back(line.into());
    }
}
