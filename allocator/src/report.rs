//! Writes that nobody waits for: counters of pools, and whether the configuration is good.
//!
//! Owns one task that writes the newest value of each; older ones that were not written yet are dropped, so the queue is no
//! longer than the list of pools. What fails is written again later. The `ConfigurationState` is looked at from time to time
//! and put right if somebody changed or deleted it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use allocator_core::{PoolCounters, PoolReport};
use api_client::write::{self, WriteError};
use api_model::PoolName;
use api_types::{
    ConfigurationResult, ConfigurationState, ConfigurationStateStatus, IPAddressPool,
    names::{condition, label},
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::{Api, Client, api::ObjectMeta};
use serde_json::json;
use tokio::{sync::Notify, task::JoinHandle};

/// Name of our `ConfigurationState`.
const NAME: &str = "controller";
/// Time between attempts that fail.
const AGAIN: Duration = Duration::from_secs(2);
/// Time between looks at our `ConfigurationState`.
const LOOK: Duration = Duration::from_secs(30);

/// Takes reports. Dropping it ends its task.
pub(crate) struct Reporter {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    news: Mutex<News>,
    changed: Notify,
}

#[derive(Default)]
struct News {
    counters: BTreeMap<PoolName, PoolCounters>,
    configuration: Option<Vec<PoolReport>>,
}

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut News) -> T) -> T {
        act(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Reporter {
    pub(crate) fn start(client: Client, namespace: &str) -> Self {
        let shared = Arc::new(Shared::default());
        let writer = Writer {
            client,
            namespace: namespace.to_owned(),
            shared: Arc::clone(&shared),
        };
        Self {
            shared,
            task: tokio::spawn(writer.run()),
        }
    }

    pub(crate) fn counters(&self, pool: PoolName, counters: PoolCounters) {
        self.shared
            .with(|news| news.counters.insert(pool, counters));
        self.shared.changed.notify_one();
    }

    pub(crate) fn configuration(&self, reports: Vec<PoolReport>) {
        self.shared.with(|news| news.configuration = Some(reports));
        self.shared.changed.notify_one();
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Writer {
    client: Client,
    namespace: String,
    shared: Arc<Shared>,
}

impl Writer {
    async fn run(self) {
        let mut configuration: Option<Vec<PoolReport>> = None;
        loop {
            let look = tokio::time::timeout(LOOK, self.shared.changed.notified())
                .await
                .is_err();
            let news = self.shared.with(std::mem::take);
            let mut failed = false;
            for (pool, counters) in news.counters {
                if let Err(error) = self.write_counters(&pool, counters).await {
                    tracing::warn!(%pool, %error, "pool status not written");
                    self.shared
                        .with(|news| *news.counters.entry(pool).or_insert(counters));
                    failed = true;
                }
            }
            let is_new = news.configuration.is_some();
            configuration = news.configuration.or(configuration);
            if let Some(reports) = configuration.as_ref().filter(|_| is_new || look)
                && let Err(error) = self.write_configuration(reports).await
            {
                tracing::warn!(%error, "configuration state not written");
                let reports = reports.clone();
                self.shared
                    .with(|news| news.configuration.get_or_insert(reports).len());
                failed = true;
            }
            if failed {
                tokio::time::sleep(AGAIN).await;
                self.shared.changed.notify_one();
            }
        }
    }

    async fn write_counters(
        &self,
        pool: &PoolName,
        counters: PoolCounters,
    ) -> Result<(), WriteError> {
        let api: Api<IPAddressPool> = Api::namespaced(self.client.clone(), &self.namespace);
        let status = json!({
            "assignedIPv4": counters.assigned_v4,
            "assignedIPv6": counters.assigned_v6,
            "availableIPv4": counters.available_v4,
            "availableIPv6": counters.available_v6,
        });
        match write::merge_status(&api, pool.as_str(), None, status).await {
            // deleted meanwhile, or so wrong that the server refuses even its status: it has an event already
            Ok(_) | Err(WriteError::NotFound(_) | WriteError::Refused(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn write_configuration(&self, reports: &[PoolReport]) -> Result<(), WriteError> {
        let api: Api<ConfigurationState> = Api::namespaced(self.client.clone(), &self.namespace);
        let there = match api.get_opt(NAME).await? {
            Some(there) => there,
            None => write::create(&api, &new_state()).await?,
        };
        let before = there.status.unwrap_or_default();
        let status = state(reports, &before, Timestamp::now());
        if status != before {
            let mut merge = serde_json::to_value(&status)
                .map_err(|error| WriteError::Refused(error.to_string()))?;
            // an empty text is left out of the object, and a merge keeps what is left out
            merge["errorSummary"] = json!(status.error_summary);
            write::merge_status(&api, NAME, None, merge).await?;
        }
        Ok(())
    }
}

fn new_state() -> ConfigurationState {
    ConfigurationState {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            labels: Some(BTreeMap::from([(
                label::COMPONENT_TYPE.to_owned(),
                NAME.to_owned(),
            )])),
            ..ObjectMeta::default()
        },
        ..ConfigurationState::default()
    }
}

/// What the `ConfigurationState` should say.
fn state(
    reports: &[PoolReport],
    before: &ConfigurationStateStatus,
    now: Timestamp,
) -> ConfigurationStateStatus {
    let lines: Vec<String> = reports
        .iter()
        .map(|report| format!("IPAddressPool {}: {}", report.pool, report.problem))
        .collect();
    let summary = lines.join("; ");
    let (result, status, reason) = if reports.is_empty() {
        (
            ConfigurationResult::Valid,
            "True",
            condition::reason::RECONCILED,
        )
    } else {
        (
            ConfigurationResult::Invalid,
            "False",
            condition::reason::CONFIGURATION_ERROR,
        )
    };
    let is_ours =
        |found: &&Condition| found.type_ == condition::POOLS_VALID && found.status == status;
    let since = before
        .conditions
        .iter()
        .find(is_ours)
        .map_or(Time(now), |found| found.last_transition_time.clone());
    ConfigurationStateStatus {
        result: Some(result),
        error_summary: summary.clone(),
        conditions: vec![Condition {
            type_: condition::POOLS_VALID.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: summary,
            last_transition_time: since,
            observed_generation: None,
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_names_every_bad_pool_and_its_condition_keeps_its_time() {
        let report = PoolReport {
            pool: "bad".into(),
            problem: "spec.addresses is empty".to_owned(),
        };
        let first = state(
            std::slice::from_ref(&report),
            &ConfigurationStateStatus::default(),
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(first.result, Some(ConfigurationResult::Invalid));
        assert_eq!(
            first.error_summary,
            "IPAddressPool bad: spec.addresses is empty"
        );
        let later = Timestamp::from_second(60).unwrap();
        assert_eq!(state(&[report], &first, later), first);
        let good = state(&[], &first, later);
        assert_eq!(
            (good.result, good.error_summary.as_str()),
            (Some(ConfigurationResult::Valid), "")
        );
        assert_eq!(good.conditions[0].last_transition_time, Time(later));
    }
}
