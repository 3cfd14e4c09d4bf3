//! NodeOverlay and CapacityBuffer.

use provisor::api::{self, Object};
use provisor::model::money::UsdPerHour;
use provisor::model::pool::{NodeOverlay, PriceChange};
use serde_json::{Value, json};

use super::{accepts, finds, refuses, with};

fn overlay() -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": { "name": "cheaper" },
        "spec": { "requirements": [] },
    })
}

fn overlay_with(field: &str, value: Value) -> Value {
    with(overlay(), &format!("spec/{field}"), value)
}

fn parse_overlay(object: &Value) -> NodeOverlay {
    match api::parse(object) {
        Ok(Object::NodeOverlay(overlay)) => overlay,
        other => panic!("{other:?}"),
    }
}

#[test]
fn api_037_an_overlay_changes_a_price_one_way_and_adds_only_extended_resources() {
    accepts(&overlay());
    accepts(&overlay_with("price", json!("0.42")));
    accepts(&overlay_with("capacity", json!({ "example.com/dongle": 3 })));
    refuses(&with(overlay_with("price", json!("1")), "spec/priceAdjustment", json!("+1")), "spec");
    for name in ["cpu", "memory", "ephemeral-storage", "pods"] {
        refuses(&overlay_with("capacity", json!({ name: "1" })), &format!("spec.capacity.{name}"));
    }
    for operator in ["In", "NotIn"] {
        let requirements = json!([{ "key": "a", "operator": operator, "values": [] }]);
        refuses(&overlay_with("requirements", requirements), "spec.requirements[0].values");
    }
    let on_pool = json!([{ "key": "karpenter.sh/nodepool", "operator": "In", "values": ["general"] }]);
    accepts(&overlay_with("requirements", on_pool));
    for price in ["-1", "1.", ".5", "", "1e3", "$1"] {
        refuses(&overlay_with("price", json!(price)), "spec.price");
    }
}

#[test]
fn api_038_an_adjustment_has_a_sign_and_takes_away_at_most_all() {
    use PriceChange::{Add, Scale};
    for (text, change) in [
        ("+10%", Scale(1000)),
        ("-15%", Scale(-1500)),
        ("-99.5%", Scale(-9950)),
        ("-100%", Scale(-10_000)),
        ("+250%", Scale(25_000)),
        ("+0.5", Add(UsdPerHour(500_000))),
        ("-1", Add(UsdPerHour(-1_000_000))),
        ("-.25", Add(UsdPerHour(-250_000))),
    ] {
        let overlay = overlay_with("priceAdjustment", json!(text));
        accepts(&overlay);
        assert_eq!(parse_overlay(&overlay).price, Some(change), "{text}");
    }
    for text in ["10%", "-101%", "abc", "1", "", "-100.5%", "+", "+1.", "--1", "+1%%"] {
        refuses(&overlay_with("priceAdjustment", json!(text)), "spec.priceAdjustment");
    }
}

#[test]
fn api_039_an_overlay_weighs_from_1_to_10000() {
    for weight in [1, 10_000] {
        let overlay = overlay_with("weight", json!(weight));
        accepts(&overlay);
        assert_eq!(i64::from(parse_overlay(&overlay).weight), weight);
    }
    for weight in [0, 10_001, -1] {
        refuses(&overlay_with("weight", json!(weight)), "spec.weight");
    }
    assert_eq!(parse_overlay(&overlay()).weight, 0);
}

#[test]
fn api_040_a_buffer_knows_what_it_is_of_and_how_large() {
    let buffer = |spec: Value| {
        json!({
            "apiVersion": "autoscaling.x-k8s.io/v1beta1",
            "kind": "CapacityBuffer",
            "metadata": { "name": "spare", "namespace": "shop" },
            "spec": spec,
        })
    };
    let template = json!({ "name": "web" });
    let scalable = json!({ "apiGroup": "apps", "kind": "Deployment", "name": "web" });
    accepts(&buffer(json!({ "podTemplateRef": template, "replicas": 3 })));
    accepts(&buffer(json!({ "podTemplateRef": template, "limits": { "cpu": "4" } })));
    accepts(&buffer(json!({ "scalableRef": scalable, "percentage": 20 })));
    let refuses = |spec: Value, path: &str| finds(&buffer(spec), path, api::Stage::Admission);
    refuses(json!({ "podTemplateRef": template }), "spec");
    refuses(json!({ "podTemplateRef": template, "scalableRef": scalable, "replicas": 1 }), "spec");
    refuses(json!({ "podTemplateRef": { "name": "" }, "replicas": 1 }), "spec.podTemplateRef.name");
    refuses(json!({ "scalableRef": { "kind": "Deployment" } }), "spec.scalableRef.name");
    refuses(json!({ "scalableRef": scalable, "replicas": -1 }), "spec.replicas");
    refuses(json!({ "scalableRef": scalable, "percentage": -1 }), "spec.percentage");
}
