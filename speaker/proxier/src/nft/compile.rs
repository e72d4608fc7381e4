//! The fixed text of the ruleset: maps, sets and chains, the same for every node and every number of Services.
//!
//! Owns each rule. Never holds a Service: those are elements. No rule names an interface: a pod is known by its network,
//! so nothing here waits for an interface to exist. What each object is for: `deploy/docs/ruleset.md`.
//!
//! The packet's priority is the scratch register: first the slot set, then the slot set with its slot or the remembered
//! endpoint. It is 0 again when the packet leaves. Of the mark only one bit is ours.

use std::collections::BTreeMap;

use api_model::IpFamily;

use super::element::{ChainKind, Key, Table, Value};

/// Name of the table in both families.
pub const TABLE: &str = "roadstead";
/// Chains for up to so many slots are part of the fixed text: all that a set can have. `nft` 1.0.6 cannot add a rule that
/// looks into `eps` or `aff-eps` later: it reads the map's type back from the kernel as "any transport port" and calls that
/// a conflict with the rule's own protocols.
pub const READY_MADE_SLOTS: u32 = 1_023;
/// The same where the text has to be small: inside a user namespace `nft` can't enlarge its send buffer (212,992 bytes),
/// and all of the text is one batch. A Service with more endpoints is refused there.
pub const FEW_READY_MADE_SLOTS: u32 = 64;
/// Clients remembered per family.
pub const REMEMBERED_CLIENTS: u32 = 262_144;
/// Version of the fixed text: a table with another one is replaced as a whole. Goes up with each change here.
const VERSION: u32 = 2;

/// A chain: its name, hook and rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Name.
    pub name: String,
    /// `type … hook … priority …`, or nothing.
    pub hook: Option<&'static str>,
    /// One rule each.
    pub rules: Vec<String>,
}

impl Chain {
    fn new(name: &str, rules: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            hook: None,
            rules: rules.iter().map(ToString::to_string).collect(),
        }
    }

    fn hooked(name: &str, hook: &'static str, rules: &[&str]) -> Self {
        Self {
            hook: Some(hook),
            ..Self::new(name, rules)
        }
    }
}

/// Settings of the fixed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The one bit of the packet mark that says: to be masqueraded.
    pub masquerade_bit: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            masquerade_bit: 0x0020_0000,
        }
    }
}

/// Words that differ by family.
fn family_words(family: IpFamily) -> (&'static str, &'static str) {
    match family {
        IpFamily::V4 => ("ip", "ipv4_addr"),
        IpFamily::V6 => ("ip6", "ipv6_addr"),
    }
}

/// `ip` or `ip6`.
pub fn family_word(family: IpFamily) -> &'static str {
    family_words(family).0
}

/// The empty chain whose name says which fixed text this is.
pub fn version_chain(settings: Settings) -> String {
    format!("text-{VERSION}-{:x}", settings.masquerade_bit)
}

/// Elements of `class` that are part of the fixed text, both families.
pub fn ready_made_classes() -> Table {
    ready_made_up_to(READY_MADE_SLOTS)
}

/// The same for sets of up to so many slots only.
pub fn ready_made_up_to(slots: u32) -> Table {
    let classes = (1..).zip(1..=slots);
    let both = classes
        .flat_map(|(class, slots)| [(IpFamily::V4, class, slots), (IpFamily::V6, class, slots)]);
    both.map(|(family, class, slots)| {
        (
            Key::Class(family, class),
            Value::Chain(ChainKind::Random { slots }),
        )
    })
    .collect()
}

/// Chains of one family's table for a table that has these classes, with the number of rules that each must have.
pub fn expected_chains(
    family: IpFamily,
    settings: Settings,
    table: &Table,
) -> BTreeMap<String, usize> {
    let mut expected: BTreeMap<String, usize> = fixed_chains(family, settings)
        .into_iter()
        .map(|chain| (chain.name, chain.rules.len()))
        .collect();
    for value in table
        .iter()
        .filter(|(key, _)| key.family() == family)
        .map(|(_, value)| value)
    {
        if let Value::Chain(kind) = value {
            expected.extend(
                chooser(family, *kind)
                    .into_iter()
                    .map(|chain| (chain.name, chain.rules.len())),
            );
        }
    }
    expected
}

/// Chains that choose a slot, with those they jump to, in the order in which they can be made.
pub fn chooser(family: IpFamily, kind: ChainKind) -> Vec<Chain> {
    match (kind, family) {
        (ChainKind::Random { slots }, _) => vec![random(family, slots)],
        (
            ChainKind::Sticky {
                slots,
                seconds,
                local,
            },
            IpFamily::V4,
        ) => {
            let mut chains = use_v4(seconds);
            chains.push(sticky_v4(kind.name(), slots, seconds, local));
            chains
        }
        (ChainKind::Sticky { slots, seconds, .. }, IpFamily::V6) => {
            vec![use_v6(seconds), sticky_v6(kind.name(), slots, seconds)]
        }
    }
}

fn random(family: IpFamily, slots: u32) -> Chain {
    let ip = family_word(family);
    let name = ChainKind::Random { slots }.name();
    let dnat = format!(
        "meta l4proto {{ tcp, udp, sctp }} dnat {ip} to meta priority . numgen random mod {slots} map @eps"
    );
    Chain::new(
        &name,
        &["meta priority set meta priority & ffff:f800", &dnat],
    )
}

/// Remember (or refresh), then go there. Both are rules of their own: a full memory doesn't refuse the connection.
fn use_v4(seconds: u32) -> Vec<Chain> {
    let update = format!(
        "update @aff {{ meta priority & ffff:f000 . ip saddr timeout {seconds}s : meta priority & ffff:f7ff }}"
    );
    let to_use = format!("goto use-{seconds}");
    vec![
        Chain::new(&format!("use-{seconds}"), &[&update, "goto use"]),
        Chain::new(
            &format!("use-local-{seconds}"),
            &["meta priority set meta priority | 0:800", &to_use],
        ),
    ]
}

fn sticky_v4(name: String, slots: u32, seconds: u32, local: bool) -> Chain {
    let (to_use, scope) = if local {
        ("use-local", "0:800")
    } else {
        ("use", "0:0")
    };
    let remembered =
        format!("meta priority set meta priority . ip saddr map @aff jump {to_use}-{seconds}");
    let into_scope = format!("meta priority set meta priority | {scope}");
    let choose = format!(
        "meta priority set meta priority . numgen random mod {slots} map @aff-slots goto use-{seconds}"
    );
    let mut rules = vec![
        "meta priority set meta priority & ffff:f000",
        &remembered,
        "meta priority set meta priority & ffff:f000",
        "delete @aff { meta priority . ip saddr : meta priority }",
    ];
    if local {
        rules.push(&into_scope);
    }
    rules.push(&choose);
    Chain {
        name,
        ..Chain::new("", &rules)
    }
}

/// The IPv6 memory is a set of (endpoint, client), asked slot by slot: `nft` 1.0.6 cannot write a learnt map whose key
/// is longer than 16 bytes (it loads the data over the end of the key).
fn use_v6(seconds: u32) -> Chain {
    let update =
        format!("update @aff {{ meta priority & ffff:f7ff . ip6 saddr timeout {seconds}s }}");
    Chain::new(&format!("use-{seconds}"), &[&update, "goto use"])
}

fn sticky_v6(name: String, slots: u32, seconds: u32) -> Chain {
    let back = "meta priority set meta priority & ffff:f800".to_owned();
    let mut rules = Vec::new();
    for slot in 0..slots {
        rules.push(back.clone());
        rules.push(format!(
            "meta priority set meta priority . numgen random mod 1 offset {slot} map @aff-slots"
        ));
        rules.push(format!(
            "meta priority & ffff:f7ff . ip6 saddr @aff goto use-{seconds}"
        ));
    }
    rules.push(back);
    rules.push(format!(
        "meta priority set meta priority . numgen random mod {slots} map @aff-slots goto use-{seconds}"
    ));
    Chain {
        name,
        hook: None,
        rules,
    }
}

/// The chains that every table has, but for the ready-made choosers.
pub fn fixed_chains(family: IpFamily, settings: Settings) -> Vec<Chain> {
    let mut chains = vec![Chain::new(&version_chain(settings), &[])];
    chains.extend(routing_chains(family, settings));
    chains.extend(filter_chains(family));
    chains.push(masquerading(family, settings));
    chains
}

fn frontend_key(family: IpFamily) -> String {
    format!("{} daddr . meta l4proto . th dport", family_word(family))
}

fn routing_chains(family: IpFamily, settings: Settings) -> Vec<Chain> {
    let (ip, key) = (family_word(family), frontend_key(family));
    let mark = format!(
        "meta mark set meta mark | {:#010x}",
        settings.masquerade_bit
    );
    let route = |condition: &str, map: &str, then: &str| {
        let rule = format!("{condition} meta priority set {key} map @{map} {then}");
        rule.trim_start().to_owned()
    };
    let mark_and_pick = format!("{mark} goto pick");
    let services = [
        route("", "cip", "goto cluster-ip"),
        route("", "ext", &mark_and_pick),
        route(&format!("{ip} saddr @pods"), "loc-in", "goto pick"),
        route("fib saddr type local", "loc-in", &mark_and_pick),
        route("", "loc", "goto pick"),
    ];
    let outside = format!("{ip} saddr != @pods {mark}");
    let remembered =
        format!("meta l4proto {{ tcp, udp, sctp }} dnat {ip} to meta priority map @aff-eps");
    let jump = ["jump services"];
    let hooks = [
        ("nat-prerouting", "type nat hook prerouting priority dstnat"),
        ("nat-output", "type nat hook output priority -100"),
    ];
    let mut chains = vec![
        Chain::new("use", &[&remembered]),
        Chain::new("pick", &["meta priority & 0:7ff vmap @class"]),
        Chain::new("cluster-ip", &[&outside, "goto pick"]),
        Chain::new("services", &services.each_ref().map(String::as_str)),
    ];
    chains.extend(hooks.map(|(name, hook)| Chain::hooked(name, hook, &jump)));
    chains
}

/// The guard stands before the DNAT, refusals after it: what was sent on to an endpoint has another destination by then.
fn filter_chains(family: IpFamily) -> Vec<Chain> {
    let (ip, key) = (family_word(family), frontend_key(family));
    let guarded = format!("{key} @guarded {key} . {ip} saddr != @allowed drop");
    let unserved = [format!("{key} @refuse reject"), format!("{key} @hole drop")];
    let others = [
        format!("{ip} daddr @cluster-ips reject"),
        format!("{ip} daddr @service-net drop"),
    ];
    let guard: &[&str] = &["ct state new jump guard"];
    let checks: &[&str] = &[
        "ct state new jump unserved",
        "ct state new jump not-a-service",
    ];
    let hooks = [
        (
            "guard-prerouting",
            "type filter hook prerouting priority dstnat - 10",
            guard,
        ),
        (
            "guard-output",
            "type filter hook output priority -110",
            guard,
        ),
        (
            "filter-input",
            "type filter hook input priority filter",
            &checks[..1],
        ),
        (
            "filter-forward",
            "type filter hook forward priority filter",
            checks,
        ),
        (
            "filter-output",
            "type filter hook output priority filter",
            checks,
        ),
    ];
    let mut chains = vec![
        Chain::new("guard", &[&guarded]),
        Chain::new("unserved", &unserved.each_ref().map(String::as_str)),
        Chain::new("not-a-service", &others.each_ref().map(String::as_str)),
    ];
    chains.extend(hooks.map(|(name, hook, rules)| Chain::hooked(name, hook, rules)));
    chains
}

fn masquerading(family: IpFamily, settings: Settings) -> Chain {
    let (ip, bit) = (family_word(family), settings.masquerade_bit);
    let masquerade = format!(
        "meta mark & {bit:#010x} != 0 meta mark set meta mark & {:#010x} masquerade fully-random",
        !bit
    );
    let hairpin =
        format!("ct status dnat {ip} saddr . {ip} daddr @hairpin masquerade fully-random");
    Chain::hooked(
        "nat-postrouting",
        "type nat hook postrouting priority srcnat",
        &[
            "ct status dnat meta priority set none",
            &masquerade,
            &hairpin,
        ],
    )
}

/// Declarations of all sets and maps: name, kind, body.
pub fn declarations(family: IpFamily) -> Vec<(&'static str, &'static str, String)> {
    let (ip, address) = family_words(family);
    let key = format!("{ip} daddr . meta l4proto . th dport");
    let route = format!("typeof {key} : meta priority");
    let frontend = format!("typeof {key}");
    let nets = format!("type {address}\n\t\tflags interval");
    let slot = "typeof meta priority . numgen random mod 2";
    let memory = match family {
        IpFamily::V4 => ("map", "typeof meta priority . ip saddr : meta priority"),
        IpFamily::V6 => ("set", "typeof meta priority . ip6 saddr"),
    };
    vec![
        ("set", "pods", nets.clone()),
        ("set", "service-net", nets),
        ("set", "cluster-ips", format!("type {address}")),
        ("map", "cip", route.clone()),
        ("map", "ext", route.clone()),
        ("map", "loc", route.clone()),
        ("map", "loc-in", route),
        ("map", "eps", format!("{slot} : {ip} daddr . th dport")),
        ("map", "aff-slots", format!("{slot} : meta priority")),
        (
            "map",
            "aff-eps",
            format!("typeof meta priority : {ip} daddr . th dport"),
        ),
        (
            memory.0,
            "aff",
            format!(
                "{}\n\t\tsize {REMEMBERED_CLIENTS}\n\t\tflags dynamic,timeout",
                memory.1
            ),
        ),
        ("set", "refuse", frontend.clone()),
        ("set", "hole", frontend.clone()),
        ("set", "guarded", frontend.clone()),
        (
            "set",
            "allowed",
            format!("{frontend} . {ip} saddr\n\t\tflags interval"),
        ),
        ("set", "hairpin", format!("type {address} . {address}")),
        ("map", "class", "typeof meta priority : verdict".to_owned()),
    ]
}
