//! The whole demo for a user who is not root, in a user namespace.

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

/// `nobody`
const USER: &str = "65534";

/// A command that runs as another user, without groups
fn as_user(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", USER, "--regid", USER, "--clear-groups"])
        .arg(program);
    command
}

/// The program where that user can read it
fn readable_program() -> PathBuf {
    let program =
        std::env::temp_dir().join(format!("roadstead-unprivileged-{}", std::process::id()));
    std::fs::copy(e2e::roadstead(), &program).expect("the program can be copied");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))
        .expect("its mode can be set");
    program
}

#[test]
fn the_demo_runs_for_a_user_who_is_not_root() {
    let mut probe = as_user(Path::new("unshare"));
    let allowed = probe
        .args(["--user", "--map-root-user", "--net", "true"])
        .status();
    if !allowed.is_ok_and(|status| status.success()) {
        return skips::skip(
            "user-namespaces",
            "a user may not make user namespaces here, or setpriv is missing",
        );
    }
    let program = readable_program();
    let output = as_user(&program)
        .args(["demo", "--once"])
        .current_dir("/")
        .output();
    std::fs::remove_file(&program).expect("the copy can be removed");
    let output = output.expect("the demo starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
}
