use super::*;

/// The whole table as text, a block per state.
fn table() -> String {
    let mut lines = Vec::new();
    for state in State::ALL {
        lines.push(format!("{state}"));
        for event in Event::ALL {
            let Transition { next, actions } = transition(state, event);
            lines.push(format!(
                "  {:<26} -> {:<12} {actions:?}",
                format!("{event:?}"),
                next.as_str()
            ));
        }
    }
    lines.join("\n") + "\n"
}

/// To change the table on purpose: run with `UPDATE_GOLDEN=1` and read the difference.
#[test]
fn every_state_and_event_is_as_written_down() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/fsm/table.golden");
    #[expect(
        clippy::disallowed_methods,
        reason = "a test may read and write its golden file"
    )]
    if std::env::var("UPDATE_GOLDEN").is_ok() {
        std::fs::write(path, table()).unwrap();
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "a test may read and write its golden file"
    )]
    let golden = std::fs::read_to_string(path).unwrap();
    assert_eq!(table(), golden);
}

#[test]
fn established_is_reached_only_by_a_keepalive_after_both_opens() {
    for state in State::ALL {
        for event in Event::ALL {
            let next = transition(state, event).next;
            let allowed = state == State::Established
                || (state, event) == (State::OpenConfirm, Event::KeepAliveMsg);
            assert!(next != State::Established || allowed, "{state} {event:?}");
        }
    }
}

#[test]
fn whoever_leaves_a_live_connection_closes_it() {
    for state in [State::OpenSent, State::OpenConfirm, State::Established] {
        for event in Event::ALL {
            let Transition { next, actions } = transition(state, event);
            assert_eq!(
                next < State::OpenSent,
                actions.contains(&Close),
                "{state} {event:?}"
            );
        }
    }
}
