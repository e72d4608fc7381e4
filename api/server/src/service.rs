//! Services: defaults, and what they refuse.

use serde_json::{Value, json};

use crate::crud::{Call, Part, Random};
use crate::status_error::{ApiError, Cause};

/// Cluster addresses and node ports in use.
#[derive(Debug, Default)]
pub(crate) struct Services {}

impl Services {
    pub(crate) fn new(_cidrs: &[ipnet::IpNet], _ports: (u16, u16)) -> Self {
        Self {}
    }
}

impl Services {
    pub(crate) fn create(
        &mut self,
        _call: &Call<'_>,
        _object: &mut Value,
        _random: &mut Random,
    ) -> Result<(), ApiError> {
        Ok(())
    }
    pub(crate) fn update(
        &mut self,
        _call: &Call<'_>,
        _old: &Value,
        _new: &mut Value,
        _part: Part,
        _random: &mut Random,
    ) -> Result<Vec<String>, ApiError> {
        Ok(Vec::new())
    }
    pub(crate) fn release(&mut self, _what: &[String]) {}
    pub(crate) fn forget(&mut self, _object: &Value) {}
}

pub(crate) fn on_create(object: &mut Value, _warnings: &mut Vec<String>) {
    object["status"] = json!({"loadBalancer": {}});
    defaults(object);
}

pub(crate) fn on_update(_old: &Value, new: &mut Value, _part: Part, _warnings: &mut Vec<String>) {
    defaults(new);
}

fn defaults(object: &mut Value) {
    let spec = &mut object["spec"];
    for (field, value) in [
        ("type", json!("ClusterIP")),
        ("sessionAffinity", json!("None")),
    ] {
        if spec.get(field).is_none() {
            spec[field] = value;
        }
    }
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if port.get("protocol").is_none() {
            port["protocol"] = json!("TCP");
        }
        if port.get("targetPort").is_none() {
            port["targetPort"] = port["port"].clone();
        }
    }
}

pub(crate) fn causes(_old: Option<&Value>, _object: &Value, _part: Part) -> Vec<Cause> {
    Vec::new()
}
