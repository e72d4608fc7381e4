//! Which kinds there are: the built-in ones as a table, custom ones from their `CustomResourceDefinition`.
//!
//! Owns the facts about a kind (names, scope, verbs, selectable fields, when `generation` grows) and the check of a body
//! against the built-in types; never stores anything. Source: the discovery documents of Kubernetes 1.37.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::{
    coordination::v1 as coordination, core::v1 as core, discovery::v1 as discovery,
    events::v1 as events,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::store::ResourceName;

/// When a write raises `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// The kind has none; what a client sends on create is kept.
    Never,
    /// Changes outside of metadata and status.
    Spec,
    /// Any change but of status.
    Any,
}

/// Which names an object may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameRule {
    /// RFC 1123 label, at most 63 characters.
    Label,
    /// RFC 1123 subdomain, at most 253 characters.
    Subdomain,
}

/// What only a built-in kind has.
#[derive(Debug)]
pub(crate) struct Builtin {
    /// Decodes into the Go-compatible type and back: checks types, drops unknown fields. The error names the field.
    pub(crate) normalize: fn(&Value) -> Result<Value, String>,
    /// See [`NameRule`].
    pub(crate) names: NameRule,
    /// See [`Generation`].
    pub(crate) generation: Generation,
    /// PUT of a missing object creates it.
    pub(crate) put_creates: bool,
    /// DELETE answers the object instead of a `Status`.
    pub(crate) delete_answers_object: bool,
    /// Field selectors beside `metadata.name` and `metadata.namespace`.
    pub(crate) fields: &'static [&'static str],
}

/// What only a custom kind has.
#[derive(Debug)]
pub(crate) struct Custom {
    /// `openAPIV3Schema` of this version.
    pub(crate) schema: Value,
    /// `additionalPrinterColumns` of this version, empty when there are none.
    pub(crate) columns: Vec<Value>,
    /// `selectableFields` of this version as `spec.mode`.
    pub(crate) fields: Vec<String>,
    /// Warning for whoever uses this version, if it is deprecated.
    pub(crate) deprecation: Option<String>,
    /// Version that objects are stored as.
    pub(crate) storage_version: String,
}

/// How bodies of a kind are checked.
#[derive(Clone, Debug)]
pub(crate) enum Rules {
    /// By type.
    Builtin(&'static Builtin),
    /// By the schema of the CRD.
    Custom(Arc<Custom>),
}

/// One kind at one version.
#[expect(
    clippy::struct_field_names,
    reason = "the names of the discovery document"
)]
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    /// API group, empty for core.
    pub(crate) group: String,
    /// Version in the path.
    pub(crate) version: String,
    /// Resource name in the path.
    pub(crate) plural: String,
    /// What a user may type.
    pub(crate) singular: String,
    /// CamelCase kind.
    pub(crate) kind: String,
    /// Kind of lists.
    pub(crate) list_kind: String,
    /// Short names: `svc`.
    pub(crate) short_names: Vec<String>,
    /// Groups of kinds: `all`.
    pub(crate) categories: Vec<String>,
    /// Lives in a namespace.
    pub(crate) namespaced: bool,
    /// Has `/status`.
    pub(crate) status: bool,
    /// Where objects are stored: equal for all versions and for both groups of Event.
    pub(crate) storage: ResourceName,
    /// How bodies are checked.
    pub(crate) rules: Rules,
}

impl Kind {
    /// `v1`, `discovery.k8s.io/v1`.
    pub(crate) fn api_version(&self) -> String {
        group_version(&self.group, &self.version)
    }

    /// The built-in part, if it is one.
    pub(crate) fn builtin(&self) -> Option<&'static Builtin> {
        match self.rules {
            Rules::Builtin(builtin) => Some(builtin),
            Rules::Custom(_) => None,
        }
    }

    /// The custom part, if it is one.
    pub(crate) fn custom(&self) -> Option<&Custom> {
        match &self.rules {
            Rules::Custom(custom) => Some(custom),
            Rules::Builtin(_) => None,
        }
    }

    /// Whether this is the built-in kind stored under that name.
    pub(crate) fn is(&self, storage: &str) -> bool {
        &*self.storage == storage && self.builtin().is_some()
    }

    /// When generation grows.
    pub(crate) fn generation(&self) -> Generation {
        self.builtin()
            .map_or(Generation::Spec, |builtin| builtin.generation)
    }

    /// What every answer about the kind warns of.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let endpoints =
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
        let deprecation = self.custom().and_then(|custom| custom.deprecation.clone());
        deprecation
            .or_else(|| self.is("endpoints").then(|| endpoints.to_owned()))
            .into_iter()
            .collect()
    }

    /// Verbs for discovery.
    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        match (&self.rules, self.is("namespaces")) {
            (Rules::Custom(_), _) => &[
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "create",
                "update",
                "watch",
            ],
            (_, true) => &[
                "create", "delete", "get", "list", "patch", "update", "watch",
            ],
            _ => &[
                "create",
                "delete",
                "deletecollection",
                "get",
                "list",
                "patch",
                "update",
                "watch",
            ],
        }
    }
}

/// `v1` for the core group, else `group/version`.
pub(crate) fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// All kinds served now.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    kinds: BTreeMap<(String, String, String), Arc<Kind>>,
}

impl Registry {
    /// The built-in kinds.
    pub(crate) fn new() -> Self {
        let mut registry = Self {
            kinds: BTreeMap::new(),
        };
        for row in ROWS {
            registry.insert(row.to_kind());
        }
        registry
    }

    /// Adds or replaces a kind.
    pub(crate) fn insert(&mut self, kind: Kind) {
        let key = (
            kind.group.clone(),
            kind.version.clone(),
            kind.plural.clone(),
        );
        self.kinds.insert(key, Arc::new(kind));
    }

    /// Takes out all versions of a custom resource.
    pub(crate) fn remove(&mut self, group: &str, plural: &str) {
        self.kinds
            .retain(|(g, _, p), kind| kind.builtin().is_some() || g != group || p != plural);
    }

    /// The kind behind a path.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.kinds
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// The kind of an object.
    pub(crate) fn find_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.iter()
            .find(|k| k.kind == kind && k.api_version() == api_version)
    }

    /// All kinds by group, version, plural.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

struct Row {
    group: &'static str,
    plural: &'static str,
    singular: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    all: bool,
    namespaced: bool,
    status: bool,
    builtin: Builtin,
}

impl Row {
    const fn new<T: Serialize + DeserializeOwned>(
        group: &'static str,
        plural: &'static str,
        kind: &'static str,
    ) -> Self {
        let builtin = Builtin {
            normalize: normalize::<T>,
            names: NameRule::Subdomain,
            generation: Generation::Never,
            put_creates: false,
            delete_answers_object: false,
            fields: &[],
        };
        let (short_names, singular) = (&[] as &[&str], "");
        Self {
            group,
            plural,
            singular,
            kind,
            short_names,
            all: false,
            namespaced: true,
            status: false,
            builtin,
        }
    }

    fn to_kind(&'static self) -> Kind {
        let owned = |texts: &[&str]| {
            texts
                .iter()
                .map(|&text| text.to_owned())
                .collect::<Vec<_>>()
        };
        let lower = self.kind.to_lowercase();
        // both groups of Event show the same objects
        let storage = match self.group {
            "" | "events.k8s.io" => self.plural.to_owned(),
            group => format!("{}.{group}", self.plural),
        };
        let category: &[&str] = match (self.all, self.group) {
            (true, _) => &["all"],
            (_, "apiextensions.k8s.io") => &["api-extensions"],
            _ => &[],
        };
        Kind {
            group: self.group.to_owned(),
            version: "v1".to_owned(),
            plural: self.plural.to_owned(),
            singular: if self.singular.is_empty() {
                lower
            } else {
                self.singular.to_owned()
            },
            kind: self.kind.to_owned(),
            list_kind: format!("{}List", self.kind),
            short_names: owned(self.short_names),
            categories: owned(category),
            namespaced: self.namespaced,
            status: self.status,
            storage: storage.into(),
            rules: Rules::Builtin(&self.builtin),
        }
    }
}

const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

static ROWS: &[Row] = &[
    const {
        let mut row = Row::new::<core::Namespace>("", "namespaces", "Namespace");
        (row.short_names, row.namespaced, row.status) = (&["ns"], false, true);
        row.builtin.names = NameRule::Label;
        (row.builtin.delete_answers_object, row.builtin.fields) = (true, &["status.phase"]);
        row
    },
    const {
        let mut row = Row::new::<core::Node>("", "nodes", "Node");
        (row.short_names, row.namespaced, row.status) = (&["no"], false, true);
        row.builtin.fields = &["spec.unschedulable"];
        row
    },
    const {
        let mut row = Row::new::<core::Pod>("", "pods", "Pod");
        (row.short_names, row.all, row.status) = (&["po"], true, true);
        (row.builtin.generation, row.builtin.delete_answers_object) = (Generation::Spec, true);
        row.builtin.fields = &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ];
        row
    },
    const {
        let mut row = Row::new::<core::Service>("", "services", "Service");
        (row.short_names, row.all, row.status) = (&["svc"], true, true);
        row.builtin.names = NameRule::Label;
        (row.builtin.put_creates, row.builtin.delete_answers_object) = (true, true);
        row.builtin.fields = &["spec.clusterIP", "spec.type"];
        row
    },
    const {
        let mut row = Row::new::<core::Endpoints>("", "endpoints", "Endpoints");
        (row.short_names, row.builtin.put_creates) = (&["ep"], true);
        row
    },
    const {
        let mut row = Row::new::<core::ConfigMap>("", "configmaps", "ConfigMap");
        row.short_names = &["cm"];
        row
    },
    const {
        let mut row = Row::new::<core::Secret>("", "secrets", "Secret");
        row.builtin.fields = &["type"];
        row
    },
    const {
        let mut row = Row::new::<core::ServiceAccount>("", "serviceaccounts", "ServiceAccount");
        row.short_names = &["sa"];
        row
    },
    const {
        let mut row = Row::new::<core::Event>("", "events", "Event");
        (row.short_names, row.builtin.put_creates, row.builtin.fields) =
            (&["ev"], true, EVENT_FIELDS);
        row
    },
    const {
        let mut row = Row::new::<events::Event>("events.k8s.io", "events", "Event");
        (row.short_names, row.builtin.put_creates, row.builtin.fields) =
            (&["ev"], true, EVENT_FIELDS);
        row
    },
    const {
        let mut row = Row::new::<discovery::EndpointSlice>(
            "discovery.k8s.io",
            "endpointslices",
            "EndpointSlice",
        );
        row.builtin.generation = Generation::Any;
        row
    },
    const {
        let mut row = Row::new::<coordination::Lease>("coordination.k8s.io", "leases", "Lease");
        row.builtin.put_creates = true;
        row
    },
    const {
        let (plural, kind) = ("customresourcedefinitions", "CustomResourceDefinition");
        let mut row = Row::new::<apiextensions::CustomResourceDefinition>(
            "apiextensions.k8s.io",
            plural,
            kind,
        );
        (row.short_names, row.namespaced, row.status) = (&["crd", "crds"], false, true);
        (row.builtin.generation, row.builtin.delete_answers_object) = (Generation::Spec, true);
        row.builtin.normalize = through_type::<apiextensions::CustomResourceDefinition>;
        row
    },
];

/// Through the type and back. Lists that are empty and optional vanish as they do in Go; so do empty maps of strings.
fn normalize<T: Serialize + DeserializeOwned>(value: &Value) -> Result<Value, String> {
    let mut value = through_type::<T>(value)?;
    drop_empty(&mut value);
    Ok(value)
}

/// `metadata` of a custom resource through its type.
pub(crate) fn normalize_metadata(metadata: &Value) -> Result<Value, String> {
    normalize::<ObjectMeta>(metadata).map_err(|what| format!("metadata.{what}"))
}

/// Through the type and back, and nothing else: a schema may have a default of `[]`.
fn through_type<T: Serialize + DeserializeOwned>(value: &Value) -> Result<Value, String> {
    let typed: T = serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        format!("{path}: {}", error.into_inner())
    })?;
    serde_json::to_value(typed).map_err(|error| error.to_string())
}

/// Fields whose Go type has `omitempty` and no pointer.
pub(crate) fn drop_empty(value: &mut Value) {
    const MAPS: &[&str] = &[
        "labels",
        "annotations",
        "selector",
        "data",
        "binaryData",
        "nodeSelector",
        "matchLabels",
    ];
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(drop_empty);
            map.retain(|key, value| match value {
                Value::Array(items) => !items.is_empty(),
                Value::Object(fields) => !fields.is_empty() || !MAPS.contains(&key.as_str()),
                Value::Null => false,
                Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
