//! The component against scripted peers on the loopback address.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use api_model::{Asn, IpFamily, Port};
use speaker_bgp::{NodeAddresses, RemoteAsn, Route, Timers};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::*;

/// How long anything here may take.
const DEADLINE: Duration = Duration::from_secs(20);

/// OPEN of AS 64513 with hold time 90 s, then a KEEPALIVE.
fn hello() -> Vec<u8> {
    let mut bytes = vec![0xff; 16];
    bytes.extend([0, 45, 1, 4, 0xfc, 1, 0, 90, 192, 0, 2, 1, 16, 2, 14]);
    bytes.extend([1, 4, 0, 1, 0, 1, 65, 4, 0, 0, 0xfc, 1, 2, 0]);
    bytes.extend([0xff; 16]);
    bytes.extend([0, 19, 4]);
    bytes
}

fn config(name: &str, port: u16) -> PeerConfig {
    PeerConfig {
        name: name.into(),
        local_asn: Asn(64512),
        remote_asn: RemoteAsn::Exactly(Asn(64513)),
        address: IpAddr::from([127, 0, 0, 1]),
        port: Port::new(port).unwrap(),
        source_address: None,
        router_id: "192.0.2.11".parse().unwrap(),
        timers: Timers::default(),
        connect_time: Some(Duration::from_secs(1)),
        ebgp_multi_hop: false,
        families: BTreeSet::from([IpFamily::V4]),
        node_addresses: NodeAddresses::default(),
        password: None,
    }
}

/// Peers by name and port, each with the same routes.
fn desired(peers: &[(&str, u16)], prefixes: &[&str]) -> Desired {
    let routes = prefixes
        .iter()
        .map(|prefix| (prefix.parse().unwrap(), Route::default()));
    let routes: Arc<Routes> = Arc::new(routes.collect());
    Desired {
        peers: peers
            .iter()
            .map(|&(name, port)| config(name, port))
            .collect(),
        routes: peers
            .iter()
            .map(|&(name, _)| (name.into(), routes.clone()))
            .collect(),
    }
}

/// A peer's ear: listens on a port of its own.
struct Router {
    listener: TcpListener,
    port: u16,
}

impl Router {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { listener, port }
    }

    /// Takes a connection and says hello on it.
    async fn accept(&self) -> TcpStream {
        let accepted = timeout(DEADLINE, self.listener.accept()).await;
        let (mut stream, _) = accepted.expect("the speaker dials in time").unwrap();
        stream.write_all(&hello()).await.unwrap();
        stream
    }
}

/// The next message of this type; others are passed over.
async fn message(stream: &mut TcpStream, kind: u8) -> Vec<u8> {
    let next = async {
        loop {
            let mut header = [0; 19];
            stream
                .read_exact(&mut header)
                .await
                .expect("a message comes");
            let length = usize::from(u16::from_be_bytes([header[16], header[17]]));
            let mut body = vec![0; length - 19];
            stream.read_exact(&mut body).await.unwrap();
            if header[18] == kind {
                return body;
            }
        }
    };
    timeout(DEADLINE, next)
        .await
        .expect("the message comes in time")
}

/// Waits for a report that fits.
async fn report(handle: &Handle, peer: &str, fits: impl Fn(Option<&Report>) -> bool) {
    let name = PeerName::from(peer);
    let mut reports = handle.reports();
    let found = timeout(
        DEADLINE,
        reports.wait_for(|reports| fits(reports.get(&name))),
    )
    .await;
    assert!(
        matches!(found, Ok(Ok(_))),
        "last report of {peer}: {:?}",
        handle.reports().borrow().get(&name)
    );
}

fn is_up(report: Option<&Report>) -> bool {
    report.is_some_and(|report| report.change.state == State::Established)
}

fn start() -> (Handle, JoinHandle<()>) {
    Bgp::start(Config::for_node(&"node-a".into()))
}

const UPDATE: u8 = 2;
const NOTIFICATION: u8 = 3;

#[tokio::test]
async fn a_peer_hears_its_routes_their_change_and_the_end() {
    let router = Router::new().await;
    let (handle, join) = start();
    handle.update(desired(&[("tor", router.port)], &["203.0.113.1/32"]));
    let mut stream = router.accept().await;
    let announced = message(&mut stream, UPDATE).await;
    assert_eq!(announced[announced.len() - 5..], [32, 203, 0, 113, 1]);
    report(&handle, "tor", |report| {
        is_up(report) && report.unwrap().routes_sent == 1
    })
    .await;
    handle.update(desired(&[("tor", router.port)], &[]));
    assert_eq!(
        message(&mut stream, UPDATE).await,
        [0, 5, 32, 203, 0, 113, 1, 0, 0]
    );
    drop(handle);
    let mut cease = vec![6, 2, 13];
    cease.extend(b"speaker stops");
    assert_eq!(message(&mut stream, NOTIFICATION).await, cease);
    drop(stream);
    timeout(DEADLINE, join)
        .await
        .expect("the component ends")
        .unwrap();
}

#[tokio::test]
async fn a_refused_peer_and_a_silent_one_disturb_no_other() {
    let (good, silent) = (Router::new().await, Router::new().await);
    let nobody = Router::new().await.port;
    let (handle, _join) = start();
    let peers = [
        ("good", good.port),
        ("refused", nobody),
        ("silent", silent.port),
    ];
    handle.update(desired(&peers, &["203.0.113.1/32"]));
    let mut stream = good.accept().await;
    message(&mut stream, UPDATE).await;
    report(&handle, "refused", |report| {
        report.is_some_and(|report| report.change.reason == Reason::ConnectFailed)
    })
    .await;
    report(&handle, "good", is_up).await;
    assert!(!is_up(handle.reports().borrow().get(&"silent".into())));
}

#[tokio::test]
async fn a_changed_field_restarts_this_session_and_no_other() {
    let (first, second) = (Router::new().await, Router::new().await);
    let (handle, _join) = start();
    let peers = [("first", first.port), ("second", second.port)];
    let mut wanted = desired(&peers, &["203.0.113.1/32"]);
    handle.update(wanted.clone());
    let mut streams = (first.accept().await, second.accept().await);
    report(&handle, "first", is_up).await;
    report(&handle, "second", is_up).await;
    wanted.peers[0].router_id = "192.0.2.77".parse().unwrap();
    wanted.routes = desired(&peers, &["203.0.113.2/32"]).routes;
    handle.update(wanted);
    assert_eq!(message(&mut streams.0, NOTIFICATION).await, [6, 6]);
    drop(streams.0);
    let mut again = first.accept().await;
    let open = message(&mut again, 1).await;
    assert_eq!(open[5..9], [192, 0, 2, 77]);
    // the other session lives on: its next message is the changed route
    message(&mut streams.1, UPDATE).await;
    let update = message(&mut streams.1, UPDATE).await;
    assert!(
        update.starts_with(&[0, 5, 32, 203, 0, 113, 1]),
        "{update:?}"
    );
}

#[tokio::test]
async fn a_removed_peer_is_told_and_forgotten() {
    let router = Router::new().await;
    let (handle, _join) = start();
    handle.update(desired(&[("tor", router.port)], &[]));
    let mut stream = router.accept().await;
    report(&handle, "tor", is_up).await;
    handle.update(Desired::default());
    assert_eq!(message(&mut stream, NOTIFICATION).await, [6, 3]);
    report(&handle, "tor", |report| report.is_none()).await;
}

#[tokio::test]
async fn a_peer_that_comes_back_is_dialled_again_and_hears_all() {
    let router = Router::new().await;
    let (handle, _join) = start();
    handle.update(desired(&[("tor", router.port)], &["203.0.113.1/32"]));
    let mut stream = router.accept().await;
    message(&mut stream, UPDATE).await;
    drop(stream);
    report(&handle, "tor", |report| report.is_some() && !is_up(report)).await;
    let mut stream = router.accept().await;
    message(&mut stream, UPDATE).await;
    report(&handle, "tor", is_up).await;
}
