//! What is left in the cloud beside machines: names on them, and what was made for a class until the class goes.

use provisor::io::cloud::{CloudProvider, LaunchOrder};
use provisor::model::name::{ClaimName, NodeName, ProviderId};
use serde_json::{Value, json};

use super::bench::text;
use super::emulator::{Emulator, class, order};
use super::region::{Region, is_true};

const CLASS: &str = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses/default";

fn tag_of<'a>(machine: &'a Value, key: &str) -> Option<&'a str> {
    machine["tags"][key].as_str()
}

#[tokio::test]
async fn a_machine_is_named_once_unless_its_class_names_it() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    let bought = provider.launch(order("a", &["m5.large a spot"])).await.expect("a machine").instance;
    let own_name = class(json!({ "tags": { "Name": "mine" } }));
    let named = LaunchOrder { class: own_name, ..order("b", &["m5.large a spot"]) };
    let named = provider.launch(named).await.expect("a machine").instance;
    let (node, claim) = (NodeName::new("ip-10-0-0-1"), ClaimName::new("a"));
    let calls = async || cloud.calls("CreateTags").await.len();
    let before = calls().await;
    for _ in 0..2 {
        assert_eq!(provider.name(bought.provider_id, node, claim).await, Ok(true));
    }
    assert_eq!(
        provider.name(named.provider_id, NodeName::new("ip-10-0-0-2"), ClaimName::new("b")).await,
        Ok(true)
    );
    assert_eq!(calls().await - before, 1, "what has its name is left alone");
    let machines = cloud.machines().await;
    let name_of = |id: ProviderId| {
        let machine = machines.iter().find(|machine| machine["id"] == id.instance()).expect("it was bought");
        tag_of(machine, "Name")
    };
    assert_eq!(
        (name_of(bought.provider_id), name_of(named.provider_id)),
        (Some("ip-10-0-0-1"), Some("mine"))
    );
    // Of a machine that is not there, or is somebody else's, nothing is said.
    let nobody = ProviderId::new("aws:///us-east-1a/i-00000000000000000");
    assert_eq!(provider.name(nobody, node, claim).await, Ok(false));
}

/// What was made for other classes, other clusters and by others stays.
#[tokio::test]
async fn what_was_made_for_a_class_is_cleared_away_and_nothing_else() {
    let cloud = Emulator::furnished().await;
    let provider = cloud.provider();
    let profile = async |spec: Value| {
        let status = provider.resolve(class(spec)).await.expect("an answer");
        status.instance_profile.expect("a profile").to_string()
    };
    cloud
        .raw("iam", &[("Action", "CreateRole"), ("RoleName", "others"), ("AssumeRolePolicyDocument", "{}")])
        .await;
    // A class that had another role has two.
    let made = [profile(json!({})).await, profile(json!({ "role": "others" })).await];
    let foreign = [
        ("east_1", "/karpenter/us-east-1/east/default-2/"),
        ("east_2", "/karpenter/us-east-1/west/default/"),
        ("default", "/"),
    ];
    for (name, path) in foreign {
        let create = [("Action", "CreateInstanceProfile"), ("InstanceProfileName", name), ("Path", path)];
        cloud.raw("iam", &create).await;
    }
    provider.launch(order("a", &["m5.large a spot"])).await.expect("a machine");
    let templates = async || {
        let known = cloud.ec2.describe_launch_templates().send().await.expect("a list");
        known.launch_templates().len()
    };
    assert_eq!(templates().await, 1);
    cloud.fail("DeleteInstanceProfile", "DeleteConflict", 409, 1).await;
    let error = provider.clear(class(json!({})), true).await.expect_err("IAM refused").to_string();
    assert!(error.contains("DeleteInstanceProfile") && error.contains("DeleteConflict"), "{error}");
    // Whoever names a profile may not be allowed to ask for any.
    let own = class(json!({ "role": null, "instanceProfile": "mine" }));
    cloud.fail("ListInstanceProfiles", "AccessDenied", 403, 1).await;
    assert_eq!(provider.clear(own, false).await, Ok(()));
    assert!(
        provider
            .clear(class(json!({})), true)
            .await
            .expect_err("denied")
            .to_string()
            .contains("AccessDenied")
    );
    // A successor, and the same again.
    for provider in [cloud.provider(), provider.clone()] {
        provider.clear(class(json!({})), true).await.expect("cleared away");
    }
    assert_eq!(templates().await, 0);
    let left = cloud.raw("iam", &[("Action", "ListInstanceProfiles")]).await;
    let is_left = |name: &str| left.contains(&format!("<InstanceProfileName>{name}</InstanceProfileName>"));
    assert_eq!(made.each_ref().map(|name| is_left(name)), [false; 2], "{left}");
    assert_eq!(foreign.map(|(name, _)| is_left(name)), [true; 3], "{left}");
    // One that comes again begins anew.
    assert_eq!(profile(json!({})).await, made[0]);
    assert!(
        cloud
            .raw("iam", &[("Action", "GetInstanceProfile"), ("InstanceProfileName", &made[0])])
            .await
            .contains("nodes")
    );
}

/// The same on a cluster. The class comes back because the repository still wants it.
#[test]
fn a_class_goes_when_its_claims_are_gone_and_leaves_nothing() {
    let region = Region::new();
    let bench = &region.bench;
    let running = region.start(&[]);
    let class = || bench.plane.api.get(CLASS).body;
    bench.wait("class ready", || is_true(&class(), "Ready"));
    bench.deploy("small", 2, "250m", "512Mi");
    let is_told = |claim: &Value| claim.pointer("/metadata/annotations/karpenter.k8s.aws~1tagged").is_some();
    bench.wait("named", || {
        let claims = bench.claims();
        !claims.is_empty() && claims.iter().all(is_told) && bench.all_run(2)
    });
    for node in bench.nodes() {
        let id = text(&node, "/spec/providerID").rsplit('/').next().expect("an id").to_owned();
        let machines = region.living();
        let machine = machines.iter().find(|machine| text(machine, "/id") == id).expect("it was bought");
        assert_eq!(tag_of(machine, "Name"), Some(text(&node, "/metadata/name")));
    }
    let first = class();
    let finalizers = first["metadata"]["finalizers"].as_array().expect("it is held");
    assert!(finalizers.contains(&json!("karpenter.k8s.aws/termination")), "{finalizers:?}");
    assert_eq!(text(&first, "/metadata/annotations/provisor.dev~1held"), "profiles");

    bench.plane.api.delete(CLASS);
    let is_it = |event: &Value| text(event, "/reason") == "WaitingOnNodeClaimTermination";
    bench.wait("told that it waits", || bench.list("/api/v1/namespaces/default/events").iter().any(is_it));
    assert!(region.calls("DeleteInstanceProfile").is_empty(), "machines still use it");
    assert_eq!(text(&class(), "/metadata/uid"), text(&first, "/metadata/uid"));
    region.runtime.block_on(region.cloud.fail("DeleteInstanceProfile", "AccessDenied", 403, 1));
    bench.scale("small", 0);
    for claim in bench.claims() {
        let path = format!("/apis/karpenter.sh/v1/nodeclaims/{}", text(&claim, "/metadata/name"));
        bench.plane.api.delete(&path);
    }
    bench.wait("another class", || {
        let now = class();
        is_true(&now, "Ready") && text(&now, "/metadata/uid") != text(&first, "/metadata/uid")
    });
    assert!(region.living().is_empty(), "it went before its machines");
    assert_eq!(region.calls("DeleteInstanceProfile").len(), 2, "refused, and once more");
    let is_it = |event: &Value| {
        text(event, "/reason") == "NodeClassTerminationFailed"
            && text(event, "/message").contains("AccessDenied")
    };
    assert!(bench.list("/api/v1/namespaces/default/events").iter().any(is_it), "told at the class");
    assert_eq!(region.calls("CreateInstanceProfile").len(), 2);
    region.expect_permitted();
    assert_eq!(running.stop(), 130, "asked to end, it ends");
}
