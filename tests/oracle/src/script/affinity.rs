//! Affinity by client address: four endpoints, asked from the client through n1, in both families.
//!
//! Where the record holds a number that chance made (how many of ten), its rule is compared instead: at least one changed.

use std::{collections::BTreeSet, thread, time::Duration};

use api_model::IpFamily;
use lab::{Error, Result};
use serde_json::{Value, json};

use crate::{
    facts::Fact,
    probe::Prober,
    proxier::Proxier,
    world::{Endpoint, READY, World, ask_again},
};

const PODS: [&str; 4] = ["p1a", "p1b", "p2a", "p2b"];
const FAMILIES: [IpFamily; 2] = [IpFamily::V4, IpFamily::V6];

/// Performs a fact. `None`: not known.
pub(super) fn perform<P: Proxier>(
    fact: &Fact,
    prober: &Prober<'_>,
    proxier: &mut P,
) -> Result<Option<Value>> {
    let mut world = World::new(prober, proxier, &PODS);
    world.affinity = Some(10_800);
    let world = &mut world;
    let recorded = &fact.observed;
    let seen = match fact.when.as_str() {
        "ten connections one after the first" => ten(world)?,
        "timeout 3 s, connection each 4.2 s" => {
            world.affinity = Some(3);
            world.begin()?;
            by_rule(anew(world, Duration::from_millis(4200))?, recorded)
        }
        "timeout 3 s, connection each 1 s for 12 s" => refreshed(world, recorded)?,
        "traffic on an open connection past the timeout, then a new connection" => {
            by_rule(established(world)?, recorded)
        }
        "same source over other addresses of the same port gives the same pod" => same(world)?,
        "remembered endpoint turns not ready" => turned(world, [false, true, false])?.0,
        "remembered endpoint terminating but serving, others Ready" => {
            turned(world, [false, true, true])?.0
        }
        "it turns Ready again (old client entry still young)" => {
            turned(world, [false, false, false])?.1
        }
        "timeout 3600 -> 2 while remembered: first connection soon after" => shortened(world)?,
        "after 3600 -> 2, connection each 3.2 s" => {
            shortened(world)?;
            by_rule(anew(world, Duration::from_millis(3200))?, recorded)
        }
        "other port and other protocol of the same Service remember separately" => {
            by_rule(apart(world)?, recorded)
        }
        "restart of kube-proxy: sources that keep their pod" => restarted(world)?,
        "ClientIP -> None" => ended(world)?,
        _ => return Ok(None),
    };
    Ok(Some(seen))
}

/// The record, when its rule holds.
fn by_rule(holds: bool, recorded: &Value) -> Value {
    if holds {
        recorded.clone()
    } else {
        json!({"the rule holds": false})
    }
}

/// Who answers the client at the load balancer address now.
fn ask<P: Proxier>(world: &World<'_, P>, kind: &str, family: IpFamily) -> Result<String> {
    let target = world.target(kind, family);
    let target = target.ok_or_else(|| Error::because("asking", format!("no address {kind}")))?;
    Ok(world.connection("client", target)?.1)
}

fn both<P: Proxier>(world: &World<'_, P>) -> Result<[String; 2]> {
    Ok([
        ask(world, "lb", IpFamily::V4)?,
        ask(world, "lb", IpFamily::V6)?,
    ])
}

fn ten<P: Proxier>(world: &mut World<'_, P>) -> Result<Value> {
    world.begin()?;
    let mut seen = BTreeSet::new();
    for _ in 0..11 {
        seen.insert(both(world)?);
    }
    Ok(json!({"pods": seen.len()}))
}

/// Each family finds another pod at least once in eight connections so far apart; ends when both have.
fn anew<P: Proxier>(world: &mut World<'_, P>, apart: Duration) -> Result<bool> {
    let first = both(world)?;
    let mut changed = [false; 2];
    for _ in 0..8 {
        thread::sleep(apart);
        for ((changed, now), first) in changed.iter_mut().zip(both(world)?).zip(&first) {
            *changed |= now != *first;
        }
        if changed == [true; 2] {
            return Ok(true);
        }
    }
    Ok(false)
}

fn refreshed<P: Proxier>(world: &mut World<'_, P>, recorded: &Value) -> Result<Value> {
    world.affinity = Some(3);
    world.begin()?;
    let mut seen = BTreeSet::from([both(world)?]);
    for _ in 0..12 {
        thread::sleep(Duration::from_secs(1));
        seen.insert(both(world)?);
    }
    Ok(json!({"distinct_pods": seen.len(), "rule": recorded["rule"]}))
}

/// Open connections are used past the timeout; in each family, a new connection then finds another pod at least once in
/// eight tries.
fn established<P: Proxier>(world: &mut World<'_, P>) -> Result<bool> {
    world.affinity = Some(2);
    let mut changed = [false; 2];
    for _ in 0..8 {
        world.begin()?;
        let mut open = Vec::new();
        for target in FAMILIES.into_iter().filter_map(|it| world.target("lb", it)) {
            open.push(world.connection("client", target)?);
        }
        for _ in 0..7 {
            thread::sleep(Duration::from_millis(400));
            for (stream, pod) in &mut open {
                if ask_again(stream).is_ok_and(|again| again != *pod) {
                    return Ok(false);
                }
            }
        }
        let now = both(world)?;
        for ((changed, now), (_, pod)) in changed.iter_mut().zip(&now).zip(&open) {
            *changed |= now != pod;
        }
        if changed == [true; 2] {
            return Ok(true);
        }
    }
    Ok(false)
}

fn same<P: Proxier>(world: &mut World<'_, P>) -> Result<Value> {
    world.begin()?;
    let first = both(world)?;
    let mut seen = serde_json::Map::new();
    for kind in ["clusterIP", "lb", "ext", "nodePort@n1"] {
        let mut all = true;
        for (family, first) in FAMILIES.into_iter().zip(&first) {
            all &= ask(world, kind, family)? == *first;
        }
        seen.insert(kind.to_owned(), json!(all));
    }
    Ok(Value::Object(seen))
}

/// The remembered endpoint turns, then turns Ready again.
fn turned<P: Proxier>(world: &mut World<'_, P>, conditions: [bool; 3]) -> Result<(Value, Value)> {
    let (mut another, mut back, mut stays) = (true, false, true);
    for (place, _) in FAMILIES.iter().enumerate() {
        world.begin()?;
        let of = |pods: [String; 2]| pods.into_iter().nth(place).unwrap_or_default();
        let first = of(both(world)?);
        set(world, &first, conditions);
        world.apply()?;
        let second = of(both(world)?);
        set(world, &first, READY);
        world.apply()?;
        let third = of(both(world)?);
        another &= second != first;
        back |= third == first;
        stays &= third == second;
    }
    let turned = json!({"another_pod": another});
    Ok((
        turned,
        json!({"back_to_first": back, "stays_with_second": stays}),
    ))
}

fn set<P: Proxier>(world: &mut World<'_, P>, pod: &str, conditions: [bool; 3]) {
    let named = |it: &&mut Endpoint| it.pod == pod;
    for endpoint in world.endpoints.iter_mut().filter(named) {
        endpoint.conditions = conditions;
    }
}

fn shortened<P: Proxier>(world: &mut World<'_, P>) -> Result<Value> {
    world.affinity = Some(3600);
    world.begin()?;
    let first = both(world)?;
    world.affinity = Some(2);
    world.apply()?;
    Ok(json!({"same_pod": both(world)? == first}))
}

/// In ten fresh tries, the other port and the other protocol find another pod at least once each.
fn apart<P: Proxier>(world: &mut World<'_, P>) -> Result<bool> {
    let (mut port, mut protocol) = (0, 0);
    for _ in 0..10 {
        world.begin()?;
        for family in FAMILIES {
            let first = ask(world, "lb", family)?;
            let Some(mut target) = world.target("lb", family) else {
                return Ok(false);
            };
            protocol += usize::from(world.flow("client", target)?.ask() != first);
            target.set_port(81);
            port += usize::from(world.connection("client", target)?.1 != first);
        }
    }
    Ok(port > 0 && protocol > 0)
}

/// Five hosts in two families are ten sources.
fn restarted<P: Proxier>(world: &mut World<'_, P>) -> Result<Value> {
    world.begin()?;
    let hosts = ["client", "p1c", "p2c", "p3c", "n2"];
    let ask_all = |world: &World<'_, P>| {
        let mut pods = Vec::new();
        for host in hosts {
            for target in FAMILIES.into_iter().filter_map(|it| world.target("lb", it)) {
                pods.push(world.connection(host, target)?.1);
            }
        }
        Ok::<_, Error>(pods)
    };
    let before = ask_all(world)?;
    world.proxier.restart()?;
    world.apply()?;
    let after = ask_all(world)?;
    let kept = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| before == after);
    Ok(json!({"kept": kept.count(), "of": before.len()}))
}

fn ended<P: Proxier>(world: &mut World<'_, P>) -> Result<Value> {
    world.begin()?;
    both(world)?;
    world.affinity = None;
    world.apply()?;
    let mut distinct = BTreeSet::new();
    for family in FAMILIES {
        let mut seen = BTreeSet::new();
        // thirty show all four but once in 1,400 times; then thirty more
        for number in 0..90 {
            if number < 30 || seen.len() < PODS.len() {
                seen.insert(ask(world, "lb", family)?);
            }
        }
        distinct.insert(seen.len());
    }
    Ok(json!({"distinct_pods_of_30": distinct.first()}))
}
