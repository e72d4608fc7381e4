//! The workspace as `cargo metadata` describes it. Never touches the network (`--offline`).

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

/// A package of the workspace or a dependency.
#[derive(Clone, Debug)]
pub struct Package {
    /// Name in its manifest.
    pub name: String,
    /// Version.
    pub version: String,
    /// Licence expression, empty where the manifest has none.
    pub licence: String,
    /// Folder of its manifest.
    pub folder: PathBuf,
    /// Names of its normal dependencies, as packages are named.
    pub normal: BTreeSet<String>,
    /// Whether it is ours.
    pub member: bool,
}

/// Folder of the repository.
pub fn root() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    folder
        .canonicalize()
        .expect("the repository is two folders up")
}

/// Every package that the lock file knows for this workspace.
pub fn packages() -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .args(["--filter-platform", &host()])
        .current_dir(root())
        .output()
        .expect("cargo starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "cargo metadata failed: {complaint}"
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    let members: BTreeSet<&str> = array(&metadata["workspace_members"])
        .filter_map(Value::as_str)
        .collect();
    array(&metadata["packages"])
        .map(|package| read(package, &members))
        .collect()
}

/// The triple of this machine: dependencies of other platforms are not ours.
fn host() -> String {
    let output = Command::new("rustc")
        .arg("-vV")
        .output()
        .expect("rustc starts");
    let text = String::from_utf8(output.stdout).expect("rustc speaks UTF-8");
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.expect("rustc names its host").to_owned()
}

/// Our own packages by name.
pub fn members(packages: &[Package]) -> BTreeMap<&str, &Package> {
    packages
        .iter()
        .filter(|package| package.member)
        .map(|package| (package.name.as_str(), package))
        .collect()
}

fn read(package: &Value, members: &BTreeSet<&str>) -> Package {
    let text = |key: &str| package[key].as_str().unwrap_or_default().to_owned();
    let manifest = PathBuf::from(text("manifest_path"));
    Package {
        name: text("name"),
        version: text("version"),
        licence: text("license"),
        folder: manifest
            .parent()
            .expect("a manifest lies in a folder")
            .into(),
        normal: array(&package["dependencies"])
            .filter(|dependency| dependency["kind"].is_null())
            .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
            .collect(),
        member: members.contains(text("id").as_str()),
    }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
