//! What one change costs among many Services.

use std::net::IpAddr;

use api_model::IpFamily;
use serde_json::{Value, json};
use speaker_proxier::{
    Change, Planner,
    nft::compile::{Settings, fixed_chains},
};

use crate::world::{READY, World, endpoint, port_8080};

const SERVICES: u16 = 5_000;

fn add(world: &mut World, n: u16) {
    let spec = json!({
        "type": "NodePort", "clusterIP": IpAddr::from([0x2001, 0xdb8, 0, 9, 0, 0, 0, n]).to_string(),
        "ports": [{"protocol": "TCP", "port": 80, "nodePort": 10_000 + n}],
    });
    world.objects.service(&name(n), spec, json!([]));
    endpoints(world, n, [1, 2]);
}

fn name(n: u16) -> String {
    format!("svc-{n:04}")
}

fn endpoints(world: &mut World, n: u16, lasts: [u16; 2]) {
    let endpoints: [Value; 2] = lasts.map(|last| {
        let address = IpAddr::from([0x2001, 0xdb8, 0, 0xa, 0, 0, n, last]);
        endpoint(&address.to_string(), "node-a", READY)
    });
    world
        .objects
        .slice(&name(n), &format!("{}-a", name(n)), port_8080(), &endpoints);
}

fn operations(change: &Change) -> usize {
    change.transaction.chains.len() + change.transaction.operations.len()
}

/// Objects touched are counted. Left out: times against a kernel, which are measured and not tested.
#[test]
fn b112_one_change_among_5000_services_costs_one_change() {
    let mut world = World::new();
    world.objects.node["status"]["addresses"] = json!([
        {"type": "InternalIP", "address": "192.0.2.11"},
        {"type": "InternalIP", "address": "2001:db8:0:1::11"},
    ]);
    (0..SERVICES).for_each(|n| add(&mut world, n));
    world.step();
    let mut most = 0;
    for round in 0..20 {
        endpoints(&mut world, 2_500, [1, 10 + round]);
        most = most.max(operations(&world.step()));
    }
    for n in SERVICES..SERVICES + 5 {
        add(&mut world, n);
        most = most.max(operations(&world.step()));
    }
    for n in 0..5 {
        world.objects.delete_service(&name(n));
        most = most.max(operations(&world.step()));
    }
    assert!((1..50).contains(&most), "{most} objects in one transaction");
    // after a restart with unchanged objects nothing is written
    let held = world.kernel.elements.clone();
    assert_eq!(held, world.planner.table());
    let (view, _) = world.objects.view();
    let change = Planner::adopt(&held).resume(&held, &view);
    assert_eq!(change.transaction.operations, []);
    // one look-up by address, protocol and port for each kind of frontend, whatever the number of Services
    for family in [IpFamily::V4, IpFamily::V6] {
        let chains = fixed_chains(family, Settings::default());
        let rules: usize = chains.iter().map(|chain| chain.rules.len()).sum();
        assert!(rules < 50, "{rules} rules in the fixed chains");
    }
}
