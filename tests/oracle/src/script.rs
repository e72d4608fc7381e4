//! What is done for each fact, by the words of its `when`.
//!
//! Owns which words are known. Where chance decides (which pod), the rule behind the observation is compared: see each
//! script. A fact without a script is unsupported.

use lab::Result;
use serde_json::Value;

use crate::{
    differences::Differences,
    facts::Fact,
    probe::Prober,
    proxier::Proxier,
    report::{Line, Verdict},
};

mod affinity;
mod conntrack;
mod healthz;

/// Performs every fact; `report` gets each one's line.
pub fn run<P: Proxier>(
    facts: &[Fact],
    prober: &Prober<'_>,
    proxier: &mut P,
    differences: &Differences,
    mut report: impl FnMut(Line),
) -> Result<()> {
    for fact in facts {
        let seen = match fact.group.split_once('/') {
            Some(("conntrack", group)) => conntrack::perform(group, fact, prober, proxier)?,
            Some(("affinity", _)) => affinity::perform(fact, prober, proxier)?,
            Some(("healthz", _)) => healthz::perform(fact, prober, proxier)?,
            _ => None,
        };
        let (id, verdict) = (
            format!("{} – {}", fact.id, fact.when),
            verdict(fact, seen, differences),
        );
        report(Line { id, verdict });
    }
    Ok(())
}

fn verdict(fact: &Fact, seen: Option<Value>, differences: &Differences) -> Verdict {
    let Some(seen) = seen else {
        let why = match fact.when.as_str() {
            "45 s after" => "not waited for: the next fact asks about the same flows",
            "timeout 3 -> 3600: timeout of the sets afterwards" => {
                "speaks of kube-proxy's own sets"
            }
            _ => "no script performs it",
        };
        return Verdict::Unsupported(why.to_owned());
    };
    let name = format!("{}: {}", fact.group, fact.when);
    let wanted = differences.of_fact(&name);
    match wanted {
        Some(wanted) if wanted.observed == seen => Verdict::WantedDifference(wanted.reason.clone()),
        None if fact.observed == seen => Verdict::Pass,
        Some(wanted) => Verdict::Fail {
            expected: format!("{} (a wanted difference)", wanted.observed),
            got: seen.to_string(),
        },
        None => Verdict::Fail {
            expected: fact.observed.to_string(),
            got: seen.to_string(),
        },
    }
}
