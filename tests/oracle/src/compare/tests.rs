//! Each field of a record, equal and different.

use std::collections::BTreeMap;

use super::*;
use crate::{
    attempt::Reply,
    expectation::{How, Row, Source},
    topology::{OWN, Topology},
};

fn expect(text: &str) -> Expect {
    let row = format!("{{from: client, to: [lb], proto: [TCP], family: [IPv4], expect: {text}}}");
    let value = serde_yaml_ng::from_str(&row).expect("YAML");
    Row::read(&value).expect("a row").expect
}

fn served(pod: &str, port: u16, source: &str) -> Reply {
    Reply::Served {
        pod: pod.to_owned(),
        port,
        source: source.parse().expect("an address"),
    }
}

fn seen(replies: impl IntoIterator<Item = Reply>) -> Observation {
    let topology = Topology::read(OWN).expect("ours");
    let mut observation = Observation::default();
    for reply in replies {
        observation.count(reply, &topology);
    }
    observation
}

const N1: &str = "172.31.0.11";
const CLIENT: &str = "172.31.0.100";

#[test]
fn served_compares_pods_sources_and_ports() {
    let record = expect("{outcome: served, pods: [p1a, p2a], source: n1}");
    let judged = |replies: Vec<Reply>| judge(&record, &seen(replies));
    let (a, b) = (served("p1a", 8080, N1), served("p2a", 8080, N1));
    assert_eq!(judged(vec![a.clone(), b.clone()]), Judgement::Equal);
    assert_eq!(judged(vec![a.clone(), a.clone()]), Judgement::Incomplete);
    let third = served("p1b", 8080, N1);
    let wrong = [
        vec![a.clone(), b.clone(), third],
        vec![a.clone(), served("p2a", 8080, CLIENT)],
        vec![a.clone(), b.clone(), served("p2a", 8080, CLIENT)],
        vec![a.clone(), served("p2a", 8081, N1)],
        vec![a.clone(), b.clone(), Reply::Dropped],
        vec![a.clone(), b.clone(), Reply::Rejected(How::Reset)],
        vec![a.clone(), b.clone(), Reply::Odd("odd".to_owned())],
        vec![
            a,
            b,
            Reply::Passed {
                source: N1.parse().expect("an address"),
            },
        ],
        vec![Reply::Dropped],
    ];
    for replies in wrong {
        assert_eq!(judged(replies.clone()), Judgement::Different, "{replies:?}");
    }
    assert_eq!(judged(vec![]), Judgement::Incomplete);
}

#[test]
fn a_source_by_pod_counts_for_that_pod() {
    let record = expect("{outcome: served, pods: [p1a, p2a], source: {p1a: n1, p2a: client}}");
    let right = seen([served("p1a", 8080, N1), served("p2a", 8080, CLIENT)]);
    assert_eq!(judge(&record, &right), Judgement::Equal);
    let swapped = seen([served("p1a", 8080, CLIENT), served("p2a", 8080, N1)]);
    assert_eq!(judge(&record, &swapped), Judgement::Different);
}

#[test]
fn several_ports_must_all_be_seen_and_no_other() {
    let record = expect("{outcome: served, pods: [p1a], source: n1, ports: [8080, 8082]}");
    let judged = |ports: &[u16]| {
        judge(
            &record,
            &seen(ports.iter().map(|port| served("p1a", *port, N1))),
        )
    };
    assert_eq!(judged(&[8080, 8082]), Judgement::Equal);
    assert_eq!(judged(&[8080]), Judgement::Incomplete);
    assert_eq!(judged(&[8080, 8081]), Judgement::Different);
}

#[test]
fn rejected_compares_how() {
    let (icmp, reset) = (
        Reply::Rejected(How::PortUnreachable),
        Reply::Rejected(How::Reset),
    );
    let record = expect("{outcome: rejected, how: icmp-port-unreachable}");
    assert_eq!(
        judge(&record, &seen([icmp.clone(), icmp.clone()])),
        Judgement::Equal
    );
    assert_eq!(judge(&record, &seen([reset.clone()])), Judgement::Different);
    assert_eq!(
        judge(&record, &seen([icmp.clone(), Reply::Dropped])),
        Judgement::Different
    );
    let record = expect("{outcome: rejected, how: rst}");
    assert_eq!(judge(&record, &seen([reset])), Judgement::Equal);
    assert_eq!(judge(&record, &seen([icmp])), Judgement::Different);
}

#[test]
fn passed_compares_the_source_and_dropped_takes_nothing_else() {
    let passed = |source: &str| Reply::Passed {
        source: source.parse().expect("an address"),
    };
    let record = expect("{outcome: passed, source: client}");
    assert_eq!(judge(&record, &seen([passed(CLIENT)])), Judgement::Equal);
    assert_eq!(judge(&record, &seen([passed(N1)])), Judgement::Different);
    assert_eq!(
        judge(&record, &seen([served("p1a", 8080, CLIENT)])),
        Judgement::Different
    );
    let record = expect("{outcome: dropped}");
    assert_eq!(judge(&record, &seen([Reply::Dropped])), Judgement::Equal);
    assert_eq!(
        judge(&record, &seen([Reply::Dropped, passed(CLIENT)])),
        Judgement::Different
    );
}

#[test]
fn mixed_needs_both_and_takes_nothing_else() {
    let record = expect("{outcome: mixed, pods: [p1a], source: client}");
    let a = served("p1a", 8080, CLIENT);
    let judged = |replies: &[Reply]| judge(&record, &seen(replies.iter().cloned()));
    assert_eq!(judged(&[a.clone(), Reply::Dropped]), Judgement::Equal);
    assert_eq!(judged(std::slice::from_ref(&a)), Judgement::Incomplete);
    assert_eq!(judged(&[Reply::Dropped]), Judgement::Incomplete);
    assert_eq!(
        judged(&[a.clone(), Reply::Rejected(How::Reset)]),
        Judgement::Different
    );
    assert_eq!(
        judged(&[served("p2a", 8080, CLIENT), Reply::Dropped]),
        Judgement::Different
    );
}

#[test]
fn sticky_fails_when_one_round_had_two_pods() {
    let record = expect("{outcome: served, pods: [p1a, p2a], source: n1, sticky: true}");
    let (a, b) = (served("p1a", 8080, N1), served("p2a", 8080, N1));
    let steady = |rounds: Vec<Vec<Reply>>| {
        let mut all = Observation::default();
        for round in rounds {
            all.add_round(&seen(round));
        }
        judge(&record, &all)
    };
    let (aa, bb) = (vec![a.clone(), a.clone()], vec![b.clone(), b.clone()]);
    assert_eq!(steady(vec![aa.clone(), bb.clone()]), Judgement::Equal);
    assert_eq!(steady(vec![aa.clone(), aa.clone()]), Judgement::Incomplete);
    assert_eq!(steady(vec![aa, bb, vec![a, b]]), Judgement::Different);
}

#[test]
fn a_record_of_one_source_says_it_for_every_pod() {
    let one = Source::One("n1".to_owned());
    assert_eq!(one.of("anything"), Some("n1"));
    assert_eq!(Source::ByPod(BTreeMap::new()).of("p1a"), None);
}
