//! The end of namespaces.
//!
//! Owns what happens after a Namespace was deleted: everything in it is deleted, and when nothing is left its finalizer
//! `kubernetes` is taken off, which lets it go. Never touches a namespace that is not being deleted. Pods with grace go when
//! whoever plays their node says so; until then the namespace stays, and its condition says what remains.
//!
//! Source: Kubernetes "Namespaces" (finalize subresource).

use std::{collections::BTreeSet, time::Duration};

use api_client::{Change, informer};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams, PropagationPolicy},
    runtime::watcher::Config,
};
use serde_json::json;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info};

use crate::kinds;

/// How often a namespace that is not empty yet is looked at.
const RETRY: Duration = Duration::from_secs(1);

/// Empties namespaces until it is dropped.
pub(crate) async fn run(client: Client) {
    let mut changes = informer::<Namespace>(Api::all(client.clone()), Config::default());
    let mut ending: BTreeSet<String> = BTreeSet::new();
    let mut next = Instant::now();
    loop {
        tokio::select! {
            change = changes.next() => match change {
                Some(Change::Apply(namespace)) => {
                    let name = namespace.metadata.name.clone().unwrap_or_default();
                    if namespace.metadata.deletion_timestamp.is_some() && ending.insert(name) {
                        next = Instant::now();
                    }
                }
                Some(Change::Delete(namespace)) => {
                    ending.remove(namespace.metadata.name.as_deref().unwrap_or_default());
                }
                Some(Change::Invalid(_) | Change::Synced) => {}
                None => return,
            },
            () = sleep_until(next), if !ending.is_empty() => {
                for name in &ending {
                    match empty(&client, name).await {
                        Ok(0) => info!(namespace = name, "namespace is empty and goes"),
                        Ok(left) => debug!(namespace = name, left, "namespace is not empty yet"),
                        Err(error) => debug!(namespace = name, %error, "namespace not emptied, retrying"),
                    }
                }
                next = Instant::now() + RETRY;
            }
        }
    }
}

/// Deletes what is in a namespace; with nothing left, lets the namespace go. The number of objects that were left.
async fn empty(client: &Client, namespace: &str) -> Result<usize, kube::Error> {
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    let mut left = 0;
    for kind in kinds::discover(client)
        .await?
        .into_iter()
        .filter(|kind| kind.namespaced)
    {
        let api = kind.within(client, namespace);
        for object in api.list(&ListParams::default()).await?.items {
            left += 1;
            let Some(name) = &object.metadata.name else {
                continue;
            };
            if object.metadata.deletion_timestamp.is_none()
                && let Err(error) = api.delete(name, &params).await
            {
                debug!(kind = kind.title(), name, %error, "not deleted, retrying");
            }
        }
    }
    if left == 0 {
        finalize(client, namespace).await?;
    }
    Ok(left)
}

/// Takes the finalizer `kubernetes` off.
async fn finalize(client: &Client, name: &str) -> Result<(), kube::Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    let Some(namespace) = api.get_opt(name).await? else {
        return Ok(());
    };
    let listed = namespace
        .spec
        .iter()
        .flat_map(|spec| spec.finalizers.iter().flatten());
    let rest: Vec<&String> = listed
        .filter(|finalizer| *finalizer != "kubernetes")
        .collect();
    let body = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "resourceVersion": namespace.metadata.resource_version},
        "spec": {"finalizers": rest},
    });
    api.replace_subresource("finalize", name, &PostParams::default(), &body)
        .await?;
    Ok(())
}
