//! Manifests as a user writes them: read from YAML, sent to the API server as `kubectl apply` would.
//!
//! Never changes an object on its way.

use kube::{
    Client,
    api::{Api, DynamicObject, Patch, PatchParams, PostParams},
    core::{GroupVersionKind, TypeMeta},
    discovery::{self, Scope},
};
use serde::Deserialize as _;

use crate::error::{Doing as _, Error, Result};

/// Every manifest of the demo: file name and text, in the order in which they are applied.
pub const MANIFESTS: &[(&str, &str)] = &[
    (
        "10-namespaces.yaml",
        include_str!("../manifests/10-namespaces.yaml"),
    ),
    ("20-pods.yaml", include_str!("../manifests/20-pods.yaml")),
    (
        "30-pool-l2.yaml",
        include_str!("../manifests/30-pool-l2.yaml"),
    ),
    ("31-bgp.yaml", include_str!("../manifests/31-bgp.yaml")),
    (
        "40-web-cluster-ip.yaml",
        include_str!("../manifests/40-web-cluster-ip.yaml"),
    ),
    (
        "41-web-node-port.yaml",
        include_str!("../manifests/41-web-node-port.yaml"),
    ),
    (
        "42-web-load-balancer.yaml",
        include_str!("../manifests/42-web-load-balancer.yaml"),
    ),
    (
        "43-web-local.yaml",
        include_str!("../manifests/43-web-local.yaml"),
    ),
    (
        "44-web-dual-stack.yaml",
        include_str!("../manifests/44-web-dual-stack.yaml"),
    ),
    (
        "45-web-sticky.yaml",
        include_str!("../manifests/45-web-sticky.yaml"),
    ),
    (
        "46-db-headless.yaml",
        include_str!("../manifests/46-db-headless.yaml"),
    ),
    (
        "47-external-name.yaml",
        include_str!("../manifests/47-external-name.yaml"),
    ),
];

/// The objects of a YAML text with one or more documents.
pub fn read(text: &str) -> Result<Vec<DynamicObject>> {
    serde_yaml_ng::Deserializer::from_str(text)
        .map(DynamicObject::deserialize)
        .collect::<Result<_, _>>()
        .doing("reading a manifest")
}

/// Applies one of [`MANIFESTS`] by file name.
pub async fn apply_manifest(client: &Client, file: &str) -> Result<()> {
    let found = MANIFESTS.iter().find(|(name, _)| *name == file);
    let (_, text) = found.ok_or_else(|| Error::because(file, "there is no such manifest"))?;
    apply_text(client, text)
        .await
        .doing(format!("applying {file}"))
}

/// Applies every object of a YAML text: creates it, or patches what is there.
pub async fn apply_text(client: &Client, text: &str) -> Result<()> {
    for object in read(text)? {
        apply(client, &object).await?;
    }
    Ok(())
}

/// Creates the object, or merges it into the one that is there.
pub async fn apply(client: &Client, object: &DynamicObject) -> Result<()> {
    let api = api_of(client, object).await?;
    let name = object.metadata.name.clone().unwrap_or_default();
    let kind = object
        .types
        .as_ref()
        .map_or("", |types| types.kind.as_str());
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let merge = Patch::Merge(object);
            let patched = api.patch(&name, &PatchParams::default(), &merge).await;
            patched.map(drop).doing(format!("changing {kind} {name}"))
        }
        created => created.map(drop).doing(format!("creating {kind} {name}")),
    }
}

/// The kind's API, in the object's namespace where it has one.
pub async fn api_of(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>> {
    let no_kind = || {
        Error::because(
            "reading a manifest",
            "an object without apiVersion and kind",
        )
    };
    let types: &TypeMeta = object.types.as_ref().ok_or_else(no_kind)?;
    let kind = GroupVersionKind::try_from(types).doing("reading a manifest")?;
    let doing = format!("looking for {} {}", types.api_version, types.kind);
    let (resource, capabilities) = discovery::pinned_kind(client, &kind).await.doing(doing)?;
    let namespace = object.metadata.namespace.as_deref().unwrap_or("default");
    Ok(match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &resource),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manifest_in_the_folder_is_applied_and_can_be_read() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests");
        let files = std::fs::read_dir(folder).expect("the folder is there");
        let mut files: Vec<String> = files
            .map(|file| {
                file.expect("a file")
                    .file_name()
                    .into_string()
                    .expect("UTF-8")
            })
            .collect();
        files.sort();
        let listed: Vec<&str> = MANIFESTS.iter().map(|(name, _)| *name).collect();
        assert_eq!(files, listed);
        for (name, text) in MANIFESTS {
            let objects = read(text).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(
                objects.iter().all(|object| object.types.is_some()),
                "{name}"
            );
        }
    }
}
