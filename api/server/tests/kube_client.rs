//! The server under the client that our own processes use: kube.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::time::{Duration, Instant};

use api_server::Config;
use common::{Served, serve};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::wait::{await_condition, conditions};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::json;

async fn client(served: &Served) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(&served.kubeconfig).unwrap();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    Client::try_from(config).unwrap()
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"x": value}})).unwrap()
}

fn service(name: &str, spec: &serde_json::Value) -> Service {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn status(error: kube::Error) -> (u16, String) {
    let kube::Error::Api(status) = error else {
        panic!("not an answer of the server: {error}")
    };
    (status.code, status.message)
}

#[tokio::test]
async fn of_two_writers_with_one_version_the_second_gets_a_conflict() {
    let client = client(&serve(&Config::default())).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let first = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    let mut mine = first.clone();
    mine.data
        .get_or_insert_default()
        .insert("x".into(), "2".into());
    maps.replace("a", &PostParams::default(), &mine)
        .await
        .unwrap();
    let error = maps
        .replace("a", &PostParams::default(), &first)
        .await
        .unwrap_err();
    assert_eq!(status(error).0, 409);
    let again = maps
        .create(&PostParams::default(), &first)
        .await
        .unwrap_err();
    assert_eq!(status(again).0, 500, "a resourceVersion on create");
}

#[tokio::test]
async fn watch_shows_each_change_once_and_in_order() {
    let client = client(&serve(&Config::default())).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let a = maps
        .create(&PostParams::default(), &config_map("a", "1"))
        .await
        .unwrap();
    maps.create(&PostParams::default(), &config_map("b", "1"))
        .await
        .unwrap();
    maps.patch(
        "a",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"x": "2"}})),
    )
    .await
    .unwrap();
    maps.patch(
        "a",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"x": "2"}})),
    )
    .await
    .unwrap();
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    let events = maps
        .watch(&WatchParams::default(), &a.resource_version().unwrap())
        .await
        .unwrap();
    let seen: Vec<String> = events
        .take(3)
        .map_ok(|event| match event {
            WatchEvent::Added(map) => format!("added {}", map.name_any()),
            WatchEvent::Modified(map) => format!(
                "modified {} {:?}",
                map.name_any(),
                map.data.unwrap_or_default()
            ),
            WatchEvent::Deleted(map) => format!("deleted {}", map.name_any()),
            WatchEvent::Bookmark(_) => "bookmark".into(),
            WatchEvent::Error(error) => format!("error {error:?}"),
        })
        .try_collect()
        .await
        .unwrap();
    assert_eq!(seen, ["added b", "modified a {\"x\": \"2\"}", "deleted b"]);
}

#[tokio::test]
async fn both_ways_of_listing_give_a_watcher_all_objects_and_then_the_changes() {
    let client = client(&serve(&Config::default())).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    for number in 0..3 {
        maps.create(
            &PostParams::default(),
            &config_map(&format!("m{number}"), "1"),
        )
        .await
        .unwrap();
    }
    for config in [
        watcher::Config::default().page_size(2),
        watcher::Config::default().streaming_lists(),
    ] {
        let mut events = Box::pin(watcher(maps.clone(), config));
        let mut seen = Vec::new();
        while let Some(event) = events.try_next().await.unwrap() {
            match event {
                watcher::Event::Init => seen.push("init".to_owned()),
                watcher::Event::InitApply(map) => seen.push(map.name_any()),
                watcher::Event::InitDone => {
                    maps.create(&PostParams::default(), &config_map("new", "1"))
                        .await
                        .unwrap();
                }
                watcher::Event::Apply(map) => {
                    seen.push(format!("+{}", map.name_any()));
                    maps.delete("new", &DeleteParams::default()).await.unwrap();
                }
                watcher::Event::Delete(map) => {
                    seen.push(format!("-{}", map.name_any()));
                    break;
                }
            }
        }
        assert_eq!(seen, ["init", "m0", "m1", "m2", "+new", "-new"]);
    }
}

#[tokio::test]
async fn version_that_the_log_forgot_is_answered_410_in_the_stream() {
    let client = client(&serve(&Config {
        log_limit: 4,
        ..Config::default()
    }))
    .await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let first = maps
        .create(&PostParams::default(), &config_map("a", "0"))
        .await
        .unwrap();
    for number in 1..9 {
        let patch = Patch::Merge(json!({"data": {"x": number.to_string()}}));
        maps.patch("a", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
    let events = maps
        .watch(&WatchParams::default(), &first.resource_version().unwrap())
        .await
        .unwrap();
    let events: Vec<WatchEvent<ConfigMap>> = events.try_collect().await.unwrap();
    match events.as_slice() {
        [WatchEvent::Error(error)] => {
            assert_eq!((error.code, error.reason.as_str()), (410, "Expired"));
        }
        other => panic!("one error and the end, got {other:?}"),
    }
}

#[tokio::test]
async fn page_after_page_shows_one_snapshot() {
    let client = client(&serve(&Config::default())).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    for number in 0..5 {
        maps.create(
            &PostParams::default(),
            &config_map(&format!("m{number}"), "1"),
        )
        .await
        .unwrap();
    }
    let first = maps.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    maps.delete("m4", &DeleteParams::default()).await.unwrap();
    maps.create(&PostParams::default(), &config_map("late", "1"))
        .await
        .unwrap();
    let token = first.metadata.continue_.unwrap();
    let rest = maps
        .list(&ListParams::default().continue_token(&token))
        .await
        .unwrap();
    let names: Vec<String> = rest.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["m2", "m3", "m4"]);
}

#[tokio::test]
async fn finalizer_keeps_an_object_until_it_is_taken_off() {
    let client = client(&serve(&Config::default())).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let mut held = config_map("a", "1");
    held.metadata.finalizers = Some(vec!["example.com/hold".into()]);
    maps.create(&PostParams::default(), &held).await.unwrap();
    let deleting = maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(
        deleting
            .left()
            .is_some_and(|map| map.metadata.deletion_timestamp.is_some())
    );
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(maps.get_opt("a").await.unwrap(), None);
}

#[tokio::test]
async fn crd_makes_its_kind_served_validated_and_gone_again() {
    let served = serve(&Config::default());
    let client = client(&served).await;
    served.server.install_crds(api_types::crds()).unwrap();
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = "ipaddresspools.metallb.io";
    await_condition(crds.clone(), name, conditions::is_crd_established())
        .await
        .unwrap();
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("metallb.io", "v1beta1", "IPAddressPool"),
        "ipaddresspools",
    );
    let pools: Api<DynamicObject> = Api::namespaced_with(client.clone(), "metallb-system", &kind);
    let pool = |name: &str, addresses: serde_json::Value| -> DynamicObject {
        let object = json!({"apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool", "metadata": {"name": name}, "spec": {"addresses": addresses}});
        serde_json::from_value(object).unwrap()
    };
    let made = pools
        .create(
            &PostParams::default(),
            &pool("lan", json!(["192.0.2.0/24"])),
        )
        .await
        .unwrap();
    assert_eq!(
        (made.metadata.generation, &made.data["spec"]["autoAssign"]),
        (Some(1), &json!(true))
    );
    let (code, message) = status(
        pools
            .create(&PostParams::default(), &pool("b", json!(["192.0.2.5-x"])))
            .await
            .unwrap_err(),
    );
    assert!(
        code == 422 && message.contains("spec.addresses[0]"),
        "{code} {message}"
    );
    let (code, message) = status(
        pools
            .create(&PostParams::default(), &pool("b", json!(5)))
            .await
            .unwrap_err(),
    );
    assert!(
        code == 422 && message.contains("spec.addresses"),
        "{code} {message}"
    );
    let patch = Patch::Merge(
        json!({"spec": {"addresses": ["192.0.2.0/28"]}, "status": {"assignedIPv4": 9}}),
    );
    let changed = pools
        .patch_status("lan", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(
        (changed.metadata.generation, &changed.data["spec"]),
        (Some(1), &made.data["spec"])
    );
    assert_eq!(changed.data["status"], json!({"assignedIPv4": 9}));
    crds.delete(name, &DeleteParams::default()).await.unwrap();
    assert_eq!(crds.get_opt(name).await.unwrap(), None);
    assert_eq!(
        status(pools.list(&ListParams::default()).await.unwrap_err()).0,
        404
    );
}

#[tokio::test]
async fn namespace_takes_its_objects_and_their_addresses_with_it() {
    let client = client(&serve(&Config::default())).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace: Namespace =
        serde_json::from_value(json!({"metadata": {"name": "shop"}})).unwrap();
    namespaces
        .create(&PostParams::default(), &namespace)
        .await
        .unwrap();
    let services: Api<Service> = Api::namespaced(client.clone(), "shop");
    let spec = json!({"clusterIP": "10.96.3.3", "ports": [{"port": 80}]});
    services
        .create(&PostParams::default(), &service("web", &spec))
        .await
        .unwrap();
    namespaces
        .delete("shop", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(namespaces.get_opt("shop").await.unwrap(), None);
    let gone = status(
        services
            .create(&PostParams::default(), &service("web", &spec))
            .await
            .unwrap_err(),
    );
    assert_eq!(gone, (404, "namespaces \"shop\" not found".into()));
    let elsewhere: Api<Service> = Api::namespaced(client, "default");
    elsewhere
        .create(&PostParams::default(), &service("web", &spec))
        .await
        .unwrap();
}

#[tokio::test]
async fn what_is_not_done_says_so() {
    let client = client(&serve(&Config::default())).await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "a"}, "spec": {}});
    let (code, message) = status(
        leases
            .patch("a", &PatchParams::apply("me"), &Patch::Apply(lease))
            .await
            .unwrap_err(),
    );
    assert!(
        code == 415 && message.starts_with("server-side apply is not done"),
        "{code} {message}"
    );
    let review = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .body(b"{}".to_vec())
        .unwrap();
    let (code, message) = status(client.request_text(review).await.unwrap_err());
    assert!(
        code == 501 && message.contains("access and token reviews"),
        "{code} {message}"
    );
}

#[tokio::test]
async fn stranger_is_refused() {
    let served = serve(&Config::default());
    let mut kubeconfig = Kubeconfig::from_yaml(&served.kubeconfig).unwrap();
    let user = kubeconfig
        .auth_infos
        .iter_mut()
        .find_map(|user| user.auth_info.as_mut())
        .unwrap();
    user.token = Some("guess".to_owned().into());
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .unwrap();
    let client = Client::try_from(config).unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    assert_eq!(
        status(maps.list(&ListParams::default()).await.unwrap_err()).0,
        401
    );
    assert_eq!(
        client.apiserver_version().await.unwrap().major,
        "1",
        "the version is public"
    );
}

/// Creating must not get slower with the number of objects: the later half may take twice the earlier half, not more.
#[tokio::test]
async fn creating_stays_fast_as_objects_become_many() {
    let served = serve(&Config::default());
    let half = |from: u32| {
        let started = Instant::now();
        for number in from..from + 2_000 {
            let object = json!({
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("s{number}")},
                "spec": {"ports": [{"port": 80}], "selector": {"app": "x"}},
            });
            served.server.create(object).unwrap();
        }
        started.elapsed()
    };
    let (first, second) = (half(0), half(2_000));
    assert!(
        second < first * 2 + Duration::from_millis(500),
        "{first:?}, then {second:?}"
    );
}
