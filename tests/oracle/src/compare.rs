//! Whether what was seen is what was recorded.
//!
//! Owns the comparison of every field. What was seen beyond the record is wrong at once; what chance has not shown yet is
//! asked again, a bounded number of times.

use std::collections::BTreeSet;

use crate::{
    expectation::{Expect, Served},
    observation::Observation,
};

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Equal in every field.
    Equal,
    /// Nothing wrong was seen, but not yet all that was recorded: more connections may show it.
    Incomplete,
    /// Different.
    Different,
}

/// Holds an observation against a record.
pub fn judge(expect: &Expect, seen: &Observation) -> Judgement {
    let total = seen.total();
    if total == 0 {
        return Judgement::Incomplete;
    }
    let all = |count: usize| {
        if count == total {
            Judgement::Equal
        } else {
            Judgement::Different
        }
    };
    match expect {
        Expect::Dropped => all(seen.dropped),
        Expect::Rejected(how) => all(seen.rejected.get(how).copied().unwrap_or(0)),
        Expect::Passed(source) => all(seen.passed.get(source).copied().unwrap_or(0)),
        Expect::Served(served) if seen.served == total => judge_served(served, seen),
        Expect::Mixed(served) if seen.served + seen.dropped == total => {
            match judge_served(served, seen) {
                Judgement::Equal if seen.dropped == 0 => Judgement::Incomplete,
                judgement @ (Judgement::Equal | Judgement::Incomplete | Judgement::Different) => {
                    judgement
                }
            }
        }
        Expect::Served(_) | Expect::Mixed(_) => Judgement::Different,
    }
}

fn judge_served(served: &Served, seen: &Observation) -> Judgement {
    let pods: BTreeSet<String> = seen.pods.keys().cloned().collect();
    let sources_right = seen.pods.iter().all(|(pod, sources)| {
        let expected = served.source.of(pod);
        sources.iter().all(|source| expected == Some(source))
    });
    let (ports_right, ports_all) = match &served.ports {
        Some(ports) => (seen.ports.is_subset(ports), seen.ports == *ports),
        None => (seen.ports.len() <= 1, true),
    };
    let steady = !served.sticky || seen.unsteady == 0;
    if !pods.is_subset(&served.pods) || !sources_right || !ports_right || !steady {
        Judgement::Different
    } else if pods == served.pods && ports_all {
        Judgement::Equal
    } else {
        Judgement::Incomplete
    }
}

#[cfg(test)]
mod tests;
