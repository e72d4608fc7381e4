//! Sessions with gobgpd: RFC 4271 (session, hold timer, Cease), RFC 4760 (IPv6), RFC 2385 (MD5).

use std::time::Instant;

use conformance::{
    Bench, OURS_V4, OURS_V6, Router, THEIRS_V4, THEIRS_V6, desired, eventually, peer, with_gobgpd,
};
use nix::sys::signal::Signal;
use serde_json::json;
use speaker_bgp::{
    Communities, Community, LargeCommunity, Notification, Password, Reason, RemoteAsn, Route,
    State, Timers,
};

const V4: &str = "198.51.100.1/32";
const V6: &str = "2001:db8:5::1/128";

const AS_PATH: u64 = 2;
const NEXT_HOP: u64 = 3;
const LOCAL_PREF: u64 = 5;
const COMMUNITIES: u64 = 8;
const MP_REACH: u64 = 14;
const LARGE_COMMUNITIES: u64 = 32;

fn plain(prefixes: &[&'static str]) -> Vec<(&'static str, Route)> {
    prefixes
        .iter()
        .map(|&prefix| (prefix, Route::default()))
        .collect()
}

/// Waits until gobgpd knows exactly these prefixes of a family.
fn wait_for_prefixes(bench: &Bench, family: &str, prefixes: &[&str]) {
    eventually(&format!("{family} table is {prefixes:?}"), || {
        let table = bench.table(family)?;
        let known: Vec<&str> = table.keys().map(String::as_str).collect();
        if known == prefixes {
            Ok(())
        } else {
            Err(format!("{known:?}"))
        }
    });
}

#[test]
fn routes_of_both_families_arrive_change_and_go() {
    with_gobgpd(Router::default(), |bench| {
        bench.start_gobgpd();
        let route = Route {
            local_pref: None,
            communities: Communities {
                plain: [Community(64512 << 16 | 7)].into(),
                large: [LargeCommunity(64512, 7, 9)].into(),
            },
        };
        let routes = [(V4, route.clone()), (V6, route.clone())];
        bench.speak(desired(peer(THEIRS_V4), &routes));
        wait_for_prefixes(bench, "ipv4", &[V4]);
        wait_for_prefixes(bench, "ipv6", &[V6]);
        assert_eq!(bench.wait_for(State::Established).routes_sent, 2);

        let v4 = bench.table("ipv4").unwrap().remove(V4).unwrap();
        assert_eq!(v4[&NEXT_HOP]["nexthop"], OURS_V4);
        assert_eq!(
            v4[&AS_PATH]["as_paths"],
            json!([{"segment_type": 2, "num": 1, "asns": [64512]}])
        );
        assert_eq!(
            v4[&COMMUNITIES]["communities"],
            json!([64512_u32 << 16 | 7])
        );
        let large = json!([{"ASN": 64512, "LocalData1": 7, "LocalData2": 9}]);
        assert_eq!(v4[&LARGE_COMMUNITIES]["value"], large);
        assert!(
            !v4.contains_key(&LOCAL_PREF),
            "LOCAL_PREF to an external peer"
        );
        let v6 = bench.table("ipv6").unwrap().remove(V6).unwrap();
        assert_eq!(v6[&MP_REACH]["nexthop"], OURS_V6);

        bench.speak(desired(peer(THEIRS_V4), &plain(&[V4])));
        wait_for_prefixes(bench, "ipv6", &[]);
        eventually("the route without communities", || {
            let table = bench.table("ipv4")?;
            let attributes = &table[V4];
            if attributes.contains_key(&COMMUNITIES) {
                Err(format!("{attributes:?}"))
            } else {
                Ok(())
            }
        });
        bench.speak(desired(peer(THEIRS_V4), &[]));
        wait_for_prefixes(bench, "ipv4", &[]);
    });
}

#[test]
fn a_session_over_ipv6_carries_both_families() {
    let router = Router {
        neighbour: OURS_V6,
        ..Router::default()
    };
    with_gobgpd(router, |bench| {
        bench.start_gobgpd();
        bench.speak(desired(peer(THEIRS_V6), &plain(&[V4, V6])));
        wait_for_prefixes(bench, "ipv4", &[V4]);
        wait_for_prefixes(bench, "ipv6", &[V6]);
        let v4 = bench.table("ipv4").unwrap().remove(V4).unwrap();
        assert_eq!(v4[&NEXT_HOP]["nexthop"], OURS_V4);
    });
}

#[test]
fn an_internal_peer_hears_local_pref() {
    let router = Router {
        asn: 64512,
        ..Router::default()
    };
    with_gobgpd(router, |bench| {
        bench.start_gobgpd();
        let mut peer = peer(THEIRS_V4);
        peer.remote_asn = RemoteAsn::Internal;
        let route = Route {
            local_pref: Some(250),
            ..Route::default()
        };
        bench.speak(desired(peer, &[(V4, route)]));
        wait_for_prefixes(bench, "ipv4", &[V4]);
        let v4 = bench.table("ipv4").unwrap().remove(V4).unwrap();
        assert_eq!(v4[&LOCAL_PREF]["value"], 250);
        assert_eq!(v4[&AS_PATH]["as_paths"], json!([]));
    });
}

#[test]
fn two_thousand_routes_arrive_and_go() {
    with_gobgpd(Router::default(), |bench| {
        bench.start_gobgpd();
        let prefixes: Vec<String> = (0..2000)
            .map(|n| format!("10.{}.{}.1/32", n / 250, n % 250))
            .collect();
        let routes: Vec<(&str, Route)> = prefixes
            .iter()
            .map(|prefix| (prefix.as_str(), Route::default()))
            .collect();
        bench.speak(desired(peer(THEIRS_V4), &routes));
        eventually("2000 routes", || match bench.table("ipv4")?.len() {
            2000 => Ok(()),
            other => Err(format!("{other}")),
        });
        bench.speak(desired(peer(THEIRS_V4), &plain(&[V4])));
        wait_for_prefixes(bench, "ipv4", &[V4]);
    });
}

#[test]
fn a_stopped_router_is_given_up_after_the_hold_time_and_comes_back() {
    with_gobgpd(Router::default(), |bench| {
        bench.start_gobgpd();
        let mut peer = peer(THEIRS_V4);
        peer.timers = Timers::new(Some(std::time::Duration::from_secs(3)), None).unwrap();
        bench.speak(desired(peer, &plain(&[V4])));
        wait_for_prefixes(bench, "ipv4", &[V4]);
        bench.signal_gobgpd(Signal::SIGSTOP);
        let stopped = Instant::now();
        let report = eventually("the session is given up", || match bench.report() {
            Some(report) if report.change.reason == Reason::HoldTimerExpired => Ok(report),
            other => Err(format!("{other:?}")),
        });
        let seconds = stopped.elapsed().as_secs_f64();
        assert!(
            (1.5..8.0).contains(&seconds),
            "given up after {seconds} s of a hold time of 3 s"
        );
        assert_eq!(report.change.detail, "sent 4/0 Hold Timer Expired");
        bench.signal_gobgpd(Signal::SIGCONT);
        bench.wait_for(State::Established);
        wait_for_prefixes(bench, "ipv4", &[V4]);
    });
}

#[test]
fn a_killed_router_is_dialled_again_and_hears_all_routes() {
    with_gobgpd(Router::default(), |bench| {
        bench.start_gobgpd();
        bench.speak(desired(peer(THEIRS_V4), &plain(&[V4, V6])));
        wait_for_prefixes(bench, "ipv6", &[V6]);
        bench.kill_gobgpd();
        eventually("the loss is seen", || match bench.report() {
            Some(report) if report.change.state != State::Established => Ok(()),
            other => Err(format!("{other:?}")),
        });
        bench.start_gobgpd();
        wait_for_prefixes(bench, "ipv4", &[V4]);
        wait_for_prefixes(bench, "ipv6", &[V6]);
    });
}

#[test]
fn the_end_of_the_speaker_is_a_cease_that_withdraws_at_once() {
    with_gobgpd(Router::default(), |bench| {
        bench.start_gobgpd();
        bench.speak(desired(peer(THEIRS_V4), &plain(&[V4])));
        wait_for_prefixes(bench, "ipv4", &[V4]);
        bench.fall_silent();
        wait_for_prefixes(bench, "ipv4", &[]);
        let wanted = Notification::administrative_shutdown("speaker stops");
        eventually("gobgpd logs why", || {
            let log = bench.gobgpd_log();
            let found = log
                .lines()
                .any(|line| line.contains("otification") && line.contains("speaker stops"));
            if found {
                Ok(())
            } else {
                Err(format!("no {wanted} in\n{log}"))
            }
        });
    });
}

#[test]
fn a_router_that_expects_another_as_is_reported_with_its_own_words() {
    let router = Router {
        neighbour_asn: 64599,
        ..Router::default()
    };
    with_gobgpd(router, |bench| {
        bench.start_gobgpd();
        bench.speak(desired(peer(THEIRS_V4), &plain(&[V4])));
        let report = eventually("the refusal is reported", || match bench.report() {
            Some(report) if report.change.reason == Reason::NotificationReceived => Ok(report),
            other => Err(format!("{other:?}")),
        });
        assert_eq!(report.change.detail, "received 2/2 Bad Peer AS");
    });
}

#[test]
fn tcp_md5_needs_the_same_key_on_both_sides() {
    let router = Router {
        password: Some("winter"),
        ..Router::default()
    };
    with_gobgpd(router, |bench| {
        bench.start_gobgpd();
        let mut keyed = peer(THEIRS_V4);
        keyed.password = Some(Password::from("winter"));
        bench.speak(desired(keyed.clone(), &plain(&[V4])));
        wait_for_prefixes(bench, "ipv4", &[V4]);
        keyed.password = Some(Password::from("summer"));
        bench.speak(desired(keyed, &plain(&[V4])));
        wait_for_prefixes(bench, "ipv4", &[]);
        eventually("the wrong key gets no answer", || match bench.report() {
            Some(report) if report.change.reason == Reason::ConnectTimedOut => Ok(()),
            other => Err(format!("{other:?}")),
        });
    });
}
