//! Tells the cluster what this node does: `ServiceL2Status`, `ServiceBGPStatus`, `ConfigurationState` and events.
//!
//! Owns the objects that carry this node's label. Writes only what changed since the last write that succeeded, one object after
//! the other, and tries again later what failed; nothing else in the speaker waits for it. Never decides what is announced.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use api_client::{Backoff, write};
use api_model::{NodeName, ServiceKey};
use api_types::{
    ConfigurationResult, ConfigurationState, ConfigurationStateSpec, ServiceBGPStatus,
    ServiceBGPStatusSpec, ServiceL2Status, ServiceL2StatusSpec,
    names::{condition, label},
};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, ObjectMeta},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle, time::sleep};
use tracing::{debug, warn};

use crate::ingest::Finding;

/// What is to be shown. The newest one counts; what lay between is skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Services that this node announces over layer 2, and on which interfaces.
    pub(crate) layer2: BTreeMap<ServiceKey, BTreeSet<String>>,
    /// Services that this node announces over BGP, and to which peers.
    pub(crate) bgp: BTreeMap<ServiceKey, BTreeSet<String>>,
    /// What is wrong with the configuration, as this node reads it; `None` before it was read.
    pub(crate) findings: Option<Vec<Finding>>,
}

/// Starts the task. It ends when the sender is dropped.
pub(crate) fn start(
    client: Client,
    namespace: &str,
    node: &NodeName,
    reports: watch::Receiver<Report>,
) -> JoinHandle<()> {
    let writer = Writer {
        layer2: Api::namespaced(client.clone(), namespace),
        bgp: Api::namespaced(client.clone(), namespace),
        state: Api::namespaced(client, namespace),
        namespace: namespace.to_owned(),
        node: node.clone(),
        shown: Shown::default(),
    };
    tokio::spawn(writer.run(reports))
}

/// What the server is known to hold.
#[derive(Debug, Default)]
struct Shown {
    listed: bool,
    layer2: BTreeMap<ServiceKey, BTreeSet<String>>,
    bgp: BTreeMap<ServiceKey, BTreeSet<String>>,
    findings: Option<Vec<Finding>>,
}

struct Writer {
    layer2: Api<ServiceL2Status>,
    bgp: Api<ServiceBGPStatus>,
    state: Api<ConfigurationState>,
    namespace: String,
    node: NodeName,
    shown: Shown,
}

impl Writer {
    async fn run(mut self, mut reports: watch::Receiver<Report>) {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(20));
        loop {
            let report = reports.borrow_and_update().clone();
            match self.show(&report).await {
                Ok(()) => {
                    backoff.reset();
                    if reports.changed().await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    warn!(%error, "status not written, trying again");
                    let gap = backoff.next_gap(api_client::random());
                    tokio::select! {
                        () = sleep(gap) => {}
                        changed = reports.changed() => if changed.is_err() { return },
                    }
                }
            }
        }
    }

    async fn show(&mut self, report: &Report) -> Result<(), write::WriteError> {
        if !self.shown.listed {
            self.list().await?;
        }
        for (key, value) in difference(&self.shown.layer2, &report.layer2) {
            let name = object_name("l2", &key, &self.node);
            let status = value.as_ref().map(|interfaces| {
                let names: Vec<_> = interfaces
                    .iter()
                    .map(|name| json!({ "name": name }))
                    .collect();
                self.with_service(&key, "interfaces", &json!(names))
            });
            let new = ServiceL2Status::new(&name, ServiceL2StatusSpec {});
            put(&self.layer2, self.labelled(new, &key), status).await?;
            remember(&mut self.shown.layer2, key, value);
        }
        for (key, value) in difference(&self.shown.bgp, &report.bgp) {
            let name = object_name("bgp", &key, &self.node);
            let status = value
                .as_ref()
                .map(|peers| self.with_service(&key, "peers", &json!(peers)));
            let new = ServiceBGPStatus::new(&name, ServiceBGPStatusSpec {});
            put(&self.bgp, self.labelled(new, &key), status).await?;
            remember(&mut self.shown.bgp, key, value);
        }
        if self.shown.findings != report.findings
            && let Some(findings) = &report.findings
        {
            self.show_findings(findings).await?;
            self.shown.findings.clone_from(&report.findings);
        }
        Ok(())
    }

    /// What a former process of this node left.
    async fn list(&mut self) -> Result<(), write::WriteError> {
        let mine = ListParams::default().labels(&format!("{}={}", label::NODE, self.node));
        for object in self.layer2.list(&mine).await? {
            let interfaces = object.status.iter().flat_map(|status| &status.interfaces);
            let names = interfaces
                .filter_map(|interface| interface.name.clone())
                .collect();
            self.shown
                .layer2
                .extend(owner(&object).map(|key| (key, names)));
        }
        for object in self.bgp.list(&mine).await? {
            let peers = object
                .status
                .iter()
                .flat_map(|status| status.peers.iter().cloned())
                .collect();
            self.shown
                .bgp
                .extend(owner(&object).map(|key| (key, peers)));
        }
        self.shown.listed = true;
        Ok(())
    }

    fn with_service(&self, key: &ServiceKey, field: &str, value: &Value) -> Value {
        json!({
            "node": self.node.as_str(),
            "serviceName": &*key.name,
            "serviceNamespace": &*key.namespace,
            field: value,
        })
    }

    fn labelled<K: Resource>(&self, mut object: K, key: &ServiceKey) -> K {
        let labels = [
            (label::NODE, self.node.as_str()),
            (label::SERVICE_NAME, &key.name),
            (label::SERVICE_NAMESPACE, &key.namespace),
        ];
        self.set_meta(object.meta_mut(), &labels);
        object
    }

    fn set_meta(&self, meta: &mut ObjectMeta, labels: &[(&str, &str)]) {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        meta.namespace = Some(self.namespace.clone());
        meta.labels = Some(labels.collect());
    }

    async fn show_findings(&self, findings: &[Finding]) -> Result<(), write::WriteError> {
        let name = format!("speaker-{}", self.node);
        let labels = [
            (label::COMPONENT_TYPE, "speaker"),
            (label::NODE_NAME, self.node.as_str()),
        ];
        let mut new = ConfigurationState::new(&name, ConfigurationStateSpec {});
        self.set_meta(new.meta_mut(), &labels);
        put(&self.state, new, Some(state_of(findings))).await
    }
}

/// The status of `ConfigurationState`: invalid while an object is left out.
fn state_of(findings: &[Finding]) -> Value {
    let texts = |fatal: bool| -> Vec<String> {
        let chosen = findings.iter().filter(|finding| finding.fatal == fatal);
        chosen
            .map(|it| format!("{} {}: {}", it.kind, it.name, it.message))
            .collect()
    };
    let (errors, partial) = (texts(true), texts(false));
    let result = if errors.is_empty() {
        ConfigurationResult::Valid
    } else {
        ConfigurationResult::Invalid
    };
    json!({
        "result": result,
        "errorSummary": errors.join("\n"),
        "conditions": [
            condition_of(condition::CONFIG_VALID, &errors, condition::reason::CONFIGURATION_ERROR),
            condition_of(condition::FIELDS_SUPPORTED, &partial, condition::reason::FIELD_NOT_SUPPORTED),
        ],
    })
}

fn condition_of(type_: &str, texts: &[String], reason: &str) -> Condition {
    let good = texts.is_empty();
    Condition {
        type_: type_.to_owned(),
        status: if good { "True" } else { "False" }.to_owned(),
        reason: if good {
            condition::reason::RECONCILED
        } else {
            reason
        }
        .to_owned(),
        message: texts.join("\n"),
        last_transition_time: Time(Timestamp::now()),
        observed_generation: None,
    }
}

/// Creates the object if it is missing and sets its status, or deletes it.
async fn put<K>(api: &Api<K>, object: K, status: Option<Value>) -> Result<(), write::WriteError>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let name = object.name_any();
    let Some(status) = status else {
        if let Some(old) = api.get_opt(&name).await? {
            write::delete_exactly(api, &old).await?;
        }
        return Ok(());
    };
    debug!(kind = %K::kind(&()), name, "status written");
    if api.get_opt(&name).await?.is_none() {
        write::create(api, &object).await?;
    }
    write::merge_status(api, &name, None, status).await?;
    Ok(())
}

/// Names are made of the Service and the node, so that a node finds its own object again and two nodes never share one.
fn object_name(prefix: &str, key: &ServiceKey, node: &NodeName) -> String {
    let hash = key
        .to_string()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{prefix}-{hash:016x}-{node}")
}

fn owner<K: Resource>(object: &K) -> Option<ServiceKey> {
    let labels = object.labels();
    Some(ServiceKey::new(
        labels.get(label::SERVICE_NAMESPACE)?,
        labels.get(label::SERVICE_NAME)?,
    ))
}

type Entry = (ServiceKey, Option<BTreeSet<String>>);

/// What has to be written (`Some`) or deleted (`None`).
fn difference(
    shown: &BTreeMap<ServiceKey, BTreeSet<String>>,
    wanted: &BTreeMap<ServiceKey, BTreeSet<String>>,
) -> Vec<Entry> {
    let gone = shown
        .keys()
        .filter(|key| !wanted.contains_key(key))
        .map(|key| (key.clone(), None));
    let new = wanted
        .iter()
        .filter(|(key, value)| shown.get(key) != Some(value))
        .map(|(key, value)| (key.clone(), Some(value.clone())));
    gone.chain(new).collect()
}

fn remember(
    shown: &mut BTreeMap<ServiceKey, BTreeSet<String>>,
    key: ServiceKey,
    value: Option<BTreeSet<String>>,
) {
    match value {
        Some(value) => shown.insert(key, value),
        None => shown.remove(&key),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_left_out_object_makes_the_configuration_invalid_and_a_deferred_field_does_not() {
        let broken = Finding::fatal("BGPPeer", "a", "spec.myASN: must not be 0".into());
        let deferred = Finding::partial("BGPPeer", "b", "spec.bfdProfile: no effect".into());
        let summary = |findings: &[Finding]| {
            let state = state_of(findings);
            let statuses: Vec<String> = state["conditions"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|it| format!("{}={} {}", it["type"], it["status"], it["message"]))
                .collect();
            (
                state["result"].to_string(),
                state["errorSummary"].to_string(),
                statuses,
            )
        };
        assert_eq!(
            summary(&[broken, deferred]),
            (
                r#""Invalid""#.into(),
                r#""BGPPeer a: spec.myASN: must not be 0""#.into(),
                vec![
                    r#""configReconcilerValid"="False" "BGPPeer a: spec.myASN: must not be 0""#.into(),
                    r#""roadstead.io/AllFieldsSupported"="False" "BGPPeer b: spec.bfdProfile: no effect""#
                        .into(),
                ]
            )
        );
        assert_eq!(summary(&[]).0, r#""Valid""#);
    }

    #[test]
    fn only_what_differs_is_written() {
        let (web, shop) = (
            ServiceKey::new("demo", "web"),
            ServiceKey::new("demo", "shop"),
        );
        let eth0 = BTreeSet::from(["eth0".to_owned()]);
        let shown = BTreeMap::from([(web.clone(), eth0.clone())]);
        let wanted = BTreeMap::from([(shop.clone(), eth0.clone())]);
        assert_eq!(
            difference(&shown, &wanted),
            [(web, None), (shop, Some(eth0))]
        );
        assert_eq!(difference(&wanted, &wanted), []);
    }
}
